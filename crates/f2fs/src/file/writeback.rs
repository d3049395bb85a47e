//! Writeback: dirty pages get an address in the log of their class and go to the block writer.

use std::collections::BTreeMap;

use basalt_segments::{BlockTraits, LogId, Reason};

use super::state::Page;
use crate::error::{Error, Result};
use crate::layout::{Address, BLOCK_SIZE, FileBlock, Ino};
use crate::log::active::data_owner;
use crate::mutant::{self, Mutant};
use crate::node::path::{Mapped, Slot};
use crate::volume::Volume;

impl Volume {
    /// Writes the dirty pages of one inode, in file order.
    pub(crate) fn write_back(&mut self, ino: Ino, reason: Reason) -> Result<()> {
        self.write_back_from(ino, FileBlock::FIRST, usize::MAX, reason).map(|_| ())
    }

    /// Writes about `count` dirty pages, inode after inode and page after page, going on where the last call ended.
    pub(crate) fn write_back_some(&mut self, count: usize) -> Result<()> {
        let mut left = count;
        // Each dirty inode once, and the first a second time for the pages in front of where it was taken up.
        for _ in 0..=self.dirty_inodes.len() {
            let (at, page) = self.written_to;
            let next = self.dirty_inodes.range(at..).next().or_else(|| self.dirty_inodes.first());
            let Some(&ino) = next.filter(|_| left > 0) else { break };
            let written =
                self.write_back_from(ino, if ino == at { page } else { FileBlock::FIRST }, left, Reason::Writeback)?;
            left -= written.len();
            self.written_to = match written.last() {
                Some(last) if left == 0 => (ino, last.saturating_add(1)),
                _ => (ino.saturating_next(), FileBlock::FIRST),
            };
        }
        Ok(())
    }

    /// Writes up to `most` dirty pages, those first that [`write_back_all`](Self::write_back_all) writes first.
    pub(crate) fn write_back_first(&mut self, most: usize) -> Result<()> {
        let mut left = most;
        while left > 0
            && let Some(&ino) = self.dirty_inodes.first()
        {
            left -= self.write_back_from(ino, FileBlock::FIRST, left, Reason::Writeback)?.len();
        }
        Ok(())
    }

    /// Writes up to `most` dirty pages of one inode, from page `from` on; which.
    pub(crate) fn write_back_from(
        &mut self,
        ino: Ino,
        from: FileBlock,
        most: usize,
        reason: Reason,
    ) -> Result<Vec<FileBlock>> {
        let mut written = Vec::new();
        let Some(state) = self.inodes.get_mut(&ino) else { return Ok(written) };
        if state.dirty == 0 {
            return Ok(written);
        }
        let directory = state.directory;
        let mut pages = std::mem::take(&mut state.pages);
        let result = if directory {
            let dirty = pages.range_mut(from..).filter(|(_, page)| page.dirty).take(most);
            self.write_pages_out(ino, dirty, &mut written)
        } else {
            self.hand_pages_over(ino, &mut pages, (from, most), reason, &mut written)
        };
        // Counted, not looked for: a piece must not cost as much as all that waits.
        let state = self.state(ino);
        state.dirty -= written.len();
        state.pages = pages;
        if state.dirty == 0 {
            self.dirty_inodes.remove(&ino);
            self.ordered.remove(&ino);
        }
        *(if directory { &mut self.dirty_directory_pages } else { &mut self.dirty_file_pages }) -= written.len();
        if directory {
            written.iter().for_each(|&index| self.note_clean(ino, index));
        } else if self.inodes.get(&ino).is_some_and(|state| state.lookups == 0 && state.pages.is_empty()) {
            self.inodes.remove(&ino);
        }
        result.map(|()| written)
    }

