//! The page cache: which blocks of files and directories are in memory, which of them are dirty, and who uses their inodes.
//!
//! [`Pages`] alone changes its counts and lists, so they agree: the dirty pages of each inode, those of all files and of all directories,
//! the list of dirty inodes, and the list of those that the next checkpoint has to have. What pages hold, and where they are written, is
//! decided above.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::layout::node::ADDRS_PER_NODE;
use crate::layout::{BLOCK_SIZE, FileBlock, Ino, RawBlock};

/// Clean directory pages that may stay in any case, however small the byte budget is.
const CLEAN_MIN: usize = 64;

/// Blocks that an inode points to itself at the least: its extended attributes may take nearly all of it.
const IN_INODE: u32 = 1;

/// One cached block.
pub struct Page {
    /// Its bytes.
    pub block: Box<RawBlock>,
    /// Whether it must still be written.
    dirty: bool,
}

/// What is known about an inode in use, beyond its node.
#[derive(Default)]
struct InodeState {
    /// References given out and not yet given back.
    lookups: u64,
    /// Cached blocks, by block of the file.
    pages: BTreeMap<FileBlock, Page>,
    /// Those of them that are dirty.
    dirty: DirtyOf,
}

/// The dirty pages of one inode.
#[derive(Default)]
struct DirtyOf {
    count: usize,
    /// Behind the last one that there was since there were none.
    end: FileBlock,
    /// They count as directory pages.
    is_directory: bool,
}

impl DirtyOf {
    /// Nodes that point to them, at most: each to at least one of them, and none lies behind the last.
    fn nodes(&self) -> usize {
        let behind_inode = self.end.get().saturating_sub(IN_INODE);
        self.count.min(1 + behind_inode.div_ceil(ADDRS_PER_NODE) as usize)
    }
}

/// The dirty pages of all inodes: how many, and whose.
#[derive(Default)]
struct Dirty {
    /// Nodes that point to them, at most.
    nodes: usize,
    /// Pages of files.
    of_files: usize,
    /// Pages of directories.
    of_directories: usize,
    /// Inodes that have any.
    inodes: BTreeSet<Ino>,
    /// Of these, files whose pages, from this one on, no checkpoint may leave in memory.
    ordered: BTreeMap<Ino, FileBlock>,
}

impl Dirty {
    /// Pages of all files, or of all directories.
    fn of(&mut self, is_directory: bool) -> &mut usize {
        if is_directory { &mut self.of_directories } else { &mut self.of_files }
    }

    /// Page `index` of an inode is dirty too.
    fn add(&mut self, ino: Ino, of_inode: &mut DirtyOf, index: FileBlock) {
        let nodes = of_inode.nodes();
        if of_inode.count == 0 {
            self.inodes.insert(ino);
            of_inode.end = FileBlock::FIRST;
        }
        of_inode.count += 1;
        of_inode.end = of_inode.end.max(index.saturating_add(1));
        self.nodes += of_inode.nodes() - nodes;
        *self.of(of_inode.is_directory) += 1;
    }

    /// So many fewer are dirty of an inode.
    fn subtract(&mut self, ino: Ino, of_inode: &mut DirtyOf, count: usize) {
        let nodes = of_inode.nodes();
        of_inode.count -= count;
        self.nodes -= nodes - of_inode.nodes();
        *self.of(of_inode.is_directory) -= count;
        if of_inode.count == 0 {
            self.inodes.remove(&ino);
            self.ordered.remove(&ino);
        }
    }
}

/// The cached blocks of all inodes in use.
pub struct Pages {
    inodes: FxHashMap<Ino, InodeState>,
    dirty: Dirty,
    /// Clean directory pages, oldest first. A page that became clean more than once is listed as often.
    clean: VecDeque<(Ino, FileBlock)>,
    /// How long that list may be.
    clean_max: usize,
    /// Where writeback goes on when it does not write everything: inode and page.
    written_to: (Ino, FileBlock),
}

