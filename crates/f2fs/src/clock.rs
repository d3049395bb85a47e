//! Where the engine's time comes from: injected, so that a run can be repeated.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use basalt_vfs::Time;

/// A source of time.
pub trait Clock: Send + Sync {
    /// The current time; may jump as the system's clock does.
    fn now(&self) -> Time;

    /// Time since some moment in the past, to tell how long something took, or how long nothing happened. Does not go back
    /// where the clock's source does not.
    fn uptime(&self) -> Duration {
        let now = self.now();
        Duration::new(now.seconds.max(0) as u64, now.nanoseconds.min(999_999_999))
    }
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

    fn uptime(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}
