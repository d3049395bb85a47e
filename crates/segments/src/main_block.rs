//! The index of a block within the main area.

use std::fmt;
use std::ops::Add;

use crate::{BLOCKS_PER_SEGMENT, Segment};

/// Which block of the main area, counted from its start. Not an address: what lies in front of the main area is the engine's to know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MainBlock(u32);

impl MainBlock {
    /// Block `index` of the main area.
    #[must_use]
    pub const fn new(index: u32) -> Self {
        MainBlock(index)
    }

    /// Block `offset` of a segment, whose number is the caller's to check: it is below [`MAX_SEGMENTS`](crate::MAX_SEGMENTS).
    #[must_use]
    pub const fn in_segment(segment: Segment, offset: u32) -> Self {
        MainBlock(segment.get() * BLOCKS_PER_SEGMENT + offset)
    }

    /// Its index.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The segment that it lies in.
    #[must_use]
    pub const fn segment(self) -> Segment {
        Segment::new(self.0 / BLOCKS_PER_SEGMENT)
    }

    /// How many blocks of its segment lie in front of it.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.0 % BLOCKS_PER_SEGMENT
    }
}

/// The block so many blocks further on.
impl Add<u32> for MainBlock {
    type Output = Self;

    fn add(self, blocks: u32) -> Self {
        MainBlock(self.0 + blocks)
    }
}

impl fmt::Display for MainBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for MainBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
