//! What was done since the checkpoint, as far as a cleaning journal and the roll-forward chain tell. Nothing is recovered: rescue takes
//! the nodes that fsync wrote, and leads each node's pointers to where cleaning took what they point to when it reads the node, because
//! old places may be in other use by now.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentKind};
use basalt_vfs::FileKind;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::blocks::read_block;
use crate::checkpoint::fields::log_position;
use crate::checkpoint::pack::Pack;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::journal::area::Area;
use crate::journal::translation::Translation;
use crate::layout::delta::{Delta, PAGES_MAX, Written};
use crate::layout::inode::RawInode;
use crate::layout::journal::{KIND_NODE, Move};
use crate::layout::seal::{Seal, Sealed};
use crate::layout::{Address, BLOCKS_PER_SEGMENT, FileBlock, Ino, Nid};
use crate::node::cache::{LeadPointers, Node};
use crate::node::inode::validate_fields;
use crate::node::level::first_block;
use crate::node::path::node_offset;
use crate::node::pointers::data_slots;
use crate::recovery::forward::vouched;
use crate::recovery::scan::{ChainNode, Start, scan, wrong_in};

/// A node that the checkpoint knows and cleaning moved.
#[derive(Debug, Clone, Copy)]
pub(super) struct MovedNode {
    pub(super) nid: Nid,
    /// Where the checkpoint has it.
    pub(super) old: Address,
    /// Where it is.
    pub(super) last: Address,
}

/// What is behind a checkpoint.
#[derive(Default)]
pub(crate) struct Behind {
    translation: Translation,
    pub(super) moved_nodes: Vec<MovedNode>,
    /// Segments that hold nodes now, whatever the checkpoint says of them.
    pub(super) node_segments: BTreeSet<Segment>,
    /// `cp_ver` of nodes written after the checkpoint, and their positions in the roll-forward chain, by address.
    version: u64,
    pub(super) chain: FxHashMap<Address, usize>,
    /// That chain is broken: what was fsynced behind may be anywhere.
    pub(super) is_broken: bool,
    /// Seals tell which nodes of that chain count.
    pub(super) is_sealed: bool,
    /// What deltas of that chain tell of nodes, by inode and offset in its tree, in order.
    told: FxHashMap<(Ino, u32), Vec<Told>>,
    /// The last that one tells of an inode, and its position in the chain.
    written: FxHashMap<Ino, (usize, Written)>,
    /// Where no checkpoint tells where the chain is: the positions of its seals, by address.
    seals: BTreeMap<Address, usize>,
}

/// Seals that a search keeps at most: twice as many as fit the longest chain.
const SEALS_MAX: usize = 1 << 15;

/// Seals that a search came by: those of the newest version.
#[derive(Default)]
pub(super) struct Seals {
    version: u64,
    /// Address and position, and the seal.
    found: Vec<(Address, usize, Seal)>,
    /// Pages that deltas of them tell.
    told: u64,
}

impl Seals {
    /// Takes note of a seal of a version, found at an address.
    pub(super) fn note(&mut self, version: u64, address: Address, seal: Seal) {
        if version as u32 > self.version as u32 {
            *self = Seals { version, ..Seals::default() };
        }
        let told = seal.delta.as_ref().map_or(0, Delta::pages);
        let has_room = self.told + told <= PAGES_MAX && self.found.len() < SEALS_MAX;
        if let Some(position) = seal.position.filter(|_| version == self.version && has_room) {
            self.told += told;
            self.found.push((address, position as usize, seal));
        }
    }
}

/// Where a delta says that a page is.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// The delta's position in the chain.
    position: usize,
    /// The index of the address in its node.
    index: usize,
    address: Address,
}

impl Behind {
    /// What a journal says of what is behind a checkpoint. What cannot be used of it is told in `notes`.
    pub(super) fn find(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack, notes: &mut Vec<String>) -> Behind {
        let version = pack.raw.node_version(pack.checksum);
        let mut moves = read_moves(device, geometry, version, notes).unwrap_or_else(|error| {
            notes.push(format!("{error}; what was cleaned since the checkpoint may be wrong"));
            Vec::new()
        });
        moves.retain(|one| geometry.in_main(one.old) && geometry.in_main(one.new));
        if !moves.is_empty() {
            let count = moves.len();
            notes
                .push(format!("a cleaning journal is live: the {count} blocks it moved are read at their last places"));
        }
        let translation = Translation::new(&moves);
        let moved_nodes = moved_nodes(&moves, &translation);
        let segment_of = |address: Address| geometry.segment_of(address);
        Behind {
            node_segments: moved_nodes.iter().map(|node| segment_of(node.last)).collect(),
            moved_nodes,
            version,
            translation,
            ..Behind::default()
        }
    }

