//! SFS: blocks by hotness, around centres that follow the segments' hotness.

mod centres;
mod files;
mod hints;
mod places;

use std::sync::{Mutex, MutexGuard, PoisonError};

use basalt_segments::placement::{Hints, Policy, Recalled};
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
/// What is known is [kept with the volume](Placement::hints), centres too.
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
    /// Segments freed since centres were moved; for [`Scale::Paper`], and filled.
    changed: usize,
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
            changed: 0,
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

    /// Moves the centres to where the segments are, if enough of these have changed: once, however many were freed together.
    fn quantize_if_due(&mut self, scale: Scale) {
        if self.changed < self.places.segments().div_ceil(MOVED_AT_ONCE).max(1) {
            return;
        }
        self.changed = 0;
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
            let state = &mut *self.state();
            state.quantize_if_due(self.scale);
            self.groups.log(self.group(state, block))
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
        let mut written = match known {
            Some(written) if !counts => written,
            known => known.unwrap_or_default().again(state.now),
        };
        if counts && self.scale == Scale::Paper {
            state.files.write(block.file, state.now);
        }
        if by_user {
            state.tick();
        }
        // The clock may have gone back.
        let now = state.now;
        written.time = written.time.min(now);
        state.places.set(place, written, now);
    }

    fn note_coming(&self, places: &[MainBlock]) {
        self.state().places.look_at(places);
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
        state.changed += usize::from(self.scale == Scale::Paper);
    }

    fn note_free(&self, segment: Segment) {
        let state = &mut *self.state();
        state.places.free(segment);
        state.changed += 1;
    }

    fn hints(&self, most: usize) -> Option<Hints> {
        self.state().hints(most)
    }

    fn recall(&self, general: &[u8], segments: &[Recalled<'_>]) {
        self.state().recall(general, segments);
    }

    /// Of [`Scale::Paper`], the hotness of the section, of nodes too, each of which counts as written once: in writes for each block that users
    /// write. That is no rate of deaths, but the hotter sections have more of them.
    fn rate(&self, section: &SectionView) -> Option<f64> {
        if self.scale != Scale::Paper {
            return None;
        }
        let state = self.state();
        let count = section.capacity / BLOCKS_PER_SEGMENT;
        let sums = state.places.sums_of((section.section.get() * count) as usize, count as usize);
        let floor = state.floor(self.scale);
        // Of one that was there before, what `known` says of each block.
        sums.hotness(state.now, floor).or_else(|| Some(Written { count: 1, time: 0 }.hotness(state.now, floor)))
    }
}

#[cfg(test)]
mod tests;
