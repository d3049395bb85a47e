//! SFS: blocks by hotness, around centres that follow the segments' hotness.

mod centres;
mod files;
mod places;

use std::sync::{Mutex, MutexGuard, PoisonError};

use basalt_segments::placement::Policy;
use basalt_segments::{
    BLOCKS_PER_SEGMENT, BlockTraits, CostBenefit, LogId, MainBlock, Placement, Reason, SectionView, Segment,
    SegmentKind, StaticPlacement,
};

use crate::cost_hotness::CostHotness;
use crate::groups::{Groups, is_grouped};
use crate::hotness::Written;
use centres::Centres;
use files::WrittenFiles;
use places::WrittenPlaces;

/// Groups at most, as options name them.
const GROUPS_MAX: u8 = 8;

/// SFS as SepBIT's authors read it.
pub(crate) const SEPBIT_POLICY: Policy = Policy::new(
    "sfs-sepbit",
    "by hotness around six centres, as SepBIT's authors read SFS (FAST 2012, FAST 2022)",
    |options| {
        options.expect_six_logs()?;
        Ok(Box::new(Sfs::new(options.groups_or(6), Scale::Linear)))
    },
)
.with_groups(GROUPS_MAX)
.with_victim(&CostBenefit);

/// The same on a logarithmic scale.
pub(crate) const LOG_POLICY: Policy =
    Policy::new("sfs-log", "by hotness around six centres on a logarithmic scale (after SFS, FAST 2012)", |options| {
        options.expect_six_logs()?;
        Ok(Box::new(Sfs::new(options.groups_or(6), Scale::Logarithmic)))
    })
    .with_groups(GROUPS_MAX)
    .with_victim(&CostBenefit);

/// SFS as its paper has it, with logs in the place of its deferred groups.
pub(crate) const PAPER_POLICY: Policy =
    Policy::new("sfs", "by hotness around four centres; cleaning counts as a write (SFS, FAST 2012)", |options| {
        options.expect_six_logs()?;
        Ok(Box::new(Sfs::new(options.groups_or(4), Scale::Paper)))
    })
    .with_groups(GROUPS_MAX)
    .with_victim(&CostHotness)
    .with_rates();

/// Segments over which centres are moved each time that one is freed; with more of them, as much less often.
const MOVED_AT_ONCE: usize = 1024;
/// Times are counted anew from here on: half of what they tell apart.
const CLOCK_MAX: u32 = 1 << 31;
/// The number of writes halves while users write so many times what there is.
const FADES_AFTER: u64 = 16;
/// Of [`Scale::Paper`]: no age counts as less than one part in so many of what there is.
const FLOOR: u64 = 24;

/// On which scale hotness is compared, and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As it is. Centres begin at zero, one without segments returns there, and a block that replaces none is the hottest.
    Linear,
    /// By its logarithm. Centres begin evenly spread over the segments there are, one without segments stays where it is, and a block
    /// that replaces none is the coldest.
    Logarithmic,
    /// As it is. Centres begin with the hotness of segments by chance, one without segments stays where it is, and a block that replaces none is
    /// as hot as its file. What cleaning writes counts as a write. No age counts as less than 1/24 of the blocks there are.
    Paper,
}

/// The hotness of a block is its number of writes divided by the time since the one before; of a segment, the sum of its live blocks'
/// numbers divided by the sum of the times since their last writes. Three rounds of k-means over the sealed segments give as many
/// centres as there are groups, when a segment was freed. A block goes to the group with the nearest centre. Copies by
/// cleaning neither count as writes nor change times, but for [`Scale::Paper`]. Times are counted in blocks that users wrote, so that an idle
/// night makes nothing cold. Numbers of writes fade: what was hot once is not hot for ever.
///
/// Of each block eight bytes are kept, at its place, and move as it does. Of a block that was there before, one write is known, as long ago as
/// can be. [Little memory](Placement::limit_memory) takes the coldest segments' records: their blocks count as the mean of the segment.
///
/// Groups are logs, so nothing has to be deferred until a group fills a segment: its log goes on where it was.
///
/// Sources: C. Min et al., "SFS: Random Write Considered Harmful in Solid State Drives", FAST 2012, sections 3.3 and 3.4; Q. Wang et al.,
/// "Separating Data via Block Invalidation Time Inference for Write Amplification Reduction in Log-Structured Storage", FAST 2022,
/// section 4.1, and the simulator published with it, for what the paper leaves open ([`Scale::Linear`]). SFS as its paper has it, with its
/// cache and deferred groups, is [`FaithfulSfs`](crate::FaithfulSfs).
pub struct Sfs {
    groups: Groups,
    scale: Scale,
    state: Mutex<State>,
}

