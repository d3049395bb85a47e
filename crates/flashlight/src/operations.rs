//! Operations on files and directories. Each begins with room for all that it writes, so none ends half done for want of it.

use basalt_nand::NandDevice;

use crate::cleaning::Room;
use crate::error::{Error, Result};
use crate::layout::bucket::Pointer;
use crate::layout::header::Area;
use crate::layout::inode::{self, DIRECTORY, Inode, LINK, MOST_NAME, TYPE, Time};
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::mount::{ORPHANS, ROOT};
use crate::mutant::{self, Mutant};
use crate::table::Located;
use crate::volume::FlashLight;

/// Pages of data between two looks whether there is room.
const PIECE: usize = 32;

/// The number of an inode. It stays the same while the inode exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeNumber(pub u32);

/// What an inode says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub number: InodeNumber,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Names that lead to it, with a directory's own and those of its directories.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a file: bytes; of a directory: entries.
    pub size: u64,
    /// Bytes of the pages of the chip that are its own: its inode, and of a file the data and their index. Holes have none.
    pub stored: u64,
    /// The number of a device node.
    pub rdev: u32,
    /// Last access, as far as somebody set it.
    pub accessed: Time,
    /// Last change of the content.
    pub modified: Time,
    /// Last change of the inode.
    pub changed: Time,
}

impl Attributes {
    /// What the page of an inode says.
    pub(crate) fn of(page: &[u8]) -> Attributes {
        let time = |at| Time::unpacked(page.u64_at(at));
        let links = match page.is_directory() {
            true => 2 + page.u32_at(inode::SUBDIRECTORIES),
            false => u32::from(page.parent() != ORPHANS),
        };
        Attributes {
            number: InodeNumber(page.serial()),
            mode: page.u32_at(inode::MODE),
            links,
            uid: page.u32_at(inode::UID),
            gid: page.u32_at(inode::GID),
            size: page.u64_at(inode::SIZE),
            stored: page.pages() * page.len() as u64,
            rdev: page.u32_at(inode::RDEV),
            accessed: time(inode::ATIME),
            modified: time(inode::MTIME),
            changed: time(inode::CTIME),
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.mode & TYPE == DIRECTORY
    }
}

/// What a new inode is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewInode {
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The number of a device node.
    pub rdev: u32,
    /// When it is made.
    pub now: Time,
}

/// Attributes to be changed; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Permissions.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<Time>,
    /// Last change of the content.
    pub modified: Option<Time>,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where the listing goes on behind it: see [`FlashLight::list`]. `None`: it is the last one.
    pub next: Option<u32>,
    /// Its inode.
    pub number: InodeNumber,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Bytes of the name.
    pub name_length: usize,
}

/// How much of a volume is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that files can have in all.
    pub bytes: u64,
    /// Bytes of pages in use.
    pub used: u64,
    /// Inodes in use.
    pub inodes: u32,
    /// Inodes that may still be made, as far as there is room.
    pub free_inodes: u32,
    /// Blocks that are bad.
    pub bad_blocks: u32,
}

