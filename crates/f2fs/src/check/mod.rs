//! fsck: finds everything that is wrong with a volume. It writes nothing.
//!
//! The passes, in order; each reads what it needs in the order it lies on the device, with large requests:
//!
//! | module | pass |
//! |---|---|
//! | `superblock` | both copies of the superblock |
//! | `checkpoint`, `recovery` | both checkpoint packs, their fields, logs, orphans and journals; what was fsynced since |
//! | `nat`, `nat_bits` | the node address table, into memory; what Linux keeps of its free ids |
//! | `nodes`, `inode` | every node; the inodes' fields and addresses |
//! | `tree`, `file` | the nodes below the inodes, level by level, and the addresses in them; nodes that nobody points to |
//! | `directory` | every directory entry |
//! | `names` | link counts, parents, inodes without a name, circles |
//! | `segments`, `stray` | the segment information table against what is in use; nodes that the NAT has lost; the checkpoint's counts |
//!
//! Every block address passes `blocks`, which gives each block one owner and compares it with the segment's summary.
//!
//! Nothing read is trusted before it is checked, nothing recurses, and memory is bounded: a bit for each block in use, and
//! some tens of bytes for each inode, tree node and name.

mod batch;
pub(crate) mod blocks;
mod checkpoint;
pub(crate) mod directory;
mod fault;
pub(crate) mod file;
pub(crate) mod inode;
mod kind;
pub(crate) mod names;
pub(crate) mod nat;
mod nat_bits;
pub(crate) mod nodes;
mod recovery;
mod segments;
mod stray;
mod superblock;
pub(crate) mod tree;
mod xattr;

use basalt_device::BlockDevice;
use basalt_vfs::FileKind;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

pub use fault::{Fault, Place};
pub use kind::{FaultKind, Severity};

use crate::checkpoint::load::Loaded;
use crate::error::Result;
use crate::geometry::Geometry;
use blocks::Ownership;
use directory::{DirectoryBlock, SeenName};
use fault::Findings;
use file::FileState;
use names::{DirectoryRecord, InodeRecord};
use nat::NatTable;
use tree::Reference;

/// Items between two reports of progress.
const PROGRESS_STEP: u64 = 4096;

