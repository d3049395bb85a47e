//! Files in memory and on the chip: their inodes.

use basalt_nand::NandDevice;

use crate::error::{Error, Result};
use crate::layout::bucket::Pointer;
use crate::layout::header::Area;
use crate::layout::inode::{self, Inode};
use crate::layout::leaf::Head;
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes, FILES};
use crate::mutant::{self, Mutant};
use crate::table::Located;
use crate::volume::{FlashLight, Log};

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Has a file in memory; says in which slot.
    pub(crate) fn file(&mut self, serial: u32) -> Result<usize> {
        let now = self.use_now();
        if let Some(slot) = self.files.iter().position(|slot| slot.serial == serial) {
            self.files[slot].used = now;
            return Ok(slot);
        }
        match self.located(serial)? {
            Some(Located::File { parent, key }) => self.file_at(serial, parent, key),
            Some(Located::Directory(_)) => Err(Error::IsADirectory),
            None => Err(Error::NotFound),
        }
    }

    /// As [`file`](FlashLight::file), of a file whose directory and key there are known: the inode table is not asked.
    pub(crate) fn file_at(&mut self, serial: u32, parent: u32, key: u32) -> Result<usize> {
        if self.files.iter().any(|slot| slot.serial == serial) {
            return self.file(serial);
        }
        let slot = self.free_file_slot()?;
        let directory = match self.directory(parent) {
            Err(Error::NotFound | Error::NotADirectory) => return Err(Error::NotFound),
            directory => directory?,
        };
        let Some(Pointer::File(page)) = self.pointer(directory, key)? else { return Err(Error::NotFound) };
        // Another file may have the key by now.
        let header = self.read_metadata(page, Buffer::File(slot), Area::FileInode)?;
        if header.owner != serial {
            return Err(Error::NotFound);
        }
        self.take_file(slot, page, serial)?;
        Ok(slot)
    }

    /// Says that a slot has an inode that was read from the chip.
    pub(crate) fn take_file(&mut self, slot: usize, page: u32, serial: u32) -> Result<()> {
        let inode = self.memory.page(Buffer::File(slot));
        if !inode.is_sound() || inode.is_directory() {
            return Err(Error::Damaged { page, what: "it is no inode of a file" });
        }
        self.forget_origin(Buffer::File(slot));
        let used = self.use_now();
        let found = &mut self.files[slot];
        (found.serial, found.page, found.dirty, found.used, found.head) = (serial, page, false, used, Head::CLOSED);
        Ok(())
    }

    /// A slot for another file: what was in it is on the chip.
    pub(crate) fn free_file_slot(&mut self) -> Result<usize> {
        let oldest = (0..FILES).min_by_key(|&slot| self.files[slot].used).unwrap_or(0);
        // Where nothing can be written any more, reading goes on with what the chip has.
        if !self.stopped {
            self.flush_file(oldest)?;
        }
        self.drop_file(oldest);
        Ok(oldest)
    }

    /// A slot is empty; the rest of the file's block is kept for others.
    pub(crate) fn drop_file(&mut self, slot: usize) {
        let head = core::mem::replace(&mut self.files[slot].head, Head::CLOSED);
        if self.files[slot].serial != NONE {
            let pages = self.pages_of(self.memory.page(Buffer::File(slot)).u64_at(inode::SIZE));
            self.recent.rotate_right(1);
            self.recent[0] = pages.min(255) as u8;
        }
        self.files[slot].serial = NONE;
        self.files[slot].dirty = false;
        if head.block != NONE && head.next < self.geometry.pages_per_block {
            // The oldest goes: what is left of it is found by cleaning.
            self.state.remnants.rotate_right(1);
            self.state.remnants[0] = head;
        }
    }

    /// Writes a file's inode, and lets its directory lead there.
    pub(crate) fn flush_file(&mut self, slot: usize) -> Result<()> {
        if self.files[slot].serial == NONE || !self.files[slot].dirty {
            return Ok(());
        }
        let buffer = Buffer::File(slot);
        let (serial, old) = (self.files[slot].serial, self.files[slot].page);
        let inode = self.memory.page(buffer);
        let (parent, key) = (inode.parent(), inode.u32_at(inode::KEY));
        let directory = self.directory(parent)?;
        let page = self.append(Log::File, buffer, Area::FileInode, 0, serial, parent)?;
        self.forget_origin(buffer);
        self.files[slot].page = page;
        self.files[slot].dirty = false;
        self.dead_if_any(old);
        self.set_pointer(directory, key, Pointer::File(page))
    }

    /// Pages that so many bytes take.
    pub(crate) fn pages_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.geometry.page_bytes.into())
    }

    /// Everything of a file is dead, its inode too.
    pub(crate) fn release(&mut self, slot: usize) -> Result<()> {
        if !self.memory.page(Buffer::File(slot)).is_inline() {
            self.cut(slot, 0)?;
        }
        let page = self.files[slot].page;
        self.dead_if_any(page);
        self.files[slot].dirty = false;
        self.drop_file(slot);
        if mutant::active(Mutant::FreedAtUnlink) {
            self.erase_all_dead()?;
        }
        Ok(())
    }
}
