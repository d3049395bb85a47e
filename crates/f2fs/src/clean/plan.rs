//! Following the plan of cleaning: in the foreground, while a writer waits, and in the background, while nobody does.

use basalt_segments::{Informed, Segment};
use std::ops::Range;

use zerocopy::FromBytes;

use basalt_segments::cleaning::{Moved, Pressure, Purpose};

use super::near_each_other;
use crate::error::Result;
use crate::layout::summary::RawSummaryBlock;
use crate::layout::{Address, BLOCK_SIZE};
use crate::lock::F2fs;
use crate::statistics::CleaningCause;
use crate::volume::Volume;

/// Live blocks that are moved in one go where cleaning was asked for: others may go on in between.
const REQUESTED_STEP: u32 = 128;

impl F2fs {
    /// Moves up to `most` live blocks in the background; false if it is not worth it.
    pub(crate) fn clean_idle(&self, most: u32) -> Result<bool> {
        let _one = self.cleaning.lock();
        {
            let volume = &mut *self.volume.lock();
            if !volume.cleaner.is_planned(Purpose::Background) {
                let start = volume.clock.uptime();
                let now = volume.mounted_seconds();
                let policy = Informed::new(volume.options.background_victim, &*volume.placement);
                let planned = volume.cleaner.plan_background(&volume.table, policy.policy(), now);
                volume.record.chose_victim(CleaningCause::Background, volume.clock.uptime().saturating_sub(start));
                if !planned {
                    return Ok(false);
                }
            }
        }
        let mut left = most;
        while left > 0
            && let Some(moved) = self.follow_plan(CleaningCause::Background, left)?
            && !moved.ends_section
        {
            left -= moved.blocks;
        }
        Ok(true)
    }

    /// Empties up to so many sections because somebody asked for it; how many it were, and the blocks that were moved. It ends where nothing would be
    /// gained, or the next section might lack room.
    pub(crate) fn clean_on_request(&self, most: u32) -> Result<(u32, u32)> {
        let (mut sections, mut blocks) = (0, 0);
        while sections < most {
            let _one = self.cleaning.lock();
            let avoided = {
                let mut volume = self.volume.lock();
                if !volume.plan_on_request() {
                    break;
                }
                volume.cleaner.avoided()
            };
            while let Some(moved) = self.follow_plan(CleaningCause::Background, REQUESTED_STEP)? {
                blocks += moved.blocks;
                if moved.ends_section {
                    // One with a block that cannot be read was not emptied; the next plan leaves it out.
                    sections += u32::from(self.with_volume(|volume| volume.cleaner.avoided()) == avoided);
                    break;
                }
            }
        }
        Ok((sections, blocks))
    }

    /// Goes on with the plan for up to `most` blocks of one segment, or to the end of the section under way; `None` if there is no plan.
    pub(crate) fn follow_plan(&self, cause: CleaningCause, most: u32) -> Result<Option<Moved>> {
        self.move_what_is_read(
            cause,
            |volume| volume.next_to_move(most),
            |volume, count| if volume.is_writable() { volume.follow_plan(cause, count) } else { Ok(None) },
        )
    }

    /// Reads the blocks that `next` names, without the lock, and has `work` move them: it is told how many there are; one where there are
    /// none, so that the section under way ends.
    pub(super) fn move_what_is_read<T>(
        &self,
        cause: CleaningCause,
        next: impl Fn(&Volume) -> Option<ToMove>,
        work: impl FnOnce(&mut Volume, u32) -> Result<T>,
    ) -> Result<T> {
        let start = self.with_volume(|volume| volume.clock.uptime());
        let count = self.read_victim_ahead(next);
        let result = self.decide(|volume| work(volume, count));
        self.device.end_reading();
        let mut volume = self.volume.lock();
        let took = volume.clock.uptime().saturating_sub(start);
        volume.record.spent_copying(cause, took);
        result
    }

    /// Reads what is moved next, without the lock. Returns how many blocks these are, or one.
    fn read_victim_ahead(&self, next: impl Fn(&Volume) -> Option<ToMove>) -> u32 {
        // Nothing that is read may be reused meanwhile.
        let _reuse = self.reuse.read();
        let read = |with_summary: bool| {
            let volume = self.volume.lock();
            let next = next(&volume)?;
            let ranges = volume.ranges_to_move(&next, with_summary);
            let (ahead, is_partly_in_memory) =
                (self.device.begin_reading(ranges), volume.moves_in_memory(next.segment));
            drop(volume);
            self.device.read_ahead(ahead);
            Some((next.offsets.len() as u32, is_partly_in_memory))
        };
        match read(false) {
            None => 1,
            Some((count, false)) => count,
            // Only the summary tells which need not be read.
            Some((count, true)) => read(true).map_or(1, |(again, _)| again.min(count)),
        }
    }
}

