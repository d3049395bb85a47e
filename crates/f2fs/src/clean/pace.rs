//! What the volume tells the cleaner's decisions, and what it asks them.

use basalt_segments::cleaning::{Facts, Pressure};

use crate::layout::BLOCK_SIZE;
use crate::volume::Volume;

impl Volume {
    /// How urgent cleaning is.
    pub(crate) fn pressure(&self) -> Pressure {
        self.cleaner.pressure(&self.table, &self.load())
    }

    /// Whether a commit is worth it while cleaning goes on.
    pub(crate) fn wants_commit(&self) -> bool {
        self.cleaner.wants_commit(&self.table, &self.facts())
    }

    /// What the driver has to know.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            load: self.load(),
            cache_blocks: self.options.cache_bytes / BLOCK_SIZE,
            is_writable: self.is_writable(),
            is_memory_full: self.holds_too_much_for_checkpoint(),
            is_recovery_cramped: self.is_recovery_cramped(),
            is_held_by_checkpoint: self.is_held_by_checkpoint(),
            committing: self.journal.sections_committing(),
            sections_per_commit: self.options.sections_per_commit.unwrap_or(u32::MAX).max(1),
        }
    }
}
