//! What the hazard table knows of a volume, and what it makes of each block.

use std::ops::Range;

use basalt_segments::{BLOCKS_PER_SEGMENT, BlockTraits, LogId, MainBlock, Reason, SectionView, Segment, SegmentKind};

use super::edges::{Edges, Volume};
use super::hand::Hand;
use super::others::Others;
use super::places::{Common, Content, Places, Source};
use super::promotion::Promotions;
use super::records::Record;
use super::streams::Streams;
use super::table::Table;

/// The rate of a segment is that of one place in so many.
const SAMPLE: usize = 8;
/// It learns once in so many writes for each block, but not more often than once in `PERIOD_MIN` block writes.
const PERIOD: u32 = 8;
const PERIOD_MIN: u32 = 1024;
/// A group is idle that was not written to for one write in so many for each block.
const PATIENCE: u32 = 10;

/// A section that lost a block a moment ago loses more of them: as many as this are taken to die in the time since.
const DYING: f64 = 4.0;

/// 2^32 over the golden ratio: its multiples are spread evenly.
const SCATTER: u32 = 0x9E37_79B1;

/// All that is known.
pub struct State {
    /// Blocks that users wrote. It wraps.
    pub(super) now: u32,
    pub(super) learned: u32,
    pub(super) hand: Hand,
    pub(super) table: Table,
    pub(super) edges: Edges,
    pub(super) promotions: Promotions,
    pub(super) streams: Streams,
    pub(super) places: Places,
    others: Others,
    /// The block that is counted for the edges next.
    sampled: Record,
    /// Of what was there when the volume was opened: it is as old as the clock, at least.
    pub(super) oldest: Record,
    /// Where the block lay that got another place last: what is dead there next is not deleted.
    left: Option<MainBlock>,
    /// What was decided last, until the block has its place.
    decided: Option<Decided>,
}

/// A block for which it was decided where it goes.
#[derive(Clone, Copy)]
struct Decided {
    block: BlockTraits,
    decision: Decision,
    /// What was known of it.
    before: Option<(Record, Option<Source>)>,
    /// What is known of it from now on, but for promotion.
    record: Record,
}

/// Where a block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decision {
    group: usize,
    /// Cleaning: it was predicted to be hotter than its segment's group.
    is_hotter: bool,
    /// It goes to a hotter group than its segment's.
    is_promoted: bool,
}

impl State {
    /// Of an empty volume, with so many groups.
    pub fn new(groups: usize) -> State {
        let streams = Streams::new(groups);
        State {
            now: 0,
            learned: 0,
            hand: Hand::default(),
            table: Table::default(),
            edges: Edges::new(streams.count()),
            promotions: Promotions::default(),
            streams,
            places: Places::default(),
            others: Others::default(),
            sampled: Record::default(),
            oldest: Record::first(0),
            left: None,
            decided: None,
        }
    }

    /// What [`Placement::more_logs`](basalt_segments::Placement::more_logs) answers.
    pub fn more_logs(&self) -> &[SegmentKind] {
        self.streams.more_logs()
    }

    /// As [`Placement::limit_memory`](basalt_segments::Placement::limit_memory).
    pub fn limit_memory(&mut self, bytes: usize) {
        self.places.limit(bytes);
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.places.memory() + self.table.memory() + self.others.memory()
    }

    fn remaining_life(&mut self, record: Record) -> f64 {
        self.table.remaining_life(record.cell(), record.age(self.now))
    }

    /// What is known of a block; `None` if a user writes it for the first time.
    fn known(&self, block: &BlockTraits) -> Option<(Record, Option<Source>)> {
        let found = block.from.and_then(|from| self.places.find(from));
        let is_old = block.from.is_some() && block.reason == Reason::Cleaning;
        // It was there when the volume was opened.
        let oldest = || is_old.then_some((self.oldest, None));
        found.map(|(record, source)| (record, Some(source))).or_else(oldest)
    }

    /// What is known of a block from this write on.
    fn record(&self, block: &BlockTraits, before: Option<Record>) -> Record {
        match before {
            Some(record) if block.reason == Reason::Cleaning => record,
            Some(record) => record.overwritten(self.now),
            None if block.from.is_some() => Record::second(self.now),
            None => Record::first(self.now),
        }
    }

