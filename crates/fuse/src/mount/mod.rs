//! Mounting and unmounting.
//!
//! | file | what |
//! |---|---|
//! | `options` | [`MountOptions`] |
//! | `direct` | as root: mount(2) |
//! | `helper` | otherwise: `fusermount3` |
//! | `connection` | the control file of a connection, by which it is aborted |
//! | `dirty` | how much the kernel may hold back of what was written |
//! | `table` | what is mounted where: `/proc/self/mountinfo` |

mod connection;
mod direct;
mod dirty;
mod helper;
mod options;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::session::Control;
use crate::transport::{FuseDevice, Transport};

pub use connection::Connection;
pub(crate) use dirty::DirtyLimit;
pub use options::MountOptions;

/// The type that mounts have behind `fuse.` or `fuseblk.`.
pub const SUBTYPE: &str = "basalt";

/// Why a file system could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point does not exist.
    #[error("mount point {0} does not exist")]
    Missing(PathBuf),
    /// The mount point is no directory.
    #[error("mount point {0} is not a directory")]
    NotDirectory(PathBuf),
    /// Something is mounted there.
    #[error("{path}: {source_name} is mounted there already")]
    Occupied {
        /// The mount point.
        path: PathBuf,
        /// What is mounted there.
        source_name: String,
    },
    /// The mount point cannot be looked at.
    #[error("mount point {path}: {errno}{}", hint(.errno))]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The kernel has no FUSE, or this container does not show it.
    #[error("/dev/fuse is missing: load the module with `modprobe fuse`, or give the container the device")]
    NoFuse,
    /// The way to the kernel, such as `/dev/fuse`, cannot be opened or used.
    #[error("{name}: {errno}")]
    Transport {
        /// What it is called.
        name: &'static str,
        /// Why.
        errno: Errno,
    },
    /// mount(2) refused.
    #[error("mounting {source_name} on {path} as {kind}: {errno}")]
    Refused {
        /// What was to be mounted.
        source_name: String,
        /// The mount point.
        path: PathBuf,
        /// The type.
        kind: String,
        /// Why.
        errno: Errno,
    },
    /// A block device can only be mounted by root.
    #[error("mounting block device {0} as such needs root")]
    NeedsRoot(PathBuf),
    /// `fusermount3` is not installed.
    #[error("fusermount3 not found: mounting without root needs it (package fuse3)")]
    NoHelper,
    /// `fusermount3` refused.
    #[error("fusermount3: {0}")]
    Helper(String),
    /// What the kernel sent first was no handshake.
    #[error("the kernel did not open with a FUSE handshake")]
    NoHandshake,
    /// The kernel is too old.
    #[error("the kernel speaks FUSE {major}.{minor}; 7.31 (Linux 5.4) or newer is needed")]
    OldKernel {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
    },
}

impl MountError {
    /// `/dev/fuse` cannot be opened or used.
    fn device(errno: Errno) -> MountError {
        MountError::Transport { name: FuseDevice::NAME, errno }
    }
}

fn hint(errno: &Errno) -> &'static str {
    if *errno == Errno::NOTCONN { " (a dead mount is there: unmount it with `umount` or `fusermount3 -u`)" } else { "" }
}

