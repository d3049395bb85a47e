//! Room for every change: writeback when too much is dirty, cleaning when free sections run short.
//!
//! Whoever changes the volume does this work, piece by piece: what is next, the driver of [`basalt_segments::cleaning`] says. Each piece is
//! decided under the volume's lock, and its requests are made without it: see [`submission`](crate::submission).

use std::sync::atomic::Ordering::Relaxed;

use basalt_segments::cleaning::{Cleaner, Driven, Facts, Moved, PIECE, Want, make_room};
use basalt_segments::{Quiet, Segment, SegmentTable};

use crate::error::{Error, Result};
use crate::lock::{F2fs, note_failure};
use crate::log::slack::{SlackPace, SlackStep};
use crate::options::Reclaim;
use crate::statistics::{CheckpointCause, CleaningCause};
use crate::submission::Submission;
use crate::volume::Volume;

/// How often a change makes room of which others take some, before it goes on with what is left.
const ATTEMPTS: usize = 32;

impl F2fs {
    /// As [`make_room_for`](Self::make_room_for) a change that writes little.
    pub(crate) fn make_room(&self) -> Result<()> {
        self.make_room_for(1)
    }

    /// Before a change that writes about `weight` blocks: writes back when too much is dirty, cleans when free sections run short.
    pub(crate) fn make_room_for(&self, weight: u32) -> Result<()> {
        self.finish_flushed_commit()?;
        self.prepare_slack(SlackPace::Change)?;
        if self.device.is_crowded() && self.is_writable() {
            self.noting_failure(Submission::submit_or_leave)?;
        }
        make_room(&mut Writer(self), weight)
    }

    /// Keeps slack ready for the logs where free segments run short: a piece of that work. Whether there was any.
    pub(crate) fn prepare_slack(&self, pace: SlackPace) -> Result<bool> {
        if self.reclaim == Reclaim::Clean {
            return Ok(false);
        }
        let cause = match pace {
            SlackPace::Change => CleaningCause::Foreground,
            SlackPace::Idle => CleaningCause::Background,
        };
        let step = self.volume.lock().next_slack_step(pace);
        match step {
            SlackStep::Wait => return Ok(false),
            SlackStep::HandOut(found) => return self.publish_slack(found),
            SlackStep::Copy(_) => self.copy_islands(pace, cause)?,
            SlackStep::Commit { wait } => self.free_cleaned(cause, wait)?,
            SlackStep::Checkpoint => self.checkpoint_where_held(cause)?,
        }
        Ok(true)
    }

    /// Hands out what is ready, and reserves the slack of these segments, of data and of nodes; unless a checkpoint is under way, or emptying
    /// segments is the better way. Whether there is more of it now.
    pub(crate) fn publish_slack(&self, found: [Vec<Segment>; 2]) -> Result<bool> {
        let Some(_turn) = self.try_turn() else {
            // Not with each change until the turn is free: a search goes through the whole table.
            self.volume.lock().postpone_slack_search();
            return Ok(false);
        };
        // Whoever reads has found its blocks live, and is done once this is held.
        let _reuse = self.reuse.write();
        let mut volume = self.volume.lock();
        if !volume.is_writable() {
            return Ok(false);
        }
        let times = volume.times_with_commit();
        let result = volume.reserve_slack(found, &times, &Quiet::while_locked());
        note_failure(&mut volume, &result);
        result
    }

    /// Makes room for a change that writes about `weight` blocks, and makes it. Where others have taken the room before the change had the
    /// lock, room is made once more: as many as may change the volume at once could otherwise use up all that is free.
    pub(crate) fn change_with_room<T>(&self, weight: u32, change: impl FnOnce(&mut Volume) -> Result<T>) -> Result<T> {
        self.change_after(|| self.make_room_for(weight), change)
    }

    /// As [`change_with_room`](Self::change_with_room), by this way to make room.
    fn change_after<T>(
        &self,
        mut make_room: impl FnMut() -> Result<()>,
        change: impl FnOnce(&mut Volume) -> Result<T>,
    ) -> Result<T> {
        let (mut change, mut attempts) = (Some(change), 0);
        loop {
            let before = self.changes.load(Relaxed);
            make_room()?;
            attempts += 1;
            let done = self.locked(|volume| {
                let have_others_changed = attempts < ATTEMPTS && self.changes.load(Relaxed) != before;
                if have_others_changed && volume.cleaner.is_room_taken(&volume.table, &volume.facts()) {
                    return Ok(None);
                }
                self.changes.fetch_add(1, Relaxed);
                change.take().map(|change| change(volume)).transpose()
            })?;
            if let Some(done) = done {
                return Ok(done);
            }
        }
    }

