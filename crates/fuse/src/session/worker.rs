//! Event loops: receive, answer, reply.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::SessionError;
use super::buffer::{PAGE, PageBuffer};
use super::reply::Reply;
use super::seeker::{self, Seek};
use super::server::{Server, Verdict};
use super::ticker::Ticker;
use crate::protocol::wire::{InHeader, WriteIn};
use crate::protocol::{Fault, Operation, Request};

/// Where a request starts in its buffer, so that the data of a WRITE starts on a page boundary.
const START: usize = PAGE - size_of::<InHeader>() - size_of::<WriteIn>();

/// Serves `device` with `threads` loops and the ticker until the kernel hangs up on all of them.
pub(super) fn serve_all(server: &Server, device: OwnedFd, threads: usize) -> Result<(), SessionError> {
    let channels: Vec<OwnedFd> = (1..threads).filter_map(|_| channel(&device)).collect();
    let ticker = Ticker::default();
    let (seeks, queue) = mpsc::channel();
    std::thread::scope(|scope| {
        let device = &device;
        scope.spawn(move || seeker::run(server, &queue));
        let background = scope.spawn(|| ticker.run(server.file_system()));
        let others: Vec<_> = (1..threads)
            .map(|index| {
                let fd = channels.get(index - 1).unwrap_or(device).as_fd();
                let seeks = seeks.clone();
                scope.spawn(move || serve(server, fd, seeks))
            })
            .collect();
        let mut outcome = serve(server, device.as_fd(), seeks);
        for other in others {
            // A loop answers panics of the file system with EIO; one that panics itself counts as failed.
            let ended = other.join().unwrap_or(Err(SessionError::Device(Errno::IO)));
            outcome = outcome.and(ended);
        }
        ticker.stop();
        let _ = background.join();
        outcome
    })
}

/// A channel of its own to the same connection, so that loops do not contend for one; `None` where the kernel or the
/// rights of `/dev/fuse` do not allow that.
fn channel(device: &OwnedFd) -> Option<OwnedFd> {
    let clone = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
    clone_connection(&clone, device.as_fd()).ok()?;
    Some(clone)
}

/// Connects a newly opened `/dev/fuse` to the connection of `device`.
#[allow(unsafe_code)]
fn clone_connection(clone: &OwnedFd, device: BorrowedFd<'_>) -> rustix::io::Result<()> {
    /// `FUSE_DEV_IOC_CLONE`.
    const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
    // Descriptors are not negative.
    let number = device.as_raw_fd() as u32;
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32, a descriptor number, through its argument and writes nothing.
    unsafe { rustix::ioctl::ioctl(clone, rustix::ioctl::Setter::<CLONE, u32>::new(number)) }
}

/// One loop; returns when the kernel hangs up.
fn serve<'fd>(server: &Server, device: BorrowedFd<'fd>, seeks: Sender<Seek<'fd>>) -> Result<(), SessionError> {
    let mut inbox = PageBuffer::new(PAGE + server.max_payload());
    let mut reply = Reply::new(server.max_payload().max(2 * PAGE));
    loop {
        let len = match rustix::io::read(device, &mut inbox.bytes_mut()[START..]) {
            Ok(len) => len,
            // NOENT: the caller was interrupted before the request was taken.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(Errno::NODEV) => return Ok(()),
            Err(Errno::CONNABORTED) => return Err(SessionError::Aborted),
            Err(errno) => return Err(SessionError::Device(errno)),
        };
        match Request::parse(&inbox.bytes()[START..START + len]) {
            Ok(Request { header, operation: Operation::Lseek(arguments) }) if server.kernel_keeps_dirty_pages() => {
                // The seeker ends after the loops.
                let _ = seeks.send(Seek { device, header, arguments });
            }
            Ok(request) => handle(server, device, &request, &mut reply),
            Err(fault) => {
                tracing::error!(%fault, "request not understood");
                if let Fault::Arguments { unique, .. } = fault {
                    let _ = reply.send(device, unique, Some(Errno::INVAL));
                }
            }
        }
    }
}

/// Answers one request.
pub(super) fn handle(server: &Server, device: BorrowedFd<'_>, request: &Request<'_>, reply: &mut Reply) {
    reply.clear();
    let verdict = catch_unwind(AssertUnwindSafe(|| server.answer(request, reply))).unwrap_or_else(|_| {
        tracing::error!(opcode = request.header.opcode, node = request.header.node, "the file system panicked");
        Verdict::Error(Errno::IO)
    });
    let error = match verdict {
        Verdict::Silence => return,
        Verdict::Reply => None,
        Verdict::Error(errno) => Some(errno),
    };
    let sent = reply.send(device, request.header.unique, error);
    if error.is_some() || sent.is_err() {
        // The kernel does not know of these references, and will never give them back.
        reply.references().iter().for_each(|&ino| server.file_system().forget(ino, 1));
    }
    match sent {
        // NOENT: the request was aborted meanwhile. NODEV: unmounted.
        Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
        Err(errno) => tracing::error!(%errno, opcode = request.header.opcode, "reply refused"),
    }
}
