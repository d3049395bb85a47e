//! What cleaning moved since the checkpoint, as far as a cleaning journal tells: rescue follows it, because old places may be in other
//! use by now. Nothing is recovered; each node's pointers are led to the last places when it is read.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use basalt_device::BlockDevice;
use basalt_vfs::FileKind;
use zerocopy::little_endian::U32;

use crate::checkpoint::CheckpointState;
use crate::checkpoint::load::Pack;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::journal::area::Area;
use crate::journal::translation::Translation;
use crate::layout::BLOCKS_PER_SEGMENT;
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::journal::{KIND_NODE, RawMove};
use crate::layout::node::XATTR_NODE_OFFSET;
use crate::node::cache::Node;
use crate::node::path::is_direct;
use crate::recovery::scan::{Start, scan};

/// A node that the checkpoint knows and cleaning moved.
#[derive(Debug, Clone, Copy)]
pub(super) struct MovedNode {
    pub(super) nid: u32,
    /// Where the checkpoint has it.
    pub(super) old: u32,
    /// Where it is.
    pub(super) last: u32,
}

/// The moves behind a checkpoint.
pub(crate) struct Moved {
    translation: Translation,
    pub(super) nodes: Vec<MovedNode>,
    /// Segments that hold nodes now, whatever the checkpoint says of them.
    pub(super) node_segments: BTreeSet<u32>,
    /// `cp_ver` of nodes written after the checkpoint, and their positions in the roll-forward chain, by address.
    version: u64,
    chain: FxHashMap<u32, usize>,
}

impl Moved {
    /// The moves behind a checkpoint; `None` if nothing was moved, or nobody knows. What cannot be used is told in `notes`.
    pub(super) fn find(
        device: &dyn BlockDevice,
        geometry: &Geometry,
        pack: &Pack,
        notes: &mut Vec<String>,
    ) -> Option<Moved> {
        let version = CheckpointState::new(pack.clone(), Vec::new(), &[]).node_version();
        let mut moves = read_moves(device, geometry, version, notes).unwrap_or_else(|error| {
            notes.push(format!("{error}; what was cleaned since the checkpoint may be wrong"));
            Vec::new()
        });
        moves.retain(|one| geometry.in_main(one.old.get()) && geometry.in_main(one.new.get()));
        if moves.is_empty() {
            return None;
        }
        notes.push(format!(
            "a cleaning journal is live: the {} blocks it moved are read at their last places",
            moves.len()
        ));
        let translation = Translation::new(&moves);
        let mut found = Moved {
            nodes: moved_nodes(&moves, &translation),
            node_segments: BTreeSet::new(),
            version,
            translation,
            chain: FxHashMap::default(),
        };
        found.node_segments.extend(found.nodes.iter().map(|node| (node.last - geometry.main) / BLOCKS_PER_SEGMENT));
        found.follow_chain(device, geometry, pack, notes);
        Some(found)
    }

    fn follow_chain(&mut self, device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack, notes: &mut Vec<String>) {
        let (segment, offset) = (pack.raw.cur_node_segno[1].get(), u32::from(pack.raw.cur_node_blkoff[1].get()));
        let address = u64::from(geometry.main) + u64::from(segment) * u64::from(BLOCKS_PER_SEGMENT) + u64::from(offset);
        let Ok(address) = u32::try_from(address) else { return };
        let start = Start { device, geometry, version: self.version, moves: &self.translation, address };
        match scan(&start, &|_| false) {
            Ok(chain) => {
                self.chain = chain.nodes.iter().map(|node| (node.address, node.position)).collect();
                let of_chain = self.chain.keys().map(|address| (address - geometry.main) / BLOCKS_PER_SEGMENT);
                self.node_segments.extend(of_chain);
            }
            Err(error) => notes.push(format!("{error}; what was fsynced since the checkpoint may be wrong")),
        }
    }

    /// Leads the pointers to data of a node, read from `address`, to where cleaning took that.
    pub(crate) fn lead_pointers(&self, node: &mut Node, address: u32, geometry: &Geometry) {
        let footer = *node.footer();
        let position = self.chain.get(&address).copied();
        if footer.cp_ver.get() == self.version && position.is_none() {
            // Written since, and nobody vouches for it: which moves came before it cannot be told.
            return;
        }
        let lead = |pointer: &mut U32| {
            let now = match position {
                Some(position) => self.translation.of_chain(pointer.get(), position),
                None => self.translation.of_checkpoint(pointer.get()).unwrap_or(pointer.get()),
            };
            pointer.set(now);
        };
        if footer.ino == footer.nid {
            let raw = node.inode();
            if has_pointers(raw) {
                let first = (raw.extra_size() / 4) as usize;
                let count = raw.address_slots(geometry.flexible_inline_xattr()) as usize;
                node.inode_mut().slots[first..first + count].iter_mut().for_each(lead);
            }
        } else if is_direct(footer.offset()) && footer.offset() != XATTR_NODE_OFFSET {
            node.raw_mut().slots.iter_mut().for_each(lead);
        }
    }
}

/// Whether an inode's slots hold addresses: no content, no entries, no device number.
fn has_pointers(raw: &RawInode) -> bool {
    let kind = FileKind::from_mode(u32::from(raw.i_mode.get()));
    matches!(kind, Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink))
        && !raw.inline_flags().intersects(InlineFlags::DATA | InlineFlags::DENTRY)
}

fn read_moves(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    version: u64,
    notes: &mut Vec<String>,
) -> Result<Vec<RawMove>> {
    let Some(area) = Area::find(device, geometry)? else { return Ok(Vec::new()) };
    match area.read_moves(device, geometry, version) {
        Ok(replay) => Ok(replay.moves),
        Err(error @ Error::Damaged { .. }) => {
            notes.push(format!("{error}; what else the journal says is used"));
            Ok(area.read_whole_blocks(device, geometry, version)?.moves)
        }
        Err(error) => Err(error),
    }
}

/// The nodes that the checkpoint knows: an address may have been left several times, and the first counts.
fn moved_nodes(moves: &[RawMove], translation: &Translation) -> Vec<MovedNode> {
    let mut seen = FxHashSet::default();
    let firsts = moves.iter().filter(|one| seen.insert(one.old.get()) && one.kind == KIND_NODE);
    let moved = |one: &RawMove| {
        let (nid, old) = (one.nid.get(), one.old.get());
        translation.of_checkpoint(old).map(|last| MovedNode { nid, old, last })
    };
    firsts.filter_map(moved).collect()
}
