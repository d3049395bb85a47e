//! Files and directories of mounted volumes, for those who ask the server something.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

/// `f_type` of FUSE mounts.
const FUSE_MAGIC: u64 = 0x6573_5546;

/// Why a file or directory is none of a mounted Basalt volume.
#[derive(Debug, thiserror::Error)]
pub enum NotMounted {
    /// The file or directory could not be opened.
    #[error("opening {path}: {errno}")]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// Another file system is there.
    #[error("{0} is not on a mounted Basalt volume")]
    Other(PathBuf),
}

/// Opens a directory of a FUSE mount. That is asked first: what the number of an ioctl means elsewhere is not known.
pub(crate) fn open(dir: &Path) -> Result<OwnedFd, NotMounted> {
    let refused = |errno| NotMounted::Open { path: dir.to_path_buf(), errno };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty()).map_err(refused)?;
    expect_fuse(&fd, dir)?;
    Ok(fd)
}

/// Whether nothing may be changed through what is open: the mount, or the place where it was mounted again, is read-only. The kernel lets ioctls pass.
pub(crate) fn is_read_only(fd: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(fd).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Fails where what is open under this path is on no FUSE mount.
pub(crate) fn expect_fuse(fd: &OwnedFd, path: &Path) -> Result<(), NotMounted> {
    let found = rustix::fs::fstatfs(fd).map_err(|errno| NotMounted::Open { path: path.to_path_buf(), errno })?;
    // `f_type` is signed on some machines.
    if found.f_type as u64 != FUSE_MAGIC {
        return Err(NotMounted::Other(path.to_path_buf()));
    }
    Ok(())
}
