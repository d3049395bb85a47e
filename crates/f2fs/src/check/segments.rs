//! The segment information table against what is in use, segment by segment, and the checkpoint's counts.

use basalt_segments::{Segment, SegmentKind};
use rustc_hash::FxHashMap;
use zerocopy::FromBytes;

use super::checker::Checker;
use super::fault::Place;
use super::kind::FaultKind;
use super::report::Stage;
use crate::blocks::read_blocks;
use crate::checkpoint::fields::log_position;
use crate::error::Result;
use crate::layout::sit::RawSitEntry;
use crate::layout::summary::{TYPE_DATA, TYPE_NODE};
use crate::layout::superblock::Features;
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, bit_msb};

/// SIT blocks read with one request.
const REQUEST_BLOCKS: u32 = 256;

impl Checker<'_> {
    /// Checks every segment. All nodes must have been read.
    pub(super) fn check_segments(&mut self) -> Result<()> {
        let journal: FxHashMap<Segment, RawSitEntry> =
            self.loaded.sit_journal.iter().map(|entry| (Segment::new(entry.segno.get()), entry.entry)).collect();
        let used = self.geometry.sit_blocks_used();
        let mut free = 0;
        for first in (0..used).step_by(REQUEST_BLOCKS as usize) {
            self.step_always(Stage::Segments, first.into(), used.into());
            for index in first..used.min(first + REQUEST_BLOCKS) {
                let block = self.sit_block(first, index)?;
                let segments = self.geometry.segments_of_sit_block(index);
                for (segment, bytes) in segments.zip(block.chunks_exact(size_of::<RawSitEntry>())) {
                    // Chunks have the size of the structure.
                    let Ok(read) = RawSitEntry::read_from_bytes(bytes) else { continue };
                    let entry = match journal.get(&segment) {
                        Some(entry) => {
                            // It does not count, but Linux looks at it before it looks into the journal.
                            self.check_count(segment, &read, " in the table, in front of the journal");
                            *entry
                        }
                        None => read,
                    };
                    free += u32::from(self.check_segment(segment, &entry)?);
                }
            }
        }
        self.sit_buffers = Default::default();
        self.ownership.report(&mut self.findings);
        self.check_counts(free);
        Ok(())
    }

    /// Block `index` of the SIT in its current copy; reads `first` and the blocks behind it in one request for each copy.
    fn sit_block(&mut self, first: u32, index: u32) -> Result<Vec<u8>> {
        // The SIT has room for as many blocks as are used: the geometry says so.
        let count = REQUEST_BLOCKS.min(self.geometry.sit_blocks - first) as usize;
        let second = bit_msb(&self.loaded.sit_bitmap, index as usize);
        let buffer = &mut self.sit_buffers[usize::from(second)];
        if buffer.0 != Some(first) {
            *buffer = (Some(first), read_blocks(self.device, self.geometry.sit_block(first, second), count)?);
        }
        let at = (index - first) as usize * BLOCK_SIZE;
        Ok(buffer.1[at..at + BLOCK_SIZE].to_vec())
    }

    /// Checks one segment; whether it is free (in use by nobody, and no log).
    fn check_segment(&mut self, segment: Segment, entry: &RawSitEntry) -> Result<bool> {
        let place = Place::Segment(segment);
        self.check_count(segment, entry, "");
        let kind = SegmentKind::from_u8(entry.kind());
        if kind.is_none() {
            self.findings.add(FaultKind::SitType, place, format_args!("type {}", entry.kind()), "0 to 5");
        }
        let log = self.check_log(segment, entry);
        let (map, data, nodes) = match self.ownership.map.found_in(segment) {
            Some(found) => (found.map, found.data, found.nodes),
            None => ([0; 64], 0, 0),
        };
        // A wrong type of a log's segment has been reported as that.
        if let (Some(kind), false) = (kind, log.is_wrong_type()) {
            let strangers = if kind.is_node() { data } else { nodes };
            if strangers > 0 {
                let found = format_args!("type {kind:?} with {data} data blocks and {nodes} nodes");
                self.findings.add(FaultKind::SitClass, place, found, "blocks of one class, and their type");
            }
        }
        let holds_nodes = kind.is_some_and(SegmentKind::is_node);
        self.compare_maps(segment, holds_nodes, &entry.valid_map, &map)?;
        Ok(data + nodes == 0 && log == LogState::None)
    }

    /// Checks that as many blocks are marked live as are counted.
    fn check_count(&mut self, segment: Segment, entry: &RawSitEntry, which: &str) {
        let marked: u32 = entry.valid_map.iter().map(|byte| byte.count_ones()).sum();
        if u32::from(entry.live()) != marked {
            let found = format_args!("{} live blocks{which}", entry.live());
            self.findings.add(FaultKind::SitCount, Place::Segment(segment), found, format_args!("{marked}, as marked"));
        }
    }

    fn compare_maps(&mut self, segment: Segment, holds_nodes: bool, marked: &[u8; 64], owned: &[u8; 64]) -> Result<()> {
        if marked == owned {
            return Ok(());
        }
        let differing = |wanted: &dyn Fn(usize) -> bool| -> Vec<usize> {
            (0..BLOCKS_PER_SEGMENT as usize).filter(|&block| wanted(block)).collect()
        };
        let unowned = differing(&|block| bit_msb(marked, block) && !bit_msb(owned, block));
        let unowned = if holds_nodes { self.report_strays(segment, unowned)? } else { unowned };
        let missing = differing(&|block| !bit_msb(marked, block) && bit_msb(owned, block));
        for (kind, blocks, expected) in
            [(FaultKind::SitUnowned, unowned, "an owner, or no mark"), (FaultKind::SitMissing, missing, "marked live")]
        {
            if !blocks.is_empty() {
                self.findings.add(kind, Place::Segment(segment), describe_blocks(&blocks), expected);
            }
        }
        Ok(())
    }

    /// Checks the log that writes to this segment, if one does.
    fn check_log(&mut self, segment: Segment, entry: &RawSitEntry) -> LogState {
        let mut state = LogState::None;
        for kind in SegmentKind::ALL {
            let (at, next, in_slack) = log_position(&self.loaded.pack, kind);
            if at != segment {
                continue;
            }
            state = LogState::Right;
            if self.geometry.features.contains(Features::READ_ONLY) {
                // Nothing is ever written: mkfs points the logs it does not need to segment 0.
                continue;
            }
            if entry.kind() != kind.index() as u8 {
                state = LogState::WrongType;
                let found = format_args!("segment {segment} of type {}", entry.kind());
                self.findings.add(FaultKind::LogType, Place::Log(kind.index()), found, kind.index());
            }
            let class = if kind.is_node() { TYPE_NODE } else { TYPE_DATA };
            let summary = self.loaded.logs[kind.index()].summary.entry_type;
            if summary != class {
                let found = format_args!("type {summary} in the checkpoint");
                self.findings.add(FaultKind::SummaryType, Place::Log(kind.index()), found, class);
            }
            let last = if in_slack { next + 1 } else { BLOCKS_PER_SEGMENT };
            let in_use = (next..last).find(|&block| bit_msb(&entry.valid_map, block as usize));
            if let Some(block) = in_use {
                let found = format_args!("next block {next} of segment {segment}, block {block} is in use");
                self.findings.add(FaultKind::LogNextBlock, Place::Log(kind.index()), found, "free room ahead");
            }
        }
        state
    }

    /// The checkpoint's counts against what was counted.
    fn check_counts(&mut self, free: u32) {
        let raw = &self.loaded.pack.raw;
        let place = Place::Checkpoint(self.loaded.pack.index);
        let nodes: u64 = self.counts.blocks - self.counts.data_blocks - self.counts.reserved_blocks;
        for (kind, found, expected) in [
            (FaultKind::ValidBlockCount, raw.valid_block_count.get(), self.counts.blocks),
            (FaultKind::ValidNodeCount, raw.valid_node_count.get().into(), nodes),
            (FaultKind::ValidInodeCount, raw.valid_inode_count.get().into(), self.counts.inodes()),
            (FaultKind::FreeSegmentCount, raw.free_segment_count.get().into(), free.into()),
        ] {
            if found != expected {
                self.findings.add(kind, place, found, expected);
            }
        }
    }
}

/// What an active log has to do with a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogState {
    None,
    Right,
    WrongType,
}

impl LogState {
    fn is_wrong_type(self) -> bool {
        self == LogState::WrongType
    }
}

/// Blocks of a segment in words: the first few, and how many.
fn describe_blocks(blocks: &[usize]) -> String {
    let first: Vec<String> = blocks.iter().take(8).map(ToString::to_string).collect();
    let more = if blocks.len() > first.len() { ", …" } else { "" };
    format!("{} blocks: {}{more}", blocks.len(), first.join(", "))
}
