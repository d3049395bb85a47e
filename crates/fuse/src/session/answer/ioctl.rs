//! ioctl(2): `chattr(1)` flags, project ids, FITRIM, cleaning and defragmentation on request, and the sync of plain FUSE mounts.

use basalt_vfs::{Defragmented, Emptied, ErrorKind, Extents, InodeFlags, InodeNumber};
use rustix::io::Errno;
use rustix::ioctl::opcode;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::clean::{CLEAN_IOCTL, CleanRequest};
use crate::defragment::{DEFRAGMENT_IOCTL, DefragmentRequest, EXTENTS_IOCTL, ExtentsReply};
use crate::protocol::wire::{InHeader, IoctlIn, IoctlOut};
use crate::session::programs::WRITER;
use crate::session::reply::{Answer, Failure, Reply};
use crate::session::server::Server;
use crate::sync::SYNC_IOCTL;

/// `struct fsxattr` of `linux/fs.h`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FsXattr {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project_id: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// `struct fstrim_range` of `linux/fs.h`, in bytes.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TrimRange {
    start: u64,
    length: u64,
    minimum: u64,
}

// The kernel's numbers. Those of GETFLAGS and SETFLAGS say `long`, but an `int` is what travels.
const GET_FLAGS: u32 = opcode::read::<u64>(b'f', 1);
const SET_FLAGS: u32 = opcode::write::<u64>(b'f', 2);
const GET_FSXATTR: u32 = opcode::read::<FsXattr>(b'X', 31);
const SET_FSXATTR: u32 = opcode::write::<FsXattr>(b'X', 32);
const TRIM: u32 = opcode::read_write::<TrimRange>(b'X', 121);

// Those of F2FS in Linux (`linux/f2fs.h`), so that its tools work.
const GARBAGE_COLLECT: u32 = opcode::write::<u32>(0xF5, 6);
const WRITE_CHECKPOINT: u32 = opcode::none(0xF5, 7);
// `struct f2fs_defragment` is as ours, but that `start` stays.
const DEFRAGMENT: u32 = opcode::read_write::<DefragmentRequest>(0xF5, 8);

/// The flags of `struct fsxattr` beside the `chattr(1)` flags that mean the same.
const FSXATTR_FLAGS: [(u32, InodeFlags); 6] = [
    (0x08, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NOATIME),
    (0x80, InodeFlags::NODUMP),
    (0x200, InodeFlags::PROJECT_INHERIT),
];

impl Server {
    /// Rights to change flags and project ids are the kernel's to check; those to trim are ours.
    pub(in crate::session) fn ioctl(
        &self,
        header: &InHeader,
        arguments: &IoctlIn,
        input: &[u8],
        reply: &mut Reply,
    ) -> Answer {
        let ino = self.target(header);
        reply.push(&IoctlOut::default())?;
        match arguments.command {
            GET_FLAGS => reply.push(&self.fs.attributes(ino)?.flags.bits()),
            SET_FLAGS => {
                reply.outdates(header.node);
                Ok(self.fs.set_flags(ino, InodeFlags::from_bits_retain(structure(input)?))?)
            }
            GET_FSXATTR => reply.push(&self.fsxattr(ino)?),
            SET_FSXATTR => {
                reply.outdates(header.node);
                self.set_fsxattr(ino, structure(input)?)
            }
            TRIM => reply.push(&self.trim(header, structure(input)?)?),
            SYNC_IOCTL => Ok(self.fs.sync()?),
            CLEAN_IOCTL => {
                let CleanRequest { sections, .. } = structure(input)?;
                let Emptied { sections, blocks_moved, free_sections, all_sections } = self.clean(header, sections)?;
                reply.push(&CleanRequest { sections, blocks_moved, free_sections, all_sections })
            }
            GARBAGE_COLLECT => match self.clean(header, 1)?.sections {
                0 => Err(Errno::AGAIN.into()),
                _ => Ok(()),
            },
            EXTENTS_IOCTL => {
                let Extents { extents, bytes } = self.fs.count_extents(ino)?;
                reply.push(&ExtentsReply { extents, bytes })
            }
            DEFRAGMENT_IOCTL => {
                self.expect_may_defragment(header, arguments)?;
                let DefragmentRequest { start, length } = structure(input)?;
                let Defragmented { next, moved } = self.fs.defragment(ino, start, length)?;
                reply.push(&DefragmentRequest { start: next, length: moved })
            }
            DEFRAGMENT => {
                // It takes as long as the whole range does.
                self.expect_root_and_writable(header)?;
                reply.push(&self.defragment_all(ino, structure(input)?)?)
            }
            WRITE_CHECKPOINT => {
                self.expect_root_and_writable(header)?;
                Ok(self.fs.sync()?)
            }
            _ => Err(Errno::NOTTY.into()),
        }
    }

