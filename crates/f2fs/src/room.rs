//! Room for every change: writeback when too much is dirty, cleaning when free sections run short.
//!
//! Whoever changes the volume does this work, piece by piece. Each piece is decided under the volume's lock, and its requests are made without
//! it: see [`submission`](crate::submission).

use basalt_segments::cleaning::{Load, Pressure};

use crate::error::Result;
use crate::file::writeback::PIECE;
use crate::layout::BLOCK_SIZE;
use crate::lock::F2fs;
use crate::statistics::{CheckpointCause, CleaningCause};
use crate::volume::Volume;

/// Rounds of cleaning one operation may be made to wait for.
const CLEANING_ROUNDS: u32 = 64;

/// Why a checkpoint is written without which cleaning cannot go on.
const TO_CLEAN: CheckpointCause = CheckpointCause::Cleaning(CleaningCause::Foreground);

/// What has to happen before a change.
enum Next {
    /// Nothing more.
    Go,
    /// Writing back what is dirty beyond the limits.
    WriteBack,
    /// Moving so many live blocks.
    Move(u32),
    /// A commit, to free sections; whether they are needed at once.
    Commit { wait: bool },
    /// A checkpoint, or cleaning could not go on, recovery would run out of space, or memory would.
    Checkpoint(CheckpointCause),
    /// Cleaning until there is room.
    Clean,
}

impl F2fs {
    /// As [`make_room_for`](Self::make_room_for) a change that writes little.
    pub(crate) fn make_room(&self) -> Result<()> {
        self.make_room_for(1)
    }

    /// Before a change that writes about `weight` blocks: writes back when too much is dirty, cleans when free sections run short.
    pub(crate) fn make_room_for(&self, weight: u32) -> Result<()> {
        self.finish_flushed_commit()?;
        if self.device.is_crowded() && self.is_writable() {
            self.submit()?;
        }
        let mut next = self.volume.lock().next(weight, true);
        if let Next::WriteBack = next {
            self.relieve_pressure()?;
            next = self.volume.lock().next(weight, false);
        }
        if let Next::Move(due) = next {
            let gains = self.clean_step(due)?;
            next = self.with_volume(|volume| volume.next_after_step(gains));
        }
        match next {
            Next::Go | Next::WriteBack | Next::Move(_) => Ok(()),
            Next::Commit { wait } => self.free_cleaned(CleaningCause::Foreground, wait),
            Next::Checkpoint(cause) => self.checkpoint_if(cause != CheckpointCause::Memory, cause).map(|_| ()),
            Next::Clean => self.clean(),
        }
    }

    /// Writes back what is dirty beyond the limits, in pieces large enough for large requests.
    fn relieve_pressure(&self) -> Result<()> {
        let pages = self.with_volume(Volume::pages_over);
        if pages > 0 {
            self.write_in_pieces(pages.max(PIECE), Volume::write_back_some)?;
        }
        let nodes = self.with_volume(Volume::nodes_over);
        if nodes > 0 {
            self.write_in_pieces(nodes.max(PIECE), Volume::write_some_nodes)?;
        }
        Ok(())
    }

    /// Has `write` write so many blocks, piece by piece.
    pub(crate) fn write_in_pieces(
        &self,
        blocks: usize,
        write: impl Fn(&mut Volume, usize) -> Result<()>,
    ) -> Result<()> {
        let mut left = blocks;
        while left > 0 {
            let piece = left.min(PIECE);
            self.decide(|volume| if volume.is_writable() { write(volume, piece) } else { Ok(()) })?;
            left -= piece;
        }
        Ok(())
    }

    /// Foreground cleaning: until enough sections are free, or nothing is to be gained.
    fn clean(&self) -> Result<()> {
        for _ in 0..CLEANING_ROUNDS {
            let Some(gains) = self.clean_when_low()? else { return Ok(()) };
            let (is_held, has_emptied, before) = self.with_volume(|volume| {
                (volume.is_held_by_checkpoint(), volume.cleaner.has_emptied(), volume.table.free_sections())
            });
            if !gains && !is_held {
                return Ok(());
            }
            if is_held && !has_emptied {
                self.checkpoint_if(true, TO_CLEAN)?;
                continue;
            }
            self.free_cleaned(CleaningCause::Foreground, true)?;
            if self.volume.lock().table.free_sections() <= before {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A round of cleaning if free sections run short, and whether it gains something; `None` if they do not, or not any more. Where emptied
    /// sections have to be free first, it is left out: a round might lack the room.
    fn clean_when_low(&self) -> Result<Option<bool>> {
        let _one = self.cleaning.lock();
        let is_freed_first = {
            let volume = self.volume.lock();
            if volume.pressure() != Pressure::Low || !volume.is_writable() {
                return Ok(None);
            }
            volume.wants_sections_freed(false)
        };
        Ok(Some(is_freed_first || self.clean_round()?))
    }
}

impl Volume {
    /// What has to happen before a change that writes about `weight` blocks; with `may_write_back`, that may be writing back.
    fn next(&mut self, weight: u32, may_write_back: bool) -> Next {
        if !self.is_writable() {
            return Next::Go;
        }
        if may_write_back && (self.pages_over() > 0 || self.nodes_over() > 0) {
            return Next::WriteBack;
        }
        if self.holds_too_much_for_checkpoint() {
            return Next::Checkpoint(CheckpointCause::Memory);
        }
        if self.is_recovery_cramped() {
            return Next::Checkpoint(TO_CLEAN);
        }
        match self.pressure() {
            Pressure::Low => Next::Clean,
            Pressure::None => {
                self.forgive_cleaning();
                self.next_commit(false)
            }
            pressure @ (Pressure::Paced(_) | Pressure::Hard) => Next::Move(self.cleaning_due(weight, pressure)),
        }
    }

    /// What has to happen once live blocks were moved, or, unless it `gains`, could not be.
    fn next_after_step(&self, gains: bool) -> Next {
        if !gains && self.is_held_by_checkpoint() { Next::Checkpoint(TO_CLEAN) } else { self.next_commit(gains) }
    }

    /// Whether sections have to be freed; `paced`: while cleaning goes on in small steps.
    fn next_commit(&self, paced: bool) -> Next {
        let is_full = paced && self.journal.written.is_some() && self.is_commit_full();
        let wait = is_full || self.wants_sections_freed(false);
        // A commit that waits for its flush frees what it can.
        let is_due = wait || self.journal.written.is_none() && self.wants_sections_freed(paced);
        if is_due { Next::Commit { wait } } else { Next::Go }
    }

    /// Dirty pages beyond the limit.
    fn pages_over(&self) -> usize {
        (self.dirty_file_pages + self.dirty_directory_pages).saturating_sub(self.dirty_page_limit())
    }

    /// Dirty nodes beyond the limit.
    fn nodes_over(&self) -> usize {
        let limit = Load::dirty_node_limit(&self.table, self.options.cache_bytes / BLOCK_SIZE);
        self.nodes.dirty_count().saturating_sub(limit)
    }
}
