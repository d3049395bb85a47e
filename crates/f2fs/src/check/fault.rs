//! A fault, where it is, and the list of them.

use crate::layout::{Ino, Nid};
use basalt_segments::Segment;
use std::fmt;

use serde::{Serialize, Serializer};

use super::kind::{FaultKind, Severity};

/// Where a fault is. What a repair has to go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Copy 0 or 1 of the superblock.
    Superblock(u64),
    /// Checkpoint pack 0 or 1.
    Checkpoint(u32),
    /// An active log, by segment type.
    Log(usize),
    /// A segment of the main area.
    Segment(Segment),
    /// A node id.
    Node(Nid),
    /// An inode number.
    Inode(Ino),
    /// A slot of a file's or node's addresses.
    Slot {
        /// The node that holds the address.
        nid: Nid,
        /// Index among the node's addresses.
        slot: u32,
    },
    /// An entry of a directory.
    Dentry {
        /// The directory's inode number.
        directory: Ino,
        /// Block of the directory; `None` for an inline directory.
        block: Option<u64>,
        /// Slot in the block.
        slot: u32,
    },
    /// The volume as a whole.
    Volume,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Place::Superblock(copy) => write!(f, "superblock copy {}", copy + 1),
            Place::Checkpoint(pack) => write!(f, "checkpoint pack {}", pack + 1),
            Place::Log(log) => write!(f, "active log {log}"),
            Place::Segment(segment) => write!(f, "segment {segment}"),
            Place::Node(nid) => write!(f, "node {nid}"),
            Place::Inode(ino) => write!(f, "inode {ino}"),
            Place::Slot { nid, slot } => write!(f, "node {nid}, address {slot}"),
            Place::Dentry { directory, block: Some(block), slot } => {
                write!(f, "directory {directory}, block {block}, slot {slot}")
            }
            Place::Dentry { directory, block: None, slot } => write!(f, "inline directory {directory}, slot {slot}"),
            Place::Volume => f.write_str("volume"),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Something on the volume that is not as the format or the rest of the volume demands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Which rule is broken.
    pub kind: FaultKind,
    /// How bad that is.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// What was found.
    pub found: String,
    /// What should be there.
    pub expected: String,
    /// The number that should be there, where a repair needs it: a count, a directory.
    #[serde(skip)]
    pub(crate) right: Option<u64>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}, expected {}", self.kind, self.place, self.found, self.expected)
    }
}

/// The faults found so far, up to a limit.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) faults: Vec<Fault>,
    /// Whether there were more.
    pub(super) truncated: bool,
    /// How bad the worst one was, listed or not.
    pub(super) worst: Option<Severity>,
    limit: usize,
}

impl Findings {
    pub(super) fn new(limit: usize) -> Findings {
        Findings { limit, ..Findings::default() }
    }

    /// Records a fault; beyond the limit only that there was one.
    pub(super) fn add(&mut self, kind: FaultKind, place: Place, found: impl fmt::Display, expected: impl fmt::Display) {
        self.add_with(kind, place, found, expected, None);
    }

    /// As [`add`](Self::add), with the number that a repair has to put there.
    pub(super) fn add_with(
        &mut self,
        kind: FaultKind,
        place: Place,
        found: impl fmt::Display,
        expected: impl fmt::Display,
        right: Option<u64>,
    ) {
        self.worst = self.worst.max(Some(kind.severity()));
        if self.faults.len() >= self.limit {
            self.truncated = true;
            return;
        }
        let (found, expected) = (found.to_string(), expected.to_string());
        self.faults.push(Fault { kind, severity: kind.severity(), place, found, expected, right });
    }

    /// Whether anything was found that no kernel would mount with.
    pub(super) fn is_fatal(&self) -> bool {
        self.worst == Some(Severity::Fatal)
    }
}
