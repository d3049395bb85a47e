//! Answers for which the kernel must first write back or drop what it has cached of a file.
//!
//! The kernel asks for data and holes (LSEEK) without having written its dirty pages back: those would look like holes, and `cp`
//! would leave them out. So it is first told to write back and drop what it has cached of the file. That waits for WRITEs,
//! which the event loops answer meanwhile; hence this thread beside them. So it is with questions before a write while there is little
//! space (see `shortage`), and with direct writes to what others have read (see `overwritten`). It also says which attributes the kernel
//! must not trust any more.

use std::sync::mpsc::Receiver;

use rustix::io::Errno;

use super::reply::Reply;
use super::server::Server;
use super::{notify, worker};
use crate::protocol::wire::{AttrOut, InHeader};
use crate::protocol::{Operation, Request};
use crate::transport::{SendError, Transport};

/// What an event loop hands over. Each has the channel that its request came by, and that its reply must take.
pub(super) enum Task<'t, T> {
    /// A request to answer once the kernel has written the file's pages back.
    Answer { channel: &'t T, header: InHeader, operation: Operation<'static> },
    /// A reply to send once the kernel has dropped some pages of the file: offset and length, 0 for all behind.
    Reply { channel: &'t T, header: InHeader, pages: (u64, u64), outcome: Result<Vec<u8>, Errno> },
    /// A node whose attributes the kernel shall ask for again.
    Distrust(&'t T, u64),
    /// A node of which the kernel shall write back what it has.
    WriteBack(&'t T, u64),
}

/// Does what the event loops hand over, until they have all ended.
pub(super) fn run<T: Transport>(server: &Server, queue: &Receiver<Task<'_, T>>) {
    let mut reply = Reply::new(size_of::<AttrOut>());
    for task in queue {
        match task {
            Task::Answer { channel, header, operation } => {
                let takes_much = matches!(operation, Operation::Fallocate(_));
                let request = Request { header, operation, shared: None };
                worker::unless_it_panics(channel, &header, &mut reply, |reply| {
                    answer(server, channel, &request, reply)
                });
                if takes_much {
                    server.shortage.meet();
                }
            }
            Task::Reply { channel, header, pages: (offset, length), outcome } => {
                // Pages that the kernel keeps are in use: newer than the write, or about to be told that they failed.
                let _ = notify::drop_pages(channel, header.node, offset, length);
                reply.clear();
                let pushed = outcome.and_then(|payload| reply.push_bytes(&payload).map_err(|failure| failure.errno()));
                worker::send(channel, &header, &mut reply, pushed.err());
            }
            Task::Distrust(channel, node) => notify::distrust_attributes(channel, node),
            Task::WriteBack(channel, node) => {
                // What finds no room is told to the file's next write, and its fsync.
                let _ = write_back(server, channel, node, None);
            }
        }
    }
}

/// Has the kernel write the file's pages back, and those of others that are in the way; then answers.
fn answer<T: Transport>(server: &Server, channel: &T, request: &Request<'_>, reply: &mut Reply) {
    let header = &request.header;
    if let Err(error) = write_back(server, channel, header.node, Some(header.pid)) {
        worker::send(channel, header, reply, Some(error.errno()));
        return;
    }
    for node in server.in_the_way(header, &request.operation) {
        let _ = write_back(server, channel, node, Some(header.pid));
    }
    worker::handle(server, channel, request, reply, None);
}

/// Has the kernel write back what it has of all files that are open for writing: there is nothing of others. Its mount need not be reachable.
pub(super) fn write_all_back(server: &Server, channel: &impl Transport) {
    for ino in server.programs.written() {
        let node = server.nodes.node(ino);
        match write_back(server, channel, node, None) {
            // There was nothing left to write back, or the server was told by a WRITE why not.
            Ok(()) | Err(SendError::Unmounted) => {}
            Err(error) => tracing::error!(node, errno = %error.errno(), "the kernel has not written everything back"),
        }
    }
}

/// Has the kernel write back and drop what it has of a file, which keeps what was promised to who has ended writing by now, as the thread
/// that asks has.
fn write_back(server: &Server, channel: &impl Transport, node: u64, asks: Option<u32>) -> Result<(), SendError> {
    let ino = server.nodes.inode(node);
    let finished = server.shortage.finished(ino, asks);
    notify::drop_pages(channel, node, 0, 0)?;
    server.shortage.keep(ino, &finished);
    Ok(())
}
