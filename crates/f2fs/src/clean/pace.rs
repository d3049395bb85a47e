//! When sections are cleaned, and how much of it one writer waits for.
//!
//! Sections that are free, or will be once a checkpoint holds, are kept above a mark: room for what is dirty, the reserve of
//! the format, and a margin. A little above it, every change moves a few live blocks, as many as what is written makes
//! necessary: a writer never waits for more than such a step and, once in a while, for the checkpoint that frees what was
//! emptied. Steps are longer below the mark, and only where the next change might find no free block does a writer wait for
//! whole rounds.

use crate::layout::BLOCK_SIZE;
use crate::volume::Volume;

/// Sections beyond what dirty data needs and the reserve that are kept free.
const MARGIN_SECTIONS: u32 = 2;
/// Sections that are never used up by cleaning before its checkpoint.
pub(super) const WORKSPACE_SECTIONS: u32 = 2;
/// Sections above the mark at which steps begin.
const SLACK_SECTIONS: std::ops::RangeInclusive<u32> = 2..=4;
/// Of a volume's sections, one in this many may be slack: a small volume is not cleaned for the sake of it.
const SLACK_SHARE: u32 = 32;
/// Live blocks moved in the smallest step.
const STEP_MIN: u64 = 16;
/// Live blocks moved in a step for each block written, unless the volume is so full that more are needed.
const STEP_MAX: u64 = 64;
/// The same below the mark.
const STEP_HARD: u64 = 128;

/// How urgent cleaning is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// There are free sections enough.
    None,
    /// Changes pay for their space in steps.
    Paced,
    /// Changes pay for more than their space, in longer steps.
    Hard,
    /// Changes wait until there is room.
    Low,
}

impl Volume {
    /// How urgent cleaning is.
    pub(crate) fn pressure(&self) -> Pressure {
        let mark = self.sections_needed() + self.sections_reserved() + MARGIN_SECTIONS;
        let under_way = u32::from(self.cleaner.is_under_way());
        let after = self.table.free_sections() + self.sections_to_be_freed() + under_way;
        if after < mark {
            if self.is_low() { Pressure::Low } else { Pressure::Hard }
        } else if after < mark + self.slack() {
            Pressure::Paced
        } else {
            Pressure::None
        }
    }

    /// Whether a checkpoint has to free sections before the next change; with `paced` also, whether it is worth it.
    pub(crate) fn wants_sections_freed(&self, paced: bool) -> bool {
        let waiting = self.sections_to_be_freed();
        let batch = self.slack().max(self.sections_reserved() / 4);
        waiting > 0 && (paced && waiting >= batch || self.is_low())
    }

    /// Whether the next change, or cleaning, might run into the end of the free sections.
    fn is_low(&self) -> bool {
        self.table.free_sections() < self.sections_needed() + self.sections_reserved() / 2 + MARGIN_SECTIONS
    }

    /// Live blocks that a change writing `weight` blocks has to move.
    pub(crate) fn cleaning_due(&mut self, weight: u32, pressure: Pressure) -> u32 {
        let demand = self.demand();
        let cleaner = &mut self.cleaner;
        let (new, less) = (demand.saturating_sub(cleaner.reckoned), cleaner.reckoned.saturating_sub(demand));
        cleaner.reckoned = demand;
        // A quarter more than what the plan promises to gain by it: nodes that point to moved blocks take room too.
        cleaner.debt += cleaner.price(new + new.div_ceil(4));
        cleaner.debt = cleaner.debt.saturating_sub(cleaner.price(less));
        let weight = u64::from(weight.max(1));
        let due = match pressure {
            Pressure::None | Pressure::Paced => {
                let most = STEP_MAX.max(2 * cleaner.price(1)) * weight;
                cleaner.debt.clamp(STEP_MIN, most)
            }
            Pressure::Hard | Pressure::Low => STEP_HARD.max(4 * cleaner.price(1)) * weight,
        };
        cleaner.debt = cleaner.debt.saturating_sub(due);
        due.min(u64::from(u32::MAX)) as u32
    }

    /// There is room: nobody owes anything.
    pub(crate) fn forgive_cleaning(&mut self) {
        self.cleaner.reckoned = self.demand();
        self.cleaner.debt = 0;
    }

    /// Pages that may be dirty before writers have to wait for writeback.
    pub(crate) fn dirty_page_limit(&self) -> usize {
        let by_memory = self.options.cache_bytes / 2 / BLOCK_SIZE;
        let by_space = self.table.free_segments() as usize * crate::layout::BLOCKS_PER_SEGMENT as usize / 8;
        by_memory.min(by_space).max(64)
    }

    /// Blocks written to the logs, but for those that cleaning copied, and blocks that what is dirty may take.
    fn demand(&self) -> u64 {
        let written = self.counters.data_blocks + self.counters.node_blocks;
        written.saturating_sub(self.counters.blocks_moved) + self.dirty_blocks()
    }

    /// Blocks that what is dirty may take.
    fn dirty_blocks(&self) -> u64 {
        // Overwriting a block dirties the node that points to it: count it twice.
        (self.nodes.dirty_count() + 2 * self.dirty_file_pages + 2 * self.dirty_directory_pages) as u64
    }

    fn sections_needed(&self) -> u32 {
        self.dirty_blocks().div_ceil(u64::from(self.section_blocks())) as u32
    }

    fn sections_reserved(&self) -> u32 {
        self.checkpoint.raw.rsvd_segment_count.get() / self.geometry.segments_per_section
    }

    fn slack(&self) -> u32 {
        (self.table.sections() / SLACK_SHARE).clamp(*SLACK_SECTIONS.start(), *SLACK_SECTIONS.end())
    }
}
