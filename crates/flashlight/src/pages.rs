//! How pages come to the chip and back.

use basalt_nand::{NandDevice, NandError, ReadStatus};

use crate::error::{Error, Result};
use crate::layout::header::{Area, Header};
use crate::layout::inode::{self, Inode};
use crate::layout::leaf::Head;
use crate::layout::tag::{TAG, Tag};
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::mutant::{self, Mutant};
use crate::volume::{BAD, FlashLight, Log, MOST_SPARE, Place, Source, count_dead};

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// What stands beside a page, as the chip has it; `None` too where it cannot be read.
    pub(crate) fn tag(&mut self, page: u32) -> Result<Option<Tag>> {
        let mut spare = [0; MOST_SPARE];
        let spare = &mut spare[..self.geometry.spare_bytes as usize];
        match self.device.read(page, &mut [], spare) {
            Ok(_) => Ok(Tag::of(spare)),
            Err(NandError::Uncorrectable { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Programs the next page of a log, in another block if it has to be. Says where it is.
    pub(crate) fn program(&mut self, place: Place, source: Source<'_>, serial: u32, offset: u32) -> Result<u32> {
        self.check_running()?;
        let mut spare = [0xFF; MOST_SPARE];
        let whole = self.geometry.spare_bytes as usize;
        loop {
            let mut head = *self.head(place);
            if head.block == NONE || head.next == self.geometry.pages_per_block {
                head = self.open_block(matches!(place, Place::Leaf | Place::Second))?;
                *self.head(place) = head;
            }
            let page = self.geometry.first_page(head.block) + head.next;
            spare[..TAG].copy_from_slice(&Tag { serial, offset, erases: head.erases }.bytes());
            let bytes = match source {
                Source::Buffer(buffer) => self.memory.page(buffer),
                Source::Bytes(bytes) => bytes,
            };
            match self.device.program(page, bytes, &spare[..whole]) {
                Ok(()) => {
                    self.head(place).next += 1;
                    self.counters.data += u64::from(serial != NONE);
                    return Ok(page);
                }
                Err(NandError::ProgramFailed { .. }) => {
                    *self.head(place) = Head::CLOSED;
                    self.retire(head.block)?;
                }
                Err(error) => return Err(self.stop(error)),
            }
        }
    }

    /// A program failed: what the block holds is moved before the next change.
    fn retire(&mut self, block: u32) -> Result<()> {
        if mutant::active(Mutant::FailedBlockOnlyMarked) {
            return self.condemn(block);
        }
        match self.retired.iter_mut().find(|retired| **retired == NONE) {
            Some(free) => {
                *free = block;
                Ok(())
            }
            None => {
                self.stopped = true;
                Err(Error::Nand(NandError::ProgramFailed { page: self.geometry.first_page(block) }))
            }
        }
    }

    /// Writes a metadata page from memory to its log.
    pub(crate) fn append(
        &mut self,
        log: Log,
        buffer: Buffer,
        area: Area,
        flags: u8,
        owner: u32,
        which: u32,
    ) -> Result<u32> {
        let page = self.append_to(Place::Log(log), buffer, area, flags, owner, which)?;
        // Pages of counts are known by the checkpoint.
        if log != Log::Counts {
            self.live(page);
        }
        Ok(page)
    }

    pub(crate) fn append_to(
        &mut self,
        place: Place,
        buffer: Buffer,
        area: Area,
        flags: u8,
        owner: u32,
        which: u32,
    ) -> Result<u32> {
        self.sequence += 1;
        self.since += 1;
        self.counters.metadata += 1;
        let header = Header { area, flags, sequence: self.sequence, owner, which };
        header.seal(self.memory.page_mut(buffer), self.seed);
        let page = self.program(place, Source::Buffer(buffer), NONE, NONE)?;
        if buffer == Buffer::Work {
            self.work = page;
        }
        Ok(page)
    }

    /// A page is live.
    pub(crate) fn live(&mut self, page: u32) {
        let block = self.geometry.block_of(page) as usize;
        // What is not on the chip, or more than a block has, is said by a damaged page only.
        if let Some(count) = self.memory.counts_mut().get_mut(block).filter(|count| **count < BAD - 1) {
            *count += 1;
        }
    }

    /// Pages are live, as far as the chip has them.
    pub(crate) fn live_all(&mut self, page: u32, length: u32) {
        (page..page.saturating_add(length).min(self.geometry.pages())).for_each(|page| self.live(page));
    }

    /// Pages are live no longer.
    pub(crate) fn dead(&mut self, page: u32, length: u32) {
        count_dead(self.memory.counts_mut(), &self.geometry, page, length);
    }

    /// A page that may be absent is live no longer.
    pub(crate) fn dead_if_any(&mut self, page: u32) {
        if page != NONE {
            self.dead(page, 1);
        }
    }

    /// Reads a page into memory.
    pub(crate) fn read_page(&mut self, page: u32, buffer: Buffer) -> Result<()> {
        let status = self.device.read(page, self.memory.page_mut(buffer), &mut [])?;
        self.note_flips(page, status);
        Ok(())
    }

    /// Reads a page into the work page; says what stands beside it, with flipped bits set right.
    pub(crate) fn read_with_tag(&mut self, page: u32) -> Result<Option<Tag>> {
        let mut spare = [0; MOST_SPARE];
        let spare = &mut spare[..self.geometry.spare_bytes as usize];
        self.work = NONE;
        let status = self.device.read(page, self.memory.page_mut(Buffer::Work), spare)?;
        self.note_flips(page, status);
        Ok(Tag::of(spare))
    }

    /// Remembers a block in which almost as many bits have flipped as can be set right: it is emptied before the next change.
    pub(crate) fn note_flips(&mut self, page: u32, status: ReadStatus) {
        let ReadStatus::Corrected(flipped) = status else { return };
        if flipped + 1 < self.device.correctable().max(2) || mutant::active(Mutant::FlipsIgnored) {
            return;
        }
        let block = self.geometry.block_of(page);
        if !self.worn.contains(&block)
            && !self.stuck.contains(&block)
            && let Some(free) = self.worn.iter_mut().find(|worn| **worn == NONE)
        {
            *free = block;
        }
    }

    /// Reads a page, and checks that it is a metadata page of that area.
    pub(crate) fn read_metadata(&mut self, page: u32, buffer: Buffer, area: Area) -> Result<Header> {
        if page >= self.geometry.pages() {
            return Err(Error::Damaged { page, what: "it is beyond the end of the chip" });
        }
        if buffer != Buffer::Work && self.work == page {
            self.memory.copy_work(buffer);
        } else {
            self.read_page(page, buffer)?;
        }
        let header = Header::of(self.memory.page(buffer), self.seed);
        header
            .filter(|header| header.area == area)
            .ok_or(Error::Damaged { page, what: "its checksum or its kind is wrong" })
    }

    /// Reads an inode, and checks that it can be one.
    pub(crate) fn read_inode(&mut self, page: u32, buffer: Buffer, serial: u32, directory: bool) -> Result<()> {
        let area = if directory { Area::DirInode } else { Area::FileInode };
        let header = self.read_metadata(page, buffer, area)?;
        let inode = self.memory.page(buffer);
        if header.owner != serial || !inode.is_sound() || inode.is_directory() != directory {
            return Err(Error::Damaged { page, what: "it is not the inode that it should be" });
        }
        Ok(())
    }

    /// The next page of an inode in memory is no rename: only the page that was one says where it came from.
    pub(crate) fn forget_origin(&mut self, buffer: Buffer) {
        let inode = self.memory.page_mut(buffer);
        inode.set_u32(inode::FROM_DIR, NONE);
        inode.set_u32(inode::FROM_KEY, NONE);
    }

    /// Has a metadata page in the work page.
    pub(crate) fn load_work(&mut self, page: u32, area: Area) -> Result<()> {
        if self.work == page && self.memory.page(Buffer::Work)[0] == area as u8 {
            return Ok(());
        }
        self.work = NONE;
        self.read_metadata(page, Buffer::Work, area)?;
        self.work = page;
        Ok(())
    }

    /// The work page, to be changed: it is no longer what the chip has.
    pub(crate) fn work_mut(&mut self) -> &mut [u8] {
        self.work = NONE;
        self.memory.page_mut(Buffer::Work)
    }
}
