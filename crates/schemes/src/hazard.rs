//! The hazard table: blocks by the remaining life that is predicted from how blocks with the same history died.
//!
//! | file | subject |
//! |---|---|
//! | `records` | what is known of each block, in eight bytes; histories |
//! | `buckets` | half-octave buckets of times, means in 16 bits |
//! | `hand` | the hand that visits all blocks in turn, so that survivors count |
//! | `table` | deaths and exposure by history and age: hazards |
//! | `survival` | remaining lives from hazards |
//! | `edges` | edges between groups, by dynamic programming over a model of cleaning |
//! | `promotion` | whether cleaning may put blocks into hotter groups |
//! | `streams` | which log writes which group |
//! | `places` | the group of a segment, and its blocks at one place in eight |
//! | `victim` | the victim policy |
//! | `math` | exponentials and logarithms that are the same on every machine |

mod buckets;
mod edges;
mod hand;
mod math;
mod places;
mod promotion;
mod records;
mod streams;
mod survival;
mod table;
mod victim;

use std::sync::{Mutex, MutexGuard, PoisonError};

use basalt_segments::placement::Policy;
use basalt_segments::{
    BLOCKS_PER_SEGMENT, BlockTraits, LogId, MainBlock, Placement, Reason, SectionView, Segment, SegmentKind,
    StaticPlacement,
};

use crate::groups::is_grouped;
use edges::{Edges, Volume};
use hand::Hand;
use places::Places;
use promotion::Promotions;
use records::{Record, Records};
use streams::Streams;
use table::Table;
pub use victim::LeastGainByWaiting;

/// [`Hazard`] as options name it.
pub(crate) const POLICY: Policy = Policy {
    name: "hazard",
    about: "by the remaining life that is learned from blocks with the same history (hazard table)",
    make: |logs| (logs == 6).then(|| Box::new(Hazard::default()) as Box<dyn Placement>),
};

/// It learns once in so many writes for each block, but not more often than once in `PERIOD_MIN` block writes.
const PERIOD: u32 = 8;
const PERIOD_MIN: u32 = 1024;
/// A group is idle that was not written to for one write in so many for each block.
const PATIENCE: u32 = 10;

/// Groups of blocks that will be overwritten after about the same time, as far as blocks with the same history tell.
///
/// Times are counted in blocks that users wrote. Of each block are kept: its last write, the mean of its past intervals between writes, the
/// bucket of the last one, and their number. They make its *history*. The table counts, for each history, deaths at each age, and how long
/// blocks lived at that age. A hand visits one block for each write in turn, and counts what it lived through since the last visit, so that
/// survivors count as well. The hazard (deaths over exposure, with a prior) gives a survival curve, and that a predicted remaining life, by
/// the same rule for blocks that users write and for those that cleaning copies.
///
/// A block goes to the group between whose edges its prediction lies. The edges minimise what a model of cleaning says about copies in the
/// space there is; groups that gain too little vanish. Cleaning puts a block into a hotter group than that of its segment only while that
/// pays. Open segments of idle groups go to groups that need one. The victim policy [`LeastGainByWaiting`] weighs the
/// [rate](Placement::rate): the mean reciprocal of what is predicted of the live blocks now.
///
/// Memory: 8 bytes a block, 0.5 bytes a place, and 1.8 MB of tables, whatever the size of the volume. Blocks of deleted files keep their
/// records, and what was in a volume when it was opened is taken for new when it is first seen.
///
/// Source: ours; docs/policies.md has the steps, and docs/lab.md the numbers.
pub struct Hazard {
    state: Mutex<State>,
    /// As many as groups, less the one that a recorded log writes.
    more: Vec<SegmentKind>,
}

struct State {
    /// Blocks that users wrote. It wraps.
    now: u32,
    learned: u32,
    records: Records,
    hand: Hand,
    table: Table,
    edges: Edges,
    promotions: Promotions,
    streams: Streams,
    places: Places,
    /// The block that is counted for the edges next.
    sampled: Record,
    /// What was decided last, until the block has its place.
    decided: Option<(BlockTraits, Decision)>,
}

