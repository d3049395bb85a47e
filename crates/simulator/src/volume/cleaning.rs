//! When the simulated volume is cleaned, and moving live blocks.

use basalt_segments::BLOCKS_PER_SEGMENT;
use basalt_segments::cleaning::{Load, Pressure, Purpose};

use super::{STRANGER, Volume};
use crate::error::Result;
use crate::options::Cleaning;

/// Rounds of cleaning one write may wait for. Source: the engine's `maintenance`.
const CLEANING_ROUNDS: u32 = 64;

impl Volume {
    /// Before a change: cleans as the options say.
    #[inline]
    pub(super) fn make_room(&mut self) -> Result<()> {
        match self.options.cleaning {
            Cleaning::Paced { reserved_sections } => self.make_room_paced(reserved_sections),
            Cleaning::FreeSections { least, victims } => {
                if self.table.free_sections() >= least {
                    Ok(())
                } else {
                    self.keep_free(least, victims)
                }
            }
            Cleaning::GarbageShare { most, victims } => {
                // Sections that died whole are no garbage: a checkpoint is all they want.
                if self.table.free_sections() < 2 && self.table.prefree_sections() > 0 {
                    self.checkpoint()?;
                }
                if self.garbage_is_below(most) { Ok(()) } else { self.keep_garbage_below(most, victims) }
            }
        }
    }

    fn keep_free(&mut self, least: u32, victims: u32) -> Result<()> {
        self.relieve_pressure()?;
        if self.table.prefree_sections() > 0 {
            self.checkpoint()?;
        }
        let mut rounds = self.table.sections();
        while self.table.free_sections() < least && rounds > 0 && self.clean_victims(victims)? {
            rounds -= 1;
        }
        Ok(())
    }

    fn keep_garbage_below(&mut self, most: f64, victims: u32) -> Result<()> {
        self.relieve_pressure()?;
        if self.table.prefree_sections() > 0 {
            self.checkpoint()?;
        }
        let mut rounds = self.table.sections();
        while !self.garbage_is_below(most) && rounds > 0 && self.clean_victims(victims)? {
            rounds -= 1;
        }
        Ok(())
    }

    /// Whether at most this share of the blocks that were written and not yet erased is dead.
    fn garbage_is_below(&self, most: f64) -> bool {
        let open = |log: &super::Log| u64::from(log.segment.map_or(0, |_| BLOCKS_PER_SEGMENT - log.offset));
        let unwritten: u64 = self.logs.iter().map(open).sum();
        let dead = self.table.dead_blocks().saturating_sub(unwritten);
        let live = self.table.live_data_blocks() + self.table.live_node_blocks();
        dead as f64 <= most * (dead + live) as f64
    }

    /// Empties the best sections and frees them; false if there are none.
    fn clean_victims(&mut self, victims: u32) -> Result<bool> {
        let best = self.table.select_victims(self.options.policy, self.clock, &|_| false, victims as usize);
        if best.is_empty() {
            return Ok(false);
        }
        self.cleaner.plan(&self.table, best);
        while self.cleaner.current().is_some() {
            // The next might be all but full, and there is no end to the plan before what it emptied is free.
            if self.table.free_sections() < 2 && self.table.prefree_sections() > 0 {
                self.checkpoint()?;
                continue;
            }
            self.follow_plan(self.table.section_blocks())?;
        }
        self.checkpoint()?;
        Ok(true)
    }

    /// As the engine's `make_room_for` a change of one block.
    fn make_room_paced(&mut self, reserved_sections: u32) -> Result<()> {
        self.relieve_pressure()?;
        let load = self.load(reserved_sections);
        let paced = match self.cleaner.pressure(&self.table, &load) {
            Pressure::Low => return self.clean_until_there_is_room(reserved_sections),
            Pressure::None => {
                self.cleaner.forgive(&load);
                false
            }
            pressure @ (Pressure::Paced(_) | Pressure::Hard) => {
                let due = self.cleaner.due(&load, 1, pressure);
                self.clean_step(reserved_sections, due)?
            }
        };
        let load = self.load(reserved_sections);
        if self.cleaner.wants_sections_freed(&self.table, &load, paced) { self.checkpoint() } else { Ok(()) }
    }

    fn clean_until_there_is_room(&mut self, reserved_sections: u32) -> Result<()> {
        for _ in 0..CLEANING_ROUNDS {
            let load = self.load(reserved_sections);
            if self.cleaner.pressure(&self.table, &load) != Pressure::Low {
                return Ok(());
            }
            let wait = self.cleaner.wants_sections_freed(&self.table, &load, false);
            if !wait && !self.clean_round(reserved_sections)? {
                return Ok(());
            }
            let before = self.table.free_sections();
            if self.cleaner.sections_to_be_freed(&self.table) > 0 {
                self.checkpoint()?;
            }
            if self.table.free_sections() <= before {
                return Ok(());
            }
        }
        Ok(())
    }

