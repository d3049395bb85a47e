//! What can go wrong with traces and recordings.

use std::io;
use std::path::PathBuf;

use basalt_device::DeviceError;

use crate::format::Format;

/// A line that is no line of its format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}:{line}: {reason}")]
pub struct BadLine {
    /// The trace, as the user named it.
    pub name: String,
    /// Number of the line, counted from 1.
    pub line: u64,
    /// What is wrong, with at most a short piece of the line.
    pub reason: String,
}

/// Why a trace could not be read or written, or a recording made, read or replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line is no line of its format. Reading goes on behind it, unless it is strict.
    #[error(transparent)]
    BadLine(#[from] BadLine),
    /// A file cannot be opened, made, read or written.
    #[error("{}: {doing}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was being done, such as `opening`.
        doing: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// A trace ends in an error: unreadable, or packed data that is damaged or cut short.
    #[error("{name}: reading behind line {line}: {source}")]
    Read {
        /// The trace, as the user named it.
        name: String,
        /// How many lines had been read.
        line: u64,
        /// What went wrong.
        source: io::Error,
    },
    /// The content is in none of the known formats.
    #[error("{name}: no known trace format; name one of {}", Format::names())]
    Unrecognized {
        /// The trace, as the user named it.
        name: String,
    },
    /// A blkparse text holds other events, but none of the kind asked for.
    #[error("{name}: no `{wanted}` events, but {found} others: choose another event (Q, D or C)")]
    NoSuchEvent {
        /// The trace, as the user named it.
        name: String,
        /// The letter of the event asked for.
        wanted: char,
        /// How many lines hold other events.
        found: u64,
    },
    /// A trace has requests, but none to the volume asked for.
    #[error("{name}: no volume `{wanted}`; it has {found}")]
    NoSuchVolume {
        /// The trace, as the user named it.
        name: String,
        /// The volume asked for.
        wanted: String,
        /// The names of its volumes, or of the first ones.
        found: String,
    },
    /// A recording is not what it should be.
    #[error("{}: {reason}", path.display())]
    Recording {
        /// The recording's directory or file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Result of working with a trace or a recording.
pub type Result<T> = std::result::Result<T, TraceError>;
