//! The times of an inode: which change, and when.

use basalt_vfs::Time;

use crate::error::Result;
use crate::layout::Ino;
use crate::layout::inode::RawInodeFlags;
use crate::node::inode::{self, Stamp};
use crate::options::Atime;
use crate::volume::Volume;

/// Seconds after which relatime renews an access time.
const RELATIME_SECONDS: i64 = 24 * 60 * 60;

impl Volume {
    /// Marks content and attributes as changed now.
    pub(crate) fn touch(&mut self, ino: Ino) -> Result<()> {
        let now = self.clock.now();
        let raw = self.inode_times_mut(ino)?;
        inode::set_time(raw, Stamp::Modify, now);
        inode::set_time(raw, Stamp::Change, now);
        Ok(())
    }

    /// Marks a file's content as changed now, unless the caller keeps such times.
    pub(crate) fn touch_content(&mut self, ino: Ino) -> Result<()> {
        if self.times_are_set { Ok(()) } else { self.touch(ino) }
    }

    /// Marks attributes as changed now.
    pub(crate) fn touch_change(&mut self, ino: Ino) -> Result<()> {
        let now = self.clock.now();
        inode::set_time(self.inode_times_mut(ino)?, Stamp::Change, now);
        Ok(())
    }

    /// Renews the access time where the mount and the inode want it.
    pub(crate) fn touch_access(&mut self, ino: Ino) -> Result<()> {
        let now = self.clock.now();
        if self.is_access_due(ino, now)? {
            inode::set_time(self.inode_times_mut(ino)?, Stamp::Access, now);
        }
        Ok(())
    }

    /// Whether an access now changes the inode.
    pub(crate) fn is_access_due(&mut self, ino: Ino, now: Time) -> Result<bool> {
        if !self.is_writable() || self.closing || self.options.atime == Atime::Noatime {
            return Ok(false);
        }
        let strict = self.options.atime == Atime::Strict;
        let raw = self.inode(ino)?;
        if raw.i_flags.get() & (RawInodeFlags::NOATIME | RawInodeFlags::IMMUTABLE).bits() != 0 {
            return Ok(false);
        }
        let atime = inode::time(raw, Stamp::Access);
        let stale = atime <= inode::time(raw, Stamp::Modify)
            || atime <= inode::time(raw, Stamp::Change)
            || now.seconds - atime.seconds >= RELATIME_SECONDS;
        Ok((strict || stale) && now != atime)
    }
}