impl Pages {
    /// An empty cache on a volume whose byte budget is `cache_bytes`: a quarter is for clean directory pages.
    pub fn new(cache_bytes: usize) -> Pages {
        Pages {
            inodes: FxHashMap::default(),
            dirty: Dirty::default(),
            clean: VecDeque::new(),
            clean_max: (cache_bytes / 4 / BLOCK_SIZE).max(CLEAN_MIN),
            written_to: (Ino::NONE, FileBlock::FIRST),
        }
    }

    /// Dirty pages, all of them.
    pub fn dirty_pages(&self) -> usize {
        self.dirty.of_files + self.dirty.of_directories
    }

    /// Nodes that point to dirty pages, at most: writing these back makes so many dirty.
    pub fn nodes_of_dirty(&self) -> usize {
        self.dirty.nodes
    }

    /// Dirty pages of files.
    pub fn dirty_file_pages(&self) -> usize {
        self.dirty.of_files
    }

    /// Dirty pages of directories.
    pub fn dirty_directory_pages(&self) -> usize {
        self.dirty.of_directories
    }

    /// Dirty pages of one inode.
    pub fn dirty_pages_of(&self, ino: Ino) -> usize {
        self.inodes.get(&ino).map_or(0, |state| state.dirty.count)
    }

    /// A cached page, if it is in memory.
    pub fn cached(&self, ino: Ino, index: FileBlock) -> Option<&Page> {
        self.inodes.get(&ino)?.pages.get(&index)
    }

    /// Whether a page is in memory.
    pub fn has_page(&self, ino: Ino, index: FileBlock) -> bool {
        self.cached(ino, index).is_some()
    }

    /// Whether a page is in memory and must still be written.
    pub fn has_dirty_page(&self, ino: Ino, index: FileBlock) -> bool {
        self.cached(ino, index).is_some_and(|page| page.dirty)
    }
}

/// Pages that come, change and go.
impl Pages {
    /// Takes in a page that was just read. That of a directory may push others out, never itself.
    pub fn add_clean(&mut self, ino: Ino, index: FileBlock, block: Box<RawBlock>, of_directory: bool) {
        let state = self.inodes.entry(ino).or_default();
        debug_assert!(!state.pages.contains_key(&index), "inode {ino} block {index} is in memory");
        state.pages.insert(index, Page { block, dirty: false });
        if of_directory {
            self.note_clean(ino, index);
        }
    }

    /// A page to change, dirty from now on; one of zeros where none is in memory.
    pub fn change(&mut self, ino: Ino, index: FileBlock) -> &mut Page {
        let state = self.inodes.entry(ino).or_default();
        let page = state.pages.entry(index).or_insert_with(|| Page { block: RawBlock::zeroed(), dirty: false });
        if !std::mem::replace(&mut page.dirty, true) {
            self.dirty.add(ino, &mut state.dirty, index);
        }
        page
    }

    /// Puts a whole page in place, dirty; `copy` copies the bytes where none is in memory yet.
    pub fn replace(
        &mut self,
        ino: Ino,
        index: FileBlock,
        bytes: &[u8; BLOCK_SIZE],
        copy: impl FnOnce(&[u8; BLOCK_SIZE]) -> Box<RawBlock>,
    ) {
        let state = self.inodes.entry(ino).or_default();
        let was_dirty = match state.pages.entry(index) {
            Entry::Occupied(page) => {
                let page = page.into_mut();
                page.block.0.copy_from_slice(bytes);
                std::mem::replace(&mut page.dirty, true)
            }
            Entry::Vacant(place) => {
                place.insert(Page { block: copy(bytes), dirty: true });
                false
            }
        };
        if !was_dirty {
            self.dirty.add(ino, &mut state.dirty, index);
        }
    }

    /// Forgets pages from `from` to `to` (exclusive); whether any of them was dirty.
    pub fn discard(&mut self, ino: Ino, from: FileBlock, to: FileBlock) -> bool {
        let Some(state) = self.inodes.get_mut(&ino) else { return false };
        let dirty = state.pages.extract_if(from..to, |_, _| true).filter(|(_, page)| page.dirty).count();
        self.dirty.subtract(ino, &mut state.dirty, dirty);
        dirty > 0
    }

    /// Records a clean directory page, and evicts the oldest over the budget.
    fn note_clean(&mut self, ino: Ino, index: FileBlock) {
        self.clean.push_back((ino, index));
        while self.clean.len() > self.clean_max
            && let Some(oldest) = self.clean.pop_front()
        {
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
                self.forget_unused(ino);
            }
        }
    }
}