    /// As [`write_in_pieces`](Self::write_in_pieces); after each piece, there is room to recover what was fsynced. The caller must not hold the
    /// turn: a checkpoint may be taken.
    pub(crate) fn write_recoverably(
        &self,
        blocks: usize,
        write: impl Fn(&mut Volume, usize) -> Result<()>,
    ) -> Result<()> {
        pieces(blocks).try_for_each(|piece| {
            self.write_in_pieces(piece, &write)?;
            self.keep_recoverable()
        })
    }

    /// Takes a checkpoint where recovery would hardly find room any more.
    pub(crate) fn keep_recoverable(&self) -> Result<()> {
        if !self.with_volume(|volume| volume.is_writable() && volume.is_recovery_cramped()) {
            return Ok(());
        }
        self.checkpoint_if(true, CheckpointCause::Cleaning(CleaningCause::Foreground)).map(|_| ())
    }

    /// Has `write` write so many blocks, piece by piece.
    pub(crate) fn write_in_pieces(
        &self,
        blocks: usize,
        write: impl Fn(&mut Volume, usize) -> Result<()>,
    ) -> Result<()> {
        pieces(blocks).try_for_each(|piece| {
            self.decide(|volume| if volume.is_writable() { write(volume, piece) } else { Ok(()) })
        })
    }
}

/// So many blocks in pieces.
fn pieces(blocks: usize) -> impl Iterator<Item = usize> {
    (0..blocks).step_by(PIECE).map(move |done| PIECE.min(blocks - done))
}

/// A writer that makes room before it changes the volume.
struct Writer<'a>(&'a F2fs);

impl Driven for Writer<'_> {
    type Error = Error;

    fn ask<T>(&mut self, question: impl FnOnce(&mut Cleaner, &SegmentTable, &Facts) -> T) -> T {
        let volume = &mut *self.0.volume.lock();
        let facts = volume.facts();
        question(&mut volume.cleaner, &volume.table, &facts)
    }

    fn as_cleaner<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let _one = self.0.cleaning.lock();
        work(self)
    }

    fn plan(&mut self) -> bool {
        self.0.volume.lock().plan_foreground()
    }

    fn follow_plan(&mut self, most: u32) -> Result<Option<Moved>> {
        self.0.follow_plan(CleaningCause::Foreground, most)
    }

    /// The checkpoint that frees what is emptied has to write these pages, and cleaning would take their room.
    fn prepare_round(&mut self) -> Result<()> {
        self.0.write_ordered_in_pieces()?;
        self.0.decide(|volume| volume.write_ordered(usize::MAX))
    }

    fn write_pages(&mut self, count: usize) -> Result<()> {
        self.0.write_recoverably(count, Volume::write_back_some)
    }

    fn write_nodes(&mut self, count: usize) -> Result<()> {
        self.0.write_recoverably(count, Volume::write_some_nodes)
    }

    fn commit(&mut self, wait: bool) -> Result<()> {
        self.0.free_cleaned(CleaningCause::Foreground, wait)
    }

    fn checkpoint(&mut self, want: Want) -> Result<()> {
        let (force, cause) = match want {
            Want::Memory => (false, CheckpointCause::Memory),
            Want::Room => (true, CheckpointCause::Cleaning(CleaningCause::Foreground)),
        };
        self.0.checkpoint_if(force, cause).map(|_| ())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;

    use basalt_device::MemoryDevice;
    use basalt_segments::{Durable, SegmentKind};

    use super::*;
    use crate::clock::SystemClock;
    use crate::format::{FormatOptions, format};
    use crate::options::OpenOptions;

    /// Takes all free segments but one.
    fn take_room(volume: &mut Volume) -> Vec<Segment> {
        let take =
            || (volume.table.free_segments() > 1).then(|| volume.table.open_segment(SegmentKind::WarmData, None));
        std::iter::from_fn(take).flatten().collect()
    }

    fn give_back(volume: &mut Volume, taken: &[Segment]) {
        taken.iter().for_each(|&segment| volume.table.close_segment(segment));
        volume.table.release(taken, Durable::without_device());
    }

    /// Each time that room was made, another change takes it before this one has the lock; it gives it back again, or never does.
    #[test]
    fn a_change_makes_room_again_where_another_has_taken_it() {
        for (takes, expected) in [(0, 1), (1, 2), (5, 6), (usize::MAX, ATTEMPTS)] {
            let device = Arc::new(MemoryDevice::new(64 << 20, 512));
            format(&*device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
            let fs = F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
            let (mut made, mut taken) = (0, Vec::new());
            let make_room = || {
                made += 1;
                fs.change_after(
                    || Ok(()),
                    |volume| {
                        give_back(volume, &taken);
                        taken = if made <= takes { take_room(volume) } else { Vec::new() };
                        Ok(())
                    },
                )
            };
            assert_eq!(fs.change_after(make_room, |_| Ok(7)).unwrap(), 7);
            assert_eq!(made, expected, "{takes} times taken");
        }
    }
}
