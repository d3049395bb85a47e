//! The locks of the engine. A build for tests (`crates/f2fs-shuttled`) takes them from a scheduler that chooses their interleavings.

#[cfg(feature = "shuttle")]
pub(crate) use basalt_testkit::shuttled::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
