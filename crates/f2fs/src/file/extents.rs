//! Where the blocks of a file lie on the device.

use basalt_vfs::Extents;

use crate::error::Result;
use crate::layout::{Address, BLOCK_SIZE, FileBlock, Ino};
use crate::node::path::{Mapped, Slot};
use crate::volume::Volume;

/// A block of a file, and where it lies.
pub type Placed = (FileBlock, Address);

/// Blocks of a file that were looked up.
pub struct Stretch {
    /// Those that are on the device, in file order: neither holes nor reserved blocks.
    pub blocks: Vec<Placed>,
    /// The first one that was not looked up.
    pub next: FileBlock,
}

/// Whether the second block lies behind the first on the device, too. A hole between them in the file ends no extent: nothing is read there.
pub fn are_neighbours((_, first): &Placed, (_, second): &Placed) -> bool {
    second.blocks_behind(*first) == Some(1)
}

impl Volume {
    /// Looks up blocks of a file from `from` to `to` (exclusive), up to its end: no more than about `most`, holes among them.
    pub(crate) fn blocks_on_device(&mut self, ino: Ino, from: FileBlock, to: FileBlock, most: u32) -> Result<Stretch> {
        let to = to.min(self.end_of_blocks(ino)?);
        let (mut blocks, mut next, mut looked) = (Vec::new(), from, 0);
        while next < to && looked < most {
            next = match self.map(ino, next, false)? {
                Mapped::Hole(behind) => {
                    looked += 1;
                    behind.min(to)
                }
                Mapped::Slot(slot) => {
                    let count = slot.count.min(to - next).min(most - looked);
                    let node = self.node(slot.nid)?;
                    let address = |step: u32| node.address(slot.byte + 4 * step as usize);
                    blocks.extend((0..count).map(|step| (next + step, address(step))).filter(|(_, at)| at.is_block()));
                    looked += count;
                    next + count
                }
            };
        }
        blocks.iter().try_for_each(|&(_, address)| self.check_data_address(ino, address))?;
        Ok(Stretch { blocks, next })
    }

    /// The file block behind the last one that a file may have on the device; the first one where the inode holds all of it.
    pub(crate) fn end_of_blocks(&mut self, ino: Ino) -> Result<FileBlock> {
        if self.has_inline_data(ino)? {
            return Ok(FileBlock::FIRST);
        }
        Ok(FileBlock::behind(self.inode(ino)?.i_size.get()))
    }

    /// The slot of a file block that lies at this address, if it does still, and if no newer content of it waits in memory.
    pub(crate) fn slot_still_at(&mut self, ino: Ino, (index, address): Placed) -> Result<Option<Slot>> {
        if self.pages.has_page(ino, index) || index >= self.end_of_blocks(ino)? {
            return Ok(None);
        }
        let Mapped::Slot(slot) = self.map(ino, index, false)? else { return Ok(None) };
        Ok((self.node(slot.nid)?.address(slot.byte) == address).then_some(slot))
    }
}

/// Counts extents while blocks come in file order.
#[derive(Default)]
pub struct Count {
    last: Option<Placed>,
    extents: u64,
    blocks: u64,
}

impl Count {
    /// These come next.
    pub fn add(&mut self, blocks: &[Placed]) {
        for block in blocks {
            self.extents += u64::from(!self.last.is_some_and(|last| are_neighbours(&last, block)));
            self.last = Some(*block);
        }
        self.blocks += blocks.len() as u64;
    }

    /// What it were.
    pub fn total(&self) -> Extents {
        Extents { extents: self.extents, bytes: self.blocks * BLOCK_SIZE as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_end_no_extent() {
        let blocks = [(0, 100), (1, 101), (7, 102), (8, 110), (9, 111), (10, 109)];
        let blocks = blocks.map(|(index, address)| (FileBlock::new(index), Address::new(address)));
        let mut count = Count::default();
        count.add(&blocks[..2]);
        count.add(&blocks[2..]);
        assert_eq!(count.total(), Extents { extents: 3, bytes: 6 * 4096 });
        assert_eq!(Count::default().total(), Extents::default());
    }
}
