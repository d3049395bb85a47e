//! When sections are cleaned, and how much of it one writer waits for.
//!
//! Sections that are free, or will be once a commit holds, are kept above a mark: room for what is dirty, a part of the reserve of
//! the format ([`KeepFree`]), and a margin. A little above it, changes move live blocks in proportion to what they write, so that each waits for about
//! the same: more the closer the mark is, so that cleaning settles where it gains as much as is written, and neither stops nor
//! has to hurry. A writer never waits for more than such a step and, once in a while, for the commit that frees what was
//! emptied. Below the mark no change goes without a longer step, and only where the next change might find no free block does a
//! writer wait for whole rounds.

use super::Cleaner;
use crate::{BLOCKS_PER_SEGMENT, SegmentTable};

/// Sections beyond what dirty data needs and the reserve that are kept free.
const MARGIN_SECTIONS: u32 = 2;
/// Sections of the reserve that are kept free however dear cleaning is: each of the six logs may want another one, and cleaning
/// copies to two.
const KEPT_LEAST: u32 = 8;
/// Sections that logs beside the recorded ones leave to those, above where writers wait.
const LEFT_SECTIONS: u32 = 2;
/// Sections that are never used up by cleaning before its checkpoint.
const WORKSPACE_SECTIONS: u32 = 2;
/// Sections above the mark at which steps begin.
const PACED_SECTIONS: std::ops::RangeInclusive<u32> = 3..=6;
/// Of a volume's sections, at most one in this many: a small volume is not cleaned for the sake of it.
const PACED_SHARE: u32 = 32;
/// Sections above these at which logs go on in slack.
const SLACK_SECTIONS: u32 = 3;
/// Live blocks moved in the smallest step: fewer are not worth a request.
const STEP_MIN: u64 = 32;
/// Live blocks moved in a step for each block written, unless the volume is so full that more are needed.
const STEP_MAX: u64 = 64;
/// The same below the mark.
const STEP_HARD: u64 = 128;
/// Of the price that the plan promises, what changes pay at the mark, in percent. What cleaning really gains is more or less: nodes that
/// point to moved blocks take room too, and sections die by themselves.
const URGENCY_MAX: u64 = 300;
/// Blocks that may be dirty however little is free.
const DIRTY_LEAST: u64 = 64;
/// Parts of a block that debts are reckoned in: one change writes a block or two.
const DEBT_PARTS: u64 = 1024;

/// How much of the reserve of the format cleaning keeps free before the volume is full.
///
/// Free sections are room that neither live nor dead blocks have: the more of them are kept, the fuller is what is cleaned. But they are
/// also what the device may forget, and its translation layer copies the less for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeepFree {
    /// All of it, as F2FS in Linux does (`has_not_enough_free_secs`).
    Reserve,
    /// All of it while cleaning is cheap, which is one live block moved for two gained. From there on less and less, down to eight sections
    /// where a block moved gains one: the dearer cleaning is, the more a volume gains by it, and the less its device loses.
    #[default]
    Adaptive,
}

impl KeepFree {
    /// All of them.
    pub const ALL: [KeepFree; 2] = [KeepFree::Adaptive, KeepFree::Reserve];

    /// The name in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeepFree::Reserve => "reserve",
            KeepFree::Adaptive => "adaptive",
        }
    }

    /// The one of this name; `None` if there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<KeepFree> {
        KeepFree::ALL.into_iter().find(|keep_free| keep_free.name() == name)
    }
}

/// How urgent cleaning is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    /// There are free sections enough.
    None,
    /// Changes pay for their space in steps: so many percent of the price.
    Paced(u32),
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
    /// How much of them is kept free.
    pub keep_free: KeepFree,
    /// Logs go on in slack where free sections run short. So what [`KeepFree::Adaptive`] may give up is given up before that.
    pub fills_slack: bool,
    /// Nodes that must still be written.
    pub dirty_nodes: u64,
    /// Pages of files and directories that must still be written.
    pub dirty_pages: u64,
    /// Nodes that point to these pages, and must be written once the pages are.
    pub nodes_of_pages: u64,
    /// Blocks written to the logs since the volume was opened, but for those that cleaning copied.
    pub written: u64,
}

