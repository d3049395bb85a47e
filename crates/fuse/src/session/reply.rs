//! What goes back to the kernel.

use basalt_vfs::InodeNumber;
use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::buffer::PageBuffer;
use crate::protocol;
use crate::protocol::wire::OutHeader;
use crate::transport::{SendError, Transport};

/// Why an operation gets an error for an answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The file system said so.
    FileSystem(basalt_vfs::Error),
    /// The protocol wants this errno (ENOSYS: do not ask again).
    Errno(Errno),
}

impl Failure {
    pub(super) fn errno(&self) -> Errno {
        match self {
            Failure::FileSystem(error) => protocol::errno(error.kind()),
            Failure::Errno(errno) => *errno,
        }
    }
}

impl From<basalt_vfs::Error> for Failure {
    fn from(error: basalt_vfs::Error) -> Self {
        Failure::FileSystem(error)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Errno(errno)
    }
}

/// The outcome of an operation whose reply, if it succeeded, is in the [`Reply`].
pub(super) type Answer = Result<(), Failure>;

/// The payload of one reply; a thread uses the same one for all its requests.
pub(super) struct Reply {
    buffer: PageBuffer,
    len: usize,
    /// References that the kernel holds once it has this reply.
    references: Vec<InodeNumber>,
    /// Nodes of which the kernel must not trust the attributes that it knows, once it has this reply.
    outdated: Vec<u64>,
    /// What the kernel must drop from its page cache before it has this reply: offset and length, 0 for all behind.
    stale_pages: Option<(u64, u64)>,
    /// Whether this request is answered, by whomever, or wants no answer.
    is_settled: bool,
}

impl Reply {
    /// Room for a payload of `max` bytes.
    pub(super) fn new(max: usize) -> Self {
        Reply {
            buffer: PageBuffer::new(max),
            len: 0,
            references: Vec::new(),
            outdated: Vec::new(),
            stale_pages: None,
            is_settled: false,
        }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.references.clear();
        self.outdated.clear();
        self.stale_pages = None;
        self.is_settled = false;
    }

    /// Takes note that the request is answered, is somebody else's to answer, or wants no answer.
    pub(super) fn settle(&mut self) {
        self.is_settled = true;
    }

    /// Whether nothing is left to answer.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Bytes in the payload.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a structure.
    pub(super) fn push<T: IntoBytes + Immutable>(&mut self, value: &T) -> Answer {
        self.push_bytes(value.as_bytes())
    }

    /// Appends bytes. E2BIG where they do not fit, which no request that the kernel sends asks for.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) -> Answer {
        let room = self.buffer.bytes_mut().get_mut(self.len..self.len + bytes.len()).ok_or(Errno::TOOBIG)?;
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Appends zeros up to the next multiple of eight.
    pub(super) fn pad(&mut self) -> Answer {
        self.push_bytes(&[0; 8][..self.len.next_multiple_of(8) - self.len])
    }

    /// `size` bytes to fill from the start of the payload; [`truncate`](Self::truncate) then says how many count.
    pub(super) fn space(&mut self, size: u32) -> Result<&mut [u8], Failure> {
        let size = usize::try_from(size).map_err(|_| Errno::INVAL)?;
        let space = self.buffer.bytes_mut().get_mut(..size).ok_or(Errno::INVAL)?;
        self.len = size;
        Ok(space)
    }

    /// As [`space`](Self::space), but no more than fits: where the kernel allows only small requests, replies are small, too.
    pub(super) fn space_up_to(&mut self, size: usize) -> &mut [u8] {
        let size = size.min(self.buffer.bytes().len());
        self.len = size;
        &mut self.buffer.bytes_mut()[..size]
    }

    /// Cuts the payload down to `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Notes that the kernel gets a reference on `ino` with this reply.
    pub(super) fn grants(&mut self, ino: InodeNumber) {
        self.references.push(ino);
    }

    /// The references granted.
    pub(super) fn references(&self) -> &[InodeNumber] {
        &self.references
    }

    /// Notes that attributes of `node` change without this reply saying how.
    pub(super) fn outdates(&mut self, node: u64) {
        self.outdated.push(node);
    }

    /// The nodes whose attributes changed so.
    pub(super) fn outdated(&self) -> &[u64] {
        &self.outdated
    }

    /// Notes that the kernel may have old bytes in these pages of the request's file, and must drop them; length 0 is all behind.
    pub(super) fn drops_pages(&mut self, offset: u64, length: u64) {
        self.stale_pages = Some((offset, length));
    }

    /// The pages noted so.
    pub(super) fn stale_pages(&self) -> Option<(u64, u64)> {
        self.stale_pages
    }

    /// The payload.
    pub(super) fn payload(&self) -> &[u8] {
        &self.buffer.bytes()[..self.len]
    }

    /// Sends the payload, or the error alone.
    pub(super) fn send(&self, transport: &impl Transport, unique: u64, error: Option<Errno>) -> Result<(), SendError> {
        let payload = if error.is_some() { &[] } else { self.payload() };
        let header = OutHeader {
            // A payload is at most a few MiB.
            len: (size_of::<OutHeader>() + payload.len()) as u32,
            error: error.map_or(0, |errno| -errno.raw_os_error()),
            unique,
        };
        transport.send(header.as_bytes(), payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_reply_takes_a_part_of_what_is_large() {
        let mut reply = Reply::new(8192);
        assert!(reply.space(128 << 10).is_err());
        assert_eq!((reply.space_up_to(128 << 10).len(), reply.len()), (8192, 8192));
        assert_eq!((reply.space_up_to(5).len(), reply.len()), (5, 5));
    }
}
