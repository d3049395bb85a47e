//! What a placement policy knows of a volume, to be kept with the volume until it is opened again.

use crate::Segment;

/// What a policy knows: hints, which may be lost, and may be from an earlier time than the volume is. What the bytes mean is the policy's
/// affair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// What belongs to no segment.
    pub general: Vec<u8>,
    /// What is known of the blocks of segments.
    pub segments: Vec<SegmentHints>,
}

/// What a policy knows of the blocks in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHints {
    /// The segment.
    pub segment: Segment,
    /// No more than [`BYTES_MAX`](Self::BYTES_MAX).
    pub bytes: Vec<u8>,
}

impl SegmentHints {
    /// The most bytes of one segment.
    pub const BYTES_MAX: usize = 4096;
    /// Bytes that each segment takes besides.
    pub const OVERHEAD: usize = 80;
}

/// What was known of the blocks in a segment when hints were taken.
#[derive(Clone, Copy, Debug)]
pub struct Recalled<'a> {
    /// The segment. As far as that can be told, nothing was written to it since, and it was not freed.
    pub segment: Segment,
    /// As [`SegmentHints::bytes`].
    pub bytes: &'a [u8],
    /// Which of its blocks are live now: a bit for each, the first one is the highest of the first byte, as in the SIT.
    pub live: &'a [u8; 64],
}

impl Recalled<'_> {
    /// Whether the block at this offset is live.
    #[must_use]
    pub fn is_live(&self, offset: u32) -> bool {
        self.live.get(offset as usize / 8).is_some_and(|byte| byte << (offset % 8) & 0x80 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_block_is_the_highest_bit() {
        let mut live = [0; 64];
        (live[0], live[1], live[63]) = (0xA0, 0x01, 0x01);
        let recalled = Recalled { segment: Segment::new(3), bytes: &[], live: &live };
        assert_eq!((0..600).filter(|at| recalled.is_live(*at)).collect::<Vec<_>>(), [0, 2, 15, 511]);
    }
}
