//! What can go wrong.

use basalt_nand::NandError;

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The chip failed.
    #[error("{0}")]
    Nand(#[from] NandError),
    /// There is no such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// There is something of that name.
    #[error("there is something of that name")]
    Exists,
    /// A directory is needed here.
    #[error("not a directory")]
    NotADirectory,
    /// A directory cannot be used so.
    #[error("it is a directory")]
    IsADirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The chip is full.
    #[error("no room is left on the chip")]
    NoSpace,
    /// The name or the target is too long.
    #[error("the name is too long: at most 255 bytes, and 1,600 for the target of a symbolic link")]
    NameTooLong,
    /// The file would be too large.
    #[error("the file would be too large")]
    FileTooLarge,
    /// The name is empty, `.` or `..`, or has a slash or a zero; or a directory would be put below itself.
    #[error("the argument is not valid")]
    Invalid,
    /// There is no FlashLight volume on the chip.
    #[error("no root of a FlashLight volume can be read on the chip")]
    NotFlashLight,
    /// The chip or the volume is of a kind that is not supported.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// Something on the chip contradicts itself.
    #[error("page {page} is damaged: {what}")]
    Damaged {
        /// The page.
        page: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// An earlier error left memory and chip apart: only reading goes on, until the next mount.
    #[error("an earlier error of the chip stopped all changes; mount again")]
    Stopped,
}

/// Result of an operation.
pub type Result<T> = core::result::Result<T, Error>;
