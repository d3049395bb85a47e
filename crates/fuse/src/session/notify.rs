//! Telling the kernel, unasked, that what it has cached is out of date.
//!
//! **Attributes** may be told of by an event loop, and before it replies to the very request: the kernel only marks them, and waits for
//! nothing but an inode that is being freed, which one with a request under way is not.
//!
//! **Pages** must be told of by the thread beside the loops (see `cache_thread`): the kernel writes dirty ones back and waits for READs of
//! others, all of which the loops answer.

use zerocopy::IntoBytes;

use crate::protocol::wire::{InvalInodeOut, OutHeader};
use crate::transport::{SendError, Transport};

/// `FUSE_NOTIFY_INVAL_INODE`.
const INVALIDATE_INODE: i32 = 2;

/// The kernel asks for the attributes of a node again before it uses them; answers that it is waiting for count as old too.
pub(super) fn distrust_attributes(transport: &impl Transport, node: u64) {
    // A kernel that knows nothing of the node needs no telling.
    let _ = invalidate(transport, InvalInodeOut { node, offset: -1, length: 0 });
}

/// The kernel writes back what it has cached of a file from byte `offset` on, `length` bytes or, with 0, all; then it drops it.
/// Its attributes are distrusted as well.
pub(super) fn drop_pages(transport: &impl Transport, node: u64, offset: u64, length: u64) -> Result<(), SendError> {
    // No file is so large that these do not fit.
    let (offset, length) = (offset.min(i64::MAX as u64) as i64, length.min(i64::MAX as u64) as i64);
    match invalidate(transport, InvalInodeOut { node, offset, length }) {
        // Nothing is cached.
        Err(SendError::NotWanted) => Ok(()),
        told => told,
    }
}

fn invalidate(transport: &impl Transport, what: InvalInodeOut) -> Result<(), SendError> {
    let len = (size_of::<OutHeader>() + size_of::<InvalInodeOut>()) as u32;
    // A notification answers no request, and has its code where replies have their error.
    let header = OutHeader { len, error: INVALIDATE_INODE, unique: 0 };
    transport.send(header.as_bytes(), what.as_bytes())
}
