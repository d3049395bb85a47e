//! Room on full volumes: where many change them at once, and whatever sections the victim policy prefers.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI64, AtomicU32};

use basalt_device::MemoryDevice;
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Clock, F2fs, OpenOptions, Reclaim, SystemClock};
use basalt_segments::cleaning::KeepFree;
use basalt_segments::slack::DeviceClass;
use basalt_segments::{SectionView, VictimPolicy};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode, Time};

const BLOCK: u64 = 4096;
/// Blocks of a request of 1 MiB.
const LARGE: u64 = 256;

fn formatted(mib: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(mib << 20, 512));
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| {}).unwrap();
    device
}

/// A file that takes so many percent of what is available; its blocks.
fn file_of(fs: &F2fs, percent: u64) -> (InodeNumber, u64) {
    let new = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let ino = fs.create(fs.root(), b"file", &new, &Caller::default()).unwrap().ino;
    let blocks = fs.stat_fs().unwrap().available * percent / 100;
    (0..blocks).for_each(|block| _ = fs.write(ino, block * BLOCK, &[1; BLOCK as usize], false).unwrap());
    fs.sync().unwrap();
    (ino, blocks)
}

fn close(fs: &F2fs, device: &MemoryDevice) {
    fs.sync().unwrap();
    fs.close().unwrap();
    let report = check(device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}

/// Each of 32 threads makes room, and then writes 1 MiB at once: all of them together must not take more than there is.
#[test]
fn many_that_change_a_full_volume_at_once_find_room() {
    let ways = [
        (KeepFree::Adaptive, Reclaim::Clean),
        (KeepFree::Reserve, Reclaim::Clean),
        (KeepFree::Adaptive, Reclaim::Slack),
        (KeepFree::Adaptive, Reclaim::Partial),
    ];
    for (keep_free, reclaim) in ways {
        let device = formatted(512);
        // With these times, nearly all that splits slack is copied out of the way.
        let times = DeviceClass::Sd.device_times();
        let options = OpenOptions { keep_free, reclaim, times, ..OpenOptions::default() };
        let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
        let (ino, blocks) = file_of(&fs, 99);
        // Until cleaning has settled.
        let mut rng = Rng::new(5);
        (0..100_000).for_each(|_| _ = fs.write(ino, rng.below(blocks) * BLOCK, &[2; BLOCK as usize], false).unwrap());
        let least = AtomicU32::new(u32::MAX);
        std::thread::scope(|scope| {
            for thread in 0..32 {
                let (fs, least) = (&fs, &least);
                scope.spawn(move || {
                    let mut rng = Rng::new(100 + thread);
                    let data = vec![3; (LARGE * BLOCK) as usize];
                    for at in 0..25 {
                        let written = fs.write(ino, rng.below(blocks - LARGE) * BLOCK, &data, false);
                        let is_whole = matches!(written, Ok(bytes) if bytes == data.len());
                        assert!(is_whole, "{keep_free:?}, {reclaim:?}, thread {thread}, write {at}: {written:?}");
                        if thread % 4 == 0 {
                            fs.sync_file(ino, true).unwrap();
                        }
                        least.fetch_min(fs.info().states.free, SeqCst);
                    }
                });
            }
        });
        // Two for cleaning, one for each log of nodes: a checkpoint always finds room.
        let least = least.into_inner();
        assert!(least >= 3, "{keep_free:?}, {reclaim:?}: {least} segments were free");
        close(&fs, &device);
    }
}

/// Prefers sections that hardly gain anything, as those that go by age alone may.
struct MostLive;

impl VictimPolicy for MostLive {
    fn name(&self) -> &'static str {
        "most-live"
    }

    fn about(&self) -> &'static str {
        "the section with the most live blocks"
    }

    fn cost(&self, section: &SectionView, _now: u64, _oldest: u64, _youngest: u64) -> f64 {
        f64::from(section.capacity - section.live)
    }
}

/// Time passes when the test says so.
struct Stepped(AtomicI64);

impl Clock for Stepped {
    fn now(&self) -> Time {
        Time { seconds: self.0.load(SeqCst), nanoseconds: 0 }
    }
}

/// Most sections have lost one block each, and a few all that can be gained: a policy that prefers the many ends in no full volume.
#[test]
fn no_victim_policy_makes_a_volume_full() {
    for victim in [&MostLive as &'static dyn VictimPolicy, &basalt_segments::CostBenefit, &basalt_segments::Greedy] {
        let device = formatted(128);
        let clock = Arc::new(Stepped(AtomicI64::new(1_700_000_000)));
        let options = OpenOptions { victim, ..OpenOptions::default() };
        let fs = F2fs::open(device.clone(), options, clock.clone()).unwrap();
        let (ino, blocks) = file_of(&fs, 90);
        let write = |block: u64| fs.write(ino, block * BLOCK, &[2; BLOCK as usize], false);
        clock.0.fetch_add(3600, SeqCst);
        (256..blocks).step_by(512).for_each(|block| _ = write(block).unwrap());
        fs.sync().unwrap();
        clock.0.fetch_add(3600, SeqCst);
        let mut rng = Rng::new(3);
        for at in 0..60_000 {
            let block = rng.below(blocks * 3 / 10);
            assert!(write(block).is_ok(), "{}: overwrite {at} of block {block}", victim.name());
            if at % 64 == 63 {
                fs.sync_file(ino, true).unwrap();
            }
        }
        close(&fs, &device);
    }
}
