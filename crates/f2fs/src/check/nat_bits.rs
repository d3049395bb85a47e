//! The NAT bits that Linux and `fsck.f2fs` leave behind a checkpoint pack: which blocks of the NAT are full, and which are empty. A kernel
//! that believes an id to be free by them hands it out.

use super::checker::Checker;
use super::fault::Place;
use super::kind::FaultKind;
use crate::blocks::read_blocks;
use crate::error::Result;
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::nat::ENTRIES_PER_BLOCK;
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, bit_lsb};

/// Bytes in front of the two bitmaps: the version they are of.
const HEAD: usize = 8;

impl Checker<'_> {
    /// Compares the NAT bits with the NAT. Those of another version, and all where the checkpoint has newer entries, Linux does not believe.
    pub(super) fn check_nat_bits(&mut self) -> Result<()> {
        let pack = &self.loaded.pack;
        let size = self.geometry.nat_bitmap_size();
        let blocks = (HEAD + 2 * size).div_ceil(BLOCK_SIZE) as u32;
        let is_there = pack.raw.flags().contains(CheckpointFlags::NAT_BITS)
            && self.loaded.nat_journal.is_empty()
            && pack.raw.cp_pack_total_block_count.get() + blocks <= BLOCKS_PER_SEGMENT;
        if !is_there {
            return Ok(());
        }
        let bytes = read_blocks(self.device, pack.start + BLOCKS_PER_SEGMENT - blocks, blocks as usize)?;
        let version = pack.raw.checkpoint_ver.get() | u64::from(pack.checksum) << 32;
        if bytes[..HEAD] != version.to_le_bytes() {
            return Ok(());
        }
        let (full, empty) = (&bytes[HEAD..HEAD + size], &bytes[HEAD + size..HEAD + 2 * size]);
        for index in 0..self.geometry.nat_blocks {
            let used = self.nat.used_in(index);
            let expected = (used == ENTRIES_PER_BLOCK, used == 0);
            let found = (bit_lsb(full, index as usize), bit_lsb(empty, index as usize));
            if found != expected {
                let words = |(full, empty)| match (full, empty) {
                    (true, false) => "full",
                    (false, true) => "empty",
                    (false, false) => "neither full nor empty",
                    (true, true) => "full and empty",
                };
                let found = format_args!("block {index} of the NAT is {} by the NAT bits", words(found));
                let expected = format_args!("{}, with {used} entries in use", words(expected));
                self.findings.add(FaultKind::NatBits, Place::Checkpoint(pack.index), found, expected);
                // One says that they cannot be believed.
                break;
            }
        }
        Ok(())
    }
}
