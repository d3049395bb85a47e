//! What the volume tells the cleaner's decisions, and what it asks them.

use basalt_segments::cleaning::{Load, Pressure};

use crate::layout::BLOCK_SIZE;
use crate::volume::Volume;

impl Volume {
    /// How urgent cleaning is.
    pub(crate) fn pressure(&self) -> Pressure {
        self.cleaner.pressure(&self.table, &self.load())
    }

    /// Whether a checkpoint has to free sections before the next change; with `paced` also, whether it is worth it.
    pub(crate) fn wants_sections_freed(&self, paced: bool) -> bool {
        paced && self.is_commit_full() || self.cleaner.wants_sections_freed(&self.table, &self.load(), paced)
    }

    /// Whether as many sections as may share a commit were emptied since the last one.
    pub(crate) fn is_commit_full(&self) -> bool {
        let committed = self.journal.written.as_ref().map_or(0, |written| written.sections);
        let emptied = self.cleaner.emptied_sections().saturating_sub(committed);
        self.options.sections_per_commit.is_some_and(|most| emptied >= most.max(1))
    }

    /// Live blocks that a change writing `weight` blocks has to move.
    pub(crate) fn cleaning_due(&mut self, weight: u32, pressure: Pressure) -> u32 {
        let load = self.load();
        self.cleaner.due(&load, weight, pressure)
    }

    /// There is room: nobody owes anything.
    pub(crate) fn forgive_cleaning(&mut self) {
        let load = self.load();
        self.cleaner.forgive(&load);
    }

    /// Pages that may be dirty before writers have to wait for writeback.
    pub(crate) fn dirty_page_limit(&self) -> usize {
        Load::dirty_page_limit(&self.table, self.options.cache_bytes / BLOCK_SIZE)
    }

    /// What was written and what is dirty.
    pub(super) fn load(&self) -> Load {
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
