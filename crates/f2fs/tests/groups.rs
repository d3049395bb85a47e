//! A placement with logs of its own beside F2FS's six: blocks stay in their groups, volumes stay F2FS, and nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use basalt_device::{BlockDevice, FileDevice, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_segments::placement::Policy;
use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, Reason, Segment, SegmentKind, StaticPlacement};
use basalt_testkit::rng::Rng;
use basalt_testkit::{images, skip};
use basalt_vfs::{Caller, Error, FileKind, FileSystem, InodeNumber, NewNode};

const BLOCK: usize = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// Files by their inode number in three groups, and what cleaning copies in a fourth.
static GROUPS: Policy = Policy::new("groups", "files by number", |_| Ok(Box::new(Groups::default())));

const KINDS: [SegmentKind; 4] =
    [SegmentKind::WarmData, SegmentKind::WarmData, SegmentKind::HotData, SegmentKind::ColdData];

#[derive(Default)]
struct Groups(Mutex<Told>);

/// What the engine has told.
#[derive(Default)]
struct Told {
    /// The file and block at each place that was written and has not died; nodes have none.
    live: BTreeMap<MainBlock, Option<(u32, u32)>>,
    /// Groups of data in each segment since it was free.
    mixed: BTreeMap<Segment, BTreeSet<u8>>,
    sealed: u32,
    free: u32,
    fsynced: u64,
    copied: u64,
}

fn group(block: &BlockTraits) -> Option<u8> {
    match block.reason {
        _ if block.node || block.of_directory => None,
        Reason::Cleaning => Some(3),
        Reason::Writeback | Reason::Fsync => Some((block.file % 3) as u8),
    }
}

impl Placement for Groups {
    fn more_logs(&self) -> &[SegmentKind] {
        &KINDS
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        group(block).map_or_else(|| StaticPlacement::default().log(block), LogId::more)
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        let mut told = self.0.lock().unwrap();
        let owner = (!block.node).then_some((block.file, block.index));
        assert_eq!(told.live.insert(place, owner), None, "place {place} is live already");
        if let Some(group) = group(block) {
            told.mixed.entry(place.segment()).or_default().insert(group);
        }
        told.fsynced += u64::from(block.reason == Reason::Fsync);
        told.copied += u64::from(block.reason == Reason::Cleaning);
    }

    fn note_dead(&self, place: MainBlock) {
        self.0.lock().unwrap().live.remove(&place);
    }

    fn note_sealed(&self, log: LogId, segment: Segment) {
        let mut told = self.0.lock().unwrap();
        told.sealed += u32::from(!log.is_recorded());
        // Recorded logs take what has no room in a group.
        let is_mixed = !log.is_recorded() && told.mixed.get(&segment).is_some_and(|groups| groups.len() > 1);
        TOTAL.lock().unwrap().mixed += u32::from(is_mixed);
    }

    fn note_free(&self, segment: Segment) {
        let mut told = self.0.lock().unwrap();
        let (first, end) = (MainBlock::in_segment(segment, 0), MainBlock::in_segment(segment, 511));
        assert_eq!(told.live.range(first..=end).next(), None, "segment {segment} is free, and something is live there");
        told.mixed.remove(&segment);
        told.free += 1;
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let told = self.0.lock().unwrap();
        let mut total = TOTAL.lock().unwrap();
        total.sealed += told.sealed;
        total.free += told.free;
        total.fsynced += told.fsynced;
        total.copied += told.copied;
    }
}

/// Of all placements of this program: tests that look at it run one after the other.
static TOTAL: Mutex<Total> = Mutex::new(Total { sealed: 0, free: 0, fsynced: 0, copied: 0, mixed: 0 });
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Total {
    sealed: u32,
    free: u32,
    fsynced: u64,
    copied: u64,
    /// Sealed segments with blocks of more than one group.
    mixed: u32,
}

fn options() -> OpenOptions {
    OpenOptions { placement: &GROUPS, cache_bytes: 8 << 20, ..OpenOptions::default() }
}

fn open(device: &Arc<MemoryDevice>) -> F2fs {
    F2fs::open(device.clone(), options(), Arc::new(SystemClock)).unwrap()
}

fn volume(mib: u64, journal_bytes: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(mib << 20, 512));
    let options = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    device
}

/// A volume and what its files hold, and held when they were last durable.
struct Model {
    fs: F2fs,
    inos: Vec<InodeNumber>,
    now: Vec<Vec<u8>>,
    durable: Vec<Vec<u8>>,
}

const FILES: u64 = 12;
const BLOCKS: u64 = 1000;

impl Model {
    fn new(device: &Arc<MemoryDevice>) -> Model {
        let fs = open(device);
        let make = |number| fs.create(fs.root(), format!("file {number}").as_bytes(), &FILE, &Caller::default());
        let inos: Vec<InodeNumber> = (0..FILES).map(|number| make(number).unwrap().ino).collect();
        fs.sync().unwrap();
        let empty = vec![Vec::new(); FILES as usize];
        Model { fs, inos, now: empty.clone(), durable: empty }
    }

    fn write(&mut self, file: usize, block: usize, count: usize, byte: u8) {
        let data = vec![byte; count * BLOCK];
        let mut done = 0;
        while done < data.len() {
            let at = (block * BLOCK + done) as u64;
            done += self.fs.write(self.inos[file], at, &data[done..], false).unwrap();
        }
        let content = &mut self.now[file];
        content.resize(content.len().max((block + count) * BLOCK), 0);
        content[block * BLOCK..][..data.len()].copy_from_slice(&data);
    }

