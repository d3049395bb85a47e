//! A placement with logs of its own in the simulator: blocks go there, it hears of everything, and it costs no room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use basalt_random::Rng;
use basalt_segments::cleaning::KeepFree;
use basalt_segments::placement::Policy;
use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, Reason, Segment, SegmentKind};
use basalt_simulator::{Cleaning, Options, Volume};

/// Blocks by their number in eight groups, and what cleaning copies in a ninth.
#[derive(Default)]
struct Groups(Mutex<Told>);

static GROUPS: Policy = Policy::new("groups", "blocks by number", |_| Ok(Box::new(Groups::default())));

/// Of all placements of this program.
static IN_GROUPS: AtomicU32 = AtomicU32::new(0);
static COPIED: AtomicU32 = AtomicU32::new(0);
static FREED: AtomicU32 = AtomicU32::new(0);

const KINDS: [SegmentKind; 9] = {
    let mut kinds = [SegmentKind::WarmData; 9];
    kinds[8] = SegmentKind::ColdData;
    kinds
};

#[derive(Default)]
struct Told {
    live: BTreeMap<MainBlock, u32>,
    places: BTreeMap<u32, MainBlock>,
    /// Where the block was that was written last: nothing comes before the news of its death.
    leaving: Option<MainBlock>,
    /// Segments that are neither a log's nor free.
    sealed: BTreeSet<Segment>,
    /// Groups in each segment.
    groups: BTreeMap<Segment, BTreeSet<LogId>>,
}

impl Placement for Groups {
    fn more_logs(&self) -> &[SegmentKind] {
        &KINDS
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        LogId::more(if block.reason == Reason::Cleaning { 8 } else { (block.index % 8) as u8 })
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        let mut told = self.0.lock().unwrap();
        assert_eq!(told.leaving, None, "what was overwritten before {place} is not told to be dead");
        let is_open = !told.sealed.contains(&place.segment());
        assert!(is_open, "segment {} is sealed, but gets a block", place.segment());
        assert_eq!(told.live.insert(place, block.index), None, "place {place} is live already");
        told.leaving = told.places.insert(block.index, place);
        told.groups.entry(place.segment()).or_default().insert(self.log(block));
        COPIED.fetch_add(u32::from(block.reason == Reason::Cleaning), SeqCst);
    }

    fn note_dead(&self, place: MainBlock) {
        let mut told = self.0.lock().unwrap();
        assert_eq!(told.leaving.take(), Some(place), "another block dies than the one that was written");
        told.live.remove(&place);
    }

    fn note_sealed(&self, log: LogId, segment: Segment) {
        let mut told = self.0.lock().unwrap();
        assert!(told.sealed.insert(segment), "log {log:?} seals segment {segment} once more");
        if !log.is_recorded() {
            assert_eq!(told.groups.get(&segment).map(BTreeSet::len), Some(1), "segment {segment} of log {log:?}");
            IN_GROUPS.fetch_add(1, SeqCst);
        }
    }

    fn note_free(&self, segment: Segment) {
        let mut told = self.0.lock().unwrap();
        assert!(told.sealed.remove(&segment), "segment {segment} is free, and was not sealed");
        let (first, last) = (MainBlock::in_segment(segment, 0), MainBlock::in_segment(segment, 511));
        assert_eq!(told.live.range(first..=last).next(), None, "something is live in segment {segment}");
        told.groups.remove(&segment);
        FREED.fetch_add(1, SeqCst);
    }
}

/// Overwrites every block some times over, in random order.
fn overwritten(utilization: u8, cleaning: Cleaning) {
    let options = Options { placement: &GROUPS, cleaning, ..Options::of(128 << 20, utilization).unwrap() };
    let blocks = options.blocks;
    let mut volume = Volume::new(options).unwrap();
    (0..blocks).for_each(|block| volume.write(block).unwrap());
    let mut rng = Rng::new(u64::from(utilization));
    for _ in 0..3 * blocks {
        volume.write(rng.below(u64::from(blocks)) as u32).unwrap();
    }
    volume.sync().unwrap();
    let places: BTreeSet<_> = (0..blocks).map(|block| volume.place_of(block)).collect();
    assert_eq!(places.len(), blocks as usize, "each block is in a place of its own");
}

#[test]
fn logs_beside_the_recorded_ones_are_filled_and_cleaned_and_take_no_room() {
    for utilization in [50, 70, 85] {
        overwritten(utilization, Cleaning::FreeSections { least: 4, victims: 1 });
        overwritten(utilization, Cleaning::Paced { reserved_sections: 2, keep_free: KeepFree::default() });
    }
    let [in_groups, copied, freed] = [&IN_GROUPS, &COPIED, &FREED].map(|count| count.load(SeqCst));
    assert!(in_groups > 100 && copied > 1000 && freed > 100, "{in_groups} in groups, {copied} copied, {freed} freed");
}
