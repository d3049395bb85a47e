//! Which nodes were written between the last two checkpoints: where the newer one's journals are gone, they are what those had.
//!
//! Each log of nodes goes from where the older checkpoint has it to where the newer one has it. Within one segment, what lies between was
//! written over whatever an interrupted checkpoint had left there. From one segment to the next the last node of each leads on, and the
//! segment's summary has the owners of all that was written before the log left it.

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentKind};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use zerocopy::FromBytes;

use crate::blocks::read_blocks;
use crate::checkpoint::fields::log_position;
use crate::checkpoint::pack::Pack;
use crate::checkpoint::previous::{JournalEntry, Previous};
use crate::geometry::Geometry;
use crate::layout::node::RawNode;
use crate::layout::summary::RawSummaryBlock;
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid};
use crate::node::seen::Seen;

/// Segments of which the owners are remembered.
const SUMMARIES_MAX: usize = 256;

/// Whether a node was written between the two checkpoints, and not given up with one that power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Yes,
    No,
    Unknown,
}

/// What was written between the last two checkpoints.
pub(super) struct Interval {
    /// What each segment on a log's way has of it.
    ways: FxHashMap<Segment, Range<u32>>,
    /// Where the logs are now: the summary there is of before.
    last_segments: FxHashSet<Segment>,
    /// The way of each log is known from one end to the other.
    is_complete: bool,
    /// The older checkpoint.
    previous: Previous,
    /// What its journal of the NAT says; `None` where that is lost.
    journal: Option<FxHashMap<Nid, JournalEntry>>,
    /// Blocks of its table that the newer one has written anew: addresses; `None` where they cannot be believed.
    table: FxHashMap<u32, Option<Vec<Address>>>,
    /// Owners by segment; `None` where they cannot be read.
    summaries: FxHashMap<Segment, Option<Box<RawSummaryBlock>>>,
}

impl Interval {
    /// What came before a checkpoint; `None` if the one before is not whole.
    pub(super) fn before(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Option<Interval> {
        let previous = Previous::of(device, geometry, pack)?;
        let journal = previous.nat_journal(device, geometry);
        let mut interval = Interval {
            ways: FxHashMap::default(),
            last_segments: FxHashSet::default(),
            is_complete: true,
            journal: journal.filter(|_| previous.has_all_nodes(device, geometry)),
            previous,
            table: FxHashMap::default(),
            summaries: FxHashMap::default(),
        };
        for kind in SegmentKind::ALL.into_iter().filter(|kind| kind.is_node()) {
            let way = interval.follow(device, geometry, pack, kind);
            interval.is_complete &= way.is_some();
        }
        Some(interval)
    }

    /// Follows a log from one checkpoint to the next; `None` if part of its way is not known.
    fn follow(&mut self, device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack, kind: SegmentKind) -> Option<()> {
        let (last, _, _) = log_position(pack, kind);
        self.last_segments.insert(last);
        let written = self.previous.written(pack, kind)?;
        self.ways.insert(last, written);
        let (mut segment, mut offset) = self.previous.position(kind)?;
        let mut seen = FxHashSet::default();
        while segment != last {
            // A way has no segment twice.
            if !seen.insert(segment) {
                return None;
            }
            let end = geometry.in_segment(segment, BLOCKS_PER_SEGMENT - 1);
            let block = read_blocks(device, end, 1).ok()?;
            let footer = RawNode::ref_from_bytes(&block).ok()?.footer;
            let owner = self.owner(device, geometry, end)?;
            if footer.cp_ver.get() != self.previous.node_version || owner != footer.nid() {
                return None;
            }
            self.ways.insert(segment, offset..BLOCKS_PER_SEGMENT);
            let next = footer.next_blkaddr.into();
            segment = geometry.in_main(next).then(|| geometry.segment_of(next))?;
            offset = 0;
        }
        Some(())
    }

    /// The node id that the summary of a segment has for a block; `None` if it cannot be read.
    fn owner(&mut self, device: &dyn BlockDevice, geometry: &Geometry, address: Address) -> Option<Nid> {
        let segment = geometry.segment_of(address);
        if self.summaries.len() >= SUMMARIES_MAX && !self.summaries.contains_key(&segment) {
            self.summaries.clear();
        }
        let summary = self.summaries.entry(segment).or_insert_with(|| {
            let block = read_blocks(device, geometry.summary_block(segment), 1).ok()?;
            RawSummaryBlock::ref_from_bytes(&block).ok().map(|summary| Box::new(*summary))
        });
        let at = (geometry.offset_in_segment(address)) as usize;
        summary.as_ref().map(|summary| summary.entries[at].nid())
    }

    /// Whether the node at `address` was written between the two checkpoints.
    pub(super) fn has(
        &mut self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        seen: &Seen,
        address: Address,
    ) -> Written {
        if seen.version != self.previous.node_version || !geometry.in_main(address) {
            return Written::No;
        }
        let (segment, at) = (geometry.segment_of(address), geometry.offset_in_segment(address));
        let is_way = self.ways.get(&segment).map(|way| way.contains(&at));
        match is_way {
            Some(false) => return Written::No,
            None if self.is_complete => return Written::No,
            Some(true) if self.last_segments.contains(&segment) => return Written::Yes,
            None if self.last_segments.contains(&segment) => return Written::Unknown,
            _ => {}
        }
        // A log that left its segment behind, or left a hole in it, has written its summary without.
        match self.owner(device, geometry, address) {
            Some(owner) if owner != seen.nid => Written::No,
            _ if is_way == Some(true) => Written::Yes,
            _ => Written::Unknown,
        }
    }

    /// Whether all of these were written after a node.
    pub(super) fn is_after(&self, seen: &Seen) -> bool {
        (seen.version as u32).wrapping_sub(self.previous.node_version as u32).cast_signed() < 0
    }

    /// What the older checkpoint's journal says of a node.
    pub(super) fn journal_before(&self, nid: Nid) -> Option<JournalEntry> {
        self.journal.as_ref()?.get(&nid).copied()
    }

    /// Whether the older checkpoint's journal is there.
    pub(super) fn has_journal_before(&self) -> bool {
        self.journal.is_some()
    }

    /// Whether the newer checkpoint has written the block of the NAT with a node anew: all that it knew of the node is there.
    pub(super) fn has_new_nat_block(&self, nid: Nid) -> bool {
        self.previous.has_new_nat_block(nid)
    }

    /// Where the older checkpoint's table has a node, in a block that the newer one has written anew; `None` where that cannot be believed.
    pub(super) fn table_before(&mut self, device: &dyn BlockDevice, geometry: &Geometry, nid: Nid) -> Option<Address> {
        let index = nid.nat_block();
        let block = self.table.entry(index).or_insert_with(|| self.previous.nat_block(device, geometry, index));
        block.as_ref().map(|block| block[nid.nat_slot()])
    }
}

const _: () = assert!(size_of::<RawSummaryBlock>() == BLOCK_SIZE);
