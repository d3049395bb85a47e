//! The kinds of segments: data or node, each hot, warm or cold.

/// What a segment holds, as the SIT records it. The discriminants are F2FS's values on disk.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentKind {
    /// Data that changes often: directories, files marked hot.
    HotData = 0,
    /// Data of ordinary files.
    WarmData = 1,
    /// Data that hardly changes: moved by cleaning, or of files marked cold.
    ColdData = 2,
    /// Direct nodes of directories.
    HotNode = 3,
    /// Direct nodes of other files.
    WarmNode = 4,
    /// Indirect nodes.
    ColdNode = 5,
}

impl SegmentKind {
    /// Every kind, in the order of their values on disk.
    pub const ALL: [SegmentKind; 6] = [
        SegmentKind::HotData,
        SegmentKind::WarmData,
        SegmentKind::ColdData,
        SegmentKind::HotNode,
        SegmentKind::WarmNode,
        SegmentKind::ColdNode,
    ];

    /// The kind with this value on disk; `None` for a value F2FS does not know.
    #[must_use]
    pub fn from_u8(value: u8) -> Option<SegmentKind> {
        Self::ALL.get(usize::from(value)).copied()
    }

    /// The value on disk, as an index into arrays of one element per kind.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether segments of this kind hold nodes (otherwise data).
    #[must_use]
    pub const fn is_node(self) -> bool {
        self.index() >= SegmentKind::HotNode.index()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_on_disk_round_trip() {
        for (value, kind) in (0u8..).zip(SegmentKind::ALL) {
            assert_eq!(SegmentKind::from_u8(value), Some(kind));
            assert_eq!(kind.index(), usize::from(value));
            assert_eq!(kind.is_node(), value >= 3, "{kind:?}");
        }
        assert_eq!(SegmentKind::from_u8(6), None);
        assert_eq!(SegmentKind::from_u8(255), None);
    }
}