/// 2^32 over the golden ratio: its multiples are spread evenly.
const SCATTER: u32 = 0x9E37_79B1;

/// Where a block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decision {
    group: usize,
    /// Cleaning: it was predicted to be hotter than its segment's group.
    is_hotter: bool,
    /// It goes to a hotter group than its segment's.
    is_promoted: bool,
}

impl Default for Hazard {
    fn default() -> Self {
        Hazard::new(Hazard::GROUPS)
    }
}

impl Hazard {
    /// Groups that it has if nobody says.
    pub const GROUPS: usize = 7;

    /// With so many groups, from 2 to 12; other numbers count as the nearest of these.
    #[must_use]
    pub fn new(groups: usize) -> Hazard {
        let streams = Streams::new(groups);
        let more = streams.more_logs().to_vec();
        let state = State {
            now: 0,
            learned: 0,
            records: Records::default(),
            hand: Hand::default(),
            table: Table::default(),
            edges: Edges::new(streams.count()),
            promotions: Promotions::default(),
            streams,
            places: Places::default(),
            sampled: Record::default(),
            decided: None,
        };
        Hazard { state: Mutex::new(state), more }
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let state = self.state();
        state.records.memory() + state.places.memory() + state.table.memory()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What is known of a block; `None` if it was never written as far as is known.
    fn record(&mut self, block: &BlockTraits) -> Option<Record> {
        let number = self.records.find(block)?;
        Some(self.records.get(number)).filter(|record| record.is_known())
    }

    fn decide(&mut self, block: &BlockTraits) -> Decision {
        let record = self.record(block);
        let group = |state: &mut State, record: Record| {
            let life = state.table.remaining_life(record.cell(), record.age(state.now));
            state.edges.group(life)
        };
        let stays = |group| Decision { group, is_hotter: false, is_promoted: false };
        match record {
            None => stays(group(self, Record::first(self.now))),
            Some(record) if block.reason != Reason::Cleaning => stays(group(self, record.overwritten(self.now))),
            Some(record) => {
                let predicted = group(self, record);
                let before = block.from.and_then(|place| self.places.group(place)).unwrap_or(0);
                // A group that is not wanted any more keeps nothing.
                let before = before.min(self.edges.coldest());
                if predicted >= before {
                    return stays(predicted);
                }
                let is_promoted = self.promotions.allows();
                Decision { group: if is_promoted { predicted } else { before }, is_hotter: true, is_promoted }
            }
        }
    }

    /// As [`decide`](Self::decide), once for a block.
    fn decision(&mut self, block: &BlockTraits) -> Decision {
        match self.decided {
            Some((decided, decision)) if decided == *block => decision,
            _ => {
                let decision = self.decide(block);
                self.decided = Some((*block, decision));
                decision
            }
        }
    }

    fn log(&mut self, block: &BlockTraits) -> LogId {
        let decision = self.decision(block);
        self.streams.log(decision.group, self.now, self.records.known() / PATIENCE)
    }

    fn note_written(&mut self, block: &BlockTraits, place: MainBlock) {
        let decision = self.decision(block);
        self.decided = None;
        let Some(number) = self.records.find_or_add(block) else { return };
        let before = self.records.get(number);
        let mut record = match (before.is_known(), block.reason) {
            (false, _) => Record::first(self.now),
            (true, Reason::Cleaning) => self.collect(before, decision),
            (true, Reason::Writeback | Reason::Fsync) => self.overwrite(number, before),
        };
        record.set_promoted(decision.is_promoted);
        self.records.set(number, record);
        self.streams.note_written(decision.group, self.now, place);
        self.places.set(place, number, decision.group);
        if block.reason != Reason::Cleaning {
            self.tick();
        }
    }

    /// Learns from a block that cleaning copies.
    fn collect(&mut self, record: Record, decision: Decision) -> Record {
        if record.is_promoted() {
            self.promotions.count_collected();
        }
        if decision.is_hotter {
            self.promotions.count_asked();
        }
        record
    }

    /// Learns from the death of a block that a user overwrites.
    fn overwrite(&mut self, number: usize, record: Record) -> Record {
        let (cell, age) = (record.cell(), record.age(self.now));
        let life = self.table.remaining_life(cell, age);
        self.edges.count_died(life);
        self.table.count_life(cell, self.hand.counted(number, self.now, age), age);
        self.table.count_death(cell, age);
        if record.is_promoted() {
            self.promotions.count_overwritten();
        }
        record.overwritten(self.now)
    }

    /// After each block that a user wrote.
    fn tick(&mut self) {
        self.now = self.now.wrapping_add(1);
        self.visit();
        self.sample();
        let known = self.records.known();
        if self.now.wrapping_sub(self.learned) >= (known / PERIOD).max(PERIOD_MIN) {
            self.learned = self.now;
            self.edges.learn(Volume { blocks: known, lap: self.records.len(), space: self.places.space() });
            self.table.learn(known);
        }
    }

    /// The hand counts what one block lived through since its last visit.
    fn visit(&mut self) {
        let next = self.hand.next(self.records.len());
        let mut record = self.records.get(next);
        if record.is_known() {
            let (cell, age) = (record.cell(), record.age(self.now));
            self.table.count_life(cell, self.hand.counted(next, self.now, age), age);
            record.limit_age(self.now);
            self.records.set(next, record);
        }
        self.hand.visit(self.now, self.records.len());
    }

    /// Counts one block for the edges, from anywhere. Not the one that the hand visits: that goes as fast as a file that is written in order,
    /// and would meet each of its blocks at one age.
    fn sample(&mut self) {
        // The one of the next time is read now: that takes a trip to memory, and what comes next can go on meanwhile.
        let at = (u64::from(self.now.wrapping_mul(SCATTER)) * u64::from(self.records.len())) >> 32;
        // Below the number of records.
        let record = std::mem::replace(&mut self.sampled, self.records.get(at as usize));
        if record.is_known() {
            let life = self.table.remaining_life(record.cell(), record.age(self.now));
            self.edges.count_seen(life);
        }
    }

    fn rate(&mut self, section: &SectionView) -> Option<f64> {
        let count = section.capacity / BLOCKS_PER_SEGMENT;
        let first = section.section.get() * count;
        let (mut blocks, mut sum) = (0u32, 0.0);
        for segment in first..first + count {
            for number in self.places.blocks(Segment::new(segment)) {
                let record = self.records.get(number);
                blocks += 1;
                sum += 1.0 / self.table.remaining_life(record.cell(), record.age(self.now)).max(1.0);
            }
        }
        (blocks > 0).then(|| sum / f64::from(blocks))
    }
}

impl Placement for Hazard {
    fn more_logs(&self) -> &[SegmentKind] {
        &self.more
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if is_grouped(block) { self.state().log(block) } else { StaticPlacement::default().log(block) }
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        if is_grouped(block) {
            self.state().note_written(block, place);
        }
    }

