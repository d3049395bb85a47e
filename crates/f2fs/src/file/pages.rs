//! Pages of files and directories, by inode and block: read, changed, dropped.
//!
//! File pages are in memory only while dirty: whoever reads through the mount has the kernel's cache in front. Directory
//! pages stay after writeback, within the budget.

use super::cache::Page;
use crate::error::Result;
use crate::layout::{BLOCK_SIZE, FileBlock, Ino};
use crate::volume::Volume;

impl Volume {
    /// A cached page, read from the volume if needed; `None` for a hole.
    pub(crate) fn page(&mut self, ino: Ino, index: FileBlock) -> Result<Option<&Page>> {
        if !self.pages.has_page(ino, index) {
            let Some(block) = self.read_file_block(ino, index)? else { return Ok(None) };
            let of_directory = self.is_directory(ino)?;
            self.pages.add_clean(ino, index, block, of_directory);
        }
        Ok(self.pages.cached(ino, index))
    }

    /// A page to change: the hole is reserved first, the page is marked dirty.
    pub(crate) fn page_mut(&mut self, ino: Ino, index: FileBlock) -> Result<&mut Page> {
        self.reserve_block(ino, index)?;
        self.page(ino, index)?;
        self.checkpoint.note_change();
        Ok(self.pages.change(ino, index))
    }

    /// Puts a whole page in place, dirty; its block must be reserved.
    pub(crate) fn put_page(&mut self, ino: Ino, index: FileBlock, bytes: &[u8; BLOCK_SIZE]) {
        self.checkpoint.note_change();
        self.pages.replace(ino, index, bytes, |bytes| self.writer.copy_of(bytes));
    }

    /// Forgets cached pages from `from` to `to` (exclusive): their blocks are being freed.
    pub(crate) fn drop_pages(&mut self, ino: Ino, from: FileBlock, to: FileBlock) {
        if self.pages.discard(ino, from, to) {
            self.checkpoint.note_change();
        }
    }

    /// Blocks of a file from `from` to `to` (exclusive) are gone: their pages are on no list.
    pub(crate) fn forget_in_lists(&mut self, ino: Ino, from: FileBlock, to: FileBlock) {
        if let Some(lists) = &mut self.page_lists {
            lists.forget(ino, from, to);
        }
    }

    /// Has the dirty pages of a file from block `from` on written before the next checkpoint; not those of one without a name, which is
    /// gone after a power cut.
    pub(crate) fn order_pages(&mut self, ino: Ino, from: FileBlock) {
        if !self.orphans.contains(&ino) {
            self.pages.order(ino, from);
        }
    }
}
