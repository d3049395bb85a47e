//! The page cache: file and directory blocks in memory, by inode and block.
//!
//! File pages live here only while dirty: whoever reads through the mount has the kernel's cache in front. Directory
//! pages stay after writeback, within the budget.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use basalt_segments::BlockTraits;

use crate::error::{Error, Result};
use crate::layout::{BLOCK_SIZE, NEW_ADDR, NULL_ADDR, RawBlock};
use crate::node::path::Mapped;
use crate::volume::Volume;

/// One cached block.
pub struct Page {
    /// Its bytes.
    pub block: Box<RawBlock>,
    /// Whether it must still be written.
    pub dirty: bool,
}

/// What is known about an inode in use, beyond its node.
#[derive(Default)]
pub struct InodeState {
    /// References given out and not yet given back.
    pub lookups: u64,
    /// Cached blocks, by block of the file.
    pub pages: BTreeMap<u32, Page>,
    /// How many of them are dirty.
    pub dirty: usize,
    /// Dirty pages count as directory pages.
    pub directory: bool,
}

/// Clean directory pages, oldest first.
#[derive(Default)]
pub struct CleanPages {
    order: VecDeque<(u32, u32)>,
}

impl Volume {
    /// The state of an inode, made if missing.
    pub(crate) fn state(&mut self, ino: u32) -> &mut InodeState {
        self.inodes.entry(ino).or_default()
    }

    /// A cached page, read from the volume if needed; `None` for a hole.
    pub(crate) fn page(&mut self, ino: u32, index: u32) -> Result<Option<&mut Page>> {
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
    pub(crate) fn page_mut(&mut self, ino: u32, index: u32) -> Result<&mut Page> {
        self.reserve_block(ino, index)?;
        if !self.state(ino).pages.contains_key(&index) && self.page(ino, index)?.is_none() {
            self.state(ino).pages.insert(index, Page { block: RawBlock::zeroed(), dirty: false });
        }
        self.mark_page_dirty(ino, index)
    }

    /// Puts a whole page in place, dirty; its block must be reserved.
    pub(crate) fn put_page(&mut self, ino: u32, index: u32, bytes: &[u8; BLOCK_SIZE]) {
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

    fn mark_page_dirty(&mut self, ino: u32, index: u32) -> Result<&mut Page> {
        let missing = || Error::damaged("inode", format!("inode {ino} block {index}"), "not in memory");
        let page = self.state(ino).pages.get_mut(&index).ok_or_else(missing)?;
        if !std::mem::replace(&mut page.dirty, true) {
            self.count_dirty_page(ino);
        }
        self.changed = true;
        self.state(ino).pages.get_mut(&index).ok_or_else(missing)
    }

    /// Counts one more dirty page of an inode.
    fn count_dirty_page(&mut self, ino: u32) {
        self.changed = true;
        let state = self.inodes.entry(ino).or_default();
        if state.dirty == 0 {
            self.dirty_inodes.insert(ino);
        }
        state.dirty += 1;
        *(if state.directory { &mut self.dirty_directory_pages } else { &mut self.dirty_file_pages }) += 1;
    }

    /// Forgets cached pages from `from` to `to` (exclusive): their blocks are being freed.
    pub(crate) fn drop_pages(&mut self, ino: u32, from: u32, to: u32) {
        let Some(state) = self.inodes.get_mut(&ino) else { return };
        let gone: Vec<u32> = state.pages.range(from..to).map(|(index, _)| *index).collect();
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
    pub(crate) fn note_clean(&mut self, ino: u32, index: u32) {
        self.clean_pages.order.push_back((ino, index));
        let limit = (self.options.cache_bytes / 4 / BLOCK_SIZE).max(64);
        while self.clean_pages.order.len() > limit {
            let Some(oldest) = self.clean_pages.order.pop_front() else { return };
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

    /// The address of a file block: [`NULL_ADDR`] for a hole, [`NEW_ADDR`] if reserved only.
    pub(crate) fn address(&mut self, ino: u32, index: u64) -> Result<u32> {
        match self.map(ino, index, false)? {
            Mapped::Slot(slot) => Ok(self.node(slot.nid)?.pointer(slot.byte)),
            Mapped::Hole(_) => Ok(NULL_ADDR),
        }
    }

    /// Reads a block of a file from the volume; `None` for a hole or a block never written.
    pub(crate) fn read_file_block(&mut self, ino: u32, index: u32) -> Result<Option<Box<RawBlock>>> {
        match self.address(ino, u64::from(index))? {
            NULL_ADDR => Ok(None),
            NEW_ADDR => Ok(Some(RawBlock::zeroed())),
            address => {
                self.check_data_address(ino, address)?;
                self.read_block(address).map(Some)
            }
        }
    }

    /// Fails if a data block's address is outside the main area.
    pub(crate) fn check_data_address(&self, ino: u32, address: u32) -> Result<()> {
        if self.geometry.in_main(address) {
            return Ok(());
        }
        Err(Error::damaged("node", format!("inode {ino}"), format!("block address {address} outside the main area")))
    }

    /// What placement may know about the first block of an inode's data.
    pub(crate) fn data_traits(&mut self, ino: u32) -> Result<BlockTraits> {
        use crate::layout::inode::Advise;
        let of_directory = self.is_directory(ino)?;
        let advise = Advise::from_bits_truncate(self.inode(ino)?.i_advise);
        Ok(BlockTraits {
            of_directory,
            cold: advise.contains(Advise::COLD),
            hot: advise.contains(Advise::HOT),
            file: ino,
            ..BlockTraits::default()
        })
    }
}
