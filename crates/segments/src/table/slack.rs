//! Slack space recycling: the places of dead blocks in segments that are still in use, handed to logs.
//!
//! A place may be written again once nothing refers to it that a power cut could bring back: it is neither live nor
//! [pre-invalid](SegmentTable::is_pre_invalid), and its segment is not [pinned](SegmentTable::pin). It is handed out only while nobody reads
//! or writes what was there: [`Quiet`] says so. What dies in the segment later waits for the next time. A segment may be
//! [reserved](SegmentTable::reserve) before: while live blocks are copied out of it (partial garbage collection), nobody else takes it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::live::is_set;
use super::{SegmentState, SegmentTable};
use crate::slack::{FlashPage, runs};
use crate::{BLOCKS_PER_SEGMENT, Section, Segment, SegmentKind};

/// Proof for [`SegmentTable::hand_out_slack`]: no checkpoint is under way, nobody reads a block that is dead, and no older write is on its way
/// to one.
#[derive(Debug)]
pub struct Quiet(());

impl Quiet {
    /// For whoever holds the locks that make it so, for as long as it holds them.
    #[must_use]
    pub const fn while_locked() -> Quiet {
        Quiet(())
    }
}

/// A segment whose slack is promised to one log, without a word on which places these are.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the segment stays reserved until the promise is kept or taken back"]
pub struct Promise {
    segment: Segment,
    /// Which promise: an older one of the same segment is void.
    number: u64,
}

impl Promise {
    /// The segment.
    #[must_use]
    pub const fn segment(&self) -> Segment {
        self.segment
    }
}

/// The slack of one segment, promised to one log.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the segment stays reserved until the slack is opened or returned"]
pub struct Slack {
    promise: Promise,
    places: [u64; 8],
}

impl Slack {
    /// The segment that it is in.
    #[must_use]
    pub const fn segment(&self) -> Segment {
        self.promise.segment
    }

    /// Whether a block of the segment is one of its places.
    #[must_use]
    pub const fn has_place(&self, offset: u32) -> bool {
        is_set(&self.places, offset)
    }

    /// The offsets in the segment of its places, rising.
    pub fn places(&self) -> impl Iterator<Item = u32> {
        runs(&self.places).flatten()
    }
}

/// The places that a log fills in its segment, rising.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlackPlaces(Box<[u64; 8]>);

impl SlackPlaces {
    /// The first place at offset `from` or behind it; [`BLOCKS_PER_SEGMENT`] if there is none.
    #[must_use]
    pub fn next_from(&self, from: u32) -> u32 {
        if from >= BLOCKS_PER_SEGMENT {
            return BLOCKS_PER_SEGMENT;
        }
        let mut words = *self.0;
        let first = (from / u64::BITS) as usize;
        words[..first].fill(0);
        words[first] &= u64::MAX >> (from % u64::BITS);
        runs(&words).next().map_or(BLOCKS_PER_SEGMENT, |run| run.start)
    }
}

/// Segments that are promised to a log, and by which promise.
#[derive(Debug, Default)]
pub(super) struct Promises {
    of: BTreeMap<Segment, u64>,
    made: u64,
}

impl Promises {
    /// A promise is void.
    pub(super) fn forget(&mut self, segment: Segment) {
        self.of.remove(&segment);
    }

    fn make(&mut self, segment: Segment) -> Promise {
        self.made += 1;
        self.of.insert(segment, self.made);
        Promise { segment, number: self.made }
    }

    fn holds(&self, promise: &Promise) -> bool {
        self.of.get(&promise.segment) == Some(&promise.number)
    }
}

impl SegmentTable {
    /// Slack is whole flash pages of the device: where a block of one is needed, nothing is written there. One block in the beginning.
    pub fn align_slack(&mut self, page: FlashPage) {
        self.flash_page = page;
    }

    /// The flash page that slack is [aligned](Self::align_slack) to.
    #[must_use]
    pub const fn flash_page(&self) -> FlashPage {
        self.flash_page
    }

