//! Hotness records: what a placement policy knows of the volume. Basalt's own, in blocks behind the cleaning journal and in front of segment
//! 0, which F2FS leaves alone.
//!
//! The blocks are divided into two halves, and the records are written to them in turn, so that those of before are there until the new ones are
//! whole. A half begins with [`RawHotness`]. The policy's general bytes follow, then for each segment [`RawSegmentHotness`] and the
//! policy's bytes for it. Each further block of a half begins with [`MAGIC`], which tells it from blocks of others. Records are
//! hints: whatever is lost or damaged of them costs copies by cleaning, and no data.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of each block of records.
pub const MAGIC: [u8; 8] = *b"BsltHotn";
/// The version of the format. Others are not read, and written over.
pub const FORMAT_VERSION: u32 = 1;

/// What a segment holds: data.
pub const DATA: u16 = 0;
/// What a segment holds: nodes.
pub const NODES: u16 = 1;

/// In front of the records.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawHotness {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`].
    pub version: U32,
    /// CRC of all record bytes behind this field. It leaves out the [`MAGIC`] of further blocks. Its seed is the CRC of the volume's UUID.
    pub crc: U32,
    /// Bytes in all, with this header, and without the [`MAGIC`] of further blocks.
    pub bytes: U32,
    /// Bytes that belong to no segment.
    pub general_bytes: U32,
    /// Rises by one each time: the half with the higher one counts.
    pub sequence: U64,
    /// Version of the last checkpoint before. Not compared: each segment tells whether it has changed.
    pub checkpoint_version: U64,
    /// Where the main area begins: segments that were moved have other numbers.
    pub main: U32,
    /// Zero.
    pub reserved: U32,
    /// The volume's UUID: records of another volume, left from before, do not count.
    pub uuid: [u8; 16],
    /// The name of the policy, zeros behind it.
    pub policy: [u8; 16],
}

/// In front of what is known of a segment.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSegmentHotness {
    /// Its number in the main area.
    pub segment: U32,
    /// Bytes that follow.
    pub bytes: U16,
    /// [`DATA`] or [`NODES`].
    pub holds: U16,
    /// When one of its blocks last became live or dead, in seconds of mounted time, as the SIT has it.
    pub modified: U64,
    /// Its live blocks at that time, as the SIT has them.
    pub live: [u8; 64],
}

const _: () = {
    assert!(size_of::<RawHotness>() == 80);
    assert!(size_of::<RawSegmentHotness>() == basalt_segments::placement::SegmentHints::OVERHEAD);
};
