//! Why a machine could not be run.

use std::io;
use std::path::Path;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a machine could not be run. What goes wrong inside a machine that runs is in its [`crate::UmlResult`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that belongs to User-Mode Linux is not on this computer.
    #[error("no User-Mode Linux here: {missing} is missing; {remedy}")]
    NotInstalled {
        /// The file or program that is not there.
        missing: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A system call failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done, with the path.
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A path has a character that means something on a kernel command line.
    #[error("{0} cannot be named on a kernel command line: choose a path without blanks, commas, colons and quotes")]
    Unnameable(String),
    /// The file of recorded requests ends in the middle of one, or has one of a kind that there is not.
    #[error("{path} is no recording of requests: {reason}")]
    Recording {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

/// Says what was being done when an operation failed.
pub(crate) trait Context<T> {
    /// Names the action and the path it was about.
    fn doing(self, action: &str, path: &Path) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn doing(self, action: &str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { doing: format!("{action} {}", path.display()), source })
    }
}
