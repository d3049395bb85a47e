//! SepBIT: blocks by the inferred time of their invalidation.

use std::sync::{Mutex, MutexGuard, PoisonError};

use basalt_segments::placement::Policy;
use basalt_segments::{
    BlockTraits, CostBenefit, LogId, MainBlock, Placement, Reason, Segment, SegmentKind, StaticPlacement,
};

use crate::blocks::Blocks;
use crate::groups::{Groups, is_grouped};
use crate::segments::PerSegment;

/// [`SepBit`] as options name it.
pub(crate) const POLICY: Policy =
    Policy::new("sepbit", "by the life of the block that is replaced, copies by age (SepBIT, FAST 2022)", |options| {
        options.expect_six_logs()?;
        Ok(Box::new(SepBit::default()))
    })
    .with_victim(&CostBenefit);

/// Segments of the first class over which the mean life is taken: the paper's n_c.
const SEGMENTS_AVERAGED: u32 = 16;

/// Six classes. A block that a user writes goes to class 1 if the block that it replaces lived for less than ℓ, otherwise, and if it
/// replaces none, to class 2. A block that cleaning copies out of a segment of class 1 goes to class 3, another one by its age g since
/// a user wrote it: to class 4 below 4ℓ, to 5 below 16ℓ, else to 6. Here ℓ is the mean life of the last 16 segments of class 1 that were
/// freed, infinite until there were as many, and times are counted in blocks that users wrote.
///
/// Source: Q. Wang et al., "Separating Data via Block Invalidation Time Inference for Write Amplification Reduction in Log-Structured
/// Storage", FAST 2022, section 3.4 and algorithm 1. The paper keeps last writes in a queue of bounded length, which changes no decision
/// as long as the queue is as long as ℓ; here each block has its own.
pub struct SepBit {
    groups: Groups,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Blocks that users wrote.
    now: u64,
    blocks: Blocks<Known>,
    segments: PerSegment<Lived>,
    /// ℓ; `None` is infinite.
    mean_life: Option<f64>,
    /// The sum and number of lives since ℓ was set.
    lives: (u64, u32),
}

#[derive(Clone, Copy, Default)]
struct Known {
    /// When a user wrote it last, and one more; 0: never.
    written: u64,
    segment: Segment,
}

#[derive(Clone, Copy, Default)]
struct Lived {
    /// When its first block was written, and one more; 0: it has none.
    since: u64,
    /// It is sealed, and of the first class.
    is_first_class: bool,
}

impl Default for SepBit {
    fn default() -> Self {
        SepBit { groups: Groups::new(6), state: Mutex::default() }
    }
}

impl SepBit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn class(&self, block: &BlockTraits) -> usize {
        let Known { written, segment } = self.blocks.get(block);
        let age = (self.now + 1).saturating_sub(written) as f64;
        let is_below = |times: f64| self.mean_life.is_none_or(|life| age < times * life);
        match block.reason {
            Reason::Writeback | Reason::Fsync if written > 0 && is_below(1.0) => 0,
            Reason::Writeback | Reason::Fsync => 1,
            Reason::Cleaning if self.segments.get(segment).is_first_class => 2,
            Reason::Cleaning if is_below(4.0) => 3,
            Reason::Cleaning if is_below(16.0) => 4,
            Reason::Cleaning => 5,
        }
    }
}

impl Placement for SepBit {
    fn more_logs(&self) -> &[SegmentKind] {
        self.groups.more_logs()
    }

    fn limit_memory(&self, bytes: usize) {
        self.state().blocks.limit(bytes);
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if is_grouped(block) {
            self.groups.log(self.state().class(block))
        } else {
            StaticPlacement::default().log(block)
        }
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        let state = &mut *self.state();
        let segment = state.segments.get_mut(place.segment());
        if segment.since == 0 {
            segment.since = state.now + 1;
        }
        if !is_grouped(block) {
            return;
        }
        let known = state.blocks.get_mut(block);
        known.segment = place.segment();
        if block.reason != Reason::Cleaning || known.written == 0 {
            known.written = state.now + 1;
        }
        state.now += u64::from(block.reason != Reason::Cleaning);
    }

    fn note_sealed(&self, log: LogId, segment: Segment) {
        self.state().segments.get_mut(segment).is_first_class = self.groups.of_log(log) == Some(0);
    }

    fn note_free(&self, segment: Segment) {
        let state = &mut *self.state();
        let lived = std::mem::take(state.segments.get_mut(segment));
        if !lived.is_first_class || lived.since == 0 {
            return;
        }
        state.lives.0 += state.now + 1 - lived.since;
        state.lives.1 += 1;
        if state.lives.1 == SEGMENTS_AVERAGED {
            state.mean_life = Some(state.lives.0 as f64 / f64::from(SEGMENTS_AVERAGED));
            state.lives = (0, 0);
        }
    }
}
