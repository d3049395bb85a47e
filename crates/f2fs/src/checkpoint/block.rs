//! One checkpoint block: its checksum.

use zerocopy::FromBytes;

use crate::error::{Error, Result};
use crate::layout::BLOCK_SIZE;
use crate::layout::checkpoint::{BITMAP_OFFSET, CHECKSUM_OFFSET, RawCheckpoint};
use crate::layout::crc::{crc, crc_from};

/// Smallest place a checkpoint's checksum may be.
const CHECKSUM_OFFSET_MIN: usize = BITMAP_OFFSET;

/// A fault of a checkpoint pack.
pub(super) fn bad(pack: u32, found: impl Into<String>) -> Error {
    Error::damaged("checkpoint", format!("pack {}", pack + 1), found)
}

/// The checksum a checkpoint block should carry at `offset`, over everything else that it guards.
pub fn expected_checksum(block: &[u8], offset: usize) -> u32 {
    let front = crc(&block[..offset]);
    if offset < CHECKSUM_OFFSET { crc_from(front, &block[offset + 4..BLOCK_SIZE]) } else { front }
}

/// Checks one checkpoint block's checksum; returns its fields and the checksum.
pub(crate) fn check_block(pack: u32, what: &str, block: &[u8]) -> Result<(RawCheckpoint, u32)> {
    let (raw, _) = RawCheckpoint::read_from_prefix(block).map_err(|_| bad(pack, "short block"))?;
    let offset = raw.checksum_offset.get() as usize;
    if !(CHECKSUM_OFFSET_MIN..=CHECKSUM_OFFSET).contains(&offset) {
        return Err(bad(pack, format!("{what}: checksum_offset {offset}, expected 192 to 4092")));
    }
    // offset <= 4092 was just checked: four bytes follow.
    let found = u32::from_le_bytes([block[offset], block[offset + 1], block[offset + 2], block[offset + 3]]);
    let expected = expected_checksum(block, offset);
    if found != expected {
        return Err(bad(pack, format!("{what}: checksum {found:#010x}, expected {expected:#010x}")));
    }
    Ok((raw, found))
}
