//! The plan of cleaning: which sections are emptied next, and how far that has come.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use basalt_segments::{CostBenefit, Greedy};

use super::statistics::{CleaningCause, CleaningStatistics};
use crate::error::Result;
use crate::layout::BLOCKS_PER_SEGMENT;
use crate::volume::Volume;

/// Sections of a plan where the first already gain enough.
const USUAL_VICTIMS: usize = 8;
/// Logs: as many sections are no victims because they are being written.
const LOGS: u32 = 6;
/// Share of live blocks from which on a section is no victim in the background, in percent: the gain is not worth the wear.
const BACKGROUND_LIVE_PERCENT: u32 = 95;
/// Cleaning in the background goes on while more than this share of the unused space lies between live blocks, in percent.
/// Source: the kernel's `LIMIT_INVALID_BLOCK`, at which its thread begins to hurry.
const BACKGROUND_DEAD_PERCENT: u64 = 40;

/// What cleaning is about to do, and what it has done.
#[derive(Default)]
pub(crate) struct Cleaner {
    /// Sections to be emptied, the one under way first.
    victims: VecDeque<u32>,
    /// Where to go on in the first, in blocks.
    position: u32,
    cause: Option<CleaningCause>,
    /// Live and dead blocks of the victims when they were chosen.
    live: u64,
    dead: u64,
    /// Sections emptied since the last checkpoint. Nodes leave theirs only when they are written.
    emptied: Vec<u32>,
    /// Sections whose cleaning met damage: no victims.
    avoided: FxHashSet<u32>,
    /// Dead blocks of the volume when nothing was to be gained.
    in_vain: Option<u64>,
    /// Blocks that writers have to move, because of what they wrote.
    pub(super) debt: u64,
    /// The demand when the debt was reckoned last.
    pub(super) reckoned: u64,
    pub(crate) statistics: CleaningStatistics,
}

impl Cleaner {
    /// Leaves a section alone from now on.
    pub(super) fn avoid(&mut self, section: u32) {
        self.avoided.insert(section);
    }

    /// Whether a section is left alone because it is damaged.
    pub(crate) fn avoids(&self, section: u32) -> bool {
        self.avoided.contains(&section)
    }

    /// Whether a section is emptied in part.
    pub(super) fn is_under_way(&self) -> bool {
        self.position > 0 && !self.victims.is_empty()
    }

    /// A checkpoint holds that freed these sections, rising: what is written there from now on is no victim.
    pub(crate) fn note_checkpoint(&mut self, freed: &[u32]) {
        self.emptied.clear();
        let first = self.victims.front().copied();
        self.victims.retain(|section| freed.binary_search(section).is_err());
        if self.victims.front().copied() != first {
            self.position = 0;
        }
    }

    /// Live blocks to move for a gain of `blocks`, by the plan at hand.
    pub(super) fn price(&self, blocks: u64) -> u64 {
        blocks * self.live / self.dead.max(1)
    }

    fn set_plan(&mut self, cause: CleaningCause, victims: Vec<u32>, live: u64, dead: u64) {
        (self.victims, self.position, self.cause) = (victims.into(), 0, Some(cause));
        (self.live, self.dead) = (live, dead);
    }
}

impl Volume {
    /// Moves up to `most` live blocks in the foreground; false if there is nothing to gain.
    pub(crate) fn clean_step(&mut self, most: u32) -> Result<bool> {
        if !self.plan_foreground() {
            return Ok(false);
        }
        let mut left = most;
        while left > 0 && !self.cleaner.victims.is_empty() {
            left -= self.follow_plan(CleaningCause::Foreground, left)?;
        }
        Ok(true)
    }

    /// Empties victims in the foreground until a section is gained, or a checkpoint has to free those emptied so far; false if
    /// there are none, because moving live blocks around would gain nothing.
    pub(crate) fn clean_round(&mut self) -> Result<bool> {
        if !self.plan_foreground() {
            return Ok(false);
        }
        let mut sections = 0;
        while !self.cleaner.victims.is_empty() && (sections == 0 || self.has_workspace()) {
            self.follow_plan(CleaningCause::Foreground, self.section_blocks())?;
            sections += 1;
        }
        Ok(true)
    }

    /// Moves up to `most` live blocks in the background; false if it is not worth it.
    pub(crate) fn clean_idle(&mut self, most: u32) -> Result<bool> {
        if self.cleaner.victims.is_empty() {
            let start = self.clock.uptime();
            let victim = self.choose_idle_victim();
            self.cleaner.statistics.background.select += self.clock.uptime().saturating_sub(start);
            let Some(victim) = victim else { return Ok(false) };
            let live = self.live_blocks(victim);
            let dead = self.section_blocks() - live;
            self.cleaner.set_plan(CleaningCause::Background, vec![victim], live.into(), dead.into());
        }
        self.follow_plan(CleaningCause::Background, most)?;
        Ok(true)
    }