    fn decide(&mut self, block: &BlockTraits) -> Decided {
        let before = self.known(block);
        let record = self.record(block, before.map(|(record, _)| record));
        let life = self.remaining_life(record);
        let predicted = self.edges.group(life);
        let decision = match block.reason {
            Reason::Cleaning => self.decide_copy(block, predicted),
            Reason::Writeback | Reason::Fsync => Decision { group: predicted, is_hotter: false, is_promoted: false },
        };
        Decided { block: *block, decision, before, record }
    }

    /// Where a block goes that cleaning copies.
    fn decide_copy(&mut self, block: &BlockTraits, predicted: usize) -> Decision {
        let before = block.from.and_then(|from| self.places.group(from)).unwrap_or(0);
        // A group that is not wanted any more keeps nothing.
        let before = before.min(self.edges.coldest());
        if predicted >= before {
            return Decision { group: predicted, is_hotter: false, is_promoted: false };
        }
        let is_promoted = self.promotions.allows();
        Decision { group: if is_promoted { predicted } else { before }, is_hotter: true, is_promoted }
    }

    /// As [`decide`](Self::decide), once for a block.
    fn decided(&mut self, block: &BlockTraits) -> Decided {
        match self.decided.take().filter(|decided| decided.block == *block) {
            Some(decided) => decided,
            None => self.decide(block),
        }
    }

    /// The log for a block.
    pub fn log(&mut self, block: &BlockTraits) -> LogId {
        let decided = self.decided(block);
        self.decided = Some(decided);
        self.streams.log(decided.decision.group, self.now, self.places.live() / PATIENCE)
    }

    /// Whether no user has overwritten a block since it was new: what cleaning copies, or what the user writes now.
    pub fn is_first_life(&self, block: &BlockTraits) -> bool {
        match block.reason {
            Reason::Cleaning => self.known(block).is_none_or(|(record, _)| !record.is_overwritten()),
            Reason::Writeback | Reason::Fsync => block.from.is_none(),
        }
    }

    /// A block got its place in the log of a group.
    pub fn note_written(&mut self, block: &BlockTraits, place: MainBlock) {
        let decided = self.decided(block);
        self.note_placed(&decided, place);
        self.streams.note_written(decided.decision.group, self.now, place);
        self.tick_for(block);
    }

    /// A block got its place in a log that no group writes: it counts as one of the coldest group.
    pub fn note_written_elsewhere(&mut self, block: &BlockTraits, place: MainBlock) {
        let decision = Decision { group: self.edges.coldest(), is_hotter: false, is_promoted: false };
        let before = self.known(block);
        let record = self.record(block, before.map(|(record, _)| record));
        self.decided = None;
        self.note_placed(&Decided { block: *block, decision, before, record }, place);
        self.tick_for(block);
    }

    fn note_placed(&mut self, decided: &Decided, place: MainBlock) {
        let Decided { block, decision, before, mut record } = *decided;
        if let Some((before, source)) = before {
            match block.reason {
                Reason::Cleaning => self.collect(before, decision),
                Reason::Writeback | Reason::Fsync => self.count_death(before, source),
            }
        }
        record.set_promoted(decision.is_promoted);
        self.left = block.from;
        if !self.places.begin(place.segment(), self.now) {
            self.make_room(place.segment());
        }
        self.places.set(place, record, decision.group);
    }

    /// A block that a user wrote counts for the clock.
    pub fn tick_for(&mut self, block: &BlockTraits) {
        if block.reason != Reason::Cleaning {
            self.decided = None;
            block.from.into_iter().for_each(|from| self.places.touch(from, self.now));
            self.tick();
        }
    }

    /// Reads what is known of these, and of the blocks that are [sampled](Self::sample) meanwhile: one trip to memory after the other is begun
    /// before the first has ended.
    pub fn note_coming(&self, places: &[MainBlock]) {
        let known = places.iter().filter(|place| self.places.find(**place).is_some()).count();
        // There are fewer than the clock tells apart.
        let times = (1..=places.len() as u32).map(|step| self.now.wrapping_add(step));
        let sampled = times.filter(|time| self.places.sample(self.sampled_at(*time)).is_known()).count();
        std::hint::black_box(known + sampled);
    }

    /// A block of no group got its place.
    pub fn note_other(&mut self, place: MainBlock) {
        self.others.note_written(place, self.now);
    }

    /// Begins a segment for which there is no room: one record has to do for all blocks of the coldest one.
    fn make_room(&mut self, begun: Segment) {
        let Some(coldest) = self.places.coldest(self.now) else { return };
        let Content::Each(records) = self.places.content(coldest) else { return };
        let record = middle(&mut self.table, self.now, records);
        self.places.make_common(coldest, Common { record, counted: self.now });
        self.places.begin(begun, self.now);
    }

