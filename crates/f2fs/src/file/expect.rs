//! What an inode must be so that something may be done with it.

use basalt_vfs::{FileKind, OpenFlags};

use crate::error::Result;
use crate::layout::Ino;
use crate::layout::inode::{Advise, RawInodeFlags};
use crate::node::inode;
use crate::volume::Volume;

impl Volume {
    /// Fails unless the inode is a directory.
    pub(crate) fn expect_directory(&mut self, ino: Ino) -> Result<()> {
        if self.is_directory(ino)? { Ok(()) } else { Err(basalt_vfs::Error::NotDirectory.into()) }
    }

    /// Whether the inode carries one of these flags.
    pub(crate) fn has_flag(&mut self, ino: Ino, flags: RawInodeFlags) -> Result<bool> {
        Ok(self.inode(ino)?.i_flags.get() & flags.bits() != 0)
    }

    /// Fails if the inode may not be changed at all (immutable), or only grow (append-only).
    pub(crate) fn expect_changeable(&mut self, ino: Ino) -> Result<()> {
        if self.has_flag(ino, RawInodeFlags::IMMUTABLE | RawInodeFlags::APPEND)? {
            return Err(basalt_vfs::Error::NotPermitted("immutable or append-only").into());
        }
        Ok(())
    }

    /// Fails if the inode is immutable.
    pub(crate) fn expect_mutable(&mut self, ino: Ino) -> Result<()> {
        if self.has_flag(ino, RawInodeFlags::IMMUTABLE)? {
            return Err(basalt_vfs::Error::NotPermitted("immutable").into());
        }
        Ok(())
    }

    /// Fails unless the inode is a file whose content Basalt can read, and, for `change`, may change.
    pub(crate) fn expect_file(&mut self, ino: Ino, change: bool) -> Result<()> {
        let raw = self.inode(ino)?;
        match inode::kind(raw) {
            FileKind::Regular => {}
            FileKind::Directory => return Err(basalt_vfs::Error::IsDirectory.into()),
            _ => return Err(basalt_vfs::Error::Invalid("not a regular file").into()),
        }
        let advise = Advise::from_bits_truncate(raw.i_advise);
        if advise.contains(Advise::ENCRYPT) {
            return Err(basalt_vfs::Error::NotPermitted("encrypted, and there is no key").into());
        }
        if change && advise.contains(Advise::VERITY) {
            return Err(basalt_vfs::Error::NotPermitted("sealed by fs-verity").into());
        }
        Ok(())
    }

    /// Fails if the inode's flags forbid this use of an open file.
    pub(crate) fn check_open(&mut self, ino: Ino, how: OpenFlags) -> Result<()> {
        let write = how.contains(OpenFlags::WRITE);
        if self.kind(ino)? == FileKind::Regular {
            self.expect_file(ino, write)?;
        }
        if !write {
            return Ok(());
        }
        self.expect_mutable(ino)?;
        let appends = how.contains(OpenFlags::APPEND) && !how.contains(OpenFlags::TRUNCATE);
        if !appends && self.has_flag(ino, RawInodeFlags::APPEND)? {
            return Err(basalt_vfs::Error::NotPermitted("append-only").into());
        }
        Ok(())
    }
}
