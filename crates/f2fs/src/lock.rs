//! An open volume's locks, and what a panic under them means.
//!
//! They are always taken in this order: `closed` (shared by changes, exclusive for closing), `cleaning` (one cleaner at
//! a time), `turn` (one checkpoint at a time, held over flushes), `reuse` (shared by readers while they read from the
//! device; exclusive while blocks become free), `volume` (everything in memory; held over no request but a read of one
//! block, writes beyond the 64 MiB that may wait, and the discards of FITRIM where few sections are free).
//!
//! A panic in the middle of a change leaves memory half-changed, and whoever catches it (a server goes on with its other requests) gives
//! the lock back all the same. The next checkpoint would write that state. So a lock that is given back by a panic fails the volume first:
//! nothing is written any more, and the last checkpoint counts.

use basalt_segments::Durable;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::panicking;

use basalt_device::BlockDevice;
use basalt_vfs::Time;

use crate::error::Result;
use crate::flushes::Flushes;
use crate::layout::Ino;
use crate::mutant::{self, Mutant};
use crate::options::Reclaim;
use crate::submission::Submission;
use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use crate::volume::Volume;

/// Why a volume that saw a panic takes no more changes.
const PANICKED: &str = "a bug stopped an operation half-way (a panic; its message is in the log)";

/// The lock of everything in memory.
pub(crate) struct VolumeLock(Mutex<Volume>);

impl VolumeLock {
    pub(crate) fn new(volume: Volume) -> VolumeLock {
        VolumeLock(Mutex::new(volume))
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> VolumeGuard<'_> {
        VolumeGuard { was_panicking: panicking(), held: self.0.lock() }
    }
}

/// The volume, locked until this is dropped.
pub(crate) struct VolumeGuard<'a> {
    held: MutexGuard<'a, Volume>,
    was_panicking: bool,
}

impl Deref for VolumeGuard<'_> {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.held
    }
}

impl DerefMut for VolumeGuard<'_> {
    fn deref_mut(&mut self) -> &mut Volume {
        &mut self.held
    }
}

impl Drop for VolumeGuard<'_> {
    fn drop(&mut self) {
        if panicking() && !self.was_panicking {
            self.held.fail(PANICKED);
        }
    }
}

/// The turn of checkpoints, and whatever else must end for the volume to go on. Dropped by a panic, it fails the volume.
pub(crate) struct Turn<'a> {
    fs: &'a F2fs,
    was_panicking: bool,
    _held: Option<MutexGuard<'a, ()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if panicking() && !self.was_panicking {
            self.fs.volume.lock().fail(PANICKED);
        }
    }
}

/// How closing ended: `Some` as soon as it has begun.
pub(crate) type Closed = Option<std::result::Result<(), String>>;

/// A volume that stays open as long as this is held.
pub(crate) type Open<'a> = RwLockReadGuard<'a, Closed>;

/// An open F2FS volume.
pub struct F2fs {
    pub(crate) volume: VolumeLock,
    /// How closing ended, if it has begun. Held shared by every change, exclusively by closing.
    pub(crate) closed: RwLock<Closed>,
    /// Held by who cleans: the plan, what is read ahead for it, and the moves belong together.
    pub(crate) cleaning: Mutex<()>,
    /// Changes that were made. What was made room for before one may be taken after it.
    pub(crate) changes: AtomicU64,
    pub(crate) turn: Mutex<()>,
    pub(crate) reuse: RwLock<()>,
    pub(crate) device: Arc<Submission>,
    pub(crate) root: Ino,
    /// When background work last committed, by the clock.
    pub(crate) committed: Mutex<Time>,
    pub(crate) flushes: Flushes,
    /// Where logs go on, as the options say: asked before every change, and so without the volume's lock.
    pub(crate) reclaim: Reclaim,
}

impl F2fs {
    /// What was unusual when the volume was opened, one line each.
    pub fn warnings(&self) -> Vec<String> {
        self.volume.lock().warnings.clone()
    }

    /// Why the volume takes no changes any more, if an error made it so.
    pub fn failure(&self) -> Option<String> {
        self.volume.lock().failed.clone()
    }

    /// Whether changes are possible.
    pub fn is_writable(&self) -> bool {
        self.volume.lock().is_writable()
    }

    pub(crate) fn with_volume<T>(&self, work: impl FnOnce(&Volume) -> T) -> T {
        work(&self.volume.lock())
    }

    /// Returns once a flush has succeeded that is this one or began later.
    pub(crate) fn wait_for_flush(&self, number: u64) -> Result<()> {
        if mutant::active(Mutant::FsyncNotFlushed) {
            return Ok(());
        }
        self.flushes.wait_for(number, || self.flush_device()).map(|_| ())
    }

    /// Makes everything durable that was handed to the device before. Errors: those of the device, and EIO on a volume that has failed.
    pub(crate) fn flush(&self) -> Result<Durable> {
        self.flushes.wait_for(self.flushes.next(), || self.flush_device())
    }

    /// Flushes the device; a failure is noted before anybody is told, or the next flush may begin.
    pub(crate) fn flush_device(&self) -> Result<()> {
        if let Some(reason) = self.failure() {
            return Err(basalt_vfs::Error::Io(reason).into());
        }
        let _must_end = self.must_end();
        let result = self.device.flush();
        if let Err(error) = &result {
            self.volume.lock().fail(&error.to_string());
        }
        Ok(result?)
    }

    /// Waits for the turn of checkpoints: one at a time, held over flushes.
    pub(crate) fn take_turn(&self) -> Turn<'_> {
        if mutant::active(Mutant::TurnIgnored) {
            return self.must_end();
        }
        Turn { fs: self, was_panicking: panicking(), _held: Some(self.turn.lock()) }
    }

    /// The turn, if nobody has it.
    pub(crate) fn try_turn(&self) -> Option<Turn<'_>> {
        let held = self.turn.try_lock()?;
        Some(Turn { fs: self, was_panicking: panicking(), _held: Some(held) })
    }

    /// For work outside of every lock that must not end half-way.
    pub(crate) fn must_end(&self) -> Turn<'_> {
        Turn { fs: self, was_panicking: panicking(), _held: None }
    }
}

/// Turns the volume read-only when a change failed half-way: device errors and damage, not refusals.
pub(crate) fn note_failure<T>(volume: &mut Volume, result: &Result<T>) {
    if let Err(error) = result
        && error.is_failure()
    {
        volume.fail(&error.to_string());
    }
}