    /// What seals of the newest chain tell where there is no checkpoint. What was cleaned since that is not known: of what deltas tell, a
    /// page counts if its block still has the CRC that their seal lists, or, if that lists none, if no later seal has another block there.
    pub(super) fn without_checkpoint(device: &dyn BlockDevice, geometry: &Geometry, seals: Seals) -> Behind {
        let mut behind = Behind { version: seals.version, ..Behind::default() };
        let moves = Translation::default();
        let start = Start { device, geometry, version: seals.version, moves: &moves, address: Address::NULL };
        let mut found = seals.found;
        found.sort_unstable_by_key(|(_, position, _)| *position);
        let mut listed: FxHashMap<Address, usize> = FxHashMap::default();
        for (_, position, seal) in &found {
            listed.extend(seal.entries.iter().map(|entry| (entry.address, *position)));
        }
        for (address, position, seal) in found {
            behind.seals.insert(address, position);
            let Some(mut delta) = seal.delta else { continue };
            let wrong: FxHashSet<Address> =
                wrong_in(&start, &seal.entries[..delta.listed.len()]).into_iter().map(|(at, _)| at).collect();
            let whole = delta.listed.iter().zip(&seal.entries).filter(|(_, entry)| !wrong.contains(&entry.address));
            let whole: Vec<(FileBlock, Address)> = whole.map(|(page, entry)| (*page, entry.address)).collect();
            delta.placed.retain(|(_, at)| listed.get(at).is_none_or(|last| *last <= position));
            delta.placed.extend(whole);
            delta.listed.clear();
            behind.note_delta(position, &delta, &[]);
        }
        behind
    }

    /// The position in the chain of a node of its version: as a checkpoint tells, or by the seals in its segment, which the log filled from
    /// one end to the other.
    fn position(&self, address: Address, geometry: &Geometry) -> Option<usize> {
        if let Some(position) = self.chain.get(&address) {
            return Some(*position);
        }
        let first = address - geometry.offset_in_segment(address);
        let in_front = self.seals.range(first..address).next_back();
        let behind = self.seals.range(address..first + BLOCKS_PER_SEGMENT).next();
        match (in_front, behind) {
            (Some((&seal, position)), _) => Some(position + (address - seal) as usize),
            (None, Some((&seal, position))) => position.checked_sub((seal - address) as usize),
            (None, None) => None,
        }
    }

    /// Follows the roll-forward chain; returns the addresses of the nodes that an fsync vouches for. For who reads those: the checkpoint's
    /// do without.
    pub(super) fn follow_chain(
        &mut self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        pack: &Pack,
        notes: &mut Vec<String>,
    ) -> FxHashSet<Address> {
        let (segment, offset, _) = log_position(pack, SegmentKind::WarmNode);
        let Some(address) = geometry.checked_in_segment(segment, offset) else {
            return FxHashSet::default();
        };
        let start = Start { device, geometry, version: self.version, moves: &self.translation, address };
        let mut chain = scan(&start, &|_| false);
        chain.nodes.append(&mut chain.behind);
        self.is_sealed = chain.is_sealed;
        if let Some(error) = &chain.broken {
            self.is_broken = true;
            notes.push(format!("{error}; more was fsynced behind that"));
        }
        self.chain = chain.nodes.iter().map(|node| (node.address, node.position)).collect();
        let of_chain = self.chain.keys().map(|address| geometry.segment_of(*address));
        self.node_segments.extend(of_chain);
        let vouched = vouched(&chain).collect();
        let deltas: Vec<ChainNode> = chain.nodes.into_iter().filter(|node| node.is_delta).collect();
        for node in deltas {
            let seal = read_block(device, node.address).ok().and_then(|block| Seal::of_block(&block));
            let Some((delta, entries)) = seal.and_then(|seal| Some((seal.delta?, seal.entries))) else { continue };
            self.note_delta(node.position, &delta, &entries);
        }
        vouched
    }

