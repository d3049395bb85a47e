//! The hazard table: blocks by the remaining life that is predicted from how blocks with the same history died.
//!
//! | file | subject |
//! |---|---|
//! | `state` | all that is known of a volume, and what is made of each block |
//! | `records` | what is known of each block, in eight bytes; histories; boxes of records |
//! | `buckets` | half-octave buckets of times, means in 16 bits |
//! | `hand` | the hand that visits all blocks in turn, so that survivors count |
//! | `table` | deaths and exposure by history and age: hazards |
//! | `survival` | remaining lives from hazards |
//! | `edges` | edges between groups, by dynamic programming over a model of cleaning |
//! | `promotion` | whether cleaning may put blocks into hotter groups |
//! | `others` | how soon blocks die that are in no group |
//! | `streams` | which log writes which group |
//! | `places` | the group of a segment, and the records of its blocks |
//! | `victim` | the victim policy |
//! | `hints` | all that as bytes, to be kept with the volume, and back |
//! | `math` | exponentials and logarithms that are the same on every machine |

mod buckets;
mod edges;
mod hand;
mod hints;
mod math;
mod others;
mod places;
mod promotion;
mod records;
mod state;
mod streams;
mod survival;
mod table;
mod victim;

use std::sync::{Mutex, MutexGuard, PoisonError};

use basalt_segments::placement::{Hints, Policy, Recalled};
use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, SectionView, Segment, SegmentKind, StaticPlacement};

use crate::groups::is_grouped;
use state::State;
pub use victim::{AutoVictim, LeastGainByWaiting};

