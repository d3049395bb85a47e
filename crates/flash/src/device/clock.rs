//! Time that passes only when somebody says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock in nanoseconds from 0, shared by everybody who holds a clone. It advances by what simulated devices and
/// programs take, never by itself: the same requests give the same times on any machine.
#[derive(Debug, Clone, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// A clock that shows 0.
    pub fn new() -> VirtualClock {
        VirtualClock::default()
    }

    /// Nanoseconds since the clock was made.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Lets `nanoseconds` pass and returns the new time.
    pub fn advance(&self, nanoseconds: u64) -> u64 {
        self.0.fetch_add(nanoseconds, Ordering::AcqRel).wrapping_add(nanoseconds)
    }

    /// Lets time pass until `time`; does nothing when it is later already.
    pub fn advance_to(&self, time: u64) {
        self.0.fetch_max(time, Ordering::AcqRel);
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
}
