//! What changed since the last checkpoint was prepared, as far as fsync has to know.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use basalt_segments::{BlockTraits, SegmentKind};
use basalt_vfs::FileKind;

use super::begin::Beginning;
use super::seal::Unsealed;
use crate::error::Result;
use crate::mutant::{self, Mutant};
use crate::volume::Volume;

/// Changes of names and shapes that are kept apart; beyond, every fsync is a checkpoint until the next.
const NOTES_MAX: usize = 1 << 16;
/// Nodes in the chain before an fsync starts a new one with a checkpoint: bounds the time of recovery.
const CHAIN_MAX: u32 = 1 << 14;
/// Blocks that a name may take in recovery although it took none when it was made: names that were removed since are in its way. A directory
/// block, and the nodes above it.
const NAME_BLOCKS: u64 = 4;

/// What became of a file's nodes since the checkpoint.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trail {
    /// Nodes were written that no fsync mark covers.
    pub unmarked: bool,
    /// The flush that makes its last fsync durable.
    pub flush: u64,
}

/// Everything that is forgotten when a checkpoint is prepared.
#[derive(Debug, Default)]
pub struct SinceCheckpoint {
    /// Inodes that the checkpoint does not have.
    created: FxHashSet<u32>,
    /// Inodes with a name more, or another one.
    renamed: FxHashSet<u32>,
    /// Names (of a directory) whose former inode lives on elsewhere, or was a directory.
    left: FxHashSet<(u32, Box<[u8]>)>,
    /// Inodes that lost a node below them, and directories whose xattrs changed.
    reshaped: FxHashSet<u32>,
    /// Why no fsync may append to the chain any more.
    closed: Option<&'static str>,
    /// What was written of whom.
    pub trails: FxHashMap<u32, Trail>,
    /// Blocks newly counted as used, whatever was freed: what recovery may have to find room for.
    pub reserved: u64,
    /// Blocks in the chain.
    pub chained: u32,
    /// Fsyncs whose flush may not be over: its number, and the blocks that were in the chain by then.
    flushing: VecDeque<(u64, u32)>,
    /// Blocks of the chain that are durable, with all that their seals list.
    durable: u32,
    /// Written since the last seal.
    pub unsealed: Unsealed,
    /// Until the first checkpoint of the session: where its chain may be.
    pub beginning: Beginning,
    /// Where data was put since each node was last written to the chain, by the node that points there.
    placed: FxHashMap<u32, Vec<u32>>,
}

impl SinceCheckpoint {
    /// An inode was made.
    pub fn note_created(&mut self, ino: u32) {
        self.created.insert(ino);
        self.close_if_long();
    }

    /// An inode got another name, or one more.
    pub fn note_renamed(&mut self, ino: u32) {
        self.renamed.insert(ino);
        self.close_if_long();
    }

    /// A name was taken off an inode that still has another, or off a directory. Recovery removes whatever the checkpoint has
    /// under a name that an fsynced file took over since: here it would remove too much.
    pub fn note_left(&mut self, dir: u32, name: &[u8]) {
        if mutant::active(Mutant::LeftNameForgotten) {
            return;
        }
        self.left.insert((dir, name.into()));
        self.close_if_long();
    }

    /// An inode lost a node that may be in the checkpoint or in the chain. That cannot be told by appending.
    pub fn note_reshaped(&mut self, ino: u32) {
        self.reshaped.insert(ino);
        self.close_if_long();
    }

    /// No fsync may append to the chain until the next checkpoint.
    pub fn close(&mut self, reason: &'static str) {
        self.closed.get_or_insert(reason);
    }

    /// Whether the checkpoint lacks this inode.
    pub fn is_created(&self, ino: u32) -> bool {
        self.created.contains(&ino)
    }

    /// Whether something in the chain may be out of reach.
    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// A node points to data at this address from now on.
    pub fn note_placed(&mut self, nid: u32, address: u32) {
        self.placed.entry(nid).or_default().push(address);
    }

    /// A node goes to the chain: the addresses that it got since it last did.
    pub fn take_placed(&mut self, nid: u32) -> Vec<u32> {
        self.placed.remove(&nid).unwrap_or_default()
    }

    /// Nodes of this inode went to a log without a mark: its next fsync has something to do.
    pub fn note_unmarked(&mut self, ino: u32) {
        self.trails.entry(ino).or_default().unmarked = true;
    }

    /// All of the chain so far becomes durable with flush number `flush`.
    pub fn note_flushing(&mut self, flush: u64) {
        self.flushing.push_back((flush, self.chained));
    }

    /// Blocks of the chain that are durable.
    pub fn durable(&mut self, has_succeeded: impl Fn(u64) -> bool) -> u32 {
        while let Some((_, blocks)) = self.flushing.pop_front_if(|(flush, _)| has_succeeded(*flush)) {
            self.durable = blocks;
        }
        self.durable
    }

    fn close_if_long(&mut self) {
        let notes = self.created.len() + self.renamed.len() + self.left.len() + self.reshaped.len();
        if notes > NOTES_MAX {
            self.close("too many names changed");
            (self.created, self.renamed) = Default::default();
            (self.left, self.reshaped) = Default::default();
        }
    }
}

impl Volume {
    /// Why fsync of this inode needs a checkpoint; `None` if the chain can carry it. Source: the kernel's `need_do_checkpoint`.
    pub(crate) fn checkpoint_reason(&mut self, ino: u32) -> Result<Option<&'static str>> {
        if let Some(reason) = self.checkpoint_reason_of_clean(ino)? {
            return Ok(Some(reason));
        }
        let direct = BlockTraits { node: true, direct_node: true, ..BlockTraits::default() };
        let has_log = self.placement.log(&direct) == SegmentKind::WarmNode;
        let links = self.inode(ino)?.i_links.get();
        let since = &self.since;
        let names = NAME_BLOCKS * since.created.len() as u64;
        let used = self.checkpoint.raw.valid_block_count.get().saturating_add(since.reserved + names);
        Ok(match () {
            () if !has_log => Some("file nodes have no log of their own"),
            () if links != 1 => Some("not exactly one link"),
            () if self.orphans.contains(&ino) => Some("was an orphan"),
            () if since.reshaped.contains(&ino) => Some("it lost nodes"),
            () if used > self.counts.user_blocks() => Some("recovery could run out of space"),
            () if since.chained > CHAIN_MAX => Some("the chain is long"),
            () => None,
        })
    }

    /// Of these reasons, those that hold although nothing of the inode itself waits to be written: the way to it by its name may not be
    /// durable. A directory that was renamed closes the chain; which files are below it nobody looks for.
    pub(crate) fn checkpoint_reason_of_clean(&mut self, ino: u32) -> Result<Option<&'static str>> {
        if self.kind(ino)? != FileKind::Regular {
            return Ok(Some("not a regular file"));
        }
        let raw = self.inode(ino)?;
        let parent = raw.i_pino.get();
        let length = (raw.i_namelen.get() as usize).min(raw.i_name.len());
        let name: Box<[u8]> = raw.i_name[..length].into();
        let since = &self.since;
        Ok(match () {
            () if since.closed.is_some() => since.closed,
            () if since.renamed.contains(&ino) && !mutant::active(Mutant::RenameNotNoticed) => {
                Some("its names changed")
            }
            () if since.created.contains(&parent) => Some("its directory is new"),
            () if since.reshaped.contains(&parent) => Some("its directory's attributes changed"),
            () if since.created.contains(&ino) && since.left.contains(&(parent, name)) => {
                Some("its name was another inode's, which moved")
            }
            () => None,
        })
    }
}
