//! Cleaning: blocks with few live pages are emptied, and so are those that failed.
//!
//! A page is live if the index leads to it. Tags and headers say only where to ask. What was moved is erased behind the next checkpoint.

use basalt_nand::{NandDevice, NandError};

use crate::error::{Error, Result};
use crate::layout::NONE;
use crate::layout::extents::Extent;
use crate::layout::header::{Area, Header};
use crate::layout::leaf::{Head, ROOT_BLOCKS};
use crate::layout::tag::Tag;
use crate::memory::{Buffer, Bytes};
use crate::table::{INDEX, Located};
use crate::volume::{BAD, FlashLight, Log, Place, Source};

/// Free blocks that an operation finds at least when it begins, beside those that only recovery uses.
pub(crate) const AN_OPERATION: usize = 12;
/// Free blocks below which blocks are cleaned whatever it costs.
const FEW: u32 = 40;
/// Free blocks below which blocks are cleaned that gain half of themselves.
const SOME: u32 = 64;
/// Metadata pages behind which there is a checkpoint: a mount reads them after a power cut.
const MOST_SINCE: u32 = 448;

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Makes room for an operation; `pages` of data will be new. Errors: [`Error::NoSpace`], or an earlier error of the chip.
    pub(crate) fn make_room(&mut self, pages: u32) -> Result<()> {
        self.check_running()?;
        if self.clean {
            self.open_for_writing()?;
        }
        if self.retired.iter().any(|&block| block != NONE) {
            self.empty_retired()?;
        }
        if self.worn.iter().any(|&block| block != NONE) {
            self.empty_worn()?;
        }
        if pages > 0 && self.used_pages() + u64::from(pages) > self.capacity_pages() {
            return Err(Error::NoSpace);
        }
        if self.since >= MOST_SINCE || self.window_left() < self.an_operation() {
            self.checkpoint(false)?;
            if self.free < SOME {
                self.clean_some()?;
            }
        }
        if self.window_left() < self.an_operation() { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn an_operation(&self) -> usize {
        AN_OPERATION + crate::volume::KEPT
    }

    /// Live pages.
    pub(crate) fn used_pages(&self) -> u64 {
        self.memory.counts().iter().filter(|&&count| count != BAD).map(|&count| u64::from(count)).sum()
    }

    /// Pages that may be live at most: the rest is what cleaning, logs and failing blocks need.
    pub(crate) fn capacity_pages(&self) -> u64 {
        let good = self.memory.counts().iter().filter(|&&count| count != BAD).count() as u64;
        let reserve = u64::from(FEW + ROOT_BLOCKS) + 12 + u64::from(self.geometry.blocks / 50);
        good.saturating_sub(reserve) * u64::from(self.geometry.pages_per_block)
    }

    /// Empties blocks until enough are free, or none can be gained.
    fn clean_some(&mut self) -> Result<()> {
        let mut in_vain = 0;
        while self.free < SOME && in_vain < 3 {
            let before = self.free;
            let most = if before < FEW { self.geometry.pages_per_block } else { self.geometry.pages_per_block / 2 };
            let Some(first) = self.victim(most) else { break };
            self.empty(first)?;
            while self.window_left() > self.an_operation() / 2 + crate::volume::KEPT && self.since < MOST_SINCE {
                let Some(victim) = self.victim(most) else { break };
                self.empty(victim)?;
            }
            self.checkpoint(false)?;
            in_vain = if self.free > before { 0 } else { in_vain + 1 };
        }
        Ok(())
    }

    /// The block with the fewest live pages, if it has fewer than `most`.
    fn victim(&self, most: u32) -> Option<u32> {
        let counts = self.memory.counts();
        let candidates = (0..self.geometry.blocks).filter(|&block| (1..most).contains(&counts[block as usize].into()));
        let free = candidates.filter(|block| !self.is_needed(*block) && !self.stuck.contains(block));
        free.min_by_key(|&block| counts[block as usize])
    }

    /// Cleans up to so many blocks now, and writes a checkpoint; how many it emptied.
    pub fn clean(&mut self, blocks: u32) -> Result<u32> {
        self.make_room(0)?;
        let mut emptied = 0;
        while emptied < blocks {
            if self.since >= MOST_SINCE || self.window_left() < self.an_operation() {
                self.checkpoint(false)?;
            }
            match self.victim(self.geometry.pages_per_block) {
                Some(victim) if self.window_left() >= self.an_operation() => self.empty(victim)?,
                _ => break,
            }
            emptied += 1;
        }
        self.checkpoint(false)?;
        Ok(emptied)
    }

    /// Empties the blocks of which a program failed, and marks them bad.
    fn empty_retired(&mut self) -> Result<()> {
        for at in 0..self.retired.len() {
            let block = self.retired[at];
            if block == NONE {
                continue;
            }
            self.empty(block)?;
            self.flush_inodes()?;
            self.flush_table()?;
            self.retired[at] = NONE;
            if self.memory.counts()[block as usize] == 0 {
                self.condemn(block)?;
            }
        }
        // Marked blocks that are written over are no loss, so this checkpoint is not for safety: it says that they are bad.
        self.checkpoint(false)
    }

    /// Empties the blocks in which many bits have flipped.
    fn empty_worn(&mut self) -> Result<()> {
        for at in 0..self.worn.len() {
            let block = core::mem::replace(&mut self.worn[at], NONE);
            if block == NONE || self.is_bad(block) || self.stuck.contains(&block) {
                continue;
            }
            // Logs and levels of the checkpoint go on elsewhere.
            let closed = |head: &mut Head| {
                if head.block == block {
                    *head = Head::CLOSED;
                }
            };
            self.state.heads.iter_mut().chain(&mut self.state.remnants).for_each(closed);
            self.files.iter_mut().map(|file| &mut file.head).for_each(closed);
            for head in [&mut self.leaf, &mut self.second] {
                if head.block == block {
                    head.next = self.geometry.pages_per_block;
                }
            }
            if self.window_left() < self.an_operation() || self.since >= MOST_SINCE {
                self.checkpoint(false)?;
            }
            self.empty(block)?;
        }
        self.checkpoint(false)
    }

    /// Moves the live pages of a block. If fewer are found than were counted, the block stays as it is: it is never erased.
    fn empty(&mut self, block: u32) -> Result<()> {
        let first = self.geometry.first_page(block);
        for page in first..first + self.geometry.pages_per_block {
            if self.memory.counts()[block as usize] == 0 {
                break;
            }
            let moved = match self.tag(page)? {
                Some(tag) if tag.serial != NONE => self.move_data(page, tag)?,
                _ => self.move_metadata(page)?,
            };
            self.counters.moved += u64::from(moved);
        }
        self.counters.cleaned += 1;
        if self.memory.counts()[block as usize] != 0 {
            self.stuck.rotate_right(1);
            self.stuck[0] = block;
        }
        // What leads to the moved pages is written at last with the checkpoint.
        Ok(())
    }

    fn move_data(&mut self, page: u32, tag: Tag) -> Result<bool> {
        let slot = match self.file(tag.serial) {
            Ok(slot) => slot,
            Err(Error::NotFound | Error::IsADirectory) => return Ok(false),
            Err(error) => return Err(error),
        };
        if self.page_of(slot, tag.offset)? != page {
            return Ok(false);
        }
        self.work = NONE;
        if !is_readable(self.read_page(page, Buffer::Work))? {
            return Ok(false);
        }
        let new = self.program(Place::Log(Log::Moved), Source::Buffer(Buffer::Work), tag.serial, tag.offset)?;
        self.live(new);
        self.insert(slot, Extent { offset: tag.offset, page: new, length: 1 })?;
        Ok(true)
    }

    fn move_metadata(&mut self, page: u32) -> Result<bool> {
        self.work = NONE;
        if !is_readable(self.read_page(page, Buffer::Work))? {
            return Ok(false);
        }
        let Some(header) = Header::of(self.memory.page(Buffer::Work), self.seed) else { return Ok(false) };
        let owner = header.owner;
        match header.area {
            Area::FileInode => {
                let slot = self.files.iter().position(|file| file.serial == owner);
                let slot = match slot {
                    Some(slot) => slot,
                    None => match self.file(owner) {
                        Ok(slot) => slot,
                        Err(Error::NotFound | Error::IsADirectory) => return Ok(false),
                        Err(error) => return Err(error),
                    },
                };
                if self.files[slot].page != page {
                    return Ok(false);
                }
                self.files[slot].dirty = true;
                self.flush_file(slot)?;
                Ok(true)
            }
            Area::DirInode => {
                let leads = self.located(owner)? == Some(Located::Directory(page));
                let cached = self.directories.iter().any(|slot| slot.serial == owner && slot.page == page);
                if !leads && !cached {
                    return Ok(false);
                }
                let slot = self.directory(owner)?;
                self.directories[slot].dirty = true;
                self.flush_directory(slot)?;
                Ok(true)
            }
            Area::Bucket => self.move_bucket(owner, header.which, page),
            Area::ExtentMap => self.move_map(owner, header.which, page),
            Area::Table if header.flags == INDEX => {
                let Some(place) = self.state.table.iter().position(|&index| index == page) else { return Ok(false) };
                let new = self.append(Log::Table, Buffer::Work, Area::Table, INDEX, 0, place as u32)?;
                self.state.table[place] = new;
                self.dead(page, 1);
                Ok(true)
            }
            Area::Table => {
                if self.table_page(header.which)? != page {
                    return Ok(false);
                }
                let (entries, _) = self.table_entries();
                let first = header.which * entries;
                let located = self.located(first)?;
                self.set_located(first, located)?;
                self.flush_table()?;
                Ok(true)
            }
            Area::Root | Area::Second | Area::Leaf | Area::Counts => Ok(false),
        }
    }
}

/// Whether a page was read; `false`: too many of its bits have flipped.
fn is_readable(read: Result<()>) -> Result<bool> {
    match read {
        Ok(()) => Ok(true),
        Err(Error::Nand(NandError::Uncorrectable { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}
