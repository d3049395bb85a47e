//! Nodes in memory: loaded and checked on first use, written to the node logs when dirty, evicted when clean.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use basalt_segments::{BlockTraits, SegmentKind};
use basalt_vfs::FileKind;

use super::{inode, nat};
use crate::error::{Error, Result};
use crate::layout::inode::RawInode;
use crate::layout::nat::RawNatEntry;
use crate::layout::node::{NodeFlags, OFFSET_SHIFT, RawNode, RawNodeFooter};
use crate::layout::superblock::Features;
use crate::layout::{BLOCK_SIZE, NEW_ADDR, NULL_ADDR, RawBlock};
use crate::log::node_owner;
use crate::volume::Volume;

/// A node in memory.
pub struct Node {
    block: Box<RawBlock>,
    dirty: bool,
    /// More than times changed.
    essential: bool,
    used: bool,
}

// `expect` below is about sizes only: those of RawNode and RawInode are asserted to be a block's in `layout`, and neither needs
// an alignment. No content can make them fail.
impl Node {
    /// The node as pointers and footer.
    pub fn raw(&self) -> &RawNode {
        RawNode::ref_from_bytes(&self.block.0).expect("a block is the size of a node")
    }

    /// As [`raw`](Self::raw), to change.
    pub fn raw_mut(&mut self) -> &mut RawNode {
        RawNode::mut_from_bytes(&mut self.block.0).expect("a block is the size of a node")
    }

    /// The node as an inode; only sensible where its offset is 0.
    pub fn inode(&self) -> &RawInode {
        RawInode::ref_from_bytes(&self.block.0).expect("a block is the size of an inode")
    }

    /// As [`inode`](Self::inode), to change.
    pub fn inode_mut(&mut self) -> &mut RawInode {
        RawInode::mut_from_bytes(&mut self.block.0).expect("a block is the size of an inode")
    }

    /// The footer.
    pub fn footer(&self) -> &RawNodeFooter {
        &self.raw().footer
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8; BLOCK_SIZE] {
        &self.block.0
    }

