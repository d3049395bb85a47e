//! What a checkpoint costs on this device, in the unit that the rule reckons in: blocks that cleaning copies.
//!
//! A checkpoint writes blocks and waits for flushes, and what a flush takes differs by a factor of a thousand between devices. So both are
//! measured: waiting by the checkpoints that were taken, copies by the statistics of cleaning.

use std::time::Duration;

use crate::layout::{nat, sit};
use crate::volume::Volume;

/// Blocks of a checkpoint's pack, about.
const PACK_BLOCKS: u64 = 8;
/// Blocks that could be copied while a checkpoint waits, before anything was measured.
const WAIT_BLOCKS: u64 = 16;
/// The same at most, whatever was measured: a device that stalled once is not to be without checkpoints for long.
const WAIT_BLOCKS_MAX: u64 = 8192;
/// A checkpoint changes the mean by one in this many parts.
const WEIGHT: u64 = 4;

/// How long checkpoints take beyond what copying as many blocks would, as a mean of the last ones, in blocks that could be copied meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckpointWait {
    mean: Option<u64>,
}

impl CheckpointWait {
    /// A checkpoint of so many blocks took so long, where copying takes `each` a block.
    pub fn note(&mut self, took: Duration, blocks: u64, each: Duration) {
        if took.is_zero() || each.is_zero() {
            return;
        }
        let in_all = u64::try_from(took.as_nanos() / each.as_nanos()).unwrap_or(u64::MAX);
        let waited = in_all.saturating_sub(blocks).min(WAIT_BLOCKS_MAX);
        let mean = self.mean.unwrap_or(waited);
        self.mean = Some((mean * (WEIGHT - 1) + waited) / WEIGHT);
    }

    fn blocks(self) -> u64 {
        self.mean.unwrap_or(WAIT_BLOCKS)
    }
}

impl Volume {
    /// What a checkpoint would cost now, about, in blocks copied: those that it writes, and what could be copied while it waits.
    pub(crate) fn checkpoint_price(&self) -> u64 {
        self.checkpoint_blocks() + self.journal.checkpoint_wait.blocks()
    }

    /// Blocks that a checkpoint would write now, about.
    pub(crate) fn checkpoint_blocks(&self) -> u64 {
        // Nodes and directory blocks that are dirty change the NAT too; neighbours share a block of it.
        let nat_blocks = self.nat.dirty.len().div_ceil(nat::ENTRIES_PER_BLOCK as usize / 8);
        let sit_blocks = self.table.dirty_entry_count().min(self.table.segments().div_ceil(sit::ENTRIES_PER_BLOCK));
        let dirty = self.nodes.dirty_count() + self.dirty_directory_pages;
        dirty as u64 + nat_blocks as u64 + u64::from(sit_blocks) + PACK_BLOCKS
    }

    /// A checkpoint of so many blocks took so long.
    pub(crate) fn note_checkpoint_time(&mut self, took: Duration, blocks: u64) {
        let cleaning = self.cleaning.total();
        let copied = u32::try_from(cleaning.blocks_copied).unwrap_or(u32::MAX);
        let each = cleaning.copy.checked_div(copied).unwrap_or_default();
        self.journal.checkpoint_wait.note(took, blocks, each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: Duration = Duration::from_micros(10);

    #[test]
    fn waiting_is_worth_what_could_be_copied_meanwhile() {
        let mut wait = CheckpointWait::default();
        wait.note(Duration::from_millis(1), 10, Duration::ZERO);
        wait.note(Duration::ZERO, 10, EACH);
        assert_eq!(wait.blocks(), WAIT_BLOCKS, "nothing was measured");
        wait.note(Duration::from_millis(1), 60, EACH);
        assert_eq!(wait.blocks(), 40);
        wait.note(Duration::from_micros(100), 1000, EACH);
        assert_eq!(wait.blocks(), 30, "not less than nothing");
        for _ in 0..40 {
            wait.note(Duration::from_millis(3), 100, EACH);
        }
        assert!((190..=200).contains(&wait.blocks()), "{wait:?}");
        for _ in 0..40 {
            wait.note(Duration::from_secs(3600), 100, EACH);
        }
        assert!((WAIT_BLOCKS_MAX - 3..=WAIT_BLOCKS_MAX).contains(&wait.blocks()), "{wait:?}");
    }
}
