//! What keeps a volume going: checkpoints and background work.
//!
//! Nothing here is called with a lock held; the order of the locks is that of `lock`.

use basalt_segments::{Durable, Quiet};
use std::time::Duration;

use basalt_device::BlockDevice;
use basalt_segments::cleaning::Victim;
use basalt_segments::slack::DeviceTimes;
use basalt_vfs::{Background, Emptied, Time};

use crate::checkpoint::write::Prepared;
use crate::discard;
use crate::error::Result;
use crate::hotness::keep::Due;
use crate::layout::BLOCK_SIZE;
use crate::lock::{F2fs, note_failure};
use crate::log::slack::SlackPace;
use crate::mutant::{self, Mutant};
use crate::statistics::{CheckpointCause, CleaningCause, Statistics};
use crate::volume::Volume;

/// Dirty nodes, 16 MiB of them, that a checkpoint writes under the volume's lock. Those beyond are written before, piece by piece.
const NODES_OF_CHECKPOINT: usize = 4096;
/// Live blocks moved by one piece of background cleaning.
const IDLE_STEP: u32 = 128;
/// Sections that are emptied together because somebody asked for it: they take room until they are freed.
const REQUESTED_TOGETHER: u32 = 8;
/// Pause between two pieces of background cleaning.
const IDLE_PAUSE: Duration = Duration::from_millis(10);

impl F2fs {
    /// Frees sections that were emptied, by the journal or by a checkpoint. Unless `wait`, the journal's commit may still lack its flush,
    /// and nothing is done where somebody else has the turn, who frees them.
    pub(crate) fn free_cleaned(&self, cause: CleaningCause, wait: bool) -> Result<()> {
        let turn = if wait { Some(self.take_turn()) } else { self.try_turn() };
        let Some(_turn) = turn else { return Ok(()) };
        let uptime = || self.with_volume(|volume| volume.clock.uptime());
        let start = uptime();
        let journaled = self.commit_by_journal(cause, wait)?;
        let written = !journaled && self.checkpoint_in_turn(false, CheckpointCause::Cleaning(cause))?;
        let took = uptime().saturating_sub(start);
        let mut volume = self.volume.lock();
        volume.record.spent_committing(cause, took, written);
        Ok(())
    }

    /// Writes a checkpoint if there is reason to: something changed, or, where sections are to be freed, there are some; with
    /// `force` always. For [`CheckpointCause::Close`] it is one of a clean volume. Returns whether one was written.
    pub(crate) fn checkpoint_if(&self, force: bool, cause: CheckpointCause) -> Result<bool> {
        let _turn = self.take_turn();
        self.checkpoint_in_turn(force, cause)
    }

    /// Writes a checkpoint if sections' worth of dead blocks wait for one: whoever had the turn before may have taken it.
    pub(crate) fn checkpoint_where_held(&self, cause: CleaningCause) -> Result<()> {
        let _turn = self.take_turn();
        if self.with_volume(Volume::is_held_by_checkpoint) {
            self.checkpoint_in_turn(true, CheckpointCause::Cleaning(cause))?;
        }
        Ok(())
    }

