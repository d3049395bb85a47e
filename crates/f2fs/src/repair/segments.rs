//! What follows from what is in use: segment information, summaries, logs and counts. Only right once every pointer is.

use basalt_segments::{Segment, SegmentKind};
use rustc_hash::FxHashSet;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::state::State;
use crate::check::{CheckReport, Survey};
use crate::error::Result;
use crate::layout::sit::RawSitEntry;
use crate::layout::summary::RawSummaryBlock;
use crate::layout::superblock::Features;
use crate::layout::{BLOCK_SIZE, Nid, bit_msb};
use zerocopy::FromBytes;

impl State {
    /// Derives everything anew.
    pub(super) fn derive(&mut self, survey: &Survey, report: &CheckReport) -> Result<()> {
        self.part_classes(survey)?;
        if !self.geometry.features.contains(Features::READ_ONLY) {
            for kind in SegmentKind::ALL {
                if self.log_conflicts(survey, kind) {
                    self.move_log(survey, kind)?;
                }
            }
            self.mend_summaries(survey)?;
        }
        let free = self.mend_sit(survey)?;
        let counts = &report.counts;
        let nodes = counts.blocks - counts.data_blocks - counts.reserved_blocks;
        let raw = &mut self.loaded.pack.raw;
        raw.valid_block_count = U64::new(counts.blocks);
        // As many nodes as node ids at most: they fit.
        raw.valid_node_count = U32::new(nodes as u32);
        raw.valid_inode_count = U32::new(counts.inodes() as u32);
        raw.free_segment_count = U32::new(free);
        Ok(())
    }

    /// Whether a log would write over something, or into a segment of another class.
    fn log_conflicts(&self, survey: &Survey, kind: SegmentKind) -> bool {
        let log = &self.loaded.logs[kind.index()];
        if !log.in_slack {
            return self.log_is_blocked(survey, kind) && log.offset < crate::layout::BLOCKS_PER_SEGMENT;
        }
        survey.ownership.map.found_in(log.segment).is_some_and(|found| {
            let strangers = if kind.is_node() { found.data } else { found.nodes };
            strangers > 0 || bit_msb(&found.map, log.offset as usize)
        })
    }

