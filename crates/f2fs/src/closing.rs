//! Closing: from its beginning on no other change begins, and none after it.
//!
//! Closing writes a last checkpoint, and then takes away the mark that a cleaning journal is live. A change in between could commit to
//! the journal, and the next mount would not look there. So every change holds [`F2fs::closed`] shared while it runs, background work
//! as well, and closing holds it exclusively. It comes in front of every other lock, and nothing that holds it asks for it again.

use basalt_vfs::Error;

use crate::error::Result;
use crate::hotness::keep::Due;
use crate::lock::{F2fs, Open, note_failure};
use crate::mutant::{self, Mutant};
use crate::open::free_orphans;
use crate::statistics::CheckpointCause;

impl F2fs {
    /// Keeps the volume open for a change. Waits for nobody.
    ///
    /// Errors: EIO if the volume is closed, or is being closed.
    pub(crate) fn keep_open(&self) -> basalt_vfs::Result<Open<'_>> {
        let open = self.closed.try_read().filter(|closed| closed.is_none());
        open.ok_or_else(|| Error::Io("the volume is closed".to_owned()))
    }

    /// Makes something durable by `work`. A closing that has begun makes everything durable: its end is waited for then.
    ///
    /// Errors: those of `work`, and those that closing ended with.
    pub(crate) fn durable_by(&self, work: impl FnOnce() -> Result<()>) -> basalt_vfs::Result<()> {
        let closed = self.closed.read();
        match &*closed {
            None => Ok(work()?),
            Some(outcome) => outcome.clone().map_err(Error::Io),
        }
    }

    /// Makes everything durable and leaves a clean volume, once the changes under way are done. A second call only tells how the first
    /// one ended.
    ///
    /// Errors: the device's; EIO on a volume that has failed.
    pub(crate) fn close_once(&self) -> Result<()> {
        let mut closed = self.closed.write();
        if let Some(outcome) = &*closed {
            return Ok(outcome.clone().map_err(Error::Io)?);
        }
        // Whoever meets a panic in here finds it closed, too.
        *closed = Some(Err("closing the volume was not finished".to_owned()));
        if mutant::active(Mutant::ChangesWhileClosing) {
            *closed = None;
            drop(closed);
            return self.close_volume();
        }
        let result = self.close_volume();
        *closed = Some(result.as_ref().map_err(ToString::to_string).copied());
        result
    }

    fn close_volume(&self) -> Result<()> {
        {
            let mut volume = self.volume.lock();
            volume.closing = true;
            if volume.is_writable() {
                // Nobody can use an unlinked file any more.
                let result = free_orphans(&mut volume);
                note_failure(&mut volume, &result);
                result?;
            }
        }
        if mutant::active(Mutant::GuardClearedEarly) {
            self.clear_guard()?;
        }
        self.sync_all(CheckpointCause::Close)?;
        self.discard_all();
        self.keep_hotness(Due::Closing);
        self.clear_guard()
    }
}
