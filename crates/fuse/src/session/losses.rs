//! What programs have written and nobody keeps any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use basalt_vfs::Error;

use super::reply::Failure;
use crate::protocol::Operation;
use crate::protocol::flags::WriteFlags;

/// What the kernel's page cache handed over and the file system could not take. The kernel drops those pages; only a program that calls
/// fsync afterwards is told.
#[derive(Debug, Clone, Default)]
pub struct Losses(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    failed: AtomicU64,
    beyond: AtomicU64,
}

impl Losses {
    /// Bytes lost so far because the file system or its device has failed.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Bytes lost so far that a program wrote beyond the largest size of a file: the kernel knows no limit, and takes them.
    #[must_use]
    pub fn bytes_beyond(&self) -> u64 {
        self.0.beyond.load(Ordering::Relaxed)
    }

    /// Takes note of a request that failed. Whoever fills a volume is told by other means.
    pub(super) fn note(&self, operation: &Operation<'_>, failure: &Failure) {
        let Operation::Write { arguments, .. } = operation else { return };
        if !WriteFlags::from_bits_retain(arguments.write_flags).contains(WriteFlags::CACHE) {
            return;
        }
        let count = match failure {
            Failure::FileSystem(Error::Io(_) | Error::Corrupted(_) | Error::ReadOnly) => &self.0.failed,
            Failure::FileSystem(Error::FileTooLarge) => &self.0.beyond,
            _ => return,
        };
        count.fetch_add(u64::from(arguments.size), Ordering::Relaxed);
    }
}
