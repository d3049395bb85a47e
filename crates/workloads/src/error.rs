//! What can go wrong with a workload, in one line each.

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a workload could not be made or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation failed on the target.
    #[error("{operation} {path}: {reason}")]
    Target {
        /// What was done, as a verb: `write`, `create`.
        operation: &'static str,
        /// The path, relative to the root of the target.
        path: String,
        /// Whether the target has no space left.
        is_full: bool,
        /// The message of the target.
        reason: String,
    },
    /// The target ran full while the workload ran.
    #[error(
        "{workload}: no space left in the {phase} phase at {utilization} % utilization ({operation} {path}); \
         lower the utilization or use a larger volume"
    )]
    NoSpace {
        /// The workload's name.
        workload: String,
        /// The phase in which it happened.
        phase: &'static str,
        /// The utilization that was asked for, in percent.
        utilization: u32,
        /// What was done.
        operation: &'static str,
        /// On which path.
        path: String,
    },
    /// The workload's files are larger than the whole volume; found before anything was written.
    #[error(
        "{workload}: its files need {needed} bytes, and the whole volume has {size}; shrink its set or use a larger volume"
    )]
    TooLarge {
        /// The workload's name.
        workload: String,
        /// Bytes that its own files take at most.
        needed: u64,
        /// Bytes that the volume has.
        size: u64,
    },
    /// The workload's files cannot fit; found before anything was written.
    #[error(
        "{workload}: its files need {needed} bytes, and {utilization} % of the free space leave {available}; \
         raise the utilization, shrink its set or use a larger volume"
    )]
    DoesNotFit {
        /// The workload's name.
        workload: String,
        /// Bytes that its own files take at most.
        needed: u64,
        /// Bytes there are for them.
        available: u64,
        /// The utilization that was asked for, in percent.
        utilization: u32,
    },
    /// No workload, stream or option is called so, or its value makes no sense.
    #[error("{0}")]
    Specification(String),
    /// A file does not hold what was written to it.
    #[error("{path}: byte {offset} is not what was written; the file system or the device lost data")]
    Mismatch {
        /// The path of the file.
        path: String,
        /// The offset of the first wrong byte.
        offset: u64,
    },
    /// The observer does not want to go on.
    #[error("stopped: {0}")]
    Stopped(String),
    /// The workload asked for something impossible: a defect of the workload.
    #[error("{0}; this is a defect of the workload")]
    Defect(String),
}

impl Error {
    /// An operation that failed on the target, though not for want of space.
    pub fn target(operation: &'static str, path: &str, reason: impl std::fmt::Display) -> Error {
        Error::Target { operation, path: path.to_owned(), is_full: false, reason: reason.to_string() }
    }

    /// True if the target ran out of space.
    pub fn is_no_space(&self) -> bool {
        match self {
            Error::NoSpace { .. } | Error::TooLarge { .. } | Error::DoesNotFit { .. } => true,
            Error::Target { is_full, .. } => *is_full,
            _ => false,
        }
    }
}
