//! Names: finding, making, linking, renaming.

use basalt_vfs::{Attributes, FileKind, InodeNumber, NewNode, RenameFlags};
use rustix::io::Errno;

use crate::protocol::flags::OpenReplyFlags;
use crate::protocol::wire::{CreateIn, EntryOut, InHeader, MkdirIn, MknodIn, OpenOut};
use crate::session::convert;
use crate::session::programs::WRITER;
use crate::session::reply::{Answer, Reply};
use crate::session::server::{Server, caller, may_write};

impl Server {
    pub(in crate::session) fn lookup(&self, parent: InodeNumber, name: &[u8], reply: &mut Reply) -> Answer {
        match self.fs.lookup(parent, name) {
            Ok(found) => self.entry(&found, reply),
            Err(basalt_vfs::Error::NotFound) if !self.negative_lifetime.is_zero() => {
                let (entry_valid, entry_valid_nsec) = convert::lifetime(self.negative_lifetime);
                reply.push(&EntryOut { entry_valid, entry_valid_nsec, ..Default::default() })
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(in crate::session) fn forget(&self, ino: InodeNumber, count: u64) -> Answer {
        if ino != self.fs.root() {
            self.shortage.forget(ino);
            self.overwritten.forget(ino);
            self.programs.forget(ino);
            self.fs.forget(ino, count);
        }
        Ok(())
    }

    pub(in crate::session) fn symlink(
        &self,
        header: &InHeader,
        name: &[u8],
        target: &[u8],
        reply: &mut Reply,
    ) -> Answer {
        let node = NewNode { kind: FileKind::Symlink, permissions: 0o777, rdev: 0, target };
        let made = self.fs.create(self.target(header), name, &node, &caller(header, 0))?;
        self.entry(&made, reply)
    }

    pub(in crate::session) fn mknod(
        &self,
        header: &InHeader,
        arguments: &MknodIn,
        name: &[u8],
        reply: &mut Reply,
    ) -> Answer {
        let kind = FileKind::from_mode(arguments.mode).ok_or(Errno::INVAL)?;
        let rdev = match kind {
            FileKind::BlockDevice | FileKind::CharDevice => arguments.rdev,
            _ => 0,
        };
        let node = NewNode { kind, permissions: arguments.mode & 0o7777, rdev, target: &[] };
        let made = self.fs.create(self.target(header), name, &node, &caller(header, arguments.umask))?;
        self.entry(&made, reply)
    }

    pub(in crate::session) fn mkdir(
        &self,
        header: &InHeader,
        arguments: &MkdirIn,
        name: &[u8],
        reply: &mut Reply,
    ) -> Answer {
        let permissions = arguments.mode & 0o7777;
        let node = NewNode { kind: FileKind::Directory, permissions, rdev: 0, target: &[] };
        let made = self.fs.create(self.target(header), name, &node, &caller(header, arguments.umask))?;
        self.entry(&made, reply)
    }

    pub(in crate::session) fn create(
        &self,
        header: &InHeader,
        arguments: &CreateIn,
        name: &[u8],
        reply: &mut Reply,
    ) -> Answer {
        let permissions = arguments.mode & 0o7777;
        let node = NewNode { kind: FileKind::Regular, permissions, rdev: 0, target: &[] };
        let made = self.fs.create(self.target(header), name, &node, &caller(header, arguments.umask))?;
        self.entry(&made, reply)?;
        reply.push(&self.opened_file(self.open_new(&made, arguments.flags)))
    }

    pub(in crate::session) fn tmpfile(&self, header: &InHeader, arguments: &CreateIn, reply: &mut Reply) -> Answer {
        let permissions = arguments.mode & 0o7777;
        let made = self.fs.create_unnamed(self.target(header), permissions, &caller(header, arguments.umask))?;
        self.entry(&made, reply)?;
        reply.push(&self.opened_file(self.open_new(&made, arguments.flags)))
    }

    pub(in crate::session) fn link(
        &self,
        ino: InodeNumber,
        parent: InodeNumber,
        name: &[u8],
        reply: &mut Reply,
    ) -> Answer {
        let linked = self.fs.link(ino, parent, name)?;
        self.entry(&linked, reply)
    }

    pub(in crate::session) fn rename(
        &self,
        header: &InHeader,
        name: &[u8],
        new_parent: InodeNumber,
        new_name: &[u8],
        flags: u32,
    ) -> Answer {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        Ok(self.fs.rename(self.target(header), name, new_parent, new_name, flags, &caller(header, 0))?)
    }

    /// Puts an inode that the file system has just given a reference on into the reply.
    pub(in crate::session) fn entry(&self, found: &Attributes, reply: &mut Reply) -> Answer {
        reply.grants(found.ino);
        reply.push(&self.entry_out(found)?)
    }

    /// The protocol's form of an inode found; EIO for inode number 0, which the kernel would take for "no such name".
    pub(in crate::session) fn entry_out(&self, found: &Attributes) -> Result<EntryOut, Errno> {
        let node = self.nodes.node(found.ino);
        if node == 0 {
            return Err(Errno::IO);
        }
        let (entry_valid, entry_valid_nsec) = convert::lifetime(self.entry_lifetime);
        let (attr_valid, attr_valid_nsec) = convert::lifetime(self.attribute_lifetime());
        Ok(EntryOut {
            node,
            generation: u64::from(found.generation),
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: convert::attr(found, self.block_size),
        })
    }

    /// Opens a file that has just been made, with these flags of open(2); returns its handle.
    fn open_new(&self, made: &Attributes, flags: u32) -> u64 {
        // Nobody executes it yet.
        let is_written = may_write(flags) && self.programs.open_to_write(made.ino, || false).is_ok();
        if is_written { WRITER } else { 0 }
    }

    /// The reply to whatever opens a file: the handle tells only what for, and what the kernel has cached stays right.
    pub(in crate::session) fn opened_file(&self, handle: u64) -> OpenOut {
        let mut flags = OpenReplyFlags::KEEP_CACHE | OpenReplyFlags::NO_FLUSH | OpenReplyFlags::PARALLEL_DIRECT_WRITES;
        flags.set(OpenReplyFlags::DIRECT_IO, self.direct_io);
        OpenOut { fh: handle, open_flags: flags.bits(), backing_id: 0 }
    }
}
