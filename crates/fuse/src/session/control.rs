//! What other threads may ask of a session while it is served, and what they may know of it.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Between a session, its background thread, and others.
#[derive(Debug, Default)]
pub(crate) struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The connection has ended, or the kernel waits for the file system to be closed.
    is_over: bool,
    /// The background thread shall end.
    is_stopped: bool,
    /// How often somebody wanted everything to be written back.
    wanted: u64,
    /// How many of those have been met.
    met: u64,
}

/// What the background thread shall do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing was asked for.
    Tick,
    /// Have the kernel write back what it holds; [`Control::have_written`] with this number tells who waits.
    WriteBack(u64),
    /// End.
    Stop,
}

impl Control {
    /// Takes note that the session ends by itself.
    pub(super) fn end(&self) {
        self.state.lock().is_over = true;
    }

    /// Whether it does.
    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Ends the background thread after what it does now.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// For the background thread: waits, no longer than `pause`.
    pub(super) fn next(&self, pause: Duration) -> Next {
        let deadline = Instant::now() + pause;
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return Next::Stop;
            }
            if state.met < state.wanted {
                return Next::WriteBack(state.wanted);
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return if state.is_stopped { Next::Stop } else { Next::Tick };
            }
        }
    }

    /// Everything was written back that the kernel held when this was wanted.
    pub(super) fn have_written(&self, number: u64) {
        self.state.lock().met = number;
        self.changed.notify_all();
    }

    /// Has everything written back, and waits for that; whether it was done in time.
    pub(crate) fn write_back(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        state.wanted += 1;
        let number = state.wanted;
        self.changed.notify_all();
        while state.met < number && !state.is_stopped {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.met >= number
    }
}
