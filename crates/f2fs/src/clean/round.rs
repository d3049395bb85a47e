//! One round of cleaning: as many sections as it takes to gain one, and then a checkpoint.

use basalt_segments::Greedy;

use crate::error::Result;
use crate::layout::BLOCKS_PER_SEGMENT;
use crate::volume::Volume;

/// Sections cleaned before a checkpoint frees them, where the first already gain enough.
const USUAL_VICTIMS: usize = 8;
/// Sections that are never used up by cleaning before its checkpoint.
const WORKSPACE_SECTIONS: u32 = 2;
/// Logs: as many sections are no victims because they are being written.
const LOGS: u32 = 6;

impl Volume {
    /// Cleans sections that together hold at least a section's worth of dead blocks; false if there are none, because
    /// moving live blocks around would gain nothing.
    pub(crate) fn clean_round(&mut self) -> Result<bool> {
        let dead = self.dead_blocks();
        // After a round in vain, wait until it can end otherwise: looking for victims reads the whole table.
        if let Some(before) = self.cleaning_in_vain
            && dead < before + u64::from(BLOCKS_PER_SEGMENT / 8)
        {
            self.cleaning_in_vain = Some(before.min(dead));
            return Ok(false);
        }
        let victims = self.choose_victims();
        if victims.is_empty() {
            self.cleaning_in_vain = Some(dead);
            return Ok(false);
        }
        self.cleaning_in_vain = None;
        for (done, section) in victims.into_iter().enumerate() {
            // Moved nodes take their place when they are written.
            let nodes = (self.nodes.dirty_count() as u64).div_ceil(u64::from(self.section_blocks())) as u32;
            if done > 0 && self.table.free_sections() <= WORKSPACE_SECTIONS + nodes {
                break;
            }
            self.clean_section(section)?;
            self.counters.sections_cleaned += 1;
        }
        Ok(true)
    }

    /// The victims of a round, none if all that may be taken do not gain a section.
    ///
    /// With an over-provisioning of `p` percent, about `100 / p` sections always do; mkfs reserves twice as many.
    fn choose_victims(&self) -> Vec<u32> {
        let capacity = self.section_blocks();
        let reserved = self.checkpoint.raw.rsvd_segment_count.get() / self.geometry.segments_per_section;
        let most = (reserved.saturating_sub(LOGS) as usize / 2 + 1).max(USUAL_VICTIMS);
        let now = self.mounted_seconds();
        let mut victims: Vec<u32> = Vec::new();
        let mut dead = 0;
        while victims.len() < most {
            let skip = |section| self.unclean_sections.contains(&section) || victims.contains(&section);
            let Some(section) = self.table.select_victim(&Greedy, now, &skip) else { break };
            let live: u32 = self.table.segments_of(section).map(|segment| u32::from(self.table.live(segment))).sum();
            let is_cheap = victims.len() < USUAL_VICTIMS && capacity - live >= capacity / 4;
            if dead >= capacity && !is_cheap {
                break;
            }
            dead += capacity - live;
            victims.push(section);
        }
        if dead < capacity { Vec::new() } else { victims }
    }

    fn section_blocks(&self) -> u32 {
        self.geometry.segments_per_section * BLOCKS_PER_SEGMENT
    }

    /// Blocks that are neither live nor in a free segment.
    fn dead_blocks(&self) -> u64 {
        let free = self.table.free_segments() + self.table.prefree_segments();
        let used = u64::from(self.table.segments() - free) * u64::from(BLOCKS_PER_SEGMENT);
        used.saturating_sub(self.table.live_data_blocks() + self.table.live_node_blocks())
    }
}
