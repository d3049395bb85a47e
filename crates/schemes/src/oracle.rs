//! The oracle: it knows when each block will be overwritten.

use std::sync::{Mutex, PoisonError};

use basalt_segments::{
    BLOCKS_PER_SEGMENT, BlockTraits, LogId, MainBlock, Placement, Reason, SegmentKind, StaticPlacement,
};

use crate::blocks::Blocks;
use crate::groups::{Groups, is_grouped};

/// It never comes.
const NEVER: u32 = u32::MAX;

/// Groups by the time that is left until the block is overwritten, which doubles from group to group: the first takes what dies within the
/// next 512 writes, the next what dies within 1024, and so on. The same for blocks that users write and that cleaning copies.
///
/// For streams of single-block writes that are known beforehand: the volume simulator. Other schemes can be compared with it. It is no bound:
/// with few groups, schemes that know less can do better.
///
/// Source: the scheme "future knowledge" of Q. Wang et al., "Separating Data via Block Invalidation Time Inference for Write Amplification
/// Reduction in Log-Structured Storage", FAST 2022, section 2.3, whose classes are one segment wide each. These are geometric instead,
/// because six classes of one segment each are worse than schemes without future knowledge.
pub struct Oracle {
    groups: Groups,
    state: Mutex<State>,
}

struct State {
    /// Blocks that users wrote.
    now: u32,
    /// Of each write, when the block is written next.
    next: Vec<u32>,
    /// When each block is overwritten, and one more; 0: it was never written.
    dies: Blocks<u32>,
}

impl Oracle {
    /// Groups that it has if nobody says.
    pub const GROUPS: usize = 12;

    /// For exactly these writes of blocks, in their order. Blocks that are not written again before the end of `writes` count as never
    /// overwritten: let it reach beyond the run.
    #[must_use]
    pub fn new(groups: usize, writes: impl IntoIterator<Item = u32>) -> Oracle {
        let mut next: Vec<u32> = Vec::new();
        let mut last: Vec<u32> = Vec::new();
        for block in writes.into_iter().take(NEVER as usize - 1) {
            if last.len() <= block as usize {
                last.resize(block as usize + 1, NEVER);
            }
            // As many as a `u32` numbers.
            let now = next.len() as u32;
            let before = std::mem::replace(&mut last[block as usize], now);
            if before != NEVER {
                next[before as usize] = now;
            }
            next.push(NEVER);
        }
        Oracle { groups: Groups::new(groups), state: Mutex::new(State { now: 0, next, dies: Blocks::default() }) }
    }
}

impl State {
    /// When a block dies that is written now.
    fn death(&self, block: &BlockTraits) -> u32 {
        match block.reason {
            Reason::Cleaning => self.dies.get(block).checked_sub(1).unwrap_or(NEVER),
            Reason::Writeback | Reason::Fsync => self.next.get(self.now as usize).copied().unwrap_or(NEVER),
        }
    }

    fn group(&self, block: &BlockTraits, count: usize) -> usize {
        let left = self.death(block).saturating_sub(self.now) / BLOCKS_PER_SEGMENT;
        let doubled = left.checked_ilog2().map_or(0, |doubled| doubled as usize + 1);
        doubled.min(count - 1)
    }
}

impl Placement for Oracle {
    fn more_logs(&self) -> &[SegmentKind] {
        self.groups.more_logs()
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if !is_grouped(block) {
            return StaticPlacement::default().log(block);
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.groups.log(state.group(block, self.groups.count()))
    }

    fn note_written(&self, block: &BlockTraits, _place: MainBlock) {
        if is_grouped(block) && block.reason != Reason::Cleaning {
            let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
            *state.dies.get_mut(block) = state.death(block).saturating_add(1);
            state.now += 1;
        }
    }
}
