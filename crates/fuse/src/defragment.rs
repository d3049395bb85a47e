//! Putting the blocks of files of a mounted volume in sequence, because somebody asks for it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use basalt_vfs::{Defragmented, Extents};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Updater, opcode};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::mounted::{self, NotMounted};

/// The ioctl that puts a part of a regular file in sequence: `_IOWR('B', 3, struct)` with this structure. The caller is root, or has opened the
/// file to write. It looks at a bounded part of the range, and tells where to go on.
pub const DEFRAGMENT_IOCTL: Opcode = opcode::read_write::<DefragmentRequest>(b'B', 3);

/// The ioctl that tells how a regular file lies on the device: `_IOR('B', 4, struct)` with this structure.
pub const EXTENTS_IOCTL: Opcode = opcode::read::<ExtentsReply>(b'B', 4);

/// The argument of [`DEFRAGMENT_IOCTL`]. All numbers are in bytes.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DefragmentRequest {
    /// In: where the range begins, a multiple of 4096. Out: where to go on.
    pub start: u64,
    /// In: the length of the range, a multiple of 4096. Out: what was written again.
    pub length: u64,
}

/// The argument of [`EXTENTS_IOCTL`].
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ExtentsReply {
    /// Extents on the device.
    pub extents: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// Why a file was not put in sequence, or not looked at.
#[derive(Debug, thiserror::Error)]
pub enum DefragmentError {
    /// It is on no volume of Basalt's.
    #[error(transparent)]
    NotMounted(#[from] NotMounted),
    /// The file system refused it.
    #[error("defragmenting {path}: {errno}")]
    Failed {
        /// The file.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
}

/// Has the kernel hand over what it holds back of the volume on which `file`, of whatever kind, is open: only then has it a place on the device.
///
/// # Errors
/// Where it is on no FUSE mount, or the file system takes not all of it.
pub fn hand_over(file: &OwnedFd, path: &Path) -> Result<(), DefragmentError> {
    mounted::expect_fuse(file, path)?;
    rustix::fs::syncfs(file).map_err(|errno| DefragmentError::Failed { path: path.to_path_buf(), errno })
}

/// An open regular file of a mounted volume.
#[derive(Debug)]
pub struct MountedFile {
    fd: OwnedFd,
    path: PathBuf,
}

impl MountedFile {
    /// An open file; errors call it by this path.
    ///
    /// # Errors
    /// Where it is on no FUSE mount: what numbers of ioctls mean elsewhere is not known.
    pub fn new(fd: OwnedFd, path: PathBuf) -> Result<MountedFile, NotMounted> {
        mounted::expect_fuse(&fd, &path)?;
        Ok(MountedFile { fd, path })
    }

    /// How the file lies on the device; what still waits in memory does not count.
    ///
    /// # Errors
    /// See [`DefragmentError`].
    #[allow(unsafe_code, reason = "an ioctl")]
    pub fn extents(&self) -> Result<Extents, DefragmentError> {
        // SAFETY: the number says that the argument is an `ExtentsReply`, which the kernel fills; any bytes make one.
        let told = unsafe { rustix::ioctl::ioctl(&self.fd, Getter::<EXTENTS_IOCTL, ExtentsReply>::new()) };
        let ExtentsReply { extents, bytes } = told.map_err(|errno| self.failed(errno))?;
        Ok(Extents { extents, bytes })
    }

    /// Puts a part of a range in sequence, both of whole blocks of 4096 bytes: see [`basalt_vfs::FileSystem::defragment`].
    ///
    /// # Errors
    /// See [`DefragmentError`].
    #[allow(unsafe_code, reason = "an ioctl")]
    pub fn defragment(&self, start: u64, length: u64) -> Result<Defragmented, DefragmentError> {
        if mounted::is_read_only(&self.fd) {
            return Err(self.failed(Errno::ROFS));
        }
        let mut request = DefragmentRequest { start, length };
        // SAFETY: the number says that the argument is a `DefragmentRequest`, which the kernel copies to a FUSE server and back.
        let told = unsafe {
            rustix::ioctl::ioctl(&self.fd, Updater::<DEFRAGMENT_IOCTL, DefragmentRequest>::new(&mut request))
        };
        told.map_err(|errno| self.failed(errno))?;
        Ok(Defragmented { next: request.start, moved: request.length })
    }

    fn failed(&self, errno: Errno) -> DefragmentError {
        let path = self.path.clone();
        match errno {
            Errno::NOTTY | Errno::NOSYS => NotMounted::Other(path).into(),
            errno => DefragmentError::Failed { path, errno },
        }
    }
}
