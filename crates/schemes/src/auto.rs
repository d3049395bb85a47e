//! `auto`: groups where they gain, F2FS's logs elsewhere.

use basalt_segments::placement::{Hints, LONG_RUN, Policy, Recalled};
use basalt_segments::{
    BlockTraits, LogId, MainBlock, Placement, Reason, SectionView, Segment, SegmentKind, StaticPlacement,
};

use crate::groups::is_grouped;
use crate::hazard::{AutoVictim, Hazard};

/// [`Auto`] as options name it.
pub(crate) const POLICY: Policy =
    Policy::new("auto", "as static until users overwrite a block, then by the remaining life that is learned; new blocks in long runs are cold", |options| {
        options.expect_six_logs()?;
        Ok(Box::new(Auto::default()))
    })
    .with_victim(&AutoVictim)
    .with_rates();

/// F2FS's placement for blocks that no user has overwritten yet, and the groups of the [hazard table](crate::Hazard) for the others.
///
/// Nothing is known of a block before it is overwritten, but what F2FS goes by: its type, its file's name, and whether cleaning has copied
/// it. Files that are written once and deleted whole never have more than that, and groups would only take logs: devices write to a few
/// places at a time. New blocks that are written together with at least 15 neighbours are cold
/// ([run length](basalt_segments::placement::RunLength)): pictures, packages, copies.
///
/// Meant for the victim policy [`AutoVictim`](crate::AutoVictim), which asks it for the rates of sections. Memory: as
/// [`Hazard`](crate::Hazard).
///
/// Source: ours; docs/policies.md has its numbers.
#[derive(Default)]
pub struct Auto {
    hazard: Hazard,
}

impl Auto {
    /// Bytes of memory that it takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.hazard.memory()
    }
}

/// Where F2FS has a block; a new one in a long run is cold.
fn log_of_f2fs(block: &BlockTraits) -> LogId {
    let is_long = block.reason != Reason::Cleaning && block.run >= LONG_RUN;
    StaticPlacement::default().log(&BlockTraits { cold: block.cold || is_long && is_grouped(block), ..*block })
}

impl Placement for Auto {
    fn more_logs(&self) -> &[SegmentKind] {
        self.hazard.more_logs()
    }

    fn limit_memory(&self, bytes: usize) {
        self.hazard.limit_memory(bytes);
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if !is_grouped(block) {
            return log_of_f2fs(block);
        }
        let mut state = self.hazard.state();
        if state.is_first_life(block) { log_of_f2fs(block) } else { state.log(block) }
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        let mut state = self.hazard.state();
        if !is_grouped(block) {
            state.note_other(place);
        } else if block.from.is_none() && log_of_f2fs(block) == LogId::of(SegmentKind::HotData) {
            // Blocks of directories lie there, too: one of them must not pass for this one.
            state.note_other(place);
            state.tick_for(block);
        } else if state.is_first_life(block) {
            state.note_written_elsewhere(block, place);
        } else {
            state.note_written(block, place);
        }
    }

    fn note_coming(&self, places: &[MainBlock]) {
        self.hazard.state().note_coming(places);
    }

    fn note_dead(&self, place: MainBlock) {
        self.hazard.note_dead(place);
    }

    fn note_sealed(&self, log: LogId, segment: Segment) {
        self.hazard.note_sealed(log, segment);
    }

    fn note_free(&self, segment: Segment) {
        self.hazard.note_free(segment);
    }

    fn rate(&self, section: &SectionView) -> Option<f64> {
        self.hazard.rate(section)
    }

    fn hints(&self, most: usize) -> Option<Hints> {
        self.hazard.hints(most)
    }

