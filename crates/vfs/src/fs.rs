//! The interface itself.

use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::types::{
    Attributes, Caller, DirectoryEntry, FallocateMode, InodeFlags, InodeNumber, NewNode, OpenFlags, RenameFlags, Seek,
    SetAttributes, StatFs, Time, XattrFlags,
};

/// What a [`FileSystem::tick`] left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Background {
    /// Call again after at most this long.
    pub next: Duration,
}

/// What [`FileSystem::empty_sections`] did, and what that led to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Emptied {
    /// Sections that were emptied. None: nothing would be gained.
    pub sections: u32,
    /// Blocks that were moved out of them.
    pub blocks_moved: u32,
    /// Sections that are free now.
    pub free_sections: u32,
    /// All sections of the volume, free or not.
    pub all_sections: u32,
}

/// How a file lies on its device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extents {
    /// Runs of blocks that follow one another both in the file and on the device. A hole ends none.
    pub extents: u64,
    /// Bytes in them. What waits in memory, holes and what is only reserved have none.
    pub bytes: u64,
}

/// What [`FileSystem::defragment`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// The byte of the file to go on from; the end of the range where all of it was looked at.
    pub next: u64,
    /// Bytes that were written again.
    pub moved: u64,
}

/// A mounted file system. All methods may be called from several threads at once.
///
/// **Inode lifetimes.** Every `Ok` of [`lookup`](Self::lookup), [`create`](Self::create),
/// [`create_unnamed`](Self::create_unnamed) and [`link`](Self::link) is one reference that the caller gives back with
/// [`forget`](Self::forget); an inode without links lives until its last reference goes. The root needs none.
///
/// **Permissions** are checked by the caller (the kernel); the engine refuses only what immutable and append-only flags
/// forbid. **Times** are kept by the engine from its own clock unless set, or [left to the caller](Self::leave_times_to_caller).
///
/// Errors are those of the system call of the same name; see [`Error`].
pub trait FileSystem: Send + Sync {
    /// The root directory's inode number.
    fn root(&self) -> InodeNumber;

    /// Finds `name` in `parent` (`.` and `..` included) and takes one reference on the inode.
    fn lookup(&self, parent: InodeNumber, name: &[u8]) -> Result<Attributes>;

    /// Gives back `count` references.
    fn forget(&self, ino: InodeNumber, count: u64);

    /// The attributes of an inode.
    fn attributes(&self, ino: InodeNumber) -> Result<Attributes>;

    /// Changes attributes; a new size truncates or extends. Returns the attributes after the change.
    fn set_attributes(&self, ino: InodeNumber, changes: &SetAttributes) -> Result<Attributes>;

    /// The target of a symbolic link.
    fn read_link(&self, ino: InodeNumber) -> Result<Vec<u8>>;