    /// The places of a segment that are dead once [what has to be moved](Self::movable) is gone from it, and a commit holds: a bit for each,
    /// the most significant first. Where a checkpoint commits, pre-invalid blocks are among them. Pages are not looked at.
    #[must_use]
    pub fn dead_after_commit(&self, segment: Segment) -> [u64; 8] {
        let at = segment.index();
        let kept = if self.kept(segment) == 0 { [0; 8] } else { self.pre_invalid_words(segment) };
        let live = self.maps[at].words(self.live[at]);
        std::array::from_fn(|word| !(live[word] | kept[word]))
    }

    /// The places of a segment that neither the present nor anything durable refers to: a bit for each, the most significant first.
    #[must_use]
    pub fn unneeded_places(&self, segment: Segment) -> [u64; 8] {
        let at = segment.index();
        let (live, needed) = (self.maps[at].words(self.live[at]), self.pre_invalid_words(segment));
        std::array::from_fn(|word| !(live[word] | needed[word]))
    }

    /// Those that logs may write: of [whole pages](Self::align_slack).
    fn slack_places(&self, segment: Segment) -> [u64; 8] {
        self.flash_page.whole(&self.unneeded_places(segment))
    }

    /// The places of a segment that are not live, needed or not: for a log that is there, and writes nothing.
    #[must_use]
    pub fn dead_places(&self, segment: Segment) -> SlackPlaces {
        let at = self.at(segment);
        SlackPlaces(Box::new(self.maps[at].words(self.live[at]).map(|word| !word)))
    }

    /// Reserves a segment for a log: it is no victim, and nobody else gets its slack. `None` where nothing of it may be promised: it is not dirty,
    /// is pinned, or is to be [avoided](Self::avoid).
    pub fn reserve(&mut self, segment: Segment) -> Option<Promise> {
        let may =
            self.state(segment) == SegmentState::Dirty && !self.is_pinned(segment) && !self.avoided.contains(segment);
        if !may {
            return None;
        }
        self.enter(segment, SegmentState::Reserved);
        Some(self.promises.make(segment))
    }

    /// The slack that a promised segment has now. `None` where the promise is void, and where there is none: then it is taken back.
    pub fn hand_out_slack(&mut self, promise: Promise, _: &Quiet) -> Option<Slack> {
        if !self.promises.holds(&promise) {
            return None;
        }
        let places = self.slack_places(promise.segment);
        if places == [0; 8] {
            self.void_promise(promise.segment);
            return None;
        }
        Some(Slack { promise, places })
    }

    /// [Reserves](Self::reserve) a segment and [hands out](Self::hand_out_slack) its slack, which a log takes by [`open_slack`](Self::open_slack).
    pub fn reserve_slack(&mut self, segment: Segment, quiet: &Quiet) -> Option<Slack> {
        let promise = self.reserve(segment)?;
        self.hand_out_slack(promise, quiet)
    }

    /// A log of `kind` goes on in the slack: the places that it fills, one after the other. `None` where the promise is void, because
    /// the segment has lost its last live block, or is to be avoided now.
    ///
    /// # Panics
    /// If the segment holds nodes and the log writes data, or the other way round.
    pub fn open_slack(&mut self, slack: Slack, kind: SegmentKind) -> Option<SlackPlaces> {
        if !self.promises.holds(&slack.promise) {
            return None;
        }
        let segment = slack.segment();
        assert_eq!(self.kind(segment).is_node(), kind.is_node(), "segment {segment} would hold both nodes and data");
        self.promises.forget(segment);
        self.enter(segment, SegmentState::Active);
        self.kinds[segment.index()] = kind;
        self.dirty_entries.insert(segment.get());
        Some(SlackPlaces(Box::new(slack.places)))
    }

    /// Whether a promise holds: the segment has not lost its last live block, and is not to be avoided.
    #[must_use]
    pub fn is_promised(&self, slack: &Slack) -> bool {
        self.promises.holds(&slack.promise)
    }

    /// As [`is_promised`](Self::is_promised), before the slack was handed out.
    #[must_use]
    pub fn holds(&self, promise: &Promise) -> bool {
        self.promises.holds(promise)
    }

    /// No log takes this slack: the segment is as it was.
    pub fn return_slack(&mut self, slack: Slack) {
        self.break_promise(slack.promise);
    }