    fn recall(&self, general: &[u8], segments: &[Recalled<'_>]) {
        self.hazard.recall(general, segments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_segments::Section;

    fn place(segment: u32, offset: u32) -> MainBlock {
        MainBlock::in_segment(Segment::new(segment), offset)
    }

    fn of(kind: SegmentKind) -> LogId {
        LogId::of(kind)
    }

    /// Blocks that nobody overwrites stay where F2FS has them, however often they are copied.
    #[test]
    fn a_block_is_as_f2fs_has_it_until_it_is_overwritten() {
        let auto = Auto::default();
        let new = BlockTraits { file: 9, index: 4, ..BlockTraits::default() };
        assert_eq!(auto.log(&new), of(SegmentKind::WarmData));
        assert_eq!(auto.log(&BlockTraits { hot: true, ..new }), of(SegmentKind::HotData));
        assert_eq!(auto.log(&BlockTraits { cold: true, ..new }), of(SegmentKind::ColdData));
        auto.note_written(&new, place(3, 0));
        let copied = BlockTraits { from: Some(place(3, 0)), reason: Reason::Cleaning, cold: true, ..new };
        assert_eq!(auto.log(&copied), of(SegmentKind::ColdData));
        auto.note_written(&copied, place(4, 0));
        auto.note_dead(place(3, 0));
        let again = BlockTraits { from: Some(place(4, 0)), ..copied };
        assert_eq!(auto.log(&again), of(SegmentKind::ColdData));
        auto.note_written(&again, place(5, 0));
        auto.note_dead(place(4, 0));
        assert_eq!(auto.hazard.state().live(), 1, "it is known all the same");
    }

    #[test]
    fn new_blocks_in_long_runs_are_cold() {
        let auto = Auto::default();
        let run = |run| BlockTraits { run, ..BlockTraits::default() };
        assert_eq!(auto.log(&run(LONG_RUN - 1)), of(SegmentKind::WarmData));
        assert_eq!(auto.log(&run(LONG_RUN)), of(SegmentKind::ColdData));
        for block in [BlockTraits { node: true, ..run(99) }, BlockTraits { of_directory: true, ..run(99) }] {
            assert_eq!(auto.log(&block), StaticPlacement::default().log(&block));
        }
    }

    /// Half of the writes go round 64 blocks of 4096. Once overwritten, blocks go to groups, by what is predicted, also when they are copied,
    /// and also where they lie in a log of F2FS's.
    #[test]
    fn overwritten_blocks_are_in_groups() {
        let auto = Auto::default();
        let mut places = vec![None; 4096];
        let mut next = 0;
        let mut write = |index: u32, reason| {
            let block = BlockTraits { index, reason, run: 99, from: places[index as usize], ..BlockTraits::default() };
            let log = auto.log(&block);
            auto.note_written(&block, place(next / 512, next % 512));
            if let Some(old) = places[index as usize].replace(place(next / 512, next % 512)) {
                auto.note_dead(old);
            }
            next += 1;
            log
        };
        (0..4096).for_each(|index| assert_eq!(write(index, Reason::Writeback), of(SegmentKind::ColdData)));
        for step in 0..100_000 {
            write(step % 64, Reason::Writeback);
            write(64 + step % 2048, Reason::Writeback);
        }
        let logs = [99_999 % 64, 64 + 99_999 % 2048, 4000].map(|index| write(index, Reason::Cleaning));
        assert_ne!(logs[0], logs[1]);
        let cold = BlockTraits {
            index: 4000,
            from: places[4000],
            cold: true,
            reason: Reason::Cleaning,
            ..BlockTraits::default()
        };
        assert_eq!(auto.log(&cold), of(SegmentKind::ColdData), "nobody overwrote it");
    }

    #[test]
    fn it_knows_the_rate_of_every_section() {
        let auto = Auto::default();
        let view =
            |section| SectionView { section: Section::new(section), live: 9, capacity: 512, modified: 0, rate: None };
        let node = BlockTraits { node: true, ..BlockTraits::default() };
        (0..20).for_each(|offset| auto.note_written(&BlockTraits::default(), place(0, offset)));
        (0..20).for_each(|offset| auto.note_written(&node, place(1, offset)));
        assert!([0, 1, 2].iter().all(|&section| auto.rate(&view(section)).is_some_and(|rate| rate > 0.0)));
        assert!(auto.memory() < 2 << 20);
    }

    /// What F2FS's logs get is in no group's log, is known as one of the coldest group, and is a write by the clock.
    #[test]
    fn first_lives_are_in_no_groups_log() {
        let auto = Auto::default();
        // 512 blocks, in the segment of F2FS's log of warm data.
        for index in 0..512 {
            auto.note_written(&BlockTraits { index, ..BlockTraits::default() }, place(3, index));
        }
        let coldest = auto.hazard.state().coldest();
        let group = auto.hazard.state().group(place(3, 0));
        assert_eq!(group, Some(coldest));
        assert_eq!(auto.hazard.state().look(place(3, 0)).unwrap().1, 512, "its age");
        assert!(auto.hazard.state().streams_are_idle(), "no group's log has a segment");
        // Blocks of hot files, which lie beside those of directories, are writes as well.
        for index in 0..8 {
            auto.note_written(&BlockTraits { index, hot: true, ..BlockTraits::default() }, place(4, index));
        }
        assert_eq!(auto.hazard.state().look(place(3, 0)).unwrap().1, 520, "its age");
    }

    /// A segment that a group's log has filled is open no more: what is dead there makes room in no log.
    #[test]
    fn full_segments_leave_the_logs_of_groups() {
        let auto = Auto::default();
        let over = |from| BlockTraits { from: Some(from), ..BlockTraits::default() };
        auto.note_written(&over(place(90, 0)), place(3, 0));
        assert!(!auto.hazard.state().streams_are_idle());
        auto.note_sealed(auto.log(&over(place(90, 1))), Segment::new(3));
        assert!(auto.hazard.state().streams_are_idle(), "its log has no segment");
    }

    #[test]
    fn one_overwrite_is_enough_and_what_was_there_at_opening_is_in_its_first_life() {
        let auto = Auto::default();
        let copy =
            |from| BlockTraits { from: Some(from), reason: Reason::Cleaning, cold: true, ..BlockTraits::default() };
        // Never seen: it was there when the volume was opened.
        assert!(auto.hazard.state().is_first_life(&copy(place(90, 0))));
        assert_eq!(auto.log(&copy(place(90, 0))), of(SegmentKind::ColdData));
        // A user overwrites it, and another block that is known.
        let over = BlockTraits { from: Some(place(90, 0)), ..BlockTraits::default() };
        assert!(!auto.hazard.state().is_first_life(&over));
        auto.note_written(&over, place(7, 0));
        assert!(
            !auto.hazard.state().is_first_life(&copy(place(7, 0))),
            "overwritten, though nobody knows when it was new"
        );
        auto.note_written(&BlockTraits { index: 1, ..BlockTraits::default() }, place(1, 0));
        auto.note_written(&BlockTraits { index: 1, from: Some(place(1, 0)), ..BlockTraits::default() }, place(2, 0));
        auto.note_dead(place(1, 0));
        assert!(!auto.hazard.state().is_first_life(&copy(place(2, 0))), "overwritten once");
    }

    #[test]
    fn what_is_overwritten_in_a_hot_file_is_in_a_group() {
        let auto = Auto::default();
        auto.note_written(&BlockTraits { from: Some(place(90, 0)), hot: true, ..BlockTraits::default() }, place(3, 0));
        assert!(auto.hazard.state().group(place(3, 0)).is_some());
        assert!(auto.hints(1 << 20).is_some(), "and that is kept");
    }
}
