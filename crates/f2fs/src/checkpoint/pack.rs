//! One checkpoint pack: its ends, and when they agree.

use basalt_device::BlockDevice;

use super::block::{bad, check_block};
use crate::blocks::read_blocks;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::checkpoint::RawCheckpoint;
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::mutant::{self, Mutant};

/// One checkpoint pack whose first and last block agree.
#[derive(Debug, Clone)]
pub struct Pack {
    /// 0 or 1.
    pub index: u32,
    /// First block of the pack.
    pub start: Address,
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
    pub address: Address,
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

/// The newer of two packs, by the signed difference of their versions.
pub(super) fn newer(first: Pack, second: Pack) -> Pack {
    let ahead = second.raw.checkpoint_ver.get().wrapping_sub(first.raw.checkpoint_ver.get()) as i64;
    if ahead > 0 { second } else { first }
}
