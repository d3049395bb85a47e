//! Partial garbage collection: copies the live blocks that split the slack of a segment, so that a log fills it in longer runs.
//!
//! Source: E. Gwak and D. Shin, partial garbage collection for slack space recycling, 2014. Which blocks, [`SlackPlan`] says; the places that they
//! leave are written once a commit holds that tells where they went.
//!
//! [`SlackPlan`]: basalt_segments::slack::SlackPlan

use basalt_segments::Segment;
use basalt_segments::slack::DeviceTimes;

use super::plan::ToMove;
use crate::error::Result;
use crate::layout::BLOCKS_PER_SEGMENT;
use crate::lock::F2fs;
use crate::statistics::CleaningCause;
use crate::volume::Volume;

impl F2fs {
    /// Copies up to `most` blocks of one segment out of the way of the log that will fill its slack.
    pub(crate) fn copy_islands(&self, most: u32, cause: CleaningCause) -> Result<()> {
        let _one = self.cleaning.lock();
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
        match self.counting_copies(|volume| volume.move_blocks(segment, &offsets, cause)) {
            Err(error) if error.is_from_reading() => {
                tracing::warn!(%segment, %error, "a block cannot be copied out of the way; the segment is left as it is");
                self.leave_out_of_batch(segment);
                Ok(())
            }
            result => {
                result?;
                self.record.copied_islands(offsets.len() as u64);
                self.slack.note_copied(segment, &offsets);
                Ok(())
            }
        }
    }

    /// No log goes to this segment, and it is no victim.
    fn leave_out_of_batch(&mut self, segment: Segment) {
        self.slack.leave_out(segment, &mut self.table);
        self.cleaner.avoid(self.table.section_of(segment));
    }
}
