//! What keeps a volume going: room for every change, checkpoints, background work.
//!
//! Nothing here is called with a lock held; the order of the locks is that of `ops`.

use std::time::Duration;

use basalt_segments::cleaning::{Pressure, Victim};
use basalt_vfs::{Background, Time};

use crate::checkpoint::write::Prepared;
use crate::clean::statistics::{CheckpointCause, CleaningCause, Statistics};
use crate::discard;
use crate::error::Result;
use crate::layout::BLOCK_SIZE;
use crate::mutant::{self, Mutant};
use crate::ops::{F2fs, note_failure};
use crate::volume::Volume;

/// Rounds of cleaning one operation may be made to wait for.
const CLEANING_ROUNDS: u32 = 64;
/// Blocks written back in one go when too many are dirty: a request of 1 MiB.
const PIECE: usize = 256;
/// Live blocks moved by one piece of background cleaning.
const IDLE_STEP: u32 = 128;
/// Pause between two pieces of background cleaning.
const IDLE_PAUSE: Duration = Duration::from_millis(10);

/// Why a checkpoint is written without which cleaning cannot go on.
const TO_CLEAN: CheckpointCause = CheckpointCause::Cleaning(CleaningCause::Foreground);
/// What a changed entry of the NAT takes in memory, in bytes, with its share of the tree it is in.
const NAT_ENTRY_BYTES: usize = 32;
/// So many changed entries may wait in any case: a checkpoint's own journal holds some without writing them to the NAT.
const NAT_ENTRIES_MIN: usize = 4096;

/// When background work was done last.
pub(crate) struct Timing {
    committed: Time,
}

impl Timing {
    /// Of a volume whose last checkpoint is as old as `now`.
    pub(crate) fn new(now: Time) -> Timing {
        Timing { committed: now }
    }
}

impl F2fs {
    /// As [`make_room_for`](Self::make_room_for) a change that writes little.
    pub(crate) fn make_room(&self) -> Result<()> {
        self.make_room_for(1)
    }

    /// Before a change that writes about `weight` blocks: writes back when too much is dirty, cleans when free sections run short.
    pub(crate) fn make_room_for(&self, weight: u32) -> Result<()> {
        self.finish_flushed_commit()?;
        let next = {
            let mut volume = self.volume.lock();
            if !volume.is_writable() {
                return Ok(());
            }
            let result = step(&mut volume, weight);
            note_failure(&mut volume, &result);
            result?
        };
        match next {
            Next::Go => Ok(()),
            Next::Commit { wait } => self.free_cleaned(CleaningCause::Foreground, wait),
            Next::Checkpoint(cause) => self.checkpoint_if(cause != CheckpointCause::Memory, cause).map(|_| ()),
            Next::Clean => self.clean(),
        }
    }

