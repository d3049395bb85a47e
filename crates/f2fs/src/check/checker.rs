//! A check under way, and what is known at its end.

use basalt_device::BlockDevice;
use rustc_hash::{FxHashMap, FxHashSet};

use super::blocks::Ownership;
use super::fault::Findings;
use super::nat::NatTable;
use super::records::{DirectoryBlock, DirectoryRecord, FileState, InodeRecord, Reference, SeenName};
use super::report::{CheckProgress, CheckReport, CheckpointUsed, Counts, Stage};
use crate::checkpoint::load::Loaded;
use crate::geometry::Geometry;
use crate::layout::{Ino, Nid};

/// Items between two reports of progress.
const PROGRESS_STEP: u64 = 4096;

/// What a check knows about a volume at its end: what a repair goes by.
pub(crate) struct Survey {
    pub(crate) nat: NatTable,
    pub(crate) ownership: Ownership,
    pub(crate) inodes: FxHashMap<Ino, InodeRecord>,
    pub(crate) directories: FxHashMap<Ino, DirectoryRecord>,
    pub(crate) unreadable: FxHashSet<Nid>,
    pub(crate) references: FxHashMap<Nid, Reference>,
    pub(crate) parents: FxHashMap<Ino, Ino>,
    pub(crate) typeless: FxHashMap<Ino, u8>,
    pub(crate) mistyped: FxHashMap<Ino, u8>,
}

/// A check under way: what is known of the volume so far.
pub(super) struct Checker<'a> {
    pub(super) device: &'a dyn BlockDevice,
    pub(super) geometry: &'a Geometry,
    pub(super) progress: &'a mut dyn FnMut(CheckProgress),
    pub(super) loaded: Loaded,
    pub(super) nat: NatTable,
    pub(super) findings: Findings,
    pub(super) ownership: Ownership,
    pub(super) counts: Counts,
    pub(super) inodes: FxHashMap<Ino, InodeRecord>,
    pub(super) directories: FxHashMap<Ino, DirectoryRecord>,
    /// Node ids in use whose node cannot be read. They have been reported: what follows from that is not reported again.
    pub(super) unreadable: FxHashSet<Nid>,
    /// Who points to each node that is no inode.
    pub(super) references: FxHashMap<Nid, Reference>,
    /// Nodes of the next level.
    pub(super) to_read: Vec<Nid>,
    /// Files with nodes below their inode, while their blocks are being counted.
    pub(super) files: FxHashMap<Ino, FileState>,
    pub(super) directory_blocks: Vec<DirectoryBlock>,
    pub(super) seen_names: Vec<SeenName>,
    /// Directories in a directory.
    pub(super) subdirectories: FxHashMap<Ino, u32>,
    /// The directory that a directory's name is in.
    pub(super) parents: FxHashMap<Ino, Ino>,
    /// The file type that an entry gives to an inode of an impossible type.
    pub(super) typeless: FxHashMap<Ino, u8>,
    /// The file type that an entry gives to an inode of another type.
    pub(super) mistyped: FxHashMap<Ino, u8>,
    /// For each copy of the SIT, the piece of it in memory and its first block.
    pub(super) sit_buffers: [(Option<u32>, Vec<u8>); 2],
}

impl<'a> Checker<'a> {
    pub(super) fn new(
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

    pub(super) fn into_report(self) -> (CheckReport, Option<Survey>) {
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
    pub(super) fn step(&mut self, stage: Stage, done: u64, total: u64) {
        if done.is_multiple_of(PROGRESS_STEP) {
            self.step_always(stage, done, total);
        }
    }

    pub(super) fn step_always(&mut self, stage: Stage, done: u64, total: u64) {
        (self.progress)(CheckProgress { stage, done, total });
    }
}
