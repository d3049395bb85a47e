//! The volume under repair: its tables, nodes and free blocks, on the staged device.
//!
//! The journals are merged into the tables when the checkpoint is read, and tables are changed where they are: nothing is on the device
//! yet. [`commit`](super::commit) moves what must not be overwritten.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentKind};
use rustc_hash::{FxHashMap, FxHashSet};
use zerocopy::{FromBytes, IntoBytes};

use super::kept::Kept;
use super::known_names::Names;
use super::staged::Staged;
use crate::blocks::read_blocks;
use crate::check::Survey;
use crate::checkpoint::load::Loaded;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::inode::RawInode;
use crate::layout::nat::RawNatEntry;
use crate::layout::node::{RawNode, RawNodeFooter, XATTR_NODE_OFFSET};
use crate::layout::sit::RawSitEntry;
use crate::layout::summary::{RawSummary, RawSummaryBlock, TYPE_DATA, TYPE_NODE};
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Ino, Nid, bit_msb};
use crate::node::inode::{has_checksum, set_checksum};

/// The volume under repair.
pub(super) struct State {
    pub(super) device: Arc<Staged>,
    pub(super) geometry: Geometry,
    /// The checkpoint that the device itself has, if it has a sound one.
    pub(super) base: Option<Rc<Loaded>>,
    /// The checkpoint to be written; its journals are empty.
    pub(super) loaded: Loaded,
    /// What of the device may not be written over before the next checkpoint is durable.
    pub(super) kept: Kept,
    /// Whether it may be all the same, where there is no other room.
    pub(super) may_overwrite: bool,
    /// Whether the other pack becomes the same once the next one is durable: it is of no use, or of a version far behind.
    pub(super) writes_both: bool,
    /// The version of the pack that counts on the device, if the other one may have been newer.
    pub(super) lost_beside: Option<u64>,
    /// The pack that the next one is written to: 0 or 1.
    pub(super) target: u32,
    /// Its version.
    pub(super) version: u64,
    /// Whether the tables are changed in place so far, as between no two checkpoints: the staged pack is not the next one then.
    pub(super) is_staged: bool,
    /// Blocks handed out since the last check.
    pub(super) taken: FxHashSet<Address>,
    /// Nodes below inodes by inode and offset, as of the last check; made when first needed.
    pub(super) by_offset: Option<BTreeMap<(Ino, u32), Nid>>,
    /// Inode and offset of nodes that nobody points to, as of the last check; made when first needed.
    pub(super) waiting: Option<FxHashSet<(Ino, u32)>>,
    /// Where live blocks without an owner say that a node is; made when first needed.
    pub(super) strays: Option<FxHashMap<Nid, Vec<Address>>>,
    /// Inodes without a name by parent and the name they remember; made when first needed.
    pub(super) nameless: Option<FxHashMap<(Ino, Vec<u8>), Ino>>,
    /// Directories that inodes without a name remember; made with `nameless`.
    pub(super) remembered: FxHashSet<Ino>,
    /// Live blocks without an owner that were such a directory's, as slot and address; made when first needed.
    pub(super) left: Option<FxHashMap<Ino, Vec<(u32, Address)>>>,
    /// The top of what directories are below, as of the last check: the root, or one without a name; `None` in a circle.
    pub(super) tops: FxHashMap<Ino, Option<Ino>>,
    /// Directories whose `i_dir_level` was looked at in this round, and whether it was wrong.
    pub(super) levels: FxHashMap<Ino, bool>,
    /// No node id below this is free.
    pub(super) free_from: Nid,
    /// The names of directories that were asked for since the last check.
    pub(super) names: FxHashMap<Ino, Names>,
    /// Whether there was no checkpoint, so that nothing tells which version of a node it had.
    pub(super) is_invented: bool,
    /// Blocks that turned out to belong to somebody else, by the inode that had them too.
    pub(super) given_up: FxHashMap<Ino, u64>,
    /// Inodes that fsync wrote since the last checkpoint, and their names with them: the order it did that in.
    pub(super) entered: FxHashMap<Ino, usize>,
    /// Nodes that belong to no file, and were freed: their blocks look lost until it is derived what is live.
    pub(super) homeless: FxHashSet<Nid>,
    /// Where nodes are that the NAT had lost, and that were put back because their block is live.
    pub(super) put_back: FxHashSet<Address>,
    /// Where nodes are that were put back, and belonged to no file again though theirs is there: old versions.
    pub(super) outdated: FxHashSet<Address>,
    /// Inodes made since the last check.
    pub(super) made: FxHashSet<Ino>,
    /// Where what has no name goes, once it is known in this round.
    pub(super) lost_found: Option<Ino>,
    /// Whether no further directory like that can be made in this round.
    pub(super) is_lost_found_last: bool,
}

