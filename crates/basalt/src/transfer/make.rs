//! Making files on the host. Nothing that is there is followed or written to; what is made is known by its descriptor from then on.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use basalt_vfs::FileKind;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::beneath;
use super::host::{Place, kind, lstat};
use super::report::Error;

/// What is never replaced by a file, and what to do instead.
const DEVICE_OR_PIPE: &str = "a device or pipe; `basalt cat` writes a file into one";

/// A directory to copy into.
pub(super) enum Directory {
    /// It was made for the copy, and no other user can put anything into it yet.
    New(OwnedFd),
    /// It was there.
    Old(OwnedFd),
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Directory::New(directory) | Directory::Old(directory) => directory.as_fd(),
        }
    }
}

/// A directory that the user named, links in its path followed; `None` where there is none.
pub(super) fn open_destination(path: &Path) -> Result<Option<OwnedFd>, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(Error::host(path.as_os_str().as_bytes(), "cannot be opened", errno)),
    }
}

/// Where a symbolic link leads that the user named as the destination of something of kind `new`: the directory and the name of a
/// regular file, which is replaced then, as cp(1) writes into it. `None` where there is no link, or where it is replaced itself.
///
/// The kernel follows the link, so its own rules for links in directories that everybody may write to hold here too.
pub(super) fn follow_destination(path: &Path, new: FileKind) -> Result<Option<(OwnedFd, OsString)>, Error> {
    let bytes = path.as_os_str().as_bytes();
    let place = Place { directory: CWD, name: bytes, path: bytes, follow: false };
    if !lstat(&place).is_ok_and(|found| kind(&found) == Some(FileKind::Symlink)) {
        return Ok(None);
    }
    let file = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) if new == FileKind::Regular => {
            return Err(Error::refused(bytes, "is a symbolic link that leads to nothing; remove it first"));
        }
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(place.error("cannot be opened", errno)),
    };
    let found = rustix::fs::fstat(&file).map_err(|errno| place.error("cannot be examined", errno))?;
    match kind(&found) {
        Some(FileKind::Regular) if new == FileKind::Regular => {}
        Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink) => return Ok(None),
        _ => return Err(Error::refused(bytes, format!("leads to {DEVICE_OR_PIPE}"))),
    }
    let real = rustix::fs::readlink(beneath::proc_path(&file), Vec::new());
    let real = real.map_err(|errno| place.error("cannot be followed", errno))?;
    let real = Path::new(OsStr::from_bytes(real.as_bytes()));
    let (parent, name) = open_parent(real)?;
    // The path may lead elsewhere by now, or the file have no name any more.
    let real = Place { directory: parent.as_fd(), name: name.as_bytes(), path: bytes, follow: false };
    if lstat(&real).is_ok_and(|real| beneath::identity(&real) == beneath::identity(&found)) {
        return Ok(Some((parent, name.to_owned())));
    }
    Err(Error::refused(bytes, "leads to a file that has no name of its own here; name another destination"))
}

/// The directory that a path's last name is in, links followed, and that name.
pub(super) fn open_parent(path: &Path) -> Result<(OwnedFd, &OsStr), Error> {
    let failed = |errno| Error::host(path.as_os_str().as_bytes(), "cannot be created", errno);
    let name = path.file_name().ok_or_else(|| failed(Errno::NOENT))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::open(parent, flags, Mode::empty()).map_err(failed)?;
    Ok((parent, name))
}

/// A directory that was made a moment ago, and that its maker may fill. Whoever may rename it may put another one in its place; that
/// has to be an empty one.
pub(super) fn open_new(directory: impl AsFd, name: &[u8], path: &[u8]) -> Result<OwnedFd, Error> {
    let failed = |errno| Error::host(path, "cannot be opened", errno);
    let made = beneath::open(directory, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).map_err(failed)?;
    expect_empty(&made, path)?;
    Ok(made)
}

/// A directory that the user named and that was made for this copy.
pub(super) fn open_new_destination(path: &Path) -> Result<OwnedFd, Error> {
    let bytes = path.as_os_str().as_bytes();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let made = rustix::fs::openat(CWD, path, flags, Mode::empty());
    let made = made.map_err(|errno| Error::host(bytes, "cannot be opened", errno))?;
    expect_empty(&made, bytes)?;
    Ok(made)
}

