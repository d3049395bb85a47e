//! What was copied and what was left out; the observer of a copy.

use std::io;

use basalt_vfs::path::PathError;

use crate::failure::printable;

/// Why a copy ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host said no.
    #[error("{path}: {doing}: {source}")]
    Host {
        /// The host's path.
        path: String,
        /// What was being done.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The host did not take an attribute of a file, whose content it has.
    #[error("{path}: its {what} cannot be set: {source}")]
    Attribute {
        /// The host's path.
        path: String,
        /// Which attribute.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The volume said no.
    #[error("volume:{path}: {source}")]
    Volume {
        /// The path in the volume.
        path: String,
        /// Why not.
        source: basalt_vfs::Error,
    },
    /// A path in the volume leads nowhere.
    #[error("volume:{0}")]
    Path(#[from] PathError),
    /// What was asked for cannot be.
    #[error("{path}: {reason}")]
    Refused {
        /// The path.
        path: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A file could not be replaced.
    #[error("{}", kept(.0))]
    Kept(Box<Error>),
}

/// Why a file was not replaced. It needs room beside the old one.
fn kept(error: &Error) -> String {
    match error {
        Error::Volume { source: basalt_vfs::Error::NoSpace, .. } => {
            format!("{error} for the new file beside the old one; the old one is kept")
        }
        error => format!("{error}; the old file is kept"),
    }
}

impl Error {
    /// The host refused `doing` something with `path`.
    pub(super) fn host(path: &[u8], doing: &'static str, source: impl Into<io::Error>) -> Error {
        Error::Host { path: printable(path), doing, source: source.into() }
    }

    /// The host did not take `what` for `path`.
    pub(super) fn attribute(path: &[u8], what: &'static str, source: impl Into<io::Error>) -> Error {
        Error::Attribute { path: printable(path), what, source: source.into() }
    }

    /// The file that was to be replaced is still as it was.
    pub(super) fn keeping_old(self) -> Error {
        Error::Kept(Box::new(self))
    }

    /// What went wrong, whatever became of an old file.
    pub(crate) fn cause(&self) -> &Error {
        match self {
            Error::Kept(error) => error.cause(),
            error => error,
        }
    }

    /// The volume refused something with `path`.
    pub(super) fn volume(path: &[u8], source: basalt_vfs::Error) -> Error {
        Error::Volume { path: printable(path), source }
    }

    /// `path` cannot be copied, for a reason in words.
    pub(super) fn refused(path: &[u8], reason: impl Into<String>) -> Error {
        Error::Refused { path: printable(path), reason: reason.into() }
    }
}

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Report {
    /// Regular files.
    pub files: u64,
    /// Directories made.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Device nodes, FIFOs and sockets.
    pub special: u64,
    /// Further names of files counted once already.
    pub hard_links: u64,
    /// Bytes of content, holes left out.
    pub bytes: u64,
    /// Files or attributes that were left out, each with a warning.
    pub left_out: u64,
}

/// Receives the progress and the warnings of a copy.
pub trait Observer {
    /// Something could not be kept; the copy goes on.
    fn warning(&mut self, message: &str);
    /// A file, link or directory was made. `path` is where it is on the host, or was copied from.
    fn copied(&mut self, _path: &[u8]) {}
    /// This much is done.
    fn progress(&mut self, report: &Report);
    /// Bytes of a file could not be read, and are a hole now.
    fn hole(&mut self, _path: &[u8], _bytes: std::ops::Range<u64>) {}
}

/// Ignores all of it.
pub struct Silent;

impl Observer for Silent {
    fn warning(&mut self, _: &str) {}
    fn progress(&mut self, _: &Report) {}
}

/// The path of something in a directory.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.to_vec();
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
