//! When the simulated volume is cleaned, and moving live blocks.

use basalt_segments::cleaning::{
    Cleaner, Driven, Facts, KeepFree, Load, Moved, PIECE, Want, make_room, relieve_memory,
};
use basalt_segments::{BLOCKS_PER_SEGMENT, MainBlock, Segment, SegmentTable};

use super::logs::Why;
use super::{STRANGER, Volume, logs};
use crate::error::{Error, Result};
use crate::options::Cleaning;

impl Driven for Volume {
    type Error = Error;

    fn ask<T>(&mut self, question: impl FnOnce(&mut Cleaner, &SegmentTable, &Facts) -> T) -> T {
        let facts = self.facts();
        question(&mut self.cleaner, &self.table, &facts)
    }

    fn as_cleaner<T>(&mut self, work: impl FnOnce(&mut Volume) -> T) -> T {
        work(self)
    }

    fn plan(&mut self) -> bool {
        let reserved = self.facts().load.reserved_sections;
        let policy = self.choices.inform(self.options.policy);
        self.cleaner.plan_when_needed(&self.table, policy.policy(), reserved, self.clock)
    }

    fn follow_plan(&mut self, most: u32) -> Result<Option<Moved>> {
        Volume::follow_plan(self, most)
    }

    fn prepare_round(&mut self) -> Result<()> {
        Ok(())
    }

    fn write_pages(&mut self, count: usize) -> Result<()> {
        let pages = self.file.as_mut().map(|file| file.pages_to_write(count)).unwrap_or_default();
        self.write_each(&pages)
    }

    fn write_nodes(&mut self, count: usize) -> Result<()> {
        // As in the engine, which lets others in between: each piece goes on where the last one ended.
        let mut left = count;
        while left > 0 {
            let piece = left.min(PIECE);
            Volume::write_nodes(self, piece)?;
            left -= piece;
        }
        Ok(())
    }

    fn commit(&mut self, _wait: bool) -> Result<()> {
        if self.cleaner.sections_to_be_freed(&self.table) > 0 { self.checkpoint() } else { Ok(()) }
    }

    fn checkpoint(&mut self, _want: Want) -> Result<()> {
        Volume::checkpoint(self)
    }
}

impl Volume {
    /// Before a change: cleans as the options say.
    #[inline]
    pub(super) fn make_room(&mut self) -> Result<()> {
        match self.options.cleaning {
            Cleaning::Paced { .. } => make_room(self, 1),
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
        relieve_memory(self)?;
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
        relieve_memory(self)?;
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
        let policy = self.choices.inform(self.options.policy);
        let best = self.table.select_victims(policy.policy(), self.clock, &|_| false, victims as usize);
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
            self.follow_plan(u32::MAX)?;
        }
        self.checkpoint()?;
        Ok(true)
    }

    /// What the driver has to know: there is no journal, and memory is no matter.
    pub(super) fn facts(&self) -> Facts {
        let (reserved_sections, keep_free) = match self.options.cleaning {
            Cleaning::Paced { reserved_sections, keep_free } => (reserved_sections, keep_free),
            Cleaning::FreeSections { .. } | Cleaning::GarbageShare { .. } => (0, KeepFree::Reserve),
        };
        let file = self.file.as_ref();
        let (dirty_nodes, dirty_pages) = file.map_or((0, 0), |file| (file.dirty_nodes(), file.dirty_pages()));
        let nodes_of_pages = file.map_or(0, |file| file.nodes_of_pages());
        let written = self.written.saturating_sub(self.moved);
        let load = Load {
            reserved_sections,
            keep_free,
            fills_slack: false,
            dirty_nodes,
            dirty_pages,
            nodes_of_pages,
            written,
        };
        Facts::without_journal(load, file.map_or(usize::MAX, |file| file.cache_blocks))
    }

    /// Goes on with the plan for up to `most` blocks, or to the end of the section under way.
    pub(super) fn follow_plan(&mut self, most: u32) -> Result<Option<Moved>> {
        let Some((section, position)) = self.cleaner.current() else { return Ok(None) };
        // As in the engine, which reads blocks of one segment at a time: the section ends where it is asked for more and there is none.
        let most = self.table.movable(section, position, most).map_or(1, |(_, live)| live.len() as u32);
        let (mut from, mut moved, mut is_empty) = (position, 0, false);
        while moved < most && !is_empty {
            match self.table.movable(section, from, most - moved) {
                Some((segment, live)) => {
                    self.move_blocks(segment, &live)?;
                    moved += live.len() as u32;
                    from = self.table.position_in_section(segment, live.last().map_or(0, |last| last + 1));
                }
                None => is_empty = true,
            }
        }
        let ends_section = self.cleaner.advance(&self.table, moved, (!is_empty).then_some(from));
        if ends_section {
            let all = self.cleaner.recent().newest().map_or(moved, |victim| victim.moved);
            self.statistics.count_victim(all, self.table.section_blocks());
        }
        Ok(Some(Moved { blocks: moved, ends_section }))
    }

    /// Moves these live blocks of a segment.
    fn move_blocks(&mut self, segment: Segment, live: &[u32]) -> Result<()> {
        let is_node = self.table.kind(segment).is_node();
        self.moved += live.len() as u64;
        if self.pool.is_some() {
            self.collect(segment, live);
            return Ok(());
        }
        if let Some(traffic) = &mut self.traffic {
            for run in live.chunk_by(|before, after| before + 1 == *after) {
                traffic.read(MainBlock::in_segment(segment, run[0]), run.len() as u32);
            }
        }
        if self.file.is_none() && self.choices.is_fixed() {
            return self.move_together(segment, live);
        }
        for &offset in live {
            let place = MainBlock::in_segment(segment, offset);
            let owner = self.owners[place.get() as usize];
            if is_node {
                self.move_node(owner);
            } else if owner == STRANGER {
                let block = logs::stranger(place);
                let log = self.log_with_room(self.choices.for_block(&block));
                let copy = self.allocate(log, STRANGER)?;
                self.choices.note_written(&block, copy);
                self.written += 1;
                self.roll_when_full(log);
                if let Some(file) = &mut self.file {
                    file.mark_directories_dirty();
                }
                self.invalidate(place);
                self.statistics.copies += 1;
            } else {
                let why = Why::Moved { from: place };
                let log = self.log_with_room(self.choices.for_data(owner, why));
                self.place(owner, log, why)?;
                self.statistics.copies += 1;
            }
        }
        Ok(())
    }

    /// As [`move_blocks`](Volume::move_blocks) where nothing but the map points to them and all copies go to one log, of which
    /// the placement hears nothing: run by run of what the log takes.
    fn move_together(&mut self, segment: Segment, live: &[u32]) -> Result<()> {
        let mut rest = live;
        while !rest.is_empty() {
            let why = Why::Moved { from: MainBlock::in_segment(segment, rest[0]) };
            let log = self.log_with_room(self.choices.for_data(0, why));
            let (first, count) = self.allocate_run(log, rest.len() as u32)?;
            let (run, behind) = rest.split_at(count as usize);
            for (at, &offset) in (0..).zip(run) {
                let place = first + at;
                let owner = self.owners[MainBlock::in_segment(segment, offset).get() as usize];
                self.owners[place.get() as usize] = owner;
                self.places[owner as usize] = place;
            }
            self.roll_when_full(log);
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
