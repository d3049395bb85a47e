//! What keeps a volume going: room for every change, checkpoints, background work.
//!
//! Nothing here is called with a lock held; the order of the locks is that of `ops`.

use std::time::Duration;

use basalt_vfs::{Background, Time};

use crate::checkpoint::write::Prepared;
use crate::error::Result;
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::ops::{F2fs, note_failure};
use crate::volume::Volume;

/// Rounds of cleaning one operation may be made to wait for.
const CLEANING_ROUNDS: u32 = 64;

/// When background work was done last.
pub(crate) struct Timing {
    committed: Time,
    /// The volume has been closed: there is nothing left to do.
    pub closed: bool,
}

impl Timing {
    /// Of a volume whose last checkpoint is as old as `now`.
    pub(crate) fn new(now: Time) -> Timing {
        Timing { committed: now, closed: false }
    }
}

impl F2fs {
    /// Writes back when too much is dirty, cleans when free sections run short.
    pub(crate) fn make_room(&self) -> Result<()> {
        {
            let mut volume = self.volume.lock();
            if !volume.is_writable() {
                return Ok(());
            }
            let result = relieve_pressure(&mut volume);
            note_failure(&mut volume, &result);
            result?;
            if !volume.is_short_of_sections() {
                return Ok(());
            }
        }
        self.clean()
    }

    /// Foreground cleaning: until enough sections are free, or nothing is to be gained.
    fn clean(&self) -> Result<()> {
        for _ in 0..CLEANING_ROUNDS {
            let before = {
                let mut volume = self.volume.lock();
                if !volume.is_short_of_sections() || !volume.is_writable() {
                    return Ok(());
                }
                if volume.table.prefree_sections() == 0 {
                    let result = volume.clean_round();
                    note_failure(&mut volume, &result);
                    if !result? {
                        return Ok(());
                    }
                }
                volume.table.free_sections()
            };
            self.checkpoint_if(true, false)?;
            if self.volume.lock().table.free_sections() <= before {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes a checkpoint if something changed, or if `force`; with `unmount` one of a clean volume.
    pub(crate) fn checkpoint_if(&self, force: bool, unmount: bool) -> Result<()> {
        let _turn = self.turn.lock();
        let prepared = {
            let mut volume = self.volume.lock();
            if let Some(reason) = &volume.failed {
                return Err(basalt_vfs::Error::Io(reason.clone()).into());
            }
            let due = volume.changed || force || unmount && volume.was_unclean();
            if !due || !volume.is_writable() {
                return Ok(());
            }
            let result = volume.prepare_checkpoint(unmount);
            note_failure(&mut volume, &result);
            result?
        };
        let result = self.commit(&prepared);
        let _reuse = self.reuse.write();
        let mut volume = self.volume.lock();
        if let Err(error) = &result {
            volume.fail(&error.to_string());
        } else {
            volume.finish_checkpoint(&prepared);
        }
        result
    }

    /// Makes a prepared checkpoint hold, and tells the device what it freed.
    fn commit(&self, prepared: &Prepared) -> Result<()> {
        self.device.flush()?;
        self.device.write_at(u64::from(prepared.tail_address) * BLOCK_SIZE as u64, &prepared.tail)?;
        self.device.flush()?;
        let (discard, main) = self.with_volume(|volume| (volume.options.discard, volume.geometry.main));
        if discard {
            for (segment, count) in runs(&prepared.freed) {
                let block = u64::from(main) + u64::from(segment) * u64::from(BLOCKS_PER_SEGMENT);
                let length = u64::from(count) * u64::from(BLOCKS_PER_SEGMENT) * BLOCK_SIZE as u64;
                if let Err(error) = self.device.discard(block * BLOCK_SIZE as u64, length) {
                    // Only a hint.
                    tracing::warn!(%error, "discard failed");
                }
            }
        }
        Ok(())
    }

    /// Writes all dirty data and then a checkpoint.
    pub(crate) fn sync_all(&self, unmount: bool) -> Result<()> {
        self.make_room()?;
        {
            let mut volume = self.volume.lock();
            if volume.is_writable() {
                let result = volume.write_back_all();
                note_failure(&mut volume, &result);
                result?;
            }
        }
        self.checkpoint_if(false, unmount)
    }

    /// A bounded piece of background work, and when to ask again.
    pub(crate) fn do_background(&self, now: Time) -> Background {
        let (commit, interval) =
            self.with_volume(|volume| (volume.options.commit_interval, volume.options.checkpoint_interval));
        let wait = commit.min(interval).max(Duration::from_millis(100));
        let due = {
            let mut timing = self.timing.lock();
            let since = now.seconds.saturating_sub(timing.committed.seconds);
            let due = !timing.closed && (since < 0 || since as u64 >= wait.as_secs().max(1));
            if due {
                timing.committed = now;
            }
            due
        };
        if due && let Err(error) = self.sync_all(false) {
            tracing::error!(%error, "background commit failed");
        }
        // Halves, so that nothing waits much longer than the interval.
        Background { next: wait / 2 }
    }
}

fn relieve_pressure(volume: &mut Volume) -> Result<()> {
    if volume.dirty_file_pages > volume.dirty_page_limit() {
        volume.write_back_all()?;
    }
    if volume.nodes.dirty_count() * BLOCK_SIZE > volume.options.cache_bytes / 4 {
        volume.write_back_directories()?;
        volume.write_nodes()?;
    }
    Ok(())
}

/// Neighbouring numbers of a sorted list, as first and count.
fn runs(sorted: &[u32]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in sorted {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == number => *count += 1,
            _ => runs.push((number, 1)),
        }
    }
    runs
}
