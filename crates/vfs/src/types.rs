//! The values that cross the interface.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bitflags::bitflags;

/// Nanoseconds of a second.
const NANOS: u32 = 1_000_000_000;

/// An inode number. The root's is what [`FileSystem::root`](crate::FileSystem::root) says.
pub type InodeNumber = u64;

/// A point in time: seconds since the epoch (negative before it) and nanoseconds (0 to 999,999,999).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// What lies before 1970 has negative seconds.
impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Time {
        // Further away than any clock goes, it is as far as a volume can say.
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Time { seconds: seconds(since), nanoseconds: since.subsec_nanos() },
            Err(error) => match error.duration() {
                before if before.subsec_nanos() == 0 => Time { seconds: -seconds(before), nanoseconds: 0 },
                before => Time { seconds: -seconds(before) - 1, nanoseconds: NANOS - before.subsec_nanos() },
            },
        }
    }
}

/// Fails for a time that the system cannot express, with [`std::io::ErrorKind::InvalidData`]. On Linux there is none.
impl TryFrom<Time> for SystemTime {
    type Error = io::Error;

    fn try_from(time: Time) -> io::Result<SystemTime> {
        let whole = Duration::from_secs(time.seconds.unsigned_abs());
        let whole = if time.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        let found = whole.and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanoseconds.into())));
        found.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a time that the system cannot express"))
    }
}

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device node.
    BlockDevice,
    /// A character device node.
    CharDevice,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
}

impl FileKind {
    /// The `S_IFMT` bits of `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            FileKind::Fifo => 0o010_000,
            FileKind::CharDevice => 0o020_000,
            FileKind::Directory => 0o040_000,
            FileKind::BlockDevice => 0o060_000,
            FileKind::Regular => 0o100_000,
            FileKind::Symlink => 0o120_000,
            FileKind::Socket => 0o140_000,
        }
    }

    /// The kind that `st_mode`'s `S_IFMT` bits name, if any.
    pub const fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & 0o170_000 {
            0o010_000 => FileKind::Fifo,
            0o020_000 => FileKind::CharDevice,
            0o040_000 => FileKind::Directory,
            0o060_000 => FileKind::BlockDevice,
            0o100_000 => FileKind::Regular,
            0o120_000 => FileKind::Symlink,
            0o140_000 => FileKind::Socket,
            _ => return None,
        })
    }
}

/// What `stat(2)` tells, and a little more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub ino: InodeNumber,
    /// Distinguishes inodes that used the same number one after the other.
    pub generation: u32,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with set-uid, set-gid and sticky (`0o7777`).
    pub permissions: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as `makedev(3)` encodes it for user space in 32 bits (`new_encode_dev`); else 0.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space taken, in 512-byte sectors.
    pub sectors: u64,
    /// Last read.
    pub atime: Time,
    /// Last content change.
    pub mtime: Time,
    /// Last attribute change.
    pub ctime: Time,
    /// Creation, where the volume records it.
    pub crtime: Option<Time>,
    /// `chattr(1)` flags.
    pub flags: InodeFlags,
    /// Project id (quota), 0 where the volume has none.
    pub project_id: u32,
}

impl Attributes {
    /// `st_mode`: kind and permissions.
    pub const fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions
    }

    /// Whether it is a directory.
    pub const fn is_dir(&self) -> bool {
        matches!(self.kind, FileKind::Directory)
    }

    /// Whether it is a regular file.
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, FileKind::Regular)
    }

    /// Whether it is a symbolic link.
    pub const fn is_symlink(&self) -> bool {
        matches!(self.kind, FileKind::Symlink)
    }

    /// Size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "as `std::fs::Metadata`")]
    pub const fn len(&self) -> u64 {
        self.size
    }

    /// When the content was changed last.
    ///
    /// # Errors
    /// When the system cannot express that time.
    pub fn modified(&self) -> io::Result<SystemTime> {
        self.mtime.try_into()
    }

    /// When the content was read last, as far as that is recorded.
    ///
    /// # Errors
    /// When the system cannot express that time.
    pub fn accessed(&self) -> io::Result<SystemTime> {
        self.atime.try_into()
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The engine's current time.
    Now,
    /// This time.
    To(Time),
}