/// [`Hazard`] as options name it.
pub(crate) const POLICY: Policy = Policy::new(
    "hazard",
    "by the remaining life that is learned from blocks with the same history (hazard table)",
    |options| {
        options.expect_six_logs()?;
        Ok(Box::new(Hazard::default()))
    },
)
.with_victim(&LeastGainByWaiting)
.with_rates();

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
/// Memory: 8 bytes a place of segments that were written since the volume was opened, and 1.8 MB of tables, whatever the size of the volume.
/// With a [limit](Placement::limit_memory), one record has to do for all blocks of each of the coldest segments; the tables come besides. What
/// was there when the volume was opened, and of which no [hints](Placement::hints) are left, has no record before cleaning copies it, and
/// counts as never overwritten until a user overwrites it.
///
/// Source: ours; docs/policies.md has the steps, and docs/lab.md the numbers.
pub struct Hazard {
    state: Mutex<State>,
    /// As many as groups, less the one that a recorded log writes.
    more: Vec<SegmentKind>,
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
        let state = State::new(groups);
        Hazard { more: state.more_logs().to_vec(), state: Mutex::new(state) }
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.state().memory()
    }

    /// All that it knows.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Placement for Hazard {
    fn more_logs(&self) -> &[SegmentKind] {
        &self.more
    }

    fn limit_memory(&self, bytes: usize) {
        self.state().limit_memory(bytes);
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if is_grouped(block) { self.state().log(block) } else { StaticPlacement::default().log(block) }
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        let mut state = self.state();
        if is_grouped(block) { state.note_written(block, place) } else { state.note_other(place) }
    }

    fn note_coming(&self, places: &[MainBlock]) {
        self.state().note_coming(places);
    }

    fn note_dead(&self, place: MainBlock) {
        self.state().note_dead(place);
    }

    fn note_sealed(&self, _log: LogId, segment: Segment) {
        self.state().note_sealed(segment);
    }

    fn note_free(&self, segment: Segment) {
        self.state().note_free(segment);
    }

    fn rate(&self, section: &SectionView) -> Option<f64> {
        self.state().rate(section)
    }

    fn hints(&self, most: usize) -> Option<Hints> {
        self.state().hints(most)
    }

    fn recall(&self, general: &[u8], segments: &[Recalled<'_>]) {
        self.state().recall(general, segments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_segments::{Reason, Section};

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
            let from = self.places[index as usize];
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

        fn delete(&mut self, index: u32) {
            self.hazard.note_dead(self.places[index as usize].take().unwrap());
        }

        fn fill(&mut self, blocks: std::ops::Range<u32>) {
            for index in blocks {
                self.write(index, Reason::Writeback);
            }
        }

        /// What is predicted of a block, its age, and its past intervals.
        fn look(&self, index: u32) -> (f64, u32, u16) {
            self.hazard.state().look(self.places[index as usize].unwrap()).unwrap()
        }

        fn life(&self, index: u32) -> f64 {
            self.look(index).0
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

    /// Blocks are new, and are deleted 300 writes later: that is how long a new one lives.
    #[test]
    fn what_is_deleted_is_learned() {
        let mut written = Written::new(300);
        written.fill(0..300);
        for step in 0..100_000 {
            written.delete(step % 300);
            written.write(step % 300, Reason::Writeback);
        }
        let life = written.life(99_999 % 300);
        assert!((life / 300.0 - 1.0).abs() < 0.15, "{life}");
        assert_eq!(written.hazard.state().live(), 300);
    }

    /// What was there when the volume was opened is as old as the clock; what is copied of it keeps its age.
    #[test]
    fn what_was_there_already_is_old() {
        let mut written = Written::new(2000);
        written.places[..500].iter_mut().zip(0..).for_each(|(place, at)| *place = Some(MainBlock::new(at)));
        written.next = 512;
        written.fill(500..2000);
        written.write(3, Reason::Cleaning);
        let (_, age, count) = written.look(3);
        assert_eq!((age, count), (1500, 0));
    }

    /// The coldest segments have one record for all blocks, and that is as good as one for each where they are alike.
    #[test]
    fn with_little_memory_cold_blocks_share_a_record() {
        let mut written = Written::new(8192 + 64);
        written.hazard.limit_memory(6 * 4200);
        for step in 0..400_000 {
            written.write(step % 64, Reason::Writeback);
            written.write(64 + step % 8192, Reason::Writeback);
        }
        assert!(
            written.hazard.memory() - Hazard::default().memory() < 6 * 4200 + (24 * 2 * written.next as usize) / 512
        );
        assert!((written.life(399_999 % 64) / 128.0 - 1.0).abs() < 0.1, "{}", written.life(399_999 % 64));
        let middle = written.life(64 + (399_999 - 4096) % 8192);
        assert!((middle / 8192.0 - 1.0).abs() < 0.3, "{middle}");
    }

    #[test]
    fn the_rate_of_a_section_is_the_mean_of_its_live_blocks() {
        let mut written = Written::new(2048);
        written.fill(0..2048);
        let section =
            |section| SectionView { section: Section::new(section), live: 512, capacity: 512, modified: 0, rate: None };
        let rate = written.hazard.rate(&section(0)).unwrap();
        // Never overwritten, and nothing learned: at least four times as many writes as there are blocks.
        assert!(rate > 0.0 && rate < 1.0 / 2048.0, "{rate}");
        // Nothing of these is known: of what was there when the volume was opened, and of what is all dead.
        let oldest = written.hazard.rate(&section(9)).unwrap();
        assert!(oldest > 0.0 && oldest <= rate, "{oldest}");
        written.fill(0..512);
        assert!(written.hazard.rate(&section(0)).unwrap() <= rate);
        written.hazard.note_free(Segment::new(0));
        assert_eq!(written.hazard.state().space(), 4 * 512);
    }

    /// Any block is overwritten next, so each lives for as long again as there are blocks: each death counts once, and what was lived as well.
    #[test]
    fn blocks_that_are_all_alike_live_as_long_as_there_are_blocks() {
        for (blocks, memory) in [(2048, usize::MAX), (8192, 6 * 4200)] {
            let mut written = Written::new(blocks);
            written.hazard.limit_memory(memory);
            written.fill(0..blocks);
            let mut random = 1_u32;
            for _ in 0..60 * blocks {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                written.write(random >> 16 & (blocks - 1), Reason::Writeback);
            }
            // Places are used once here: what is dead is free.
            let lives: Vec<f64> = (0..blocks).step_by(31).map(|index| written.life(index)).collect();
            let mean = lives.iter().sum::<f64>() / lives.len() as f64;
            let share = mean / f64::from(blocks);
            println!("{blocks} blocks, {memory} bytes: {share:.3}");
            assert!((share - 1.0).abs() < 0.15, "{blocks} blocks, {memory} bytes: {share:.3}");
        }
    }

    /// A section of two segments: a cold one that has a record for all, and one with 64 hot blocks.
    #[test]
    fn segments_of_a_section_count_by_what_is_live_in_them() {
        let mut written = Written::new(64 + 512);
        written.hazard.limit_memory(2 * 4200);
        for _ in 0..1000 {
            written.fill(0..64);
        }
        written.next = written.next.next_multiple_of(1024);
        let section = written.next / 1024;
        written.fill(64..64 + 512);
        (0..8).for_each(|_| written.fill(0..64));
        let rate = |section, capacity| {
            // Among so many, the last death is none.
            let view =
                SectionView { section: Section::new(section), live: u32::MAX, capacity, modified: 0, rate: None };
            written.hazard.rate(&view).unwrap()
        };
        let (cold, hot, both) = (rate(2 * section, 512), rate(2 * section + 1, 512), rate(section, 1024));
        assert!(cold < hot / 10.0, "{cold}, {hot}");
        let expected = (512.0 * cold + 64.0 * hot) / (512.0 + 64.0);
        assert!((both / expected - 1.0).abs() < 0.01, "{cold}, {hot}: {both}");
    }

    /// Blocks of a section that are all overwritten or deleted in a row: as long as that goes on, and a while behind it, it is no victim.
    #[test]
    fn a_section_that_lost_a_block_a_moment_ago_is_dying() {
        let rate = |written: &Written, live| {
            let view = SectionView { section: Section::new(0), live, capacity: 512, modified: 0, rate: None };
            written.hazard.rate(&view).unwrap()
        };
        for is_deleted in [false, true] {
            let mut written = Written::new(4096);
            written.fill(0..4096);
            let quiet = rate(&written, 512);
            assert!(quiet < 1.0 / 4096.0, "{quiet}");
            if is_deleted {
                written.hazard.note_dead(MainBlock::new(0));
            } else {
                written.write(0, Reason::Writeback);
            }
            (600..700).for_each(|index| _ = written.write(index, Reason::Writeback));
            // Four of 511 in 100 blocks, or 101.
            let expected = 4.0 / (511.0 * if is_deleted { 100.0 } else { 101.0 });
            assert!((rate(&written, 511) / expected - 1.0).abs() < 1e-9, "{}", rate(&written, 511));
            (700..4096).for_each(|index| _ = written.write(index, Reason::Writeback));
            assert!(rate(&written, 511) < 2.0 * quiet, "what was is over");
            // What cleaning copies is no death.
            written.write(1, Reason::Cleaning);
            assert!(rate(&written, 510) < 2.0 * quiet);
        }
    }

    /// Of a section of two segments it does not matter which one lost the block.
    #[test]
    fn a_section_is_dying_where_one_of_its_segments_is() {
        for index in [0, 600] {
            let mut written = Written::new(4096);
            written.fill(0..4096);
            written.write(index, Reason::Writeback);
            (1100..1110).for_each(|index| _ = written.write(index, Reason::Writeback));
            let view = SectionView { section: Section::new(0), live: 1023, capacity: 1024, modified: 0, rate: None };
            let rate = written.hazard.rate(&view).unwrap();
            assert!((rate * 1023.0 * 11.0 / 4.0 - 1.0).abs() < 1e-9, "{index}: {rate}");
        }
    }

    #[test]
    fn memory_is_eight_bytes_a_block_and_some_tables() {
        let mut written = Written::new(1 << 20);
        let empty = written.hazard.memory();
        assert!(empty < 2 << 20, "{empty}");
        written.fill(0..1 << 20);
        let each = (written.hazard.memory() - empty) as f64 / f64::from(1 << 20);
        assert!((8.0..8.2).contains(&each), "{each}");
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
        assert_eq!(hazard.state().space(), 0);
    }

    /// A node of 256 in a section dies with every eighth block that a user writes: one of them lives for 2048.
    #[test]
    fn sections_of_nodes_have_the_rate_at_which_their_blocks_die() {
        let mut written = Written::new(64);
        let node = BlockTraits { node: true, direct_node: true, ..BlockTraits::default() };
        let at = |index| MainBlock::in_segment(Segment::new(100), index);
        (0..512).for_each(|index| written.hazard.note_written(&node, at(index)));
        for dead in 0..256 {
            (0..8).for_each(|step| _ = written.write((8 * dead + step) % 64, Reason::Writeback));
            written.hazard.note_dead(at(dead));
        }
        let section = SectionView { section: Section::new(100), live: 256, capacity: 512, modified: 0, rate: None };
        let rate = written.hazard.rate(&section).unwrap();
        assert!((0.8..1.0).contains(&(rate * 2048.0)), "{rate}: as of a little before");
        written.hazard.note_free(Segment::new(100));
        let unknown = SectionView { section: Section::new(999), ..section };
        assert_eq!(written.hazard.rate(&section), written.hazard.rate(&unknown), "what was there is forgotten");
    }

    #[test]
    fn rates_of_large_sections_count_all_segments_and_so_does_memory() {
        let mut written = Written::new(64);
        let node = BlockTraits { node: true, ..BlockTraits::default() };
        let at = |segment, index| MainBlock::in_segment(Segment::new(segment), index);
        // What nothing is known of is far older.
        (0..20_000).for_each(|step| _ = written.write(step % 64, Reason::Writeback));
        let before = written.hazard.memory();
        // Section 50 has segments 100 and 101; the nodes are in the second.
        (0..512).for_each(|index| written.hazard.note_written(&node, at(101, index)));
        assert!(written.hazard.memory() > before, "nodes take memory");
        for dead in 0..256 {
            (0..8).for_each(|step| _ = written.write((8 * dead + step) % 64, Reason::Writeback));
            written.hazard.note_dead(at(101, dead));
        }
        let section = SectionView { section: Section::new(50), live: 256, capacity: 1024, modified: 0, rate: None };
        let rate = written.hazard.rate(&section).unwrap();
        assert!((0.8..1.0).contains(&(rate * 2048.0)), "{rate}");
    }
}
