//! What has to stay on the device until the repair's checkpoint is durable: should power go before, the device's own checkpoint counts,
//! and what was fsynced behind it.

use std::collections::BTreeSet;

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentKind};
use zerocopy::FromBytes;

use crate::blocks::{read_block, read_blocks};
use crate::checkpoint::fields::log_position;
use crate::checkpoint::load::Loaded;
use crate::geometry::Geometry;
use crate::journal::translation::Translation;
use crate::layout::seal::Seal;
use crate::layout::sit::{ENTRIES_PER_BLOCK, RawSitEntry, VALID_MAP_SIZE};
use crate::layout::{Address, BLOCKS_PER_SEGMENT, bit_msb, set_bit_msb};
use crate::node::pointers::pointers;
use crate::recovery::scan::{Start, scan};

/// Blocks that may not be written over yet. None, where the device has no checkpoint.
#[derive(Default)]
pub(super) struct Kept {
    /// What the device's checkpoint has as live, by segment; all of a segment whose entry cannot be read.
    live: Vec<[u8; VALID_MAP_SIZE]>,
    /// Segments that hold something of the roll-forward chain, or that a node of it points to.
    fsynced: BTreeSet<Segment>,
}

impl Kept {
    /// What the checkpoint `base` of a device keeps. The device has no live cleaning journal.
    pub(super) fn of(device: &dyn BlockDevice, geometry: &Geometry, base: &Loaded) -> Kept {
        Kept { live: live(device, geometry, base), fsynced: fsynced(device, geometry, base) }
    }

    /// Keeps a block of a segment, too: it was found, and the tables do not know of it.
    pub(super) fn keep(&mut self, segment: Segment, block: usize) {
        if let Some(map) = self.live.get_mut(segment.index()) {
            set_bit_msb(map, block, true);
        }
    }

    /// Whether a block of a segment is kept.
    pub(super) fn holds(&self, segment: Segment, block: usize) -> bool {
        self.fsynced.contains(&segment) || self.live.get(segment.index()).is_some_and(|map| bit_msb(map, block))
    }

    /// Whether any block of a segment is kept, from `first` on.
    pub(super) fn holds_from(&self, segment: Segment, first: u32) -> bool {
        let is_live =
            |map: &[u8; VALID_MAP_SIZE]| (first..BLOCKS_PER_SEGMENT).any(|block| bit_msb(map, block as usize));
        self.fsynced.contains(&segment) || self.live.get(segment.index()).is_some_and(is_live)
    }
}

fn live(device: &dyn BlockDevice, geometry: &Geometry, base: &Loaded) -> Vec<[u8; VALID_MAP_SIZE]> {
    let mut maps = Vec::with_capacity(geometry.main_segments as usize);
    for index in 0..geometry.sit_blocks_used() {
        let entries = ENTRIES_PER_BLOCK.min(geometry.main_segments - index * ENTRIES_PER_BLOCK) as usize;
        let second = bit_msb(&base.sit_bitmap, index as usize);
        match read_blocks(device, geometry.sit_block(index, second), 1) {
            Ok(block) => {
                let all = block.chunks_exact(size_of::<RawSitEntry>()).take(entries);
                maps.extend(
                    all.map(|bytes| RawSitEntry::read_from_bytes(bytes).map_or([0xFF; _], |entry| entry.valid_map)),
                );
            }
            Err(_) => maps.extend(std::iter::repeat_n([0xFF; VALID_MAP_SIZE], entries)),
        }
    }
    for entry in &base.sit_journal {
        if let Some(map) = maps.get_mut(entry.segno.get() as usize) {
            *map = entry.entry.valid_map;
        }
    }
    maps
}

fn fsynced(device: &dyn BlockDevice, geometry: &Geometry, base: &Loaded) -> BTreeSet<Segment> {
    let (segment, offset, _) = log_position(&base.pack, SegmentKind::WarmNode);
    let Some(address) = geometry.checked_in_segment(segment, offset) else {
        return BTreeSet::new();
    };
    let version = base.pack.raw.node_version(base.pack.checksum);
    let start = Start { device, geometry, version, moves: &Translation::default(), address };
    let mut chain = scan(&start, &|_| false);
    chain.nodes.append(&mut chain.behind);
    if chain.visited == 0 {
        return BTreeSet::new();
    }
    let mut segments = chain.segments;
    for node in &chain.nodes {
        let Ok(block) = read_block(device, node.address) else { continue };
        let told = Seal::of_block(&block).and_then(|seal| Some(seal.delta?.placed)).unwrap_or_default();
        let slots = if node.is_delta { &[] } else { pointers(&block, geometry).unwrap_or_default() };
        let targets = slots.iter().map(|slot| Address::from(*slot)).chain(told.into_iter().map(|(_, at)| at));
        segments.extend(targets.filter(|at| geometry.in_main(*at)).map(|at| geometry.segment_of(at)));
    }
    segments
}
