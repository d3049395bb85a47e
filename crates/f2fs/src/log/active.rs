//! The state of the logs: the segment that each fills, and the owners of what it holds.

use basalt_segments::Segment;
use std::collections::BTreeMap;

use zerocopy::little_endian::{U16, U32};

use crate::layout::Nid;
use crate::layout::summary::{RawSummary, RawSummaryBlock};

/// One of the six logs: a segment being filled from front to back.
pub struct ActiveLog {
    /// Its segment.
    pub segment: Segment,
    /// The next block it writes within the segment; the segment's size when it is full and no other was free.
    pub offset: u32,
    /// Owners of the blocks written so far.
    pub summary: Box<RawSummaryBlock>,
    /// The SSA has the summary as it is here.
    pub is_summary_written: bool,
    /// The segment is not the log's any more, and `offset` its size: recovery found it in other use. The next block opens another.
    pub left: bool,
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
