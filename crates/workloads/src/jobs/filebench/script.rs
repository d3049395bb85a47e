//! What a file in Filebench's language says.

use super::super::Line;
use super::values::Amount;

/// A fileset, or a file: a set of one.
#[derive(Debug, Clone)]
pub(super) struct SetDefinition {
    pub(super) name: String,
    /// Below the target.
    pub(super) root: String,
    pub(super) size: Amount,
    pub(super) entries: u64,
    /// Files a directory; 0 for all in one.
    pub(super) width: u64,
    /// How many of a hundred exist at first.
    pub(super) preallocated: u64,
}

/// Threads that do the same.
#[derive(Debug, Clone)]
pub(super) struct ThreadDefinition {
    pub(super) line: Line,
    pub(super) count: u64,
    pub(super) flowops: Vec<Flowop>,
}

/// What a flowop does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Open,
    Create,
    Close,
    Delete,
    Stat,
    List,
    Read,
    Write,
    ReadWhole,
    WriteWhole,
    Append,
    AppendRandom,
    Sync,
    SyncSet,
    /// Takes time, and does nothing.
    Wait,
    FinishOnCount,
    FinishOnBytes,
}

impl Action {
    /// The action of a flowop's type.
    pub(super) fn parse(name: &str) -> Option<Action> {
        Some(match name {
            "openfile" => Action::Open,
            "createfile" => Action::Create,
            "closefile" => Action::Close,
            "deletefile" => Action::Delete,
            "statfile" => Action::Stat,
            "listdir" => Action::List,
            "read" => Action::Read,
            "write" => Action::Write,
            "readwholefile" => Action::ReadWhole,
            "writewholefile" => Action::WriteWhole,
            "appendfile" => Action::Append,
            "appendfilerand" => Action::AppendRandom,
            "fsync" => Action::Sync,
            "fsyncset" => Action::SyncSet,
            "delay" | "hog" | "eventlimit" | "bwlimit" | "iopslimit" | "opslimit" | "print" => Action::Wait,
            "finishoncount" => Action::FinishOnCount,
            "finishonbytes" => Action::FinishOnBytes,
            _ => return None,
        })
    }

    /// Whether it needs a fileset to choose from.
    pub(super) fn needs_set(self) -> bool {
        matches!(self, Action::Open | Action::Create | Action::List | Action::SyncSet)
    }

    /// Whether it needs its file to be open already.
    pub(super) fn needs_open(self) -> bool {
        matches!(self, Action::Close | Action::Sync)
    }

    /// Whether it opens a file of its fileset by itself.
    pub(super) fn opens(self) -> bool {
        use Action::{Append, AppendRandom, Read, ReadWhole, Write, WriteWhole};
        matches!(self, Read | Write | ReadWhole | WriteWhole | Append | AppendRandom)
    }

    /// Whether it writes to a file.
    pub(super) fn writes(self) -> bool {
        matches!(self, Action::Write | Action::WriteWhole | Action::Append | Action::AppendRandom)
    }

    /// Whether it is an end of the run.
    pub(super) fn finishes(self) -> bool {
        matches!(self, Action::FinishOnCount | Action::FinishOnBytes)
    }
}

/// One flowop of a thread.
#[derive(Debug, Clone)]
pub(super) struct Flowop {
    pub(super) line: Line,
    pub(super) action: Action,
    /// As the file calls it.
    pub(super) kind: String,
    /// The number of its fileset.
    pub(super) set: Option<usize>,
    pub(super) fd: usize,
    /// The file whose size a whole write takes; 0 for its own.
    pub(super) source_fd: usize,
    /// Bytes of a request; 0 for the whole.
    pub(super) size: Option<Amount>,
    /// The part of a file that reads and writes stay in; 0 for all of it.
    pub(super) working_set: Amount,
    pub(super) random: bool,
    /// How often it is done in a row.
    pub(super) repeat: u64,
    /// The number that ends the run.
    pub(super) value: u64,
}

/// When a run ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quit {
    /// Only when a flowop ends it.
    Timeout,
    /// When the first thread finds no file for what it has to do.
    FirstDone,
    /// When no thread does.
    AllDone,
}

/// Everything.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) sets: Vec<SetDefinition>,
    pub(super) threads: Vec<ThreadDefinition>,
    pub(super) quit: Quit,
}
