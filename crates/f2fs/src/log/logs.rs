//! The logs of a volume.

use std::ops::{Index, IndexMut};

use basalt_segments::{LogId, SegmentKind};

use super::active::ActiveLog;
use crate::layout::BLOCKS_PER_SEGMENT;
use crate::layout::summary::{RawSummaryBlock, TYPE_DATA, TYPE_NODE};

/// All logs: F2FS's six, which the checkpoint records, and those that the placement has beside them.
pub struct Logs {
    kinds: Vec<SegmentKind>,
    logs: Vec<ActiveLog>,
}

/// Data logs are the first three of those that are recorded, logs of nodes the other three.
const DATA_LOGS: usize = 3;

impl Logs {
    /// The recorded ones, and others of these kinds that have no segment yet.
    pub(crate) fn new(recorded: [ActiveLog; LogId::RECORDED], more: &[SegmentKind]) -> Logs {
        let mut logs = Vec::from(recorded);
        let without_segment = |kind: &SegmentKind| ActiveLog {
            segment: logs[kind.index()].segment,
            offset: BLOCKS_PER_SEGMENT,
            slack: None,
            summary: empty_summary(*kind),
            is_summary_written: false,
            rests: false,
            within_page: false,
            left: true,
        };
        let others: Vec<ActiveLog> = more.iter().map(without_segment).collect();
        logs.extend(others);
        Logs { kinds: SegmentKind::ALL.iter().chain(more).copied().collect(), logs }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.logs.len()
    }

    /// The kind of segments that a log writes; `None` if there is no such log.
    pub(crate) fn kind(&self, log: LogId) -> Option<SegmentKind> {
        self.kinds.get(log.index()).copied()
    }

    /// All of them.
    pub(crate) fn ids(&self) -> impl Iterator<Item = LogId> + use<> {
        LogId::all(self.logs.len())
    }

    /// Those that the checkpoint does not record.
    pub(crate) fn more(&self) -> impl Iterator<Item = LogId> + use<> {
        self.ids().skip(LogId::RECORDED)
    }

    /// Those that the checkpoint records, in the order of their kinds.
    pub(crate) fn recorded(&self) -> &[ActiveLog] {
        &self.logs[..LogId::RECORDED]
    }

    /// Of those that are recorded, the logs of data.
    pub(crate) fn of_data(&self) -> &[ActiveLog] {
        &self.logs[..DATA_LOGS]
    }

    /// Of those that are recorded, the logs of nodes.
    pub(crate) fn of_nodes(&self) -> &[ActiveLog] {
        &self.logs[DATA_LOGS..LogId::RECORDED]
    }
}

impl Index<LogId> for Logs {
    type Output = ActiveLog;

    fn index(&self, log: LogId) -> &ActiveLog {
        &self.logs[log.index()]
    }
}

impl IndexMut<LogId> for Logs {
    fn index_mut(&mut self, log: LogId) -> &mut ActiveLog {
        &mut self.logs[log.index()]
    }
}

/// The summary of a segment of this kind that has no block yet.
pub(crate) fn empty_summary(kind: SegmentKind) -> Box<RawSummaryBlock> {
    RawSummaryBlock::empty(if kind.is_node() { TYPE_NODE } else { TYPE_DATA })
}