    /// Goes on with the plan for up to `most` blocks, or to the end of the section under way; how many were moved.
    fn follow_plan(&mut self, cause: CleaningCause, most: u32) -> Result<u32> {
        let Some(&section) = self.cleaner.victims.front() else { return Ok(0) };
        let part = self.clean_part(section, self.cleaner.position, most, cause)?;
        match part.next {
            Some(next) => self.cleaner.position = next,
            None => {
                self.cleaner.victims.pop_front();
                self.cleaner.position = 0;
                self.cleaner.statistics.of(cause).victims += 1;
                self.counters.sections_cleaned += 1;
                if !self.cleaner.avoided.contains(&section) {
                    self.cleaner.emptied.push(section);
                }
            }
        }
        Ok(part.moved)
    }

    /// Makes sure that there is a plan for the foreground; false if nothing is to be gained.
    fn plan_foreground(&mut self) -> bool {
        if self.cleaner.cause == Some(CleaningCause::Foreground) && !self.cleaner.victims.is_empty() {
            return true;
        }
        let dead = self.dead_blocks();
        // After a search in vain, wait until it can end otherwise: it reads the whole table.
        if let Some(before) = self.cleaner.in_vain
            && dead < before + u64::from(BLOCKS_PER_SEGMENT / 8)
        {
            self.cleaner.in_vain = Some(before.min(dead));
            return false;
        }
        let start = self.clock.uptime();
        let gains = self.choose_victims();
        self.cleaner.statistics.foreground.select += self.clock.uptime().saturating_sub(start);
        self.cleaner.in_vain = if gains { None } else { Some(dead) };
        gains
    }

    /// Plans to empty sections that together hold at least a section's worth of dead blocks; false if those that may be
    /// taken do not.
    ///
    /// With an over-provisioning of `p` percent, about `100 / p` sections always do; mkfs reserves twice as many.
    fn choose_victims(&mut self) -> bool {
        let capacity = self.section_blocks();
        let reserved = self.checkpoint.raw.rsvd_segment_count.get() / self.geometry.segments_per_section;
        let most = (reserved.saturating_sub(LOGS) as usize / 2 + 1).max(USUAL_VICTIMS);
        let avoided = &self.cleaner.avoided;
        let best =
            self.table.select_victims(&Greedy, self.mounted_seconds(), &|section| avoided.contains(&section), most);
        let mut victims: Vec<u32> = Vec::new();
        let (mut live, mut dead) = (0, 0);
        for section in best {
            let used = self.live_blocks(section);
            let is_cheap = victims.len() < USUAL_VICTIMS && capacity - used >= capacity / 4;
            if dead >= u64::from(capacity) && !is_cheap {
                break;
            }
            live += u64::from(used);
            dead += u64::from(capacity - used);
            victims.push(section);
        }
        let gains = dead >= u64::from(capacity);
        if gains {
            self.cleaner.set_plan(CleaningCause::Foreground, victims, live, dead);
        }
        gains
    }

    /// The section that is best emptied while nobody waits, if any is worth it.
    fn choose_idle_victim(&self) -> Option<u32> {
        let dead = self.dead_blocks();
        let free =
            u64::from(self.table.free_segments() + self.table.prefree_segments()) * u64::from(BLOCKS_PER_SEGMENT);
        if dead * 100 <= (dead + free) * BACKGROUND_DEAD_PERCENT {
            return None;
        }
        let most = u64::from(self.section_blocks()) * u64::from(BACKGROUND_LIVE_PERCENT) / 100;
        let skip = |section| self.cleaner.avoided.contains(&section) || u64::from(self.live_blocks(section)) > most;
        self.table.select_victim(&CostBenefit, self.mounted_seconds(), &skip)
    }

    /// Whether another section can be emptied before a checkpoint.
    fn has_workspace(&self) -> bool {
        // Moved nodes take their place when they are written.
        let nodes = (self.nodes.dirty_count() as u64).div_ceil(u64::from(self.section_blocks())) as u32;
        self.table.free_sections() > super::pace::WORKSPACE_SECTIONS + nodes
    }

    /// Whether cleaning has emptied sections since the last checkpoint.
    pub(crate) fn has_emptied_sections(&self) -> bool {
        !self.cleaner.emptied.is_empty()
    }

    /// Sections that will be free after a checkpoint and are not now.
    pub(crate) fn sections_to_be_freed(&self) -> u32 {
        let nodes = self.cleaner.emptied.iter().filter(|&&section| self.live_blocks(section) > 0).count();
        self.table.prefree_sections() + nodes as u32
    }

    pub(super) fn section_blocks(&self) -> u32 {
        self.geometry.segments_per_section * BLOCKS_PER_SEGMENT
    }

    fn live_blocks(&self, section: u32) -> u32 {
        self.table.segments_of(section).map(|segment| u32::from(self.table.live(segment))).sum()
    }

    /// Blocks that are neither live nor in a free segment.
    fn dead_blocks(&self) -> u64 {
        let free = self.table.free_segments() + self.table.prefree_segments();
        let used = u64::from(self.table.segments() - free) * u64::from(BLOCKS_PER_SEGMENT);
        used.saturating_sub(self.table.live_data_blocks() + self.table.live_node_blocks())
    }
}
