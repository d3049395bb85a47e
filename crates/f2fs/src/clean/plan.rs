//! Following the plan of cleaning: in the foreground, while a writer waits, and in the background, while nobody does.

use basalt_segments::cleaning::Purpose;

use super::statistics::CleaningCause;
use crate::error::Result;
use crate::volume::Volume;

impl Volume {
    /// Moves up to `most` live blocks in the foreground; false if there is nothing to gain.
    pub(crate) fn clean_step(&mut self, most: u32) -> Result<bool> {
        if !self.plan_foreground() {
            return Ok(false);
        }
        let mut left = most;
        while left > 0 && self.cleaner.current().is_some() {
            left -= self.follow_plan(CleaningCause::Foreground, left)?;
        }
        let load = self.load();
        self.cleaner.note_step(&load);
        Ok(true)
    }

    /// Empties victims in the foreground until a section is gained, or a checkpoint has to free those emptied so far; false if
    /// there are none, because moving live blocks around would gain nothing.
    pub(crate) fn clean_round(&mut self) -> Result<bool> {
        if !self.plan_foreground() {
            return Ok(false);
        }
        // The checkpoint that frees what is emptied has to write these, and cleaning would take their room.
        self.write_ordered(usize::MAX)?;
        let most = self.options.sections_per_commit.unwrap_or(u32::MAX).max(1);
        let mut sections = 0;
        while self.cleaner.current().is_some()
            && (sections == 0 || sections < most && self.load().has_workspace(&self.table))
        {
            self.follow_plan(CleaningCause::Foreground, self.table.section_blocks())?;
            sections += 1;
        }
        Ok(true)
    }

    /// Moves up to `most` live blocks in the background; false if it is not worth it.
    pub(crate) fn clean_idle(&mut self, most: u32) -> Result<bool> {
        if !self.cleaner.is_planned(Purpose::Background) {
            let start = self.clock.uptime();
            let now = self.mounted_seconds();
            let planned = self.cleaner.plan_background(&self.table, self.options.background_victim, now);
            self.cleaning.background.select += self.clock.uptime().saturating_sub(start);
            if !planned {
                return Ok(false);
            }
        }
        self.follow_plan(CleaningCause::Background, most)?;
        Ok(true)
    }

    /// Goes on with the plan for up to `most` blocks, or to the end of the section under way; how many were moved.
    fn follow_plan(&mut self, cause: CleaningCause, most: u32) -> Result<u32> {
        let Some((section, position)) = self.cleaner.current() else { return Ok(0) };
        let before = *self.cleaning.of(cause);
        let part = self.clean_part(section, position, most, cause)?;
        let copied = *self.cleaning.of(cause) - before;
        self.journal.ledger.note_copied(copied.blocks_copied - copied.pre_invalid_copied, copied.pre_invalid_copied);
        if self.cleaner.advance(&self.table, part.moved, part.next) {
            self.cleaning.of(cause).victims += 1;
            self.counters.sections_cleaned += 1;
        }
        Ok(part.moved)
    }

    /// Makes sure that there is a plan for the foreground; false if nothing is to be gained.
    fn plan_foreground(&mut self) -> bool {
        if self.cleaner.is_planned(Purpose::Foreground) {
            return true;
        }
        if self.cleaner.search_is_vain(&self.table) {
            return false;
        }
        let start = self.clock.uptime();
        let (reserved, now) = (self.sections_reserved(), self.mounted_seconds());
        let gains = self.cleaner.plan_foreground(&self.table, self.options.victim, reserved, now);
        self.cleaning.foreground.select += self.clock.uptime().saturating_sub(start);
        gains
    }
}