    /// Foreground cleaning: until enough sections are free, or nothing is to be gained.
    fn clean(&self) -> Result<()> {
        for _ in 0..CLEANING_ROUNDS {
            let (before, held) = {
                let mut volume = self.volume.lock();
                if volume.pressure() != Pressure::Low || !volume.is_writable() {
                    return Ok(());
                }
                // Room for a round might be missing: what was emptied has to be free first.
                if !volume.wants_sections_freed(false) {
                    let result = volume.clean_round();
                    note_failure(&mut volume, &result);
                    if !result? && !volume.is_held_by_checkpoint() {
                        return Ok(());
                    }
                }
                (volume.table.free_sections(), volume.is_held_by_checkpoint() && !volume.cleaner.has_emptied())
            };
            if held {
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

    /// Frees sections that were emptied, by the journal or by a checkpoint. Unless `wait`, the journal's commit may still lack its flush,
    /// and nothing is done where somebody else has the turn, who frees them.
    fn free_cleaned(&self, cause: CleaningCause, wait: bool) -> Result<()> {
        let turn = if wait { Some(self.take_turn()) } else { self.try_turn() };
        let Some(_turn) = turn else { return Ok(()) };
        let uptime = || self.with_volume(|volume| volume.clock.uptime());
        let start = uptime();
        let journaled = self.commit_by_journal(cause, wait)?;
        let written = !journaled && self.checkpoint_in_turn(false, CheckpointCause::Cleaning(cause))?;
        let took = uptime().saturating_sub(start);
        let mut volume = self.volume.lock();
        let work = volume.cleaning.of(cause);
        work.commit += took;
        work.checkpoints += u64::from(written);
        Ok(())
    }

    /// Writes a checkpoint if there is reason to: something changed, or, where sections are to be freed, there are some; with
    /// `force` always. For [`CheckpointCause::Close`] it is one of a clean volume. Returns whether one was written.
    pub(crate) fn checkpoint_if(&self, force: bool, cause: CheckpointCause) -> Result<bool> {
        let _turn = self.take_turn();
        self.checkpoint_in_turn(force, cause)
    }

    /// As [`checkpoint_if`](Self::checkpoint_if), by who has the turn.
    fn checkpoint_in_turn(&self, force: bool, cause: CheckpointCause) -> Result<bool> {
        self.write_ordered_in_pieces()?;
        let (prepared, start, blocks) = {
            let mut volume = self.volume.lock();
            let (start, blocks) = (volume.clock.uptime(), volume.checkpoint_blocks());
            if let Some(reason) = &volume.failed {
                return Err(basalt_vfs::Error::Io(reason.clone()).into());
            }
            let unmount = cause == CheckpointCause::Close;
            let due = match cause {
                _ if force => true,
                // Somebody else's may have freed them while this one waited for its turn.
                CheckpointCause::Cleaning(_) => volume.cleaner.sections_to_be_freed(&volume.table) > 0,
                CheckpointCause::Memory => volume.holds_too_much_for_checkpoint(),
                _ => volume.changed || unmount && volume.was_unclean(),
            };
            if !due || !volume.is_writable() {
                return Ok(false);
            }
            volume.checkpoints.count(cause);
            let result = volume.prepare_checkpoint(unmount);
            note_failure(&mut volume, &result);
            (result?, start, blocks)
        };
        let result = self.commit(&prepared);
        let _reuse = self.reuse.write();
        let mut volume = self.volume.lock();
        if let Err(error) = &result {
            volume.fail(&error.to_string());
        } else {
            volume.finish_checkpoint(&prepared);
            volume.note_freed(&prepared.freed);
            let took = volume.clock.uptime().saturating_sub(start);
            volume.note_checkpoint_time(took, blocks);
        }
        result.map(|()| true)
    }

    /// Writes what a checkpoint must not leave in memory, piece by piece, so that nobody waits long for the lock. What comes meanwhile is
    /// left to the checkpoint itself.
    fn write_ordered_in_pieces(&self) -> Result<()> {
        let pieces = self.with_volume(|volume| volume.dirty_file_pages.div_ceil(PIECE));
        for _ in 0..pieces {
            let mut volume = self.volume.lock();
            if volume.ordered.is_empty() || !volume.is_writable() {
                return Ok(());
            }
            let result = volume.write_ordered(PIECE);
            note_failure(&mut volume, &result);
            result?;
        }
        Ok(())
    }

    /// Makes a prepared checkpoint hold.
    fn commit(&self, prepared: &Prepared) -> Result<()> {
        self.flush()?;
        self.device.write_at(u64::from(prepared.tail_address) * BLOCK_SIZE as u64, &prepared.tail)?;
        self.flush()
    }

    /// Writes all dirty data and then a checkpoint.
    pub(crate) fn sync_all(&self, cause: CheckpointCause) -> Result<()> {
        self.make_room()?;
        {
            let mut volume = self.volume.lock();
            if volume.is_writable() {
                let result = volume.write_back_all();
                note_failure(&mut volume, &result);
                result?;
            }
        }
        self.checkpoint_if(false, cause).map(|_| ())
    }

    /// A bounded piece of background work, and when to ask again.
    pub(crate) fn do_background(&self, now: Time) -> Background {
        let (commit, interval) =
            self.with_volume(|volume| (volume.options.commit_interval, volume.options.checkpoint_interval));
        let wait = commit.min(interval).max(Duration::from_millis(100));
        let open = self.keep_open();
        if open.is_err() && !mutant::active(Mutant::TickWhileClosing) {
            return Background { next: wait };
        }
        let due = {
            let mut timing = self.timing.lock();
            let since = now.seconds.saturating_sub(timing.committed.seconds);
            let due = since < 0 || since as u64 >= wait.as_secs().max(1);
            if due {
                timing.committed = now;
            }
            due
        };
        if due && let Err(error) = self.sync_all(CheckpointCause::Interval) {
            tracing::error!(%error, "background commit failed");
        }
        // Halves, so that nothing waits much longer than the interval.
        let next = if self.discard_some() { discard::PAUSE.min(wait / 2) } else { wait / 2 };
        Background { next: self.clean_when_idle().map_or(next, |clean| clean.min(next)) }
    }

    /// A bounded piece of cleaning if the volume is idle; when to ask again for more of it, if ever.
    fn clean_when_idle(&self) -> Option<Duration> {
        let (more, commit) = {
            let mut volume = self.volume.lock();
            if !volume.is_writable() || !volume.options.background_cleaning {
                return None;
            }
            let idle = volume.clock.uptime().saturating_sub(volume.last_used);
            let missing = volume.options.idle_after.saturating_sub(idle);
            if !missing.is_zero() {
                return Some(missing);
            }
            let result = volume.clean_idle(IDLE_STEP);
            note_failure(&mut volume, &result);
            let more = result.unwrap_or_default();
            (more, if more { volume.wants_sections_freed(true) } else { volume.cleaner.has_emptied() })
        };
        if commit && let Err(error) = self.free_cleaned(CleaningCause::Background, true) {
            tracing::error!(%error, "background cleaning failed");
            return None;
        }
        more.then_some(IDLE_PAUSE)
    }

    /// What was written, cleaned and committed since the volume was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.with_volume(Volume::statistics)
    }

    /// The sections that cleaning emptied last, oldest first, at most 1024; their numbers tell whether some were missed. Those
    /// emptied to make the volume smaller are not among them.
    #[must_use]
    pub fn recent_victims(&self) -> Vec<Victim> {
        self.with_volume(|volume| volume.cleaner.recent().iter().copied().collect())
    }
}

/// What has to happen before a change.
enum Next {
    /// Nothing more.
    Go,
    /// A commit, to free sections; whether they are needed at once.
    Commit { wait: bool },
    /// A checkpoint, or cleaning could not go on, recovery would run out of space, or memory would.
    Checkpoint(CheckpointCause),
    /// Cleaning until there is room.
    Clean,
}

/// The bounded part of making room, with the volume locked.
fn step(volume: &mut Volume, weight: u32) -> Result<Next> {
    relieve_pressure(volume)?;
    if volume.holds_too_much_for_checkpoint() {
        return Ok(Next::Checkpoint(CheckpointCause::Memory));
    }
    if volume.is_recovery_cramped() {
        return Ok(Next::Checkpoint(TO_CLEAN));
    }
    let paced = match volume.pressure() {
        Pressure::Low => return Ok(Next::Clean),
        Pressure::None => {
            volume.forgive_cleaning();
            false
        }
        pressure @ (Pressure::Paced(_) | Pressure::Hard) => {
            let due = volume.cleaning_due(weight, pressure);
            let gains = volume.clean_step(due)?;
            if !gains && volume.is_held_by_checkpoint() {
                return Ok(Next::Checkpoint(TO_CLEAN));
            }
            gains
        }
    };
    let is_full = paced && volume.journal.written.is_some() && volume.is_commit_full();
    let wait = is_full || volume.wants_sections_freed(false);
    // A commit that waits for its flush frees what it can.
    let is_due = wait || volume.journal.written.is_none() && volume.wants_sections_freed(paced);
    Ok(if is_due { Next::Commit { wait } } else { Next::Go })
}

impl Volume {
    /// Whether what can be written back and forgotten by a checkpoint alone takes more than an eighth of the memory for caches. Dirty pages and
    /// nodes can go to their logs instead; changed entries of the NAT cannot.
    fn holds_too_much_for_checkpoint(&self) -> bool {
        let entries = self.nat.dirty.len() + self.journal.notes();
        entries > (self.options.cache_bytes / 8 / NAT_ENTRY_BYTES).max(NAT_ENTRIES_MIN)
    }
}

/// Writes back what is dirty beyond the limits, in pieces large enough for large requests.
fn relieve_pressure(volume: &mut Volume) -> Result<()> {
    let pages = volume.dirty_file_pages + volume.dirty_directory_pages;
    if let Some(over) = pages.checked_sub(volume.dirty_page_limit()).filter(|&over| over > 0) {
        volume.write_back_some(over.max(PIECE))?;
    }
    let limit = volume.options.cache_bytes / 4 / BLOCK_SIZE;
    if let Some(over) = volume.nodes.dirty_count().checked_sub(limit).filter(|&over| over > 0) {
        volume.write_some_nodes(over.max(PIECE))?;
    }
    Ok(())
}
