//! What was done since the checkpoint, as far as a cleaning journal and the roll-forward chain tell. Nothing is recovered: rescue takes
//! the nodes that fsync wrote, and leads each node's pointers to where cleaning took what they point to when it reads the node, because
//! old places may be in other use by now.

use std::collections::BTreeSet;
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
use crate::layout::delta::Written;
use crate::layout::inode::RawInode;
use crate::layout::journal::{KIND_NODE, Move};
use crate::layout::seal::Seal;
use crate::layout::{Address, FileBlock, Ino, Nid};
use crate::node::cache::{LeadPointers, Node};
use crate::node::inode::validate_fields;
use crate::node::level::first_block;
use crate::node::path::node_offset;
use crate::node::pointers::data_slots;
use crate::recovery::forward::vouched;
use crate::recovery::scan::{ChainNode, Start, scan};

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
            chain: FxHashMap::default(),
            is_broken: false,
            is_sealed: false,
            told: FxHashMap::default(),
            written: FxHashMap::default(),
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
        deltas.iter().for_each(|delta| self.note_delta(device, delta));
        vouched
    }

    fn note_delta(&mut self, device: &dyn BlockDevice, node: &ChainNode) {
        let seal = read_block(device, node.address).ok().and_then(|block| Seal::of_block(&block));
        let Some((delta, entries)) = seal.and_then(|seal| Some((seal.delta?, seal.entries))) else { return };
        for (page, address) in delta.told(&entries) {
            let Some(offset) = node_offset(delta.own, page) else { continue };
            let first = first_block(delta.own, offset).unwrap_or(FileBlock::FIRST);
            let told = Told { position: node.position, index: (page - first) as usize, address };
            self.told.entry((delta.ino, offset)).or_default().push(told);
        }
        self.written.insert(delta.ino, (node.position, delta.written));
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
        let position = self.chain.get(&address).copied();
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
        self.give_told(node, position, slots, geometry);
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