/// An entry that was found by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) key: u32,
    pub(crate) serial: u32,
    pub(crate) directory: bool,
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// The root directory.
    pub fn root(&self) -> InodeNumber {
        InodeNumber(ROOT)
    }

    /// Looks a name up.
    pub fn lookup(&mut self, directory: InodeNumber, name: &[u8]) -> Result<InodeNumber> {
        self.directory(directory.0)?;
        let found = self.find(directory.0, name)?;
        found.map(|found| InodeNumber(found.serial)).ok_or(Error::NotFound)
    }

    /// The directory that an inode is in; the root is in itself.
    pub fn parent(&mut self, number: InodeNumber) -> Result<InodeNumber> {
        let buffer = self.inode(number.0)?;
        Ok(InodeNumber(self.memory.page(buffer).parent()))
    }

    /// What an inode says of itself.
    pub fn attributes(&mut self, number: InodeNumber) -> Result<Attributes> {
        let buffer = self.inode(number.0)?;
        Ok(Attributes::of(self.memory.page(buffer)))
    }

    /// Changes attributes.
    pub fn change(&mut self, number: InodeNumber, change: &Change, now: Time) -> Result<()> {
        self.make_room(Room::Change)?;
        let buffer = self.inode(number.0)?;
        let page = self.memory.page_mut(buffer);
        let mode = page.u32_at(inode::MODE);
        if let Some(permissions) = change.permissions {
            page.set_u32(inode::MODE, mode & TYPE | permissions & 0o7777);
        }
        for (at, value) in [(inode::UID, change.uid), (inode::GID, change.gid)] {
            if let Some(value) = value {
                page.set_u32(at, value);
            }
        }
        for (at, value) in [(inode::ATIME, change.accessed), (inode::MTIME, change.modified), (inode::CTIME, Some(now))]
        {
            if let Some(value) = value {
                page.set_u64(at, value.packed());
            }
        }
        self.mark_dirty(buffer);
        Ok(())
    }

    /// Reads from a file; says how many bytes, fewer than asked for at its end.
    pub fn read(&mut self, number: InodeNumber, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let slot = self.file(number.0)?;
        let size = self.memory.page(Buffer::File(slot)).u64_at(inode::SIZE);
        let length = size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        self.read_pages(slot, offset, &mut bytes[..length])?;
        Ok(length)
    }

    /// Writes to a file. Errors: [`Error::NoSpace`] may come behind some of the bytes.
    pub fn write(&mut self, number: InodeNumber, offset: u64, bytes: &[u8], now: Time) -> Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.most_bytes()) {
            return Err(Error::FileTooLarge);
        }
        let page_bytes = self.geometry.page_bytes as usize;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            // Pieces end where a page does.
            let length = (PIECE * page_bytes - at as usize % page_bytes).min(bytes.len() - done);
            self.make_room(Room::Grow(length.div_ceil(page_bytes) as u32 + 1))?;
            let slot = self.file(number.0)?;
            self.write_pages(slot, at, &bytes[done..done + length])?;
            done += length;
        }
        self.touch(number, now)
    }

    /// Bytes of a file whose pages have numbers.
    pub(crate) fn most_bytes(&self) -> u64 {
        u64::from(u32::MAX - 1) * u64::from(self.geometry.page_bytes)
    }

    /// Bytes that no file has more of, whatever its name: as many extent maps as an inode can count have places for these.
    pub fn largest_file(&self) -> u64 {
        u64::from(self.per_map()) * inode::MOST_MAPS as u64 * u64::from(self.geometry.page_bytes)
    }

    /// Sets a file's length.
    pub fn set_length(&mut self, number: InodeNumber, length: u64, now: Time) -> Result<()> {
        if length > self.most_bytes() {
            return Err(Error::FileTooLarge);
        }
        let slot = self.file(number.0)?;
        let shorter = length < self.memory.page(Buffer::File(slot)).u64_at(inode::SIZE);
        self.make_room(if shorter { Room::Free } else { Room::Grow(1) })?;
        let slot = self.file(number.0)?;
        self.set_file_length(slot, length)?;
        self.touch(number, now)
    }

    /// The target of a symbolic link; says how long it is.
    pub fn read_link(&mut self, number: InodeNumber, target: &mut [u8]) -> Result<usize> {
        let slot = self.file(number.0)?;
        if self.memory.page(Buffer::File(slot)).u32_at(inode::MODE) & TYPE != LINK {
            return Err(Error::Invalid);
        }
        self.read(number, 0, target)
    }

    /// The next entry of a directory from `from` on (0 is the beginning), in the order of hashes; its name comes to `name`, which has 255
    /// bytes. What changes meanwhile may be listed or not; the rest is, once.
    pub fn list(&mut self, directory: InodeNumber, from: u32, name: &mut [u8]) -> Result<Option<Listed>> {
        let slot = self.directory(directory.0)?;
        let Some(entry) = self.next_entry(slot, from)? else { return Ok(None) };
        let buffer = self.peek(directory.0, entry.key, entry.pointer)?;
        let page = self.memory.page(buffer);
        let found = page.name();
        name[..found.len()].copy_from_slice(found);
        let (number, mode) = (InodeNumber(page.serial()), page.u32_at(inode::MODE));
        Ok(Some(Listed { next: entry.key.checked_add(1), number, mode, name_length: found.len() }))
    }

    /// Where a listing goes on behind an entry of which the inode cannot be read: for those who go on. Errors: the directory cannot be read.
    pub fn list_behind(&mut self, directory: InodeNumber, from: u32) -> Result<Option<u32>> {
        let slot = self.directory(directory.0)?;
        Ok(self.next_entry(slot, from)?.and_then(|entry| entry.key.checked_add(1)))
    }

    /// Makes what was written to a file, and its name, outlast a power cut.
    pub fn sync_file(&mut self, number: InodeNumber) -> Result<()> {
        self.make_room(Room::Free)?;
        let slot = self.directories.iter().position(|slot| slot.serial == number.0);
        let parent = match (slot, self.located(number.0)?) {
            // A directory that was never written is in memory.
            (Some(slot), _) => {
                self.flush_directory(slot)?;
                self.memory.page(Buffer::Directory(slot)).parent()
            }
            // It is on the chip as it is.
            (None, Some(Located::Directory(_))) => return Ok(()),
            _ => {
                let slot = self.file(number.0)?;
                self.flush_file(slot)?;
                self.memory.page(Buffer::File(slot)).parent()
            }
        };
        if mutant::active(Mutant::AncestorsNotWritten) { Ok(()) } else { self.write_new_directories(parent) }
    }

    /// Writes a directory that was never written, and those that it is in. They are in memory.
    pub(crate) fn write_new_directories(&mut self, mut directory: u32) -> Result<()> {
        while let Some(slot) = self.directories.iter().position(|slot| slot.serial == directory && slot.page == NONE) {
            self.flush_directory(slot)?;
            directory = self.memory.page(Buffer::Directory(slot)).parent();
        }
        Ok(())
    }

    /// Makes everything outlast a power cut.
    pub fn sync(&mut self) -> Result<()> {
        self.check_running()?;
        if self.clean {
            return Ok(());
        }
        self.make_room(Room::Free)?;
        self.checkpoint(false)
    }

    /// How much is in use.
    pub fn usage(&self) -> Usage {
        let page = u64::from(self.geometry.page_bytes);
        Usage {
            bytes: self.capacity_pages() * page,
            used: self.used_pages() * page,
            inodes: self.state.inodes.saturating_sub(1),
            free_inodes: self.most_inodes().saturating_sub(self.state.next_serial),
            bad_blocks: (0..self.geometry.blocks).filter(|&block| self.is_bad(block)).count() as u32,
        }
    }

    /// Says that a file's content has changed.
    pub(crate) fn touch(&mut self, number: InodeNumber, now: Time) -> Result<()> {
        let slot = self.file(number.0)?;
        let page = self.memory.page_mut(Buffer::File(slot));
        page.set_u64(inode::MTIME, now.packed());
        page.set_u64(inode::CTIME, now.packed());
        self.files[slot].dirty = true;
        Ok(())
    }

    /// Has an inode in memory.
    fn inode(&mut self, serial: u32) -> Result<Buffer> {
        if let Some(slot) = self.directories.iter().position(|slot| slot.serial == serial) {
            return Ok(Buffer::Directory(slot));
        }
        match self.located(serial)? {
            Some(Located::Directory(_)) => self.directory(serial).map(Buffer::Directory),
            _ => self.file(serial).map(Buffer::File),
        }
    }

    fn mark_dirty(&mut self, buffer: Buffer) {
        match buffer {
            Buffer::Directory(slot) => self.directories[slot].dirty = true,
            Buffer::File(slot) => self.files[slot].dirty = true,
            Buffer::Table | Buffer::Work => {}
        }
    }

    /// The inode that an entry leads to: in memory if it is there, else in the work page.
    pub(crate) fn peek(&mut self, parent: u32, key: u32, pointer: Pointer) -> Result<Buffer> {
        if let Pointer::Directory(serial) = pointer {
            if let Some(slot) = self.directories.iter().position(|slot| slot.serial == serial) {
                return Ok(Buffer::Directory(slot));
            }
            let Some(Located::Directory(page)) = self.located(serial)? else { return Err(Error::NotFound) };
            self.load_work(page, Area::DirInode)?;
            if !self.memory.page(Buffer::Work).is_sound() {
                return Err(Error::Damaged { page, what: "it is no inode of a directory" });
            }
            return Ok(Buffer::Work);
        }
        for slot in 0..self.files.len() {
            let page = self.memory.page(Buffer::File(slot));
            if self.files[slot].serial != NONE && page.parent() == parent && page.u32_at(inode::KEY) == key {
                return Ok(Buffer::File(slot));
            }
        }
        let Pointer::File(page) = pointer else { return Err(Error::NotFound) };
        self.load_work(page, Area::FileInode)?;
        if !self.memory.page(Buffer::Work).is_sound() {
            return Err(Error::Damaged { page, what: "it is no inode of a file" });
        }
        Ok(Buffer::Work)
    }

    /// Finds a name in a directory.
    pub(crate) fn find(&mut self, directory: u32, name: &[u8]) -> Result<Option<Found>> {
        if name.len() > MOST_NAME {
            return Err(Error::NameTooLong);
        }
        for key in self.keys(name) {
            let slot = self.directory(directory)?;
            let Some(pointer) = self.pointer(slot, key)? else {
                if mutant::active(Mutant::ProbeStopsAtGap) {
                    break;
                }
                continue;
            };
            let buffer = self.peek(directory, key, pointer)?;
            let page = self.memory.page(buffer);
            if page.name() == name || mutant::active(Mutant::NamesNotCompared) {
                return Ok(Some(Found { key, serial: page.serial(), directory: page.is_directory() }));
            }
        }
        Ok(None)
    }

    /// A key for a name that the directory does not have.
    pub(crate) fn free_key(&mut self, directory: u32, name: &[u8]) -> Result<u32> {
        self.directory(directory)?;
        if self.find(directory, name)?.is_some() {
            return Err(Error::Exists);
        }
        for key in self.keys(name) {
            let slot = self.directory(directory)?;
            if self.pointer(slot, key)?.is_none() {
                return Ok(key);
            }
        }
        // Seven names with the same hash.
        Err(Error::NoSpace)
    }

    /// Counts entries and directories of a directory.
    pub(crate) fn count_entry(&mut self, slot: usize, before: Option<Pointer>, after: Option<Pointer>) {
        let page = self.memory.page_mut(Buffer::Directory(slot));
        let is_directory = |pointer: Option<Pointer>| u32::from(matches!(pointer, Some(Pointer::Directory(_))));
        let entries = page.u64_at(inode::SIZE) + u64::from(after.is_some());
        page.set_u64(inode::SIZE, entries.saturating_sub(before.is_some().into()));
        let directories = page.u32_at(inode::SUBDIRECTORIES) + is_directory(after);
        page.set_u32(inode::SUBDIRECTORIES, directories.saturating_sub(is_directory(before)));
        self.directories[slot].dirty = true;
    }
}