impl Load {
    /// Blocks that what is dirty may take.
    #[must_use]
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty_nodes + self.dirty_pages + self.nodes_of_pages
    }

    /// Blocks written to the logs, but for those that cleaning copied, and blocks that what is dirty may take.
    #[must_use]
    pub fn demand(&self) -> u64 {
        self.written + self.dirty_blocks()
    }

    fn sections_needed(&self, table: &SegmentTable) -> u32 {
        match self.dirty_blocks() {
            // Asked before every change: no division where there is none to make.
            0 => 0,
            blocks => blocks.div_ceil(u64::from(table.section_blocks())) as u32,
        }
    }

    /// Free sections below which writers wait: the next change, or cleaning, might run into the end of them.
    fn least_sections(&self, table: &SegmentTable) -> u32 {
        self.sections_needed(table) + self.kept_at_least() + MARGIN_SECTIONS
    }

    /// Sections of the reserve that no change uses up before writers wait.
    fn kept_at_least(&self) -> u32 {
        match self.keep_free {
            KeepFree::Reserve => self.reserved_sections / 2,
            KeepFree::Adaptive => self.reserved_sections.min(KEPT_LEAST) / 2,
        }
    }

    /// Whether the next change, or cleaning, might run into the end of the free sections.
    #[must_use]
    pub fn is_low(&self, table: &SegmentTable) -> bool {
        table.free_sections() < self.least_sections(table)
    }

    /// Whether another section can be emptied before a checkpoint.
    #[must_use]
    pub fn has_workspace(&self, table: &SegmentTable) -> bool {
        // Moved nodes take their place when they are written.
        let nodes = self.dirty_nodes.div_ceil(u64::from(table.section_blocks())) as u32;
        table.free_sections() > WORKSPACE_SECTIONS + nodes
    }

    /// Pages beyond what may be dirty before writers have to wait for writeback, in a cache of `cache_blocks`. No more may be than half of
    /// it holds; nor than three quarters of the free sections take with their nodes, of those that cleaning may use up before writers wait.
    pub(super) fn pages_over(&self, table: &SegmentTable, cache_blocks: usize) -> usize {
        let spare = table.free_sections().saturating_sub(self.kept_at_least() + MARGIN_SECTIONS);
        let room = u64::from(spare) * u64::from(table.section_blocks()) * 3 / 4;
        let over_room = over(self.dirty_pages + self.nodes_of_pages, room);
        over_room.max(over(self.dirty_pages, cache_blocks as u64 / 2))
    }

    /// Nodes beyond what may be dirty before changes have to wait for them to be written, in a cache of `cache_blocks`: no more than a
    /// quarter of it holds, and no more than an eighth of the free segments takes.
    pub(super) fn nodes_over(&self, table: &SegmentTable, cache_blocks: usize) -> usize {
        let eighth = u64::from(table.free_segments()) * u64::from(BLOCKS_PER_SEGMENT) / 8;
        over(self.dirty_nodes, eighth.min(cache_blocks as u64 / 4))
    }
}

/// Blocks beyond the limit, or beyond what may be dirty in any case.
fn over(dirty: u64, limit: u64) -> usize {
    usize::try_from(dirty.saturating_sub(limit.max(DIRTY_LEAST))).unwrap_or(usize::MAX)
}

impl Cleaner {
    /// Sections of the reserve that are kept free.
    fn kept_sections(&self, load: &Load) -> u32 {
        match load.keep_free {
            KeepFree::Reserve => load.reserved_sections,
            KeepFree::Adaptive if load.fills_slack => load.reserved_sections.min(KEPT_LEAST),
            KeepFree::Adaptive => {
                let (live, dead) = self.usual();
                // None of what may be given up where half a block is moved for each gained, all of it where a whole one is.
                let (share, whole) = ((2 * live).saturating_sub(dead).min(dead), dead.max(1));
                let most = u64::from(load.reserved_sections.saturating_sub(KEPT_LEAST));
                load.reserved_sections - (most * share / whole) as u32
            }
        }
    }

    /// Free sections above which no change has to move blocks, but for those where steps begin.
    fn mark(&self, table: &SegmentTable, load: &Load) -> u32 {
        load.sections_needed(table) + self.kept_sections(load) + MARGIN_SECTIONS
    }

