//! SFS as its paper has it: the part that decides which group a block belongs to, and how hot a section is.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use basalt_segments::{
    BLOCKS_PER_SEGMENT, BlockTraits, LogId, MainBlock, Placement, Reason, SectionView, Segment, SegmentKind,
    StaticPlacement,
};

use crate::groups::{Groups, is_grouped};
use crate::hotness::HotnessTable;
use crate::quantize::{Quantization, Quantizer};

/// What [`FaithfulSfs`] can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SfsOptions {
    /// Groups, from 1 to [`GROUPS_MAX`](SfsOptions::GROUPS_MAX); other numbers count as the nearest of these.
    pub groups: usize,
    /// How the groups' centres are found.
    pub quantization: Quantization,
    /// No age counts as less. The paper has none; without, sections written a moment ago take all centres. At least a millisecond.
    pub age_floor: Duration,
    /// Whether what cleaning writes counts as a write of the block: "in all cases, writing a block accompanies updating" its time and count
    /// (section 3.5).
    pub clean_touch: bool,
    /// Segments of 2 MiB in a section, which is what the paper calls a segment.
    pub segments_per_section: u32,
    /// For the first centres.
    pub seed: u64,
}

impl SfsOptions {
    /// Groups at most.
    pub const GROUPS_MAX: usize = 8;
}

impl Default for SfsOptions {
    /// Four groups, and the checkpoint interval of 30 s as the least age.
    fn default() -> Self {
        SfsOptions {
            groups: 4,
            quantization: Quantization::Iterative,
            age_floor: Duration::from_secs(30),
            clean_touch: true,
            segments_per_section: 1,
            seed: 1,
        }
    }
}

/// The hotness of a block is the number of its writes over its age, that of a section the slope through its live blocks. Centres are moved
/// each time that dirty blocks are to be written ([`note_writing`](Placement::note_writing)), and a block goes to the group with the nearest
/// centre. Writes are those to the device. [`CostHotness`](crate::CostHotness) weighs the hotness of sections.
///
/// It needs the clock and the pool of dirty blocks of the volume simulator (`Pool`): without, nothing is deferred and no time passes. What
/// does not fill a section of its own goes to [`mixed_log`](FaithfulSfs::mixed_log).
///
/// Source: C. Min et al., "SFS: Random Write Considered Harmful in Solid State Drives", FAST 2012, sections 3.3 to 3.6. What the paper leaves
/// open is read as docs/policies.md says.
pub struct FaithfulSfs {
    groups: Groups,
    clean_touch: bool,
    state: Mutex<State>,
}

struct State {
    table: HotnessTable,
    quantizer: Quantizer,
}

impl FaithfulSfs {
    /// With these options.
    #[must_use]
    pub fn new(options: SfsOptions) -> FaithfulSfs {
        let count = options.groups.clamp(1, SfsOptions::GROUPS_MAX);
        let floor = u32::try_from(options.age_floor.as_millis()).unwrap_or(u32::MAX);
        FaithfulSfs {
            // The last log is for what fills no section.
            groups: Groups::new(count + 1),
            clean_touch: options.clean_touch,
            state: Mutex::new(State {
                table: HotnessTable::new(options.segments_per_section, floor),
                quantizer: Quantizer::new(count, options.quantization, options.seed),
            }),
        }
    }

