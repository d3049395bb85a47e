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
    open_with(mib, 0, OpenOptions { placement, ..OpenOptions::default() })
}

fn open_with(mib: u64, journal_bytes: u64, options: OpenOptions) -> F2fs {
    let device = MemoryDevice::new(mib << 20, 512);
    let format_options = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
    format(&device, &format_options, &mut |_, _| ()).unwrap();
    let options = OpenOptions { background_cleaning: false, ..options };
    F2fs::open(Arc::new(device), options, Arc::new(SystemClock)).unwrap()
}

fn create(fs: &F2fs, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

fn write(fs: &F2fs, ino: InodeNumber, block: u64, blocks: usize) {
    let data = vec![7; blocks * BLOCK as usize];
    assert_eq!(fs.write(ino, block * BLOCK, &data, false).unwrap(), data.len());
}

/// Blocks written and copied to a log, those dead, moved and live in its segments, and all of these.
fn tally(fs: &F2fs, log: &str) -> [u64; 6] {
    let live = fs.live();
    let counted = |what| live.counters.named.get(&format!("logs/{log}/{what}")).unwrap();
    let fact = |what| live.named.get(&format!("logs/{log}/{what}")).unwrap();
    let counters = ["written_blocks", "copied_blocks", "dead_blocks", "moved_blocks"].map(counted);
    [counters[0], counters[1], counters[2], counters[3], fact("live_blocks"), fact("blocks")]
}

#[test]
fn each_block_is_counted_until_it_is_dead_and_its_segment_free() {
    let fs = open(128, <&Policy>::default());
    let ino = create(&fs, "file");
    write(&fs, ino, 0, 1000);
    assert_eq!(tally(&fs, "warm_data"), [1000, 0, 0, 0, 1000, 1024]);
    write(&fs, ino, 100, 100);
    assert_eq!(tally(&fs, "warm_data"), [1100, 0, 100, 0, 1000, 1536]);
    fs.set_attributes(ino, &SetAttributes { size: Some(100 * BLOCK), ..Default::default() }).unwrap();
    assert_eq!(tally(&fs, "warm_data"), [1100, 0, 1000, 0, 100, 1536]);
    fs.sync().unwrap();
    assert_eq!(tally(&fs, "warm_data"), [1100, 0, 1000, 0, 100, 1024], "the second segment is free");
    assert_eq!(tally(&fs, "cold_data"), [0, 0, 0, 0, 0, 512], "an empty segment that is open");
    // Directories' first segment was begun by mkfs: what is written there counts for the log, what is live there for what was before.
    let [written, others @ ..] = tally(&fs, "hot_data");
    assert!(written > 0 && others == [0; 5], "{others:?}");
    assert_eq!(tally(&fs, "before"), [0, 0, written, 0, 2, 0]);
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
    let mut sums = [0; 6];
    for log in ["hot_data", "warm_data", "cold_data", "more_1", "more_2", "more_3", "before"] {
        let tally = tally(&fs, log);
        let [written, copied, dead, moved, live, blocks] = tally;
        println!("{log}: {tally:?}");
        let is_before = log == "before";
        assert!(is_before || dead + moved + live <= written + copied && live <= blocks, "{log}: {tally:?}");
        sums.iter_mut().zip(tally).for_each(|(sum, one)| *sum += one);
    }
    let [written, copied, dead, moved, live, _] = sums;
    assert_eq!(written + copied, statistics.written.data_blocks);
    assert_eq!(copied, statistics.cleaning.total().data_blocks_copied);
    assert!(copied > 1000, "{copied}");
    // Two blocks of directories are mkfs's.
    assert_eq!((copied, 2 + written + copied), (moved, dead + moved + live), "{sums:?}");
    let of_data: u64 = fs.info().kinds[..3].iter().map(|kind| kind.live_blocks).sum();
    assert_eq!(of_data, live);
}

#[test]
fn a_log_of_each_group_that_is_asked_for_is_counted() {
    let placement = basalt_schemes::placement_by_name("sfs").unwrap();
    for (groups, more) in [(None, 1), (Some(3), 0), (Some(6), 3)] {
        let fs = open_with(64, 0, OpenOptions { placement, groups, ..OpenOptions::default() });
        let counters = fs.live().counters;
        let is_there = |number: u32| counters.named.get(&format!("logs/more_{number}/written_blocks")).is_some();
        assert_eq!((1..9).filter(|number| is_there(*number)).count(), more, "{groups:?}");
    }
}

/// The journal frees sections between checkpoints: no log has more segments than there are.
#[test]
fn segments_that_the_journal_frees_are_no_logs() {
    let fs = open_with(64, FormatOptions::DEFAULT_JOURNAL_BYTES, OpenOptions::default());
    let ino = create(&fs, "file");
    let blocks = fs.live().usage.user_blocks * 80 / 100;
    (0..blocks / 64).for_each(|at| write(&fs, ino, at * 64, 64));
    let mut rng = Rng::new(12);
    for step in 0..40_000 {
        write(&fs, ino, rng.below(blocks), 1);
        if step % 256 == 0 {
            fs.sync_file(ino, false).unwrap();
        }
    }
    let commits = fs.statistics().written.journal_blocks;
    assert!(commits > 10, "{commits}");
    // What is empty and not free yet is free behind a checkpoint.
    fs.sync().unwrap();
    let of_logs: u64 = ["hot_data", "warm_data", "cold_data"].map(|log| tally(&fs, log)[4]).iter().sum();
    let of_kinds: u32 = fs.info().kinds[..3].iter().map(|kind| kind.segments).sum();
    assert!(of_logs <= u64::from(of_kinds) * 512, "{of_logs} blocks in {of_kinds} segments");
}
