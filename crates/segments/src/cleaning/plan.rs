//! The plan of cleaning: which sections are emptied next, and how far that has come.

use std::collections::{HashSet, VecDeque};

use super::RecentVictims;
use crate::{BLOCKS_PER_SEGMENT, Greedy, Section, Segment, SegmentState, SegmentTable, VictimPolicy};

/// Sections of a plan where the first already gain enough.
const USUAL_VICTIMS: usize = 8;
/// About so many plans decide what is usual.
const USUAL_PLANS: u64 = 8;
/// Logs: as many sections are no victims because they are being written.
const LOGS: u32 = 6;
/// Share of live blocks from which on a section is no victim in the background, in percent: the gain is not worth the wear.
const BACKGROUND_LIVE_PERCENT: u32 = 95;
/// Cleaning in the background goes on while more than this share of the unused space lies between live blocks, in percent.
/// Source: the kernel's `LIMIT_INVALID_BLOCK`, at which its thread begins to hurry.
const BACKGROUND_DEAD_PERCENT: u64 = 40;

/// Why a section is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Free sections run short while somebody writes.
    Foreground,
    /// Nobody waits.
    Background,
}

/// What cleaning is about to do. Sections are planned, emptied block by block, and free after the next checkpoint.
#[derive(Debug, Default)]
pub struct Cleaner {
    /// Sections to be emptied, the one under way first.
    victims: VecDeque<Section>,
    /// Where to go on in the first, in blocks.
    position: u32,
    /// Blocks moved out of the first.
    moved: u32,
    purpose: Option<Purpose>,
    /// Live and dead blocks of the victims when they were chosen.
    live: u64,
    dead: u64,
    /// The same of the last plans of the foreground together, each older one counting less.
    usual_live: u64,
    usual_dead: u64,
    /// Sections emptied since the last checkpoint. Nodes leave theirs only when they are written.
    emptied: Vec<Section>,
    /// Sections whose cleaning met damage: no victims. Only ever asked about single sections, so the order of hashing is no matter.
    avoided: HashSet<Section>,
    /// Dead blocks of the volume when nothing was to be gained.
    in_vain: Option<u64>,
    /// What writers have to move, because of what they wrote, in parts of a block.
    pub(super) debt: u64,
    /// The demand when the debt was reckoned last.
    pub(super) reckoned: u64,
    recent: RecentVictims,
}

impl Cleaner {
    /// Leaves a section alone from now on.
    pub fn avoid(&mut self, section: Section) {
        self.avoided.insert(section);
    }

    /// How many sections are left alone.
    #[must_use]
    pub fn avoided(&self) -> usize {
        self.avoided.len()
    }

    /// Whether a section is left alone.
    #[must_use]
    pub fn avoids(&self, section: Section) -> bool {
        self.avoided.contains(&section)
    }

    /// Whether a section is one of those to empty next, or was emptied and is not free yet.
    #[must_use]
    pub fn empties(&self, section: Section) -> bool {
        self.victims.contains(&section) || self.emptied.contains(&section)
    }

    /// The section to empty next, and the block of it to go on from.
    #[must_use]
    pub fn current(&self) -> Option<(Section, u32)> {
        self.victims.front().map(|&section| (section, self.position))
    }

    /// How far the section at hand is emptied, in blocks.
    pub(super) fn blocks_under_way(&self) -> u64 {
        if self.victims.is_empty() { 0 } else { u64::from(self.position) }
    }

    /// Blocks of the section at hand were moved; the next of it to look at is `next`, or none is left. Returns whether the section
    /// is done with.
    pub fn advance(&mut self, table: &SegmentTable, moved: u32, next: Option<u32>) -> bool {
        self.moved += moved;
        if let Some(next) = next {
            self.position = next;
            return false;
        }
        if let Some(section) = self.victims.pop_front() {
            let kind = table.kind(first_used(table, section));
            self.recent.push(section, kind, self.moved, self.purpose.unwrap_or(Purpose::Foreground));
            if !self.avoided.contains(&section) {
                self.emptied.push(section);
            }
        }
        (self.position, self.moved) = (0, 0);
        true
    }

