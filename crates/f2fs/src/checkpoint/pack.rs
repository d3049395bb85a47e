//! One checkpoint pack: its ends, and when they agree.

use basalt_device::BlockDevice;
use zerocopy::FromBytes;

use crate::blocks::read_blocks;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::checkpoint::{BITMAP_OFFSET, CHECKSUM_OFFSET, RawCheckpoint};
use crate::layout::crc::{crc, crc_from};
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::mutant::{self, Mutant};

/// Smallest place a checkpoint's checksum may be.
const CHECKSUM_OFFSET_MIN: usize = BITMAP_OFFSET;

/// One checkpoint pack whose first and last block agree.
#[derive(Debug, Clone)]
pub struct Pack {
    /// 0 or 1.
    pub index: u32,
    /// First block of the pack.
    pub start: u32,
    /// The fixed fields.
    pub raw: RawCheckpoint,
    /// The first block and the payload blocks behind it.
    pub bytes: Vec<u8>,
    /// The checksum the first block carries.
    pub checksum: u32,
    /// The end of the pack that is damaged, if one is: the other says the same.
    pub broken_end: Option<BrokenEnd>,
}

/// The first or last block of a complete pack, damaged.
#[derive(Debug, Clone)]
pub struct BrokenEnd {
    /// Its address.
    pub address: u32,
    /// What was found there, in words.
    pub found: String,
    /// Whether a power cut while the pack was being completed leaves this, too.
    pub may_be_cut: bool,
}

impl Pack {
    /// Its damaged end in one line, for a warning.
    pub(crate) fn tell_broken_end(&self) -> Option<String> {
        let end = self.broken_end.as_ref()?;
        let (version, which) = (self.raw.checkpoint_ver, if end.address == self.start { "first" } else { "last" });
        Some(format!(
            "checkpoint at pack {}: the {which} block of version {version} is damaged ({}); its other end is used",
            self.index + 1,
            end.found
        ))
    }
}

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

/// Reads pack 0 or 1 and checks that its ends agree.
pub fn read_pack(device: &dyn BlockDevice, geometry: &Geometry, index: u32) -> Result<Pack> {
    let start = geometry.checkpoint + index * BLOCKS_PER_SEGMENT;
    let bytes = read_blocks(device, start, 1 + geometry.payload as usize)?;
    let (raw, checksum) = check_block(index, "first block", &bytes[..BLOCK_SIZE])?;
    let total = raw.cp_pack_total_block_count.get();
    if !is_pack_size(total, geometry) {
        return Err(bad(index, format!("{total} blocks in the pack, expected 3 to {BLOCKS_PER_SEGMENT}")));
    }
    let tail = read_blocks(device, start + total - 1, 1)?;
    let (last, _) = check_block(index, "last block", &tail)?;
    if last.checkpoint_ver != raw.checkpoint_ver && !mutant::active(Mutant::TornCheckpointAccepted) {
        return Err(bad(
            index,
            format!("first block has version {}, last {} (torn checkpoint)", raw.checkpoint_ver, last.checkpoint_ver),
        ));
    }
    Ok(Pack { index, start, raw, bytes, checksum, broken_end: None })
}

/// Whether a pack can have so many blocks.
pub(super) fn is_pack_size(total: u32, geometry: &Geometry) -> bool {
    (3 + geometry.payload..=BLOCKS_PER_SEGMENT).contains(&total)
}
