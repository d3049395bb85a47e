//! Which log each block goes to.

use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, Reason, Segment, SegmentKind};

/// What the blocks of the simulated volume are to a placement: data of one file, the number of a block its place in that.
pub(super) struct DataLogs {
    placement: Box<dyn Placement>,
    /// The logs for what users write and for what cleaning copies, where the placement looks at nothing else: nobody has to ask then,
    /// or tell it anything.
    fixed: Option<[LogId; 2]>,
    /// What each log of the volume writes.
    kinds: Vec<SegmentKind>,
}

impl DataLogs {
    pub(super) fn new(placement: Box<dyn Placement>) -> DataLogs {
        let is_fixed = placement.is_by_type_alone();
        let fixed = is_fixed.then(|| [false, true].map(|copied| placement.log(&traits(0, copied))));
        let kinds = SegmentKind::ALL.iter().chain(placement.more_logs()).copied().collect();
        DataLogs { placement, fixed, kinds }
    }

    /// Logs of the volume.
    pub(super) fn count(&self) -> usize {
        self.kinds.len()
    }

    /// The kind of segments that a log writes.
    pub(super) fn kind(&self, log: LogId) -> SegmentKind {
        self.kinds[log.index()]
    }

    /// The log for a block that a user writes.
    #[inline]
    pub(super) fn for_user(&self, block: u32) -> LogId {
        self.fixed.map_or_else(|| self.placement.log(&traits(block, false)), |[user, _]| user)
    }

    /// The log for a block that cleaning copies.
    #[inline]
    pub(super) fn for_copy(&self, block: u32) -> LogId {
        self.fixed.map_or_else(|| self.placement.log(&traits(block, true)), |[_, copy]| copy)
    }

    /// Whether all that cleaning copies goes to one log. Where it does not, the placement is asked once for each block.
    pub(super) fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// A block got its place.
    #[inline]
    pub(super) fn note_written(&self, block: u32, copied: bool, place: MainBlock) {
        if self.fixed.is_none() {
            self.placement.note_written(&traits(block, copied), place);
        }
    }

    /// What was at a place is gone.
    #[inline]
    pub(super) fn note_dead(&self, place: MainBlock) {
        if self.fixed.is_none() {
            self.placement.note_dead(place);
        }
    }

    /// A log has filled its segment.
    pub(super) fn note_sealed(&self, log: LogId, segment: Segment) {
        self.placement.note_sealed(log, segment);
    }

    /// Segments are free again.
    pub(super) fn note_free(&self, segments: &[Segment]) {
        segments.iter().for_each(|&segment| self.placement.note_free(segment));
    }
}

fn traits(block: u32, copied: bool) -> BlockTraits {
    let reason = if copied { Reason::Cleaning } else { Reason::Writeback };
    BlockTraits { index: block, cold: copied, reason, ..BlockTraits::default() }
}
