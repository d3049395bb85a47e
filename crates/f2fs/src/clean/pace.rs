//! What the volume tells the cleaner's decisions, and what it asks them.

use basalt_segments::cleaning::{Facts, Load, Pressure};

use crate::layout::BLOCK_SIZE;
use crate::volume::Volume;

impl Volume {
    /// How urgent cleaning is.
    pub(crate) fn pressure(&self) -> Pressure {
        self.cleaner.pressure(&self.table, &self.load())
    }

    /// Whether a commit is worth it while cleaning goes on.
    pub(crate) fn wants_commit(&self) -> bool {
        self.cleaner.wants_commit(&self.table, &self.facts(), true)
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
            committing: self.journal.written.as_ref().map(|written| written.sections),
            sections_per_commit: self.options.sections_per_commit.unwrap_or(u32::MAX).max(1),
        }
    }

    /// What was written and what is dirty.
    pub(crate) fn load(&self) -> Load {
        let written = self.counters.data_blocks + self.counters.node_blocks;
        Load {
            reserved_sections: self.sections_reserved(),
            dirty_nodes: self.nodes.dirty_count() as u64,
            dirty_pages: (self.dirty_file_pages + self.dirty_directory_pages) as u64,
            written: written.saturating_sub(self.counters.blocks_moved),
        }
    }

    pub(super) fn sections_reserved(&self) -> u32 {
        self.checkpoint.raw.rsvd_segment_count.get() / self.geometry.segments_per_section
    }
}
