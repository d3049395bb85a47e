//! Answers for which the kernel must first write back or drop what it has cached of a file.
//!
//! The kernel asks for data and holes (LSEEK) without having written its dirty pages back: those would look like holes, and `cp`
//! would leave them out. So it is first told to write back and drop what it has cached of the file. That waits for WRITEs,
//! which the event loops answer meanwhile; hence this thread beside them. So it is with questions before a write while there is little
//! space (see `shortage`), and with direct writes to what others have read (see `overwritten`). It also says which attributes the kernel
//! must not trust any more.

use std::os::fd::BorrowedFd;
use std::sync::mpsc::Receiver;

use rustix::io::Errno;

use super::reply::Reply;
use super::server::Server;
use super::{notify, worker};
use crate::protocol::wire::{AttrOut, InHeader};
use crate::protocol::{Operation, Request};

/// What an event loop hands over. Each has the channel that its request came by, and that its reply must take.
pub(super) enum Task<'fd> {
    /// A request to answer once the kernel has written the file's pages back.
    Answer { device: BorrowedFd<'fd>, header: InHeader, operation: Operation<'static> },
    /// A reply to send once the kernel has dropped some pages of the file: offset and length, 0 for all behind.
    Reply { device: BorrowedFd<'fd>, header: InHeader, pages: (u64, u64), outcome: Result<Vec<u8>, Errno> },
    /// A node whose attributes the kernel shall ask for again.
    Distrust(BorrowedFd<'fd>, u64),
    /// A node of which the kernel shall write back what it has.
    WriteBack(BorrowedFd<'fd>, u64),
}

/// Does what the event loops hand over, until they have all ended.
pub(super) fn run(server: &Server, queue: &Receiver<Task<'_>>) {
    let mut reply = Reply::new(size_of::<AttrOut>());
    for task in queue {
        match task {
            Task::Answer { device, header, operation } => {
                let takes_much = matches!(operation, Operation::Fallocate(_));
                match write_back(server, device, header.node, Some(header.pid)) {
                    Ok(()) => {
                        for node in server.in_the_way(&header, &operation) {
                            let _ = write_back(server, device, node, Some(header.pid));
                        }
                        worker::handle(server, device, &Request { header, operation }, &mut reply, None);
                    }
                    Err(errno) => {
                        let _ = reply.send(device, header.unique, Some(errno));
                    }
                }
                if takes_much {
                    server.shortage.meet();
                }
            }
            Task::Reply { device, header, pages: (offset, length), outcome } => {
                // Pages that the kernel keeps are in use: newer than the write, or about to be told that they failed.
                let _ = notify::drop_pages(device, header.node, offset, length);
                reply.clear();
                let pushed = outcome.and_then(|payload| reply.push_bytes(&payload).map_err(|failure| failure.errno()));
                worker::send(device, &header, &reply, pushed.err());
            }
            Task::Distrust(device, node) => notify::distrust_attributes(device, node),
            Task::WriteBack(device, node) => {
                // What finds no room is told to the file's next write, and its fsync.
                let _ = write_back(server, device, node, None);
            }
        }
    }
}

/// Has the kernel write back and drop what it has of a file, which keeps what was promised to who has ended writing by now, as the thread
/// that asks has.
fn write_back(server: &Server, device: BorrowedFd<'_>, node: u64, asks: Option<u32>) -> rustix::io::Result<()> {
    let ino = server.nodes.inode(node);
    let finished = server.shortage.finished(ino, asks);
    notify::drop_pages(device, node, 0, 0)?;
    server.shortage.keep(ino, &finished);
    Ok(())
}