    /// What was at this place is overwritten, moved or deleted.
    pub fn note_dead(&mut self, place: MainBlock) {
        self.decided = None;
        let is_left = self.left.take() == Some(place);
        let Some((record, source)) = self.places.find(place) else {
            self.others.note_dead(place, self.now);
            return;
        };
        if !is_left {
            // It is deleted.
            self.count_death(record, Some(source));
            self.places.touch(place, self.now);
        }
        self.places.clear(place);
    }

    /// A log has filled this segment, or left it.
    pub fn note_sealed(&mut self, segment: Segment) {
        self.streams.note_sealed(segment);
    }

    /// A segment is free.
    pub fn note_free(&mut self, segment: Segment) {
        self.decided = None;
        self.places.free(segment);
        self.others.free(segment);
    }

    /// Learns from a block that cleaning copies.
    fn collect(&mut self, record: Record, decision: Decision) {
        if record.is_promoted() {
            self.promotions.count_collected();
        }
        if decision.is_hotter {
            self.promotions.count_asked();
        }
    }

    /// Learns from the death of a block that had this record.
    fn count_death(&mut self, record: Record, source: Option<Source>) {
        let (cell, age) = (record.cell(), record.age(self.now));
        let life = self.table.remaining_life(cell, age);
        self.edges.count_died(life);
        let counted = match source {
            Some(Source::Own(number)) => self.hand.counted(number, self.now, age),
            Some(Source::Common(counted)) => age.saturating_sub(self.now.wrapping_sub(counted)),
            None => 0,
        };
        self.table.count_life(cell, counted, age, 1.0);
        self.table.count_death(cell, age);
        if record.is_promoted() {
            self.promotions.count_overwritten();
        }
    }

    /// After each block that a user wrote.
    fn tick(&mut self) {
        self.now = self.now.wrapping_add(1);
        self.visit();
        self.sample();
        let live = self.places.live();
        if self.now.wrapping_sub(self.learned) >= (live / PERIOD).max(PERIOD_MIN) {
            self.learned = self.now;
            self.count_common();
            self.edges.learn(Volume { blocks: live, lap: self.places.len(), space: self.places.space() });
            self.table.learn(live);
        }
    }

    /// Counts what blocks lived through that have a record together.
    fn count_common(&mut self) {
        for (common, live) in self.places.all_common() {
            let age = common.record.age(self.now);
            let counted = age.saturating_sub(self.now.wrapping_sub(common.counted));
            self.table.count_life(common.record.cell(), counted, age, f64::from(live));
            common.record.limit_age(self.now);
            common.counted = self.now;
        }
        self.oldest.limit_age(self.now);
        self.places.limit_ages(self.now);
    }

    /// The hand counts what one block lived through since its last visit.
    fn visit(&mut self) {
        let records = self.places.pool().len();
        if records == 0 {
            return;
        }
        let next = self.hand.next(records);
        let mut record = self.places.pool().get(next);
        if record.is_known() {
            let (cell, age) = (record.cell(), record.age(self.now));
            self.table.count_life(cell, self.hand.counted(next, self.now, age), age, 1.0);
            record.limit_age(self.now);
            self.places.pool_mut().set(next, record);
        }
        self.hand.visit(self.now, records);
    }

    /// Counts one block for the edges, from anywhere. Not the one that the hand visits: that goes as fast as a file that is written in order,
    /// and would meet each of its blocks at one age.
    fn sample(&mut self) {
        let at = self.sampled_at(self.now);
        // The one of the next time is read now: that takes a trip to memory, and what comes next can go on meanwhile.
        let record = std::mem::replace(&mut self.sampled, self.places.sample(at));
        if record.is_known() {
            let life = self.remaining_life(record);
            self.edges.count_seen(life);
        }
    }

    /// The place that is sampled at this time.
    fn sampled_at(&self, time: u32) -> u32 {
        // Below the number of places.
        ((u64::from(time.wrapping_mul(SCATTER)) * u64::from(self.places.len())) >> 32) as u32
    }

    /// The rate at which blocks die in these segments, by the last death alone.
    fn seen_dying(&self, section: &SectionView, segments: Range<u32>) -> f64 {
        let since = segments.filter_map(|segment| self.places.since_touched(Segment::new(segment), self.now)).min();
        DYING / (f64::from(section.live.max(1)) * f64::from(since.unwrap_or(u32::MAX).max(1)))
    }

