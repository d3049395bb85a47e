//! What can go wrong with a volume, naming the structure, the place and what was expected.

use basalt_device::{DeviceError, RequestKind};

use crate::content::Content;

/// Result of work on a volume.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a volume cannot be used, or an operation on it failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device holds no F2FS volume, or none that can be told to be one.
    #[error("{device}: no F2FS volume: {content}")]
    NotF2fs {
        /// The device.
        device: String,
        /// What it holds instead, as far as that can be told.
        content: Content,
    },
    /// The volume is longer than the device: the image was cut off.
    #[error("{device}: is cut off: the volume takes {needed} bytes, {size} are there")]
    Truncated {
        /// The device.
        device: String,
        /// Bytes of the volume.
        needed: u64,
        /// Bytes of the device.
        size: u64,
    },
    /// The volume uses what Basalt does not serve, at all or for writing.
    #[error("{device}: {reason}")]
    Unsupported {
        /// The device.
        device: String,
        /// Which feature, and what can be done.
        reason: String,
    },
    /// A structure contradicts the format or another structure.
    #[error("{structure} at {place}: {found}")]
    Damaged {
        /// Superblock, checkpoint, NAT, SIT, summary, node, inode, dentry or xattr.
        structure: &'static str,
        /// Where: a block address, node id or segment number, in words.
        place: String,
        /// What was found, and what was expected.
        found: String,
    },
    /// The request itself cannot be served; what a program sees.
    #[error(transparent)]
    Refused(#[from] basalt_vfs::Error),
}

impl Error {
    /// A structure that contradicts the format.
    pub fn damaged(structure: &'static str, place: impl Into<String>, found: impl Into<String>) -> Error {
        Error::Damaged { structure, place: place.into(), found: found.into() }
    }

    /// Whether the volume or its device is at fault, and not the request.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Error::Device(_) | Error::Damaged { .. })
    }

    /// Whether it was met while looking: damage, or a read that failed. Neither has changed anything by itself.
    pub(crate) fn is_from_reading(&self) -> bool {
        match self {
            Error::Damaged { .. } => true,
            Error::Device(DeviceError::Io { operation, .. } | DeviceError::OutOfRange { operation, .. }) => {
                *operation == RequestKind::Read.operation()
            }
            _ => false,
        }
    }
}

impl From<Error> for basalt_vfs::Error {
    fn from(error: Error) -> basalt_vfs::Error {
        match error {
            Error::Refused(error) => error,
            Error::Device(error) => basalt_vfs::Error::Io(error.to_string()),
            other => basalt_vfs::Error::Corrupted(other.to_string()),
        }
    }
}
