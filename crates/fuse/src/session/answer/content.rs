//! File content: reading, writing, preallocating, seeking, copying.

use basalt_vfs::{Bytes, FallocateMode, FileSystem, InodeNumber, Seek};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::protocol::flags::{ReadFlags, WriteFlags};
use crate::protocol::wire::{
    CopyFileRangeIn, CopyFileRangeOut, FallocateIn, InHeader, LseekIn, LseekOut, ReadIn, WriteIn, WriteOut,
};
use crate::session::reply::{Answer, Reply};
use crate::session::server::Server;

/// A copy request is answered in pieces of at most this many bytes, so that it does not hold a thread for long; the
/// caller asks again for the rest.
const LARGEST_COPY: u64 = 16 << 20;
/// Bytes copied at a time.
const COPY_PIECE: u64 = 128 << 10;

/// The data of a WRITE.
enum Sent<'a> {
    /// In a buffer that is used again for the next request.
    Lent(&'a [u8]),
    /// The file system may keep it.
    Shared(Bytes),
}

impl Sent<'_> {
    fn len(&self) -> usize {
        match self {
            Sent::Lent(data) => data.len(),
            Sent::Shared(data) => data.len(),
        }
    }

    fn write(self, fs: &dyn FileSystem, ino: InodeNumber, offset: u64) -> basalt_vfs::Result<usize> {
        match self {
            Sent::Lent(data) => fs.write(ino, offset, data, false),
            Sent::Shared(data) => fs.write_shared(ino, offset, data, false),
        }
    }

    fn write_back(self, fs: &dyn FileSystem, ino: InodeNumber, offset: u64) -> basalt_vfs::Result<()> {
        match self {
            Sent::Lent(data) => fs.write_back(ino, offset, data),
            Sent::Shared(data) => fs.write_back_shared(ino, offset, data),
        }
    }
}

impl Server {
    pub(in crate::session) fn read(&self, ino: InodeNumber, arguments: &ReadIn, reply: &mut Reply) -> Answer {
        if !ReadFlags::from_bits_retain(arguments.read_flags).contains(ReadFlags::LOCK_OWNER) {
            self.overwritten.note_read(ino, arguments.offset, u64::from(arguments.size));
        }
        let got = self.fs.read(ino, arguments.offset, reply.space(arguments.size)?)?;
        reply.truncate(got);
        Ok(())
    }

    /// Writes straight from the receive buffer, which the file system may keep if it is shared. What comes out of the kernel's page
    /// cache carries no times: the kernel keeps those, and sends them behind the data.
    pub(in crate::session) fn write(
        &self,
        header: &InHeader,
        arguments: &WriteIn,
        (data, shared): (&[u8], Option<&Bytes>),
        reply: &mut Reply,
    ) -> Answer {
        let data = shared.map_or(Sent::Lent(data), |all| Sent::Shared(all.slice_ref(data)));
        let (ino, length) = (self.target(header), data.len());
        let flags = WriteFlags::from_bits_retain(arguments.write_flags);
        if flags.contains(WriteFlags::KILL_SUIDGID) {
            self.drop_privileges_always(header, ino, reply)?;
        }
        if !flags.contains(WriteFlags::CACHE) || !self.kernel_keeps_dirty_pages() {
            if !self.shortage.leaves_room(ino, arguments.offset, length as u64, &*self.fs) {
                return Err(basalt_vfs::Error::NoSpace.into());
            }
            let is_direct = flags.contains(WriteFlags::LOCK_OWNER);
            if is_direct {
                self.overwritten.begin_write(ino);
            }
            let written = data.write(&*self.fs, ino, arguments.offset);
            if is_direct
                && let Some((offset, length)) = self.overwritten.end_write(ino, arguments.offset, length as u64)
            {
                reply.drops_pages(offset, length);
            }
            let written = written?;
            // Through its page cache, the kernel sends an FSYNC behind the write; past it, the flags are all there is.
            let how = OFlags::from_bits_retain(arguments.flags);
            if how.contains(OFlags::DSYNC) && !flags.contains(WriteFlags::CACHE) {
                self.fs.sync_file(ino, !how.contains(OFlags::SYNC))?;
            }
            // A direct write that comes back short is EIO for the program, whatever was the matter.
            if written < length {
                return Err(basalt_vfs::Error::NoSpace.into());
            }
            return reply.push(&WriteOut { size: arguments.size, padding: 0 });
        }
        let result = data.write_back(&*self.fs, ino, arguments.offset);
        match result {
            // The program wrote when it still could: for its fsync, the device has failed.
            Err(basalt_vfs::Error::ReadOnly) => {
                return Err(basalt_vfs::Error::Io("the volume takes no changes any more".into()).into());
            }
            Err(basalt_vfs::Error::NoSpace) => self.shortage.note_loss(ino),
            _ => {}
        }
        result?;
        reply.push(&WriteOut { size: arguments.size, padding: 0 })
    }

