//! Cleaning while somebody writes: each write waits for about as much as any other, and nobody for discards.

use std::sync::Arc;

use basalt_device::{MemoryDevice, RecordingDevice, RequestKind};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Clock, F2fs, OpenOptions};
use basalt_segments::cleaning::KeepFree;
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode, Time};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Writes between two calls of fdatasync.
const BATCH: u64 = 32;

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Time {
        Time { seconds: 1_700_000_000, nanoseconds: 0 }
    }
}

type Device = RecordingDevice<MemoryDevice>;

/// A volume of 512 MiB that one file nearly fills, overwritten at random so often that cleaning has settled.
struct Full {
    device: Arc<Device>,
    fs: F2fs,
    ino: InodeNumber,
    blocks: u64,
    rng: Rng,
}

impl Full {
    fn new(journal: bool, keep_free: KeepFree) -> Full {
        let device = Arc::new(RecordingDevice::new(MemoryDevice::new(512 * MIB, 512), false));
        let plain = FormatOptions { discard_reads_zeros: true, journal_bytes: 256 << 10, ..FormatOptions::default() };
        format(&*device, &plain, &mut |_, _| {}).unwrap();
        let options = OpenOptions { journal, keep_free, ..OpenOptions::default() };
        let fs = F2fs::open(device.clone(), options, Arc::new(Noon)).unwrap();
        let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
        let ino = fs.create(fs.root(), b"file", &node, &Caller::default()).unwrap().ino;
        let blocks = fs.stat_fs().unwrap().available * 9 / 10;
        for block in 0..blocks {
            fs.write(ino, block * BLOCK, &[1; BLOCK as usize], false).unwrap();
        }
        fs.sync().unwrap();
        let mut full = Full { device, fs, ino, blocks, rng: Rng::new(1) };
        (0..2 * blocks / BATCH).for_each(|_| full.batch());
        full
    }

    fn batch(&mut self) {
        for _ in 0..BATCH {
            let at = self.rng.below(self.blocks) * BLOCK;
            self.fs.write(self.ino, at, &[2; BLOCK as usize], false).unwrap();
        }
        self.fs.sync_file(self.ino, true).unwrap();
    }

    /// Bytes discarded since the last call.
    fn discarded(&self) -> u64 {
        let discards = self.device.take().into_iter().filter(|request| request.kind == RequestKind::Discard);
        discards.map(|request| request.length).sum()
    }

    fn close(self) {
        self.fs.close().unwrap();
        assert!(check(&*self.device, &CheckOptions::default(), &mut |_| {}).unwrap().is_clean());
    }
}

#[test]
fn writes_share_the_work_of_cleaning() {
    // A step moves 32 blocks or more. Where less is kept free, cleaning moves less, so more batches move nothing.
    for (journal, keep_free, idle) in [
        (false, KeepFree::Reserve, 250),
        (true, KeepFree::Reserve, 250),
        (false, KeepFree::Adaptive, 400),
        (true, KeepFree::Adaptive, 400),
    ] {
        let mut full = Full::new(journal, keep_free);
        let start = full.fs.statistics();
        let mut moved: Vec<u64> = (0..1000)
            .map(|_| {
                let before = full.fs.statistics().written.blocks_moved;
                full.batch();
                full.fs.statistics().written.blocks_moved - before
            })
            .collect();
        let done = full.fs.statistics().since(&start);
        let mean = done.written.blocks_moved / 1000;
        assert!(mean > BATCH, "journal {journal}: hardly anything was cleaned: {done:?}");
        moved.sort_unstable();
        assert!(moved[990] <= 3 * mean, "journal {journal}: {} blocks moved by one batch, {mean} usually", moved[990]);
        assert!(
            moved[idle] > 0,
            "journal {journal}, {keep_free:?}: {idle} of 1000 batches moved nothing: {mean} usually"
        );
        full.close();
    }
}

#[test]
fn what_is_freed_is_discarded_in_the_background_and_at_closing() {
    let mut full = Full::new(true, KeepFree::Adaptive);
    full.fs.tick(Noon.now());
    full.discarded();
    (0..100).for_each(|_| full.batch());
    assert!(full.fs.statistics().checkpoints.cleaning > 0, "{:?}", full.fs.statistics());
    assert_eq!(full.discarded(), 0, "a writer waited for a discard");
    let mut pieces = 0;
    loop {
        full.fs.tick(Noon.now());
        let bytes = full.discarded();
        assert!(bytes <= 8 * MIB, "{bytes} bytes in one piece");
        if bytes == 0 {
            break;
        }
        pieces += 1;
    }
    assert!(pieces > 1, "nothing was discarded in the background");
    (0..100).for_each(|_| full.batch());
    let free = u64::from(full.fs.info().states.free);
    full.fs.close().unwrap();
    let bytes = full.discarded();
    assert!(bytes > 0 && bytes <= (free + 64) * 2 * MIB, "{bytes} bytes discarded at closing, {free} segments free");
    assert!(check(&*full.device, &CheckOptions::default(), &mut |_| {}).unwrap().is_clean());
}