    fn note_delta(&mut self, position: usize, delta: &Delta, entries: &[Sealed]) {
        for (page, address) in delta.told(entries) {
            let Some(offset) = node_offset(delta.own, page) else { continue };
            let first = first_block(delta.own, offset).unwrap_or(FileBlock::FIRST);
            let told = Told { position, index: (page - first) as usize, address };
            self.told.entry((delta.ino, offset)).or_default().push(told);
        }
        self.written.insert(delta.ino, (position, delta.written));
    }

    /// Gives a node what deltas tell of it, if that is newer: `position` is the node's in the chain.
    fn give_told(&self, node: &mut Node, position: Option<usize>, slots: Range<usize>, geometry: &Geometry) {
        let (ino, offset) = (node.footer().ino(), node.footer().offset());
        let is_newer = |told: usize| position.is_none_or(|position| told > position);
        if let Some((_, written)) = self.written.get(&ino).filter(|(told, _)| offset == 0 && is_newer(*told)) {
            let before = Written::of(node.inode());
            written.give(node.inode_mut());
            // One that nobody wrote, or of another inode than was found.
            if !is_file(node.inode()) || validate_fields(node.inode(), ino, geometry).is_err() {
                before.give(node.inode_mut());
            }
        }
        for told in self.told.get(&(ino, offset)).into_iter().flatten().filter(|told| is_newer(told.position)) {
            let byte = slots.start + 4 * told.index;
            if byte < slots.end {
                node.set_address(byte, self.translation.of_chain(told.address, told.position));
            }
        }
    }
}

impl LeadPointers for Behind {
    fn lead_pointers(&self, node: &mut Node, address: Address, geometry: &Geometry) {
        let footer = *node.footer();
        let is_newer = footer.cp_ver.get() as u32 > self.version as u32;
        let position = if footer.cp_ver.get() == self.version { self.position(address, geometry) } else { None };
        if footer.cp_ver.get() == self.version && position.is_none() {
            // Written since, and nobody vouches for it: which moves came before it cannot be told.
            return;
        }
        let lead = |pointer: &mut U32| {
            let now = match position {
                Some(position) => self.translation.of_chain(Address::from(*pointer), position),
                None => self.translation.of_checkpoint(Address::from(*pointer)).unwrap_or(Address::from(*pointer)),
            };
            *pointer = now.into();
        };
        let slots = data_slots(node.raw(), geometry.flexible_inline_xattr());
        <[U32]>::mut_from_bytes(&mut node.bytes_mut()[slots.clone()]).unwrap_or_default().iter_mut().for_each(lead);
        if !is_newer {
            self.give_told(node, position, slots, geometry);
        }
    }
}

fn is_file(raw: &RawInode) -> bool {
    FileKind::from_mode(u32::from(raw.i_mode.get())) == Some(FileKind::Regular)
}

fn read_moves(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    version: u64,
    notes: &mut Vec<String>,
) -> Result<Vec<Move>> {
    let found = match Area::find(device, geometry) {
        // What is not live has no block of this version.
        Err(Error::Device(_)) => Some(Area::find_live(device, geometry)?),
        found => found?,
    };
    let Some(area) = found else { return Ok(Vec::new()) };
    match area.read_moves(device, geometry, version) {
        Ok(replay) => Ok(replay.moves),
        Err(error) => {
            notes.push(format!("{error}; what else the journal says is used"));
            Ok(area.read_whole_blocks(device, geometry, version).moves)
        }
    }
}

/// The nodes that the checkpoint knows: an address may have been left several times, and the first counts.
fn moved_nodes(moves: &[Move], translation: &Translation) -> Vec<MovedNode> {
    let mut seen: FxHashSet<Address> = FxHashSet::default();
    let firsts = moves.iter().filter(|one| seen.insert(one.old) && one.kind == KIND_NODE);
    let moved = |one: &Move| {
        let (nid, old) = (one.nid, one.old);
        translation.of_checkpoint(old).map(|last| MovedNode { nid, old, last })
    };
    firsts.filter_map(moved).collect()
}
