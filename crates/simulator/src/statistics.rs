//! What a run cost.

use serde::Serialize;

/// Bins of the histogram of victims' utilization: 5 % each.
pub const UTILIZATION_BINS: usize = 20;

/// What was written and cleaned since the volume was made, or since [`Volume::take_statistics`](crate::Volume::take_statistics).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Writes asked for, each of one block.
    pub user_writes: u64,
    /// Those that only changed a page that was still dirty.
    pub absorbed: u64,
    /// Data blocks written to the logs for users.
    pub user_blocks: u64,
    /// Data blocks copied by cleaning.
    pub copies: u64,
    /// Blocks that cleaning read into a pool of dirty blocks, and that users changed before they were written again: no copies.
    #[serde(skip_serializing_if = "is_none")]
    pub overtaken: u64,
    /// Nodes written, those that cleaning had to move included.
    pub nodes: u64,
    /// Nodes that cleaning had written again.
    pub nodes_moved: u64,
    /// Sections emptied.
    pub victims: u64,
    /// Sections emptied by the share of their blocks that was moved: from 0 % up to 5 %, 10 % … 100 %.
    pub victims_by_utilization: [u64; UTILIZATION_BINS],
    /// Checkpoints: each frees what was emptied before.
    pub checkpoints: u64,
}

impl Statistics {
    /// Blocks written to the logs for each data block that users had written: 1 where nothing is copied and there are no nodes.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        let written = self.user_blocks + self.copies + self.nodes;
        written as f64 / self.user_blocks.max(1) as f64
    }

    /// The write cost of the SFS paper: time to write a new block and to clean for it, over the time to write it, where a block
    /// moved is one random read of 4 KiB and one sequential write. Bandwidths in any one unit.
    ///
    /// Source: C. Min et al., "SFS: Random Write Considered Harmful in Solid State Drives", FAST 2012, section 5.1.
    #[must_use]
    pub fn write_cost(&self, random_read: f64, sequential_write: f64) -> f64 {
        let (written, new) = (self.copies + self.nodes_moved, self.user_blocks.max(1) as f64);
        let read = written + self.overtaken;
        1.0 + (read as f64 * sequential_write / random_read + written as f64) / new
    }

    /// The mean share of victims' blocks that had to be moved; 0 where there were none.
    #[must_use]
    pub fn mean_victim_utilization(&self, section_blocks: u32) -> f64 {
        let capacity = self.victims.max(1) as f64 * f64::from(section_blocks);
        (self.copies + self.overtaken + self.nodes_moved) as f64 / capacity
    }

    pub(crate) fn count_victim(&mut self, moved: u32, capacity: u32) {
        self.victims += 1;
        let bin = (u64::from(moved) * UTILIZATION_BINS as u64).div_ceil(u64::from(capacity)).saturating_sub(1);
        self.victims_by_utilization[(bin as usize).min(UTILIZATION_BINS - 1)] += 1;
    }
}

// The form is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Memory that a simulated volume takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Memory {
    /// Bytes on the heap.
    pub bytes: u64,
    /// Bytes for each block of the main area.
    pub per_block: f64,
}
