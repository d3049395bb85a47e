//! Telling the kernel, unasked, that what it has cached is out of date.
//!
//! **Attributes** may be told of by an event loop, and before it replies to the very request: the kernel only marks them, and waits for
//! nothing but an inode that is being freed, which one with a request under way is not.
//!
//! **Pages** must be told of by the thread beside the loops (see `cache_thread`): the kernel writes dirty ones back and waits for READs of
//! others, all of which the loops answer.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::protocol::wire::{InvalInodeOut, OutHeader};

/// `FUSE_NOTIFY_INVAL_INODE`.
const INVALIDATE_INODE: i32 = 2;

/// The kernel asks for the attributes of a node again before it uses them; answers that it is waiting for count as old too.
pub(super) fn distrust_attributes(device: BorrowedFd<'_>, node: u64) {
    // A kernel that knows nothing of the node needs no telling.
    let _ = invalidate(device, InvalInodeOut { node, offset: -1, length: 0 });
}

/// The kernel writes back what it has cached of a file from byte `offset` on, `length` bytes or, with 0, all; then it drops it.
/// Its attributes are distrusted as well.
pub(super) fn drop_pages(device: BorrowedFd<'_>, node: u64, offset: u64, length: u64) -> rustix::io::Result<()> {
    // No file is so large that these do not fit.
    let (offset, length) = (offset.min(i64::MAX as u64) as i64, length.min(i64::MAX as u64) as i64);
    match invalidate(device, InvalInodeOut { node, offset, length }) {
        // Nothing is cached.
        Err(Errno::NOENT) => Ok(()),
        told => told,
    }
}

fn invalidate(device: BorrowedFd<'_>, what: InvalInodeOut) -> rustix::io::Result<()> {
    let len = (size_of::<OutHeader>() + size_of::<InvalInodeOut>()) as u32;
    // A notification answers no request, and has its code where replies have their error.
    let header = OutHeader { len, error: INVALIDATE_INODE, unique: 0 };
    rustix::io::writev(device, &[IoSlice::new(header.as_bytes()), IoSlice::new(what.as_bytes())]).map(|_| ())
}