    /// As [`return_slack`](Self::return_slack), before the slack was handed out.
    pub fn break_promise(&mut self, promise: Promise) {
        if self.promises.holds(&promise) {
            self.void_promise(promise.segment);
        }
    }

    /// The blocks of a promised segment that are [to be moved](Self::movable), within these runs of offsets and from `first` on, at most so
    /// many, rising. None where the promise is void.
    #[must_use]
    pub fn movable_within(&self, promise: &Promise, runs: &[Range<u32>], first: u32, most: usize) -> Vec<u32> {
        let Some(end) = runs.last().map(|run| run.end).filter(|&end| first < end && self.promises.holds(promise))
        else {
            return Vec::new();
        };
        let mut blocks = self.blocks_to_move(promise.segment, first, BLOCKS_PER_SEGMENT as usize);
        blocks.retain(|offset| *offset < end && runs[runs.partition_point(|run| run.end <= *offset)].contains(offset));
        blocks.truncate(most);
        blocks
    }

    /// The segments of data, or of nodes, with the most slack, at least `least` blocks of it and at most `most` segments, the one with the most
    /// first, the lowest-numbered of equals first. None of a section that `skip` says to leave out.
    #[must_use]
    pub fn most_slack(&self, are_nodes: bool, least: u32, most: usize, skip: &dyn Fn(Section) -> bool) -> Vec<Segment> {
        if most == 0 {
            return Vec::new();
        }
        let candidates = self.may_promise(are_nodes, skip).map(|segment| (self.slack_of(segment), segment));
        let mut found: Vec<(u32, Segment)> = candidates.filter(|(blocks, _)| *blocks >= least).collect();
        let order = |&(blocks, segment): &(u32, Segment)| (BLOCKS_PER_SEGMENT - blocks, segment);
        if most < found.len() {
            found.select_nth_unstable_by_key(most, order);
            found.truncate(most);
        }
        found.sort_unstable_by_key(order);
        found.into_iter().map(|(_, segment)| segment).collect()
    }

    /// Segments that may be promised.
    fn may_promise(&self, are_nodes: bool, skip: &dyn Fn(Section) -> bool) -> impl Iterator<Item = Segment> {
        Segment::all(self.segments()).filter(move |&segment| {
            self.states[segment.index()] == SegmentState::Dirty
                && self.kinds[segment.index()].is_node() == are_nodes
                && !self.is_pinned(segment)
                && !self.avoided.contains(segment)
                && !skip(self.section_of(segment))
        })
    }

    /// As [`most_slack`](Self::most_slack) with what is dead, needed or not: how many segments there are, counted up to `most`.
    #[must_use]
    pub fn with_dead_places(&self, are_nodes: bool, least: u32, most: usize, skip: &dyn Fn(Section) -> bool) -> usize {
        let dead_in_pages = |segment: &Segment| {
            let dead = self.maps[segment.index()].words(self.live[segment.index()]).map(|word| !word);
            self.flash_page.whole(&dead).iter().map(|word| word.count_ones()).sum::<u32>()
        };
        self.may_promise(are_nodes, skip).filter(|segment| dead_in_pages(segment) >= least).take(most).count()
    }

    /// Blocks of slack in a segment.
    fn slack_of(&self, segment: Segment) -> u32 {
        if self.flash_page == FlashPage::BLOCK {
            let needed = u32::from(self.live(segment)) + u32::from(self.pre_invalid(segment));
            return BLOCKS_PER_SEGMENT.saturating_sub(needed);
        }
        self.slack_places(segment).iter().map(|word| word.count_ones()).sum()
    }

    /// Takes back what was promised of these segments.
    pub(super) fn void_promises(&mut self, segments: &crate::Segments) {
        let promised: Vec<Segment> = self.promises.of.keys().copied().filter(|&one| segments.contains(one)).collect();
        promised.into_iter().for_each(|segment| self.void_promise(segment));
    }

