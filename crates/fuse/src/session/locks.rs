//! Locks and atomics of code that is also tested under a scheduler of its own, which brings other ones.

pub(super) use std::sync::atomic::{AtomicU64, Ordering};

pub(super) use parking_lot::{Condvar, Mutex};