    fn fsync(&mut self, file: usize) {
        self.fs.sync_file(self.inos[file], false).unwrap();
        self.durable[file] = self.now[file].clone();
    }

    fn step(&mut self, rng: &mut Rng) {
        let file = rng.below(FILES) as usize;
        match rng.below(12) {
            0..=7 => {
                let most = if rng.chance(25) { 64 } else { 4 };
                let count = 1 + rng.below(most) as usize;
                let block = rng.below(BLOCKS - count as u64) as usize;
                let byte = rng.below(255) as u8 + 1;
                self.write(file, block, count, byte);
            }
            8..=10 => self.fsync(file),
            _ => {
                self.fs.sync().unwrap();
                self.durable.clone_from(&self.now);
            }
        }
    }
}

fn content(fs: &F2fs, number: usize) -> Vec<u8> {
    let ino = fs.lookup(fs.root(), format!("file {number}").as_bytes()).unwrap().ino;
    let mut bytes = vec![0; fs.attributes(ino).unwrap().size as usize];
    let mut done = 0;
    while done < bytes.len() {
        done += fs.read(ino, done as u64, &mut bytes[done..]).unwrap();
    }
    bytes
}

fn expect_clean(device: &Arc<MemoryDevice>, when: &str) {
    let report = check(&**device, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{when}: {:?}", report.faults);
}

/// Random changes with cleaning, and power that fails now and then.
fn live_through(seed: u64, journal_bytes: u64, rounds: u32) {
    println!("seed {seed}, journal of {journal_bytes} bytes");
    let mut rng = Rng::new(seed);
    let device = volume(128, journal_bytes);
    let mut model = Model::new(&device);
    for round in 0..rounds {
        for _ in 0..400 {
            model.step(&mut rng);
        }
        // What fsync promised holds after a power cut: what is in no cache is on the device. Blocks that were never fsynced may be there.
        let file = rng.below(FILES) as usize;
        model.fsync(file);
        let cut = Arc::new(device.snapshot());
        let after = open(&cut);
        assert!(content(&after, file) == model.durable[file], "round {round}: file {file} after a power cut");
        after.close().unwrap();
        expect_clean(&cut, "after a power cut");
    }
    model.fs.close().unwrap();
    expect_clean(&device, "after closing");
    let fs = open(&device);
    for (number, expected) in model.now.iter().enumerate() {
        assert!(content(&fs, number) == *expected, "file {number} after closing");
    }
}

#[test]
fn groups_stay_apart_and_nothing_is_lost() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for seed in 0..3 {
        live_through(seed, 0, 12);
        live_through(seed, FormatOptions::DEFAULT_JOURNAL_BYTES, 12);
    }
    let total = TOTAL.lock().unwrap();
    assert!(total.sealed > 100 && total.free > 100, "{} sealed, {} freed", total.sealed, total.free);
    assert!(total.fsynced > 1000 && total.copied > 1000, "{} fsynced, {} copied", total.fsynced, total.copied);
    assert_eq!(total.mixed, 0, "sealed segments of more than one group");
}

#[test]
fn a_full_volume_says_so_and_stays_whole() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let device = volume(64, FormatOptions::DEFAULT_JOURNAL_BYTES);
    let mut rng = Rng::new(1);
    let fs = open(&device);
    let mut written: Vec<(InodeNumber, u64)> = Vec::new();
    for number in 0..100_000u32 {
        let made = fs.create(fs.root(), format!("file {number}").as_bytes(), &FILE, &Caller::default());
        let Ok(made) = made else { break };
        let byte = number as u8 | 1;
        match fs.write(made.ino, 0, &vec![byte; 64 * BLOCK], false) {
            Ok(count) => written.push((made.ino, count as u64)),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("file {number}: {error}"),
        }
    }
    assert!(written.len() > 40, "{} files fit", written.len());
    // Overwriting takes no space, however little is left.
    for _ in 0..2000 {
        let (ino, length) = written[rng.below(written.len() as u64) as usize];
        let at = rng.below(length / BLOCK as u64) * BLOCK as u64;
        assert_eq!(fs.write(ino, at, &[7; BLOCK], false).unwrap(), BLOCK);
        if rng.below(50) == 0 {
            fs.sync_file(ino, false).unwrap();
        }
    }
    fs.close().unwrap();
    expect_clean(&device, "a full volume");
}

#[test]
fn other_programs_agree() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !skip::tools_or_skip(&["fsck.f2fs"]) {
        return;
    }
    let device = volume(128, 0);
    let mut model = Model::new(&device);
    let mut rng = Rng::new(5);
    for _ in 0..3000 {
        model.step(&mut rng);
    }
    model.fs.close().unwrap();
    let path = std::env::temp_dir().join(format!("basalt-groups-{}", std::process::id()));
    let file = FileDevice::create(&path, device.size()).unwrap();
    let mut bytes = vec![0; 1 << 20];
    for at in (0..device.size()).step_by(1 << 20) {
        device.read_at(at, &mut bytes).unwrap();
        file.write_at(at, &bytes).unwrap();
    }
    file.flush().unwrap();
    drop(file);
    let report = images::fsck_f2fs(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(report.is_clean(), "{report}");
}