fn expect_empty(directory: &OwnedFd, path: &[u8]) -> Result<(), Error> {
    let failed = |errno| Error::host(path, "cannot be listed", errno);
    for entry in Dir::read_from(directory).map_err(failed)? {
        if !matches!(entry.map_err(failed)?.file_name().to_bytes(), b"." | b"..") {
            return Err(replaced(path));
        }
    }
    Ok(())
}

fn replaced(path: &[u8]) -> Error {
    Error::refused(path, "was replaced by another process while it was created")
}

impl Place<'_> {
    /// A directory to copy into: a new one, or one that is there.
    pub(super) fn make_directory(&self) -> Result<Directory, Error> {
        match rustix::fs::mkdirat(self.directory, self.name, Mode::RWXU) {
            Ok(()) => open_new(self.directory, self.name, self.path).map(Directory::New),
            Err(Errno::EXIST) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                let opened = beneath::open(self.directory, self.name, flags, Mode::empty());
                opened.map(Directory::Old).map_err(|errno| match errno {
                    Errno::LOOP | Errno::NOTDIR => {
                        Error::refused(self.path, "a symbolic link or a file is in the place of a directory")
                    }
                    errno => self.error("cannot be opened", errno),
                })
            }
            Err(errno) => Err(self.error("cannot be created", errno)),
        }
    }

    /// Makes a regular file that did not exist, open to write, without rights for other users yet.
    pub(super) fn create_file(&self) -> Result<File, Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let made = beneath::open(self.directory, self.name, flags, Mode::RUSR | Mode::WUSR);
        made.map(File::from).map_err(|errno| self.error("cannot be created", errno))
    }

    /// Makes a symbolic link; returns its descriptor, with `O_PATH`.
    pub(super) fn make_symlink(&self, target: &[u8]) -> Result<OwnedFd, Error> {
        let failed = |errno| self.error("cannot be created", errno);
        rustix::fs::symlinkat(target, self.directory, self.name).map_err(failed)?;
        let made = beneath::open(self.directory, self.name, OFlags::PATH, Mode::empty()).map_err(failed)?;
        match rustix::fs::readlinkat(&made, c"", Vec::new()) {
            Ok(found) if found.as_bytes() == target => Ok(made),
            Ok(_) | Err(Errno::NOENT | Errno::INVAL) => Err(replaced(self.path)),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Makes a FIFO, socket or device node that no user may use yet; returns its descriptor, with `O_PATH`.
    pub(super) fn make_special(&self, kind: FileType, device: u64) -> Result<OwnedFd, Error> {
        let failed = |errno| self.error("cannot be created", errno);
        rustix::fs::mknodat(self.directory, self.name, kind, Mode::empty(), device).map_err(|errno| match errno {
            Errno::PERM => Error::refused(self.path, "cannot be created: only root can create device nodes"),
            errno => failed(errno),
        })?;
        let made = beneath::open(self.directory, self.name, OFlags::PATH, Mode::empty()).map_err(failed)?;
        // What somebody may have put in its place has to be as good: of the same kind, and of no use to anybody.
        let found = rustix::fs::fstat(&made).map_err(failed)?;
        let is_device = matches!(kind, FileType::BlockDevice | FileType::CharacterDevice);
        let is_same = FileType::from_raw_mode(found.st_mode) == kind && (!is_device || found.st_rdev == device);
        if is_same && found.st_mode & 0o7777 == 0 { Ok(made) } else { Err(replaced(self.path)) }
    }

    /// What is there and can be replaced by something of kind `new`. Directories stay, and so do devices and pipes, which a
    /// careless destination such as /dev/null may name.
    pub(super) fn replaceable(&self, new: FileKind) -> Result<Option<Stat>, Error> {
        let old = match lstat(self) {
            Ok(old) => old,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.error("cannot be examined", errno)),
        };
        match kind(&old) {
            Some(FileKind::Regular | FileKind::Symlink) => Ok(Some(old)),
            Some(FileKind::Directory) => {
                Err(Error::refused(self.path, "is a directory, and only a directory can replace it"))
            }
            kind if kind == Some(new) => Ok(Some(old)),
            _ => Err(Error::refused(self.path, format!("is {DEVICE_OR_PIPE}"))),
        }
    }
}
