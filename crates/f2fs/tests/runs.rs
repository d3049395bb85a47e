//! Blocks that are written together: what placements hear of their runs, and in which order they reach the device.

use std::sync::{Arc, Mutex};

use basalt_device::{BlockDevice, DeviceLayer, MemoryDevice, Result};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_segments::placement::Policy;
use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, StaticPlacement};
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode};

const BLOCK: u64 = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// Remembers where each write began and ended, in bytes.
struct Ordered {
    below: MemoryDevice,
    writes: Mutex<Vec<(u64, u64)>>,
}

impl DeviceLayer for Ordered {
    type Below = MemoryDevice;
    fn below(&self) -> &MemoryDevice {
        &self.below
    }
    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        let end = offset + slices.iter().map(|slice| slice.len() as u64).sum::<u64>();
        self.writes.lock().unwrap().push((offset, end));
        self.below.write_vectored_at(offset, slices)
    }
}

fn formatted() -> MemoryDevice {
    let device = MemoryDevice::new(128 << 20, 512);
    let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
    format(&device, &options, &mut |_, _| ()).unwrap();
    device
}

fn create(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

fn write(fs: &F2fs, ino: InodeNumber, block: u64, blocks: usize) {
    let data = vec![7; blocks * BLOCK as usize];
    assert_eq!(fs.write(ino, block * BLOCK, &data, false).unwrap(), data.len());
}

/// A device takes writes for a stream while each begins where one has ended: what waits in front of a large write goes first. Large writes end
/// where segments do, too.
#[test]
fn what_lies_in_front_on_the_device_is_written_before() {
    let device = Arc::new(Ordered { below: formatted(), writes: Mutex::default() });
    let options = OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::default() };
    let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
    let (small, large) = (create(&fs, "small"), create(&fs, "large"));
    for round in 0..20 {
        // Every other block, so that no write goes through. Half of the cache may be dirty: many are written back, and some of them wait.
        (0..300).for_each(|page| write(&fs, small, 2 * (300 * round + page), 1));
        write(&fs, large, 40 * round, 40);
    }
    let writes = device.writes.lock().unwrap();
    let large = writes.iter().filter(|(from, to)| to - from == 40 * BLOCK).count();
    assert!(large >= 15, "{large} large writes");
    for (at, (from, _)) in writes.iter().enumerate() {
        let late = writes[at..].iter().position(|(_, to)| to == from);
        assert_eq!(late, None, "write {at} at byte {from} came before what lies in front of it");
    }
}

/// The runs of new blocks of files, in the order in which they are written.
struct Runs;

static RUNS: Policy = Policy::new("runs", "the static one", |_| Ok(Box::new(Runs)));
static SEEN: Mutex<Vec<(u32, u32)>> = Mutex::new(Vec::new());

impl Placement for Runs {
    fn log(&self, block: &BlockTraits) -> LogId {
        StaticPlacement::default().log(block)
    }

    fn note_written(&self, block: &BlockTraits, _: MainBlock) {
        if !block.node && !block.of_directory {
            SEEN.lock().unwrap().push((block.index, block.run));
        }
    }
}

#[test]
fn a_placement_hears_how_many_neighbours_are_written_together() {
    let options = OpenOptions { placement: &RUNS, ..OpenOptions::default() };
    let fs = F2fs::open(Arc::new(formatted()), options, Arc::new(SystemClock)).unwrap();
    let file = create(&fs, "file");
    let seen = || std::mem::take(&mut *SEEN.lock().unwrap());
    write(&fs, file, 100, 20);
    assert_eq!(seen(), (100..120).map(|index| (index, 20)).collect::<Vec<_>>(), "at once");
    for block in [10, 11, 12, 30, 51, 50] {
        write(&fs, file, block, 1);
    }
    fs.sync_file(file, false).unwrap();
    assert_eq!(seen(), [(10, 3), (11, 3), (12, 3), (30, 1), (50, 2), (51, 2)], "from the page cache");
    for block in [0, 1, 5] {
        write(&fs, file, block, 1);
    }
    fs.sync_file(file, false).unwrap();
    assert_eq!(seen(), [(0, 2), (1, 2), (5, 1)], "from the first block on");
    // fsync writes pieces of 256.
    (0..300).for_each(|page| write(&fs, file, 1000 + page, 1));
    fs.sync_file(file, false).unwrap();
    let long = (0..300).map(|page| (1000 + page, if page < 256 { 256 } else { 44 })).collect::<Vec<_>>();
    assert_eq!(seen(), long, "in pieces");
    fs.close().unwrap();
    // Writeback goes on where it ended: what is dirty in front of that is not among its runs.
    let options = OpenOptions { placement: &RUNS, cache_bytes: 4 << 20, ..OpenOptions::default() };
    let fs = F2fs::open(Arc::new(formatted()), options, Arc::new(SystemClock)).unwrap();
    let file = create(&fs, "file");
    let mut page = 0;
    let mut write_until_written = || loop {
        write(&fs, file, 10 + 2 * page, 1);
        page += 1;
        let seen = seen();
        if !seen.is_empty() {
            return seen;
        }
    };
    write_until_written();
    for block in [0, 1, 2, 5, 6] {
        write(&fs, file, block, 1);
    }
    let next = write_until_written();
    assert!(next[0].0 > 10 && next.iter().filter(|(index, _)| *index > 10).all(|(_, run)| *run == 1), "{next:?}");
}
