//! SFS's write path: what waits, what is written, and that nothing is in the pool alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use basalt_random::Rng;
use basalt_segments::cleaning::KeepFree;
use basalt_segments::{BlockTraits, CostBenefit, LogId, MainBlock, Placement, Reason, Segment, SegmentKind};
use basalt_simulator::{Cleaning, FileModel, LogStart, Options, PoolOptions, Volume};

/// Blocks in two groups, the even and the odd ones.
#[derive(Clone, Default)]
struct Parity(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    time: u64,
    events: u64,
    written: u64,
    /// When a segment was written to the last time, and when what was at a place died.
    last_write: BTreeMap<Segment, u64>,
    died: BTreeMap<MainBlock, u64>,
    /// Blocks in each segment since it was free, by their number.
    blocks: BTreeMap<Segment, Vec<u32>>,
    freed: u64,
}

const MIXED: LogId = LogId::of(SegmentKind::ColdData);

impl Placement for Parity {
    fn log(&self, block: &BlockTraits) -> LogId {
        LogId::of(if block.index.is_multiple_of(2) { SegmentKind::HotData } else { SegmentKind::WarmData })
    }

    fn note_time(&self, now: u64) {
        let mut told = self.0.lock().unwrap();
        assert!(now >= told.time, "the clock goes back");
        told.time = now;
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        let told = &mut *self.0.lock().unwrap();
        told.events += 1;
        told.written += 1;
        assert!(block.reason != Reason::Cleaning || block.from.is_some());
        if block.reason != Reason::Cleaning {
            // It is there until now.
            assert!(block.from.is_none_or(|from| !told.died.contains_key(&from)), "{:?} is dead already", block.from);
        } else if let Some(from) = block.from {
            // Its old place is the only copy until now.
            let died = told.died[&from];
            assert!(told.last_write[&from.segment()] < died, "{from} was written to before block {}", block.index);
        }
        told.died.remove(&place);
        told.last_write.insert(place.segment(), told.events);
        told.blocks.entry(place.segment()).or_default().push(block.index);
    }

    fn note_dead(&self, place: MainBlock) {
        let mut told = self.0.lock().unwrap();
        told.events += 1;
        let events = told.events;
        told.died.insert(place, events);
    }

    fn note_free(&self, segment: Segment) {
        let mut told = self.0.lock().unwrap();
        told.freed += 1;
        told.blocks.remove(&segment);
    }
}

fn options(blocks: u32, pool_blocks: u32) -> Options {
    Options {
        blocks,
        policy: &CostBenefit,
        cleaning: Cleaning::FreeSections { least: 4, victims: 3 },
        pool: Some(PoolOptions {
            checkpoint_interval: Duration::from_secs(1000),
            ..PoolOptions::of(pool_blocks, MIXED, 4.096, 40.96)
        }),
        ..Options::of(128 << 20, 50).unwrap()
    }
}

fn kind(volume: &Volume, block: u32) -> Option<SegmentKind> {
    volume.place_of(block).map(|place| volume.table().kind(place.segment()))
}

