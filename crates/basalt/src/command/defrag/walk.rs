//! The regular files that a path leads to, opened.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::vec::IntoIter;

use basalt_fuse::{MountedFile, NotMounted, hand_over};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::Problem;
use crate::failure::Failure;

/// A regular file of a mounted volume.
pub(super) struct Found {
    pub(super) file: MountedFile,
    pub(super) path: Vec<u8>,
    /// In bytes, when it was opened.
    pub(super) size: u64,
}

/// A directory on the way, and the names in it that are still to come.
struct Level {
    directory: OwnedFd,
    path: Vec<u8>,
    names: IntoIter<Vec<u8>>,
}

/// A walk through a tree, or a single file. It follows no symbolic link, and stays on one file system.
pub(super) struct Walk {
    levels: Vec<Level>,
    file: Option<Found>,
    device: u64,
    access: OFlags,
}

impl Walk {
    /// A walk from this path on; has the kernel hand over what it holds back of the volume there, unless its device is one of `handed_over`. With
    /// `change`, files are opened to be changed.
    ///
    /// # Errors
    /// Where the path leads to neither a file nor a directory of a mounted volume.
    pub(super) fn new(path: &Path, change: bool, handed_over: &mut BTreeSet<u64>) -> Result<Walk, Problem> {
        let name = path.as_os_str().as_bytes();
        let found =
            rustix::fs::statat(CWD, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| not_opened(name, errno))?;
        // Root opens files to read only: while a file is open for writing, no program can be started from it.
        let access = if change && !rustix::process::geteuid().is_root() { OFlags::RDWR } else { OFlags::RDONLY };
        let mut walk = Walk { levels: Vec::new(), file: None, device: found.st_dev, access };
        let refused = |why| Problem::from(Failure::at(path.display(), why));
        // It is a sync of the whole volume.
        let mut take_over = |file: &OwnedFd| -> Result<(), Problem> {
            if !handed_over.contains(&found.st_dev) {
                hand_over(file, path)?;
                handed_over.insert(found.st_dev);
            }
            Ok(())
        };
        match kind(&found) {
            FileType::Directory => {
                walk.enter(CWD, name, name.to_vec())?;
                let level = walk.levels.first();
                level.map_or(Ok(()), |level| take_over(&level.directory))?;
            }
            FileType::RegularFile => {
                // Its size is what it is once the kernel has handed it over.
                let file = open(CWD, name, access).map_err(|errno| not_opened(name, errno))?;
                take_over(&file)?;
                walk.file = take(file, name.to_vec(), walk.device)?;
            }
            FileType::Symlink => return Err(refused("is a symbolic link, which is not followed")),
            _ => return Err(refused("is neither a regular file nor a directory")),
        }
        Ok(walk)
    }

    /// Whether it began at a directory.
    pub(super) fn is_of_directory(&self) -> bool {
        self.file.is_none()
    }

    /// Bytes of the file that it consists of; 0 where nobody knows how many files there are.
    pub(super) fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, |found| found.size)
    }

    fn enter(&mut self, directory: impl AsFd, name: &[u8], path: Vec<u8>) -> Result<(), Problem> {
        let opened = open(directory, name, OFlags::RDONLY | OFlags::DIRECTORY).and_then(|opened| {
            let names = names(&opened)?;
            Ok((opened, names))
        });
        let (directory, names) = opened.map_err(|errno| not_opened(&path, errno))?;
        self.levels.push(Level { directory, path, names: names.into_iter() });
        Ok(())
    }

    /// What a name in a directory leads to; `None` where that is of no interest, or gone.
    fn visit(&mut self, level: &Level, name: &[u8]) -> Result<Option<Found>, Problem> {
        let path = [&level.path, &b"/"[..usize::from(!level.path.ends_with(b"/"))], name].concat();
        let found = match rustix::fs::statat(&level.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            found => found.map_err(|errno| not_opened(&path, errno))?,
        };
        match kind(&found) {
            _ if found.st_dev != self.device => Ok(None),
            FileType::Directory => self.enter(&level.directory, name, path).map(|()| None),
            FileType::RegularFile => match open(&level.directory, name, self.access) {
                // Something else may have taken its place.
                Err(Errno::NOENT | Errno::LOOP) => Ok(None),
                opened => take(opened.map_err(|errno| not_opened(&path, errno))?, path, self.device),
            },
            _ => Ok(None),
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Found, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(file) = self.file.take() {
            return Some(Ok(file));
        }
        loop {
            let mut level = self.levels.pop()?;
            let Some(name) = level.names.next() else { continue };
            let depth = self.levels.len();
            let visited = self.visit(&level, &name);
            // In front of a directory that was entered.
            self.levels.insert(depth, level);
            if let Some(found) = visited.transpose() {
                return Some(found);
            }
        }
    }
}

fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

/// Opens what is there itself. Opening a FIFO that has taken a file's place does not wait.
fn open(directory: impl AsFd, name: &[u8], access: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// What was opened under this path, if it is still a regular file of this device: something else may have taken its place.
fn take(file: OwnedFd, path: Vec<u8>, device: u64) -> Result<Option<Found>, Problem> {
    let found = rustix::fs::fstat(&file).map_err(|errno| not_opened(&path, errno))?;
    if kind(&found) != FileType::RegularFile || found.st_dev != device {
        return Ok(None);
    }
    let file = MountedFile::new(file, OsStr::from_bytes(&path).into())?;
    Ok(Some(Found { file, path, size: u64::try_from(found.st_size).unwrap_or(0) }))
}

fn not_opened(path: &[u8], errno: Errno) -> Problem {
    NotMounted::Open { path: OsStr::from_bytes(path).into(), errno }.into()
}

/// The names in a directory but `.` and `..`, in byte order.
fn names(directory: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let names = Dir::read_from(directory)?.map(|entry| Ok(entry?.file_name().to_bytes().to_vec()));
    let mut names = names.collect::<rustix::io::Result<Vec<_>>>()?;
    names.retain(|name| !matches!(name.as_slice(), b"." | b".."));
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the look at a name and its opening, something else may have taken the place of a file.
    #[test]
    fn what_has_taken_the_place_of_a_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let device = rustix::fs::stat(&pipe).unwrap().st_dev;
        for path in [&pipe, directory.path()] {
            let name = path.as_os_str().as_bytes();
            let opened = open(CWD, name, OFlags::RDONLY).unwrap();
            assert!(take(opened, name.to_vec(), device).is_ok_and(|found| found.is_none()), "{}", path.display());
        }
    }
}
