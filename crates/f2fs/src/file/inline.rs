//! Inline data: small files and symbolic links inside their inode.

use crate::error::Result;
use crate::layout::inode::InlineFlags;
use crate::layout::{BLOCK_SIZE, FileBlock, Ino, RawBlock};
use crate::volume::Volume;

impl Volume {
    /// Whether the file's data is in its inode.
    pub(crate) fn has_inline_data(&mut self, ino: Ino) -> Result<bool> {
        Ok(self.inode(ino)?.is_inline(InlineFlags::DATA))
    }

    /// Bytes of data that fit the inode.
    pub(crate) fn inline_capacity(&mut self, ino: Ino) -> Result<u64> {
        let flexible = self.geometry.flexible_inline_xattr();
        Ok(self.inode(ino)?.inline_data_range(flexible).len() as u64)
    }

    /// Copies inline data from `offset` on into `buf`, which lies within the file's size.
    pub(crate) fn read_inline(&mut self, ino: Ino, offset: usize, buf: &mut [u8]) -> Result<()> {
        let flexible = self.geometry.flexible_inline_xattr();
        let range = self.inode(ino)?.inline_data_range(flexible);
        let bytes = &self.node(ino.nid())?.bytes()[range];
        buf.copy_from_slice(&bytes[offset..offset + buf.len()]);
        Ok(())
    }

    /// Writes inline data at `offset`; the caller has checked that it fits.
    pub(crate) fn write_inline(&mut self, ino: Ino, offset: usize, data: &[u8]) -> Result<()> {
        let flexible = self.geometry.flexible_inline_xattr();
        let range = self.inode(ino)?.inline_data_range(flexible);
        let node = self.node_mut(ino.nid())?;
        node.bytes_mut()[range][offset..offset + data.len()].copy_from_slice(data);
        let raw = node.inode_mut();
        raw.i_inline |= InlineFlags::DATA_EXIST.bits();
        Ok(())
    }

    /// Zeroes inline data from `from` to `to`.
    pub(crate) fn zero_inline(&mut self, ino: Ino, from: usize, to: usize) -> Result<()> {
        let flexible = self.geometry.flexible_inline_xattr();
        let range = self.inode(ino)?.inline_data_range(flexible);
        let node = self.node_mut(ino.nid())?;
        node.bytes_mut()[range][from..to].fill(0);
        if from == 0 {
            node.inode_mut().i_inline &= !InlineFlags::DATA_EXIST.bits();
        }
        Ok(())
    }

    /// Moves inline data out into block 0, to make room for more.
    pub(crate) fn convert_inline_data(&mut self, ino: Ino) -> Result<()> {
        let raw = self.inode(ino)?;
        if !raw.is_inline(InlineFlags::DATA) {
            return Ok(());
        }
        let (exists, size) = (raw.is_inline(InlineFlags::DATA_EXIST), raw.i_size.get());
        let mut block = RawBlock::zeroed();
        if exists && size > 0 {
            self.counts.expect_room(1)?;
            // Checked against the capacity, which is less than a block, when the inode was read.
            let size = (size as usize).min(BLOCK_SIZE);
            self.read_inline(ino, 0, &mut block.0[..size])?;
        }
        let flexible = self.geometry.flexible_inline_xattr();
        let node = self.node_mut(ino.nid())?;
        let range = node.inode().inline_data_range(flexible);
        // The reserved slot in front is an address slot too from now on.
        node.bytes_mut()[range.start - 4..range.end].fill(0);
        node.inode_mut().i_inline &= !(InlineFlags::DATA | InlineFlags::DATA_EXIST).bits();
        if exists && size > 0 {
            self.reserve_block(ino, FileBlock::FIRST)?;
            self.put_page(ino, FileBlock::FIRST, &block.0);
            // What was durable in the inode must not be gone by a checkpoint that has the inode and not its pages.
            self.order_pages(ino, FileBlock::FIRST);
        }
        Ok(())
    }
}
