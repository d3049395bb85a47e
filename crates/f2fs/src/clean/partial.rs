//! Partial garbage collection: copies the live blocks that split the slack of a segment, so that a log fills it in longer runs.
//!
//! Source: E. Gwak and D. Shin, partial garbage collection for slack space recycling, 2014. Which blocks, [`SlackPlan`] says; the places that they
//! leave are written once a commit holds that tells where they went.
//!
//! [`SlackPlan`]: basalt_segments::slack::SlackPlan

use basalt_segments::Segment;
use basalt_segments::slack::DeviceTimes;

use super::plan::ToMove;
use crate::error::{Error, Result};
use crate::layout::BLOCKS_PER_SEGMENT;
use crate::lock::F2fs;
use crate::log::slack::{SlackPace, SlackStep};
use crate::statistics::CleaningCause;
use crate::volume::Volume;

impl F2fs {
    /// Copies some blocks of one segment out of the way of the log that will fill its slack.
    pub(crate) fn copy_islands(&self, pace: SlackPace, cause: CleaningCause) -> Result<()> {
        let _one = self.cleaning.lock();
        // Others may have copied them, or taken the room, while this one waited for its turn.
        let SlackStep::Copy(most) = self.volume.lock().next_slack_step(pace) else { return Ok(()) };
        self.move_what_is_read(
            cause,
            |volume| volume.next_island(most),
            |volume, count| if volume.is_writable() { volume.copy_island(count, cause) } else { Ok(()) },
        )
    }
}

impl Volume {
    /// The device's times, with that of what commits here: a block of the journal, or a checkpoint.
    pub(crate) fn times_with_commit(&self) -> DeviceTimes {
        let times = self.options.times.clone();
        let (flush, blocks) = (times.commit(), self.checkpoint_blocks().clamp(1, u64::from(BLOCKS_PER_SEGMENT)) as u32);
        let commit = if self.journal.is_on() {
            flush + times.write(1)
        } else {
            2 * flush + times.write(1) + times.write(blocks)
        };
        times.with_commit(commit)
    }

    /// What is copied next, at most so many blocks.
    fn next_island(&self, most: u32) -> Option<ToMove> {
        let (segment, offsets) = self.slack.batch()?.next(&self.table, most)?;
        Some(ToMove { segment, offsets })
    }

    fn copy_island(&mut self, most: u32, cause: CleaningCause) -> Result<()> {
        let Some(ToMove { segment, offsets }) = self.next_island(most) else { return Ok(()) };
        let before = self.record.written().blocks_moved;
        let result = self.counting_copies(|volume| volume.move_blocks(segment, &offsets, cause));
        self.record.copied_islands(self.record.written().blocks_moved - before);
        match result {
            Err(error) if error.is_from_reading() => {
                tracing::warn!(%segment, %error, "a block cannot be copied out of the way; the segment is left as it is");
                self.leave_out_of_batch(segment);
                return Ok(());
            }
            // What was copied stays so; cleaning makes room.
            Err(Error::Refused(basalt_vfs::Error::NoSpace)) => {
                self.give_batch_up();
                return Ok(());
            }
            result => result?,
        }
        let load = self.load();
        self.slack.note_copied(segment, &offsets, load.demand());
        // Nodes that point to what was copied are no new demand.
        self.cleaner.note_step(&load);
        Ok(())
    }

    /// No log goes to this segment, and it is no victim.
    fn leave_out_of_batch(&mut self, segment: Segment) {
        self.slack.leave_out(segment, &mut self.table);
        self.cleaner.avoid(self.table.section_of(segment));
    }
}
