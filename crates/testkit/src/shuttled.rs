//! Locks and atomics whose every interleaving the [shuttle](https://docs.rs/shuttle) scheduler chooses, with the interface of
//! `parking_lot`. Code under test takes its locks from here instead; outside of a shuttle test they panic.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

pub use shuttle;
pub use shuttle::sync::RwLockReadGuard;
pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// The lock held; given back when dropped.
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// `None` only while a [`Condvar`] waits.
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// An unlocked one.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { lock: self, held: Some(self.acquire()) }
    }

    /// The lock, if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|held| MutexGuard { lock: self, held: Some(held) })
    }

    /// What is inside.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn acquire(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("held but while waiting")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held but while waiting")
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    /// One that nobody waits for.
    pub fn new() -> Condvar {
        Condvar::default()
    }

    /// Gives the lock back, waits to be notified, and takes it again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(held) = guard.held.take() {
            guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The same for a limited time. Time is not simulated: the limit may be over at any moment, and is before anybody notifies.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _limit: Duration) {
        drop(guard.held.take());
        shuttle::thread::yield_now();
        guard.held = Some(guard.lock.acquire());
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A lock for many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T>(shuttle::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked one.
    pub fn new(value: T) -> RwLock<T> {
        RwLock(shuttle::sync::RwLock::new(value))
    }

    /// Waits for the lock, to read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, to read, if nobody writes.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read().ok()
    }

    /// Waits for the lock, to write.
    pub fn write(&self) -> shuttle::sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