    /// A checkpoint holds that freed these sections, rising: what is written there from now on is no victim.
    pub fn note_checkpoint(&mut self, freed: &[Section]) {
        self.emptied.clear();
        // What it needed and is dead may be gained now.
        self.in_vain = None;
        self.forget_planned(freed);
    }

    /// These sections, rising, were freed without a checkpoint: what is written there from now on is no victim.
    pub fn note_freed(&mut self, freed: &[Section]) {
        self.emptied.retain(|section| freed.binary_search(section).is_err());
        self.forget_planned(freed);
    }

    /// Sections emptied last.
    #[must_use]
    pub fn recent(&self) -> &RecentVictims {
        &self.recent
    }

    /// Whether sections were emptied since the last checkpoint.
    #[must_use]
    pub fn has_emptied(&self) -> bool {
        !self.emptied.is_empty()
    }

    /// How many sections were emptied that no commit has freed yet.
    #[must_use]
    pub fn emptied_sections(&self) -> u32 {
        self.emptied.len() as u32
    }

    /// Sections that will be free after a checkpoint and are not now.
    #[must_use]
    pub fn sections_to_be_freed(&self, table: &SegmentTable) -> u32 {
        let nodes = self.emptied.iter().filter(|&&section| table.live_in_section(section) > 0).count();
        table.prefree_sections() + nodes as u32
    }

    /// Whether there is a plan for this purpose; one for another is given up for the foreground.
    #[must_use]
    pub fn is_planned(&self, purpose: Purpose) -> bool {
        !self.victims.is_empty() && (purpose == Purpose::Background || self.purpose == Some(purpose))
    }

    /// Whether the search for victims has to be left out, because the last was in vain and little has died since: it reads the
    /// whole table.
    fn search_is_vain(&mut self, table: &SegmentTable) -> bool {
        let dead = table.dead_blocks();
        match self.in_vain {
            Some(before) if dead < before + u64::from(BLOCKS_PER_SEGMENT / 8) => {
                self.in_vain = Some(before.min(dead));
                true
            }
            _ => false,
        }
    }

    /// There may be victims where the last search found none.
    pub fn forget_vain(&mut self) {
        self.in_vain = None;
    }

    /// Whether the last search for victims found nothing to gain.
    pub(super) fn is_in_vain(&self) -> bool {
        self.in_vain.is_some()
    }

    /// Plans foreground cleaning unless a plan exists; false if cleaning would gain nothing.
    pub fn plan_when_needed(
        &mut self,
        table: &SegmentTable,
        policy: &dyn VictimPolicy,
        reserved_sections: u32,
        now: u64,
    ) -> bool {
        if self.is_planned(Purpose::Foreground) {
            return true;
        }
        !self.search_is_vain(table) && self.plan_foreground(table, policy, reserved_sections, now)
    }

    /// Plans to empty sections that together hold at least a section's worth of dead blocks, the cheapest by `policy`; false if
    /// those that may be taken do not.
    ///
    /// With an over-provisioning of `p` percent, about `100 / p` of the sections with the most dead blocks always do; mkfs reserves twice as
    /// many, and `reserved_sections` is what it reserved. Where the policy prefers others, and those do not, sections are taken greedily. `now`
    /// is in the unit of [`SegmentTable::set_live`].
    fn plan_foreground(
        &mut self,
        table: &SegmentTable,
        policy: &dyn VictimPolicy,
        reserved_sections: u32,
        now: u64,
    ) -> bool {
        let most = (reserved_sections.saturating_sub(LOGS) as usize / 2 + 1).max(USUAL_VICTIMS);
        let capacity = u64::from(table.section_blocks());
        let (mut victims, mut live, mut dead) = self.choose_victims(table, policy, now, most);
        if dead < capacity && policy.name() != Greedy.name() {
            (victims, live, dead) = self.choose_victims(table, &Greedy, now, most);
        }
        let gains = dead >= capacity;
        if gains {
            self.set_plan(Purpose::Foreground, victims, live, dead);
            let with = |usual: u64, new| usual - usual / USUAL_PLANS + new;
            (self.usual_live, self.usual_dead) = (with(self.usual_live, live), with(self.usual_dead, dead));
        }
        self.in_vain = if gains { None } else { Some(table.dead_blocks()) };
        gains
    }

