//! Flushes that all who wait for one share.
//!
//! They are numbered and run one at a time. Whoever has written everything, if only to the queue that a flush hands over first
//! ([`submission`](crate::submission)), asks for the number of the first flush to begin from then on ([`Flushes::next`]) and waits
//! for it ([`Flushes::wait_for`]): the first to find none running runs one, for all; the others sleep, and are woken together
//! when it is over. A failure is final for everybody who waits, then and later:
//! what the flush should have made durable may be gone, and one that succeeds after it does not bring that back.
//!
//! The lock here is the last to be taken, and is not held over a flush. `crates/f2fs-shuttled` tries the interleavings.

use basalt_segments::Durable;

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex};

/// The flushes of one volume.
#[derive(Default)]
pub(crate) struct Flushes {
    state: Mutex<State>,
    /// A flush is over.
    over: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the last that began.
    begun: u64,
    /// The number of the last that succeeded, and the proof.
    succeeded: Option<(u64, Durable)>,
    running: bool,
    /// Why there are no more.
    failed: Option<String>,
}

impl State {
    /// The proof that a flush has succeeded that is this one or began later.
    fn proof_of(&self, number: u64) -> Option<Durable> {
        self.succeeded.filter(|(last, _)| *last >= number).map(|(_, durable)| durable)
    }
}

impl Flushes {
    /// The number of the first flush to begin after now.
    pub(crate) fn next(&self) -> u64 {
        self.state.lock().begun + 1
    }

    /// Whether a flush has succeeded that is this one or began later.
    pub(crate) fn has_succeeded(&self, number: u64) -> bool {
        self.state.lock().proof_of(number).is_some()
    }

    /// Returns the proof once a flush has succeeded that is this one or began later; `flush` runs one if nobody else does.
    ///
    /// Errors: those of `flush`, and EIO with the same words after it has failed for another caller.
    pub(crate) fn wait_for(&self, number: u64, flush: impl FnOnce() -> Result<()>) -> Result<Durable> {
        let mut state = self.state.lock();
        loop {
            if let Some(durable) = state.proof_of(number) {
                return Ok(durable);
            }
            if let Some(reason) = &state.failed {
                return Err(basalt_vfs::Error::Io(reason.clone()).into());
            }
            if !state.running {
                break;
            }
            self.over.wait(&mut state);
        }
        state.begun += 1;
        state.running = true;
        let mut run = Run { flushes: self, number: state.begun, ended: Err("a flush never ended".to_owned()) };
        drop(state);
        let result = Durable::by(flush);
        run.ended = result.as_ref().copied().map_err(Error::to_string);
        drop(run);
        result
    }
}

/// A flush that runs. Its end reaches everybody who waits, even where it ends in a panic.
struct Run<'a> {
    flushes: &'a Flushes,
    number: u64,
    /// The proof, or why there is none.
    ended: std::result::Result<Durable, String>,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut state = self.flushes.state.lock();
        state.running = false;
        match &self.ended {
            Ok(durable) => state.succeeded = Some((self.number, *durable)),
            Err(reason) => state.failed = Some(reason.clone()),
        }
        drop(state);
        self.flushes.over.notify_all();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn what_a_flush_covered_needs_no_other() {
        let flushes = Flushes::default();
        let (first, again) = (flushes.next(), flushes.next());
        assert_eq!(first, again, "nothing has begun in between");
        flushes.wait_for(first, || Ok(())).unwrap();
        flushes.wait_for(again, || panic!("covered by the first")).unwrap();
        assert_eq!(flushes.next(), first + 1);
    }

    #[test]
    fn a_flush_that_began_before_proves_nothing() {
        let flushes = Flushes::default();
        flushes.wait_for(flushes.next(), || Ok(())).unwrap();
        let (later, mut has_run) = (flushes.next(), false);
        assert!(!flushes.has_succeeded(later));
        let flush = || {
            has_run = true;
            Ok(())
        };
        flushes.wait_for(later, flush).unwrap();
        assert!(has_run && flushes.has_succeeded(later));
    }

    #[test]
    fn a_flush_that_panics_has_failed() {
        let flushes = Flushes::default();
        let panicking = AssertUnwindSafe(|| flushes.wait_for(1, || panic!("a device gone mad")));
        assert!(catch_unwind(panicking).is_err());
        let error = flushes.wait_for(2, || panic!("after a failure there is no other")).unwrap_err();
        assert!(error.to_string().contains("never ended"), "{error}");
    }
}
