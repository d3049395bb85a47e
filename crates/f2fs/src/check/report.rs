//! What a check tells: how far it is, and what it found.

use basalt_vfs::FileKind;
use serde::Serialize;

use super::fault::Fault;
use super::kind::Severity;

/// The pass that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Reading the tables.
    Tables,
    /// Reading every node.
    Nodes,
    /// Reading the nodes below the inodes.
    Trees,
    /// Reading every directory entry.
    Directories,
    /// Comparing the segments.
    Segments,
    /// Searching segments for nodes, as rescue does: only for a repair.
    Search,
}

/// How far a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProgress {
    /// The pass that is under way.
    pub stage: Stage,
    /// Items done of it.
    pub done: u64,
    /// Items there are, as far as known.
    pub total: u64,
}

/// What there is on the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Regular files.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Device nodes, FIFOs and sockets.
    pub special: u64,
    /// Inodes of an impossible type.
    pub unknown: u64,
    /// Node blocks, inodes included.
    pub nodes: u64,
    /// Blocks of data that are on the volume.
    pub data_blocks: u64,
    /// Blocks that are promised to files but were never written.
    pub reserved_blocks: u64,
    /// All blocks in use: what the checkpoint should count.
    pub blocks: u64,
    /// Inodes without links that were still open.
    pub orphans: u64,
}

impl Counts {
    /// Inodes of every kind.
    pub fn inodes(&self) -> u64 {
        self.files + self.directories + self.symlinks + self.special + self.unknown
    }

    pub(super) fn count_inode(&mut self, kind: Option<FileKind>) {
        *match kind {
            Some(FileKind::Regular) => &mut self.files,
            Some(FileKind::Directory) => &mut self.directories,
            Some(FileKind::Symlink) => &mut self.symlinks,
            Some(_) => &mut self.special,
            None => &mut self.unknown,
        } += 1;
    }
}

/// The checkpoint that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CheckpointUsed {
    /// Pack 1 or 2.
    pub pack: u32,
    /// Its version.
    pub version: u64,
}

/// What a check found.
#[derive(Debug, Clone, Serialize)]
pub struct CheckReport {
    /// The faults and notes, in the order they were found.
    pub faults: Vec<Fault>,
    /// Whether there are more than were asked for.
    pub truncated: bool,
    /// How bad the worst of them is, listed or not; `None` if there are none.
    pub worst: Option<Severity>,
    /// Whether the check came to its end. It stops early at what no kernel could mount.
    pub complete: bool,
    /// What there is.
    pub counts: Counts,
    /// The checkpoint that counts, if there is one.
    pub checkpoint: Option<CheckpointUsed>,
}

impl CheckReport {
    /// Whether nothing is wrong. Notes are no faults.
    pub fn is_clean(&self) -> bool {
        self.worst.is_none_or(|worst| worst == Severity::Note)
    }
}