/// Blocks of a segment that are moved next, rising.
pub(super) struct ToMove {
    pub segment: Segment,
    pub offsets: Vec<u32>,
}

impl Volume {
    fn next_to_move(&self, most: u32) -> Option<ToMove> {
        let (section, position) = self.cleaner.current()?;
        let (segment, offsets) = self.table.movable(section, position, most)?;
        Some(ToMove { segment, offsets })
    }

    /// Plans the section that is best emptied, if there is room to; false if nothing would be gained.
    fn plan_on_request(&mut self) -> bool {
        if !self.is_writable() || !self.load().has_workspace(&self.table) {
            return false;
        }
        let now = self.mounted_seconds();
        let policy = Informed::new(self.options.background_victim, &*self.placement);
        self.cleaner.plan_one(&self.table, policy.policy(), now)
    }

    /// Whether blocks of this segment are not read that are in memory.
    pub(super) fn moves_in_memory(&self, segment: Segment) -> bool {
        self.table.kind(segment).is_node() && !self.journal.is_on()
    }

    /// The bytes of the device that moving these blocks reads. Where it is not known which are in memory, only the summary that tells.
    fn ranges_to_move(&self, next: &ToMove, with_summary: bool) -> Vec<Range<u64>> {
        let bytes = |first: Address, last: Address| {
            u64::from(first) * BLOCK_SIZE as u64..(u64::from(last) + 1) * BLOCK_SIZE as u64
        };
        let summary_at = self.geometry.summary_block(next.segment);
        let mut ranges = vec![bytes(summary_at, summary_at)];
        let summary =
            (with_summary && self.moves_in_memory(next.segment)).then(|| self.read_block(summary_at).ok()).flatten();
        let summary = summary.as_ref().and_then(|block| RawSummaryBlock::ref_from_bytes(&block.0).ok());
        if summary.is_none() && self.moves_in_memory(next.segment) {
            return ranges;
        }
        let base = self.geometry.in_segment(next.segment, 0);
        let is_in_memory =
            |offset: u32| summary.is_some_and(|summary| self.nodes.contains(summary.entries[offset as usize].nid()));
        let is_read = |offset: &u32| !self.journal.has_left(base + *offset) && !is_in_memory(*offset);
        let read: Vec<u32> = next.offsets.iter().copied().filter(is_read).collect();
        let near = near_each_other(&read, self.read_gap()).filter_map(|near| Some((near.first()?, near.last()?)));
        ranges.extend(near.map(|(first, last)| bytes(base + *first, base + *last)));
        ranges
    }

    fn follow_plan(&mut self, cause: CleaningCause, most: u32) -> Result<Option<Moved>> {
        let Some((section, position)) = self.cleaner.current() else { return Ok(None) };
        let part = self.counting_copies(|volume| volume.clean_part(section, position, most, cause))?;
        let ends_section = self.cleaner.advance(&self.table, part.moved, part.next);
        if ends_section {
            self.record.cleaned_section(cause);
        }
        Ok(Some(Moved { blocks: part.moved, ends_section }))
    }

    /// What this work copies is what the next commit tells of.
    pub(super) fn counting_copies<T>(&mut self, work: impl FnOnce(&mut Volume) -> Result<T>) -> Result<T> {
        let before = self.record.statistics();
        let result = work(self);
        let copied = self.record.statistics().since(&before).cleaning.total();
        self.journal.note_copied(copied.blocks_copied - copied.pre_invalid_copied, copied.pre_invalid_copied);
        result
    }

    /// Plans foreground cleaning unless a plan exists; false if cleaning would gain nothing.
    pub(crate) fn plan_foreground(&mut self) -> bool {
        let start = self.clock.uptime();
        let (reserved, now) = (self.sections_reserved(), self.mounted_seconds());
        let policy = Informed::new(self.options.victim, &*self.placement);
        let mut gains = self.cleaner.plan_when_needed(&self.table, policy.policy(), reserved, now);
        let is_pressing = matches!(self.pressure(), Pressure::Hard | Pressure::Low);
        if !gains && is_pressing && self.return_slack() {
            self.cleaner.forget_vain();
            let policy = Informed::new(self.options.victim, &*self.placement);
            gains = self.cleaner.plan_when_needed(&self.table, policy.policy(), reserved, now);
        }
        self.record.chose_victim(CleaningCause::Foreground, self.clock.uptime().saturating_sub(start));
        gains
    }
}
