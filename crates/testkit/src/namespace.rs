//! Mount namespaces of tests. A new one has every mount there is, also those of the tests beside it. It keeps them until its last process
//! ends: until then umount(2) elsewhere returns at once, and nothing is closed.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static COPIES: RwLock<()> = RwLock::new(());

/// Held while processes of a mount namespace of their own live. Meanwhile no test of this program takes a mount away.
pub fn of_its_own() -> RwLockWriteGuard<'static, ()> {
    COPIES.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a mount is taken away. Meanwhile no namespace of another test of this program has it.
pub fn unmounting() -> RwLockReadGuard<'static, ()> {
    COPIES.read().unwrap_or_else(PoisonError::into_inner)
}
