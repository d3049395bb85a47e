//! What the pack before says of a pack: which blocks of the logs were written between the two. The journals of NAT and SIT have no checksum,
//! but they or the tables have what is written there.
//!
//! | between the two checkpoints | then in the newer one |
//! |---|---|
//! | a node was written | its entry is in the journal of the NAT, or its block of the table was written anew |
//! | its entry is in the journal | that leads to this node, to one written since, or to none |
//! | the older one's journal has an entry | the newer one's has one, or its block of the table was written anew, or has the same |
//! | a log has written | the entry of its segment is in the journal of the SIT, or its block of the table was written anew |
//!
//! An entry of the older journal counts if its node is there, is live for all that the newer pack's SIT says, and is no newer than this: power
//! can have cut the checkpoint after the newer one, which then has left its own journal in this place.
//!
//! Which blocks of the tables were written anew is told by the version bitmaps, which have a checksum. A repair, and tools, write what is in
//! a journal into the table in place: an entry there that is newer than the older checkpoint is as good.

use std::ops::Range;

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentKind};
use rustc_hash::FxHashMap;
use zerocopy::FromBytes;

use super::fields::{bitmap_places, log_position, version_bitmaps};
use super::journals::read_nat_alone;
use super::pack::{Pack, read_pack};
use crate::blocks::read_blocks;
use crate::geometry::Geometry;
use crate::layout::nat::{self, RawNatEntry};
use crate::layout::node::RawNode;
use crate::layout::sit::RawSitEntry;
use crate::layout::summary::{RawNatJournalEntry, RawSitJournalEntry};
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Ino, Nid, bit_msb};

/// Nodes at the end of each log that are compared with the journal: 768 KiB in all, at most.
const NODES_COMPARED: u32 = 64;

/// The pack before another, whole.
pub(crate) struct Previous {
    pack: Pack,
    /// `cp_ver` of the nodes that were written between the two.
    pub(crate) node_version: u64,
    /// The version bitmaps of the SIT and the NAT, of this pack and of the newer one.
    sit_bitmaps: [Vec<u8>; 2],
    nat_bitmaps: [Vec<u8>; 2],
}

/// What the journal of the NAT of the pack before says of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalEntry {
    /// It was there.
    At(Address),
    /// It was where something else is: the newer checkpoint has it elsewhere, or not at all.
    Changed,
}

/// Which journal of a pack is not what the checkpoint wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contradicted {
    Nat,
    Sit,
}