    fn note_dead(&self, place: MainBlock) {
        self.state().places.clear(place);
    }

    fn note_sealed(&self, _log: LogId, segment: Segment) {
        self.state().streams.note_sealed(segment);
    }

    fn note_free(&self, segment: Segment) {
        self.state().places.free(segment);
    }

    fn rate(&self, section: &SectionView) -> Option<f64> {
        self.state().rate(section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_segments::Section;

    /// Places in turn, as if nothing were ever cleaned: only the places count here.
    struct Written {
        hazard: Hazard,
        places: Vec<Option<MainBlock>>,
        next: u32,
    }

    impl Written {
        fn new(blocks: u32) -> Written {
            Written { hazard: Hazard::default(), places: vec![None; blocks as usize], next: 0 }
        }

        fn write(&mut self, index: u32, reason: Reason) -> LogId {
            let from = self.places[index as usize].filter(|_| reason == Reason::Cleaning);
            let block = BlockTraits { index, reason, from, ..BlockTraits::default() };
            let log = self.hazard.log(&block);
            assert_eq!(self.hazard.log(&block), log, "asking twice changes nothing");
            let place = MainBlock::new(self.next);
            self.next += 1;
            self.hazard.note_written(&block, place);
            if let Some(old) = self.places[index as usize].replace(place) {
                self.hazard.note_dead(old);
            }
            log
        }

        fn fill(&mut self, blocks: std::ops::Range<u32>) {
            for index in blocks {
                self.write(index, Reason::Writeback);
            }
        }

        fn life(&self, index: u32) -> f64 {
            let state = &mut *self.hazard.state();
            let record = state.record(&BlockTraits { index, ..BlockTraits::default() }).unwrap();
            state.table.remaining_life(record.cell(), record.age(state.now))
        }
    }

    /// Half of the writes go round 64 blocks, so these live for 128 writes; the others go round 3200, which live for 6400.
    #[test]
    fn lives_that_repeat_are_predicted() {
        let mut written = Written::new(3264);
        written.fill(0..3264);
        for step in 0..100_000 {
            written.write(step % 64, Reason::Writeback);
            written.write(64 + step % 3200, Reason::Writeback);
        }
        // The last of them were written just now.
        let (hot, cold) = (99_999 % 64, 64 + 99_999 % 3200);
        assert!((written.life(hot) / 127.0 - 1.0).abs() < 0.05, "{}", written.life(hot));
        assert!((written.life(cold) / 6400.0 - 1.0).abs() < 0.05, "{}", written.life(cold));
        // One in the middle of its life, at an age of 3200: half of it is left.
        let middle = 64 + (99_999 - 1600) % 3200;
        assert!((written.life(middle) / 3200.0 - 1.0).abs() < 0.1, "{}", written.life(middle));
        let logs = [hot, cold].map(|index| written.write(index, Reason::Cleaning));
        assert_ne!(logs[0], logs[1]);
    }

    #[test]
    fn the_rate_of_a_section_is_the_mean_of_its_live_blocks() {
        let mut written = Written::new(2048);
        written.fill(0..2048);
        let section =
            |section| SectionView { section: Section::new(section), live: 1, capacity: 512, modified: 0, rate: None };
        let rate = written.hazard.rate(&section(0)).unwrap();
        // Never overwritten, and nothing learned: at least four times as many writes as there are blocks.
        assert!(rate > 0.0 && rate < 1.0 / 2048.0, "{rate}");
        assert_eq!(written.hazard.rate(&section(4)), None, "nothing is there");
        // All die: nothing is live in the first section any more.
        written.fill(0..512);
        assert_eq!(written.hazard.rate(&section(0)), None);
        written.hazard.note_free(Segment::new(0));
        assert_eq!(written.hazard.state().places.space(), 4 * 512);
    }

    #[test]
    fn memory_is_eight_bytes_a_block_and_some_tables() {
        let mut written = Written::new(1 << 20);
        let empty = written.hazard.memory();
        assert!(empty < 2 << 20, "{empty}");
        written.fill(0..1 << 20);
        let each = (written.hazard.memory() - empty) as f64 / f64::from(1 << 20);
        assert!((8.5..10.5).contains(&each), "{each}");
    }

    #[test]
    fn nodes_and_directories_go_where_f2fs_has_them() {
        let hazard = Hazard::new(3);
        assert_eq!(hazard.more_logs().len(), 2);
        for block in [
            BlockTraits { node: true, direct_node: true, ..BlockTraits::default() },
            BlockTraits { of_directory: true, ..BlockTraits::default() },
        ] {
            assert_eq!(hazard.log(&block), StaticPlacement::default().log(&block));
            hazard.note_written(&block, MainBlock::new(5));
        }
        assert_eq!(hazard.state().records.len(), 0);
    }
}
