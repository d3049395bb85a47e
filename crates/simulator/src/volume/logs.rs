//! Which log each block goes to.

use basalt_segments::{BlockTraits, Placement, SegmentKind};

/// What the blocks of the simulated volume are to a placement: data of one file, the number of a block its place in that.
pub(super) struct DataLogs {
    placement: Box<dyn Placement>,
    /// The logs for what users write and for what cleaning copies, where the placement looks at nothing else: nobody has to ask then.
    fixed: Option<[SegmentKind; 2]>,
}

impl DataLogs {
    pub(super) fn new(placement: Box<dyn Placement>) -> DataLogs {
        let is_fixed = placement.is_by_type_alone();
        let fixed = is_fixed.then(|| [false, true].map(|cold| placement.log(&traits(0, cold))));
        DataLogs { placement, fixed }
    }

    /// The log for a block that a user writes.
    #[inline]
    pub(super) fn for_user(&self, block: u32) -> SegmentKind {
        self.fixed.map_or_else(|| self.placement.log(&traits(block, false)), |[user, _]| user)
    }

    /// The log for a block that cleaning copies.
    #[inline]
    pub(super) fn for_copy(&self, block: u32) -> SegmentKind {
        self.fixed.map_or_else(|| self.placement.log(&traits(block, true)), |[_, copy]| copy)
    }

    /// Whether all that cleaning copies goes to one log. Where it does not, the placement is asked once for each block.
    pub(super) fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }
}

fn traits(block: u32, cold: bool) -> BlockTraits {
    BlockTraits { index: block, cold, ..BlockTraits::default() }
}
