//! Cleaning: blocks with few live pages are emptied, and so are those that failed.
//!
//! A page is live if the index leads to it. Tags and headers say only where to ask. What was moved is erased behind the next checkpoint.

use basalt_nand::{NandDevice, NandError};

use crate::error::{Error, Result};
use crate::layout::NONE;
use crate::layout::extents::Extent;
use crate::layout::header::{Area, Header};
use crate::layout::inode::Inode;
use crate::layout::leaf::{Head, ROOT_BLOCKS};
use crate::layout::tag::Tag;
use crate::memory::{Buffer, Bytes};
use crate::mutant::{self, Mutant};
use crate::table::{INDEX, Located};
use crate::volume::{BAD, FlashLight, KEPT, Log, Place, Source};

/// Free blocks that an operation finds at least which makes room, beside those that only recovery uses.
const TO_FREE: usize = 8;
/// Free blocks that any other operation finds at least.
pub(crate) const TO_CHANGE: usize = 20;
/// Free blocks below which blocks are cleaned whatever it costs.
const FEW: u32 = 48;
/// Free blocks below which blocks are cleaned that gain half of themselves.
const SOME: u32 = 72;
/// How often blocks are cleaned for one operation at most.
const ROUNDS: u32 = 16;

/// Metadata pages behind which there is a checkpoint, on any chip.
const MOST_SINCE: u32 = 110;
/// Blocks that are cleaned between two checkpoints at most.
const AT_ONCE: u32 = 64;
/// Blocks that have to be used before cleaning is tried again that was in vain.
const AGAIN: u32 = 4;
/// Live pages and free blocks when cleaning was in vain: more of both than there can be.
pub(crate) const NEVER_IN_VAIN: (u64, u32) = (u64::MAX, u32::MAX);

