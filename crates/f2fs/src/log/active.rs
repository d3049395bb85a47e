//! The state of the logs: the segment that each fills, and the owners of what it holds.

use basalt_segments::{Segment, SlackPlaces};
use std::collections::BTreeMap;

use zerocopy::little_endian::{U16, U32};

use crate::layout::Nid;
use crate::layout::summary::{ENTRIES, RawSummary, RawSummaryBlock};
use crate::mutant::{self, Mutant};

/// One of the six logs: a segment being filled from front to back, all of it or its slack.
pub struct ActiveLog {
    /// Its segment.
    pub segment: Segment,
    /// The next block it writes within the segment; the segment's size when it is full and no other was free.
    pub offset: u32,
    /// The places that it fills, if these are the slack of a segment in use.
    pub slack: Option<SlackPlaces>,
    /// Owners of the blocks written so far, and of those that the segment held before.
    pub summary: Box<RawSummaryBlock>,
    /// The SSA has the summary as it is here.
    pub is_summary_written: bool,
    /// Opening found it in slack. It writes nothing there and goes on elsewhere, but as long as it has nothing to write, it may stay: where
    /// hardly a segment is free, each log cannot have one.
    pub rests: bool,
    /// Opening found it within a flash page of several blocks. What an interrupted session wrote may lie in the rest of the page, and a device that is
    /// written to in front of that may lose what the page held before: the next block goes elsewhere.
    pub within_page: bool,
    /// The segment is not the log's any more, and `offset` its size: recovery found it in other use. The next block opens another.
    pub left: bool,
}

impl ActiveLog {
    /// A block was written at `offset`: the next place.
    pub fn advance(&mut self) {
        self.offset = self.slack.as_ref().map_or(self.offset + 1, |places| places.next_from(self.offset + 1));
    }

    /// Owners in front of the summary that count: of a log that fills slack, all.
    pub fn owners(&self) -> usize {
        if self.slack.is_some() && !mutant::active(Mutant::SlackOwnersCutShort) {
            ENTRIES
        } else {
            ENTRIES.min(self.offset as usize)
        }
    }
}

/// The owner of a data block: the node that points to it, that node's version, and the index of the pointer.
pub fn data_owner(nid: Nid, version: u8, index_in_node: u32) -> RawSummary {
    RawSummary { nid: U32::new(nid.get()), version, ofs_in_node: U16::new(index_in_node as u16) }
}

/// The owner of a node block: itself.
pub fn node_owner(nid: Nid) -> RawSummary {
    RawSummary { nid: U32::new(nid.get()), version: 0, ofs_in_node: U16::new(0) }
}

/// Owners of blocks that recovery makes live, for the segment summaries.
#[derive(Default)]
pub struct Owners {
    pub(crate) changed: BTreeMap<Segment, Box<RawSummaryBlock>>,
}

impl Owners {
    /// A segment's summary is this one, whatever is on the volume.
    pub(crate) fn keep(&mut self, segment: Segment, summary: Box<RawSummaryBlock>) {
        self.changed.insert(segment, summary);
    }
}
