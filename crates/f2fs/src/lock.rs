//! The locks that a volume's state is behind, and what a panic under them means.
//!
//! A panic in the middle of a change leaves memory half-changed, and whoever catches it (a server goes on with its other requests) gives
//! the lock back all the same. The next checkpoint would write that state. So a lock that is given back by a panic fails the volume first:
//! nothing is written any more, and the last checkpoint counts.

use std::ops::{Deref, DerefMut};
use std::thread::panicking;

use crate::mutant::{self, Mutant};
use crate::ops::F2fs;
use crate::sync::{Mutex, MutexGuard};
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

impl F2fs {
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
