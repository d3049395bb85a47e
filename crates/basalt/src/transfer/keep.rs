//! What copies on the host keep of what a volume says about files.

use std::fs::File;
use std::os::fd::OwnedFd;

use basalt_vfs::{Attributes, FileKind};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, XattrFlags};
use rustix::io::Result;

use super::host::{self, Place};
use super::report::Error;
use super::{beneath, xattrs};

/// Permission bits that give the user of a program the rights of its owner or group.
const SUID_SGID: u32 = 0o6000;
/// Bits that let its owner, its group and others read, write and execute.
const READ_WRITE_EXECUTE: u32 = 0o777;

/// What is kept.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keep {
    /// Everything. Only root can.
    All,
    /// What gives nobody any rights: no owners, no set-uid and the like, no devices, and of attributes only those of users. The
    /// umask counts.
    Safe {
        /// Permissions that are taken away.
        umask: u32,
    },
}

impl Keep {
    /// Everything for root, unless that is not wanted; for others what they can have.
    pub(super) fn new(safe: bool) -> Keep {
        if rustix::process::geteuid().is_root() && !safe {
            return Keep::All;
        }
        // It can only be read by setting it.
        let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
        rustix::process::umask(umask);
        Keep::Safe { umask: umask.as_raw_mode() & READ_WRITE_EXECUTE }
    }

    /// The owner and group on the host; `None` for the calling user.
    fn owner(self, attributes: &Attributes) -> (Option<Uid>, Option<Gid>) {
        // All ones means "leave it alone" to the system call, and nobody on a volume.
        let known = |id: u32| (id != u32::MAX).then_some(id);
        match self {
            Keep::All => (known(attributes.uid).map(Uid::from_raw), known(attributes.gid).map(Gid::from_raw)),
            Keep::Safe { .. } => (None, None),
        }
    }

    /// Permission bits on the host.
    fn permissions(self, attributes: &Attributes) -> Mode {
        let bits = match self {
            Keep::Safe { umask } => attributes.permissions & READ_WRITE_EXECUTE & !umask,
            // It belongs to root now, which its owner on the volume was not.
            Keep::All if attributes.uid == u32::MAX || attributes.gid == u32::MAX => {
                attributes.permissions & !SUID_SGID
            }
            Keep::All => attributes.permissions,
        };
        Mode::from_raw_mode(bits)
    }

    /// Whether an extended attribute is kept.
    pub(super) fn keeps_xattr(self, name: &[u8]) -> bool {
        match self {
            Keep::All => xattrs::is_portable(name),
            // An ACL names users of the volume's system, and a default one replaces the umask.
            Keep::Safe { .. } => name.starts_with(b"user."),
        }
    }

    /// Refuses what is not kept at all.
    ///
    /// # Errors
    /// With the reason.
    pub(super) fn check(self, kind: FileKind, place: &Place<'_>) -> std::result::Result<(), Error> {
        let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharDevice);
        match self {
            Keep::Safe { .. } if is_device => {
                let why = "is a device node, which only root can create, and only without --safe";
                Err(Error::refused(place.path, why))
            }
            _ => Ok(()),
        }
    }
}

/// Something that was made on the host, by a descriptor of itself: what has its name by now does not matter.
pub(super) enum Made {
    /// A file or directory.
    Open(File),
    /// What cannot be opened without consequences: its descriptor has `O_PATH`.
    Special(OwnedFd),
}

impl Made {
    /// Gives it its owner.
    pub(super) fn set_owner(&self, keep: Keep, attributes: &Attributes) -> Result<()> {
        match (keep.owner(attributes), self) {
            ((None, None), _) => Ok(()),
            ((uid, gid), Made::Open(file)) => rustix::fs::fchown(file, uid, gid),
            ((uid, gid), Made::Special(file)) => rustix::fs::chownat(file, c"", uid, gid, AtFlags::EMPTY_PATH),
        }
    }

    /// Gives it an extended attribute.
    pub(super) fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Made::Open(file) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
            Made::Special(file) => rustix::fs::setxattr(beneath::proc_path(file), name, value, XattrFlags::empty()),
        }
    }

    /// Gives it its permissions. Symbolic links have none.
    pub(super) fn set_permissions(&self, keep: Keep, attributes: &Attributes) -> Result<()> {
        let mode = keep.permissions(attributes);
        match self {
            Made::Open(file) => rustix::fs::fchmod(file, mode),
            Made::Special(_) if attributes.kind == FileKind::Symlink => Ok(()),
            Made::Special(file) => rustix::fs::chmodat(CWD, beneath::proc_path(file), mode, AtFlags::empty()),
        }
    }

    /// Gives it its times.
    pub(super) fn set_times(&self, attributes: &Attributes) -> Result<()> {
        let times = host::timestamps(attributes.atime, attributes.mtime);
        match self {
            Made::Open(file) => rustix::fs::futimens(file, &times),
            Made::Special(file) => rustix::fs::utimensat(CWD, beneath::proc_path(file), &times, AtFlags::empty()),
        }
    }

    /// By what it is told from others.
    pub(super) fn identity(&self) -> Result<(u64, u64)> {
        let stat = match self {
            Made::Open(file) => rustix::fs::fstat(file),
            Made::Special(file) => rustix::fs::fstat(file),
        }?;
        Ok(beneath::identity(&stat))
    }
}