    fn void_promise(&mut self, segment: Segment) {
        self.promises.forget(segment);
        self.enter(segment, self.closed_state(segment));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MainBlock;

    const QUIET: Quiet = Quiet::while_locked();

    /// Segment 0 is closed, of data; blocks 0 to 9 are live, and durable.
    fn table() -> SegmentTable {
        let mut table = SegmentTable::new(4, 1);
        table.track_durability(false);
        let first = table.open_segment(SegmentKind::HotData, None).unwrap();
        assert!(table.set_live_run(MainBlock::new(0), 10, 1));
        table.begin_checkpoint();
        table.end_checkpoint();
        table.open_segment(SegmentKind::WarmData, Some(first)).unwrap();
        table.close_segment(first);
        table
    }

    fn die(table: &mut SegmentTable, offset: u32) {
        assert!(table.clear_live(MainBlock::new(offset), 2));
    }

    #[test]
    fn what_the_last_checkpoint_needs_is_no_slack() {
        let mut table = table();
        die(&mut table, 3);
        let first = |table: &SegmentTable| table.unneeded_places(Segment::new(0))[0].leading_zeros();
        assert_eq!(first(&table), 10);
        table.begin_checkpoint();
        assert_eq!(first(&table), 10, "the checkpoint does not hold yet");
        table.end_checkpoint();
        assert_eq!(first(&table), 3);
        table.pin(Segment::new(0));
        assert_eq!(table.reserve(Segment::new(0)), None);
        assert_eq!(table.reserve_slack(Segment::new(0), &QUIET), None);
    }

    #[test]
    fn places_are_those_of_when_it_was_reserved() {
        let mut table = table();
        table.begin_checkpoint();
        table.end_checkpoint();
        let slack = table.reserve_slack(Segment::new(0), &QUIET).unwrap();
        assert_eq!(table.state(Segment::new(0)), SegmentState::Reserved);
        assert_eq!(table.reserve_slack(Segment::new(0), &QUIET), None, "it is promised to somebody else");
        assert_eq!(slack.places().collect::<Vec<_>>(), (10..512).collect::<Vec<_>>());
        die(&mut table, 5);
        let places = table.open_slack(slack, SegmentKind::WarmData).unwrap();
        assert_eq!(
            (table.state(Segment::new(0)), table.kind(Segment::new(0))),
            (SegmentState::Active, SegmentKind::WarmData)
        );
        assert_eq!([0, 10, 11, 511, 512, 900].map(|from| places.next_from(from)), [10, 10, 11, 511, 512, 512]);
        assert!(table.dirty_entries().contains(&Segment::new(0)));
    }

    #[test]
    fn a_promise_is_void_where_the_last_block_dies_and_another_is_made_for_the_same_segment() {
        let mut table = table();
        let slack = table.reserve_slack(Segment::new(0), &QUIET).unwrap();
        (0..10).for_each(|offset| die(&mut table, offset));
        assert_eq!(table.state(Segment::new(0)), SegmentState::Prefree);
        table.begin_checkpoint();
        table.end_checkpoint();
        table.release(&[Segment::new(0)], crate::Durable::without_device());
        // It is filled anew, and promised anew: the old promise gives nobody this slack.
        while table.open_segment(SegmentKind::ColdData, None) != Some(Segment::new(0)) {}
        assert!(table.set_live(MainBlock::new(7), 3));
        table.close_segment(Segment::new(0));
        let other = table.reserve_slack(Segment::new(0), &QUIET).unwrap();
        assert!(!table.is_promised(&slack) && table.is_promised(&other));
        assert_eq!(table.open_slack(slack, SegmentKind::WarmData), None);
        assert_eq!(table.state(Segment::new(0)), SegmentState::Reserved);
        assert!(table.open_slack(other, SegmentKind::WarmData).is_some_and(|places| places.next_from(7) == 8));
    }

    #[test]
    fn a_returned_promise_leaves_the_segment_a_victim_as_before() {
        let mut table = table();
        let victim = |table: &SegmentTable| table.select_victim(&crate::Greedy, 9, &|_| false);
        let slack = table.reserve_slack(Segment::new(0), &QUIET).unwrap();
        assert_eq!((victim(&table), table.movable(Section::new(0), 0, 9)), (None, None));
        table.return_slack(slack);
        assert_eq!((victim(&table), table.state(Segment::new(0))), (Some(Section::new(0)), SegmentState::Dirty));
    }

    #[test]
    fn segments_that_are_to_be_emptied_promise_nothing() {
        let mut table = table();
        let slack = table.reserve_slack(Segment::new(0), &QUIET).unwrap();
        table.avoid(crate::Segments::new(Segment::new(0), 1));
        assert_eq!(table.state(Segment::new(0)), SegmentState::Dirty);
        assert_eq!(table.open_slack(slack, SegmentKind::WarmData), None);
        assert_eq!(table.reserve(Segment::new(0)), None);
        assert!(table.most_slack(false, 1, 9, &|_| false).is_empty());
    }

    /// Blocks 0 to 9 are live and durable, and 3 to 7 die: of pages 0 and 2 some blocks are live, page 1 is free after a checkpoint.
    #[test]
    fn of_pages_of_four_blocks_only_whole_ones_are_slack() {
        let mut table = table();
        table.align_slack(FlashPage::of_bytes(16 << 10).unwrap());
        (3..8).for_each(|offset| die(&mut table, offset));
        let first = |table: &mut SegmentTable, count| {
            let slack = table.reserve_slack(Segment::new(0), &QUIET).unwrap();
            let places = slack.places().take(count).collect::<Vec<_>>();
            table.return_slack(slack);
            places
        };
        assert_eq!(first(&mut table, 2), [12, 13], "the checkpoint needs blocks 4 to 7, and page 2 is in use");
        table.begin_checkpoint();
        table.end_checkpoint();
        assert_eq!(first(&mut table, 5), [4, 5, 6, 7, 12]);
        let most = |table: &SegmentTable, least| table.most_slack(false, least, 9, &|_| false).len();
        assert_eq!([504, 505].map(|least| most(&table, least)), [1, 0], "125 pages of 4 and one more");
        die(&mut table, 8);
        die(&mut table, 9);
        assert_eq!([504, 505].map(|least| most(&table, least)), [1, 0], "the checkpoint needs both");
        let dead = |are_nodes, least, most| table.with_dead_places(are_nodes, least, most, &|_| false);
        assert_eq!([508, 509].map(|least| dead(false, least, 9)), [1, 0], "dead they are, and page 2 with them");
        assert_eq!([dead(false, 1, 0), dead(true, 1, 9)], [0, 0]);
        assert_eq!(table.with_dead_places(false, 1, 9, &|_| true), 0);
    }

    #[test]
    #[should_panic(expected = "both nodes and data")]
    fn data_never_goes_to_the_slack_of_nodes() {
        let mut table = table();
        let slack = table.reserve_slack(Segment::new(0), &QUIET).unwrap();
        let _ = table.open_slack(slack, SegmentKind::HotNode);
    }

    #[test]
    fn segments_with_the_most_slack_come_first() {
        let mut table = SegmentTable::new(8, 2);
        table.track_durability(false);
        let kinds = [
            SegmentKind::WarmData,
            SegmentKind::ColdData,
            SegmentKind::HotNode,
            SegmentKind::HotData,
            SegmentKind::WarmData,
        ];
        for (kind, live) in kinds.into_iter().zip([500, 100, 50, 100, 490]) {
            let segment = table.open_segment(kind, None).unwrap();
            assert!(table.set_live_run(MainBlock::in_segment(segment, 0), live, 1));
            table.close_segment(segment);
        }
        let found = |skipped, least, most| {
            table
                .most_slack(false, least, most, &|section| section == Section::new(skipped))
                .iter()
                .map(|s| s.get())
                .collect::<Vec<_>>()
        };
        // Each log begins in a section of its own while there is one: 500, 100, 50 and 100 are in 0, 2, 4 and 6, 490 in 1.
        assert_eq!(found(9, 1, 9), [2, 6, 1, 0]);
        assert_eq!(found(9, 1, 2), [2, 6]);
        assert_eq!(found(9, 22, 9), [2, 6, 1], "there are 22 blocks of slack in segment 1, and 12 in segment 0");
        assert_eq!(found(1, 1, 9), [6, 1, 0]);
        assert_eq!(table.most_slack(true, 1, 9, &|_| false), [Segment::new(4)]);
    }
}
