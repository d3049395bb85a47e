//! What a checkpoint costs on this device, in the unit that the rule reckons in: blocks that cleaning copies.
//!
//! A checkpoint writes blocks and waits for flushes, and what a flush takes differs by a factor of a thousand between devices. So both are
//! measured: waiting by the checkpoints that were taken, copies by the statistics of cleaning.

use std::time::Duration;

use crate::layout::{nat, sit};
use crate::volume::Volume;

/// Blocks of a checkpoint's pack, about.
const PACK_BLOCKS: u64 = 8;

impl Volume {
    /// What a checkpoint would cost now, about, in blocks copied: those that it writes, and what could be copied while it waits.
    pub(crate) fn checkpoint_price(&self) -> u64 {
        self.checkpoint_blocks() + self.journal.checkpoint_wait()
    }

    /// Blocks that a checkpoint would write now, about.
    pub(crate) fn checkpoint_blocks(&self) -> u64 {
        // Nodes and directory blocks that are dirty change the NAT too; neighbours share a block of it.
        let nat_blocks = self.nat.dirty.len().div_ceil(nat::ENTRIES_PER_BLOCK as usize / 8);
        let sit_blocks = self.table.dirty_entry_count().min(self.table.segments().div_ceil(sit::ENTRIES_PER_BLOCK));
        let dirty = self.nodes.dirty_count() + self.pages.dirty_directory_pages();
        dirty as u64 + nat_blocks as u64 + u64::from(sit_blocks) + PACK_BLOCKS
    }

    /// A checkpoint of so many blocks took so long.
    pub(crate) fn note_checkpoint_time(&mut self, took: Duration, blocks: u64) {
        let cleaning = self.record.statistics().cleaning.total();
        let copied = u32::try_from(cleaning.blocks_copied).unwrap_or(u32::MAX);
        let each = cleaning.copy.checked_div(copied).unwrap_or_default();
        self.journal.note_checkpoint_wait(took, blocks, each);
    }
}