    fn fsxattr(&self, ino: InodeNumber) -> basalt_vfs::Result<FsXattr> {
        let attributes = self.fs.attributes(ino)?;
        let set = FSXATTR_FLAGS.iter().filter(|(_, flag)| attributes.flags.contains(*flag));
        let flags = set.fold(0, |bits, (bit, _)| bits | bit);
        Ok(FsXattr { flags, project_id: attributes.project_id, ..Default::default() })
    }

    fn set_fsxattr(&self, ino: InodeNumber, wanted: FsXattr) -> Answer {
        let known = FSXATTR_FLAGS.iter().fold(0, |bits, (bit, _)| bits | bit);
        if wanted.flags & !known != 0 || wanted.extent_size != 0 || wanted.cow_extent_size != 0 {
            return Err(Errno::OPNOTSUPP.into());
        }
        let before = self.fs.attributes(ino)?;
        let mut flags = before.flags;
        FSXATTR_FLAGS.iter().for_each(|&(bit, flag)| flags.set(flag, wanted.flags & bit != 0));
        if flags != before.flags {
            self.fs.set_flags(ino, flags)?;
        }
        if wanted.project_id != before.project_id {
            self.fs.set_project_id(ino, wanted.project_id)?;
        }
        Ok(())
    }

    fn expect_root_and_writable(&self, header: &InHeader) -> Result<(), Errno> {
        if header.uid != 0 {
            return Err(Errno::PERM);
        }
        if self.read_only {
            return Err(Errno::ROFS);
        }
        Ok(())
    }

    fn clean(&self, header: &InHeader, most: u32) -> Result<Emptied, Failure> {
        self.expect_root_and_writable(header)?;
        Ok(self.fs.empty_sections(most)?)
    }

    /// Fails unless the caller is root or has opened the file for writing: defragmentation wears the device, and takes room for a while.
    fn expect_may_defragment(&self, header: &InHeader, arguments: &IoctlIn) -> Result<(), Errno> {
        if self.read_only {
            return Err(Errno::ROFS);
        }
        if header.uid == 0 || arguments.fh == WRITER { Ok(()) } else { Err(Errno::BADF) }
    }

    /// All of a range; how many bytes were written again. As F2FS in Linux, EAGAIN where too little is free.
    fn defragment_all(&self, ino: InodeNumber, range: DefragmentRequest) -> Result<DefragmentRequest, Failure> {
        let end = range.start.checked_add(range.length).ok_or(Errno::INVAL)?;
        let (mut next, mut length) = (range.start, 0);
        loop {
            let done = match self.fs.defragment(ino, next, end - next) {
                Err(error) if error.kind() == ErrorKind::NoSpace => return Err(Errno::AGAIN.into()),
                done => done?,
            };
            length += done.moved;
            if done.next >= end || done.next <= next {
                return Ok(DefragmentRequest { length, ..range });
            }
            next = done.next;
        }
    }

    fn trim(&self, header: &InHeader, mut range: TrimRange) -> Result<TrimRange, Failure> {
        self.expect_root_and_writable(header)?;
        range.length = self.fs.trim(range.start, range.length, range.minimum)?;
        Ok(range)
    }
}

/// The structure that an ioctl brings.
fn structure<T: FromBytes>(input: &[u8]) -> Result<T, Errno> {
    T::read_from_prefix(input).map(|(value, _)| value).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_kernels() {
        assert_eq!((GET_FLAGS, SET_FLAGS), (0x8008_6601, 0x4008_6602));
        assert_eq!((GET_FSXATTR, SET_FSXATTR), (0x801c_581f, 0x401c_5820));
        assert_eq!((TRIM, SYNC_IOCTL), (0xc018_5879, 0x4201));
        assert_eq!((GARBAGE_COLLECT, WRITE_CHECKPOINT, CLEAN_IOCTL), (0x4004_f506, 0xf507, 0xc010_4202));
        assert_eq!((DEFRAGMENT, DEFRAGMENT_IOCTL, EXTENTS_IOCTL), (0xc010_f508, 0xc010_4203, 0x8010_4204));
    }
}
