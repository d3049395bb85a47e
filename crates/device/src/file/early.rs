//! Early writeback. The kernel keeps what is written to an image file in its page cache until a flush or a timer asks for it, while
//! the disk below may be idle, and the flush then waits for all of it. Large requests behind a flush are started at once instead. Only a
//! hint: what is durable is what a flush says is.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests of at least so many bytes are started: those of logs. Single blocks may soon be written again.
const LEAST: u64 = 64 << 10;
/// Bytes behind a flush of which this is done. Who writes more without another one is in no hurry, and better off in the page cache.
const MOST: u64 = 16 << 20;

/// What was written since the last flush began.
#[derive(Debug, Default)]
pub(super) struct EarlyWriteback {
    bytes: AtomicU64,
}

impl EarlyWriteback {
    /// A range was written.
    pub(super) fn note_write(&self, file: &File, offset: u64, length: u64) {
        let before = self.bytes.fetch_add(length, Ordering::Relaxed);
        if length >= LEAST && before < MOST {
            start(file, offset, length);
        }
    }

    /// A flush begins.
    pub(super) fn note_flush(&self) {
        self.bytes.store(0, Ordering::Relaxed);
    }
}

/// Has the kernel begin to write a range that was written, and does not wait for that.
#[allow(unsafe_code)]
fn start(file: &File, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else { return };
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the call touches no memory of ours. Where it is not supported, or
    // writing fails, the next flush does the work and tells.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) };
}