impl State {
    /// Forgets what was derived from the last check.
    pub(super) fn begin_round(&mut self) {
        self.taken.clear();
        self.by_offset = None;
        self.waiting = None;
        self.strays = None;
        self.nameless = None;
        self.remembered.clear();
        self.left = None;
        self.tops.clear();
        self.levels.clear();
        self.free_from = Nid::FIRST_FREE;
        self.names.clear();
        self.made.clear();
        self.lost_found = None;
        self.is_lost_found_last = false;
    }

    /// Whether a node is an inode.
    pub(super) fn is_inode(&self, survey: &Survey, nid: Nid) -> bool {
        survey.inodes.contains_key(&nid.as_inode()) || self.made.contains(&nid.as_inode())
    }

    /// A block, changes included. The address must be on the device.
    pub(super) fn block(&self, address: Address) -> Result<Vec<u8>> {
        read_blocks(&*self.device, address, 1)
    }

    pub(super) fn put(&self, address: Address, block: &[u8]) -> Result<()> {
        Ok(self.device.write_at(u64::from(address) << BLOCK_BITS, block)?)
    }

    fn nat_place(&self, nid: Nid) -> (Address, usize) {
        let index = nid.nat_block();
        let second = bit_msb(&self.loaded.nat_bitmap, index as usize);
        (self.geometry.nat_block(index, second), nid.nat_slot() * size_of::<RawNatEntry>())
    }

    /// The NAT entry of a node id; an empty one for an id that does not exist.
    pub(super) fn nat(&self, nid: Nid) -> Result<RawNatEntry> {
        if nid >= self.geometry.node_ids() {
            return Ok(RawNatEntry::default());
        }
        let (address, at) = self.nat_place(nid);
        let block = self.block(address)?;
        Ok(RawNatEntry::read_from_bytes(&block[at..at + size_of::<RawNatEntry>()]).unwrap_or_default())
    }

    /// Changes a NAT entry; nothing for an id that does not exist.
    pub(super) fn edit_nat(&mut self, nid: Nid, change: impl FnOnce(&mut RawNatEntry)) -> Result<()> {
        if nid >= self.geometry.node_ids() {
            return Ok(());
        }
        let mut entry = self.nat(nid)?;
        change(&mut entry);
        let (address, at) = self.nat_place(nid);
        let mut block = self.block(address)?;
        block[at..at + size_of::<RawNatEntry>()].copy_from_slice(entry.as_bytes());
        self.put(address, &block)
    }

    /// Node ids in use and their entries, block by block of the NAT.
    pub(super) fn nat_in_use(&self) -> Result<Vec<(Nid, RawNatEntry)>> {
        let mut all = Vec::new();
        for index in 0..self.geometry.nat_blocks {
            let first = Nid::in_nat_block(index, 0);
            let block = self.block(self.nat_place(first).0)?;
            // Most blocks are zeros.
            if block == [0; BLOCK_SIZE] {
                continue;
            }
            for (nid, bytes) in first.onward().zip(block.chunks_exact(size_of::<RawNatEntry>())) {
                let entry = RawNatEntry::read_from_bytes(bytes).unwrap_or_default();
                if entry.address() != Address::NULL && nid >= Nid::FIRST {
                    all.push((nid, entry));
                }
            }
        }
        Ok(all)
    }