/// Who uses an inode.
impl Pages {
    /// Counts one reference on an inode.
    pub fn hold(&mut self, ino: Ino, is_directory: bool) {
        self.set_directory(ino, is_directory);
        self.inodes.entry(ino).or_default().lookups += 1;
    }

    /// Takes back references on an inode: how many are left, `None` if nothing is known of it.
    pub fn let_go(&mut self, ino: Ino, count: u64) -> Option<u64> {
        let state = self.inodes.get_mut(&ino)?;
        state.lookups = state.lookups.saturating_sub(count);
        Some(state.lookups)
    }

    /// Whether anybody has a reference on an inode.
    pub fn is_held(&self, ino: Ino) -> bool {
        self.inodes.get(&ino).is_some_and(|state| state.lookups > 0)
    }

    /// Says whether the pages of an inode are those of a directory.
    pub fn set_directory(&mut self, ino: Ino, is_directory: bool) {
        let state = self.inodes.entry(ino).or_default();
        let before = std::mem::replace(&mut state.dirty.is_directory, is_directory);
        if before != is_directory {
            *self.dirty.of(before) -= state.dirty.count;
            *self.dirty.of(is_directory) += state.dirty.count;
            // Every checkpoint writes the pages of directories.
            self.dirty.ordered.remove(&ino);
        }
    }

    /// Forgets what is known of an inode that nobody has a reference on, and that has no pages.
    pub fn forget_unused(&mut self, ino: Ino) {
        if self.inodes.get(&ino).is_some_and(|state| state.lookups == 0 && state.pages.is_empty()) {
            self.inodes.remove(&ino);
        }
    }

    /// Forgets an inode with all its pages and references; whether any page was dirty.
    pub fn forget_inode(&mut self, ino: Ino) -> bool {
        let Some(mut state) = self.inodes.remove(&ino) else { return false };
        let dirty = state.dirty.count;
        self.dirty.subtract(ino, &mut state.dirty, dirty);
        dirty > 0
    }
}

/// What is to be written, and in which order.
impl Pages {
    /// Has the dirty pages of a file from block `from` on written before the next checkpoint.
    pub fn order(&mut self, ino: Ino, from: FileBlock) {
        if self.inodes.get(&ino).is_some_and(|state| state.dirty.count > 0 && !state.dirty.is_directory) {
            let first = self.dirty.ordered.entry(ino).or_insert(from);
            *first = from.min(*first);
        }
    }

    /// A file with pages that the next checkpoint has to have, and the first of them.
    pub fn first_ordered(&self) -> Option<(Ino, FileBlock)> {
        self.dirty.ordered.first_key_value().map(|(&ino, &from)| (ino, from))
    }

    /// The pages of a file that the next checkpoint has to have are written: others of it may stay.
    pub fn note_ordered_written(&mut self, ino: Ino) {
        self.dirty.ordered.remove(&ino);
    }

    /// How many inodes have dirty pages.
    pub fn dirty_inode_count(&self) -> usize {
        self.dirty.inodes.len()
    }

    /// Of the inodes with dirty pages, the one with the lowest number.
    pub fn first_dirty_inode(&self) -> Option<Ino> {
        self.dirty.inodes.first().copied()
    }

    /// Inodes with dirty pages, by number.
    pub fn dirty_inodes(&self) -> Vec<Ino> {
        self.dirty.inodes.iter().copied().collect()
    }

    /// Directories with dirty pages, by number.
    pub fn dirty_directories(&self) -> Vec<Ino> {
        if self.dirty.of_directories == 0 {
            return Vec::new();
        }
        let is_directory = |ino: &&Ino| self.inodes.get(*ino).is_some_and(|state| state.dirty.is_directory);
        self.dirty.inodes.iter().filter(is_directory).copied().collect()
    }

    /// Where writeback goes on: an inode with dirty pages, and the page.
    pub fn next_to_write(&self) -> Option<(Ino, FileBlock)> {
        let (at, page) = self.written_to;
        let next = self.dirty.inodes.range(at..).next().or_else(|| self.dirty.inodes.first());
        next.map(|&ino| (ino, if ino == at { page } else { FileBlock::FIRST }))
    }

