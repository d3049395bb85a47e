//! LSEEK where the kernel's page cache holds dirty pages.
//!
//! The kernel asks for data and holes without having written its dirty pages back: those would look like holes, and `cp`
//! would leave them out. So it is first told to write back and drop what it has cached of the file. That waits for WRITEs,
//! which the event loops answer meanwhile; hence this thread beside them. It also says which attributes the kernel must not trust
//! any more: see `shortage`.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::Receiver;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::reply::Reply;
use super::server::Server;
use super::worker;
use crate::protocol::wire::{InHeader, InvalInodeOut, LseekIn, LseekOut, OutHeader};
use crate::protocol::{Operation, Request};

/// `FUSE_NOTIFY_INVAL_INODE`.
const INVALIDATE_INODE: i32 = 2;

/// What an event loop hands over.
pub(super) enum Task<'fd> {
    /// An LSEEK to answer.
    Seek(Seek<'fd>),
    /// A node whose attributes the kernel shall ask for again.
    Distrust(BorrowedFd<'fd>, u64),
}

/// An LSEEK.
pub(super) struct Seek<'fd> {
    /// The channel that it came by, and that its reply must take.
    pub(super) device: BorrowedFd<'fd>,
    pub(super) header: InHeader,
    pub(super) arguments: LseekIn,
}

/// Answers what the event loops hand over, until they have all ended.
pub(super) fn run(server: &Server, queue: &Receiver<Task<'_>>) {
    let mut reply = Reply::new(size_of::<LseekOut>());
    for task in queue {
        let Seek { device, header, arguments } = match task {
            Task::Seek(seek) => seek,
            Task::Distrust(device, node) => {
                // Only a hint; a kernel that has forgotten the node needs none.
                let _ = invalidate(device, InvalInodeOut { node, offset: -1, length: 0 });
                continue;
            }
        };
        // The kernel writes its dirty pages back.
        match invalidate(device, InvalInodeOut { node: header.node, offset: 0, length: 0 }) {
            // NOENT: the kernel has nothing cached.
            Ok(()) | Err(Errno::NOENT) => {
                let request = Request { header, operation: Operation::Lseek(arguments) };
                worker::handle(server, device, &request, &mut reply);
            }
            Err(errno) => {
                let _ = reply.send(device, header.unique, Some(errno));
            }
        }
    }
}

/// Makes the kernel forget what it has cached of an inode.
fn invalidate(device: BorrowedFd<'_>, what: InvalInodeOut) -> rustix::io::Result<()> {
    let len = (size_of::<OutHeader>() + size_of::<InvalInodeOut>()) as u32;
    // A notification answers no request, and has its code where replies have their error.
    let header = OutHeader { len, error: INVALIDATE_INODE, unique: 0 };
    rustix::io::writev(device, &[IoSlice::new(header.as_bytes()), IoSlice::new(what.as_bytes())]).map(|_| ())
}