    /// A node id that is free; one that comes free in this round may be passed over.
    pub(super) fn free_nid(&mut self, survey: &Survey) -> Result<Option<Nid>> {
        while self.free_from < self.geometry.node_ids() {
            let nid = self.free_from;
            if survey.nat.get(nid).address() == Address::NULL && self.nat(nid)?.address() == Address::NULL {
                return Ok(Some(nid));
            }
            self.free_from = Nid::new(nid.get() + 1);
        }
        Ok(None)
    }

    /// Frees a node id.
    pub(super) fn free_node(&mut self, nid: Nid) -> Result<()> {
        self.edit_nat(nid, |entry| {
            *entry = RawNatEntry { version: entry.version.wrapping_add(1), ino: 0.into(), block_addr: 0.into() };
        })
    }

    /// Frees node ids; `nids` are sorted, so that each block of the NAT is written once.
    pub(super) fn free_nodes(&mut self, nids: &[Nid]) -> Result<()> {
        for group in nids.chunk_by(|one, other| one.nat_block() == other.nat_block()) {
            let (address, _) = self.nat_place(group[0]);
            let mut block = self.block(address)?;
            for &nid in group {
                let (_, at) = self.nat_place(nid);
                let bytes = &mut block[at..at + size_of::<RawNatEntry>()];
                let version = bytes[0].wrapping_add(1);
                let entry = RawNatEntry { version, ino: 0.into(), block_addr: 0.into() };
                bytes.copy_from_slice(entry.as_bytes());
            }
            self.put(address, &block)?;
        }
        Ok(())
    }

    /// The SIT block with a segment's entry, and the byte the entry starts at.
    pub(super) fn sit_place(&self, segment: Segment) -> (Address, usize) {
        let (index, entry) = self.geometry.sit_place(segment);
        let second = bit_msb(&self.loaded.sit_bitmap, index as usize);
        (self.geometry.sit_block(index, second), entry * size_of::<RawSitEntry>())
    }

    pub(super) fn sit(&self, segment: Segment) -> Result<RawSitEntry> {
        let (address, at) = self.sit_place(segment);
        let block = self.block(address)?;
        RawSitEntry::read_from_bytes(&block[at..at + size_of::<RawSitEntry>()])
            .map_err(|_| Error::damaged("SIT", format!("segment {segment}"), "short block"))
    }

    /// The block of a node that the NAT has in the main area; `None` for all others.
    pub(super) fn node(&self, nid: Nid) -> Result<Option<Vec<u8>>> {
        let address = self.nat(nid)?.address();
        if self.geometry.in_main(address) { Ok(Some(self.block(address)?)) } else { Ok(None) }
    }

    /// Changes a node's block; an inode's checksum is brought up to date. False if there is no such node.
    pub(super) fn edit_node(&mut self, nid: Nid, change: impl FnOnce(&mut RawNode)) -> Result<bool> {
        let address = self.nat(nid)?.address();
        if !self.geometry.in_main(address) {
            return Ok(false);
        }
        let mut block = self.block(address)?;
        let Ok(node) = RawNode::mut_from_bytes(&mut block) else { return Ok(false) };
        change(node);
        self.seal(&mut block);
        self.put(address, &block)?;
        Ok(true)
    }

    /// As [`edit_node`](Self::edit_node), of an inode. A checksum that was wrong stays so: more may be wrong than what is changed, and that
    /// is found by it.
    pub(super) fn edit_inode(&mut self, ino: Ino, change: impl FnOnce(&mut RawInode)) -> Result<bool> {
        self.change_inode(ino, false, change)
    }

    /// Brings an inode's checksum up to date.
    pub(super) fn seal_inode(&mut self, ino: Ino) -> Result<bool> {
        self.change_inode(ino, true, |_| ())
    }

    fn change_inode(&mut self, ino: Ino, always_seal: bool, change: impl FnOnce(&mut RawInode)) -> Result<bool> {
        let address = self.nat(ino.nid())?.address();
        if !self.geometry.in_main(address) {
            return Ok(false);
        }
        let mut block = self.block(address)?;
        let Ok(inode) = RawInode::mut_from_bytes(&mut block) else { return Ok(false) };
        let was_right = has_checksum(inode)
            && inode.extra().i_inode_checksum.get() == inode.expected_checksum(self.geometry.checksum_seed);
        change(inode);
        if was_right || always_seal {
            self.seal(&mut block);
        }
        self.put(address, &block)?;
        Ok(true)
    }