/// How to check.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Most faults to list; the check ends early where only more of the same would follow.
    pub max_faults: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions { max_faults: 10_000 }
    }
}

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

    fn count_inode(&mut self, kind: Option<FileKind>) {
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

/// Checks a volume. `progress` is told now and then how far it has come.
///
/// # Errors
/// Only if nothing can be said about a volume: [`Error::Device`](crate::Error::Device) if the device cannot be read,
/// [`Error::NotF2fs`](crate::Error::NotF2fs), and [`Error::Unsupported`](crate::Error::Unsupported) for a layout that is not known or a
/// volume that must be recovered first.
pub fn check(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    Ok(examine(device, options, None, progress)?.0)
}

/// What a check knows about a volume at its end: what a repair goes by.
pub(crate) struct Survey {
    pub(crate) nat: NatTable,
    pub(crate) ownership: Ownership,
    pub(crate) inodes: FxHashMap<u32, InodeRecord>,
    pub(crate) directories: FxHashMap<u32, DirectoryRecord>,
    pub(crate) unreadable: FxHashSet<u32>,
    pub(crate) references: FxHashMap<u32, Reference>,
    pub(crate) parents: FxHashMap<u32, u32>,
    pub(crate) typeless: FxHashMap<u32, u8>,
    pub(crate) mistyped: FxHashMap<u32, u8>,
}

/// As [`check`], and hands over what it went by if it came to its end. With `watched`, for a repair: collects what the summaries should
/// say, and everybody who owns one of these blocks.
pub(crate) fn examine(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    watched: Option<FxHashSet<u32>>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<(CheckReport, Option<Survey>)> {
    let mut findings = Findings::new(options.max_faults.max(1));
    let Some(geometry) = superblock::check(device, &mut findings)? else {
        return Ok((stopped(findings), None));
    };
    let Some(loaded) = checkpoint::check(device, &geometry, &mut findings)? else {
        return Ok((stopped(findings), None));
    };
    let mut tell = |done, total| progress(CheckProgress { stage: Stage::Tables, done, total });
    let nat = NatTable::load(device, &geometry, &loaded, &mut tell)?;
    let mut checker = Checker::new(device, &geometry, loaded, nat, findings, progress);
    if let Some(watched) = watched {
        checker.ownership.watched = watched;
        checker.ownership.wrong = Some(Vec::new());
    }
    checker.run()?;
    Ok(checker.into_report())
}

fn stopped(findings: Findings) -> CheckReport {
    let Findings { faults, truncated, worst, .. } = findings;
    CheckReport { faults, truncated, worst, complete: false, counts: Counts::default(), checkpoint: None }
}

/// A check under way: what is known of the volume so far.
struct Checker<'a> {
    device: &'a dyn BlockDevice,
    geometry: &'a Geometry,
    progress: &'a mut dyn FnMut(CheckProgress),
    loaded: Loaded,
    nat: NatTable,
    findings: Findings,
    ownership: Ownership,
    counts: Counts,
    inodes: FxHashMap<u32, InodeRecord>,
    directories: FxHashMap<u32, DirectoryRecord>,
    /// Node ids in use whose node cannot be read. They have been reported: what follows from that is not reported again.
    unreadable: FxHashSet<u32>,
    /// Who points to each node that is no inode.
    references: FxHashMap<u32, Reference>,
    /// Nodes of the next level.
    to_read: Vec<u32>,
    /// Files with nodes below their inode, while their blocks are being counted.
    files: FxHashMap<u32, FileState>,
    directory_blocks: Vec<DirectoryBlock>,
    seen_names: Vec<SeenName>,
    /// Directories in a directory.
    subdirectories: FxHashMap<u32, u32>,
    /// The directory that a directory's name is in.
    parents: FxHashMap<u32, u32>,
    /// The file type that an entry gives to an inode of an impossible type.
    typeless: FxHashMap<u32, u8>,
    /// The file type that an entry gives to an inode of another type.
    mistyped: FxHashMap<u32, u8>,
    /// For each copy of the SIT, the piece of it in memory and its first block.
    sit_buffers: [(Option<u32>, Vec<u8>); 2],
}

impl<'a> Checker<'a> {
    fn new(
        device: &'a dyn BlockDevice,
        geometry: &'a Geometry,
        loaded: Loaded,
        nat: NatTable,
        findings: Findings,
        progress: &'a mut dyn FnMut(CheckProgress),
    ) -> Checker<'a> {
        Checker {
            ownership: Ownership::new(geometry, &loaded),
            counts: Counts { orphans: loaded.orphans.len() as u64, ..Counts::default() },
            device,
            geometry,
            progress,
            loaded,
            nat,
            findings,
            inodes: FxHashMap::default(),
            directories: FxHashMap::default(),
            unreadable: FxHashSet::default(),
            references: FxHashMap::default(),
            to_read: Vec::new(),
            files: FxHashMap::default(),
            directory_blocks: Vec::new(),
            seen_names: Vec::new(),
            subdirectories: FxHashMap::default(),
            parents: FxHashMap::default(),
            typeless: FxHashMap::default(),
            mistyped: FxHashMap::default(),
            sit_buffers: Default::default(),
        }
    }

    fn run(&mut self) -> Result<()> {
        self.nat.check_reserved(&mut self.findings);
        self.check_nat_bits()?;
        self.scan_nodes()?;
        self.scan_trees()?;
        self.scan_unreachable()?;
        self.scan_directories()?;
        self.check_names();
        self.check_segments()?;
        self.look_for_roll_forward()
    }

    fn into_report(self) -> (CheckReport, Option<Survey>) {
        let Findings { faults, truncated, worst, .. } = self.findings;
        let pack = &self.loaded.pack;
        let checkpoint = CheckpointUsed { pack: pack.index + 1, version: pack.raw.checkpoint_ver.get() };
        let report =
            CheckReport { faults, truncated, worst, complete: true, counts: self.counts, checkpoint: Some(checkpoint) };
        let survey = Survey {
            nat: self.nat,
            ownership: self.ownership,
            inodes: self.inodes,
            directories: self.directories,
            unreadable: self.unreadable,
            references: self.references,
            parents: self.parents,
            typeless: self.typeless,
            mistyped: self.mistyped,
        };
        (report, Some(survey))
    }

    /// Tells the progress now and then.
    fn step(&mut self, stage: Stage, done: u64, total: u64) {
        if done.is_multiple_of(PROGRESS_STEP) {
            self.step_always(stage, done, total);
        }
    }

    fn step_always(&mut self, stage: Stage, done: u64, total: u64) {
        (self.progress)(CheckProgress { stage, done, total });
    }
}
