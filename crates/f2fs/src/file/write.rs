//! Writing files: bytes go into the page cache and blocks are reserved; only large writes go on to the device.

use super::data::Data;
use super::through::THROUGH_MIN;
use crate::error::Result;
use crate::layout::inode::InlineFlags;
use crate::layout::{BLOCK_BITS, BLOCK_SIZE, FileBlock, Ino};
use crate::node::path::BLOCKS_MAX;
use crate::volume::Volume;

/// The largest size of a file in bytes.
pub const SIZE_MAX: u64 = BLOCKS_MAX << BLOCK_BITS;

/// What a write does to the times of last content and attribute change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// They become now, unless the caller keeps all times.
    Renew,
    /// They stay: whoever buffered the data keeps them.
    Keep,
}

impl Volume {
    /// Writes `data` at `offset` and extends the file as needed.
    ///
    /// Returns how many bytes were written: fewer than all, but at least one, where space ran out behind them.
    ///
    /// Errors: `FileTooLarge` past [`SIZE_MAX`]; `NoSpace`.
    pub(crate) fn write_file(&mut self, ino: Ino, offset: u64, data: Data<'_>, times: Times) -> Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= SIZE_MAX);
        let end = end.ok_or(basalt_vfs::Error::FileTooLarge)?;
        self.clear_behind_end(ino, offset, end)?;
        if self.has_inline_data(ino)? {
            if end <= self.inline_capacity(ino)? {
                self.write_inline(ino, offset as usize, &data)?;
                self.finish_write(ino, end, times)?;
                return Ok(data.len());
            }
            self.convert_inline_data(ino)?;
        }
        if let Some(lists) = &mut self.page_lists {
            lists.note_write(ino, offset, data.len() as u64);
        }
        let result = self.write_pages(ino, offset, data);
        // What did go in counts, as write(2) reports it.
        let written = match &result {
            Ok(()) => end,
            Err((at, _)) => *at,
        };
        if written > offset {
            self.finish_write(ino, written, times)?;
        }
        match result {
            Err((at, crate::Error::Refused(basalt_vfs::Error::NoSpace))) if at > offset => Ok((at - offset) as usize),
            result => result.map(|()| data.len()).map_err(|(_, error)| error),
        }
    }

    /// Puts data into pages, long runs of whole blocks into their log; an error comes with the file offset it was reached at.
    fn write_pages(&mut self, ino: Ino, offset: u64, data: Data<'_>) -> std::result::Result<(), (u64, crate::Error)> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let index = FileBlock::of_byte(at);
            let within = (at & (BLOCK_SIZE as u64 - 1)) as usize;
            let whole = (data.len() - done) / BLOCK_SIZE;
            if within == 0 && whole >= THROUGH_MIN {
                let piece = data.part(done..done + whole * BLOCK_SIZE);
                let result = self.write_through(ino, index, piece);
                result.map_err(|(blocks, error)| (at + (blocks * BLOCK_SIZE) as u64, error))?;
                done += piece.len();
                continue;
            }
            let length = (BLOCK_SIZE - within).min(data.len() - done);
            let piece = &data[done..done + length];
            let put = if let Ok(whole) = piece.try_into() {
                self.reserve_block(ino, index).map(|()| self.put_page(ino, index, whole))
            } else {
                self.page_mut(ino, index).map(|page| page.block.0[within..within + length].copy_from_slice(piece))
            };
            put.map_err(|error| (at, error))?;
            done += length;
        }
        Ok(())
    }

    fn finish_write(&mut self, ino: Ino, end: u64, times: Times) -> Result<()> {
        self.extend_to(ino, end)?;
        if times == Times::Renew { self.touch_content(ino) } else { Ok(()) }
    }

    /// Sets a file's size: truncates, or extends with a hole.
    pub(crate) fn set_size(&mut self, ino: Ino, size: u64) -> Result<()> {
        self.expect_file(ino, true)?;
        if size > SIZE_MAX {
            return Err(basalt_vfs::Error::FileTooLarge.into());
        }
        let old = self.inode(ino)?.i_size.get();
        self.clear_behind_end(ino, size, size)?;
        if self.inode(ino)?.is_inline(InlineFlags::DATA) {
            if size > self.inline_capacity(ino)? {
                self.convert_inline_data(ino)?;
            } else if size < old {
                self.zero_inline(ino, size as usize, old as usize)?;
            }
        }
        self.extend_to(ino, size)?;
        if size < old {
            self.inode_mut(ino)?.i_size.set(size);
            if !self.has_inline_data(ino)? {
                self.forget_in_lists(ino, FileBlock::behind(size), FileBlock::END);
                self.truncate(ino, size)?;
            }
        }
        self.touch_content(ino)
    }
}