    /// Brings the checksum of an inode's block up to date; other nodes have none.
    pub(super) fn seal(&self, block: &mut [u8]) {
        use crate::layout::superblock::Features;
        if let Ok(inode) = RawInode::mut_from_bytes(block)
            && inode.footer.nid == inode.footer.ino
            && self.geometry.features.contains(Features::INODE_CHECKSUM)
        {
            set_checksum(inode, self.geometry.checksum_seed);
        }
    }

    /// An inode; `None` if the NAT has none in the main area.
    pub(super) fn inode(&self, ino: Ino) -> Result<Option<Box<RawInode>>> {
        Ok(self.node(ino.nid())?.and_then(|block| RawInode::read_from_bytes(&block).ok()).map(Box::new))
    }

    /// Segment of a block of the main area, and the block's place in it.
    pub(super) fn segment_of(&self, address: Address) -> (Segment, usize) {
        let within = self.geometry.main_block(address);
        (within.segment(), within.offset() as usize)
    }

    /// The summary entry of a block of the main area.
    pub(super) fn summary(&self, address: Address) -> Result<RawSummary> {
        let (segment, block) = self.segment_of(address);
        Ok(self.summaries(segment)?[block])
    }

    /// The summary entries of a segment: those of an active log are in the checkpoint.
    pub(super) fn summaries(&self, segment: Segment) -> Result<[RawSummary; BLOCKS_PER_SEGMENT as usize]> {
        if let Some(log) = self.loaded.logs.iter().find(|log| log.segment == segment) {
            return Ok(log.summary.entries);
        }
        let bytes = self.block(self.geometry.summary_block(segment))?;
        let summary = RawSummaryBlock::ref_from_bytes(&bytes);
        Ok(summary.map_or([RawSummary::default(); BLOCKS_PER_SEGMENT as usize], |summary| summary.entries))
    }

    pub(super) fn set_summary(&mut self, address: Address, entry: RawSummary) -> Result<()> {
        let (segment, block) = self.segment_of(address);
        if let Some(log) = self.loaded.logs.iter_mut().find(|log| log.segment == segment) {
            log.summary.entries[block] = entry;
            return Ok(());
        }
        let place = self.geometry.summary_block(segment);
        let mut bytes = self.block(place)?;
        if let Ok(summary) = RawSummaryBlock::mut_from_bytes(&mut bytes) {
            summary.entries[block] = entry;
        }
        self.put(place, &bytes)
    }

    /// Takes the next block of a log for `owner`; `None` if no segment is free.
    pub(super) fn allocate(
        &mut self,
        survey: &Survey,
        kind: SegmentKind,
        owner: RawSummary,
    ) -> Result<Option<Address>> {
        let log = &self.loaded.logs[kind.index()];
        let is_blocked = self.log_is_blocked(survey, kind);
        if is_blocked || self.kept.holds_from(log.segment, log.offset) {
            let free = self.free_segment(survey, is_blocked && self.may_overwrite);
            if free.is_none() && (is_blocked || !self.may_overwrite) {
                return Ok(None);
            }
            free.map_or(Ok(()), |free| self.move_log_to(kind, free))?;
        }
        let log = &mut self.loaded.logs[kind.index()];
        log.summary.entries[log.offset as usize] = owner;
        let address = self.geometry.in_segment(log.segment, log.offset);
        log.offset += 1;
        self.taken.insert(address);
        Ok(Some(address))
    }

    /// Whether a log cannot go on where it is: full, filling slack, or with blocks in use ahead.
    pub(super) fn log_is_blocked(&self, survey: &Survey, kind: SegmentKind) -> bool {
        let log = &self.loaded.logs[kind.index()];
        let shared = self.loaded.logs.iter().filter(|other| other.segment == log.segment).count() > 1;
        let Some(found) = survey.ownership.map.found_in(log.segment) else {
            return log.in_slack || shared || log.offset >= BLOCKS_PER_SEGMENT;
        };
        let strangers = if kind.is_node() { found.data } else { found.nodes };
        log.in_slack
            || shared
            || strangers > 0
            || log.offset >= BLOCKS_PER_SEGMENT
            || (log.offset..BLOCKS_PER_SEGMENT).any(|block| bit_msb(&found.map, block as usize))
    }

