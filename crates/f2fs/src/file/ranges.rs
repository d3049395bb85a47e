//! fallocate and seek: ranges that are allocated, zero or holes.

use basalt_vfs::{FallocateMode, Seek};

use super::write::SIZE_MAX;
use crate::error::{Error, Result};
use crate::layout::inode::Advise;
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, FileBlock, Ino, blocks_for};
use crate::node::path::{Found, Mapped};
use crate::volume::Volume;

const BLOCK: u64 = BLOCK_SIZE as u64;

impl Volume {
    /// Preallocates, punches or zeroes a range.
    pub(crate) fn fallocate(&mut self, ino: Ino, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        self.expect_file(ino, true)?;
        if length == 0 {
            return Err(basalt_vfs::Error::Invalid("empty range").into());
        }
        let end = offset.checked_add(length).filter(|&end| end <= SIZE_MAX).ok_or(basalt_vfs::Error::FileTooLarge)?;
        let keep_size = mode.contains(FallocateMode::KEEP_SIZE);
        match mode.difference(FallocateMode::KEEP_SIZE) {
            FallocateMode::PUNCH_HOLE if keep_size => {
                self.expect_changeable(ino)?;
                self.punch(ino, offset, end)?;
                return self.touch_content(ino);
            }
            FallocateMode::ZERO_RANGE => {
                self.expect_changeable(ino)?;
                // Room first: a range that was zeroed but could not be kept is a loss of data for nothing. What is punched
                // then comes back from the blocks it freed.
                self.check_room(offset, end)?;
                self.convert_inline_data(ino)?;
                self.reserve_range(ino, offset, end, keep_size)?;
                self.punch(ino, offset, end)?;
            }
            none if none.is_empty() => {
                self.expect_mutable(ino)?;
                self.check_room(offset, end)?;
            }
            _ => return Err(basalt_vfs::Error::NotSupported("this mode of fallocate").into()),
        }
        self.preallocate(ino, offset, end, keep_size)?;
        self.touch_content(ino)
    }

    /// Fails if the range could not be held even by an empty volume; keeps a hopeless request from filling it first.
    fn check_room(&self, offset: u64, end: u64) -> Result<()> {
        let blocks = blocks_for(end) - (offset >> BLOCK_BITS);
        if blocks > self.counts.user_blocks() { Err(basalt_vfs::Error::NoSpace.into()) } else { Ok(()) }
    }

    fn preallocate(&mut self, ino: Ino, offset: u64, end: u64, keep_size: bool) -> Result<()> {
        if !keep_size {
            self.clear_behind_end(ino, end, end)?;
        }
        // If the inode holds the range, there is nothing to reserve.
        if !self.has_inline_data(ino)? || end > self.inline_capacity(ino)? {
            self.convert_inline_data(ino)?;
            self.reserve_range(ino, offset, end, keep_size)?;
        }
        if keep_size { Ok(()) } else { self.extend_to(ino, end) }
    }

    /// Reserves a block for every hole of a range. Of blocks that stay behind the end of the file, because they shall or because there was no
    /// room for all, the inode tells: Linux's roll-forward takes others for a size that was not written in time.
    fn reserve_range(&mut self, ino: Ino, offset: u64, end: u64, keep_size: bool) -> Result<()> {
        let mut blocks = FileBlock::all(FileBlock::of_byte(offset)..FileBlock::behind(end));
        let reserved = blocks.try_for_each(|index| self.reserve_block(ino, index));
        let is_refused = matches!(reserved, Err(Error::Refused(_)));
        if (is_refused || reserved.is_ok() && keep_size) && end > self.inode(ino)?.i_size.get() {
            self.inode_mut(ino)?.i_advise |= Advise::KEEP_SIZE.bits();
        }
        reserved
    }

    /// Makes the bytes from `offset` to `end` zero and frees the blocks that lie within.
    fn punch(&mut self, ino: Ino, offset: u64, end: u64) -> Result<()> {
        if self.has_inline_data(ino)? {
            let size = self.inode(ino)?.i_size.get();
            let (from, to) = (offset.min(size), end.min(size));
            if from < to {
                let keeps_front = from > 0;
                self.zero_inline(ino, from as usize, to as usize)?;
                if !keeps_front && to < size {
                    self.inode_mut(ino)?.i_inline |= crate::layout::inode::InlineFlags::DATA_EXIST.bits();
                }
            }
            return Ok(());
        }
        let (first, last) = (FileBlock::behind(offset), FileBlock::of_byte(end));
        if first > last {
            return self.zero_within(ino, offset, end);
        }
        self.zero_within(ino, offset, first.byte().min(end))?;
        self.zero_within(ino, last.byte().max(offset), end)?;
        self.free_range(ino, first, last)
    }

    /// Zeroes bytes within one block, if it has content.
    fn zero_within(&mut self, ino: Ino, from: u64, to: u64) -> Result<()> {
        let index = FileBlock::of_byte(from);
        if from >= to || !self.has_content(ino, index)? {
            return Ok(());
        }
        let start = (from & (BLOCK - 1)) as usize;
        let end = start + (to - from) as usize;
        self.page_mut(ino, index)?.block.0[start..end].fill(0);
        Ok(())
    }

    /// The next data or hole at or behind `offset`.
    pub(crate) fn seek(&mut self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        let size = self.inode(ino)?.i_size.get();
        if offset >= size {
            return Err(basalt_vfs::Error::NoData.into());
        }
        if self.has_inline_data(ino)? {
            return Ok(if whence == Seek::Data { offset } else { size });
        }
        let mut index = FileBlock::of_byte(offset);
        while index < FileBlock::behind(size) {
            let (next, is_data) = self.describe_run(ino, index)?;
            if is_data == (whence == Seek::Data) {
                return Ok(offset.max(index.byte()).min(size));
            }
            index = next;
        }
        if whence == Seek::Hole { Ok(size) } else { Err(basalt_vfs::Error::NoData.into()) }
    }

    /// From block `index`: how far blocks of the same sort go within one node, and whether they hold data.
    fn describe_run(&mut self, ino: Ino, index: FileBlock) -> Result<(FileBlock, bool)> {
        let slot = match self.map_damaged_if_rescue(ino, index)? {
            Found::Mapped(Mapped::Hole(next)) => return Ok((next, false)),
            Found::Mapped(Mapped::Slot(slot)) => slot,
            // Something was there: who reads it shall learn that it is gone.
            Found::Missing(next) => return Ok((next, true)),
        };
        let mut first = None;
        for step in 0..slot.count {
            let address = self.node(slot.nid)?.address(slot.byte + 4 * step as usize);
            let block = index + step;
            let is_data = match address {
                Address::NULL => false,
                Address::NEW => self.has_content(ino, block)?,
                _ => true,
            };
            if *first.get_or_insert(is_data) != is_data {
                return Ok((block, !is_data));
            }
        }
        Ok((index + slot.count, first.unwrap_or(false)))
    }
}
