//! Cleaning a mounted volume because somebody asks for it.

use std::path::{Path, PathBuf};

use basalt_vfs::Emptied;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, opcode};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::mounted::{self, NotMounted};

/// The ioctl that cleans, on any file or directory of a mounted volume, by root: `_IOWR('B', 2, struct)` with this structure. It takes the most
/// sections to empty, and tells what was done.
pub const CLEAN_IOCTL: Opcode = opcode::read_write::<CleanRequest>(b'B', 2);

/// The argument of [`CLEAN_IOCTL`].
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CleanRequest {
    /// In: the most sections to empty. Out: those that were.
    pub sections: u32,
    /// Out: blocks that were moved.
    pub blocks_moved: u32,
    /// Out: sections that are free now.
    pub free_sections: u32,
    /// Out: all sections of the volume, free or not.
    pub all_sections: u32,
}

/// Why a mounted volume was not cleaned.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    /// There is no volume of Basalt's.
    #[error(transparent)]
    NotMounted(#[from] NotMounted),
    /// Cleaning failed.
    #[error("cleaning {path}: {errno}")]
    Failed {
        /// The directory.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
}

/// Empties up to `most` sections of the Basalt volume mounted at or around `dir`, and makes them free.
///
/// # Errors
/// See [`CleanError`].
pub fn clean_mounted(dir: &Path, most: u32) -> Result<Emptied, CleanError> {
    let fd = mounted::open(dir)?;
    if mounted::is_read_only(&fd) {
        return Err(CleanError::Failed { path: dir.to_path_buf(), errno: Errno::ROFS });
    }
    let mut request = CleanRequest { sections: most, ..CleanRequest::default() };
    match ask(&fd, &mut request) {
        Ok(()) => {
            let CleanRequest { sections, blocks_moved, free_sections, all_sections } = request;
            Ok(Emptied { sections, blocks_moved, free_sections, all_sections })
        }
        Err(Errno::NOTTY | Errno::NOSYS) => Err(NotMounted::Other(dir.to_path_buf()).into()),
        Err(errno) => Err(CleanError::Failed { path: dir.to_path_buf(), errno }),
    }
}

#[allow(unsafe_code, reason = "an ioctl")]
fn ask(fd: &std::os::fd::OwnedFd, request: &mut CleanRequest) -> rustix::io::Result<()> {
    // SAFETY: the number says that the argument is a `CleanRequest`, which the kernel copies to a FUSE server and back.
    unsafe { rustix::ioctl::ioctl(fd, Updater::<CLEAN_IOCTL, CleanRequest>::new(request)) }
}
