//! MDC: blocks by how often the segments that they come from lost blocks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use basalt_segments::placement::Policy;
use basalt_segments::{
    BLOCKS_PER_SEGMENT, BlockTraits, LogId, MainBlock, Placement, Reason, SectionView, Segment, SegmentKind,
    StaticPlacement,
};

use crate::blocks::Blocks;
use crate::declining_cost::DecliningCost;
use crate::groups::{Groups, is_grouped};
use crate::segments::PerSegment;

/// [`Mdc`] as options name it.
pub(crate) const POLICY: Policy =
    Policy::new("mdc", "by how often the segments that blocks come from lost some (MDC, 2021)", |options| {
        options.expect_six_logs()?;
        Ok(Box::new(Mdc::new(options.groups_or(6))))
    })
    .with_groups(8)
    .with_victim(&DecliningCost)
    .with_rates();

/// Intervals are told apart by powers of two.
const BINS: usize = 64;
/// Blocks after which what was counted weighs half.
const FADES_AFTER: u64 = 1 << 16;

/// A segment has a time u_p2 of its last update but one. The last, u_p1, is taken to lie halfway between u_p2 and now, and becomes u_p2 when
/// a block of the segment is overwritten. A block that is overwritten comes with the new u_p2 of the segment that it leaves, one that is
/// copied with that segment's u_p2 as it is. The u_p2 of a new segment is the mean of its blocks'. Times are counted in blocks that users
/// wrote. The [rate](Placement::rate) of a section is 2 / (C · (now − u_p2)), with C live blocks; [`DecliningCost`](crate::DecliningCost)
/// weighs it.
///
/// The paper sorts the pages of a buffer of several segments by u_p2 before it writes them. Logs cannot sort, so the groups take that
/// part: group i of k takes what would be the i-th part of a sorted buffer, by the distribution of now − u_p2 of the last blocks.
///
/// Source: D. Lomet and C. Luo, "Efficiently Reclaiming Space in a Log Structured Store", ICDE 2021 (arXiv 2005.00044), sections 4 and 5.
pub struct Mdc {
    groups: Groups,
    state: Mutex<State>,
}

struct State {
    now: u64,
    /// The segment of each block, and one more; 0: never written.
    blocks: Blocks<u32>,
    segments: PerSegment<Updated>,
    /// Blocks by the binary logarithm of now − u_p2.
    bins: [u32; BINS],
    counted: u64,
}

/// The updates of a segment.
#[derive(Clone, Copy, Default)]
struct Updated {
    /// u_p2; while it is written, the mean of its blocks'.
    last_but_one: f64,
    /// Blocks written to it.
    blocks: u32,
}

impl Mdc {
    /// With so many groups, from 1 to [`GROUPS_MAX`](crate::GROUPS_MAX).
    #[must_use]
    pub fn new(groups: usize) -> Mdc {
        let state =
            State { now: 0, blocks: Blocks::default(), segments: PerSegment::default(), bins: [0; BINS], counted: 0 };
        Mdc { groups: Groups::new(groups), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The u_p2 that a block comes with; `None` if it was never written.
    fn last_but_one(&self, block: &BlockTraits) -> Option<f64> {
        let segment = Segment::new(self.blocks.get(block).checked_sub(1)?);
        let before = self.segments.get(segment).last_but_one;
        Some(if block.reason == Reason::Cleaning { before } else { before.midpoint(self.now as f64) })
    }

    fn bin(&self, last_but_one: f64) -> usize {
        let interval = (self.now as f64 - last_but_one).max(1.0) as u64;
        interval.ilog2() as usize
    }

    /// Which of `count` groups a block belongs to.
    fn group(&self, block: &BlockTraits, count: usize) -> usize {
        let Some(last_but_one) = self.last_but_one(block) else { return count - 1 };
        let bin = self.bin(last_but_one);
        let sum = |bins: &[u32]| bins.iter().map(|&blocks| u64::from(blocks)).sum::<u64>();
        // The middle of its bin, in the order of all.
        let before = 2 * sum(&self.bins[..bin]) + u64::from(self.bins[bin]);
        let all = 2 * sum(&self.bins);
        (before * count as u64).checked_div(all).map_or(count - 1, |group| group as usize)
    }

    fn count(&mut self, last_but_one: f64) {
        self.bins[self.bin(last_but_one)] += 1;
        self.counted += 1;
        if self.counted.is_multiple_of(FADES_AFTER) {
            self.bins.iter_mut().for_each(|blocks| *blocks /= 2);
        }
    }
}

impl Placement for Mdc {
    fn more_logs(&self) -> &[SegmentKind] {
        self.groups.more_logs()
    }

    fn limit_memory(&self, bytes: usize) {
        self.state().blocks.limit(bytes);
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if !is_grouped(block) {
            return StaticPlacement::default().log(block);
        }
        self.groups.log(self.state().group(block, self.groups.count()))
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        let state = &mut *self.state();
        let known = if is_grouped(block) { state.last_but_one(block) } else { None };
        if let Some(known) = known {
            state.count(known);
        }
        let segment = state.segments.get_mut(place.segment());
        segment.blocks += 1;
        // One that was never written is as cold as can be: nothing was written before it.
        segment.last_but_one += (known.unwrap_or(0.0) - segment.last_but_one) / f64::from(segment.blocks);
        if is_grouped(block) {
            *state.blocks.get_mut(block) = place.segment().get() + 1;
            state.now += u64::from(block.reason != Reason::Cleaning);
        }
    }

    fn note_dead(&self, place: MainBlock) {
        let state = &mut *self.state();
        let now = state.now as f64;
        let segment = state.segments.get_mut(place.segment());
        segment.last_but_one = segment.last_but_one.midpoint(now);
    }

    fn note_free(&self, segment: Segment) {
        *self.state().segments.get_mut(segment) = Updated::default();
    }

    fn rate(&self, section: &SectionView) -> Option<f64> {
        let state = self.state();
        let count = section.capacity / BLOCKS_PER_SEGMENT;
        let first = section.section.get() * count;
        let times = (first..first + count).map(|segment| state.segments.get(Segment::new(segment)).last_but_one);
        let interval = state.now as f64 - times.sum::<f64>() / f64::from(count.max(1));
        Some(2.0 / (f64::from(section.live) * interval.max(1.0)))
    }
}