struct State {
    /// Blocks that users wrote.
    now: u32,
    places: WrittenPlaces,
    /// Of [`Scale::Paper`].
    files: WrittenFiles,
    centres: Centres,
    /// Segments freed since centres were moved.
    freed: usize,
}

impl Sfs {
    /// With so many groups, from 1 to [`GROUPS_MAX`](crate::GROUPS_MAX).
    #[must_use]
    pub fn new(groups: usize, scale: Scale) -> Sfs {
        let groups = Groups::new(groups);
        let state = State {
            now: 0,
            places: WrittenPlaces::default(),
            files: WrittenFiles::default(),
            centres: Centres::new(groups.count(), scale),
            freed: 0,
        };
        Sfs { groups, scale, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn group(&self, state: &State, block: &BlockTraits) -> usize {
        let known = state.known(block);
        match (known, self.scale) {
            (Some(written), _) => state.centres.group(written.hotness(state.now, state.floor(self.scale))),
            (None, Scale::Linear) => 0,
            (None, Scale::Logarithmic) => self.groups.count() - 1,
            (None, Scale::Paper) => {
                let file = state.files.get(block.file).unwrap_or_default();
                state.centres.group(file.hotness(state.now, state.floor(self.scale)))
            }
        }
    }
}

impl State {
    /// What is known of a block that is written now, as it was before; `None` if it replaces none.
    fn known(&self, block: &BlockTraits) -> Option<Written> {
        let written = self.places.find(block.from?).unwrap_or(Written { count: 1, time: 0 });
        let halved = u64::from(self.now.saturating_sub(written.time)) / (FADES_AFTER * self.places.space().max(1));
        let count = written.count.checked_shr(u32::try_from(halved).unwrap_or(u32::MAX)).unwrap_or(0);
        Some(Written { count: count.max(1), ..written })
    }

    /// The least age.
    fn floor(&self, scale: Scale) -> u32 {
        match scale {
            Scale::Paper => u32::try_from(self.places.space() / FLOOR).unwrap_or(u32::MAX).max(1),
            Scale::Linear | Scale::Logarithmic => 1,
        }
    }

    /// A user wrote a block.
    fn tick(&mut self) {
        self.now += 1;
        if self.now >= CLOCK_MAX {
            self.now -= CLOCK_MAX / 2;
            self.places.subtract_from_times(CLOCK_MAX / 2);
            self.files.subtract_from_times(CLOCK_MAX / 2);
        }
    }

    /// Moves the centres to where the segments are.
    fn quantize(&mut self, scale: Scale) {
        self.freed += 1;
        if self.freed < self.places.segments() / MOVED_AT_ONCE {
            return;
        }
        self.freed = 0;
        let floor = self.floor(scale);
        let sealed = self.places.sums().filter(|sums| sums.is_sealed());
        let hotness: Vec<f64> = sealed.filter_map(|sums| sums.hotness(self.now, floor)).collect();
        self.centres.update(&hotness);
    }
}

impl Placement for Sfs {
    fn more_logs(&self) -> &[SegmentKind] {
        self.groups.more_logs()
    }

    fn limit_memory(&self, bytes: usize) {
        let state = &mut *self.state();
        let of_files = if self.scale == Scale::Paper { bytes / 8 } else { 0 };
        state.files.limit(of_files);
        state.places.limit(bytes - of_files);
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if is_grouped(block) {
            self.groups.log(self.group(&self.state(), block))
        } else {
            StaticPlacement::default().log(block)
        }
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        let state = &mut *self.state();
        if !is_grouped(block) {
            if self.scale == Scale::Paper {
                let now = state.now;
                state.places.set(place, Written { count: 1, time: now }, now);
            }
            return;
        }
        let known = state.known(block);
        let by_user = block.reason != Reason::Cleaning;
        let counts = by_user || self.scale == Scale::Paper;
        let written = match known {
            Some(written) if !counts => written,
            known => known.unwrap_or_default().again(state.now),
        };
        if counts && self.scale == Scale::Paper {
            state.files.write(block.file, state.now);
        }
        if by_user {
            state.tick();
        }
        let now = state.now;
        state.places.set(place, written, now);
    }

    fn note_dead(&self, place: MainBlock) {
        self.state().places.clear(place);
    }

    fn note_sealed(&self, log: LogId, segment: Segment) {
        if self.groups.of_log(log).is_none() {
            return;
        }
        let state = &mut *self.state();
        state.places.seal(segment);
        if self.scale == Scale::Paper {
            state.quantize(self.scale);
        }
    }

    fn note_free(&self, segment: Segment) {
        let state = &mut *self.state();
        state.places.free(segment);
        state.quantize(self.scale);
    }

    /// Of [`Scale::Paper`], the hotness of the section, of nodes too, each of which counts as written once, in writes for each block that users write: no rate of deaths, but the hotter sections
    /// have more of them.
    fn rate(&self, section: &SectionView) -> Option<f64> {
        if self.scale != Scale::Paper {
            return None;
        }
        let state = self.state();
        let count = section.capacity / BLOCKS_PER_SEGMENT;
        let sums = state.places.sums_of((section.section.get() * count) as usize, count as usize);
        sums.hotness(state.now, state.floor(self.scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_segments::Section;

    /// Blocks of files, and where they lie.
    struct Written {
        sfs: Sfs,
        places: std::collections::BTreeMap<(u32, u32), MainBlock>,
    }

    impl Written {
        fn new(groups: usize, scale: Scale) -> Written {
            Written { sfs: Sfs::new(groups, scale), places: std::collections::BTreeMap::default() }
        }

        fn block(&self, file: u32, index: u32, reason: Reason) -> BlockTraits {
            BlockTraits {
                file,
                index,
                reason,
                from: self.places.get(&(file, index)).copied(),
                ..BlockTraits::default()
            }
        }

        fn write(&mut self, file: u32, index: u32, place: u32, reason: Reason) {
            let block = self.block(file, index, reason);
            let place = MainBlock::new(place);
            self.sfs.note_written(&block, place);
            if let Some(old) = self.places.insert((file, index), place) {
                self.sfs.note_dead(old);
            }
        }

        /// A whole segment of a file's blocks, each written so often; the last writes are in it, those before far behind.
        fn fill(&mut self, segment: u32, file: u32, writes: u32) {
            for write in 1..=writes {
                let at = if write == writes { segment } else { 100 + write % 2 };
                (0..512).for_each(|index| self.write(file, index, 512 * at + index, Reason::Writeback));
            }
            self.sfs.note_sealed(LogId::of(SegmentKind::WarmData), Segment::new(segment));
        }

        fn group(&self, file: u32, index: u32, reason: Reason) -> usize {
            self.sfs.groups.of_log(self.sfs.log(&self.block(file, index, reason))).unwrap()
        }

        fn hotness(&self, section: u32) -> Option<f64> {
            let state = self.sfs.state();
            state.places.sums_of(section as usize, 1).hotness(state.now, 1)
        }
    }

    /// Segments 0, 1 and 2 of files 0, 1 and 2, whose blocks were written once, 4 times and 16 times: 21 · 512 blocks.
    fn three(scale: Scale) -> Written {
        let mut written = Written::new(3, scale);
        for (segment, writes) in [(0, 1), (1, 4), (2, 16)] {
            written.fill(segment, segment, writes);
        }
        // More of them, so that there are more segments than groups.
        (3..6).for_each(|segment| written.fill(segment, segment, 1));
        written.sfs.note_free(Segment::new(50));
        written
    }

    #[test]
    fn hotness_is_writes_over_the_time_since_the_last() {
        for scale in [Scale::Linear, Scale::Logarithmic, Scale::Paper] {
            let mut written = three(scale);
            // Of segment 2, the last write of block i was at 20 · 512 + i of 24 · 512: N · now − ΣT is 512 · 4 · 512 − 511 · 512 / 2.
            let expected = 16.0 * 512.0 / (512.0 * 4.0 * 512.0 - 511.0 * 256.0);
            assert!((written.hotness(2).unwrap() - expected).abs() < 1e-12, "{scale:?}");
            // A copy of block 511 to segment 7: as it was, or, where cleaning counts, one more write, now.
            written.write(2, 511, 7 * 512, Reason::Cleaning);
            let age = f64::from(4 * 512 - 511);
            let expected = if scale == Scale::Paper { 17.0 } else { 16.0 / age };
            assert!((written.hotness(7).unwrap() - expected).abs() < 1e-12, "{scale:?}");
            // A user's write counts, and time goes on by one. The copy counts as old as before, or not.
            written.write(2, 511, 7 * 512 + 1, Reason::Writeback);
            let writes = if scale == Scale::Paper { 18.0 } else { 17.0 };
            assert!((written.hotness(7).unwrap() - writes).abs() < 1e-12, "{scale:?}");
            assert_eq!(written.hotness(8), None);
        }
    }

    #[test]
    fn blocks_go_to_the_group_with_the_nearest_centre() {
        for scale in [Scale::Linear, Scale::Logarithmic, Scale::Paper] {
            let written = three(scale);
            let groups = [2, 1, 0].map(|file| written.group(file, 5, Reason::Writeback));
            assert!(groups.is_sorted() && groups[0] < groups[2], "{scale:?}: {groups:?}");
            assert_eq!(written.group(2, 5, Reason::Cleaning), groups[0], "{scale:?}");
            // File 2 was written a moment ago.
            let of_new = if scale == Scale::Logarithmic { 2 } else { 0 };
            assert_eq!(written.group(2, 9999, Reason::Writeback), of_new, "{scale:?}");
        }
        // A file that was never written is as cold as can be.
        assert!(three(Scale::Paper).group(77, 0, Reason::Writeback) > 0);
    }

    #[test]
    fn what_was_there_before_was_written_once_as_long_ago_as_can_be() {
        let mut written = three(Scale::Logarithmic);
        written.places.insert((9, 0), MainBlock::new(60 * 512));
        assert_eq!(written.group(9, 0, Reason::Cleaning), 2);
        written.write(9, 0, 7 * 512, Reason::Cleaning);
        let expected = 1.0 / (24.0 * 512.0);
        assert!((written.hotness(7).unwrap() - expected).abs() < 1e-12);
    }

    /// With one segment in use, what was written 65 times counts half after 16 segments' worth of writes.
    #[test]
    fn what_was_hot_once_is_not_hot_for_ever() {
        let mut written = Written::new(2, Scale::Logarithmic);
        (0..65).for_each(|step| written.write(0, 0, step % 2, Reason::Writeback));
        let count = |written: &Written| {
            let block = written.block(0, 0, Reason::Cleaning);
            written.sfs.state().known(&block).unwrap().count
        };
        for (writes, expected) in [(16 * 512 - 2, 65), (1, 32), (16 * 512, 16), (200 * 512, 1)] {
            (0..writes).for_each(|step| written.write(0, 1, 10 + step % 2, Reason::Writeback));
            assert_eq!(count(&written), expected, "{writes}");
        }
    }

    #[test]
    fn the_clock_does_not_end() {
        let mut written = three(Scale::Paper);
        let before = written.hotness(2).unwrap();
        {
            let state = &mut *written.sfs.state();
            // As if all that had happened much later.
            let later = CLOCK_MAX - 1 - state.now;
            state.now += later;
            for segment in 0..6 {
                for index in 0..512 {
                    let place = MainBlock::new(512 * segment + index);
                    let known = state.places.find(place).unwrap();
                    state.places.clear(place);
                    let moved = crate::hotness::Written { time: known.time + later, ..known };
                    state.places.set(place, moved, state.now);
                }
            }
        }
        assert_eq!(written.hotness(2), Some(before));
        written.write(2, 0, 7 * 512, Reason::Writeback);
        assert_eq!(written.sfs.state().now, CLOCK_MAX / 2);
        // One block less, and one time unit more.
        assert!((written.hotness(2).unwrap() / before - 1.0).abs() < 0.001);
        assert_eq!(written.hotness(7), Some(17.0));
    }

    #[test]
    fn the_rate_is_the_hotness_of_the_section_where_cost_hotness_asks() {
        let view = |section, capacity| SectionView {
            section: Section::new(section),
            live: 1,
            capacity,
            modified: 0,
            rate: None,
        };
        let written = three(Scale::Paper);
        // The least age is 1/24 of seven segments' blocks, which nothing here is below.
        assert_eq!(written.sfs.rate(&view(2, 512)), written.hotness(2));
        let both = written.sfs.state().places.sums_of(2, 2).hotness(24 * 512, 1);
        assert_eq!(written.sfs.rate(&view(1, 1024)), both);
        assert_eq!(three(Scale::Logarithmic).sfs.rate(&view(2, 512)), None);
    }

    #[test]
    fn nodes_and_directories_go_where_f2fs_has_them() {
        let sfs = Sfs::new(8, Scale::Paper);
        assert_eq!(sfs.more_logs().len(), 5);
        for block in [
            BlockTraits { node: true, direct_node: true, ..BlockTraits::default() },
            BlockTraits { of_directory: true, ..BlockTraits::default() },
        ] {
            assert_eq!(sfs.log(&block), StaticPlacement::default().log(&block));
            sfs.note_written(&block, MainBlock::new(5));
        }
        // Their section has a hotness, for the victim policy, and no centre.
        sfs.note_sealed(LogId::of(SegmentKind::WarmNode), Segment::new(0));
        let view = SectionView { section: Section::new(0), live: 1, capacity: 512, modified: 0, rate: None };
        assert!(sfs.rate(&view).is_some() && sfs.state().places.sums().all(|sums| !sums.is_sealed()));
    }
}
