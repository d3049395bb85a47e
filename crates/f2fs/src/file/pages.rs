//! The page cache: file and directory blocks in memory, by inode and block.
//!
//! File pages live here only while dirty: whoever reads through the mount has the kernel's cache in front. Directory
//! pages stay after writeback, within the budget.

use std::collections::btree_map::Entry;

use super::state::{InodeState, Page};
use crate::error::{Error, Result};
use crate::layout::{BLOCK_SIZE, FileBlock, Ino, RawBlock};
use crate::volume::Volume;

impl Volume {
    /// The state of an inode, made if missing.
    pub(crate) fn state(&mut self, ino: Ino) -> &mut InodeState {
        self.inodes.entry(ino).or_default()
    }

    /// A cached page, read from the volume if needed; `None` for a hole.
    pub(crate) fn page(&mut self, ino: Ino, index: FileBlock) -> Result<Option<&mut Page>> {
        if !self.state(ino).pages.contains_key(&index) {
            let Some(block) = self.read_file_block(ino, index)? else { return Ok(None) };
            let directory = self.is_directory(ino)?;
            self.state(ino).pages.insert(index, Page { block, dirty: false });
            if directory {
                self.note_clean(ino, index);
            }
        }
        Ok(self.state(ino).pages.get_mut(&index))
    }

    /// A page to change: the hole is reserved first, the page is marked dirty.
    pub(crate) fn page_mut(&mut self, ino: Ino, index: FileBlock) -> Result<&mut Page> {
        self.reserve_block(ino, index)?;
        if !self.state(ino).pages.contains_key(&index) && self.page(ino, index)?.is_none() {
            self.state(ino).pages.insert(index, Page { block: RawBlock::zeroed(), dirty: false });
        }
        self.mark_page_dirty(ino, index)
    }

    /// Puts a whole page in place, dirty; its block must be reserved.
    pub(crate) fn put_page(&mut self, ino: Ino, index: FileBlock, bytes: &[u8; BLOCK_SIZE]) {
        let state = self.inodes.entry(ino).or_default();
        match state.pages.entry(index) {
            Entry::Occupied(page) => {
                let page = page.into_mut();
                page.block.0.copy_from_slice(bytes);
                if page.dirty {
                    self.changed = true;
                    return;
                }
                page.dirty = true;
            }
            Entry::Vacant(place) => {
                place.insert(Page { block: self.writer.copy_of(bytes), dirty: true });
            }
        }
        self.count_dirty_page(ino);
    }

    fn mark_page_dirty(&mut self, ino: Ino, index: FileBlock) -> Result<&mut Page> {
        let missing = || Error::damaged("inode", format!("inode {ino} block {index}"), "not in memory");
        let page = self.state(ino).pages.get_mut(&index).ok_or_else(missing)?;
        if !std::mem::replace(&mut page.dirty, true) {
            self.count_dirty_page(ino);
        }
        self.changed = true;
        self.state(ino).pages.get_mut(&index).ok_or_else(missing)
    }

    /// Counts one more dirty page of an inode.
    fn count_dirty_page(&mut self, ino: Ino) {
        self.changed = true;
        let state = self.inodes.entry(ino).or_default();
        if state.dirty == 0 {
            self.dirty_inodes.insert(ino);
        }
        state.dirty += 1;
        *(if state.directory { &mut self.dirty_directory_pages } else { &mut self.dirty_file_pages }) += 1;
    }

    /// Forgets cached pages from `from` to `to` (exclusive): their blocks are being freed.
    pub(crate) fn drop_pages(&mut self, ino: Ino, from: FileBlock, to: FileBlock) {
        let Some(state) = self.inodes.get_mut(&ino) else { return };
        let gone: Vec<FileBlock> = state.pages.range(from..to).map(|(index, _)| *index).collect();
        for index in gone {
            if state.pages.remove(&index).is_some_and(|page| page.dirty) {
                self.changed = true;
                state.dirty -= 1;
                *(if state.directory { &mut self.dirty_directory_pages } else { &mut self.dirty_file_pages }) -= 1;
            }
        }
        if state.dirty == 0 {
            self.dirty_inodes.remove(&ino);
            self.ordered.remove(&ino);
        }
    }

    /// Records a clean directory page, and evicts the oldest over the budget.
    pub(crate) fn note_clean(&mut self, ino: Ino, index: FileBlock) {
        self.clean_pages.note(ino, index);
        let limit = (self.options.cache_bytes / 4 / BLOCK_SIZE).max(64);
        while let Some(oldest) = self.clean_pages.take_beyond(limit) {
            // A page that became clean more than once is listed as often: an old record must not evict the page just
            // read, whose absence would pass for a hole.
            if oldest == (ino, index) {
                continue;
            }
            let (ino, index) = oldest;
            if let Some(state) = self.inodes.get_mut(&ino)
                && state.pages.get(&index).is_some_and(|page| !page.dirty)
            {
                state.pages.remove(&index);
                if state.pages.is_empty() && state.lookups == 0 {
                    self.inodes.remove(&ino);
                }
            }
        }
    }

    /// Has the dirty pages of a file from block `from` on written before the next checkpoint; not those of one without a name, which is
    /// gone after a power cut.
    pub(crate) fn order_pages(&mut self, ino: Ino, from: FileBlock) {
        let is_dirty_file = self.inodes.get(&ino).is_some_and(|state| state.dirty > 0 && !state.directory);
        if is_dirty_file && !self.orphans.contains(&ino) {
            let first = self.ordered.entry(ino).or_insert(from);
            *first = from.min(*first);
        }
    }
}