#[test]
fn full_groups_are_written_and_the_rest_waits_for_a_checkpoint() {
    let mut volume = Volume::with_placement(options(20_000, 600), Box::new(Parity::default())).unwrap();
    // 590 even blocks and 9 odd ones, some of them twice: not enough.
    (0..590).for_each(|block| volume.write(2 * block).unwrap());
    (0..9).for_each(|block| volume.write(2 * block + 1).unwrap());
    (0..9).for_each(|block| volume.write(2 * block + 1).unwrap());
    assert_eq!((volume.statistics().absorbed, volume.statistics().user_blocks), (9, 0));
    // The 600th: the first 512 even ones are written.
    volume.write(19).unwrap();
    assert_eq!(volume.statistics().user_blocks, 512);
    assert_eq!((kind(&volume, 1022), kind(&volume, 1024), kind(&volume, 1)), (Some(SegmentKind::HotData), None, None));
    // The 78 even ones and 10 odd ones that wait absorb writes and do not count for the next 600.
    (0..9).for_each(|block| volume.write(2 * block + 1).unwrap());
    (0..599).for_each(|block| volume.write(2 * block + 10_001).unwrap());
    assert_eq!((volume.statistics().absorbed, volume.statistics().user_blocks), (18, 512));
    volume.write(1).unwrap();
    volume.write(15_001).unwrap();
    // 610 odd ones wait: 512 are written, those that waited before first.
    assert_eq!((volume.statistics().absorbed, volume.statistics().user_blocks), (19, 1024));
    assert_eq!((kind(&volume, 1), kind(&volume, 15_001)), (Some(SegmentKind::WarmData), None));
    volume.sync().unwrap();
    let statistics = *volume.statistics();
    assert_eq!((statistics.user_blocks, statistics.checkpoints), (590 + 610, 1));
    // Both rests lie in the log for the rest.
    let mixed: BTreeSet<_> = [1024, 1178, 15_001, 11_197].map(|block| volume.place_of(block).unwrap().segment()).into();
    assert_eq!((mixed.len(), kind(&volume, 1024)), (1, Some(SegmentKind::ColdData)));
    volume.sync().unwrap();
    assert_eq!(*volume.statistics(), statistics, "nothing has changed");
}

#[test]
fn checkpoints_come_by_sections_and_by_time() {
    let run = |sections, interval| {
        let mut options = options(20_000, 512);
        let pool = options.pool.as_mut().unwrap();
        (pool.checkpoint_sections, pool.checkpoint_interval) = (sections, interval);
        let mut volume = Volume::with_placement(options, Box::new(Parity::default())).unwrap();
        // 16 sections of even blocks, then as many of odd ones.
        (0..8192).for_each(|block| volume.write(2 * block).unwrap());
        volume.statistics().checkpoints
    };
    let long = Duration::from_secs(1000);
    assert_eq!((run(4, long), run(3, long), run(100, long)), (4, 5, 0));
    // A section takes 512 times 0.1 ms.
    assert_eq!((run(100, Duration::from_millis(51)), run(100, Duration::from_millis(103))), (16, 5));
}

/// Writes for a while; the volume and what its placement heard.
fn random_run(seed: u64) -> (Volume, Arc<Mutex<Told>>) {
    let placement = Parity::default();
    let told = Arc::clone(&placement.0);
    let blocks = 16_000u32;
    // Enough free sections that what cleaning reads may wait.
    let cleaning = Cleaning::FreeSections { least: 24, victims: 3 };
    let options = Options { cleaning, ..options(blocks, 1200) };
    let mut volume = Volume::with_placement(options, Box::new(placement)).unwrap();
    volume.stop_clock(true);
    (0..blocks).for_each(|block| volume.write(block).unwrap());
    volume.sync().unwrap();
    assert_eq!(std::mem::take(&mut told.lock().unwrap().written), u64::from(blocks));
    assert_eq!(told.lock().unwrap().time, 0);
    volume.stop_clock(false);
    volume.take_statistics();
    let mut rng = Rng::new(seed);
    for step in 1..=200_000u32 {
        let block = if rng.chance(50) { rng.below(2000) } else { rng.below(u64::from(blocks)) };
        volume.write(block as u32).unwrap();
        if step % 10_000 == 0 {
            let places: BTreeSet<_> = (0..blocks).filter_map(|block| volume.place_of(block)).collect();
            assert_eq!(places.len() as u64, volume.table().live_data_blocks());
            assert!(places.iter().all(|&place| volume.table().is_live(place)));
            assert!(places.len() as u32 > blocks - 1200 - 4 * 512, "{} are written", places.len());
        }
    }
    (volume, told)
}