    /// Lets a log go on in a free segment; its old segment's summary goes to the SSA. False if no segment is free.
    pub(super) fn move_log(&mut self, survey: &Survey, kind: SegmentKind) -> Result<bool> {
        let Some(free) = self.free_segment(survey, true) else { return Ok(false) };
        self.move_log_to(kind, free)?;
        Ok(true)
    }

    fn move_log_to(&mut self, kind: SegmentKind, free: Segment) -> Result<()> {
        let class = if kind.is_node() { TYPE_NODE } else { TYPE_DATA };
        let log = &mut self.loaded.logs[kind.index()];
        let mut summary = std::mem::replace(&mut log.summary, RawSummaryBlock::empty(class));
        let old = std::mem::replace(&mut log.segment, free);
        (log.offset, log.in_slack) = (0, false);
        summary.entry_type = class;
        summary.journal.fill(0);
        if self.geometry.has_segment(old) && !self.loaded.logs.iter().any(|log| log.segment == old) {
            self.put(self.geometry.summary_block(old), summary.as_bytes())?;
        }
        Ok(())
    }

    /// A segment that nobody uses, at the start of a free section if there is one. One with blocks that are kept only where there is no
    /// other, and if `may_overwrite`.
    fn free_segment(&self, survey: &Survey, may_overwrite: bool) -> Option<Segment> {
        let is_kept = |segment: Segment| self.kept.holds_from(segment, 0);
        let found = self.find_free(survey, |segment| !is_kept(segment));
        if may_overwrite { found.or_else(|| self.find_free(survey, |_| true)) } else { found }
    }

    fn find_free(&self, survey: &Survey, is_allowed: impl Fn(Segment) -> bool) -> Option<Segment> {
        let mut used: FxHashSet<Segment> = self.taken.iter().map(|&address| self.segment_of(address).0).collect();
        used.extend(self.loaded.logs.iter().map(|log| log.segment));
        let is_free = |segment: Segment| {
            let owned = survey.ownership.map.found_in(segment).is_some_and(|found| found.data + found.nodes > 0);
            !owned && !used.contains(&segment) && is_allowed(segment)
        };
        let segments = self.geometry.segments();
        let section = self.geometry.segments_per_section.max(1) as usize;
        let mut firsts = segments.clone().step_by(section);
        firsts
            .find(|first| segments.clone().skip(first.index()).take(section).all(&is_free))
            .or_else(|| segments.clone().find(|&segment| is_free(segment)))
    }

    /// The node at an offset in an inode's tree, as of the last check.
    pub(super) fn node_at(&mut self, survey: &Survey, ino: Ino, offset: u32) -> Option<Nid> {
        self.nodes_by_offset(survey).get(&(ino, offset)).copied()
    }

    /// The nodes below an inode that belong to its content, with their offsets, in order.
    pub(super) fn nodes_below(&mut self, survey: &Survey, ino: Ino) -> Vec<(u32, Nid)> {
        let nodes = self.nodes_by_offset(survey).range((ino, 1)..(ino, XATTR_NODE_OFFSET));
        nodes.map(|(&(_, offset), &nid)| (offset, nid)).collect()
    }

    fn nodes_by_offset(&mut self, survey: &Survey) -> &mut BTreeMap<(Ino, u32), Nid> {
        self.by_offset.get_or_insert_with(|| {
            survey.references.iter().map(|(&nid, reference)| ((reference.ino, reference.offset), nid)).collect()
        })
    }

    /// Adds a node to what [`node_at`](Self::node_at) knows: those below it may come next.
    pub(super) fn note_node(&mut self, survey: &Survey, ino: Ino, offset: u32, nid: Nid) {
        self.nodes_by_offset(survey).insert((ino, offset), nid);
    }

    /// The footer of a block.
    pub(super) fn footer(block: &[u8]) -> Option<RawNodeFooter> {
        RawNode::ref_from_bytes(block).ok().map(|node| node.footer)
    }
}