/// What an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// It adds so many pages.
    Grow(u32),
    /// It changes what there is.
    Change,
    /// It makes room, or makes what was changed outlast a power cut: on a full chip it still has room.
    Free,
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Makes room for an operation. Errors: [`Error::NoSpace`], or an earlier error of the chip.
    pub(crate) fn make_room(&mut self, room: Room) -> Result<()> {
        self.check_running()?;
        if self.clean {
            self.open_for_writing()?;
        }
        let is_held_back = !mutant::active(Mutant::NoReserve);
        let needed = KEPT + if room == Room::Free && is_held_back { TO_FREE } else { TO_CHANGE };
        if self.since >= self.most_since() || self.window_left() < needed {
            self.checkpoint(false)?;
        }
        if self.retired.iter().any(|&block| block != NONE) {
            self.empty_retired()?;
        }
        if self.worn.iter().any(|&block| block != NONE) {
            self.empty_worn()?;
        }
        if self.free >= FEW {
            self.level()?;
        }
        if let Room::Grow(pages) = room
            && self.used_pages() + u64::from(pages) > self.capacity_pages()
        {
            return Err(Error::NoSpace);
        }
        if self.free < SOME && self.window_left() < KEPT + SOME as usize / 2 {
            self.clean_some()?;
        }
        if self.window_left() < needed { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Metadata pages behind which there is a checkpoint: a mount reads each of them about four times after a power cut, and at most 680 pages
    /// in all of small files; and the blocks that are kept for it have room for seven times as many.
    fn most_since(&self) -> u32 {
        (KEPT as u32 * self.geometry.pages_per_block / 7).min(MOST_SINCE)
    }

    /// Live pages.
    pub(crate) fn used_pages(&self) -> u64 {
        self.memory.counts().iter().filter(|&&count| count != BAD).map(|&count| u64::from(count)).sum()
    }

    /// Pages that may be live at most: the rest is what cleaning, logs and failing blocks need.
    pub(crate) fn capacity_pages(&self) -> u64 {
        let good = self.memory.counts().iter().filter(|&&count| count != BAD).count() as u64;
        let reserve = u64::from(FEW + ROOT_BLOCKS) + 12 + u64::from(self.geometry.blocks / 50);
        let reserve = if mutant::active(Mutant::NoReserve) { 0 } else { reserve };
        good.saturating_sub(reserve) * u64::from(self.geometry.pages_per_block)
    }

    /// Empties blocks until enough are free, or none can be gained.
    fn clean_some(&mut self) -> Result<()> {
        // It was in vain when hardly more pages were live, and hardly more blocks were free.
        let (used, free) = self.in_vain;
        if self.used_pages() + u64::from(self.geometry.pages_per_block) > used && self.free + AGAIN > free {
            return Ok(());
        }
        let (mut best, mut in_vain) = (self.free, 0);
        for _ in 0..ROUNDS {
            let full = self.geometry.pages_per_block;
            let most = if self.free < FEW { full } else { full / 2 };
            let mut emptied = 0;
            while emptied < AT_ONCE && self.window_left() >= KEPT + TO_FREE && self.since < self.most_since() {
                let Some(victim) = self.victim(most) else { break };
                self.empty(victim)?;
                emptied += 1;
            }
            self.checkpoint(false)?;
            in_vain = if self.free > best { 0 } else { in_vain + 1 };
            best = best.max(self.free);
            if self.free >= SOME || emptied == 0 || in_vain == 2 {
                break;
            }
        }
        self.in_vain = if self.free < SOME { (self.used_pages(), self.free) } else { NEVER_IN_VAIN };
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
        self.make_room(Room::Free)?;
        let mut emptied = 0;
        while emptied < blocks {
            if self.since >= self.most_since() || self.window_left() < KEPT + TO_CHANGE {
                self.checkpoint(false)?;
            }
            match self.victim(self.geometry.pages_per_block) {
                Some(victim) if self.window_left() >= KEPT + TO_CHANGE => self.empty(victim)?,
                _ => break,
            }
            emptied += 1;
        }
        self.checkpoint(false)?;
        Ok(emptied)
    }

    /// Empties the blocks of which a program failed, and marks them bad when no checkpoint needs them any more: a chip may lose what is in
    /// a marked block.
    fn empty_retired(&mut self) -> Result<()> {
        for at in 0..self.retired.len() {
            if self.retired[at] != NONE {
                self.empty(self.retired[at])?;
            }
        }
        self.checkpoint(false)?;
        for at in 0..self.retired.len() {
            let block = core::mem::replace(&mut self.retired[at], NONE);
            if block != NONE && self.memory.counts()[block as usize] == 0 {
                self.condemn(block)?;
            }
        }
        Ok(())
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
            self.empty(block)?;
        }
        self.checkpoint(false)
    }

    /// Moves the live pages of a block. If fewer are found than were counted, the block stays as it is: it is never erased.
    pub(crate) fn empty(&mut self, block: u32) -> Result<()> {
        let first = self.geometry.first_page(block);
        for page in first..first + self.geometry.pages_per_block {
            if self.memory.counts()[block as usize] == 0 {
                break;
            }
            // Between two pages all is as it should be.
            if self.since >= self.most_since() || self.window_left() < KEPT + TO_FREE {
                self.checkpoint(false)?;
            }
            let moved = match self.read_with_tag(page) {
                Ok(Some(tag)) if tag.serial != NONE => self.move_data(page, tag)?,
                Ok(_) => self.move_metadata(page)?,
                Err(Error::Nand(NandError::Uncorrectable { .. })) => false,
                Err(error) => return Err(error),
            };
            self.counters.moved += u64::from(moved);
        }
        self.counters.cleaned += 1;
        if mutant::active(Mutant::VictimErasedEarly) {
            self.erase_if_dead(first)?;
        }
        if mutant::active(Mutant::UnfoundErased) {
            self.memory.counts_mut()[block as usize] = 0;
        }
        if self.memory.counts()[block as usize] != 0 {
            self.stuck.rotate_right(1);
            self.stuck[0] = block;
        }
        // What leads to the moved pages is written at last with the checkpoint.
        Ok(())
    }

    /// Has a file in memory; `None` if there is no such file.
    fn file_if_there(&mut self, serial: u32) -> Result<Option<usize>> {
        match self.file(serial) {
            Ok(slot) => Ok(Some(slot)),
            Err(Error::NotFound | Error::IsADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn move_data(&mut self, page: u32, tag: Tag) -> Result<bool> {
        let Some(slot) = self.file_if_there(tag.serial)? else { return Ok(false) };
        if self.page_of(slot, tag.offset)? != page && !mutant::active(Mutant::StaleTagBelieved) {
            return Ok(false);
        }
        self.work = NONE;
        if !is_readable(self.read_page(page, Buffer::Work))? {
            return Ok(false);
        }
        let new = self.program(Place::Log(Log::Moved), Source::Buffer(Buffer::Work), tag.serial, tag.offset)?;
        self.live(new);
        self.insert_written(slot, Extent { offset: tag.offset, page: new, length: 1 })?;
        Ok(true)
    }

    /// The page is in the work page.
    fn move_metadata(&mut self, page: u32) -> Result<bool> {
        let Some(header) = Header::of(self.memory.page(Buffer::Work), self.seed) else { return Ok(false) };
        let owner = header.owner;
        match header.area {
            Area::FileInode => {
                let slot = self.files.iter().position(|file| file.serial == owner);
                let slot = match slot {
                    Some(slot) => Some(slot),
                    None => self.file_if_there(owner)?,
                };
                let Some(slot) = slot else { return Ok(false) };
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
            area @ (Area::ExtentMap | Area::ExtentLog) => self.move_index(area, owner, header.which, page),
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
                self.rewrite_table(header.which)?;
                Ok(true)
            }
            Area::Root | Area::Second | Area::Leaf | Area::Counts => Ok(false),
        }
    }

    /// Moves an extent map or the log of a region, if the file still leads to that page.
    fn move_index(&mut self, area: Area, serial: u32, which: u32, page: u32) -> Result<bool> {
        let Some(slot) = self.file_if_there(serial)? else { return Ok(false) };
        let inode = self.memory.page(Buffer::File(slot));
        let (pointer, end) = match area {
            Area::ExtentLog => (inode.maps().saturating_add(which as usize), inode.maps() + inode.regions()),
            _ => (which as usize, inode.maps()),
        };
        if inode.is_inline() || pointer >= end || inode.map(pointer) != page {
            return Ok(false);
        }
        self.load_work(page, area)?;
        let new = self.append(Log::Extent, Buffer::Work, area, 0, serial, which)?;
        self.memory.page_mut(Buffer::File(slot)).set_map(pointer, new);
        self.files[slot].dirty = true;
        self.dead(page, 1);
        Ok(true)
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