    /// As [`Placement::rate`](basalt_segments::Placement::rate). A section of which nothing is known is as old as the
    /// clock.
    pub fn rate(&mut self, section: &SectionView) -> Option<f64> {
        let count = section.capacity / BLOCKS_PER_SEGMENT;
        let first = section.section.get() * count;
        let (mut blocks, mut sum) = (0.0, 0.0);
        for segment in first..first + count {
            let mut add = |record: &Record, of: f64| {
                blocks += of;
                sum += of / self.table.remaining_life(record.cell(), record.age(self.now)).max(1.0);
            };
            match self.places.content(Segment::new(segment)) {
                Content::Each(records) => {
                    let sampled = records.iter().step_by(SAMPLE).filter(|record| record.is_known());
                    sampled.for_each(|record| add(record, 1.0));
                }
                Content::Common(record, live) => add(&record, f64::from(live) / SAMPLE as f64),
            }
        }
        if blocks > 0.0 {
            return Some((sum / blocks).max(self.seen_dying(section, first..first + count)));
        }
        let rate = self.others.rate(first..first + count, self.now);
        Some(rate.unwrap_or_else(|| 1.0 / self.remaining_life(self.oldest)))
    }
}

/// The record that stands for all of these: that of the block with the median of the predicted remaining lives.
pub fn middle(table: &mut Table, now: u32, records: &[Record]) -> Record {
    let known = records.iter().filter(|record| record.is_known());
    let mut all: Vec<(f64, Record)> =
        known.map(|record| (table.remaining_life(record.cell(), record.age(now)), *record)).collect();
    if all.is_empty() {
        return Record::first(now);
    }
    let at = all.len() / 2;
    all.select_nth_unstable_by(at, |a, b| a.0.total_cmp(&b.0)).1.1
}

/// What tests ask.
#[cfg(test)]
impl State {
    pub fn coldest(&self) -> usize {
        self.edges.coldest()
    }

    pub fn group(&self, place: MainBlock) -> Option<usize> {
        self.places.group(place)
    }

    pub fn streams_are_idle(&self) -> bool {
        self.streams.are_idle()
    }

    pub fn space(&self) -> u64 {
        self.places.space()
    }

    pub fn live(&self) -> u32 {
        self.places.live()
    }

    /// What is predicted of the block at this place; its age, and its past intervals.
    pub fn look(&mut self, place: MainBlock) -> Option<(f64, u32, u16)> {
        let (record, _) = self.places.find(place)?;
        Some((self.remaining_life(record), record.age(self.now), record.count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the clock tells no more apart: what nobody writes for ever is not taken for new.
    #[test]
    fn a_record_for_all_gets_no_older_than_the_clock_can_tell() {
        let mut state = State::new(7);
        let place = MainBlock::new(5);
        assert!(state.places.begin(place.segment(), 0));
        state.places.set(place, Record::first(0), 3);
        state.places.make_common(place.segment(), Common { record: Record::first(0), counted: 0 });
        for _ in 0..5 {
            state.now = state.now.wrapping_add(1 << 30);
            state.count_common();
        }
        assert_eq!((state.look(place).unwrap().1, state.oldest.age(state.now)), (1 << 31, 1 << 31));
    }

    /// Between the log and the place, nothing may happen that makes what is known of the block another; where it does, it is asked anew.
    #[test]
    fn what_was_decided_holds_for_one_write_of_one_block() {
        let block = |index, from| BlockTraits { index, from, ..BlockTraits::default() };
        let mut state = State::new(7);
        let place = MainBlock::new;
        state.note_written(&block(1, None), place(0));
        let (one, other) = (block(1, Some(place(0))), block(2, Some(place(0))));
        let is_kept = |state: &State, block: &BlockTraits| state.decided.is_some_and(|decided| decided.block == *block);
        state.log(&one);
        assert!(is_kept(&state, &one));
        state.log(&other);
        assert!(is_kept(&state, &other) && !is_kept(&state, &one));
        state.note_written_elsewhere(&other, place(1));
        assert!(state.decided.is_none());
        state.log(&one);
        state.note_written(&one, place(2));
        assert!(state.decided.is_none());
        state.log(&one);
        state.note_dead(place(2));
        assert!(state.decided.is_none());
        state.log(&one);
        state.note_free(place(2).segment());
        assert!(state.decided.is_none());
    }
}
