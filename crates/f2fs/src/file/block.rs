//! One block of a file: where it is, reading it, and reserving it.

use basalt_segments::BlockTraits;

use crate::error::{Error, Result};
use crate::layout::{Address, FileBlock, Ino, RawBlock};
use crate::node::path::{Mapped, Slot};
use crate::volume::Volume;

impl Volume {
    /// The address of a file block: [`Address::NULL`] for a hole, [`Address::NEW`] if reserved only.
    pub(crate) fn address(&mut self, ino: Ino, index: FileBlock) -> Result<Address> {
        match self.map(ino, index, false)? {
            Mapped::Slot(slot) => Ok(self.node(slot.nid)?.address(slot.byte)),
            Mapped::Hole(_) => Ok(Address::NULL),
        }
    }

    /// Reads a block of a file from the volume; `None` for a hole or a block never written.
    pub(crate) fn read_file_block(&mut self, ino: Ino, index: FileBlock) -> Result<Option<Box<RawBlock>>> {
        match self.address(ino, index)? {
            Address::NULL => Ok(None),
            Address::NEW => Ok(Some(RawBlock::zeroed())),
            address => {
                self.check_data_address(ino, address)?;
                self.read_block(address).map(Some)
            }
        }
    }

    /// Fails if a data block's address is outside the main area.
    pub(crate) fn check_data_address(&self, ino: Ino, address: Address) -> Result<()> {
        if self.geometry.in_main(address) {
            return Ok(());
        }
        Err(Error::damaged("node", format!("inode {ino}"), format!("block address {address} outside the main area")))
    }

    /// Makes sure that file block `index` has a block: a hole becomes a reserved one.
    pub(crate) fn reserve_block(&mut self, ino: Ino, index: FileBlock) -> Result<()> {
        // A dirty page has its block already.
        if self.pages.has_dirty_page(ino, index) {
            return Ok(());
        }
        let slot = self.slot(ino, index)?;
        self.reserve_slot(ino, slot)
    }

    /// Makes sure that a slot has a block: a hole becomes a reserved one.
    pub(crate) fn reserve_slot(&mut self, ino: Ino, slot: Slot) -> Result<()> {
        if self.node(slot.nid)?.address(slot.byte) == Address::NULL {
            self.counts.expect_room(1)?;
            self.node_mut(slot.nid)?.set_address(slot.byte, Address::NEW);
            self.counts.add_block();
            self.checkpoint.since_mut().note_reserved();
            self.add_blocks(ino, 1)?;
        }
        Ok(())
    }

    /// Whether a file block holds bytes that are not known to be zero.
    pub(crate) fn has_content(&mut self, ino: Ino, index: FileBlock) -> Result<bool> {
        if self.pages.has_page(ino, index) {
            return Ok(true);
        }
        let address = self.address(ino, index)?;
        Ok(address != Address::NULL && address != Address::NEW)
    }

    /// Empties the extent that Linux keeps in the inode, since one of its blocks may have moved or gone: it must be exact.
    pub(crate) fn forget_extent(&mut self, ino: Ino) -> Result<()> {
        if self.inode(ino)?.i_ext.len.get() != 0 {
            self.inode_mut(ino)?.i_ext.len.set(0);
        }
        Ok(())
    }

    /// What placement may know about the first block of an inode's data.
    pub(crate) fn data_traits(&mut self, ino: Ino) -> Result<BlockTraits> {
        use crate::layout::inode::Advise;
        let of_directory = self.is_directory(ino)?;
        let advise = Advise::from_bits_truncate(self.inode(ino)?.i_advise);
        Ok(BlockTraits {
            of_directory,
            cold: advise.contains(Advise::COLD),
            hot: advise.contains(Advise::HOT),
            file: ino.get(),
            ..BlockTraits::default()
        })
    }
}
