//! What is counted of each log of data: what users and cleaning wrote there, what died of it, what is live.

use std::sync::Arc;

use basalt_device::MemoryDevice;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_segments::placement::Policy;
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, Engine, FileKind, FileSystem, InodeNumber, NewNode, SetAttributes};

const BLOCK: u64 = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

fn open(mib: u64, placement: &'static Policy) -> F2fs {
    let device = MemoryDevice::new(mib << 20, 512);
    let options = FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() };
    format(&device, &options, &mut |_, _| ()).unwrap();
    let options = OpenOptions { placement, background_cleaning: false, ..OpenOptions::default() };
    F2fs::open(Arc::new(device), options, Arc::new(SystemClock)).unwrap()
}

fn create(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

fn write(fs: &F2fs, ino: InodeNumber, block: u64, blocks: usize) {
    let data = vec![7; blocks * BLOCK as usize];
    assert_eq!(fs.write(ino, block * BLOCK, &data, false).unwrap(), data.len());
}

/// Blocks written, copied and dead of a log, those live, and those of its segments.
fn tally(fs: &F2fs, log: &str) -> [u64; 5] {
    let live = fs.live();
    let counted = |what| live.counters.named.get(&format!("logs/{log}/{what}")).unwrap();
    let fact = |what| live.named.get(&format!("logs/{log}/{what}")).unwrap();
    [counted("written_blocks"), counted("copied_blocks"), counted("dead_blocks"), fact("live_blocks"), fact("blocks")]
}

#[test]
fn each_block_is_counted_until_it_is_dead_and_its_segment_free() {
    let fs = open(128, <&Policy>::default());
    let ino = create(&fs, "file");
    write(&fs, ino, 0, 1000);
    assert_eq!(tally(&fs, "warm_data"), [1000, 0, 0, 1000, 1024]);
    write(&fs, ino, 100, 100);
    assert_eq!(tally(&fs, "warm_data"), [1100, 0, 100, 1000, 1536]);
    fs.set_attributes(ino, &SetAttributes { size: Some(100 * BLOCK), ..Default::default() }).unwrap();
    assert_eq!(tally(&fs, "warm_data"), [1100, 0, 1000, 100, 1536]);
    fs.sync().unwrap();
    assert_eq!(tally(&fs, "warm_data"), [1100, 0, 1000, 100, 1024], "the second segment is free");
    assert_eq!(tally(&fs, "cold_data"), [0; 5]);
    // Directories' first segment was begun by mkfs: what is written there counts, what is live there does not.
    let [written, copied, dead, live, blocks] = tally(&fs, "hot_data");
    assert!(written > 0 && [copied, dead, live, blocks] == [0; 4]);
    assert_eq!(fs.live().counters.named.get("logs/more_1/written_blocks"), None, "there is no such log");
}

/// What is written and copied is what the volume counts, and what was written and did not die is live.
#[test]
fn cleaning_copies_and_kills_nothing() {
    let fs = open(64, basalt_schemes::placement_by_name("sfs-log").unwrap());
    let ino = create(&fs, "file");
    let blocks = fs.live().usage.user_blocks * 80 / 100;
    (0..blocks / 64).for_each(|at| write(&fs, ino, at * 64, 64));
    let mut rng = Rng::new(11);
    for step in 0..60_000 {
        let range = if rng.chance(90) { blocks / 10 } else { blocks };
        write(&fs, ino, rng.below(range), 1);
        if step % 256 == 0 {
            fs.sync_file(ino, false).unwrap();
        }
    }
    fs.sync().unwrap();
    let statistics = fs.statistics();
    let mut sums = [0; 5];
    for log in ["hot_data", "warm_data", "cold_data", "more_1", "more_2", "more_3"] {
        let tally = tally(&fs, log);
        let [written, copied, dead, live, blocks] = tally;
        println!("{log}: {tally:?}");
        assert!(dead + live <= written + copied && live <= blocks, "{log}: {tally:?}");
        sums.iter_mut().zip(tally).for_each(|(sum, one)| *sum += one);
    }
    let [written, copied, dead, live, _] = sums;
    assert_eq!(written + copied, statistics.written.data_blocks);
    assert_eq!(copied, statistics.cleaning.total().data_blocks_copied);
    assert!(copied > 1000, "{copied}");
    // But for what is in the segment that mkfs has begun.
    assert!((written - dead).abs_diff(live) < 512, "{sums:?}");
    let info = fs.info();
    let of_data: u64 = info.kinds[..3].iter().map(|kind| kind.live_blocks).sum();
    assert!(of_data.abs_diff(live) < 512, "{sums:?}, {of_data} live");
}