/// Why a mount could not be taken away.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Programs have files open or their working directory there.
    #[error("{0} is in use: see `fuser -vm` or `lsof` for who uses it")]
    Busy(PathBuf),
    /// It is gone already, or something else is mounted there now.
    #[error("{0} is not mounted (any more)")]
    NotMounted(PathBuf),
    /// Something else went wrong.
    #[error("unmounting {path}: {reason}")]
    Failed {
        /// The mount point.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// A mount that was made, by which it is recognised later.
#[derive(Debug, Clone)]
pub(crate) struct Mount {
    path: PathBuf,
    /// `major:minor` in mountinfo; distinguishes this mount from a later one at the same place.
    device: Option<String>,
    by_helper: bool,
}

/// Ends a mount from another thread.
#[derive(Debug, Clone)]
pub struct Unmounter {
    mount: Mount,
    session: Arc<Control>,
}

impl Unmounter {
    /// The mount point.
    pub fn mount_point(&self) -> &Path {
        &self.mount.path
    }

    /// The device number of what is mounted, `major:minor` in decimal, as in `/proc/self/mountinfo`; that of every file there. No other
    /// file system has it as long as this one is mounted anywhere. `None` where `/proc` did not tell.
    pub fn device_number(&self) -> Option<&str> {
        self.mount.device.as_deref()
    }

    /// Unmounts, as umount(8) does. [`Session::run`](crate::Session::run) then closes the file system and returns; wait for
    /// that to know that the volume is clean (on `fuseblk` mounts it is when this returns).
    ///
    /// # Errors
    /// [`UnmountError::Busy`] where files are open: nothing is detached behind their back.
    pub fn unmount(&self) -> Result<(), UnmountError> {
        let mount = &self.mount;
        if !mount.is_there() {
            return Err(UnmountError::NotMounted(mount.path.clone()));
        }
        if mount.by_helper {
            return helper::unmount(&mount.path);
        }
        match rustix::mount::unmount(&mount.path, UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(UnmountError::Busy(mount.path.clone())),
            Err(Errno::INVAL | Errno::NOENT) => Err(UnmountError::NotMounted(mount.path.clone())),
            Err(errno) => Err(UnmountError::Failed { path: mount.path.clone(), reason: errno.to_string() }),
        }
    }
}

impl Unmounter {
    /// Takes the mount out of the tree though programs use it: nothing new begins there. Nothing is written back for that. Does nothing
    /// where it is not in the tree, or something else is mounted over it.
    pub fn detach(&self) {
        if self.mount.is_there() {
            self.mount.detach();
        }
    }

    /// Whether the mount is at its mount point, as this process sees it. Programs may also use one that is not: it was detached
    /// (`umount -l`), or another mount namespace has it.
    pub fn is_mounted(&self) -> bool {
        self.mount.is_there()
    }

    /// Whether the kernel has hung up, or waits for the file system to be closed: [`Session::run`](crate::Session::run) closes it and
    /// returns by itself then.
    pub fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Has the kernel hand over what programs have written to files that are still open, wherever the mount is; unlike
    /// [`sync_mounted`](crate::sync_mounted) it needs no path. Nothing is durable for that. Whether it was done within `patience`;
    /// [`Session::run`](crate::Session::run) must be under way. With [`MountOptions::skip_open`], nobody knows which files are open, and
    /// nothing is done.
    pub fn write_back(&self, patience: Duration) -> bool {
        self.session.write_back(patience)
    }
}

impl Mount {
    /// A handle for other threads, of the session that serves this.
    pub(crate) fn unmounter(&self, session: Arc<Control>) -> Unmounter {
        Unmounter { mount: self.clone(), session }
    }

    /// Takes a mount away whose connection is closed. Detaching loses nothing then: every access fails already.
    pub(crate) fn remove_dead(&self) {
        if !self.is_there() {
            return;
        }
        tracing::warn!(path = %self.path.display(), "taking a dead mount away");
        self.detach();
    }

    fn detach(&self) {
        if self.by_helper {
            helper::detach(&self.path);
        } else if let Err(errno) = rustix::mount::unmount(&self.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            tracing::warn!(path = %self.path.display(), %errno, "a dead mount stays");
        }
    }

    /// Raises the kernel's readahead, which is 128 KiB, where the rights allow that.
    pub(crate) fn tune(&self, options: &MountOptions) {
        let Some(directory) = self.backing_device(options) else { return };
        let path = directory.join("read_ahead_kb");
        if let Err(error) = std::fs::write(&path, (options.read_ahead / 1024).to_string()) {
            tracing::debug!(path = %path.display(), %error, "readahead left as it is");
        }
    }

    /// Where the kernel shows, and takes, what it does with this mount's pages.
    pub(crate) fn backing_device(&self, options: &MountOptions) -> Option<PathBuf> {
        let suffix = if options.block_device.is_some() { "-fuseblk" } else { "" };
        self.device.as_ref().map(|device| Path::new("/sys/class/bdi").join(format!("{device}{suffix}")))
    }

    /// Whether this very mount is the one seen at its place. Asks the kernel's table, not the server.
    fn is_there(&self) -> bool {
        table::mounted_at(&self.path).is_some_and(|entry| Some(entry.device) == self.device)
    }
}

/// Mounts; returns the connection, on which the kernel's INIT waits.
pub(crate) fn mount(options: &MountOptions) -> Result<(FuseDevice, Mount), MountError> {
    let path = check_mount_point(&options.mountpoint)?;
    let by_helper = !rustix::process::geteuid().is_root();
    let device = if by_helper { helper::mount(&path, options)? } else { direct::mount(&path, options)? };
    let entry = table::mounted_at(&path);
    Ok((device.into(), Mount { path, device: entry.map(|entry| entry.device), by_helper }))
}

/// The mount point's true path. What is mounted there already is not looked at: its server may hang.
fn check_mount_point(path: &Path) -> Result<PathBuf, MountError> {
    let failed = |errno| match errno {
        Errno::NOENT => MountError::Missing(path.to_path_buf()),
        Errno::NOTDIR => MountError::NotDirectory(path.to_path_buf()),
        errno => MountError::MountPoint { path: path.to_path_buf(), errno },
    };
    let occupied = |path: PathBuf, entry: table::Entry| MountError::Occupied { path, source_name: entry.source };
    if let Some(entry) = table::mounted_at(path) {
        return Err(occupied(path.to_path_buf(), entry));
    }
    let stat = rustix::fs::stat(path).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(MountError::NotDirectory(path.to_path_buf()));
    }
    let path =
        std::fs::canonicalize(path).map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    match table::mounted_at(&path) {
        Some(entry) => Err(occupied(path, entry)),
        None => Ok(path),
    }
}