impl Previous {
    /// The pack before `pack`; `None` if it is not whole or not the one before.
    pub(crate) fn of(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Option<Previous> {
        let before = read_pack(device, geometry, 1 - pack.index).ok()?;
        let is_possible = |pack: &Pack| {
            SegmentKind::ALL.iter().all(|kind| {
                let (segment, offset, _) = log_position(pack, *kind);
                geometry.has_segment(segment) && offset < BLOCKS_PER_SEGMENT
            })
        };
        let is_next = before.raw.checkpoint_ver.get().wrapping_add(1) == pack.raw.checkpoint_ver.get();
        if !is_next || !is_possible(&before) || !is_possible(pack) {
            return None;
        }
        let [(sit_before, nat_before), (sit_now, nat_now)] =
            [version_bitmaps(&before, geometry).ok()?, version_bitmaps(pack, geometry).ok()?];
        let (_, nat_at) = bitmap_places(before.raw.flags(), geometry);
        if nat_at + nat_now.len() > BLOCK_SIZE {
            return None;
        }
        let node_version = before.raw.node_version(before.checksum);
        let (sit_bitmaps, nat_bitmaps) = ([sit_before, sit_now], [nat_before, nat_now]);
        Some(Previous { pack: before, node_version, sit_bitmaps, nat_bitmaps })
    }

    /// Where a log was in its segment and is now, if it is still in that one; else from its segment's first block on. Blocks within the
    /// segment where it is now; `None` where it filled holes.
    pub(crate) fn written(&self, pack: &Pack, kind: SegmentKind) -> Option<Range<u32>> {
        let (before, now) = (log_position(&self.pack, kind), log_position(pack, kind));
        if before.2 || now.2 {
            return None;
        }
        let first = if before.0 == now.0 { before.1 } else { 0 };
        Some(first.min(now.1)..now.1)
    }

    /// The segment where a log was, and the block there that came next; `None` where it filled holes.
    pub(crate) fn position(&self, kind: SegmentKind) -> Option<(Segment, u32)> {
        let (segment, offset, in_slack) = log_position(&self.pack, kind);
        (!in_slack).then_some((segment, offset))
    }

    /// Whether the NAT's block with a node was written anew between the two.
    pub(crate) fn has_new_nat_block(&self, nid: Nid) -> bool {
        has_flipped(&self.nat_bitmaps, nid.nat_block())
    }

    /// What this pack's journal of the NAT says of each node that it has; `None` where it is not its own. Where power cut the next checkpoint,
    /// that one's can be in its place: its entries lead to nodes that were written since, or, where those were lost, to older ones than the
    /// table does.
    pub(crate) fn nat_journal(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
    ) -> Option<FxHashMap<Nid, JournalEntry>> {
        let entries = read_nat_alone(device, geometry, &self.pack).ok()?;
        let entries = entries.iter().map(|one| (one.nid(), one.entry.address()));
        let judged = |(nid, address)| Some((nid, self.judge(device, geometry, nid, address)?));
        let entries: FxHashMap<Nid, JournalEntry> =
            entries.filter(|(_, address)| *address != Address::NULL).map(judged).collect::<Option<_>>()?;
        // One of which nothing is where it leads may be anybody's.
        let is_anybodys = !entries.is_empty() && entries.values().all(|entry| *entry == JournalEntry::Changed);
        (!is_anybodys).then_some(entries)
    }

    /// What an entry of this pack's journal says; `None` if it cannot be this pack's.
    fn judge(&self, device: &dyn BlockDevice, geometry: &Geometry, nid: Nid, address: Address) -> Option<JournalEntry> {
        let version = |address: Address| {
            let found = node_at(device, geometry, address).filter(|found| found.nid == nid)?;
            Some(self.ahead(found.version))
        };
        // What the newer checkpoint freed may be in other use.
        let Some(here) = version(address) else { return Some(JournalEntry::Changed) };
        let known = self.table_entry(device, geometry, nid).filter(|known| *known != address);
        // The nodes that mkfs wrote have the version of those that came next.
        let is_newest = known.and_then(version).is_none_or(|there| there >= 0 || there <= here);
        (here < 0 && is_newest).then_some(JournalEntry::At(address))
    }

    /// Whether this pack's journal of the NAT and its table have as many nodes as this checkpoint counts.
    pub(crate) fn has_all_nodes(&self, device: &dyn BlockDevice, geometry: &Geometry) -> bool {
        let Ok(journal) = read_nat_alone(device, geometry, &self.pack) else { return false };
        self.nodes(device, geometry, 0, &journal) == Some(u64::from(self.pack.raw.valid_node_count.get()))
    }

    /// Nodes that a journal of the NAT and the table have, the table as this pack (0) or the newer one (1) has it; `None` if it cannot be read.
    fn nodes(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        which: usize,
        journal: &[RawNatJournalEntry],
    ) -> Option<u64> {
        let journal: FxHashMap<Nid, Address> = journal.iter().map(|one| (one.nid(), one.entry.address())).collect();
        let mut nodes = journal.values().filter(|address| geometry.in_main(**address)).count() as u64;
        for index in 0..geometry.nat_blocks {
            let block = self.table_block(device, geometry, which, index)?;
            let ids = Nid::in_nat_block(index, 0).onward();
            let is_there =
                |(nid, entry): &(Nid, &RawNatEntry)| geometry.in_main(entry.address()) && !journal.contains_key(nid);
            nodes += ids.zip(&block).filter(is_there).count() as u64;
        }
        Some(nodes)
    }

    /// How far ahead of this pack the `cp_ver` of a node is: 0 for those that were written between the two.
    fn ahead(&self, version: u64) -> i32 {
        (version as u32).wrapping_sub(self.pack.raw.checkpoint_ver.get() as u32).cast_signed()
    }

    /// Whether a journal of the newer pack contradicts this one; those that are known to be gone are left out.
    pub(super) fn contradicts(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        pack: &Pack,
        nat: Option<&[RawNatJournalEntry]>,
        sit: Option<&[RawSitJournalEntry]>,
    ) -> Option<Contradicted> {
        if nat.is_some_and(|journal| self.contradicts_nat(device, geometry, pack, journal, sit)) {
            return Some(Contradicted::Nat);
        }
        // Bitmaps behind the first block have no checksum: the next checkpoint, cut off, may have left its own there.
        let journal = sit.filter(|_| geometry.payload == 0)?;
        let lacks = |kind: &SegmentKind| {
            let (segment, _, _) = log_position(pack, *kind);
            let is_elsewhere = has_flipped(&self.sit_bitmaps, geometry.sit_place(segment).0)
                || journal.iter().any(|one| one.segno.get() == segment.get());
            let written = self.written(pack, *kind).filter(|blocks| !blocks.is_empty() && !is_elsewhere);
            written.is_some_and(|written| !self.has_live(device, geometry, segment, written))
        };
        SegmentKind::ALL.iter().any(lacks).then_some(Contradicted::Sit)
    }

    /// Whether the SIT's table, as the newer pack has it, knows of a live block in part of a segment; true where it cannot be read.
    fn has_live(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        segment: Segment,
        mut blocks: Range<u32>,
    ) -> bool {
        let entry = self.sit_entry(device, geometry, segment);
        entry.is_none_or(|entry| blocks.any(|block| bit_msb(&entry.valid_map, block as usize)))
    }

    /// Whether the SIT, as the newer pack has it, says that a block is live; false where it cannot be read.
    fn is_live(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        journal: Option<&[RawSitJournalEntry]>,
        address: Address,
    ) -> bool {
        let at = geometry.main_block(address);
        let (segment, block) = (at.segment(), at.offset() as usize);
        let known = journal.unwrap_or_default().iter().find(|one| one.segno.get() == segment.get());
        let known = known.map(|one| one.entry).or_else(|| self.sit_entry(device, geometry, segment));
        known.is_some_and(|entry| bit_msb(&entry.valid_map, block))
    }

    /// A segment's entry in the SIT's table, as the newer pack has it; `None` where it cannot be read.
    fn sit_entry(&self, device: &dyn BlockDevice, geometry: &Geometry, segment: Segment) -> Option<RawSitEntry> {
        let (index, entry) = geometry.sit_place(segment);
        let address = geometry.sit_block(index, bit_msb(&self.sit_bitmaps[1], index as usize));
        let bytes = read_blocks(device, address, 1).ok()?;
        let at = entry * size_of::<RawSitEntry>();
        RawSitEntry::read_from_prefix(&bytes[at..]).ok().map(|(entry, _)| entry)
    }

    fn contradicts_nat(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        pack: &Pack,
        journal: &[RawNatJournalEntry],
        sit: Option<&[RawSitJournalEntry]>,
    ) -> bool {
        let entries: FxHashMap<Nid, Address> = journal.iter().map(|one| (one.nid(), one.entry.address())).collect();
        let is_newer = |nid: Nid, address: Address| {
            node_at(device, geometry, address).is_some_and(|found| found.nid == nid && self.ahead(found.version) >= 0)
        };
        let block_with = |nid: Nid| self.table_block(device, geometry, 1, nid.nat_block());
        let agrees = |(nid, (address, near)): (Nid, (Address, Nid))| match entries.get(&nid) {
            Some(&entry) => Some(entry == Address::NULL || entry == address || is_newer(nid, entry)),
            // What was written anew says nothing, and neither does what cannot be read.
            None if self.has_new_nat_block(nid) => None,
            None => {
                let entry = block_with(nid)?[nid.nat_slot()].address();
                // A node that is damaged may have a wrong number; the right one is near its inode's.
                let has_other = || {
                    let near = block_with(near).unwrap_or_default();
                    let near = near.iter().map(|entry| entry.address());
                    entries.values().copied().chain(near).any(|other| other == address)
                };
                Some(entry == address || is_newer(nid, entry) || has_other())
            }
        };
        let node_kinds = || SegmentKind::ALL.into_iter().filter(|kind| kind.is_node());
        let written = node_kinds().flat_map(|kind| self.last_written(device, geometry, pack, kind));
        let answers: Vec<(Address, bool)> =
            written.filter_map(|(nid, (address, ino))| Some((address, agrees((nid, (address, ino.nid())))?))).collect();
        // In the holes of a log there may be nodes of an interrupted checkpoint: where the SIT knows of what was written, only those that are live
        // count.
        let is_live = |(address, _): &&(Address, bool)| self.is_live(device, geometry, sit, *address);
        let live: Vec<(Address, bool)> = answers.iter().filter(is_live).copied().collect();
        let is_told = sit.is_some() && !live.is_empty();
        let all = answers.iter().map(|(_, agrees)| *agrees);
        if live.iter().any(|(_, agrees)| !agrees) || !is_told && is_against(all) {
            return true;
        }
        let is_open = |nid: Nid| !entries.contains_key(&nid) && !self.has_new_nat_block(nid);
        let before = read_nat_alone(device, geometry, &self.pack);
        let has_open = before.is_ok_and(|before| before.iter().any(|one| is_open(one.nid())));
        let is_blind = node_kinds().any(|kind| self.written(pack, kind).is_none());
        // The rest takes reading.
        if !has_open && !is_blind {
            return false;
        }
        // One that the newer checkpoint has no other place for is live there. Power can have cut a later checkpoint that left its journal, but
        // not its nodes, where older nodes lie that were lost.
        let may_be_live = |address: Address| sit.is_none() || self.is_live(device, geometry, sit, address);
        let before = self.nat_journal(device, geometry).unwrap_or_default();
        let before: Vec<(Nid, Address)> = before
            .into_iter()
            .filter_map(|(nid, entry)| match entry {
                JournalEntry::At(address) if is_open(nid) && may_be_live(address) => Some((nid, address)),
                _ => None,
            })
            .collect();
        if is_against(before.iter().filter_map(|&(nid, address)| agrees((nid, (address, nid))))) {
            return true;
        }
        // Where nothing else could tell, the count of nodes tells one without entries from one that looks so.
        let is_open_question = journal.is_empty() && (before.is_empty() || is_blind);
        let nodes = || self.nodes(device, geometry, 1, journal);
        is_open_question && nodes().is_some_and(|nodes| nodes != u64::from(pack.raw.valid_node_count.get()))
    }

    /// The last nodes that a log has written between the two: of each the last address, and its inode.
    fn last_written(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        pack: &Pack,
        kind: SegmentKind,
    ) -> FxHashMap<Nid, (Address, Ino)> {
        let Some(written) = self.written(pack, kind) else { return FxHashMap::default() };
        let first = written.start.max(written.end.saturating_sub(NODES_COMPARED));
        let address = geometry.in_segment(log_position(pack, kind).0, first);
        let Ok(bytes) = read_blocks(device, address, (written.end - first) as usize) else {
            return FxHashMap::default();
        };
        let nodes = address.onward().zip(bytes.chunks_exact(BLOCK_SIZE));
        let nodes = nodes.filter_map(|(address, block)| Some((address, node_in(block, geometry)?)));
        let nodes = nodes.filter(|(_, node)| node.version == self.node_version);
        nodes.map(|(address, node)| (node.nid, (address, node.ino))).collect()
    }

    /// The entries of a block of the NAT's table, as this pack has it; `None` if it cannot be read or has an entry that cannot be.
    pub(crate) fn nat_block(&self, device: &dyn BlockDevice, geometry: &Geometry, index: u32) -> Option<Vec<Address>> {
        let block: Vec<Address> =
            self.table_block(device, geometry, 0, index)?.iter().map(|entry| entry.address()).collect();
        // The first ids are reserved.
        let first = if index == 0 { Nid::FIRST.nat_slot() } else { 0 };
        let is_possible = |address: &Address| *address == Address::NULL || geometry.in_main(*address);
        block[first..].iter().all(is_possible).then_some(block)
    }

    /// Where the NAT's table leads, as the newer pack has it; `None` if it cannot be read.
    fn table_entry(&self, device: &dyn BlockDevice, geometry: &Geometry, nid: Nid) -> Option<Address> {
        let block = self.table_block(device, geometry, 1, nid.nat_block())?;
        Some(block[nid.nat_slot()].address())
    }

    /// A block of the NAT's table, as this pack (0) or the newer one (1) has it; `None` if it cannot be read.
    fn table_block(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        which: usize,
        index: u32,
    ) -> Option<Vec<RawNatEntry>> {
        let address = geometry.nat_block(index, bit_msb(&self.nat_bitmaps[which], index as usize));
        let bytes = read_blocks(device, address, 1).ok()?;
        let (entries, _) = <[RawNatEntry]>::ref_from_prefix_with_elems(&bytes, nat::ENTRIES_PER_BLOCK as usize).ok()?;
        Some(entries.to_vec())
    }
}

/// Whether at least half of what was asked says no, and there is one who does: a node may be damaged itself.
fn is_against(answers: impl Iterator<Item = bool>) -> bool {
    let (mut all, mut no) = (0, 0);
    for agrees in answers {
        all += 1;
        no += usize::from(!agrees);
    }
    no > 0 && 2 * no >= all
}

fn has_flipped(bitmaps: &[Vec<u8>; 2], index: u32) -> bool {
    bit_msb(&bitmaps[0], index as usize) != bit_msb(&bitmaps[1], index as usize)
}

/// What the footer of a node says.
struct Footer {
    nid: Nid,
    ino: Ino,
    version: u64,
}

/// The footer of the node in a block, if it can be one.
fn node_in(block: &[u8], geometry: &Geometry) -> Option<Footer> {
    let footer = &RawNode::ref_from_bytes(block).ok()?.footer;
    let (nid, ino, version) = (footer.nid(), footer.ino(), footer.cp_ver.get());
    let ids = Nid::FIRST..geometry.node_ids();
    (ids.contains(&nid) && ids.contains(&ino.nid())).then_some(Footer { nid, ino, version })
}

fn node_at(device: &dyn BlockDevice, geometry: &Geometry, address: Address) -> Option<Footer> {
    let block = geometry.in_main(address).then(|| read_blocks(device, address, 1).ok())??;
    node_in(&block, geometry)
}