/// What [`FileSystem::set_attributes`](crate::FileSystem::set_attributes) changes; `None` leaves a field alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// New permission bits (`0o7777`).
    pub permissions: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size in bytes.
    pub size: Option<u64>,
    /// New last-read time.
    pub atime: Option<SetTime>,
    /// New content-change time.
    pub mtime: Option<SetTime>,
    /// New attribute-change time (the kernel's writeback cache keeps times itself and writes them back).
    pub ctime: Option<SetTime>,
    /// Clear set-uid, and set-gid where the group may execute (a chown or a size change by an unprivileged caller).
    pub clear_suid_sgid: bool,
    /// The change belongs to an earlier one that was allowed: times that a cache kept, or set-uid bits that go because content
    /// changes. The immutable and append-only flags, which may have come since, do not forbid it.
    pub is_due: bool,
}

/// Who asks. Permission checks are the kernel's (`default_permissions`); the engine needs the ids for new inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// User id of the caller.
    pub uid: u32,
    /// Group id of the caller.
    pub gid: u32,
    /// File mode creation mask; 0 where the mode is already masked.
    pub umask: u32,
}

/// What to create.
#[derive(Debug, Clone, Copy)]
pub struct NewNode<'a> {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits (`0o7777`) before the mask or the default ACL is applied.
    pub permissions: u32,
    /// Device number for device nodes, else 0.
    pub rdev: u32,
    /// The target of a symbolic link, else empty.
    pub target: &'a [u8],
}

/// One entry of a directory listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Inode number.
    pub ino: InodeNumber,
    /// What it is.
    pub kind: FileKind,
    /// Its name.
    pub name: &'a [u8],
    /// Pass this to [`FileSystem::read_directory`](crate::FileSystem::read_directory) to go on behind this entry. Never 0.
    pub next: u64,
}

/// `statvfs(3)`, in blocks of `block_size` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatFs {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks for users.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks for unprivileged users.
    pub available: u64,
    /// Inodes that can exist.
    pub files: u64,
    /// Inodes that can still be made.
    pub files_free: u64,
    /// Longest file name in bytes.
    pub name_max: u32,
    /// File-system id.
    pub id: u64,
}

/// Where [`FileSystem::seek`](crate::FileSystem::seek) goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is data (`SEEK_DATA`).
    Data,
    /// The next hole, the end of the file counting as one (`SEEK_HOLE`).
    Hole,
}

bitflags! {
    /// Flags of `renameat2(2)`, with its values.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct RenameFlags: u32 {
        /// Fail if the new name exists.
        const NO_REPLACE = 1;
        /// Swap the two names.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0:0) at the old name.
        const WHITEOUT = 4;
    }

    /// What an open file will be used for, as far as flags of the inode may forbid it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct OpenFlags: u32 {
        /// It may be written.
        const WRITE = 1;
        /// Writes go to its end (`O_APPEND`).
        const APPEND = 2;
        /// It is truncated first (`O_TRUNC`).
        const TRUNCATE = 4;
    }

    /// Mode of `fallocate(2)`, with its values.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct FallocateMode: u32 {
        /// Do not change the size.
        const KEEP_SIZE = 1;
        /// Free the range (only with `KEEP_SIZE`).
        const PUNCH_HOLE = 2;
        /// Remove the range and close up.
        const COLLAPSE_RANGE = 8;
        /// Make the range read as zeros, keep it allocated.
        const ZERO_RANGE = 16;
        /// Push the content from the offset on back by the length.
        const INSERT_RANGE = 32;
    }

    /// Flags of `setxattr(2)`, with its values.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct XattrFlags: u32 {
        /// Fail if the attribute exists.
        const CREATE = 1;
        /// Fail if it does not.
        const REPLACE = 2;
    }

    /// `chattr(1)` flags, with the values of `FS_IOC_GETFLAGS`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct InodeFlags: u32 {
        /// Writes are synchronous.
        const SYNC = 0x8;
        /// Cannot be changed, renamed, linked or removed.
        const IMMUTABLE = 0x10;
        /// Can only grow at its end.
        const APPEND = 0x20;
        /// Left out by dump programs.
        const NODUMP = 0x40;
        /// Reads leave the access time alone.
        const NOATIME = 0x80;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x1_0000;
        /// New inodes inherit the project id.
        const PROJECT_INHERIT = 0x2000_0000;
        /// Kept as found; not settable by users.
        const _ = !0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_system() {
        for (seconds, nanoseconds) in [(0, 0), (5, 1), (-1, 999_999_999), (-3, 0), (i64::MAX, 7), (i64::MIN + 1, 0)] {
            let time = Time { seconds, nanoseconds };
            assert_eq!(Time::from(SystemTime::try_from(time).unwrap()), time);
        }
        let half_before = UNIX_EPOCH - Duration::from_millis(500);
        assert_eq!(Time::from(half_before), Time { seconds: -1, nanoseconds: 500_000_000 });
    }
}
