//! The host's files, each named by an open directory and a name in it.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use basalt_vfs::{FileKind, Time};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use super::report::{Error, join};

/// For what is opened itself, never through a symbolic link.
const NEVER_FOLLOW: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// What is said of a symbolic link that is to be followed and cannot be.
pub(super) const DANGLING: &str = "is a symbolic link that leads to nothing; -r copies the link itself";

/// A name in an open directory of the host.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: &'a [u8],
    /// The whole path, for messages.
    pub(super) path: &'a [u8],
    /// Whether a symbolic link here stands for what it points to.
    pub(super) follow: bool,
}

impl<'a> Place<'a> {
    /// A path as the user gave it.
    pub(super) fn top(path: &'a Path, follow: bool) -> Place<'a> {
        let path = path.as_os_str().as_bytes();
        Place { directory: CWD, name: path, path, follow }
    }

    /// What is there.
    pub(super) fn stat(&self) -> Result<Stat, Error> {
        let flags = if self.follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        rustix::fs::statat(self.directory, self.name, flags).map_err(|errno| match errno {
            Errno::NOENT if self.follow && lstat(self).is_ok() => Error::refused(self.path, DANGLING),
            errno => self.error("cannot be examined", errno),
        })
    }

    /// Opens a regular file to read. What has taken its place since it was looked at is refused, so that opening a FIFO never hangs.
    pub(super) fn open_file(&self, expected: &Stat) -> Result<File, Error> {
        let file = self.open(OFlags::RDONLY | OFlags::NONBLOCK)?;
        let found = rustix::fs::fstat(&file).map_err(|errno| self.error("cannot be examined", errno))?;
        if (found.st_dev, found.st_ino) != (expected.st_dev, expected.st_ino) {
            return Err(Error::refused(self.path, "was replaced while being copied"));
        }
        Ok(file.into())
    }

    /// Opens a directory.
    pub(super) fn open_directory(&self) -> Result<OwnedFd, Error> {
        self.open(OFlags::RDONLY | OFlags::DIRECTORY)
    }

    fn open(&self, flags: OFlags) -> Result<OwnedFd, Error> {
        let no_follow = if self.follow { OFlags::CLOEXEC } else { NEVER_FOLLOW };
        rustix::fs::openat(self.directory, self.name, flags | no_follow, Mode::empty())
            .map_err(|errno| self.error("cannot be opened", errno))
    }

    /// A path for the calls that know no directory descriptors; a symbolic link at its end is not followed by those
    /// that begin with `l`.
    pub(super) fn proc_path(&self) -> Vec<u8> {
        if self.directory.as_raw_fd() == CWD.as_raw_fd() {
            return self.name.to_vec();
        }
        join(format!("/proc/self/fd/{}", self.directory.as_raw_fd()).as_bytes(), self.name)
    }

    pub(super) fn error(&self, doing: &'static str, source: impl Into<std::io::Error>) -> Error {
        Error::host(self.path, doing, source)
    }
}

/// What is at a place itself, links not followed.
pub(super) fn lstat(place: &Place<'_>) -> rustix::io::Result<Stat> {
    rustix::fs::statat(place.directory, place.name, AtFlags::SYMLINK_NOFOLLOW)
}

/// The names in an open directory but `.` and `..`, in byte order: the same tree gives the same volume.
pub(super) fn names(directory: &OwnedFd, path: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let failed = |errno: Errno| Error::host(path, "cannot be listed", errno);
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
        if !matches!(name.as_slice(), b"." | b"..") {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// What a `stat` shows.
pub(super) fn kind(stat: &Stat) -> Option<FileKind> {
    FileKind::from_mode(stat.st_mode)
}

/// How many names a file has.
pub(super) fn links(stat: &Stat) -> u64 {
    #[allow(clippy::useless_conversion, reason = "not 64 bits wide on every machine")]
    u64::from(stat.st_nlink)
}

/// Last access and last change of content.
pub(super) fn times(stat: &Stat) -> (Time, Time) {
    // Nanoseconds are below 10^9 on every host.
    let time = |seconds: i64, nanoseconds| Time { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) };
    (time(stat.st_atime, stat.st_atime_nsec), time(stat.st_mtime, stat.st_mtime_nsec))
}

/// Times as the host sets them.
pub(super) fn timestamps(atime: Time, mtime: Time) -> Timestamps {
    let timespec = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) }
}

/// A device number as volumes keep it (`new_encode_dev` in Linux: 12 bits of major between the 8 lower and 12 upper ones of minor).
pub(super) fn encode_device(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xFF) | ((major & 0xFFF) << 8) | ((minor & !0xFF) << 12)
}

/// A device number as the host keeps it.
pub(super) fn decode_device(rdev: u32) -> u64 {
    rustix::fs::makedev(rdev >> 8 & 0xFFF, rdev & 0xFF | rdev >> 12 & 0xF_FF00)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers() {
        for (major, minor, encoded) in [(8, 1, 0x801), (0, 0, 0), (259, 300, 0x11_032C), (0xFFF, 0xF_FFFF, 0xFFFF_FFFF)]
        {
            let device = rustix::fs::makedev(major, minor);
            assert_eq!(encode_device(device), encoded, "{major}:{minor}");
            assert_eq!(decode_device(encoded), device);
        }
    }
}
