//! What programs have written and nobody keeps any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use basalt_vfs::Error;

use super::reply::Failure;
use crate::protocol::Operation;
use crate::protocol::flags::WriteFlags;

/// What the kernel's page cache handed over and the file system could not take, because it or its device has failed. The kernel
/// drops those pages; only a program that calls fsync afterwards is told.
#[derive(Debug, Clone, Default)]
pub struct Losses(Arc<AtomicU64>);

impl Losses {
    /// Bytes lost so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes note of a request that failed. Whoever fills a volume is told by other means.
    pub(super) fn note(&self, operation: &Operation<'_>, failure: &Failure) {
        if let Operation::Write { arguments, .. } = operation
            && WriteFlags::from_bits_retain(arguments.write_flags).contains(WriteFlags::CACHE)
            && matches!(failure, Failure::FileSystem(Error::Io(_) | Error::Corrupted(_) | Error::ReadOnly))
        {
            self.0.fetch_add(u64::from(arguments.size), Ordering::Relaxed);
        }
    }
}
