//! What can go wrong, and which errno says so to a program.

use std::io;

use rustix::io::Errno;

/// Result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. [`Error::errno`] is what a program sees; the message is for people and logs.
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
}

impl Error {
    /// The errno a program sees.
    pub fn errno(&self) -> Errno {
        match self {
            Error::NotFound => Errno::NOENT,
            Error::Exists => Errno::EXIST,
            Error::NotDirectory => Errno::NOTDIR,
            Error::IsDirectory => Errno::ISDIR,
            Error::NotEmpty => Errno::NOTEMPTY,
            Error::NameTooLong => Errno::NAMETOOLONG,
            Error::PathTooLong => Errno::NAMETOOLONG,
            Error::TooManySymlinks => Errno::LOOP,
            Error::NotOpen(_) => Errno::BADF,
            Error::Invalid(_) => Errno::INVAL,
            Error::NoSpace => Errno::NOSPC,
            Error::FileTooLarge => Errno::FBIG,
            Error::TooManyLinks => Errno::MLINK,
            Error::ReadOnly => Errno::ROFS,
            Error::NotPermitted(_) => Errno::PERM,
            Error::Access => Errno::ACCESS,
            Error::NoAttribute => Errno::NODATA,
            Error::OtherProject => Errno::XDEV,
            Error::Range => Errno::RANGE,
            Error::TooBig => Errno::TOOBIG,
            Error::NotSupported(_) => Errno::OPNOTSUPP,
            Error::NoData => Errno::NXIO,
            Error::Busy => Errno::BUSY,
            Error::Stale => Errno::STALE,
            Error::Corrupted(_) => Errno::UCLEAN,
            Error::Io(_) => Errno::IO,
        }
    }

    /// The kind that [`std::io`] gives this errno.
    pub fn kind(&self) -> io::ErrorKind {
        io::Error::from(self.errno()).kind()
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}
