//! Early writeback. The kernel keeps what is written to an image file in its page cache until a flush or a timer asks for it, while
//! the disk below may be idle, and the flush then waits for all of it. Large requests are started at once instead. Only a hint: what is
//! durable is what a flush says is.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Requests of at least so many bytes are started: those of logs. Single blocks may soon be written again.
const LEAST: u64 = 64 << 10;

/// Has the kernel begin to write a range that was written, if it is worth it, and does not wait for that.
#[allow(unsafe_code)]
pub(super) fn start(file: &File, offset: u64, length: u64) {
    let (Ok(from), Ok(bytes)) = (i64::try_from(offset), i64::try_from(length)) else { return };
    if length < LEAST {
        return;
    }
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the call touches no memory of ours. Where it is not supported, or
    // writing fails, the next flush does the work and tells.
    unsafe { libc::sync_file_range(file.as_raw_fd(), from, bytes, libc::SYNC_FILE_RANGE_WRITE) };
}