    fn clean_step(&mut self, reserved_sections: u32, most: u32) -> Result<bool> {
        if !self.plan(reserved_sections) {
            return Ok(false);
        }
        let mut left = most;
        while left > 0 && self.cleaner.current().is_some() {
            left -= self.follow_plan(left)?;
        }
        let load = self.load(reserved_sections);
        self.cleaner.note_step(&load);
        Ok(true)
    }

    fn clean_round(&mut self, reserved_sections: u32) -> Result<bool> {
        if !self.plan(reserved_sections) {
            return Ok(false);
        }
        let mut sections = 0;
        while self.cleaner.current().is_some()
            && (sections == 0 || self.load(reserved_sections).has_workspace(&self.table))
        {
            self.follow_plan(self.table.section_blocks())?;
            sections += 1;
        }
        Ok(true)
    }

    fn plan(&mut self, reserved_sections: u32) -> bool {
        if self.cleaner.is_planned(Purpose::Foreground) {
            return true;
        }
        if self.cleaner.search_is_vain(&self.table) {
            return false;
        }
        self.cleaner.plan_foreground(&self.table, self.options.policy, reserved_sections, self.clock)
    }

    fn load(&self, reserved_sections: u32) -> Load {
        let (dirty_nodes, dirty_pages) =
            self.file.as_ref().map_or((0, 0), |file| (file.dirty_nodes(), file.dirty_pages()));
        Load { reserved_sections, dirty_nodes, dirty_pages, written: self.written.saturating_sub(self.moved) }
    }

    /// Goes on with the plan for up to `most` blocks, or to the end of the section under way; how many were moved.
    fn follow_plan(&mut self, most: u32) -> Result<u32> {
        let Some((section, position)) = self.cleaner.current() else { return Ok(0) };
        let first = self.table.segments_of(section).start;
        let (mut from, mut moved, mut is_empty) = (position, 0, false);
        while moved < most && !is_empty {
            match self.table.movable(section, from, most - moved) {
                Some((segment, live)) => {
                    self.move_blocks(segment, &live)?;
                    moved += live.len() as u32;
                    from = (segment - first) * BLOCKS_PER_SEGMENT + live.last().map_or(0, |last| last + 1);
                }
                None => is_empty = true,
            }
        }
        if self.cleaner.advance(&self.table, moved, (!is_empty).then_some(from)) {
            let all = self.cleaner.recent().newest().map_or(moved, |victim| victim.moved);
            self.statistics.count_victim(all, self.table.section_blocks());
        }
        Ok(moved)
    }

    /// Moves these live blocks of a segment.
    fn move_blocks(&mut self, segment: u32, live: &[u32]) -> Result<()> {
        let is_node = self.table.kind(segment).is_node();
        self.moved += live.len() as u64;
        if self.file.is_none() {
            return self.move_together(segment, live);
        }
        for &offset in live {
            let place = segment * BLOCKS_PER_SEGMENT + offset;
            let owner = self.owners[place as usize];
            if is_node {
                self.move_node(owner);
            } else if owner == STRANGER {
                self.allocate(self.data_logs.for_copy(STRANGER), STRANGER)?;
                self.invalidate(place);
                self.statistics.copies += 1;
            } else {
                self.place(owner, self.data_logs.for_copy(owner))?;
                self.statistics.copies += 1;
            }
        }
        Ok(())
    }

    /// As [`move_blocks`](Volume::move_blocks) where nothing but the map points to them: run by run of what the log takes.
    fn move_together(&mut self, segment: u32, live: &[u32]) -> Result<()> {
        let mut rest = live;
        let owner = |owners: &[u32], offset: u32| owners[(segment * BLOCKS_PER_SEGMENT + offset) as usize];
        while let Some(&next) = rest.first() {
            let log = self.data_logs.for_copy(owner(&self.owners, next));
            let most = if self.data_logs.is_fixed() { rest.len() as u32 } else { 1 };
            let (first, count) = self.allocate_run(log, most)?;
            let (run, behind) = rest.split_at(count as usize);
            for (place, &offset) in (first..).zip(run) {
                let owner = owner(&self.owners, offset);
                self.owners[place as usize] = owner;
                self.places[owner as usize] = place;
            }
            let was_live = self.table.clear_live_all(segment, run, self.death_time(segment));
            debug_assert!(was_live, "segment {segment} has fewer live blocks than it had");
            self.statistics.copies += u64::from(count);
            self.written += u64::from(count);
            rest = behind;
        }
        self.changed = true;
        Ok(())
    }

    /// A node moves when it is written next.
    fn move_node(&mut self, node: u32) {
        if let Some(file) = &mut self.file {
            file.mark_dirty(node);
        }
        self.changed = true;
        self.statistics.nodes_moved += 1;
    }
}