    /// All bytes, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8; BLOCK_SIZE] {
        &mut self.block.0
    }

    /// The four-byte little-endian value at byte `at`: a block address or node id.
    pub fn pointer(&self, at: usize) -> u32 {
        let b = &self.block.0;
        u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
    }

    /// Sets the four-byte value at byte `at`.
    pub fn set_pointer(&mut self, at: usize, value: u32) {
        self.block.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// The nodes in memory.
#[derive(Default)]
pub struct NodeCache {
    nodes: FxHashMap<u32, Node>,
    /// Clean nodes are evicted in this order, unless used since (second chance).
    order: VecDeque<u32>,
    /// By inode, as fsync wants them.
    dirty: FxHashMap<u32, BTreeSet<u32>>,
    dirty_count: usize,
    /// Where writing goes on when not all are written.
    written_to: u32,
}

/// Numbers of nodes that are gone which the cache's lists may hold beyond as many as there are nodes.
const STALE_MAX: usize = 1024;

impl NodeCache {
    /// Nodes that must still be written.
    pub fn dirty_count(&self) -> usize {
        self.dirty_count
    }

    /// Whether a node is in memory.
    pub fn contains(&self, nid: u32) -> bool {
        self.nodes.contains_key(&nid)
    }

    fn insert(&mut self, nid: u32, block: Box<RawBlock>) {
        if self.nodes.insert(nid, Node { block, dirty: false, essential: false, used: true }).is_none() {
            self.order.push_back(nid);
            if self.order.len() > 2 * self.nodes.len() + STALE_MAX {
                let mut seen = FxHashSet::default();
                self.order.retain(|nid| self.nodes.contains_key(nid) && seen.insert(*nid));
            }
        }
    }

    /// Whether nodes of an inode must be written; with `essential`, for more than its times.
    pub fn is_dirty(&self, ino: u32, essential: bool) -> bool {
        let is_wanted = |nid: &u32| !essential || self.nodes.get(nid).is_some_and(|node| node.essential);
        self.dirty.get(&ino).is_some_and(|nodes| nodes.iter().any(is_wanted))
    }

    /// The nodes of an inode that must be written.
    pub fn dirty_nodes(&self, ino: u32) -> Vec<u32> {
        self.dirty.get(&ino).map(|nodes| nodes.iter().copied().collect()).unwrap_or_default()
    }

    /// The footer of a node in memory.
    pub fn footer(&self, nid: u32) -> Option<&RawNodeFooter> {
        self.nodes.get(&nid).map(Node::footer)
    }

    /// The bytes of a node in memory.
    pub fn bytes(&self, nid: u32) -> Option<&[u8; BLOCK_SIZE]> {
        self.nodes.get(&nid).map(Node::bytes)
    }

    /// Marks a node that is in memory as one to be written.
    fn mark_dirty(&mut self, nid: u32, essential: bool) -> Option<&mut Node> {
        let node = self.nodes.get_mut(&nid)?;
        (node.essential, node.used) = (node.essential | essential, true);
        if !node.dirty {
            node.dirty = true;
            self.dirty.entry(node.footer().ino.get()).or_default().insert(nid);
            self.dirty_count += 1;
        }
        Some(node)
    }

    fn mark_clean(&mut self, nid: u32) {
        let Some(node) = self.nodes.get_mut(&nid).filter(|node| node.dirty) else { return };
        (node.dirty, node.essential) = (false, false);
        let ino = node.footer().ino.get();
        if let Some(nodes) = self.dirty.get_mut(&ino) {
            nodes.remove(&nid);
            if nodes.is_empty() {
                self.dirty.remove(&ino);
            }
        }
        self.dirty_count -= 1;
    }

    fn remove(&mut self, nid: u32) {
        self.mark_clean(nid);
        self.nodes.remove(&nid);
    }

    /// Evicts clean nodes until at most `limit` nodes are left or every node had its chance.
    fn shrink(&mut self, limit: usize) {
        let mut chances = 2 * self.order.len();
        while self.nodes.len() > limit && chances > 0 {
            chances -= 1;
            let Some(nid) = self.order.pop_front() else { return };
            match self.nodes.get_mut(&nid) {
                None => {}
                Some(node) if node.dirty || node.used => {
                    node.used = false;
                    self.order.push_back(nid);
                }
                Some(_) => {
                    self.nodes.remove(&nid);
                }
            }
        }
    }
}

impl Volume {
    /// The NAT entry of a node id.
    pub(crate) fn nat_entry(&mut self, nid: u32) -> Result<RawNatEntry> {
        self.nat.get(&*self.device, &self.geometry, nid)
    }

    /// A node, from memory or from the volume.
    pub(crate) fn node(&mut self, nid: u32) -> Result<&mut Node> {
        if !self.nodes.nodes.contains_key(&nid) {
            self.load_node(nid)?;
        }
        let node = self.nodes.nodes.get_mut(&nid).ok_or_else(|| not_in_memory(nid))?;
        node.used = true;
        Ok(node)
    }

    /// A node to change: it will be written by the next checkpoint at the latest.
    pub(crate) fn node_mut(&mut self, nid: u32) -> Result<&mut Node> {
        self.node_to_change(nid, true)
    }

    /// As [`node_mut`](Self::node_mut); unless `essential`, only times are to change.
    fn node_to_change(&mut self, nid: u32, essential: bool) -> Result<&mut Node> {
        if !self.nodes.nodes.contains_key(&nid) {
            self.load_node(nid)?;
        }
        self.changed = true;
        self.nodes.mark_dirty(nid, essential).ok_or_else(|| not_in_memory(nid))
    }

    /// An inode of which only times are to change: fdatasync does not write it for them.
    pub(crate) fn inode_times_mut(&mut self, ino: u32) -> Result<&mut RawInode> {
        self.check_inode(ino)?;
        Ok(self.node_to_change(ino, false)?.inode_mut())
    }

    /// Puts the block of an inode that had to be made anew into memory, dirty, and counts it.
    pub(crate) fn put_new_node(&mut self, nid: u32, block: Box<RawBlock>) {
        self.nodes.insert(nid, block);
        self.nodes.mark_dirty(nid, true);
        self.changed = true;
        self.counts.add_node();
    }

    fn load_node(&mut self, nid: u32) -> Result<()> {
        let entry = self.nat_entry(nid)?;
        let address = entry.block_addr.get();
        if !nat::in_use(&entry) || nid == 0 {
            return Err(Error::damaged("NAT", format!("node {nid}"), "not in use, but something refers to it"));
        }
        if !self.geometry.in_main(address) {
            return Err(Error::damaged(
                "NAT",
                format!("node {nid}"),
                format!("address {address} outside the main area"),
            ));
        }
        let block = self.read_block(address)?;
        self.keep_node(nid, &entry, block)?;
        if let (Some(behind), Some(node)) = (&self.behind, self.nodes.nodes.get_mut(&nid)) {
            behind.lead_pointers(node, address, &self.geometry);
        }
        Ok(())
    }

    /// Puts a node that was read from where its NAT entry says into memory, if it is that node.
    pub(crate) fn keep_node(&mut self, nid: u32, entry: &RawNatEntry, block: Box<RawBlock>) -> Result<()> {
        let address = entry.block_addr.get();
        let node = Node { block, dirty: false, essential: false, used: true };
        let footer = *node.footer();
        if footer.nid.get() != nid || footer.ino != entry.ino {
            return Err(Error::damaged(
                "node",
                format!("block {address}"),
                format!(
                    "footer says node {} of inode {}, expected node {nid} of inode {}",
                    footer.nid, footer.ino, entry.ino
                ),
            ));
        }
        let is_inode = footer.ino.get() == nid;
        if is_inode != (footer.offset() == 0) {
            // Taken for one another, an inode and the nodes below it would be written over.
            return Err(Error::damaged(
                "node",
                format!("block {address}"),
                format!("node {nid} of inode {} has offset {}", footer.ino, footer.offset()),
            ));
        }
        if is_inode {
            inode::validate_fields(node.inode(), nid, &self.geometry)?;
            match inode::validate_checksum(node.inode(), nid, &self.geometry) {
                // What can be read of a damaged volume is better than nothing.
                Err(error) if self.options.rescue => tracing::warn!("{error}; used all the same"),
                checked => checked?,
            }
        }
        let limit = self.node_limit();
        self.nodes.shrink(limit.saturating_sub(1));
        self.nodes.insert(nid, node.block);
        Ok(())
    }

    /// Makes a node of `ino` at `offset` in its tree and returns its id. Counts it as a block and a node; the caller has
    /// made sure that there is room, and adds it to the inode's blocks.
    pub(crate) fn new_node(&mut self, ino: Option<u32>, offset: u32, cold: bool) -> Result<u32> {
        let nid = self.nat.take_free(&*self.device, &self.geometry)?;
        let ino = ino.unwrap_or(nid);
        let old = self.nat_entry(nid)?;
        self.nat.set(nid, RawNatEntry { version: old.version, ino: U32::new(ino), block_addr: U32::new(NEW_ADDR) });
        let mut block = RawBlock::zeroed();
        let raw = RawNode::mut_from_bytes(&mut block.0).expect("a block is the size of a node");
        raw.footer.nid.set(nid);
        raw.footer.ino.set(ino);
        let cold = if cold { NodeFlags::COLD.bits() } else { 0 };
        raw.footer.flag.set(offset << OFFSET_SHIFT | cold);
        self.put_new_node(nid, block);
        self.since.reserved += 1;
        Ok(nid)
    }

    /// Frees a node: its block, its id, its place in the counts. The caller takes it off the inode's blocks.
    pub(crate) fn free_node(&mut self, nid: u32) -> Result<()> {
        let entry = self.nat_entry(nid)?;
        self.nodes.remove(nid);
        if nat::is_new(&entry) {
            self.nat.give_back(nid);
        } else {
            if entry.ino.get() != nid {
                self.since.note_reshaped(entry.ino.get());
            }
            self.invalidate(entry.block_addr.get())?;
            let version = entry.version.wrapping_add(1);
            self.nat.set(nid, RawNatEntry { version, ino: U32::new(0), block_addr: U32::new(NULL_ADDR) });
        }
        self.counts.remove_node()?;
        self.changed = true;
        Ok(())
    }

    /// Writes every dirty node to its log.
    pub(crate) fn write_nodes(&mut self) -> Result<()> {
        self.write_some_nodes(usize::MAX)
    }

    /// Writes up to `most` dirty nodes, going on where the last call ended.
    pub(crate) fn write_some_nodes(&mut self, most: usize) -> Result<()> {
        let mut dirty: Vec<u32> = self.nodes.dirty.values().flatten().copied().collect();
        // Neighbouring ids were made together and will be read together.
        dirty.sort_unstable();
        if most < dirty.len() {
            let start = dirty.partition_point(|nid| *nid < self.nodes.written_to);
            dirty.rotate_left(start);
            dirty.truncate(most);
            self.nodes.written_to = dirty.last().map_or(0, |nid| nid.saturating_add(1));
        }
        dirty.into_iter().try_for_each(|nid| self.write_node(nid))?;
        let limit = self.node_limit();
        self.nodes.shrink(limit);
        Ok(())
    }

    /// Writes a node to its log if it is dirty, without marks: an fsync that covers it comes later, or never.
    pub(crate) fn write_node(&mut self, nid: u32) -> Result<()> {
        let Some((kind, address)) = self.place_node(nid, NodeFlags::empty())? else { return Ok(()) };
        let Some(node) = self.nodes.nodes.get(&nid) else { return Ok(()) };
        if kind == SegmentKind::WarmNode {
            self.since.unsealed.note(address, &node.block.0);
            self.keep_targets(nid);
        }
        let Some(node) = self.nodes.nodes.get(&nid) else { return Ok(()) };
        // In whichever log: with two logs none is the chain's, and the node is as little durable.
        self.since.note_unmarked(node.footer().ino.get());
        self.writer.append(&*self.device, kind.index(), address, &node.block.0)
    }

    /// Gives a dirty node its next place in its log, and its footer; the bytes are the caller's to write. `None` if it is clean, or
    /// was freed.
    pub(crate) fn place_node(&mut self, nid: u32, marks: NodeFlags) -> Result<Option<(SegmentKind, u32)>> {
        if !self.nodes.nodes.get(&nid).is_some_and(|node| node.dirty) {
            return Ok(None);
        }
        let entry = self.nat_entry(nid)?;
        let kind = self.placement.log(&self.node_traits(nid));
        let address = self.allocate(kind, node_owner(nid))?;
        if kind == SegmentKind::WarmNode {
            self.note_chained();
        }
        let next = self.next_address(kind);
        let version = self.checkpoint.node_version();
        let with_checksum = self.geometry.features.contains(Features::INODE_CHECKSUM);
        let seed = self.geometry.checksum_seed;
        let Some(node) = self.nodes.nodes.get_mut(&nid) else { return Ok(None) };
        let footer = &mut node.raw_mut().footer;
        let unmarked = footer.flag.get() & !(NodeFlags::FSYNC | NodeFlags::DENTRY).bits();
        footer.flag = U32::new(unmarked | marks.bits());
        footer.cp_ver = U64::new(version);
        footer.next_blkaddr = U32::new(next);
        if footer.ino == footer.nid && with_checksum {
            inode::set_checksum(node.inode_mut(), seed);
        }
        self.nodes.mark_clean(nid);
        self.nat.set(nid, RawNatEntry { block_addr: U32::new(address), ..entry });
        self.counters.node_blocks += 1;
        if !nat::is_new(&entry) {
            self.invalidate(entry.block_addr.get())?;
        }
        Ok(Some((kind, address)))
    }

    /// What placement may know about a node.
    fn node_traits(&self, nid: u32) -> BlockTraits {
        let Some(node) = self.nodes.nodes.get(&nid) else { return BlockTraits::default() };
        let footer = node.footer();
        BlockTraits {
            node: true,
            direct_node: super::path::is_direct(footer.offset()),
            of_directory: !footer.flags().contains(NodeFlags::COLD),
            file: footer.ino.get(),
            ..BlockTraits::default()
        }
    }

    /// Nodes that the cache budget allows in memory.
    fn node_limit(&self) -> usize {
        (self.options.cache_bytes / 2 / BLOCK_SIZE).max(64)
    }

    /// The inode `ino`: its node, checked to be one. Stale if there is none.
    pub(crate) fn inode(&mut self, ino: u32) -> Result<&RawInode> {
        self.check_inode(ino)?;
        Ok(self.node(ino)?.inode())
    }

    /// As [`inode`](Self::inode), to change.
    pub(crate) fn inode_mut(&mut self, ino: u32) -> Result<&mut RawInode> {
        self.check_inode(ino)?;
        Ok(self.node_mut(ino)?.inode_mut())
    }

    /// What kind of file an inode is.
    pub(crate) fn kind(&mut self, ino: u32) -> Result<FileKind> {
        let mode = u32::from(self.inode(ino)?.i_mode.get());
        Ok(FileKind::from_mode(mode).unwrap_or(FileKind::Regular))
    }

    /// Whether an inode is a directory.
    pub(crate) fn is_directory(&mut self, ino: u32) -> Result<bool> {
        Ok(self.kind(ino)? == FileKind::Directory)
    }

    /// Adds to an inode's count of blocks, or takes from it.
    pub(crate) fn add_blocks(&mut self, ino: u32, by: i64) -> Result<()> {
        let raw = self.inode_mut(ino)?;
        let blocks = raw.i_blocks.get().saturating_add_signed(by);
        raw.i_blocks.set(blocks);
        Ok(())
    }

    /// Whether there is an inode of this number.
    pub(crate) fn is_inode(&mut self, ino: u32) -> Result<bool> {
        match self.check_inode(ino) {
            Ok(()) => Ok(true),
            Err(Error::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn check_inode(&mut self, ino: u32) -> Result<()> {
        if let Some(footer) = self.nodes.footer(ino) {
            return if footer.ino.get() == ino { Ok(()) } else { Err(basalt_vfs::Error::Stale.into()) };
        }
        if ino == 0 || ino >= self.geometry.node_ids() {
            return Err(basalt_vfs::Error::Stale.into());
        }
        let entry = self.nat_entry(ino)?;
        if !nat::in_use(&entry) || entry.ino.get() != ino {
            return Err(basalt_vfs::Error::Stale.into());
        }
        Ok(())
    }
}

fn not_in_memory(nid: u32) -> Error {
    Error::damaged("node", format!("node {nid}"), "not in memory")
}
