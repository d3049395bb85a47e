//! Reading, writing, truncating, allocating.

use basalt_vfs::{Error, FallocateMode, InodeFlags, InodeNumber, Result, Time};

use super::{Inode, Model};

/// Largest file in bytes: what two direct, two indirect and one double indirect node address.
pub const SIZE_MAX: u64 = (2 * 1018 + 2 * 1018 * 1018 + 1018 * 1018 * 1018) * 4096;

/// A whole write's end, if a file may reach there.
fn end_of(offset: u64, length: u64) -> Result<u64> {
    offset.checked_add(length).filter(|end| *end <= SIZE_MAX).ok_or(Error::FileTooLarge)
}

impl Inode {
    /// Clears set-uid, and set-gid where the group may execute.
    pub(super) fn clear_set_ids(&mut self) {
        let permissions = &mut self.attributes.permissions;
        *permissions &= !0o4000;
        if *permissions & 0o010 != 0 {
            *permissions &= !0o2000;
        }
    }
}

impl Model {
    /// What a read should deliver.
    pub fn read(&mut self, ino: InodeNumber, offset: u64, length: usize, now: Time) -> Result<Vec<u8>> {
        let inode = self.regular(ino)?;
        let length = inode.attributes.size.saturating_sub(offset).min(length as u64) as usize;
        let data = inode.content.read(offset, length);
        self.read_access(ino, now)?;
        Ok(data)
    }

    /// Whether a write of this length could be served at all.
    pub fn check_write(&mut self, ino: InodeNumber, offset: u64, length: usize, buffered: bool) -> Result<()> {
        self.regular(ino)?;
        if !buffered {
            self.expect_mutable(ino)?;
        }
        if length == 0 { Ok(()) } else { end_of(offset, length as u64).map(|_| ()) }
    }

    /// Writes. `buffered` data comes from the kernel's cache: the times stay.
    pub fn write(
        &mut self,
        ino: InodeNumber,
        offset: u64,
        data: &[u8],
        buffered: bool,
        clear_set_ids: bool,
        now: Time,
    ) -> Result<()> {
        self.check_write(ino, offset, data.len(), buffered)?;
        let inode = self.get(ino)?;
        if clear_set_ids {
            inode.clear_set_ids();
        }
        if data.is_empty() {
            return Ok(());
        }
        inode.content.write(offset, data);
        inode.attributes.size = inode.attributes.size.max(offset + data.len() as u64);
        if !buffered {
            inode.touch(now);
        }
        Ok(())
    }

    /// Sets the size.
    pub(super) fn truncate(&mut self, ino: InodeNumber, size: u64, now: Time) -> Result<()> {
        let inode = self.regular(ino)?;
        if size > SIZE_MAX {
            return Err(Error::FileTooLarge);
        }
        if size < inode.attributes.size {
            let old = inode.attributes.size;
            inode.content.zero(size, old);
        }
        inode.attributes.size = size;
        inode.touch(now);
        Ok(())
    }

    /// Preallocates, punches or zeroes. A range that is no mode's is refused.
    pub fn allocate(
        &mut self,
        ino: InodeNumber,
        mode: FallocateMode,
        offset: u64,
        length: u64,
        now: Time,
    ) -> Result<()> {
        self.regular(ino)?;
        if length == 0 {
            return Err(Error::Invalid("empty range"));
        }
        let end = end_of(offset, length)?;
        let keeps_size = mode.contains(FallocateMode::KEEP_SIZE);
        let zeroes = match mode - FallocateMode::KEEP_SIZE {
            FallocateMode::PUNCH_HOLE if keeps_size => true,
            FallocateMode::ZERO_RANGE => true,
            rest if rest.is_empty() => false,
            _ => return Err(Error::NotSupported("mode")),
        };
        let inode = self.get(ino)?;
        if inode.has(InodeFlags::IMMUTABLE) || zeroes && inode.has(InodeFlags::APPEND) {
            return Err(Error::NotPermitted("flags"));
        }
        if zeroes {
            inode.content.zero(offset, end);
        }
        if !keeps_size {
            inode.attributes.size = inode.attributes.size.max(end);
        }
        inode.touch(now);
        Ok(())
    }
}
