//! Which nodes were written between the last two checkpoints: where the newer one's journals are gone, they are what those had.
//!
//! Each log of nodes goes from where the older checkpoint has it to where the newer one has it. Within one segment, what lies between was
//! written over whatever an interrupted checkpoint had left there. From one segment to the next the last node of each leads on, and the
//! segment's summary has the owners of all that was written before the log left it.

use basalt_device::BlockDevice;
use basalt_segments::SegmentKind;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use zerocopy::FromBytes;

use super::node::Seen;
use crate::blocks::read_blocks;
use crate::checkpoint::load::log_position;
use crate::checkpoint::pack::Pack;
use crate::checkpoint::previous::Previous;
use crate::geometry::Geometry;
use crate::layout::node::RawNode;
use crate::layout::summary::RawSummaryBlock;
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, SEGMENT_BITS};

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
    /// `cp_ver` of the nodes.
    version: u64,
    /// What each segment on a log's way has of it.
    ways: FxHashMap<u32, Range<u32>>,
    /// Where the logs are now: the summary there is of before.
    last_segments: FxHashSet<u32>,
    /// The way of each log is known from one end to the other.
    is_complete: bool,
    /// Where the older checkpoint's journal leads, where the newer one has no newer block of the table; `None` where that is lost.
    before: Option<FxHashMap<u32, u32>>,
    /// Of nodes that are not known to be in use the newest version before these, where the older checkpoint's journal is lost.
    others: FxHashMap<u32, i32>,
    /// The older checkpoint's version.
    previous: u32,
    /// Owners by segment; `None` where they cannot be read.
    summaries: FxHashMap<u32, Option<Box<RawSummaryBlock>>>,
}

impl Interval {
    /// What came before a checkpoint; `None` if the one before is not whole.
    pub(super) fn before(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Option<Interval> {
        let previous = Previous::of(device, geometry, pack)?;
        let mut before = previous.nat_journal(device, geometry);
        before = before.filter(|_| previous.has_all_nodes(device, geometry));
        if let Some(before) = &mut before {
            before.retain(|nid, _| !previous.has_new_nat_block(*nid));
        }
        let mut interval = Interval {
            version: previous.node_version,
            ways: FxHashMap::default(),
            last_segments: FxHashSet::default(),
            is_complete: true,
            before,
            others: FxHashMap::default(),
            previous: previous.node_version as u32,
            summaries: FxHashMap::default(),
        };
        for kind in SegmentKind::ALL.into_iter().filter(|kind| kind.is_node()) {
            let way = interval.follow(device, geometry, pack, &previous, kind);
            interval.is_complete &= way.is_some();
        }
        Some(interval)
    }

    /// Follows a log from one checkpoint to the next; `None` if part of its way is not known.
    fn follow(
        &mut self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        pack: &Pack,
        previous: &Previous,
        kind: SegmentKind,
    ) -> Option<()> {
        let (last, _, _) = log_position(pack, kind);
        self.last_segments.insert(last);
        let written = previous.written(pack, kind)?;
        self.ways.insert(last, written);
        let (mut segment, mut offset) = previous.position(kind)?;
        let mut seen = FxHashSet::default();
        while segment != last {
            // A way has no segment twice.
            if !seen.insert(segment) {
                return None;
            }
            let end = geometry.main + segment * BLOCKS_PER_SEGMENT + (BLOCKS_PER_SEGMENT - 1);
            let block = read_blocks(device, end, 1).ok()?;
            let footer = RawNode::ref_from_bytes(&block).ok()?.footer;
            let owner = self.owner(device, geometry, end)?;
            if footer.cp_ver.get() != self.version || owner != footer.nid.get() {
                return None;
            }
            self.ways.insert(segment, offset..BLOCKS_PER_SEGMENT);
            let next = footer.next_blkaddr.get();
            segment = geometry.in_main(next).then(|| (next - geometry.main) >> SEGMENT_BITS)?;
            offset = 0;
        }
        Some(())
    }

    /// The node id that the summary of a segment has for a block; `None` if it cannot be read.
    fn owner(&mut self, device: &dyn BlockDevice, geometry: &Geometry, address: u32) -> Option<u32> {
        let segment = (address - geometry.main) >> SEGMENT_BITS;
        if self.summaries.len() >= SUMMARIES_MAX && !self.summaries.contains_key(&segment) {
            self.summaries.clear();
        }
        let summary = self.summaries.entry(segment).or_insert_with(|| {
            let block = read_blocks(device, geometry.summary_block(segment), 1).ok()?;
            RawSummaryBlock::ref_from_bytes(&block).ok().map(|summary| Box::new(*summary))
        });
        let at = ((address - geometry.main) % BLOCKS_PER_SEGMENT) as usize;
        summary.as_ref().map(|summary| summary.entries[at].nid.get())
    }

    /// Whether the node at `address` was written between the two checkpoints.
    pub(super) fn has(&mut self, device: &dyn BlockDevice, geometry: &Geometry, seen: &Seen, address: u32) -> Written {
        if seen.version != self.version || !geometry.in_main(address) {
            return Written::No;
        }
        let (segment, at) = ((address - geometry.main) >> SEGMENT_BITS, (address - geometry.main) % BLOCKS_PER_SEGMENT);
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

    /// Where the older checkpoint has a node, if its journal says so.
    pub(super) fn before_it(&self, nid: u32) -> Option<u32> {
        self.before.as_ref()?.get(&nid).copied()
    }

    /// Whether the older checkpoint's journal is there.
    pub(super) fn has_journal_before(&self) -> bool {
        self.before.is_some()
    }

    /// Whether the older checkpoint's journal is lost as well: it alone may have led to a node that was written before, `seen`, rather than to
    /// the one in the table. It is remembered.
    pub(super) fn may_be_of_lost_journal(&mut self, seen: &Seen) -> bool {
        let ahead = (seen.version as u32).wrapping_sub(self.previous).cast_signed();
        if self.before.is_some() || ahead >= 0 {
            return false;
        }
        let newest = self.others.entry(seen.nid).or_insert(ahead);
        *newest = ahead.max(*newest);
        true
    }

    /// Whether a newer version of a node than this one may have been in the older checkpoint's journal, which is lost.
    pub(super) fn has_newer_before(&self, nid: u32, version: u32) -> bool {
        let ahead = version.wrapping_sub(self.previous).cast_signed();
        self.others.get(&nid).is_some_and(|newest| *newest > ahead)
    }
}

const _: () = assert!(size_of::<RawSummaryBlock>() == BLOCK_SIZE);
