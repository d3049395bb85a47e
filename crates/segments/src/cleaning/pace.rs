//! When sections are cleaned, and how much of it one writer waits for.
//!
//! Sections that are free, or will be once a checkpoint holds, are kept above a mark: room for what is dirty, the reserve of
//! the format, and a margin. A little above it, every change moves a few live blocks, as many as what is written makes
//! necessary: a writer never waits for more than such a step and, once in a while, for the checkpoint that frees what was
//! emptied. Steps are longer below the mark, and only where the next change might find no free block does a writer wait for
//! whole rounds.

use super::Cleaner;
use crate::{BLOCKS_PER_SEGMENT, SegmentTable};

/// Sections beyond what dirty data needs and the reserve that are kept free.
const MARGIN_SECTIONS: u32 = 2;
/// Sections that are never used up by cleaning before its checkpoint.
const WORKSPACE_SECTIONS: u32 = 2;
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
pub enum Pressure {
    /// There are free sections enough.
    None,
    /// Changes pay for their space in steps.
    Paced,
    /// Changes pay for more than their space, in longer steps.
    Hard,
    /// Changes wait until there is room.
    Low,
}

/// What a volume has to write and has written, as far as the pace of cleaning depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Sections that the format reserves for cleaning.
    pub reserved_sections: u32,
    /// Nodes that must still be written.
    pub dirty_nodes: u64,
    /// Pages of files and directories that must still be written.
    pub dirty_pages: u64,
    /// Blocks written to the logs since the volume was opened, but for those that cleaning copied.
    pub written: u64,
}

impl Load {
    /// Blocks that what is dirty may take.
    #[must_use]
    pub fn dirty_blocks(&self) -> u64 {
        // Overwriting a block dirties the node that points to it: count it twice.
        self.dirty_nodes + 2 * self.dirty_pages
    }

    /// Blocks written to the logs, but for those that cleaning copied, and blocks that what is dirty may take.
    #[must_use]
    pub fn demand(&self) -> u64 {
        self.written + self.dirty_blocks()
    }

    fn sections_needed(&self, table: &SegmentTable) -> u32 {
        self.dirty_blocks().div_ceil(u64::from(table.section_blocks())) as u32
    }

    /// Whether the next change, or cleaning, might run into the end of the free sections.
    fn is_low(&self, table: &SegmentTable) -> bool {
        table.free_sections() < self.sections_needed(table) + self.reserved_sections / 2 + MARGIN_SECTIONS
    }

    /// Whether another section can be emptied before a checkpoint.
    #[must_use]
    pub fn has_workspace(&self, table: &SegmentTable) -> bool {
        // Moved nodes take their place when they are written.
        let nodes = self.dirty_nodes.div_ceil(u64::from(table.section_blocks())) as u32;
        table.free_sections() > WORKSPACE_SECTIONS + nodes
    }

    /// Pages that may be dirty before writers have to wait for writeback, in a cache of `cache_blocks`: no more than half of
    /// it holds, and no more than an eighth of the free segments takes.
    #[must_use]
    pub fn dirty_page_limit(table: &SegmentTable, cache_blocks: usize) -> usize {
        let by_memory = cache_blocks / 2;
        let by_space = table.free_segments() as usize * BLOCKS_PER_SEGMENT as usize / 8;
        by_memory.min(by_space).max(64)
    }
}

impl Cleaner {
    /// How urgent cleaning is.
    #[must_use]
    pub fn pressure(&self, table: &SegmentTable, load: &Load) -> Pressure {
        let mark = load.sections_needed(table) + load.reserved_sections + MARGIN_SECTIONS;
        let under_way = u32::from(self.is_under_way());
        let after = table.free_sections() + self.sections_to_be_freed(table) + under_way;
        if after < mark {
            if load.is_low(table) { Pressure::Low } else { Pressure::Hard }
        } else if after < mark + slack(table) {
            Pressure::Paced
        } else {
            Pressure::None
        }
    }

    /// Whether a checkpoint has to free sections before the next change; with `paced` also, whether it is worth it.
    #[must_use]
    pub fn wants_sections_freed(&self, table: &SegmentTable, load: &Load, paced: bool) -> bool {
        let waiting = self.sections_to_be_freed(table);
        let batch = slack(table).max(load.reserved_sections / 4);
        waiting > 0 && (paced && waiting >= batch || load.is_low(table))
    }

    /// Live blocks that a change writing `weight` blocks has to move, at least one: the debt of what was written since the last
    /// call, in steps.
    pub fn due(&mut self, load: &Load, weight: u32, pressure: Pressure) -> u32 {
        let demand = load.demand();
        let (new, less) = (demand.saturating_sub(self.reckoned), self.reckoned.saturating_sub(demand));
        self.reckoned = demand;
        // A quarter more than what the plan promises to gain by it: nodes that point to moved blocks take room too.
        self.debt += self.price(new + new.div_ceil(4));
        self.debt = self.debt.saturating_sub(self.price(less));
        let weight = u64::from(weight.max(1));
        let due = match pressure {
            Pressure::None | Pressure::Paced => {
                let most = STEP_MAX.max(2 * self.price(1)) * weight;
                self.debt.clamp(STEP_MIN, most)
            }
            Pressure::Hard | Pressure::Low => STEP_HARD.max(4 * self.price(1)) * weight,
        };
        self.debt = self.debt.saturating_sub(due);
        due.min(u64::from(u32::MAX)) as u32
    }

    /// There is room: nobody owes anything.
    pub fn forgive(&mut self, load: &Load) {
        self.reckoned = load.demand();
        self.debt = 0;
    }
}

fn slack(table: &SegmentTable) -> u32 {
    (table.sections() / SLACK_SHARE).clamp(*SLACK_SECTIONS.start(), *SLACK_SECTIONS.end())
}
