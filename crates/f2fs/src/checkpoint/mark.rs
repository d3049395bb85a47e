//! The mark that a repair leaves beside a checkpoint pack that was lost, before it writes anything else: until the repair's own checkpoint is
//! whole, nothing that is in the place of that pack counts.
//!
//! It is one of the last blocks of the pack's place, which shows nothing by itself: if power goes while it is written, all that shows the
//! loss is still there.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 15 | `BASALT-LOST-PACK` |
//! | 16 to 23 | version of the other pack, from which the repair starts |
//! | 24 to 27 | CRC-32 of the bytes before |
//!
//! The repair takes it away in the end. One that is left counts no longer than the checkpoint it names.

use std::ops::Range;

use basalt_device::BlockDevice;

use super::block::check_block;
use super::pack::{Pack, read_pack};
use crate::blocks::read_blocks;
use crate::geometry::Geometry;
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT};

const MAGIC: &[u8; 16] = b"BASALT-LOST-PACK";
/// Bytes of the mark; the rest of its block is zero.
const MARK_SIZE: usize = 28;
/// Which blocks of a pack's place can have the mark.
pub(super) const PLACES: Range<u32> = BLOCKS_PER_SEGMENT - 8..BLOCKS_PER_SEGMENT;

/// What the mark is that names the checkpoint of version `than`.
fn mark(than: u64) -> [u8; BLOCK_SIZE] {
    let mut block = [0; BLOCK_SIZE];
    block[..16].copy_from_slice(MAGIC);
    block[16..24].copy_from_slice(&than.to_le_bytes());
    let sum = crc32fast::hash(&block[..24]);
    block[24..MARK_SIZE].copy_from_slice(&sum.to_le_bytes());
    block
}

/// The mark beside the lost pack `index`, and where to write it; `None` where each place may have the last block of a pack, or cannot be read.
/// The first `taken` blocks are the repair's own pack.
pub(crate) fn beside(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    index: u32,
    than: u64,
    taken: u32,
) -> Option<(Address, Vec<u8>)> {
    let start = geometry.checkpoint + index * BLOCKS_PER_SEGMENT;
    let is_free = |address: &Address| {
        read_blocks(device, *address, 1).is_ok_and(|block| check_block(index, "block", &block).is_err())
    };
    PLACES
        .rev()
        .filter(|at| *at >= taken)
        .map(|at| start + at)
        .find(is_free)
        .map(|address| (address, mark(than).to_vec()))
}

/// The version of the pack beside `pack`, if `pack` is in the place that is marked as lost beside that: the repair that wrote it was cut off.
pub(crate) fn older_that_counts(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Option<u64> {
    let than = read_pack(device, geometry, 1 - pack.index).ok()?.raw.checkpoint_ver.get();
    let is_mark = |at: u32| read_blocks(device, pack.start + at, 1).is_ok_and(|block| names(&block, than));
    PLACES.clone().any(is_mark).then_some(than)
}

/// Whether a block is a mark, of whatever repair.
pub(crate) fn is_one(block: &[u8]) -> bool {
    block.starts_with(MAGIC)
}

/// Whether a block is the mark that names the checkpoint of version `than`.
pub(super) fn names(block: &[u8], than: u64) -> bool {
    block.get(..MARK_SIZE) == Some(&mark(than)[..MARK_SIZE])
}

#[cfg(test)]
mod tests {
    use basalt_device::MemoryDevice;

    use super::*;
    use crate::format::{FormatOptions, format};

    #[test]
    fn a_mark_counts_no_longer_than_the_checkpoint_it_names() {
        let device = MemoryDevice::new(80 << 20, 512);
        format(&device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let geometry = Geometry::read(&device).unwrap().0;
        let (address, block) = beside(&device, &geometry, 1, 7, 9).unwrap();
        let second = geometry.checkpoint + BLOCKS_PER_SEGMENT;
        assert!(PLACES.contains(&(address - second)), "{address}");
        assert!(names(&block, 7) && !names(&block, 9));
        assert_eq!(beside(&device, &geometry, 1, 7, BLOCKS_PER_SEGMENT), None);
        assert!(!names(&block[..20], 7) && !names(&[], 7));
    }
}