    /// Free sections that neither what is dirty nor cleaning needs: above them, no change has to wait or to move blocks.
    #[must_use]
    pub fn spare_sections(&self, table: &SegmentTable, load: &Load) -> u32 {
        table.free_sections().saturating_sub(self.mark(table, load) + paced_sections(table))
    }

    /// Whether there are free sections for logs beside the recorded ones: cleaning does not have to hurry.
    #[must_use]
    pub fn has_sections_for_more_logs(&self, table: &SegmentTable, load: &Load) -> bool {
        table.free_sections() > load.least_sections(table) + LEFT_SECTIONS
    }

    /// Whether logs go on in the slack of segments rather than in free ones: before changes would have to move blocks, so that they need not.
    #[must_use]
    pub fn wants_slack(&self, table: &SegmentTable, load: &Load) -> bool {
        table.free_sections() <= self.mark(table, load) + paced_sections(table) + SLACK_SECTIONS
    }

    /// Whether so many sections that wait to be freed are worth a checkpoint.
    pub(super) fn is_batch(&self, table: &SegmentTable, load: &Load, waiting: u32) -> bool {
        waiting > 0 && waiting >= paced_sections(table).max(self.kept_sections(load) / 4)
    }

    /// How urgent cleaning is.
    #[must_use]
    pub fn pressure(&self, table: &SegmentTable, load: &Load) -> Pressure {
        let blocks = |sections: u32| u64::from(sections) * u64::from(table.section_blocks());
        let mark = blocks(self.mark(table, load));
        let after = blocks(table.free_sections() + self.sections_to_be_freed(table)) + self.blocks_under_way();
        let paced = blocks(paced_sections(table));
        match after.checked_sub(mark) {
            None if load.is_low(table) => Pressure::Low,
            None => Pressure::Hard,
            Some(above) if above < paced => Pressure::Paced((URGENCY_MAX * (paced - above)).div_ceil(paced) as u32),
            Some(_) => Pressure::None,
        }
    }

    /// Whether a checkpoint has to free sections before the next change; with `paced` also, whether it is worth it.
    #[must_use]
    pub fn wants_sections_freed(&self, table: &SegmentTable, load: &Load, paced: bool) -> bool {
        let waiting = self.sections_to_be_freed(table);
        waiting > 0 && (load.is_low(table) || paced && self.is_batch(table, load, waiting))
    }

    /// Live blocks that a change writing `weight` blocks has to move: the debt of what was written since the last call, in steps.
    pub fn due(&mut self, load: &Load, weight: u32, pressure: Pressure) -> u32 {
        let demand = load.demand();
        let (new, less) = (demand.saturating_sub(self.reckoned), self.reckoned.saturating_sub(demand));
        self.reckoned = demand;
        let urgency = if let Pressure::Paced(percent) = pressure { percent } else { 100 };
        let parts = |blocks: u64| self.price(blocks * DEBT_PARTS) * u64::from(urgency) / 100;
        self.debt = (self.debt + parts(new)).saturating_sub(parts(less));
        let debt = self.debt / DEBT_PARTS;
        let weight = u64::from(weight.max(1));
        let due = match pressure {
            Pressure::None | Pressure::Paced(_) if debt < STEP_MIN => 0,
            Pressure::None | Pressure::Paced(_) => debt.min(STEP_MAX.max(4 * self.price(1)) * weight),
            Pressure::Hard | Pressure::Low => STEP_HARD.max(4 * self.price(1)) * weight,
        };
        self.debt = self.debt.saturating_sub(due * DEBT_PARTS);
        due.min(u64::from(u32::MAX)) as u32
    }

    /// A step was made: the nodes that it changed are part of its price, and no new demand.
    pub fn note_step(&mut self, load: &Load) {
        self.reckoned = self.reckoned.max(load.demand());
    }

    /// There is room: nobody owes anything.
    pub fn forgive(&mut self, load: &Load) {
        self.reckoned = load.demand();
        self.debt = 0;
    }
}

/// Sections above the mark at which changes begin to move blocks.
fn paced_sections(table: &SegmentTable) -> u32 {
    (table.sections() / PACED_SHARE).clamp(*PACED_SECTIONS.start(), *PACED_SECTIONS.end())
}