    /// Writes pages that stay in the cache.
    fn write_pages_out<'p>(
        &mut self,
        ino: Ino,
        pages: impl Iterator<Item = (&'p FileBlock, &'p mut Page)>,
        written: &mut Vec<FileBlock>,
    ) -> Result<()> {
        let traits = self.data_traits(ino)?;
        let mut known = None;
        for (&index, page) in pages {
            let slot = self.slot_near(ino, index, &mut known)?;
            let traits = BlockTraits { index: index.get(), ..traits };
            self.write_data_block(ino, index, slot, &traits, &page.block.0)?;
            page.dirty = false;
            written.push(index);
        }
        Ok(())
    }

    /// Moves up to `most` dirty pages, from one on, out of the cache into the block writer. The page at which that fails stays.
    fn hand_pages_over(
        &mut self,
        ino: Ino,
        pages: &mut BTreeMap<FileBlock, Page>,
        (from, most): (FileBlock, usize),
        reason: Reason,
        written: &mut Vec<FileBlock>,
    ) -> Result<()> {
        let traits = BlockTraits { reason, ..self.data_traits(ino)? };
        let mut known = None;
        let mut kept = None;
        for (index, page) in pages.extract_if(from.., |_, page| page.dirty).take(most) {
            let traits = BlockTraits { index: index.get(), ..traits };
            let slot = self.slot_near(ino, index, &mut known);
            match slot.and_then(|slot| self.make_way_for_block(ino, index, slot, &traits, &page.block.0)) {
                Ok(Some(log)) => self.writer.push(log.index(), page.block),
                Ok(None) => {}
                Err(error) => {
                    kept = Some((index, page, error));
                    break;
                }
            }
            written.push(index);
        }
        let Some((index, page, error)) = kept else { return Ok(()) };
        pages.insert(index, page);
        Err(error)
    }

    /// The slot of a reserved file block; `known` is that of one in front, if there was one. Neighbours share their node: it is
    /// looked up once.
    fn slot_near(&mut self, ino: Ino, index: FileBlock, known: &mut Option<(FileBlock, Slot)>) -> Result<Slot> {
        if let Some((first, slot)) = *known
            && index - first < slot.count
        {
            let further = index - first;
            return Ok(Slot { byte: slot.byte + 4 * further as usize, index: slot.index + further, ..slot });
        }
        match self.map(ino, index, false)? {
            Mapped::Slot(slot) => Ok(known.insert((index, slot)).1),
            Mapped::Hole(_) => Err(not_reserved(ino, index)),
        }
    }

    /// Writes one block of data to its log and points its slot there.
    pub(crate) fn write_data_block(
        &mut self,
        ino: Ino,
        index: FileBlock,
        slot: Slot,
        traits: &BlockTraits,
        bytes: &[u8; BLOCK_SIZE],
    ) -> Result<()> {
        if let Some(log) = self.make_way_for_block(ino, index, slot, traits, bytes)? {
            let block = self.writer.copy_of(bytes);
            self.writer.push(log.index(), block);
        }
        Ok(())
    }

    /// Points the slot of one block of data to its place, and returns the log to whose run the block must be added next. `None` where a
    /// planted bug forgets that.
    fn make_way_for_block(
        &mut self,
        ino: Ino,
        index: FileBlock,
        slot: Slot,
        traits: &BlockTraits,
        bytes: &[u8; BLOCK_SIZE],
    ) -> Result<Option<LogId>> {
        let (log, address) = self.place_block(ino, index, slot, traits)?;
        if mutant::active(Mutant::StaleBlockExposed) && index.get() % 3 == 2 {
            return Ok(None);
        }
        self.since.unsealed.note(address, bytes);
        self.writer.make_way(&*self.device, log.index(), address)?;
        Ok(Some(log))
    }

    /// Gives a reserved block its place and points its slot there; the bytes are the caller's to write.
    pub(crate) fn place_block(
        &mut self,
        ino: Ino,
        index: FileBlock,
        slot: Slot,
        traits: &BlockTraits,
    ) -> Result<(LogId, Address)> {
        let old = self.node(slot.nid)?.address(slot.byte);
        if old == Address::NULL {
            return Err(not_reserved(ino, index));
        }
        // All that may have to be read is read before the block has its place.
        let version = self.nat_entry(slot.nid)?.version;
        if old != Address::NEW {
            self.forget_extent(ino)?;
        }
        self.node(slot.nid)?;
        let (log, address) = self.place(traits, data_owner(slot.nid, version, slot.index))?;
        self.node_mut(slot.nid)?.set_address(slot.byte, address);
        if self.journal.is_on() {
            self.since.note_placed(slot.nid, address);
        }
        self.counters.data_blocks += 1;
        if old != Address::NEW {
            self.invalidate(old)?;
        }
        Ok((log, address))
    }

    /// Writes dirty directory pages, all of them.
    pub(crate) fn write_back_directories(&mut self) -> Result<()> {
        if self.dirty_directory_pages == 0 {
            return Ok(());
        }
        let inodes: Vec<Ino> = self
            .dirty_inodes
            .iter()
            .copied()
            .filter(|ino| self.inodes.get(ino).is_some_and(|state| state.directory))
            .collect();
        inodes.into_iter().try_for_each(|ino| self.write_back(ino, Reason::Writeback))
    }

    /// Writes all dirty pages, files first in order of their inode number.
    pub(crate) fn write_back_all(&mut self) -> Result<()> {
        let inodes: Vec<Ino> = self.dirty_inodes.iter().copied().collect();
        inodes.into_iter().try_for_each(|ino| self.write_back(ino, Reason::Writeback))
    }
}

fn not_reserved(ino: Ino, index: FileBlock) -> Error {
    Error::damaged("inode", format!("inode {ino} block {index}"), "dirty, but no block is reserved")
}