    /// Moves nodes out of segments that hold data as well: a segment has one class.
    fn part_classes(&mut self, survey: &Survey) -> Result<()> {
        let mut mixed = FxHashSet::default();
        for segment in self.geometry.segments() {
            if survey.ownership.map.found_in(segment).is_some_and(|found| found.data > 0 && found.nodes > 0) {
                mixed.insert(segment);
            }
        }
        if mixed.is_empty() {
            return Ok(());
        }
        let mut nodes: Vec<Nid> =
            survey.inodes.keys().map(|ino| ino.nid()).chain(survey.references.keys().copied()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for nid in nodes {
            let address = self.nat(nid)?.address();
            if self.geometry.in_main(address) && mixed.contains(&self.segment_of(address).0) {
                self.move_node(survey, nid)?;
            }
        }
        Ok(())
    }

    /// Copies a node to its log; false if there is no room.
    pub(super) fn move_node(&mut self, survey: &Survey, nid: Nid) -> Result<bool> {
        let Some(block) = self.node(nid)? else { return Ok(false) };
        let is_directory = survey.directories.contains_key(&nid.as_inode()) || self.made.contains(&nid.as_inode());
        let kind = if is_directory {
            SegmentKind::HotNode
        } else if self.is_inode(survey, nid) {
            SegmentKind::WarmNode
        } else {
            SegmentKind::ColdNode
        };
        let owner = crate::check::blocks::Owner::Node(nid).summary();
        let Some(address) = self.allocate(survey, kind, owner)? else { return Ok(false) };
        self.put(address, &block)?;
        self.edit_nat(nid, |entry| entry.block_addr.set(address.get()))?;
        Ok(true)
    }

    fn mend_summaries(&mut self, survey: &Survey) -> Result<()> {
        let mut wrong = survey.ownership.wrong.clone().unwrap_or_default();
        wrong.sort_unstable_by_key(|(address, _)| *address);
        // Segment after segment, each summary block is written once.
        for group in wrong.chunk_by(|a, b| self.segment_of(a.0).0 == self.segment_of(b.0).0).collect::<Vec<_>>() {
            let (segment, _) = self.segment_of(group[0].0);
            if self.loaded.logs.iter().any(|log| log.segment == segment) {
                for &(address, entry) in group {
                    self.set_summary(address, entry)?;
                }
                continue;
            }
            let place = self.geometry.summary_block(segment);
            let mut bytes = self.block(place)?;
            if let Ok(summary) = RawSummaryBlock::mut_from_bytes(&mut bytes) {
                for &(address, entry) in group {
                    summary.entries[self.segment_of(address).1] = entry;
                }
            }
            self.put(place, &bytes)?;
        }
        for (&segment, &(_, right)) in &survey.ownership.type_faults {
            let place = self.geometry.summary_block(segment);
            let mut bytes = self.block(place)?;
            if let Ok(summary) = RawSummaryBlock::mut_from_bytes(&mut bytes) {
                summary.entry_type = right;
            }
            self.put(place, &bytes)?;
        }
        Ok(())
    }

    /// Gives blocks that a log of data has written an owner that can be, if they have none: without, the journal beside them looks lost.
    /// Those that are in use get their own one later.
    pub(super) fn fill_owners(&mut self) {
        let (ids, root) = (Nid::FIRST_FREE..self.geometry.node_ids(), self.geometry.root_ino);
        for log in &mut self.loaded.logs[..3] {
            let written = log.summary.entries.iter_mut().take(log.offset as usize);
            written.filter(|entry| !ids.contains(&entry.nid())).for_each(|entry| entry.nid.set(root.get()));
        }
    }

    /// Writes the entries of all segments that differ; how many segments are free.
    fn mend_sit(&mut self, survey: &Survey) -> Result<u32> {
        let mut free = 0;
        for index in 0..self.geometry.sit_blocks_used() {
            let segments = self.geometry.segments_of_sit_block(index);
            let (address, _) = self.sit_place(segments.start());
            let before = self.block(address)?;
            let mut after = before.clone();
            for (segment, bytes) in segments.zip(after.chunks_exact_mut(size_of::<RawSitEntry>())) {
                let Ok(stored) = RawSitEntry::read_from_bytes(bytes) else { continue };
                let entry = self.right_entry(survey, segment, &stored);
                let log = self.loaded.logs.iter().any(|log| log.segment == segment);
                free += u32::from(!log && entry.live() == 0);
                bytes.copy_from_slice(entry.as_bytes());
            }
            debug_assert!(after.len() == BLOCK_SIZE);
            if before != after {
                self.put(address, &after)?;
            }
        }
        Ok(free)
    }

    /// A segment's entry: live is what has an owner; the type stays if it can be right.
    fn right_entry(&self, survey: &Survey, segment: Segment, stored: &RawSitEntry) -> RawSitEntry {
        let found = survey.ownership.map.found_in(segment);
        let (map, data, nodes) = found.map_or(([0; 64], 0, 0), |found| (found.map, found.data, found.nodes));
        let read_only = self.geometry.features.contains(Features::READ_ONLY);
        let log = SegmentKind::ALL.into_iter().find(|kind| self.loaded.logs[kind.index()].segment == segment);
        let kept = SegmentKind::from_u8(stored.kind());
        let kind = match log.filter(|_| !read_only) {
            Some(kind) => kind,
            None if nodes > 0 => kept.filter(|kind| kind.is_node()).unwrap_or(SegmentKind::WarmNode),
            None if data > 0 => kept.filter(|kind| !kind.is_node()).unwrap_or(SegmentKind::WarmData),
            None => kept.unwrap_or(SegmentKind::WarmData),
        };
        let live: u32 = map.iter().map(|byte| byte.count_ones()).sum();
        // Six kinds, 512 blocks.
        RawSitEntry::new(kind.index() as u8, live as u16, map, stored.mtime.get())
    }
}
