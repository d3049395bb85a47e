//! Attributes, opening, extended attributes, and the volume's numbers.

use basalt_vfs::{InodeNumber, OpenFlags, SetAttributes, XattrFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::protocol::flags::{EXECUTE, InitFlags};
use crate::protocol::operation::SetXattrBody;
use crate::protocol::wire::{AttrOut, InHeader, OpenIn, SetattrIn, StatfsOut, StatxOut};
use crate::session::convert;
use crate::session::privileges::{SET_GID, SET_UID};
use crate::session::programs::{EXECUTOR, WRITER};
use crate::session::reply::{Answer, Reply};
use crate::session::server::{Server, may_write};

impl Server {
    pub(in crate::session) fn getattr(&self, ino: InodeNumber, reply: &mut Reply) -> Answer {
        let attributes = self.fs.attributes(ino)?;
        self.attributes_reply(&attributes, reply)
    }

    pub(in crate::session) fn setattr(
        &self,
        header: &InHeader,
        ino: InodeNumber,
        arguments: &SetattrIn,
        reply: &mut Reply,
    ) -> Answer {
        let mut changes = convert::changes(arguments);
        if changes.clear_suid_sgid {
            self.drop_bare_set_gid(header, ino, &mut changes)?;
        }
        let attributes = self.fs.set_attributes(ino, &changes)?;
        self.attributes_reply(&attributes, reply)
    }

    fn attributes_reply(&self, attributes: &basalt_vfs::Attributes, reply: &mut Reply) -> Answer {
        let (attr_valid, attr_valid_nsec) = convert::lifetime(self.attribute_lifetime());
        reply.push(&AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: convert::attr(attributes, self.block_size) })
    }

    pub(in crate::session) fn statx(&self, ino: InodeNumber, reply: &mut Reply) -> Answer {
        let stat = convert::statx(&self.fs.attributes(ino)?, self.block_size);
        let (attr_valid, attr_valid_nsec) = convert::lifetime(self.attribute_lifetime());
        reply.push(&StatxOut { attr_valid, attr_valid_nsec, stat, ..Default::default() })
    }

    /// Opens a file. The kernel has checked permissions, but does not know of flags that forbid it. Truncation comes behind, as a
    /// SETATTR.
    pub(in crate::session) fn open(&self, header: &InHeader, arguments: &OpenIn, reply: &mut Reply) -> Answer {
        if self.agreed.flags.contains(InitFlags::NO_OPEN_SUPPORT) {
            return Err(Errno::NOSYS.into());
        }
        let ino = self.target(header);
        let flags = OFlags::from_bits_retain(arguments.flags);
        let truncate = flags.contains(OFlags::TRUNC);
        let mut how = OpenFlags::empty();
        how.set(OpenFlags::WRITE, may_write(arguments.flags) || truncate);
        how.set(OpenFlags::APPEND, flags.contains(OFlags::APPEND));
        how.set(OpenFlags::TRUNCATE, truncate);
        self.fs.open(ino, how)?;
        let is_privileged = || self.fs.attributes(ino).is_ok_and(|found| found.permissions & (SET_UID | SET_GID) != 0);
        let handle = if may_write(arguments.flags) {
            self.programs.open_to_write(ino, is_privileged)?;
            WRITER
        } else if arguments.flags & EXECUTE != 0 {
            self.programs.open_to_execute(ino, header.pid, is_privileged)?;
            EXECUTOR
        } else {
            0
        };
        reply.push(&self.opened_file(handle))
    }

    pub(in crate::session) fn statfs(&self, reply: &mut Reply) -> Answer {
        let stat = self.fs.stat_fs()?;
        reply.push(&StatfsOut {
            blocks: stat.blocks,
            bfree: stat.free,
            bavail: stat.available,
            files: stat.files,
            ffree: stat.files_free,
            bsize: stat.block_size,
            namelen: stat.name_max,
            frsize: stat.block_size,
            ..Default::default()
        })
    }

    pub(in crate::session) fn setxattr(&self, ino: InodeNumber, body: &SetXattrBody<'_>) -> Answer {
        let extended = self.agreed.flags.contains(InitFlags::SETXATTR_EXT);
        let set = body.decode(extended).ok_or(Errno::INVAL)?;
        let flags = XattrFlags::from_bits(set.flags).ok_or(Errno::INVAL)?;
        self.fs.set_xattr(ino, set.name, set.value, flags)?;
        if set.clear_sgid {
            let permissions = self.fs.attributes(ino)?.permissions;
            if permissions & SET_GID != 0 {
                let changes = SetAttributes { permissions: Some(permissions & !SET_GID), ..Default::default() };
                self.fs.set_attributes(ino, &changes)?;
            }
        }
        Ok(())
    }
}
