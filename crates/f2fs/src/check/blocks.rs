//! Which block belongs to whom: every block of the main area has at most one owner, and its segment's summary names it.

use basalt_segments::Segment;
use std::collections::BTreeMap;

use basalt_device::BlockDevice;
use rustc_hash::{FxHashMap, FxHashSet};
use zerocopy::FromBytes;

use super::fault::{Findings, Place};
use super::kind::FaultKind;
use crate::blocks::read_blocks;
use crate::checkpoint::load::Loaded;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::summary::{RawSummary, RawSummaryBlock, TYPE_DATA, TYPE_NODE};
use crate::layout::superblock::Features;
use crate::layout::{Address, BLOCK_SIZE, Nid};

/// Summary blocks read with one request.
const CHUNK: u32 = 32;
/// Chunks kept in memory: 32 MiB.
const CHUNKS: usize = 256;
/// Most wrong summary entries that are kept for a repair: 48 MiB.
const WRONG_MAX: usize = 4 << 20;

/// Who owns a block: a node itself, or a data block that a node points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The node with this id.
    Node(Nid),
    /// The data block that address `slot` of node `nid` points to; `version` is that of the node's NAT entry.
    Data { nid: Nid, slot: u16, version: u8 },
}

impl Owner {
    /// The summary entry that names this owner.
    pub(crate) fn summary(self) -> RawSummary {
        let mut entry = RawSummary::default();
        match self {
            Owner::Node(nid) => entry.nid.set(nid.get()),
            Owner::Data { nid, slot, version } => {
                entry.nid.set(nid.get());
                entry.ofs_in_node.set(slot);
                entry.version = version;
            }
        }
        entry
    }
}

/// The blocks that have an owner, one bit each, and which classes each segment holds.
pub(crate) struct BlockMap {
    segments: Vec<Option<Box<SegmentBlocks>>>,
}

/// What was found in one segment.
pub(crate) struct SegmentBlocks {
    /// Owned blocks, most significant bit first as in the SIT.
    pub(crate) map: [u8; 64],
    /// Owned data blocks.
    pub(crate) data: u16,
    /// Owned node blocks.
    pub(crate) nodes: u16,
}

impl SegmentBlocks {
    const EMPTY: SegmentBlocks = SegmentBlocks { map: [0; 64], data: 0, nodes: 0 };
}

impl BlockMap {
    pub(super) fn new(segments: u32) -> BlockMap {
        BlockMap { segments: (0..segments).map(|_| None).collect() }
    }

    /// Marks a block of a segment; false if it was marked already.
    fn mark(&mut self, segment: Segment, block: u32, is_node: bool) -> bool {
        let found = self.segments[segment.index()].get_or_insert_with(|| Box::new(SegmentBlocks::EMPTY));
        if crate::layout::bit_msb(&found.map, block as usize) {
            return false;
        }
        crate::layout::set_bit_msb(&mut found.map, block as usize, true);
        if is_node {
            found.nodes += 1;
        } else {
            found.data += 1;
        }
        true
    }

    /// What was found in a segment; `None` if nothing was.
    pub(crate) fn found_in(&self, segment: Segment) -> Option<&SegmentBlocks> {
        self.segments.get(segment.index())?.as_deref()
    }
}

/// One wrong summary entry, and how many more there are in its segment.
struct SummaryFault {
    block: u32,
    found: String,
    expected: String,
    count: u32,
}

/// The blocks and their summaries.
pub(crate) struct Ownership {
    pub(crate) map: BlockMap,
    /// The summaries of the active logs' segments, which are in the checkpoint.
    logs: FxHashMap<Segment, Box<RawSummaryBlock>>,
    cache: FxHashMap<u32, (u64, Vec<u8>)>,
    clock: u64,
    owner_faults: BTreeMap<Segment, SummaryFault>,
    /// What each segment's summary says it holds, and what it does hold, where these differ.
    pub(crate) type_faults: BTreeMap<Segment, (u8, u8)>,
    /// For a repair: the right summary entries of blocks whose entry is wrong; the first of them, if there are very many.
    pub(crate) wrong: Option<Vec<(Address, RawSummary)>>,
    /// For a repair: blocks of which all owners are wanted, and these.
    pub(crate) watched: FxHashSet<Address>,
    pub(crate) claimers: Vec<(Address, Owner)>,
}

impl Ownership {
    pub(super) fn new(geometry: &Geometry, loaded: &Loaded) -> Ownership {
        Ownership {
            map: BlockMap::new(geometry.main_segments),
            logs: loaded.logs.iter().map(|log| (log.segment, log.summary.clone())).collect(),
            cache: FxHashMap::default(),
            clock: 0,
            owner_faults: BTreeMap::new(),
            type_faults: BTreeMap::new(),
            wrong: None,
            watched: FxHashSet::default(),
            claimers: Vec::new(),
        }
    }

