//! What can go wrong, in plain names. `basalt-fuse` translates them to the error numbers of Linux.

use std::io;

/// Result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. [`Error::kind`] is for programs; the message is for people and logs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such name, inode or offset (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// The name exists (EEXIST).
    #[error("the name exists already")]
    Exists,
    /// A directory was needed (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// A directory was given where none may be (EISDIR).
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries (ENOTEMPTY).
    #[error("directory not empty")]
    NotEmpty,
    /// The name is over 255 bytes (ENAMETOOLONG).
    #[error("name longer than 255 bytes")]
    NameTooLong,
    /// The path is over 4095 bytes (ENAMETOOLONG).
    #[error("path longer than 4095 bytes")]
    PathTooLong,
    /// Over 40 symbolic links on one path, most likely a circle (ELOOP).
    #[error("too many levels of symbolic links")]
    TooManySymlinks,
    /// The file is not open for what was asked of it: to read, or to write (EBADF).
    #[error("the file is not open to {0}")]
    NotOpen(&'static str),
    /// An argument makes no sense (EINVAL).
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The file holds other bytes than the text that was asked for (EILSEQ).
    #[error("the file is no UTF-8 text")]
    NotText,
    /// No free block, or no free inode (ENOSPC).
    #[error("no space left on the volume")]
    NoSpace,
    /// The file would be larger than the format allows (EFBIG).
    #[error("file larger than the volume format allows")]
    FileTooLarge,
    /// Too many links to one inode (EMLINK).
    #[error("too many links")]
    TooManyLinks,
    /// The volume, or this mount of it, is read-only (EROFS).
    #[error("the volume is read-only")]
    ReadOnly,
    /// The inode's flags or the rules forbid it (EPERM).
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// Not allowed for this caller (EACCES).
    #[error("permission denied")]
    Access,
    /// No such extended attribute (ENODATA).
    #[error("no such attribute")]
    NoAttribute,
    /// A hard limit between two places, as between devices: projects whose space is counted apart (EXDEV).
    #[error("the directory belongs to another project")]
    OtherProject,
    /// The buffer is too small for the answer (ERANGE).
    #[error("result does not fit the buffer")]
    Range,
    /// An attribute value or name is larger than the format allows (E2BIG).
    #[error("attribute larger than the volume format allows")]
    TooBig,
    /// The engine does not serve this (EOPNOTSUPP).
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// Past the last data (ENXIO).
    #[error("no data behind this offset")]
    NoData,
    /// Somebody uses it (EBUSY).
    #[error("in use")]
    Busy,
    /// The inode number is not in use any more (ESTALE).
    #[error("stale inode number")]
    Stale,
    /// The volume contradicts itself (EUCLEAN, "Structure needs cleaning"): structure, place and what was expected.
    #[error("volume damaged: {0}; run `basalt fsck`")]
    Corrupted(String),
    /// The device failed (EIO).
    #[error("device error: {0}")]
    Io(String),
    /// There is not so much memory (ENOMEM).
    #[error("out of memory")]
    OutOfMemory,
}

/// The kind of an [`Error`], without its message: to be compared, and to be translated for another interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// [`Error::NotFound`].
    NotFound,
    /// [`Error::Exists`].
    Exists,
    /// [`Error::NotDirectory`].
    NotDirectory,
    /// [`Error::IsDirectory`].
    IsDirectory,
    /// [`Error::NotEmpty`].
    NotEmpty,
    /// [`Error::NameTooLong`].
    NameTooLong,
    /// [`Error::PathTooLong`].
    PathTooLong,
    /// [`Error::TooManySymlinks`].
    TooManySymlinks,
    /// [`Error::NotOpen`].
    NotOpen,
    /// [`Error::Invalid`].
    Invalid,
    /// [`Error::NotText`].
    NotText,
    /// [`Error::NoSpace`].
    NoSpace,
    /// [`Error::FileTooLarge`].
    FileTooLarge,
    /// [`Error::TooManyLinks`].
    TooManyLinks,
    /// [`Error::ReadOnly`].
    ReadOnly,
    /// [`Error::NotPermitted`].
    NotPermitted,
    /// [`Error::Access`].
    Access,
    /// [`Error::NoAttribute`].
    NoAttribute,
    /// [`Error::OtherProject`].
    OtherProject,
    /// [`Error::Range`].
    Range,
    /// [`Error::TooBig`].
    TooBig,
    /// [`Error::NotSupported`].
    NotSupported,
    /// [`Error::NoData`].
    NoData,
    /// [`Error::Busy`].
    Busy,
    /// [`Error::Stale`].
    Stale,
    /// [`Error::Corrupted`].
    Corrupted,
    /// [`Error::Io`].
    Io,
    /// [`Error::OutOfMemory`].
    OutOfMemory,
}

