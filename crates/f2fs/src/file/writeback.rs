//! Writeback: dirty pages get an address in the log of their class and go to the block writer.

use basalt_segments::{BlockTraits, LogId, Reason};

use super::cache::TakenPages;
use crate::error::{Error, Result};
use crate::layout::{Address, BLOCK_SIZE, FileBlock, Ino};
use crate::log::active::data_owner;
use crate::mutant::{self, Mutant};
use crate::node::path::{Mapped, Slot};
use crate::volume::Volume;

/// Pages that the placement hears of before they are written: what it reads for them has to stay in a processor's cache.
const AHEAD: usize = 256;

impl Volume {
    /// Writes the dirty pages of one inode, in file order.
    pub(crate) fn write_back(&mut self, ino: Ino, reason: Reason) -> Result<()> {
        self.write_back_from(ino, FileBlock::FIRST, usize::MAX, reason).map(|_| ())
    }

    /// Writes about `count` dirty pages, inode after inode and page after page, going on where the last call ended.
    pub(crate) fn write_back_some(&mut self, count: usize) -> Result<()> {
        let mut left = count;
        // Each dirty inode once, and the first a second time for the pages in front of where it was taken up.
        for _ in 0..=self.pages.dirty_inode_count() {
            let Some((ino, from)) = self.pages.next_to_write().filter(|_| left > 0) else { break };
            let written = self.write_back_from(ino, from, left, Reason::Writeback)?;
            left -= written.len();
            self.pages.go_on_behind(ino, written.last().copied().filter(|_| left == 0));
        }
        Ok(())
    }

    /// Writes up to `most` dirty pages, those first that [`write_back_all`](Self::write_back_all) writes first.
    pub(crate) fn write_back_first(&mut self, most: usize) -> Result<()> {
        let mut left = most;
        while left > 0
            && let Some(ino) = self.pages.first_dirty_inode()
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
        let Some(mut taken) = self.pages.take_out(ino) else { return Ok(Vec::new()) };
        let result = if taken.are_of_directory() {
            self.write_pages_out(ino, &mut taken, from, most)
        } else {
            self.hand_pages_over(ino, &mut taken, from, most, reason)
        };
        let written = self.pages.put_back(taken);
        result.map(|()| written)
    }

    /// Writes up to `most` dirty pages, from one on, that stay in the cache.
    fn write_pages_out(&mut self, ino: Ino, taken: &mut TakenPages, from: FileBlock, most: usize) -> Result<()> {
        let traits = self.data_traits(ino)?;
        let mut known = None;
        taken.write_each(from, most, |index, block| {
            let slot = self.slot_near(ino, index, &mut known)?;
            let traits = BlockTraits { index: index.get(), ..traits };
            self.write_data_block(ino, index, slot, &traits, &block.0)
        })
    }

    /// Moves up to `most` dirty pages, from one on, out of the cache into the block writer. The page at which that fails stays.
    fn hand_pages_over(
        &mut self,
        ino: Ino,
        taken: &mut TakenPages,
        from: FileBlock,
        most: usize,
        reason: Reason,
    ) -> Result<()> {
        let traits = BlockTraits { reason, ..self.data_traits(ino)? };
        let mut known = None;
        // By its type alone, a block's run does not matter.
        let runs = if self.placement.is_by_type_alone() { Vec::new() } else { taken.runs(from, most) };
        self.note_coming(ino, &runs);
        let mut runs = runs.into_iter();
        let (mut end, mut run) = (from, 0);
        taken.hand_over(from, most, |index, block| {
            if index >= end {
                (end, run) = runs.next().unwrap_or((FileBlock::END, 0));
            }
            let traits = BlockTraits { index: index.get(), run, ..traits };
            let slot = self.slot_near(ino, index, &mut known);
            match slot.and_then(|slot| self.make_way_for_block(ino, index, slot, &traits, &block.0)) {
                Ok(Some(log)) => self.writer.push(log.index(), block),
                Ok(None) => {}
                Err(error) => return Err((block, error)),
            }
            Ok(())
        })
    }

    /// Tells the placement where the first pages of these runs lie until now.
    fn note_coming(&mut self, ino: Ino, runs: &[(FileBlock, u32)]) {
        let mut places = Vec::with_capacity(AHEAD.min(runs.len()));
        let mut known = None;
        let pages = runs
            .iter()
            .flat_map(|&(end, length)| (1..=length).rev().map(move |before| FileBlock::new(end.get() - before)));
        for index in pages.take(AHEAD) {
            // Whoever writes the page meets the error.
            let Ok(slot) = self.slot_near(ino, index, &mut known) else { break };
            let Ok(node) = self.node(slot.nid) else { break };
            let address = node.address(slot.byte);
            if self.geometry.in_main(address) {
                places.push(self.geometry.main_block(address));
            }
        }
        if !places.is_empty() {
            self.placement.note_coming(&places);
        }
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
        self.checkpoint.since_mut().note_unsealed(address, bytes, Some((ino, index)));
        self.writer.make_way(&*self.device, log.index(), address)?;
        Ok(Some(log))
    }

    /// Gives a reserved block its place and points its slot there; the bytes are the caller's to write. Where the block lies until now, and
    /// which list its page is on, is found here, and needs not be in `traits`.
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
        let from = self.geometry.in_main(old).then(|| self.geometry.main_block(old));
        let list = self.page_lists.as_ref().and_then(|lists| lists.list(ino, index));
        let traits = BlockTraits { from, list, ..*traits };
        let (log, address) = self.place(&traits, data_owner(slot.nid, version, slot.index))?;
        // The journal tells recovery of a move of what recovery knows of.
        let is_known = |from| !self.table.is_fresh(from);
        let is_told = traits.reason == Reason::Cleaning && self.journal.is_on() && from.is_some_and(is_known);
        let node = self.node_mut(slot.nid)?;
        if is_told {
            node.lead(slot.byte, address);
        } else {
            node.set_address(slot.byte, address);
        }
        if self.table.tracks_durability() {
            self.checkpoint.since_mut().note_placed(slot.nid, address);
        }
        self.record.wrote_data();
        if old != Address::NEW {
            self.invalidate(old)?;
        }
        Ok((log, address))
    }

    /// Writes dirty directory pages, all of them.
    pub(crate) fn write_back_directories(&mut self) -> Result<()> {
        self.pages.dirty_directories().into_iter().try_for_each(|ino| self.write_back(ino, Reason::Writeback))
    }

    /// Writes all dirty pages, files first in order of their inode number.
    pub(crate) fn write_back_all(&mut self) -> Result<()> {
        self.pages.dirty_inodes().into_iter().try_for_each(|ino| self.write_back(ino, Reason::Writeback))
    }
}

fn not_reserved(ino: Ino, index: FileBlock) -> Error {
    Error::damaged("inode", format!("inode {ino} block {index}"), "dirty, but no block is reserved")
}