    /// Makes a file, directory, symbolic link, device node, FIFO or socket, and takes one reference.
    fn create(&self, parent: InodeNumber, name: &[u8], node: &NewNode<'_>, caller: &Caller) -> Result<Attributes>;

    /// Makes a regular file without a name (`O_TMPFILE`) in `parent`'s volume, and takes one reference.
    fn create_unnamed(&self, parent: InodeNumber, permissions: u32, caller: &Caller) -> Result<Attributes>;

    /// Gives `ino` one more name, and takes one reference.
    fn link(&self, ino: InodeNumber, parent: InodeNumber, name: &[u8]) -> Result<Attributes>;

    /// Removes the name of something that is no directory.
    fn unlink(&self, parent: InodeNumber, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, parent: InodeNumber, name: &[u8]) -> Result<()>;

    /// Renames atomically; an existing target is replaced unless the flags say otherwise.
    fn rename(
        &self,
        parent: InodeNumber,
        name: &[u8],
        new_parent: InodeNumber,
        new_name: &[u8],
        flags: RenameFlags,
        caller: &Caller,
    ) -> Result<()>;

    /// Asks whether an inode may be opened so: flags of the inode (immutable, append-only) may forbid it. Nothing is held open.
    fn open(&self, ino: InodeNumber, how: OpenFlags) -> Result<()> {
        let _ = (ino, how);
        Ok(())
    }

    /// From now on the caller keeps mtime and ctime of regular files while their content changes, and sets them by
    /// [`set_attributes`](Self::set_attributes): [`write`](Self::write), [`fallocate`](Self::fallocate) and a new size leave them alone.
    /// So does a kernel with a writeback cache. Two clocks would differ by a tick, and what is shown would not be what is stored.
    fn leave_times_to_caller(&self) {}

    /// Fills `buf` from byte `offset`; returns how many bytes, fewer only at the end of the file.
    fn read(&self, ino: InodeNumber, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes `data` at byte `offset`, and clears set-uid and set-gid if asked to. Extends the file as needed. Returns how many bytes
    /// were written: all, or fewer, at least one, where space ran out behind them.
    fn write(&self, ino: InodeNumber, offset: u64, data: &[u8], clear_suid_sgid: bool) -> Result<usize>;

    /// Writes pages that the kernel's writeback cache held: as [`write`](Self::write), but leaves the times alone. The kernel
    /// keeps mtime and ctime itself meanwhile, and sets them by [`set_attributes`](Self::set_attributes), before or after.
    ///
    /// All or an error, after which a beginning may have been written: the kernel does not look at a count here, and what was
    /// left out would be lost without a word.
    fn write_back(&self, ino: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        if self.write(ino, offset, data, false)? < data.len() { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// As [`write`](Self::write), of bytes that the file system may keep until they are on its device. One that does not copies what it needs.
    fn write_shared(&self, ino: InodeNumber, offset: u64, data: Bytes, clear_suid_sgid: bool) -> Result<usize> {
        self.write(ino, offset, &data, clear_suid_sgid)
    }

    /// As [`write_back`](Self::write_back), of bytes that the file system may keep.
    fn write_back_shared(&self, ino: InodeNumber, offset: u64, data: Bytes) -> Result<()> {
        self.write_back(ino, offset, &data)
    }

    /// Bytes of free space that writing `length` bytes at `offset` takes at most; 0 where the file has all blocks for it.
    /// Who does not know says all of them.
    fn room_for(&self, ino: InodeNumber, offset: u64, length: u64) -> Result<u64> {
        let _ = (ino, offset);
        Ok(length)
    }

    /// Preallocates, punches or zeroes a range, as `fallocate(2)`.
    fn fallocate(&self, ino: InodeNumber, mode: FallocateMode, offset: u64, length: u64) -> Result<()>;

    /// The next data or hole at or behind `offset`.
    fn seek(&self, ino: InodeNumber, offset: u64, whence: Seek) -> Result<u64>;

    /// Lists from cursor `from` (0, or an entry's `next`), `.` and `..` included, until `emit` returns false.
    /// The entry for which `emit` returned false counts as not delivered.
    fn read_directory(
        &self,
        ino: InodeNumber,
        from: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()>;

    /// Makes one inode durable: its content and what is needed to find it; with `data_only` not its times.
    fn sync_file(&self, ino: InodeNumber, data_only: bool) -> Result<()>;

    /// Makes everything durable.
    fn sync(&self) -> Result<()>;

    /// Space and inodes.
    fn stat_fs(&self) -> Result<StatFs>;

    /// The value of an extended attribute; `name` with its prefix (`user.mime_type`).
    fn get_xattr(&self, ino: InodeNumber, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets an extended attribute. Setting an ACL changes the permission bits with it.
    fn set_xattr(&self, ino: InodeNumber, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()>;

    /// The names of the extended attributes, each followed by a zero byte.
    fn list_xattrs(&self, ino: InodeNumber) -> Result<Vec<u8>>;

    /// Removes an extended attribute.
    fn remove_xattr(&self, ino: InodeNumber, name: &[u8]) -> Result<()>;

    /// Sets the `chattr(1)` flags that a user may set; others stay.
    fn set_flags(&self, ino: InodeNumber, flags: InodeFlags) -> Result<()>;

    /// Sets the project id (`FS_IOC_FSSETXATTR`).
    fn set_project_id(&self, ino: InodeNumber, project_id: u32) -> Result<()>;

    /// Discards free space within the byte range of the volume, in pieces of at least `minimum` bytes (`FITRIM`);
    /// returns how many bytes were discarded.
    fn trim(&self, offset: u64, length: u64, minimum: u64) -> Result<u64>;

    /// Cleans because somebody asks for it: empties up to `most` sections that are worth it, and makes them free. It may be fewer although there is more
    /// to gain: others get their turn in between.
    ///
    /// # Errors
    /// [`Error::NotSupported`] where there is nothing to clean.
    fn empty_sections(&self, most: u32) -> Result<Emptied> {
        let _ = most;
        Err(Error::NotSupported("cleaning"))
    }

    /// How a regular file lies on the device.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no regular file, [`Error::NotSupported`] where nobody knows.
    fn count_extents(&self, ino: InodeNumber) -> Result<Extents> {
        let _ = ino;
        Err(Error::NotSupported("counting extents"))
    }

    /// Puts what of a regular file lies scattered on the device in sequence: the range of `length` bytes from `offset` on, both of whole blocks of
    /// 4096. Content, size, times, holes and reserved blocks stay. Looks at a bounded part of the range, and says where to go on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other ranges, what is no regular file, and files whose blocks may not move; [`Error::NoSpace`] where so little is free
    /// that others need it; [`Error::ReadOnly`]; [`Error::NotSupported`].
    fn defragment(&self, ino: InodeNumber, offset: u64, length: u64) -> Result<Defragmented> {
        let _ = (ino, offset, length);
        Err(Error::NotSupported("defragmentation"))
    }

    /// Does a bounded piece of background work (writeback, checkpoint, discard, cleaning) at time `now`.
    fn tick(&self, now: Time) -> Background;

    /// Hands writes to the device for callers who go on meanwhile, and returns after [`end_write_behind`](Self::end_write_behind). Threads of
    /// the owner call it, each once. A file system that needs none returns at once, and so does one that was ended or has failed.
    ///
    /// What a write leaves to these threads may fail later: the file system notes that, and fsync tells it.
    fn write_behind(&self) {}

    /// Ends [`write_behind`](Self::write_behind), now and for good: from then on each caller waits for its own requests.
    fn end_write_behind(&self) {}

    /// Writes everything back and leaves the volume clean. Later calls fail with EIO or do nothing.
    ///
    /// Ends all references, and with them inodes without links: the kernel does not give each one back when it unmounts.
    fn close(&self) -> Result<()>;
}