    /// Records that `owner` owns the block at `address`, which must be in the main area. False, and a fault, if somebody else
    /// does already.
    pub(super) fn claim(
        &mut self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        findings: &mut Findings,
        address: Address,
        owner: Owner,
    ) -> Result<bool> {
        if self.watched.contains(&address) {
            self.claimers.push((address, owner));
        }
        let (segment, block) = (geometry.segment_of(address), geometry.offset_in_segment(address));
        if !self.map.mark(segment, block, matches!(owner, Owner::Node(_))) {
            let place = match owner {
                Owner::Node(nid) => Place::Node(nid),
                Owner::Data { nid, slot, .. } => Place::Slot { nid, slot: slot.into() },
            };
            let found = format_args!("block {address}, which has an owner already");
            findings.add(FaultKind::BlockDuplicate, place, found, "a block of its own");
            return Ok(false);
        }
        if !geometry.features.contains(Features::READ_ONLY) {
            self.check_summary(device, geometry, segment, block, owner)?;
        }
        Ok(true)
    }

    fn check_summary(
        &mut self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        segment: Segment,
        block: u32,
        owner: Owner,
    ) -> Result<()> {
        let (entry, class) = self.entry(device, geometry, segment, block)?;
        let expected_class = if matches!(owner, Owner::Node(_)) { TYPE_NODE } else { TYPE_DATA };
        if let Some(class) = class
            && class != expected_class
        {
            self.type_faults.entry(segment).or_insert((class, expected_class));
        }
        let (nid, version, slot) = (entry.nid(), entry.version, entry.ofs_in_node.get());
        let right = match owner {
            // Of a node's entry, only the id counts.
            Owner::Node(owner) => nid == owner,
            Owner::Data { nid: owner, slot: at, version: of } => (nid, version, slot) == (owner, of, at),
        };
        if !right {
            if let Some(wrong) = self.wrong.as_mut().filter(|wrong| wrong.len() < WRONG_MAX) {
                let address = geometry.in_segment(segment, block);
                wrong.push((address, owner.summary()));
            }
            let fault = self.owner_faults.entry(segment).or_insert_with(|| SummaryFault {
                block,
                found: format!("node {nid} version {version}, address {slot}"),
                expected: match owner {
                    Owner::Node(owner) => format!("node {owner}"),
                    Owner::Data { nid, slot, version } => format!("node {nid} version {version}, address {slot}"),
                },
                count: 0,
            });
            fault.count += 1;
        }
        Ok(())
    }

    /// The summary entry of a block, and its segment's type as the summary has it (not in the checkpoint's).
    fn entry(
        &mut self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        segment: Segment,
        block: u32,
    ) -> Result<(RawSummary, Option<u8>)> {
        if let Some(summary) = self.logs.get(&segment) {
            return Ok((summary.entries[block as usize], None));
        }
        let chunk = segment.get() / CHUNK;
        self.clock += 1;
        if !self.cache.contains_key(&chunk) {
            self.evict();
            let count = CHUNK.min(geometry.main_segments - chunk * CHUNK);
            let bytes = read_blocks(device, geometry.summary_block(Segment::new(chunk * CHUNK)), count as usize)?;
            self.cache.insert(chunk, (self.clock, bytes));
        }
        let Some((used, bytes)) = self.cache.get_mut(&chunk) else { return Ok((RawSummary::default(), None)) };
        *used = self.clock;
        let at = (segment.get() % CHUNK) as usize * BLOCK_SIZE;
        let summary = &bytes[at..at + BLOCK_SIZE];
        let at = block as usize * size_of::<RawSummary>();
        // 512 entries of 7 bytes lie in front of the footer.
        let entry = RawSummary::read_from_bytes(&summary[at..at + size_of::<RawSummary>()]).unwrap_or_default();
        Ok((entry, Some(summary[core::mem::offset_of!(RawSummaryBlock, entry_type)])))
    }

    /// Makes room for a chunk: the half that was not used for longest goes.
    fn evict(&mut self) {
        if self.cache.len() < CHUNKS {
            return;
        }
        let mut uses: Vec<u64> = self.cache.values().map(|(used, _)| *used).collect();
        uses.sort_unstable();
        let middle = uses[uses.len() / 2];
        self.cache.retain(|_, (used, _)| *used > middle);
    }

    /// Reports the summaries that were wrong, one fault a segment.
    pub(super) fn report(&self, findings: &mut Findings) {
        for (&segment, &(found, expected)) in &self.type_faults {
            findings.add(FaultKind::SummaryType, Place::Segment(segment), format_args!("type {found}"), expected);
        }
        for (&segment, fault) in &self.owner_faults {
            let others = if fault.count > 1 { format!(" (and {} more)", fault.count - 1) } else { String::new() };
            findings.add(
                FaultKind::SummaryOwner,
                Place::Segment(segment),
                format_args!("block {}: {}{others}", fault.block, fault.found),
                &fault.expected,
            );
        }
    }
}