    /// The cheapest sections by a policy, up to `most`, until they hold a section's worth of dead blocks; their live and their dead blocks.
    fn choose_victims(
        &self,
        table: &SegmentTable,
        policy: &dyn VictimPolicy,
        now: u64,
        most: usize,
    ) -> (VecDeque<Section>, u64, u64) {
        let capacity = table.section_blocks();
        let mut victims = VecDeque::new();
        let (mut live, mut dead) = (0, 0);
        for section in table.select_victims(policy, now, &|section| self.avoids(section), most) {
            let used = table.needed_in_section(section);
            let is_cheap = victims.len() < USUAL_VICTIMS && capacity - used >= capacity / 4;
            if dead >= u64::from(capacity) && !is_cheap {
                break;
            }
            live += u64::from(used);
            dead += u64::from(capacity - used);
            victims.push_back(section);
        }
        (victims, live, dead)
    }

    /// Plans to empty the section that is best emptied while nobody waits, by `policy`; false if none is worth it, or little of the unused space
    /// lies between live blocks.
    pub fn plan_background(&mut self, table: &SegmentTable, policy: &dyn VictimPolicy, now: u64) -> bool {
        let dead = table.dead_blocks();
        let free = u64::from(table.free_segments() + table.prefree_segments()) * u64::from(BLOCKS_PER_SEGMENT);
        dead * 100 > (dead + free) * BACKGROUND_DEAD_PERCENT && self.plan_one(table, policy, now)
    }

    /// Plans to empty the section that is best emptied by `policy`, for the background; false if none is worth it.
    pub fn plan_one(&mut self, table: &SegmentTable, policy: &dyn VictimPolicy, now: u64) -> bool {
        let most = u64::from(table.section_blocks()) * u64::from(BACKGROUND_LIVE_PERCENT) / 100;
        let skip = |section| self.avoids(section) || u64::from(table.needed_in_section(section)) > most;
        let Some(victim) = table.select_victim(policy, now, &skip) else { return false };
        let live = table.needed_in_section(victim);
        self.set_plan(
            Purpose::Background,
            VecDeque::from([victim]),
            live.into(),
            (table.section_blocks() - live).into(),
        );
        true
    }

    /// Plans to empty exactly these sections, whatever they gain.
    pub fn plan(&mut self, table: &SegmentTable, victims: Vec<Section>) {
        let live: u64 = victims.iter().map(|&section| u64::from(table.live_in_section(section))).sum();
        let dead = victims.len() as u64 * u64::from(table.section_blocks()) - live;
        self.set_plan(Purpose::Foreground, victims.into(), live, dead);
    }

    /// Live blocks to move for a gain of `blocks`, by the plan at hand.
    pub(super) fn price(&self, blocks: u64) -> u64 {
        blocks * self.live / self.dead.max(1)
    }

    /// Live and dead blocks of the victims of the last plans.
    pub(super) fn usual(&self) -> (u64, u64) {
        (self.usual_live, self.usual_dead)
    }

    fn forget_planned(&mut self, freed: &[Section]) {
        let first = self.victims.front().copied();
        self.victims.retain(|section| freed.binary_search(section).is_err());
        if self.victims.front().copied() != first {
            (self.position, self.moved) = (0, 0);
        }
    }

    fn set_plan(&mut self, purpose: Purpose, victims: VecDeque<Section>, live: u64, dead: u64) {
        (self.victims, self.position, self.moved, self.purpose) = (victims, 0, 0, Some(purpose));
        (self.live, self.dead) = (live, dead);
    }
}

/// The first segment of a section that is not free.
fn first_used(table: &SegmentTable, section: Section) -> Segment {
    let segments = table.segments_of(section);
    let first = segments.start();
    segments.into_iter().find(|&segment| table.state(segment) != SegmentState::Free).unwrap_or(first)
}