    /// Writeback goes on behind page `last` of an inode; without one, behind the inode.
    pub fn go_on_behind(&mut self, ino: Ino, last: Option<FileBlock>) {
        self.written_to = match last {
            Some(last) => (ino, last.saturating_add(1)),
            None => (ino.saturating_next(), FileBlock::FIRST),
        };
    }

    /// Takes all pages of an inode out to write dirty ones; `None` if it has none of these. They count as dirty until they are
    /// [put back](Self::put_back).
    pub fn take_out(&mut self, ino: Ino) -> Option<TakenPages> {
        let state = self.inodes.get_mut(&ino).filter(|state| state.dirty.count > 0)?;
        let pages = std::mem::take(&mut state.pages);
        Some(TakenPages { ino, pages, is_directory: state.dirty.is_directory, written: Vec::new() })
    }

    /// Takes pages in again that were [taken out](Self::take_out), and counts what was written meanwhile: which, in file order.
    pub fn put_back(&mut self, taken: TakenPages) -> Vec<FileBlock> {
        let TakenPages { ino, pages, is_directory, written } = taken;
        let state = self.inodes.entry(ino).or_default();
        debug_assert!(state.pages.is_empty(), "inode {ino} got pages while its own were taken out");
        state.pages = pages;
        // Counted, not looked for: a piece must not cost as much as all that waits.
        self.dirty.subtract(ino, &mut state.dirty, written.len());
        if is_directory {
            written.iter().for_each(|&index| self.note_clean(ino, index));
        } else {
            self.forget_unused(ino);
        }
        written
    }
}

/// All pages of one inode, out of the cache while dirty ones are written.
#[must_use = "pages that are not put back are lost"]
pub struct TakenPages {
    ino: Ino,
    pages: BTreeMap<FileBlock, Page>,
    is_directory: bool,
    written: Vec<FileBlock>,
}

impl TakenPages {
    /// Whether they are those of a directory, which stay in memory.
    pub fn are_of_directory(&self) -> bool {
        self.is_directory
    }

    /// Writes up to `most` dirty pages, from one on, in file order. They stay, clean; the one at which `write` fails stays dirty.
    pub fn write_each(
        &mut self,
        from: FileBlock,
        most: usize,
        mut write: impl FnMut(FileBlock, &RawBlock) -> Result<()>,
    ) -> Result<()> {
        for (&index, page) in self.pages.range_mut(from..).filter(|(_, page)| page.dirty).take(most) {
            write(index, &page.block)?;
            page.dirty = false;
            self.written.push(index);
        }
        Ok(())
    }

    /// The runs of neighbours among up to `most` dirty pages, from one on, in file order: the block behind each, and its length in pages.
    pub fn runs(&self, from: FileBlock, most: usize) -> Vec<(FileBlock, u32)> {
        let mut runs: Vec<(FileBlock, u32)> = Vec::new();
        for (&index, _) in self.pages.range(from..).filter(|(_, page)| page.dirty).take(most) {
            match runs.last_mut().filter(|(end, _)| *end == index) {
                Some((end, length)) => (*end, *length) = (index.saturating_add(1), *length + 1),
                None => runs.push((index.saturating_add(1), 1)),
            }
        }
        runs
    }

    /// Moves up to `most` dirty pages, from one on, in file order, to `hand`. The one with which that fails comes back, and stays.
    pub fn hand_over(
        &mut self,
        from: FileBlock,
        most: usize,
        mut hand: impl FnMut(FileBlock, Box<RawBlock>) -> std::result::Result<(), (Box<RawBlock>, Error)>,
    ) -> Result<()> {
        let mut kept = None;
        for (index, page) in self.pages.extract_if(from.., |_, page| page.dirty).take(most) {
            if let Err((block, error)) = hand(index, page.block) {
                kept = Some((index, block, error));
                break;
            }
            self.written.push(index);
        }
        let Some((index, block, error)) = kept else { return Ok(()) };
        self.pages.insert(index, Page { block, dirty: true });
        Err(error)
    }
}

#[cfg(test)]
mod tests;
