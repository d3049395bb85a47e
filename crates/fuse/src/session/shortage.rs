//! Telling a program that writes into the kernel's page cache that the volume is full.
//!
//! With its writeback cache the kernel takes every write(2), and finds out long afterwards, when it hands its pages over, that
//! there is no room for them; only fsync and close say so. A program that does neither (`cp /dev/zero FILE`) would go on for
//! ever. So after a WRITE of cached pages ran out of space, the kernel is told that the attributes it knows of the file are out of
//! date; the next write(2) then asks for them through its open file before it puts anything into the cache, and that one question
//! is answered with ENOSPC, if the volume still is full. stat(2) asks without an open file and gets its answer.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use basalt_vfs::{FileSystem, InodeNumber};
use parking_lot::Mutex;

/// From so many free bytes on a volume is not full any more.
const ROOM: u64 = 1 << 20;

/// Files whose cached pages found no room.
#[derive(Default)]
pub(super) struct Shortage {
    /// Whether there are any: spares the lock where all is well.
    any: AtomicBool,
    files: Mutex<HashSet<InodeNumber>>,
}

impl Shortage {
    /// Cached pages of this file found no room.
    pub(super) fn note(&self, ino: InodeNumber) {
        self.files.lock().insert(ino);
        self.any.store(true, Ordering::Release);
    }

    /// Whether whoever writes to this file has to be told now. Told once, it may try again.
    pub(super) fn take(&self, ino: InodeNumber, fs: &dyn FileSystem) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut files = self.files.lock();
        let noted = files.remove(&ino);
        self.any.store(!files.is_empty(), Ordering::Release);
        drop(files);
        noted && fs.stat_fs().is_ok_and(|stat| stat.available.saturating_mul(u64::from(stat.block_size)) < ROOM)
    }

    /// The kernel knows the file no more.
    pub(super) fn forget(&self, ino: InodeNumber) {
        if self.any.load(Ordering::Acquire) {
            self.files.lock().remove(&ino);
        }
    }
}