#[test]
fn what_cleaning_reads_is_written_before_its_place_is_used_again() {
    let (mut volume, told) = random_run(5);
    volume.sync().unwrap();
    let statistics = *volume.statistics();
    assert!(statistics.copies > 10_000 && statistics.overtaken > 100 && statistics.absorbed > 10_000, "{statistics:?}");
    assert_eq!(statistics.user_blocks, statistics.user_writes - statistics.absorbed);
    assert_eq!(told.lock().unwrap().written, statistics.user_blocks + statistics.copies);
    let copied: u64 = statistics.victims_by_utilization.iter().sum();
    assert_eq!(copied, statistics.victims);
    // The clock: writes take 0.1 ms and reads 1 ms.
    volume.write(0).unwrap();
    volume.sync().unwrap();
    let expected =
        (statistics.user_blocks + statistics.copies) * 100_000 + (statistics.copies + statistics.overtaken) * 1_000_000;
    assert_eq!(told.lock().unwrap().time, expected);
    // Segments of groups have blocks of one group alone.
    let told = told.lock().unwrap();
    let mut pure = 0;
    for (&segment, blocks) in &told.blocks {
        if volume.table().kind(segment) != SegmentKind::ColdData {
            assert!(blocks.iter().all(|block| block % 2 == blocks[0] % 2), "segment {segment}");
            pure += 1;
        }
    }
    assert!(pure > 20 && told.freed > 300, "{pure} {}", told.freed);
}

#[test]
fn the_same_seed_gives_the_same_layout() {
    let places = |seed| {
        let (volume, _) = random_run(seed);
        (0..16_000).map(|block| volume.place_of(block)).collect::<Vec<_>>()
    };
    assert!(places(7) == places(7) && places(7) != places(8));
}

/// SFS paper, section 4.1: a read of a random block costs what the bandwidth for such reads says, what is written the sequential one.
#[test]
fn what_users_overtake_is_read_and_not_written() {
    let statistics =
        basalt_simulator::Statistics { user_blocks: 1000, copies: 400, overtaken: 100, ..Default::default() };
    // Reads: 500 / 10.6, copies: 400 / 87, new: 1000 / 87.
    let expected = 1.0 + (500.0 / 10.6 + 400.0 / 87.0) / (1000.0 / 87.0);
    assert!((statistics.write_cost(10.6, 87.0) - expected).abs() < 1e-12);
    assert_eq!(PoolOptions::of(1, MIXED, 10.6, 87.0).read_ns, 386_415);
    assert_eq!(PoolOptions::of(1, MIXED, 10.6, 87.0).write_ns, 47_080);
}

#[test]
fn pools_that_cannot_be_are_refused() {
    let refused = |change: &dyn Fn(&mut Options)| {
        let mut options = options(20_000, 600);
        change(&mut options);
        Volume::with_placement(options, Box::new(Parity::default())).err().map(|error| error.to_string())
    };
    assert_eq!(refused(&|_| ()), None);
    let pool =
        |change: &'static dyn Fn(&mut PoolOptions)| refused(&move |options| change(options.pool.as_mut().unwrap()));
    assert!(pool(&|pool| pool.blocks = 0).unwrap().contains("no dirty blocks"));
    assert!(pool(&|pool| pool.checkpoint_sections = 0).unwrap().contains("no section"));
    assert!(pool(&|pool| pool.blocks = 12_000).unwrap().contains("for 12000 dirty blocks"));
    assert!(pool(&|pool| pool.blocks = u32::MAX).is_some());
    assert!(pool(&|pool| pool.mixed = LogId::of(SegmentKind::WarmNode)).unwrap().contains("has no log"));
    assert!(pool(&|pool| pool.mixed = LogId::more(3)).unwrap().contains("has no log"));
    let paced =
        refused(&|options| options.cleaning = Cleaning::Paced { reserved_sections: 4, keep_free: KeepFree::default() });
    assert!(paced.unwrap().contains("free"));
    let logs = [0, 1, 2, 3, 4, 5].map(|segment| LogStart { segment, offset: 1, live: 1 });
    let file = FileModel { cache_blocks: 100, inode_slots: 900, logs };
    assert!(refused(&move |options| options.file = Some(file.clone())).unwrap().contains("exclude each other"));
}
