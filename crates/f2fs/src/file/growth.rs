//! Files that grow: a size is never durable without the bytes it covers, and nothing that lay behind an end comes into sight.
//!
//! Checkpoints that cleaning or memory pressure needs leave dirty file pages in memory. Of a page that was there before, such a checkpoint
//! has the older bytes, which is as good a moment of the file as any. But where the size grew there are no older bytes: what would be
//! there are zeros that nobody wrote, or what a truncation had cut off. So these pages are *ordered*: written before the next checkpoint,
//! whatever it is for. Also ordered are the pages of a file that gets another name, which somebody may have written to take the place of an
//! older file (ext4 does the same: `auto_da_alloc`).

use basalt_segments::Reason;
use basalt_segments::cleaning::PIECE;

use crate::error::Result;
use crate::layout::{Address, FileBlock, Ino};
use crate::lock::F2fs;
use crate::node::path::Mapped;
use crate::volume::Volume;

impl F2fs {
    /// Writes what a checkpoint must not leave in memory, piece by piece, so that nobody waits long for the lock. What comes meanwhile is
    /// left to the checkpoint itself.
    pub(crate) fn write_ordered_in_pieces(&self) -> Result<()> {
        let pieces = self.with_volume(|volume| volume.pages.dirty_file_pages().div_ceil(PIECE));
        for _ in 0..pieces {
            let is_done = self.with_volume(|volume| volume.pages.first_ordered().is_none() || !volume.is_writable());
            if is_done {
                return Ok(());
            }
            self.decide(|volume| volume.write_ordered(PIECE))?;
        }
        Ok(())
    }
}

impl Volume {
    /// Makes a file end at `end`, unless it ends behind it. What lies between must be as it is to be read.
    pub(crate) fn extend_to(&mut self, ino: Ino, end: u64) -> Result<()> {
        let old = self.inode(ino)?.i_size.get();
        if end > old {
            self.inode_mut(ino)?.i_size.set(end);
            self.order_pages(ino, FileBlock::of_byte(old));
        }
        Ok(())
    }

    /// Before a file grows to `end`, where `written` and what follows it will be overwritten: makes the bytes from its end on zero. Whoever
    /// truncated it last may have left them, on this system or on another.
    pub(crate) fn clear_behind_end(&mut self, ino: Ino, written: u64, end: u64) -> Result<()> {
        let size = self.inode(ino)?.i_size.get();
        if end <= size {
            return Ok(());
        }
        if self.has_inline_data(ino)? {
            let to = written.min(self.inline_capacity(ino)?);
            return if to > size { self.zero_inline(ino, size as usize, to as usize) } else { Ok(()) };
        }
        if written > size {
            self.zero_tail(ino, size)?;
        }
        self.free_content(ino, FileBlock::behind(size), FileBlock::behind(end))
    }

    /// Makes file blocks that hold bytes into holes, from `from` to `to` (exclusive); what is only reserved stays.
    fn free_content(&mut self, ino: Ino, from: FileBlock, to: FileBlock) -> Result<()> {
        let mut index = from;
        while index < to {
            let slot = match self.map(ino, index, false)? {
                Mapped::Hole(next) => {
                    index = next;
                    continue;
                }
                Mapped::Slot(slot) => slot,
            };
            let count = slot.count.min(to - index);
            let node = self.node(slot.nid)?;
            let holds_bytes = |step: &u32| {
                let address = node.address(slot.byte + 4 * *step as usize);
                address != Address::NULL && address != Address::NEW
            };
            let full: Vec<u32> = (0..count).filter(holds_bytes).collect();
            full.into_iter().try_for_each(|step| self.free_range(ino, index + step, index + step + 1))?;
            index = index + count;
        }
        Ok(())
    }

    /// Writes up to `most` of the pages that the next checkpoint has to have.
    pub(crate) fn write_ordered(&mut self, most: usize) -> Result<()> {
        let mut left = most;
        while left > 0
            && let Some((ino, from)) = self.pages.first_ordered()
        {
            let written = self.write_back_from(ino, from, left, Reason::Writeback)?.len();
            if written < left {
                self.pages.note_ordered_written(ino);
            }
            left -= written;
        }
        Ok(())
    }
}
