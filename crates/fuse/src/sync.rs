//! Making a mounted volume durable, on plain FUSE too.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, opcode};

use crate::mounted::{self, NotMounted};

/// The ioctl that makes a whole mounted volume durable, on any file or directory of it: `_IO('B', 1)`, without argument.
/// Who may open one may call it, as with sync(2). It returns when the file system's `sync` has.
pub const SYNC_IOCTL: Opcode = opcode::none(b'B', 1);

/// Why a mounted volume could not be made durable.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// There is no volume of Basalt's.
    #[error(transparent)]
    NotMounted(#[from] NotMounted),
    /// Writing back failed: not everything is durable.
    #[error("writing {path} back: {errno}")]
    Failed {
        /// The directory.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
}

/// Makes everything durable that was written to the Basalt volume mounted at or around `dir`.
///
/// syncfs(2) first makes the kernel hand its dirty pages over; on plain FUSE mounts it stops there, so the server is then
/// told to make them durable.
///
/// # Errors
/// See [`SyncError`].
pub fn sync_mounted(dir: &Path) -> Result<(), SyncError> {
    let path = || dir.to_path_buf();
    let failed = |errno| SyncError::Failed { path: path(), errno };
    let fd = mounted::open(dir)?;
    rustix::fs::syncfs(&fd).map_err(failed)?;
    match tell_server(&fd) {
        Err(Errno::NOTTY | Errno::NOSYS) => Err(NotMounted::Other(path()).into()),
        told => told.map_err(failed),
    }
}

#[allow(unsafe_code)]
fn tell_server(fd: &std::os::fd::OwnedFd) -> rustix::io::Result<()> {
    // SAFETY: the ioctl has no argument; the kernel passes its number to a FUSE server and touches no memory of ours.
    unsafe { rustix::ioctl::ioctl(fd, NoArg::<SYNC_IOCTL>::new()) }
}
