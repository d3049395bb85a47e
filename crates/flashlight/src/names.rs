//! Making, deleting and renaming files and directories.

use basalt_nand::NandDevice;

use crate::error::{Error, Result};
use crate::layout::bucket::Pointer;
use crate::layout::header::Area;
use crate::layout::inode::{self, DIRECTORY, EXTENT, GONE, INLINE, Inode, LINK, MOST_NAME, TYPE, Time};
use crate::layout::leaf::Head;
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::mount::{ORPHANS, ROOT};
use crate::operations::{Found, InodeNumber, NewInode};
use crate::table::Located;
use crate::volume::{FlashLight, Log};

/// Bytes of the longest target of a symbolic link.
const MOST_TARGET: usize = 1600;

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Makes a file, a device node, a socket or a pipe.
    pub fn create(&mut self, directory: InodeNumber, name: &[u8], new: &NewInode) -> Result<InodeNumber> {
        if new.mode & TYPE == DIRECTORY || new.mode & TYPE == LINK {
            return Err(Error::Invalid);
        }
        self.create_with(directory.0, name, new, &[]).map(InodeNumber)
    }

    /// Makes a symbolic link.
    pub fn link(&mut self, directory: InodeNumber, name: &[u8], target: &[u8], new: &NewInode) -> Result<InodeNumber> {
        if target.len() > MOST_TARGET {
            return Err(Error::NameTooLong);
        }
        if target.is_empty() {
            return Err(Error::Invalid);
        }
        let new = NewInode { mode: LINK | new.mode & 0o7777, ..*new };
        self.create_with(directory.0, name, &new, target).map(InodeNumber)
    }

    fn create_with(&mut self, parent: u32, name: &[u8], new: &NewInode, content: &[u8]) -> Result<u32> {
        check_name(name)?;
        self.make_room(1)?;
        let key = self.free_key(parent, name)?;
        let slot = self.free_file_slot()?;
        let serial = self.new_serial()?;
        let page = self.memory.page_mut(Buffer::File(slot));
        page.begin(serial, parent, key, name);
        page.set_u32(inode::MODE, new.mode);
        page.set_u32(inode::UID, new.uid);
        page.set_u32(inode::GID, new.gid);
        page.set_u32(inode::RDEV, new.rdev);
        for at in [inode::ATIME, inode::MTIME, inode::CTIME] {
            page.set_u64(at, new.now.packed());
        }
        if !content.is_empty() {
            let body = page.body();
            page[body..body + content.len()].copy_from_slice(content);
            page.set_u32(inode::FLAGS, INLINE);
            page.set_count(content.len());
            page.set_u64(inode::SIZE, content.len() as u64);
        }
        let used = self.use_now();
        let found = &mut self.files[slot];
        (found.serial, found.page, found.dirty, found.used, found.head) = (serial, NONE, true, used, Head::CLOSED);
        if let Err(error) = self.enter(parent, key, Pointer::Unwritten, new.now) {
            (self.files[slot].serial, self.files[slot].dirty) = (NONE, false);
            return Err(error);
        }
        self.set_located(serial, Some(Located::File { parent, key }))?;
        Ok(serial)
    }

    /// Makes a directory.
    pub fn make_directory(&mut self, directory: InodeNumber, name: &[u8], new: &NewInode) -> Result<InodeNumber> {
        check_name(name)?;
        self.make_room(1)?;
        let parent = directory.0;
        let key = self.free_key(parent, name)?;
        let serial = self.new_serial()?;
        let slot = self.free_directory_slot()?;
        self.begin_directory(slot, serial, parent, key, name, new.mode, (new.uid, new.gid), new.now);
        if let Err(error) = self.enter(parent, key, Pointer::Directory(serial), new.now) {
            (self.directories[slot].serial, self.directories[slot].dirty) = (NONE, false);
            return Err(error);
        }
        Ok(InodeNumber(serial))
    }

    /// Deletes a file. With `open` it stays until [`forget`](FlashLight::forget): somebody has it open.
    pub fn unlink(&mut self, directory: InodeNumber, name: &[u8], open: bool, now: Time) -> Result<()> {
        self.make_room(0)?;
        self.directory(directory.0)?;
        let found = self.find(directory.0, name)?.ok_or(Error::NotFound)?;
        if found.directory {
            return Err(Error::IsADirectory);
        }
        if open { self.make_orphan(directory.0, &found, now) } else { self.delete(directory.0, &found, now) }
    }

    /// Deletes a file that was unlinked while it was open.
    pub fn forget(&mut self, number: InodeNumber) -> Result<()> {
        self.make_room(0)?;
        let slot = self.file(number.0)?;
        let page = self.memory.page(Buffer::File(slot));
        if page.parent() != ORPHANS {
            return Ok(());
        }
        let found = Found { key: page.u32_at(inode::KEY), serial: number.0, directory: false };
        self.delete(ORPHANS, &found, Time::default())
    }

    /// Deletes an empty directory.
    pub fn remove_directory(&mut self, directory: InodeNumber, name: &[u8], now: Time) -> Result<()> {
        self.make_room(0)?;
        self.directory(directory.0)?;
        let found = self.find(directory.0, name)?.ok_or(Error::NotFound)?;
        if !found.directory {
            return Err(Error::NotADirectory);
        }
        self.check_empty(found.serial)?;
        self.leave(directory.0, found.key, Pointer::Directory(found.serial), now)?;
        self.end_directory(found.serial, (directory.0, found.key))
    }

    /// Gives a file or a directory another place; what has that name already is replaced, in one step. `open`: the replaced file is open.
    pub fn rename(
        &mut self,
        (directory, name): (InodeNumber, &[u8]),
        (new_directory, new_name): (InodeNumber, &[u8]),
        open: bool,
        now: Time,
    ) -> Result<()> {
        check_name(new_name)?;
        self.make_room(1)?;
        self.directory(directory.0)?;
        let moved = self.find(directory.0, name)?.ok_or(Error::NotFound)?;
        self.directory(new_directory.0)?;
        let replaced = self.find(new_directory.0, new_name)?;
        if let Some(replaced) = replaced {
            if replaced.serial == moved.serial {
                return Ok(());
            }
            match (moved.directory, replaced.directory) {
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                (true, true) => self.check_empty(replaced.serial)?,
                (false, false) => {}
            }
        }
        if moved.directory {
            self.check_not_below(moved.serial, new_directory.0)?;
        }
        let key = match replaced {
            Some(replaced) => replaced.key,
            None => self.free_key(new_directory.0, new_name)?,
        };
        let from = (directory.0, moved.key);
        let to = (new_directory.0, key, new_name);
        match replaced {
            Some(replaced) if replaced.directory => {
                self.leave(new_directory.0, key, Pointer::Directory(replaced.serial), now)?;
                self.move_directory(moved.serial, from, to, now)?;
                self.end_directory(replaced.serial, (NONE, NONE))
            }
            Some(replaced) if open => {
                // First a name of its own: the file that replaces it is written at once, and says who had the name.
                self.make_orphan(new_directory.0, &replaced, now)?;
                self.move_file(moved.serial, from, to, now)
            }
            Some(replaced) => {
                self.delete(new_directory.0, &replaced, now)?;
                self.move_file(moved.serial, from, to, now)
            }
            None if moved.directory => self.move_directory(moved.serial, from, to, now),
            None => self.move_file(moved.serial, from, to, now),
        }
    }

    fn new_serial(&mut self) -> Result<u32> {
        let serial = self.state.next_serial;
        if serial >= self.most_inodes() {
            return Err(Error::NoSpace);
        }
        self.state.next_serial += 1;
        Ok(serial)
    }

    /// An entry comes to a directory.
    fn enter(&mut self, parent: u32, key: u32, pointer: Pointer, now: Time) -> Result<()> {
        self.enter_moved(parent, key, pointer, now)?;
        self.state.inodes += 1;
        Ok(())
    }

    fn enter_moved(&mut self, parent: u32, key: u32, pointer: Pointer, now: Time) -> Result<()> {
        let slot = self.directory(parent)?;
        self.set_pointer(slot, key, pointer)?;
        self.count_entry(slot, None, Some(pointer));
        self.date(slot, now);
        Ok(())
    }

    /// An entry leaves a directory.
    fn leave(&mut self, parent: u32, key: u32, pointer: Pointer, now: Time) -> Result<()> {
        let slot = self.directory(parent)?;
        self.count_entry(slot, Some(pointer), None);
        self.date(slot, now);
        self.set_pointer(slot, key, Pointer::Deleted)
    }

    fn date(&mut self, slot: usize, now: Time) {
        let page = self.memory.page_mut(Buffer::Directory(slot));
        page.set_u64(inode::MTIME, now.packed());
        page.set_u64(inode::CTIME, now.packed());
    }

    /// A file and its entry go.
    fn delete(&mut self, parent: u32, found: &Found, now: Time) -> Result<()> {
        let slot = self.file(found.serial)?;
        self.release(slot)?;
        self.state.inodes = self.state.inodes.saturating_sub(1);
        self.leave(parent, found.key, Pointer::Unwritten, now)
    }

    /// A file loses its name, and gets one in the directory of those that are still open.
    fn make_orphan(&mut self, parent: u32, found: &Found, now: Time) -> Result<()> {
        let mut name = [b'0'; 8];
        for (at, digit) in name.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(found.serial >> (28 - 4 * at) & 15) as usize];
        }
        let key = self.free_key(ORPHANS, &name)?;
        let (from, to) = ((parent, found.key), (ORPHANS, key, &name[..]));
        self.prepare_move(found.serial, from, to, now)?;
        self.set_located(found.serial, Some(Located::File { parent: ORPHANS, key }))?;
        // Nothing has to be written now: where the power goes before that, the file is gone, which is what becomes of it anyway.
        self.leave(parent, found.key, Pointer::Unwritten, now)
    }

    /// Deletes the files that were open when the power went, or when the volume was unmounted.
    pub(crate) fn delete_orphans(&mut self) -> Result<()> {
        loop {
            let slot = self.directory(ORPHANS)?;
            let Some(entry) = self.next_entry(slot, 0)? else { return Ok(()) };
            let buffer = self.peek(ORPHANS, entry.key, entry.pointer)?;
            let serial = self.memory.page(buffer).serial();
            self.delete(ORPHANS, &Found { key: entry.key, serial, directory: false }, Time::default())?;
        }
    }

    /// The file is written at its new place at once, with where it came from: so there is no moment in which it is at both or at none.
    fn move_file(&mut self, serial: u32, from: (u32, u32), to: (u32, u32, &[u8]), now: Time) -> Result<()> {
        self.write_new_directories(to.0)?;
        self.prepare_move(serial, from, to, now)?;
        let slot = self.file(serial)?;
        self.flush_file(slot)?;
        self.set_located(serial, Some(Located::File { parent: to.0, key: to.1 }))?;
        self.leave(from.0, from.1, Pointer::Unwritten, now)
    }

    /// The file has its new place in memory.
    fn prepare_move(&mut self, serial: u32, from: (u32, u32), to: (u32, u32, &[u8]), now: Time) -> Result<()> {
        let slot = self.file(serial)?;
        let more = to.2.len() + 4;
        let page = self.memory.page(Buffer::File(slot));
        let size = page.u64_at(inode::SIZE);
        if page.is_inline() && page.body() + page.count() + more > page.len() {
            if page.u32_at(inode::MODE) & TYPE == LINK {
                return Err(Error::NameTooLong);
            }
            self.spill(slot)?;
        }
        self.fit(slot, size, more + EXTENT)?;
        if !self.memory.page_mut(Buffer::File(slot)).rename(to.2) {
            return Err(Error::NameTooLong);
        }
        self.place(Buffer::File(slot), from, to, now);
        self.files[slot].dirty = true;
        self.enter_moved(to.0, to.1, Pointer::Unwritten, now)
    }

    fn move_directory(&mut self, serial: u32, from: (u32, u32), to: (u32, u32, &[u8]), now: Time) -> Result<()> {
        let slot = self.directory(serial)?;
        self.make_log_room(slot, to.2.len() + 8)?;
        if !self.memory.page_mut(Buffer::Directory(slot)).rename(to.2) {
            return Err(Error::NoSpace);
        }
        self.write_new_directories(to.0)?;
        let slot = self.directory(serial)?;
        self.place(Buffer::Directory(slot), from, to, now);
        self.directories[slot].dirty = true;
        self.flush_directory(slot)?;
        self.enter_moved(to.0, to.1, Pointer::Directory(serial), now)?;
        self.leave(from.0, from.1, Pointer::Directory(serial), now)
    }

    /// Says in an inode where it is and where it came from.
    fn place(&mut self, buffer: Buffer, from: (u32, u32), to: (u32, u32, &[u8]), now: Time) {
        let page = self.memory.page_mut(buffer);
        page.set_parent(to.0);
        page.set_u32(inode::KEY, to.1);
        page.set_u32(inode::FROM_DIR, from.0);
        page.set_u32(inode::FROM_KEY, from.1);
        page.set_u64(inode::CTIME, now.packed());
    }

    fn check_empty(&mut self, serial: u32) -> Result<()> {
        let slot = self.directory(serial)?;
        let empty = self.memory.page(Buffer::Directory(slot)).u64_at(inode::SIZE) == 0;
        if empty { Ok(()) } else { Err(Error::NotEmpty) }
    }

    /// A directory cannot be put below itself.
    fn check_not_below(&mut self, serial: u32, mut directory: u32) -> Result<()> {
        for _ in 0..self.state.next_serial {
            if directory == ROOT {
                return Ok(());
            }
            if directory == serial {
                return Err(Error::Invalid);
            }
            let slot = self.directory(directory)?;
            directory = self.memory.page(Buffer::Directory(slot)).parent();
        }
        Err(Error::Damaged { page: NONE, what: "directories lead in a circle" })
    }

    /// A directory without entries is gone: its last page says so, and which entry led to it, if that is not another's by now.
    fn end_directory(&mut self, serial: u32, from: (u32, u32)) -> Result<()> {
        let slot = self.directory(serial)?;
        let old = self.directories[slot].page;
        self.for_each_bucket(slot, |volume, page| volume.dead(page, 1))?;
        if old != NONE {
            let buffer = Buffer::Directory(slot);
            let page = self.memory.page_mut(buffer);
            let flags = page.u32_at(inode::FLAGS);
            page.set_u32(inode::FLAGS, flags | GONE);
            page.set_u32(inode::FROM_DIR, from.0);
            page.set_u32(inode::FROM_KEY, from.1);
            let parent = page.parent();
            let last = self.append(Log::Directory, buffer, Area::DirInode, 0, serial, parent)?;
            self.dead(last, 1);
            self.dead(old, 1);
            self.set_located(serial, None)?;
        }
        self.directories[slot].serial = NONE;
        self.directories[slot].dirty = false;
        self.state.inodes = self.state.inodes.saturating_sub(1);
        Ok(())
    }
}

/// Names that a directory can have.
fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > MOST_NAME {
        return Err(Error::NameTooLong);
    }
    let invalid = name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0);
    if invalid { Err(Error::Invalid) } else { Ok(()) }
}
