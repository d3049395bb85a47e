//! An error with its path.

use std::ffi::OsStr;
use std::fmt::{Display, Formatter};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::Error;

/// Result of an operation on a path.
pub type Result<T> = std::result::Result<T, PathError>;

/// Why an operation on a path failed: `path: why`. Control characters in the path are shown as escapes, so the message is one line.
///
/// Converts into an [`io::Error`] of the same [`kind`](Self::kind), which names the path too.
#[derive(Debug)]
pub struct PathError {
    /// The path as it was given; of a whole tree, the path of what failed in it.
    pub path: PathBuf,
    /// The file system's answer.
    pub reason: Error,
}

impl PathError {
    /// An error with `path`, whose bytes may be any.
    pub fn new(path: &[u8], reason: Error) -> PathError {
        PathError { path: OsStr::from_bytes(path).into(), reason }
    }

    /// The kind that `std::fs` reports for the same failure on a mounted file system; `Other` where it has no stable name.
    pub fn kind(&self) -> io::ErrorKind {
        self.reason.kind().into()
    }

    /// Whether nothing is there: the last name or an earlier one is missing.
    pub fn is_not_found(&self) -> bool {
        matches!(self.reason, Error::NotFound)
    }
}

impl Display for PathError {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for character in self.path.to_string_lossy().chars() {
            if character.is_control() {
                write!(f, "{}", character.escape_default())?;
            } else {
                write!(f, "{character}")?;
            }
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for PathError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.reason)
    }
}

impl From<PathError> for io::Error {
    fn from(error: PathError) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}
