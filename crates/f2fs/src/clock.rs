//! Where the engine's time comes from: injected, so that a run can be repeated.

use std::time::{SystemTime, UNIX_EPOCH};

use basalt_vfs::Time;

/// A source of time.
pub trait Clock: Send + Sync {
    /// The current time; may jump as the system's clock does.
    fn now(&self) -> Time;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
            // A clock set before 1970.
            Err(before) => Time { seconds: -(before.duration().as_secs() as i64), nanoseconds: 0 },
        }
    }
}