    pub(in crate::session) fn fallocate(
        &self,
        header: &InHeader,
        arguments: &FallocateIn,
        reply: &mut Reply,
    ) -> Answer {
        let ino = self.target(header);
        let mode = FallocateMode::from_bits(arguments.mode).ok_or(Errno::OPNOTSUPP)?;
        let takes = !mode.contains(FallocateMode::PUNCH_HOLE);
        if takes && !self.shortage.leaves_room(ino, arguments.offset, arguments.length, &*self.fs) {
            return Err(basalt_vfs::Error::NoSpace.into());
        }
        self.drop_privileges(header, ino, reply)?;
        Ok(self.fs.fallocate(ino, mode, arguments.offset, arguments.length)?)
    }

    pub(in crate::session) fn lseek(&self, ino: InodeNumber, arguments: &LseekIn, reply: &mut Reply) -> Answer {
        /// `SEEK_DATA` and `SEEK_HOLE`; the kernel serves the others.
        const DATA: u32 = 3;
        const HOLE: u32 = 4;
        let whence = match arguments.whence {
            DATA => Seek::Data,
            HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL.into()),
        };
        reply.push(&LseekOut { offset: self.fs.seek(ino, arguments.offset, whence)? })
    }

    /// Copies within the volume, sparing the data the way through the kernel. The kernel has written its dirty pages of
    /// both ranges back, and drops what it has cached of the target.
    pub(in crate::session) fn copy_file_range(
        &self,
        header: &InHeader,
        arguments: &CopyFileRangeIn,
        wide: bool,
        reply: &mut Reply,
    ) -> Answer {
        let (from, to) = (self.target(header), self.nodes.inode(arguments.node_out));
        self.drop_privileges(header, to, reply)?;
        let length = arguments.length.min(LARGEST_COPY);
        if !self.shortage.leaves_room(to, arguments.offset_out, length, &*self.fs) {
            return Err(basalt_vfs::Error::NoSpace.into());
        }
        let mut done = 0;
        while done < length {
            // An error after the first piece is left to the next call to meet again.
            match self.copy_piece(from, to, arguments, done, length - done, reply) {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        reply.truncate(0);
        // At most LARGEST_COPY, so 32 bits hold it.
        if wide {
            reply.push(&CopyFileRangeOut { size: done })
        } else {
            reply.push(&WriteOut { size: done as u32, padding: 0 })
        }
    }

    /// Copies the piece `done` bytes into the range, at most `left` bytes; returns how many, 0 at the source's end.
    fn copy_piece(
        &self,
        from: InodeNumber,
        to: InodeNumber,
        arguments: &CopyFileRangeIn,
        done: u64,
        left: u64,
        reply: &mut Reply,
    ) -> basalt_vfs::Result<u64> {
        let position = |start: u64| start.checked_add(done).ok_or(basalt_vfs::Error::FileTooLarge);
        let piece = reply.space_up_to(left.min(COPY_PIECE) as usize);
        let got = self.fs.read(from, position(arguments.offset_in)?, piece)?.min(piece.len());
        if got == 0 {
            return Ok(0);
        }
        Ok(self.fs.write(to, position(arguments.offset_out)?, &piece[..got], false)? as u64)
    }
}
