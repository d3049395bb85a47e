//! What stands in front of a volume tells it of blocks: the list that a page is on, the run that a block is written in, and its removal.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use basalt_segments::placement::{ByPageCache, LONG_RUN, Moved, RunLength};
use basalt_segments::{List, SegmentKind};
use basalt_simulator::{FileModel, LogStart, Options, Volume};

fn volume(logs: u8, moved: Moved, hot: &Arc<Mutex<BTreeSet<u32>>>) -> Volume {
    let options = Options { logs, ..Options::of(64 << 20, 70).unwrap() };
    let mut volume = Volume::with_placement(options, Box::new(ByPageCache::new(logs, moved).unwrap())).unwrap();
    let hot = Arc::clone(hot);
    volume.set_lists(Box::new(move |block| {
        Some(if hot.lock().unwrap().contains(&block) { List::Active } else { List::Inactive })
    }));
    volume
}

fn kind(volume: &Volume, block: u32) -> SegmentKind {
    volume.table().kind(volume.place_of(block).unwrap().segment())
}

/// Which blocks lie in segments of this kind.
fn in_kind(volume: &Volume, wanted: SegmentKind) -> BTreeSet<u32> {
    (0..volume.options().blocks).filter(|&block| kind(volume, block) == wanted).collect()
}

#[test]
fn active_pages_are_written_apart_whatever_they_were_before() {
    for (logs, other) in [(6, SegmentKind::WarmData), (4, SegmentKind::ColdData)] {
        let hot = Arc::new(Mutex::new(BTreeSet::from([3, 5])));
        let mut volume = volume(logs, Moved::Cold, &hot);
        (0..8).for_each(|block| volume.write(block).unwrap());
        assert_eq!([2, 3, 4, 5].map(|block| kind(&volume, block) == SegmentKind::HotData), [false, true, false, true]);
        assert_eq!(kind(&volume, 2), other);
        // The list of the moment counts.
        *hot.lock().unwrap() = BTreeSet::from([2]);
        [2, 3].iter().for_each(|&block| volume.write(block).unwrap());
        assert_eq!([2, 3].map(|block| kind(&volume, block)), [SegmentKind::HotData, other]);
    }
}

#[test]
fn cleaning_asks_the_lists_only_where_it_is_told_to() {
    // Every eighth block is never written again, and all pages become active after the first fill.
    for moved in [Moved::Cold, Moved::ByList] {
        let hot = Arc::new(Mutex::new(BTreeSet::new()));
        let mut volume = volume(4, moved, &hot);
        let blocks = volume.options().blocks;
        (0..blocks).for_each(|block| volume.write(block).unwrap());
        assert_eq!(in_kind(&volume, SegmentKind::ColdData).len(), blocks as usize);
        *hot.lock().unwrap() = (0..blocks).collect();
        let kept = |block: &u32| block.is_multiple_of(8);
        (0..3).for_each(|_| (0..blocks).filter(|block| !kept(block)).for_each(|block| volume.write(block).unwrap()));
        assert!(volume.statistics().copies > 1000, "{:?}", volume.statistics());
        let cold = in_kind(&volume, SegmentKind::ColdData);
        assert!(cold.iter().all(kept), "what was written last is hot");
        // By the lists, only what was never moved is left there.
        let kept = blocks.div_ceil(8) as usize;
        match moved {
            Moved::Cold => assert_eq!(cold.len(), kept),
            Moved::ByList => assert!(cold.len() * 50 < kept, "{} of {kept}", cold.len()),
        }
    }
}

#[test]
fn long_runs_are_written_apart() {
    let options = Options::of(64 << 20, 70).unwrap();
    let placement = RunLength::new(6, Moved::Cold).unwrap();
    let mut volume = Volume::with_placement(options, Box::new(placement)).unwrap();
    for (block, run) in [(0, 0), (1, 1), (2, LONG_RUN - 1), (3, LONG_RUN), (4, 256)] {
        volume.write_in_run(block, run).unwrap();
    }
    let hot = [0, 1, 2, 3, 4].map(|block| kind(&volume, block) == SegmentKind::HotData);
    assert_eq!(hot, [false, true, true, false, false]);
}

#[test]
fn what_is_removed_makes_room() {
    let mut volume = Volume::new(Options::of(64 << 20, 70).unwrap()).unwrap();
    let blocks = volume.options().blocks;
    // Removed before it was written, and then twice.
    volume.remove(7).unwrap();
    for _ in 0..4 {
        (0..blocks).for_each(|block| volume.write(block).unwrap());
        (0..2).for_each(|_| (0..blocks).for_each(|block| volume.remove(block).unwrap()));
        assert!((0..blocks).all(|block| volume.place_of(block).is_none()));
        assert_eq!(volume.table().live_data_blocks(), 0);
    }
    assert_eq!(volume.statistics().copies, 0);
    assert!(volume.remove(blocks).is_err());
    let logs = std::array::from_fn(|log| LogStart { segment: log as u32, offset: 2, live: 1 });
    let file = Some(FileModel { cache_blocks: 100, inode_slots: 900, logs });
    let mut modelled = Volume::new(Options { file, ..Options::of(64 << 20, 50).unwrap() }).unwrap();
    assert!(modelled.remove(0).unwrap_err().to_string().contains("cannot be removed"));
}
