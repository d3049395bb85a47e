//! What files contain: in the inode while it fits, then in pages.

use basalt_nand::NandDevice;

use crate::error::{Error, Result};
use crate::layout::extents::{self, Extent};
use crate::layout::inode::{self, INLINE, Inode};
use crate::layout::leaf::Head;
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::mutant::{self, Mutant};
use crate::volume::{FlashLight, Log, Place, Source};

/// Files of so many pages have blocks of their own.
const OWN_BLOCKS: u64 = 32;

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Fills `bytes` from a file; the file is that long.
    pub(crate) fn read_pages(&mut self, slot: usize, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let page_bytes = self.geometry.page_bytes as usize;
        let inode = self.memory.page(Buffer::File(slot));
        if inode.is_inline() {
            let content = &inode[inode.body()..][..inode.count()];
            let at = (offset as usize).min(content.len());
            let length = bytes.len().min(content.len() - at);
            bytes[..length].copy_from_slice(&content[at..at + length]);
            bytes[length..].fill(0);
            return Ok(());
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = at as usize % page_bytes;
            let length = (page_bytes - within).min(bytes.len() - done);
            let page = self.look(slot, (at / page_bytes as u64) as u32)?.page;
            let part = &mut bytes[done..done + length];
            if page == NONE {
                part.fill(0);
            } else if length == page_bytes {
                let status = self.device.read(page, part, &mut [])?;
                self.note_flips(page, status);
            } else {
                self.work = NONE;
                self.read_page(page, Buffer::Work)?;
                part.copy_from_slice(&self.memory.page(Buffer::Work)[within..within + length]);
            }
            done += length;
        }
        Ok(())
    }

    /// Writes bytes to a file.
    pub(crate) fn write_pages(&mut self, slot: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        if self.write_inline(slot, offset, bytes) {
            return Ok(());
        }
        self.check_size(slot, end)?;
        self.spill(slot)?;
        let page_bytes = self.geometry.page_bytes as usize;
        let place = self.place_for(slot, end);
        let serial = self.files[slot].serial;
        // First: extents may leave the inode for maps, as many as the size asks for.
        let size = self.memory.page(Buffer::File(slot)).u64_at(inode::SIZE);
        self.fit(slot, size.max(end), 0)?;
        self.memory.page_mut(Buffer::File(slot)).set_u64(inode::SIZE, size.max(end));
        self.files[slot].dirty = true;
        let mut run = Extent { offset: 0, page: NONE, length: 0 };
        let (mut done, mut failed) = (0, Ok(()));
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, within) = ((at / page_bytes as u64) as u32, at as usize % page_bytes);
            let length = (page_bytes - within).min(bytes.len() - done);
            let part = &bytes[done..done + length];
            let source = if length == page_bytes {
                Source::Bytes(part)
            } else {
                // Where the rest of a page cannot be read, what was written before it stays.
                failed = self.fill_work(slot, number);
                if failed.is_err() {
                    break;
                }
                self.work_mut()[within..within + length].copy_from_slice(part);
                Source::Buffer(Buffer::Work)
            };
            let page = match self.program(place, source, serial, number) {
                Ok(page) => page,
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            };
            self.live(page);
            if run.length > 0 && run.page + run.length == page {
                run.length += 1;
            } else {
                self.insert_written(slot, run)?;
                run = Extent { offset: number, page, length: 1 };
            }
            done += length;
        }
        self.insert_written(slot, run)?;
        if failed.is_err() {
            let end = if done > 0 { size.max(offset + done as u64) } else { size };
            self.memory.page_mut(Buffer::File(slot)).set_u64(inode::SIZE, end);
        }
        failed
    }

    /// Lets a file lead to pages that were programmed; where its index cannot be read they are dead.
    pub(crate) fn insert_written(&mut self, slot: usize, run: Extent) -> Result<()> {
        if run.length == 0 {
            return Ok(());
        }
        let inserted = self.insert(slot, run);
        if inserted.is_err() {
            self.dead(run.page, run.length);
        }
        inserted
    }

    /// Whether the inode could lead to all pages of a file of that size, wherever they are.
    fn check_size(&self, slot: usize, size: u64) -> Result<()> {
        let fits = self.maps_for(self.memory.page(Buffer::File(slot)), size).is_some();
        if fits { Ok(()) } else { Err(Error::FileTooLarge) }
    }

    /// Has a page of a file in the work page, to be changed.
    fn fill_work(&mut self, slot: usize, number: u32) -> Result<()> {
        let page = self.look(slot, number)?.page;
        if page == NONE {
            self.work_mut().fill(0);
            return Ok(());
        }
        self.work = NONE;
        self.read_page(page, Buffer::Work)?;
        Ok(())
    }

    /// Bytes of content that the inode has room for.
    fn inline_room(&self, slot: usize) -> u64 {
        let inode = self.memory.page(Buffer::File(slot));
        (inode.len() - inode.body()) as u64
    }

    /// Writes to content in the inode, if it stays there.
    fn write_inline(&mut self, slot: usize, offset: u64, bytes: &[u8]) -> bool {
        let end = offset + bytes.len() as u64;
        let room = self.inline_room(slot);
        let inode = self.memory.page_mut(Buffer::File(slot));
        let inline = inode.is_inline() || inode.u64_at(inode::SIZE) == 0 && inode.maps() == 0;
        if !inline || end.max(inode.u64_at(inode::SIZE)) > room {
            return false;
        }
        let (body, old) = (inode.body(), inode.count() as u64);
        if end > old {
            inode[body + old as usize..body + end as usize].fill(0);
            inode.set_count(end as usize);
        }
        inode[body + offset as usize..body + end as usize].copy_from_slice(bytes);
        let flags = inode.u32_at(inode::FLAGS);
        inode.set_u32(inode::FLAGS, flags | INLINE);
        let size = inode.u64_at(inode::SIZE).max(end);
        inode.set_u64(inode::SIZE, size);
        self.files[slot].dirty = true;
        true
    }

    /// Moves content out of the inode.
    pub(crate) fn spill(&mut self, slot: usize) -> Result<()> {
        let inode = self.memory.page(Buffer::File(slot));
        if !inode.is_inline() {
            return Ok(());
        }
        let length = inode.count();
        self.work = NONE;
        let (work, inode) = self.memory.work_and(Buffer::File(slot));
        let body = inode.body();
        work.fill(0);
        work[..length].copy_from_slice(&inode[body..body + length]);
        let flags = inode.u32_at(inode::FLAGS);
        inode.set_u32(inode::FLAGS, flags & !INLINE);
        inode.set_count(0);
        self.files[slot].dirty = true;
        if length == 0 {
            return Ok(());
        }
        let place = self.place_for(slot, 0);
        let serial = self.files[slot].serial;
        let page = self.program(place, Source::Buffer(Buffer::Work), serial, 0)?;
        self.live(page);
        self.insert(slot, Extent { offset: 0, page, length: 1 })
    }

    /// Sets a file's length. What a shorter file loses does not come back.
    pub(crate) fn set_file_length(&mut self, slot: usize, length: u64) -> Result<()> {
        let page_bytes = u64::from(self.geometry.page_bytes);
        let room = self.inline_room(slot);
        let inode = self.memory.page_mut(Buffer::File(slot));
        let old = inode.u64_at(inode::SIZE);
        if length > old {
            self.check_size(slot, length)?;
        }
        self.files[slot].dirty = true;
        let inode = self.memory.page_mut(Buffer::File(slot));
        if inode.is_inline() && length <= room {
            let (body, count) = (inode.body(), inode.count());
            if length as usize > count {
                inode[body + count..body + length as usize].fill(0);
            }
            inode.set_count(length as usize);
            inode.set_u64(inode::SIZE, length);
            return Ok(());
        }
        self.spill(slot)?;
        if length < old {
            self.cut(slot, self.pages_of(length) as u32)?;
            if !mutant::active(Mutant::TailNotZeroed) {
                self.zero_within(slot, length, length.next_multiple_of(page_bytes))?;
            }
        }
        if length > old {
            self.fit(slot, length, 0)?;
        }
        self.memory.page_mut(Buffer::File(slot)).set_u64(inode::SIZE, length);
        Ok(())
    }

    /// Zeroes bytes of one page of a file, if it has that page.
    pub(crate) fn zero_within(&mut self, slot: usize, from: u64, to: u64) -> Result<()> {
        let page_bytes = u64::from(self.geometry.page_bytes);
        let number = (from / page_bytes) as u32;
        if from >= to || self.look(slot, number)?.page == NONE {
            return Ok(());
        }
        let within = (from % page_bytes) as usize;
        self.fill_work(slot, number)?;
        self.work_mut()[within..within + (to - from) as usize].fill(0);
        let (place, serial) = (self.place_for(slot, from), self.files[slot].serial);
        let page = self.program(place, Source::Buffer(Buffer::Work), serial, number)?;
        self.live(page);
        self.insert_written(slot, Extent { offset: number, page, length: 1 })
    }

    /// Which log the data of a file go to that will be so long: large files have blocks of their own.
    fn place_for(&mut self, slot: usize, end: u64) -> Place {
        if self.files[slot].head.block != NONE {
            return Place::File(slot);
        }
        let mut recent = self.recent;
        recent.sort_unstable();
        let inode = self.memory.page(Buffer::File(slot));
        let pages = self.pages_of(inode.u64_at(inode::SIZE).max(end));
        if pages >= OWN_BLOCKS || u64::from(recent[recent.len() / 2]) >= OWN_BLOCKS {
            self.go_on(slot);
            return Place::File(slot);
        }
        let shared = self.state.heads[Log::Shared as usize];
        if shared.block == NONE || shared.next == self.geometry.pages_per_block {
            // The oldest part-used block first.
            let oldest = self.state.remnants.iter().rposition(|head| head.block != NONE);
            if let Some(at) = oldest {
                self.state.heads[Log::Shared as usize] = core::mem::replace(&mut self.state.remnants[at], Head::CLOSED);
            }
        }
        Place::Log(Log::Shared)
    }

    /// Takes the part-used block again that the file's last extent ends in.
    fn go_on(&mut self, slot: usize) {
        let inode = self.memory.page(Buffer::File(slot));
        let Some(last) = inode.count().checked_sub(1).map(|at| extents::get(&inode[inode.log()..], at)) else { return };
        let geometry = self.geometry;
        let ends_here = |head: &&mut Head| {
            head.block != NONE
                && last.page != NONE
                && geometry.first_page(head.block) + head.next == last.page.wrapping_add(last.length)
        };
        if let Some(found) = self.state.remnants.iter_mut().find(ends_here) {
            self.files[slot].head = core::mem::replace(found, Head::CLOSED);
        }
    }
}
