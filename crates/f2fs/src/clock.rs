//! Where the engine's time comes from: injected, so that a run can be repeated.

use std::time::Duration;

use basalt_vfs::Time;
use rustix::time::{ClockId, clock_gettime};

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

    /// As [`uptime`](Self::uptime), by a source that may be a few milliseconds behind but takes less time: asked by every operation.
    fn rough_uptime(&self) -> Duration {
        self.uptime()
    }
}

/// The system's clock, as of the kernel's last tick: the clock by which the kernel stamps files itself. With a finer one, a file
/// that the kernel stamps would be older than one that was stamped here before it, in the same tick.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

#[expect(clippy::disallowed_methods, reason = "the clock that callers give to the engine where they want the system's")]
impl Clock for SystemClock {
    fn now(&self) -> Time {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Time { seconds: now.tv_sec, nanoseconds: now.tv_nsec.clamp(0, 999_999_999) as u32 }
    }

    fn uptime(&self) -> Duration {
        since_boot(ClockId::Monotonic)
    }

    fn rough_uptime(&self) -> Duration {
        since_boot(ClockId::MonotonicCoarse)
    }
}

/// The time of one of the system's clocks that begin with the system.
#[expect(clippy::disallowed_methods, reason = "a part of the system's clock")]
fn since_boot(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec.clamp(0, 999_999_999) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Idleness is the difference of the two.
    #[test]
    fn the_rough_clock_is_the_fine_one_a_little_behind() {
        let rough = SystemClock.rough_uptime();
        let fine = SystemClock.uptime();
        assert!(fine >= rough && fine - rough < Duration::from_secs(60), "{rough:?} and {fine:?}");
        assert!(SystemClock.rough_uptime() >= rough);
    }
}
