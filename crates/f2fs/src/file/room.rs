//! How much free space a write takes.

use crate::error::Result;
use crate::file::write::SIZE_MAX;
use crate::layout::{Address, BLOCK_SIZE, FileBlock, Ino};
use crate::node::path::{Mapped, PER_NODE};
use crate::volume::Volume;

/// Nodes that one range of blocks may need beside those that it fills: a direct one at each end, and all above them.
const NODES_ABOVE: u64 = 5;

impl Volume {
    /// Bytes of free space that writing `length` bytes at `offset` takes at most, nodes among them. None where every block is there.
    pub(crate) fn room_for(&mut self, ino: Ino, offset: u64, length: u64) -> Result<u64> {
        let end = offset.saturating_add(length).min(SIZE_MAX);
        if offset >= end {
            return Ok(0);
        }
        let (first, last) = (FileBlock::of_byte(offset), FileBlock::behind(end));
        let holes = if !self.has_inline_data(ino)? {
            self.holes(ino, first, last)?
        } else if end > self.inline_capacity(ino)? {
            // What the inode holds becomes a block too.
            u64::from(last - first) + 1
        } else {
            0
        };
        let nodes = if holes > 0 { holes.div_ceil(PER_NODE) + NODES_ABOVE } else { 0 };
        Ok((holes + nodes) * BLOCK_SIZE as u64)
    }

    /// File blocks from `from` to `to` (exclusive) that have no block.
    fn holes(&mut self, ino: Ino, from: FileBlock, to: FileBlock) -> Result<u64> {
        let (mut index, mut holes) = (from, 0);
        while index < to {
            index = match self.map(ino, index, false)? {
                Mapped::Hole(next) => {
                    holes += u64::from(next.min(to) - index);
                    next
                }
                Mapped::Slot(slot) => {
                    let count = slot.count.min(to - index);
                    let node = self.node(slot.nid)?;
                    let is_hole = |step: &u32| node.address(slot.byte + 4 * *step as usize) == Address::NULL;
                    holes += (0..count).filter(is_hole).count() as u64;
                    index + count
                }
            };
        }
        Ok(holes)
    }
}
