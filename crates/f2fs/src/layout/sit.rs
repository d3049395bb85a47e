//! The segment information table: one 74-byte entry for each segment of the main area.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Entries in a SIT block.
pub const ENTRIES_PER_BLOCK: u32 = 55;
/// Bytes in a segment's bitmap of live blocks.
pub const VALID_MAP_SIZE: usize = 64;
/// The bits of `vblocks` that count live blocks; the bits above hold the segment's type.
pub const VBLOCKS_MASK: u16 = (1 << 10) - 1;

/// One SIT entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSitEntry {
    /// Live blocks (low 10 bits) and segment type (high 6 bits).
    pub vblocks: U16,
    /// One bit a block, most significant bit first.
    pub valid_map: [u8; VALID_MAP_SIZE],
    /// Last modification, in seconds of mounted time.
    pub mtime: U64,
}

const _: () = assert!(size_of::<RawSitEntry>() == 74);

impl RawSitEntry {
    /// Builds the entry of a segment.
    pub fn new(kind: u8, live: u16, valid_map: [u8; VALID_MAP_SIZE], mtime: u64) -> RawSitEntry {
        RawSitEntry { vblocks: U16::new(u16::from(kind) << 10 | live), valid_map, mtime: U64::new(mtime) }
    }

    /// Live blocks as counted by the entry (0 to 1023; more than 512 is damage).
    pub fn live(&self) -> u16 {
        self.vblocks.get() & VBLOCKS_MASK
    }

    /// Segment type as stored (0 to 63; more than 5 is damage).
    pub fn kind(&self) -> u8 {
        (self.vblocks.get() >> 10) as u8
    }
}
