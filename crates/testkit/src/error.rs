//! One error for everything that can go wrong while a test is being prepared.

use std::fmt;
use std::io;
use std::path::Path;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a step of a test could not be done. `Debug` is as readable as `Display`, because tests `unwrap`.
#[derive(thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done, with the path.
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A program ended with a failure.
    #[error("`{command}` {ended}\n{output}")]
    Tool {
        /// The command line.
        command: String,
        /// How it ended: an exit code or a signal.
        ended: String,
        /// What it printed, standard output first.
        output: String,
    },
    /// User-Mode Linux could not be run.
    #[error(transparent)]
    Uml(#[from] basalt_uml::Error),
    /// A text (an option list, a manifest, a path) is not what it should be.
    #[error("{0}")]
    Invalid(String),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// The errno behind it, when there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Error::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// Says what was being done when an operation failed.
pub trait Context<T> {
    /// Names the action and the path it was about.
    fn doing(self, action: &str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn doing(self, action: &str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::Io { doing: format!("{action} {}", path.display()), source: error.into() })
    }
}