    /// The log for blocks of different groups that a checkpoint writes: F2FS's log of cold data.
    #[must_use]
    pub fn mixed_log(&self) -> LogId {
        self.groups.log(self.groups.count() - 1)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Placement for FaithfulSfs {
    fn more_logs(&self) -> &[SegmentKind] {
        self.groups.more_logs()
    }

    fn note_time(&self, now: u64) {
        self.state().table.set_now(now);
    }

    fn note_writing(&self) {
        let state = &mut *self.state();
        state.quantizer.update(&state.table.of_sealed_sections());
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if !is_grouped(block) {
            return StaticPlacement::default().log(block);
        }
        let state = self.state();
        self.groups.log(state.quantizer.group(state.table.of_block(block)))
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        if is_grouped(block) {
            let counts = self.clean_touch || block.reason != Reason::Cleaning;
            self.state().table.write(block, place, counts);
        }
    }

    fn note_dead(&self, place: MainBlock) {
        self.state().table.die(place);
    }

    fn note_sealed(&self, _log: LogId, segment: Segment) {
        self.state().table.seal(segment);
    }

    fn note_free(&self, segment: Segment) {
        self.state().table.free(segment);
    }

    /// The hotness of the section, in writes a millisecond: no rate of deaths, but the hotter sections have more of them.
    fn rate(&self, section: &SectionView) -> Option<f64> {
        debug_assert_eq!(section.capacity % BLOCKS_PER_SEGMENT, 0);
        self.state().table.of_section(section.section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_segments::Section;

    const SECOND: u64 = 1_000_000_000;

    fn block(index: u32, reason: Reason) -> BlockTraits {
        BlockTraits { index, reason, ..BlockTraits::default() }
    }

    fn sfs(groups: usize, clean_touch: bool) -> FaithfulSfs {
        let age_floor = Duration::from_secs(1);
        FaithfulSfs::new(SfsOptions { groups, clean_touch, age_floor, ..SfsOptions::default() })
    }

    /// Three segments, each of blocks that were written as often and at the same time: 1 write at 0 s, 3 until 60 s, 9 until 90 s.
    fn three_segments(sfs: &FaithfulSfs) {
        let mut next = 100 * BLOCKS_PER_SEGMENT;
        for (segment, writes, until) in [(0, 1, 0), (1, 3, 60), (2, 9, 90)] {
            sfs.note_time(until * SECOND);
            for index in segment * BLOCKS_PER_SEGMENT..(segment + 1) * BLOCKS_PER_SEGMENT {
                for write in 0..writes {
                    let place = MainBlock::new(if write + 1 == writes { index } else { next });
                    sfs.note_written(&block(index, Reason::Writeback), place);
                    if write + 1 < writes {
                        sfs.note_dead(place);
                        next += 1;
                    }
                }
            }
            sfs.note_sealed(sfs.mixed_log(), Segment::new(segment));
        }
        sfs.note_time(120 * SECOND);
    }

    fn hotness(sfs: &FaithfulSfs, section: u32) -> Option<f64> {
        let section = SectionView { section: Section::new(section), live: 1, capacity: 512, modified: 0, rate: None };
        sfs.rate(&section).map(|hotness| hotness * 1000.0)
    }

    /// 1/120, 3/60 and 9/30: with two groups the centres are 0.3, and the mean of 0.05 and 0.0083.
    #[test]
    fn blocks_go_to_the_group_with_the_nearest_centre() {
        let sfs = sfs(2, true);
        three_segments(&sfs);
        let expected = [1.0 / 120.0, 0.05, 0.3];
        for (section, expected) in (0..).zip(expected) {
            assert!((hotness(&sfs, section).unwrap() - expected).abs() < 1e-12);
        }
        assert_eq!(hotness(&sfs, 3), None);
        // From any two of the three, three rounds and then three more find them.
        sfs.note_writing();
        sfs.note_writing();
        let logs = [0, 600, 1030].map(|index| sfs.log(&block(index, Reason::Writeback)));
        let group = |group| sfs.groups.log(group);
        assert_eq!(logs, [group(1), group(1), group(0)]);
        assert!(!logs.contains(&sfs.mixed_log()));
        // The file was written 13 · 512 times, the last at 90 s: a new block is very hot.
        assert_eq!(sfs.log(&block(99_999, Reason::Writeback)), group(0));
    }

    /// A copy at 120 s. With `clean_touch`, block 0 and its section have two writes, and the least age of 1 s.
    #[test]
    fn cleaning_counts_as_a_write_if_so_told() {
        for (clean_touch, expected) in [(true, 2.0 / 1.0), (false, 1.0 / 120.0)] {
            let sfs = sfs(2, clean_touch);
            three_segments(&sfs);
            let place = MainBlock::in_segment(Segment::new(5), 0);
            sfs.note_written(&block(0, Reason::Cleaning), place);
            sfs.note_dead(MainBlock::new(0));
            assert!((hotness(&sfs, 5).unwrap() - expected).abs() < 1e-9, "{clean_touch}");
            assert!((hotness(&sfs, 0).unwrap() - 1.0 / 120.0).abs() < 1e-12, "{clean_touch}");
        }
    }

    #[test]
    fn nodes_and_directories_go_where_f2fs_has_them() {
        let sfs = sfs(8, true);
        assert_eq!((sfs.groups.count(), sfs.more_logs().len()), (9, 6));
        let others = [
            BlockTraits { node: true, direct_node: true, ..BlockTraits::default() },
            BlockTraits { of_directory: true, ..BlockTraits::default() },
        ];
        for block in others {
            assert_eq!(sfs.log(&block), StaticPlacement::default().log(&block));
            sfs.note_written(&block, MainBlock::new(5));
        }
        assert_eq!(hotness(&sfs, 0), None);
    }

    #[test]
    fn a_write_that_is_waited_for_counts_too() {
        let sfs = sfs(2, false);
        three_segments(&sfs);
        sfs.note_written(&block(0, Reason::Fsync), MainBlock::in_segment(Segment::new(5), 0));
        assert!((hotness(&sfs, 5).unwrap() - 2.0).abs() < 1e-9);
    }
}
