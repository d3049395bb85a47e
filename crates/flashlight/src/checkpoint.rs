//! Checkpoints: all that memory knows comes to the chip, and free blocks are chosen for what comes next.

use basalt_nand::NandDevice;

use crate::error::Result;
use crate::layout::header::{Area, HEADER};
use crate::layout::leaf::{Head, ROOT_BLOCKS, SECOND_LEAF, WINDOW};
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes, DIRECTORIES, FILES};
use crate::mutant::{self, Mutant};
use crate::volume::{FlashLight, KEPT, Log, Place};

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Writes all that is in memory only, then a checkpoint. What was freed before may be erased from then on.
    pub(crate) fn checkpoint(&mut self, clean: bool) -> Result<()> {
        let done = self.write_checkpoint(clean);
        // In the middle of it memory is ahead of the chip.
        self.stopped |= done.is_err();
        done
    }

    fn write_checkpoint(&mut self, clean: bool) -> Result<()> {
        self.flush_inodes()?;
        self.flush_table()?;
        self.write_counts()?;
        self.choose_window();
        self.write_leaf(clean)?;
        if mutant::active(Mutant::KeptBlocksUsed) {
            let left = self.window_left();
            self.state.window[self.window_used..][..left].rotate_right(KEPT.min(left));
        }
        self.since = 0;
        self.clean = clean;
        self.counters.checkpoints += 1;
        Ok(())
    }

    /// Says on the chip that a power cut needs recovery from now on. This comes before all else: in a log that went on from a checkpoint
    /// behind which nothing is written, a page that a cut has torn would not be known.
    pub(crate) fn open_for_writing(&mut self) -> Result<()> {
        let write = |volume: &mut Self| match mutant::active(Mutant::CleanLeafKept) {
            true => Ok(()),
            false => volume.write_leaf(false),
        };
        let done = self.keep_root().and_then(|()| write(self));
        self.stopped |= done.is_err();
        self.clean = false;
        done
    }

    /// Writes the inodes in memory.
    pub(crate) fn flush_inodes(&mut self) -> Result<()> {
        for slot in 0..FILES {
            self.flush_file(slot)?;
        }
        for slot in 0..DIRECTORIES {
            self.flush_directory(slot)?;
        }
        Ok(())
    }

    fn write_counts(&mut self) -> Result<()> {
        let per_page = self.geometry.page_bytes as usize - HEADER;
        for which in 0..self.memory.counts().len().div_ceil(per_page) {
            let end = self.memory.counts().len().min((which + 1) * per_page);
            self.work_mut().fill(0);
            let (work, counts) = self.memory.page_and_counts(Buffer::Work);
            let part = &counts[which * per_page..end];
            work[HEADER..HEADER + part.len()].copy_from_slice(part);
            self.state.counts[which] = self.append(Log::Counts, Buffer::Work, Area::Counts, 0, 0, which as u32)?;
        }
        Ok(())
    }

    /// Whether a block without a live page is needed all the same.
    pub(crate) fn is_needed(&self, block: u32) -> bool {
        let state = &self.state;
        let open = |head: &Head| head.block == block;
        let counts = |&page: &u32| page != NONE && self.geometry.block_of(page) == block;
        block < ROOT_BLOCKS
            || [self.leaf.block, self.second.block].contains(&block)
            || state.heads.iter().chain(&state.remnants).any(open)
            || self.files.iter().any(|file| open(&file.head))
            || self.retired.contains(&block)
            || state.counts.iter().any(counts)
    }

    /// Chooses the free blocks that are used until the next checkpoint: first those that were not used since the last one. Only these
    /// may be erased before the checkpoint is written, which may need one for itself.
    pub(crate) fn choose_window(&mut self) {
        let blocks = self.geometry.blocks;
        let (mut window, mut chosen) = ([NONE; WINDOW], 0);
        let left = if mutant::active(Mutant::FreedBeforeLeaf) { 0 } else { self.window_left() };
        window[..left].copy_from_slice(&self.state.window[self.window_used..self.window_used + left]);
        chosen += left;
        self.free = 0;
        for at in 0..blocks {
            let block = (self.state.cursor + at) % blocks;
            if self.memory.counts()[block as usize] != 0 || self.is_needed(block) {
                continue;
            }
            self.free += 1;
            if chosen < WINDOW && !window[..left].contains(&block) {
                window[chosen] = block;
                chosen += 1;
            }
        }
        if let Some(&last) = window[..chosen].last() {
            self.state.cursor = (last + 1) % blocks;
        }
        self.set_window(window);
    }

    fn write_leaf(&mut self, clean: bool) -> Result<()> {
        let before = self.leaf.block;
        self.work = NONE;
        let (state, work) = (&self.state, self.memory.page_mut(Buffer::Work));
        state.write(work, clean);
        self.append_to(Place::Leaf, Buffer::Work, Area::Leaf, 0, 0, 0)?;
        if self.leaf.block == before {
            return Ok(());
        }
        if mutant::active(Mutant::LeafErasedEarly) && before != NONE {
            self.erase_root(before)?;
        }
        let (before, leaf) = (self.second.block, self.leaf.block);
        self.work_mut().fill(0);
        self.work_mut().set_u32(SECOND_LEAF, leaf);
        self.append_to(Place::Second, Buffer::Work, Area::Second, 0, 0, 0)?;
        if mutant::active(Mutant::SecondErasedEarly) && ![NONE, self.second.block].contains(&before) {
            self.erase_root(before)?;
        }
        if self.second.block == before { Ok(()) } else { self.write_root() }
    }
}
