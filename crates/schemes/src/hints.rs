//! What placements know, to be kept with the volume: which segments there is room for, and bytes.

pub mod bytes;
pub mod packed;

use basalt_segments::Segment;
use basalt_segments::placement::{Hints, SegmentHints};

/// Where there is too little room for everything, what belongs to no segment may take one part in so many, and of the hottest segments each
/// block has its record until all parts but one are taken.
pub const PARTS: usize = 4;

/// How much is kept of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A record of each block.
    Each,
    /// One for all of them.
    Common,
}

/// Hints of `most` bytes at most: of as many of the segments, which come hottest first, as there is room for, each of which takes
/// `common_bytes` with one record for all blocks. `None` where there is no room for the general ones.
pub fn fit(
    most: usize,
    general: Vec<u8>,
    segments: Vec<Segment>,
    common_bytes: usize,
    mut bytes_of: impl FnMut(Segment, Detail) -> Vec<u8>,
) -> Option<Hints> {
    let cost = |bytes: usize| bytes + SegmentHints::OVERHEAD;
    let mut left = most.checked_sub(general.len())?;
    let mut rest = segments.len();
    let mut hints = Hints { general, segments: Vec::with_capacity(rest.min(left / cost(common_bytes))) };
    for segment in segments {
        rest -= 1;
        let mut bytes = bytes_of(segment, Detail::Each);
        let fits = cost(bytes.len()) + rest * cost(common_bytes) <= left;
        let is_early = most - left + cost(bytes.len()) <= most / PARTS * (PARTS - 1);
        if !fits && !is_early {
            bytes = bytes_of(segment, Detail::Common);
        }
        if cost(bytes.len()) > left {
            break;
        }
        left -= cost(bytes.len());
        hints.segments.push(SegmentHints { segment, bytes });
    }
    Some(hints)
}
