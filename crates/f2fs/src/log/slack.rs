//! Slack for the logs: dead blocks of segments that are in use, which are written again (slack space recycling).
//!
//! It is handed out in two steps. At a moment when nobody reads dead blocks, nor writes them, and no checkpoint is under way, segments are
//! [reserved](Volume::reserve_slack). A log that has filled its segment takes one later, at any moment. So no log waits for such a moment,
//! and what dies in a segment after it was reserved is not written before the next.

use basalt_segments::{BLOCKS_PER_SEGMENT, LogId, MainBlock, Quiet, Segment, SegmentKind, Slack, SlackPlaces};
use zerocopy::FromBytes;

use crate::error::{Error, Result};
use crate::layout::Nid;
use crate::layout::summary::{JOURNAL_SIZE, RawSummaryBlock, TYPE_DATA, TYPE_NODE};
use crate::mutant::{self, Mutant};
use crate::options::Reclaim;
use crate::volume::Volume;

/// Blocks of slack that a segment has at least: each costs a summary that is read and written.
const LEAST: u32 = BLOCKS_PER_SEGMENT / 16;

/// A segment in whose slack a log goes on.
pub(super) struct InSlack {
    pub segment: Segment,
    pub places: SlackPlaces,
    /// The owners of what the segment holds.
    pub summary: Box<RawSummaryBlock>,
}

impl Volume {
    /// Whether logs may fill slack at all.
    pub(crate) fn fills_slack(&self) -> bool {
        self.options.reclaim == Reclaim::Slack && self.is_writable()
    }

    /// Whether they should now: free segments run short.
    fn wants_slack(&self) -> bool {
        self.fills_slack() && self.cleaner.wants_slack(&self.table, &self.load())
    }

    /// The segments whose slack is to be reserved next, of data and of nodes: where it is wanted, and there is little.
    pub(crate) fn find_slack(&mut self) -> [Vec<Segment>; 2] {
        let written = *self.record.written();
        let missing = [false, true].map(|of_nodes| self.slack.missing(of_nodes, &written));
        if missing == [0, 0] || !self.wants_slack() {
            return [Vec::new(), Vec::new()];
        }
        let skip = |section| self.cleaner.avoids(section) || self.cleaner.empties(section);
        let find = |of_nodes| self.table.most_slack(of_nodes, LEAST, missing[usize::from(of_nodes)], &skip);
        let found = [false, true].map(find);
        for (of_nodes, found) in [false, true].into_iter().zip(&found) {
            let missing = missing[usize::from(of_nodes)];
            if missing > 0 {
                self.slack.note_search(of_nodes, found.len() == missing, &written);
            }
        }
        found
    }

    /// Reserves the slack of these segments, of data and of nodes, for the logs.
    pub(crate) fn reserve_slack(&mut self, found: [Vec<Segment>; 2], quiet: &Quiet) -> Result<()> {
        // What waits in a log's run would land on what is written to the same place by another.
        if !mutant::active(Mutant::PendingOverSlack) {
            self.writer.write_all(&*self.device)?;
        }
        self.slack.retain(|slack| self.table.is_promised(slack));
        for (of_nodes, segments) in [false, true].into_iter().zip(found) {
            self.forget_needed_in(&segments);
            // Since it was found, one may have been freed and taken for the other sort of blocks, or be about to be emptied.
            let is_left = |segment: &Segment| {
                self.table.kind(*segment).is_node() == of_nodes
                    && !self.cleaner.empties(self.table.section_of(*segment))
            };
            let segments: Vec<Segment> = segments.into_iter().filter(is_left).collect();
            let reserved: Vec<Slack> =
                segments.into_iter().filter_map(|segment| self.table.reserve_slack(segment, quiet)).collect();
            self.forget_unsealed_in(&reserved);
            self.slack.add(of_nodes, reserved);
        }
        Ok(())
    }

    /// Makes victims of all that is reserved, where cleaning finds no others. Whether there was something.
    pub(crate) fn return_slack(&mut self) -> bool {
        let all = self.slack.take_all();
        let was_reserved = all.iter().any(|slack| self.table.is_promised(slack));
        all.into_iter().for_each(|slack| self.table.return_slack(slack));
        was_reserved
    }

    /// No seal lists what lies in slack: it is dead, nobody misses it, and a seal would tell the wrong bytes of what is written there next.
    fn forget_unsealed_in(&mut self, reserved: &[Slack]) {
        if mutant::active(Mutant::SealListsSlack) {
            return;
        }
        let geometry = &self.geometry;
        self.checkpoint.since_mut().forget_unsealed(|address| {
            let block = geometry.main_block(address);
            reserved.iter().any(|slack| slack.segment() == block.segment() && slack.has_place(block.offset()))
        });
    }

    /// Takes what is dead in these segments for slack, needed or not, if this bug is planted.
    fn forget_needed_in(&mut self, segments: &[Segment]) {
        if mutant::active(Mutant::NeededIsSlack) {
            for segment in segments {
                let blocks = (0..BLOCKS_PER_SEGMENT).map(|offset| MainBlock::in_segment(*segment, offset));
                blocks.for_each(|block| self.table.forget_pre_invalid(block));
            }
        }
    }

    /// Slack for a log to go on in, if it should and there is some.
    pub(super) fn take_slack(&mut self, log: LogId, kind: SegmentKind) -> Result<Option<InSlack>> {
        // The chain is read by who knows nothing but where it begins, so it never leads through what is in use.
        if kind == SegmentKind::WarmNode || !log.is_recorded() || !self.wants_slack() {
            return Ok(None);
        }
        while let Some(slack) = self.slack.take(kind.is_node()) {
            // Its segment may hold something else by now.
            if !self.table.is_promised(&slack) {
                continue;
            }
            let segment = slack.segment();
            match self.read_owners(&slack, kind) {
                Ok(summary) => {
                    if let Some(places) = self.table.open_slack(slack, kind) {
                        return Ok(Some(InSlack { segment, places, summary }));
                    }
                }
                Err(error) if error.is_from_reading() => {
                    tracing::warn!(%segment, %error, "its slack is not written: whose blocks it holds is not known");
                    self.table.return_slack(slack);
                    self.cleaner.avoid(self.table.section_of(segment));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The owners of what the segment of this slack holds, from the SSA: they go to the checkpoint with those of the log.
    fn read_owners(&self, slack: &Slack, kind: SegmentKind) -> Result<Box<RawSummaryBlock>> {
        let segment = slack.segment();
        let block = self.read_block(self.geometry.summary_block(segment))?;
        let wrong = |found: String| Error::damaged("summary", format!("segment {segment}"), found);
        let read = RawSummaryBlock::ref_from_bytes(&block.0).map_err(|_| wrong("short".into()))?;
        let expected = if kind.is_node() { TYPE_NODE } else { TYPE_DATA };
        if read.entry_type != expected {
            return Err(wrong(format!("of type {}, expected {expected}", read.entry_type)));
        }
        let is_possible = |nid: Nid| nid != Nid::NONE && nid < self.geometry.node_ids();
        let mut in_use = (0..).zip(&read.entries).filter(|(offset, _)| !slack.has_place(*offset));
        if let Some((offset, owner)) = in_use.find(|(_, owner)| !is_possible(owner.nid())) {
            return Err(wrong(format!("block {offset} is in use, and its owner is node {}", owner.nid())));
        }
        let mut summary = RawSummaryBlock::empty(expected);
        if !mutant::active(Mutant::SlackOwnersForgotten) {
            *summary = RawSummaryBlock { journal: [0; JOURNAL_SIZE], ..*read };
        }
        Ok(summary)
    }
}