impl ErrorKind {
    /// Every kind, in the order of [`Error`].
    pub const ALL: [ErrorKind; 28] = [
        ErrorKind::NotFound,
        ErrorKind::Exists,
        ErrorKind::NotDirectory,
        ErrorKind::IsDirectory,
        ErrorKind::NotEmpty,
        ErrorKind::NameTooLong,
        ErrorKind::PathTooLong,
        ErrorKind::TooManySymlinks,
        ErrorKind::NotOpen,
        ErrorKind::Invalid,
        ErrorKind::NotText,
        ErrorKind::NoSpace,
        ErrorKind::FileTooLarge,
        ErrorKind::TooManyLinks,
        ErrorKind::ReadOnly,
        ErrorKind::NotPermitted,
        ErrorKind::Access,
        ErrorKind::NoAttribute,
        ErrorKind::OtherProject,
        ErrorKind::Range,
        ErrorKind::TooBig,
        ErrorKind::NotSupported,
        ErrorKind::NoData,
        ErrorKind::Busy,
        ErrorKind::Stale,
        ErrorKind::Corrupted,
        ErrorKind::Io,
        ErrorKind::OutOfMemory,
    ];
}

impl Error {
    /// Which kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NotFound => ErrorKind::NotFound,
            Error::Exists => ErrorKind::Exists,
            Error::NotDirectory => ErrorKind::NotDirectory,
            Error::IsDirectory => ErrorKind::IsDirectory,
            Error::NotEmpty => ErrorKind::NotEmpty,
            Error::NameTooLong => ErrorKind::NameTooLong,
            Error::PathTooLong => ErrorKind::PathTooLong,
            Error::TooManySymlinks => ErrorKind::TooManySymlinks,
            Error::NotOpen(_) => ErrorKind::NotOpen,
            Error::Invalid(_) => ErrorKind::Invalid,
            Error::NotText => ErrorKind::NotText,
            Error::NoSpace => ErrorKind::NoSpace,
            Error::FileTooLarge => ErrorKind::FileTooLarge,
            Error::TooManyLinks => ErrorKind::TooManyLinks,
            Error::ReadOnly => ErrorKind::ReadOnly,
            Error::NotPermitted(_) => ErrorKind::NotPermitted,
            Error::Access => ErrorKind::Access,
            Error::NoAttribute => ErrorKind::NoAttribute,
            Error::OtherProject => ErrorKind::OtherProject,
            Error::Range => ErrorKind::Range,
            Error::TooBig => ErrorKind::TooBig,
            Error::NotSupported(_) => ErrorKind::NotSupported,
            Error::NoData => ErrorKind::NoData,
            Error::Busy => ErrorKind::Busy,
            Error::Stale => ErrorKind::Stale,
            Error::Corrupted(_) => ErrorKind::Corrupted,
            Error::Io(_) => ErrorKind::Io,
            Error::OutOfMemory => ErrorKind::OutOfMemory,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind().into(), error)
    }
}

/// The kind that [`std::fs`] reports for the same failure on Linux; [`io::ErrorKind::Other`] where the standard library has no stable name
/// for it.
impl From<ErrorKind> for io::ErrorKind {
    fn from(kind: ErrorKind) -> io::ErrorKind {
        match kind {
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::Exists => io::ErrorKind::AlreadyExists,
            ErrorKind::NotDirectory => io::ErrorKind::NotADirectory,
            ErrorKind::IsDirectory => io::ErrorKind::IsADirectory,
            ErrorKind::NotEmpty => io::ErrorKind::DirectoryNotEmpty,
            ErrorKind::NameTooLong | ErrorKind::PathTooLong => io::ErrorKind::InvalidFilename,
            ErrorKind::Invalid => io::ErrorKind::InvalidInput,
            ErrorKind::NotText => io::ErrorKind::InvalidData,
            ErrorKind::NoSpace => io::ErrorKind::StorageFull,
            ErrorKind::FileTooLarge => io::ErrorKind::FileTooLarge,
            ErrorKind::TooManyLinks => io::ErrorKind::TooManyLinks,
            ErrorKind::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            ErrorKind::NotPermitted | ErrorKind::Access => io::ErrorKind::PermissionDenied,
            ErrorKind::OtherProject => io::ErrorKind::CrossesDevices,
            ErrorKind::TooBig => io::ErrorKind::ArgumentListTooLong,
            ErrorKind::NotSupported => io::ErrorKind::Unsupported,
            ErrorKind::Busy => io::ErrorKind::ResourceBusy,
            ErrorKind::Stale => io::ErrorKind::StaleNetworkFileHandle,
            ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
            ErrorKind::TooManySymlinks
            | ErrorKind::NotOpen
            | ErrorKind::NoAttribute
            | ErrorKind::Range
            | ErrorKind::NoData
            | ErrorKind::Corrupted
            | ErrorKind::Io => io::ErrorKind::Other,
        }
    }
}
