//! When writing behind ends: with the last thread that does anything else.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use basalt_vfs::FileSystem;

use super::script::Act;

/// How many threads do something beside writing behind.
pub struct Busy(AtomicUsize);

fn is_busy(acts: &[Act]) -> bool {
    !acts.contains(&Act::WriteBehind)
}

impl Busy {
    /// With threads that do this. Where none does anything else, writing behind ends at once.
    pub fn with(acts: &[Vec<Act>], fs: &(impl FileSystem + ?Sized)) -> Busy {
        let busy = acts.iter().filter(|acts| is_busy(acts)).count();
        if busy == 0 {
            fs.end_write_behind();
        }
        Busy(AtomicUsize::new(busy))
    }

    /// A thread has done this, and all it does.
    pub fn leave(&self, acts: &[Act], fs: &(impl FileSystem + ?Sized)) {
        if is_busy(acts) && self.0.fetch_sub(1, SeqCst) == 1 {
            fs.end_write_behind();
        }
    }
}
