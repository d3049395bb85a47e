//! Background work: calls `FileSystem::tick` when the file system wants it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use basalt_vfs::{Background, FileSystem, Time};
use parking_lot::{Condvar, Mutex};

/// The shortest pause between two ticks, so that a file system that always wants more leaves room for others.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest, so that one that wants nothing is still asked.
const LONGEST: Duration = Duration::from_secs(60);

/// Ends [`run`](Self::run) from another thread.
#[derive(Default)]
pub(super) struct Ticker {
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Ticker {
    /// Calls `tick` until [`stop`](Self::stop).
    pub(super) fn run(&self, fs: &dyn FileSystem) {
        let mut stopped = self.stopped.lock();
        while !*stopped {
            let pause = parking_lot::MutexGuard::unlocked(&mut stopped, || {
                let tick = catch_unwind(AssertUnwindSafe(|| fs.tick(now())));
                let Background { next } = tick.unwrap_or_else(|_| {
                    tracing::error!("background work panicked");
                    Background { next: LONGEST }
                });
                next.clamp(SHORTEST, LONGEST)
            });
            if !*stopped {
                self.wake.wait_for(&mut stopped, pause);
            }
        }
    }

    /// Makes [`run`](Self::run) return after the tick under way.
    pub(super) fn stop(&self) {
        *self.stopped.lock() = true;
        self.wake.notify_all();
    }
}

fn now() -> Time {
    // A clock before 1970 counts as 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs().try_into().unwrap_or(i64::MAX), nanoseconds: since.subsec_nanos() }
}
