//! Time that passes only when somebody says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock in nanoseconds from 0, shared by everybody who holds a clone. It advances by what simulated devices and
/// programs take, never by itself: the same requests give the same times on any machine.
///
/// Where several logical threads have a time each, it shows that of the one that works: [`resume`](Self::resume) sets it to that
/// thread's, and [`join`](Self::join) ends this.
#[derive(Debug, Clone, Default)]
pub struct VirtualClock(Arc<Times>);

#[derive(Debug)]
struct Times {
    now: AtomicU64,
    /// No thread's time is before this; the greatest number where there is only one thread.
    floor: AtomicU64,
}

impl Default for Times {
    fn default() -> Times {
        Times { now: AtomicU64::new(0), floor: AtomicU64::new(u64::MAX) }
    }
}

impl VirtualClock {
    /// A clock that shows 0.
    pub fn new() -> VirtualClock {
        VirtualClock::default()
    }

    /// Nanoseconds since the clock was made.
    pub fn now(&self) -> u64 {
        self.0.now.load(Ordering::Acquire)
    }

    /// Lets `nanoseconds` pass and returns the new time.
    pub fn advance(&self, nanoseconds: u64) -> u64 {
        self.0.now.fetch_add(nanoseconds, Ordering::AcqRel).wrapping_add(nanoseconds)
    }

    /// Shows the time of another thread from now on. No thread may have an earlier one.
    pub fn resume(&self, time: u64) {
        self.0.now.store(time, Ordering::Release);
        self.0.floor.store(time, Ordering::Release);
    }

    /// There is only one thread from now on, and this is its time.
    pub fn join(&self, time: u64) {
        self.0.now.store(time, Ordering::Release);
        self.0.floor.store(u64::MAX, Ordering::Release);
    }

    /// A time before which no thread is any more.
    pub fn floor(&self) -> u64 {
        self.0.floor.load(Ordering::Acquire).min(self.now())
    }

    /// Lets time pass until `time`; does nothing when it is later already.
    pub fn advance_to(&self, time: u64) {
        self.0.now.fetch_max(time, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_show_the_same_time() {
        let clock = VirtualClock::new();
        let other = clock.clone();
        assert_eq!(clock.advance(5), 5);
        other.advance_to(3);
        assert_eq!(other.now(), 5);
        other.advance_to(9);
        assert_eq!(clock.now(), 9);
    }

    #[test]
    fn threads_have_times_of_their_own() {
        let clock = VirtualClock::new();
        clock.advance(100);
        assert_eq!(clock.floor(), 100);
        clock.resume(100);
        clock.advance(50);
        clock.resume(120);
        assert_eq!((clock.now(), clock.floor()), (120, 120));
        clock.advance(5);
        assert_eq!((clock.now(), clock.floor()), (125, 120));
        clock.join(150);
        assert_eq!((clock.now(), clock.floor()), (150, 150));
    }
}