    /// As [`checkpoint_if`](Self::checkpoint_if), by who has the turn.
    fn checkpoint_in_turn(&self, force: bool, cause: CheckpointCause) -> Result<bool> {
        self.write_ordered_in_pieces()?;
        let nodes = self.with_volume(|volume| volume.nodes.dirty_count());
        self.write_in_pieces(nodes.saturating_sub(NODES_OF_CHECKPOINT), Volume::write_some_nodes)?;
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
                CheckpointCause::Cleaning(_) => {
                    volume.cleaner.sections_to_be_freed(&volume.table) > 0 || volume.slack_awaiting_commit() > 0
                }
                CheckpointCause::Memory => volume.holds_too_much_for_checkpoint(),
                _ => volume.checkpoint.has_changes() || unmount && volume.was_unclean(),
            };
            if !due || !volume.is_writable() {
                return Ok(false);
            }
            volume.record.began_checkpoint(cause);
            let result = volume.prepare_checkpoint(unmount);
            note_failure(&mut volume, &result);
            (result?, start, blocks)
        };
        let result = self.commit(&prepared);
        let _reuse = self.reuse.write();
        let mut volume = self.volume.lock();
        match result {
            Ok(durable) => {
                volume.finish_checkpoint(&prepared, durable);
                volume.note_freed(&prepared.freed);
                let took = volume.clock.uptime().saturating_sub(start);
                volume.note_checkpoint_time(took, blocks);
                let result = volume.note_slack_committed(&Quiet::while_locked());
                note_failure(&mut volume, &result);
                result.map(|()| true)
            }
            Err(error) => {
                volume.fail(&error.to_string());
                Err(error)
            }
        }
    }

    /// Makes a prepared checkpoint hold.
    fn commit(&self, prepared: &Prepared) -> Result<Durable> {
        self.submit()?;
        self.flush()?;
        self.device.write_at(u64::from(prepared.tail_address) * BLOCK_SIZE as u64, &prepared.tail)?;
        self.flush()
    }

    /// Writes all dirty data and then a checkpoint.
    pub(crate) fn sync_all(&self, cause: CheckpointCause) -> Result<()> {
        self.make_room()?;
        let dirty = self.with_volume(|volume| volume.pages.dirty_pages());
        self.write_recoverably(dirty, Volume::write_back_first)?;
        // What became dirty meanwhile may have been written instead of what was before.
        self.decide(|volume| if volume.is_writable() { volume.write_back_all() } else { Ok(()) })?;
        self.checkpoint_if(false, cause).map(|_| ())
    }

    /// Cleans because somebody asks for it: up to so many sections, which are free on return. Where the last checkpoint needs what there is to
    /// gain, another is written first.
    pub(crate) fn clean_and_free(&self, most: u32) -> Result<Emptied> {
        self.with_volume(|volume| volume.expect_writable())?;
        self.make_room()?;
        let together = most.min(REQUESTED_TOGETHER);
        let (mut sections, mut blocks_moved) = self.clean_on_request(together)?;
        if sections == 0 && most > 0 && self.with_volume(Volume::is_held_by_checkpoint) {
            self.checkpoint_where_held(CleaningCause::Background)?;
            let more = self.clean_on_request(together)?;
            (sections, blocks_moved) = (more.0, blocks_moved + more.1);
        }
        let waits = |volume: &Volume| most > 0 && volume.cleaner.sections_to_be_freed(&volume.table) > 0;
        if self.with_volume(|volume| volume.cleaner.has_emptied() || waits(volume)) {
            self.free_cleaned(CleaningCause::Background, true)?;
        }
        let (free_sections, all_sections) =
            self.with_volume(|volume| (volume.table.free_sections(), volume.table.sections()));
        Ok(Emptied { sections, blocks_moved, free_sections, all_sections })
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
            let mut committed = self.committed.lock();
            let since = now.seconds.saturating_sub(committed.seconds);
            let due = since < 0 || since as u64 >= wait.as_secs().max(1);
            if due {
                *committed = now;
            }
            due
        };
        // A volume that has failed has nothing to commit, and says so once.
        if due
            && self.failure().is_none()
            && let Err(error) = self.sync_all(CheckpointCause::Interval)
        {
            tracing::error!(%error, "background commit failed");
        }
        self.keep_hotness(Due::Periodic);
        self.take_learned_times();
        // Halves, so that nothing waits much longer than the interval.
        let next = if self.discard_some() { discard::PAUSE.min(wait / 2) } else { wait / 2 };
        Background { next: self.clean_when_idle().map_or(next, |clean| clean.min(next)) }
    }

    /// From now on the device takes so long for runs of blocks: what [`Reclaim::Partial`](crate::Reclaim::Partial) plans by. What is planned
    /// already stays so. [`OpenOptions::times`](crate::OpenOptions::times) are those of the beginning; a
    /// [`learner`](crate::OpenOptions::learner) that learns anything replaces these, too.
    pub fn set_device_times(&self, times: DeviceTimes) {
        self.volume.lock().options.times = times;
    }

    /// Plans by what was learned of the device.
    fn take_learned_times(&self) {
        let learner = self.with_volume(|volume| volume.options.learner.clone());
        // Tables are made without the volume's lock.
        if let Some(times) = learner.and_then(|learner| learner.look()) {
            self.set_device_times(times);
        }
    }

    /// A bounded piece of cleaning if the volume is idle; when to ask again for more of it, if ever.
    fn clean_when_idle(&self) -> Option<Duration> {
        {
            let volume = self.volume.lock();
            if !volume.is_writable() || !volume.options.background_cleaning {
                return None;
            }
            let idle = volume.clock.uptime().saturating_sub(volume.last_used);
            let missing = volume.options.idle_after.saturating_sub(idle);
            if !missing.is_zero() {
                return Some(missing);
            }
        }
        // A failure was noted.
        if self.prepare_slack(SlackPace::Idle).unwrap_or_default() {
            return Some(IDLE_PAUSE);
        }
        let more = self.clean_idle(IDLE_STEP).unwrap_or_default();
        let commit = self.with_volume(|volume| if more { volume.wants_commit() } else { volume.cleaner.has_emptied() });
        if commit && let Err(error) = self.free_cleaned(CleaningCause::Background, true) {
            tracing::error!(%error, "background cleaning failed");
            return None;
        }
        more.then_some(IDLE_PAUSE)
    }

    /// What was written, cleaned and committed since the volume was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.with_volume(|volume| volume.record.statistics())
    }

    /// The sections that cleaning emptied last, oldest first, at most 1024; their numbers tell whether some were missed. Those
    /// emptied to make the volume smaller are not among them.
    #[must_use]
    pub fn recent_victims(&self) -> Vec<Victim> {
        self.with_volume(|volume| volume.cleaner.recent().iter().copied().collect())
    }
}
