//! Making, deleting and renaming files and directories.

use basalt_nand::NandDevice;

use crate::cleaning::Room;
use crate::error::{Error, Result};
use crate::layout::bucket::Pointer;
use crate::layout::header::Area;
use crate::layout::inode::{self, DIRECTORY, EXTENT, GONE, INLINE, Inode, LINK, MOST_NAME, TYPE, Time};
use crate::layout::leaf::Head;
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::mount::{ORPHANS, ROOT};
use crate::mutant::{self, Mutant};
use crate::operations::{Found, InodeNumber, NewInode};
use crate::table::Located;
use crate::volume::{FlashLight, Log};

/// Bytes of the longest target of a symbolic link.
const MOST_TARGET: usize = 1600;

/// Bytes of the name that a file has which is deleted and still open.
const ORPHAN_NAME: usize = 8;

/// What is to be moved where.
struct Move<'a> {
    serial: u32,
    /// Directory and key.
    from: (u32, u32),
    to: (u32, u32),
    name: &'a [u8],
    now: Time,
}

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
        self.make_room(Room::Grow(1))?;
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
        if let Err(error) = self.enter(parent, key, Pointer::Unwritten, false, new.now) {
            (self.files[slot].serial, self.files[slot].dirty) = (NONE, false);
            return Err(error);
        }
        self.state.inodes += 1;
        let done = self.set_located(serial, Some(Located::File { parent, key }));
        self.must(done)?;
        Ok(serial)
    }

    /// Makes a directory.
    pub fn make_directory(&mut self, directory: InodeNumber, name: &[u8], new: &NewInode) -> Result<InodeNumber> {
        check_name(name)?;
        self.make_room(Room::Grow(1))?;
        let parent = directory.0;
        let key = self.free_key(parent, name)?;
        let serial = self.new_serial()?;
        let slot = self.free_directory_slot()?;
        self.begin_directory(slot, serial, parent, key, name, new.mode, (new.uid, new.gid), new.now);
        if let Err(error) = self.enter(parent, key, Pointer::Directory(serial), false, new.now) {
            (self.directories[slot].serial, self.directories[slot].dirty) = (NONE, false);
            return Err(error);
        }
        self.state.inodes += 1;
        Ok(InodeNumber(serial))
    }

    /// Deletes a file. With `open` it stays until [`forget`](FlashLight::forget): somebody has it open.
    pub fn unlink(&mut self, directory: InodeNumber, name: &[u8], open: bool, now: Time) -> Result<()> {
        self.make_room(Room::Free)?;
        self.directory(directory.0)?;
        let found = self.find(directory.0, name)?.ok_or(Error::NotFound)?;
        if found.directory {
            return Err(Error::IsADirectory);
        }
        if open { self.make_orphan(directory.0, &found, now) } else { self.delete(directory.0, &found, now) }
    }

    /// Deletes a file that was unlinked while it was open.
    pub fn forget(&mut self, number: InodeNumber) -> Result<()> {
        self.make_room(Room::Free)?;
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
        self.make_room(Room::Free)?;
        self.directory(directory.0)?;
        let found = self.find(directory.0, name)?.ok_or(Error::NotFound)?;
        if !found.directory {
            return Err(Error::NotADirectory);
        }
        self.check_empty(found.serial)?;
        self.leave(directory.0, found.key, Pointer::Directory(found.serial), now)?;
        let done = self.end_directory(found.serial, (directory.0, found.key));
        self.must(done)
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
        self.make_room(Room::Grow(1))?;
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
        let move_ = Move {
            serial: moved.serial,
            from: (directory.0, moved.key),
            to: (new_directory.0, key),
            name: new_name,
            now,
        };
        if moved.directory { self.move_directory(&move_, replaced) } else { self.move_file(&move_, replaced, open) }
    }

    fn new_serial(&mut self) -> Result<u32> {
        let serial = self.state.next_serial;
        if serial >= self.most_inodes() {
            return Err(Error::NoSpace);
        }
        self.state.next_serial += 1;
        Ok(serial)
    }

    /// An entry comes to a directory, or takes the place of another.
    fn enter(&mut self, parent: u32, key: u32, pointer: Pointer, replaces: bool, now: Time) -> Result<()> {
        self.claim(parent, key)?;
        let slot = self.directory(parent)?;
        self.set_pointer(slot, key, pointer)?;
        self.count_entry(slot, replaces.then_some(pointer), Some(pointer));
        self.date(slot, now);
        Ok(())
    }

    /// A file in memory that was deleted while it was open says where it was, so that it is not found there after a power cut. Before
    /// something else comes there, it is written.
    fn claim(&mut self, parent: u32, key: u32) -> Result<()> {
        for slot in 0..self.files.len() {
            let page = self.memory.page(Buffer::File(slot));
            let was_here = (page.u32_at(inode::FROM_DIR), page.u32_at(inode::FROM_KEY)) == (parent, key);
            let is_skipped = mutant::active(Mutant::ClaimSkipped);
            if !is_skipped && self.files[slot].serial != NONE && was_here && page.parent() == ORPHANS {
                self.flush_file(slot)?;
            }
        }
        Ok(())
    }

    /// An entry leaves a directory.
    fn leave(&mut self, parent: u32, key: u32, pointer: Pointer, now: Time) -> Result<()> {
        let slot = self.directory(parent)?;
        self.set_pointer(slot, key, Pointer::Deleted)?;
        self.count_entry(slot, Some(pointer), None);
        self.date(slot, now);
        Ok(())
    }

    /// What has begun must end: where it does not, memory must not come to the chip any more.
    pub(crate) fn must<T>(&mut self, done: Result<T>) -> Result<T> {
        self.stopped |= done.is_err();
        done
    }

    fn date(&mut self, slot: usize, now: Time) {
        let page = self.memory.page_mut(Buffer::Directory(slot));
        page.set_u64(inode::MTIME, now.packed());
        page.set_u64(inode::CTIME, now.packed());
    }

    /// A file and its entry go.
    fn delete(&mut self, parent: u32, found: &Found, now: Time) -> Result<()> {
        let slot = self.file_at(found.serial, parent, found.key)?;
        // It is not written any more, whatever has to leave memory meanwhile.
        let dirty = core::mem::replace(&mut self.files[slot].dirty, false);
        if let Err(error) = self.leave(parent, found.key, Pointer::Unwritten, now) {
            self.files[slot].dirty = dirty;
            return Err(error);
        }
        self.state.inodes = self.state.inodes.saturating_sub(1);
        let done = self.release(slot);
        self.must(done)
    }

    /// A file that is open loses its name, and gets one in the directory of such files.
    fn make_orphan(&mut self, parent: u32, found: &Found, now: Time) -> Result<()> {
        let slot = self.file_at(found.serial, parent, found.key)?;
        self.make_name_room(slot, ORPHAN_NAME)?;
        let dirty = core::mem::replace(&mut self.files[slot].dirty, false);
        if let Err(error) = self.leave(parent, found.key, Pointer::Unwritten, now) {
            self.files[slot].dirty = dirty;
            return Err(error);
        }
        // Nothing has to be written now: where the power goes before that, the file is gone, which is what becomes of it anyway.
        let done = self.adopt(slot, (parent, found.key), now);
        self.must(done)
    }

    /// Gives the file in a slot, which has no name any more, one in the directory of files that are deleted and still open.
    fn adopt(&mut self, slot: usize, from: (u32, u32), now: Time) -> Result<()> {
        let serial = self.files[slot].serial;
        let mut name = [b'0'; ORPHAN_NAME];
        for (at, digit) in name.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(serial >> (28 - 4 * at) & 15) as usize];
        }
        let key = self.free_key(ORPHANS, &name)?;
        let page = self.memory.page_mut(Buffer::File(slot));
        if !page.rename(&name) {
            return Err(Error::NoSpace);
        }
        self.place(Buffer::File(slot), from, (ORPHANS, key), now);
        self.files[slot].dirty = true;
        self.enter(ORPHANS, key, Pointer::Unwritten, false, now)?;
        self.set_located(serial, Some(Located::File { parent: ORPHANS, key }))
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

    /// Makes room in an inode for a name of so many bytes. Content may have to leave it.
    fn make_name_room(&mut self, slot: usize, name: usize) -> Result<()> {
        let page = self.memory.page(Buffer::File(slot));
        // Beside the name that it has, with what rounding up takes.
        let more = (name + 4).saturating_sub(page.name().len());
        let size = page.u64_at(inode::SIZE);
        if page.is_inline() && page.body() + page.count() + more > page.len() {
            if page.u32_at(inode::MODE) & TYPE == LINK {
                return Err(Error::NameTooLong);
            }
            self.spill(slot)?;
        }
        self.fit(slot, size, more + EXTENT)
    }

    /// The file is written at its new place at once, with where it came from: so there is no moment in which it is at both or at none, nor
    /// one in which neither it nor what it replaces has the name. All that can fail comes before that.
    fn move_file(&mut self, wanted: &Move<'_>, replaced: Option<Found>, open: bool) -> Result<()> {
        let &Move { serial, to, name, now, .. } = wanted;
        if !mutant::active(Mutant::RenameIntoUnwritten) {
            self.write_new_directories(to.0)?;
        }
        self.claim(to.0, to.1)?;
        let slot = self.file(serial)?;
        self.make_name_room(slot, name.len())?;
        let mut old = None;
        if let Some(replaced) = replaced {
            let slot = self.file(replaced.serial)?;
            if open {
                self.make_name_room(slot, ORPHAN_NAME)?;
            }
            old = Some(slot);
        }
        let slot = self.file(serial)?;
        if let Some(old) = old {
            // From here on it is not written at the name that it loses.
            self.files[old].dirty = false;
        }
        let done = self.finish_move(slot, wanted, old.is_some());
        self.must(done)?;
        let Some(old) = old else { return Ok(()) };
        let done = if open {
            self.adopt(old, (NONE, NONE), now)
        } else {
            self.state.inodes = self.state.inodes.saturating_sub(1);
            self.release(old)
        };
        self.must(done)
    }

    fn finish_move(&mut self, slot: usize, wanted: &Move<'_>, replaces: bool) -> Result<()> {
        let &Move { serial, from, to, name, now } = wanted;
        if !self.memory.page_mut(Buffer::File(slot)).rename(name) {
            return Err(Error::NameTooLong);
        }
        self.place(Buffer::File(slot), from, to, now);
        self.files[slot].dirty = true;
        self.enter(to.0, to.1, Pointer::Unwritten, replaces, now)?;
        if !mutant::active(Mutant::RenameNotWritten) {
            self.flush_file(slot)?;
        }
        if !mutant::active(Mutant::RenamedNotLocated) {
            self.set_located(serial, Some(Located::File { parent: to.0, key: to.1 }))?;
        }
        self.leave(from.0, from.1, Pointer::Unwritten, now)
    }

    fn move_directory(&mut self, wanted: &Move<'_>, replaced: Option<Found>) -> Result<()> {
        let &Move { serial, from, to, name, now } = wanted;
        if !mutant::active(Mutant::RenameIntoUnwritten) {
            self.write_new_directories(to.0)?;
        }
        self.claim(to.0, to.1)?;
        if let Some(replaced) = replaced {
            // Recovery looks only at directories that were written: it drops this one if the power goes before the last page of it.
            let slot = self.directory(replaced.serial)?;
            self.directories[slot].dirty |= self.directories[slot].page != NONE;
            self.flush_directory(slot)?;
        }
        let slot = self.directory(serial)?;
        self.make_log_room(slot, name.len() + 8)?;
        if !self.memory.page_mut(Buffer::Directory(slot)).rename(name) {
            return Err(Error::NoSpace);
        }
        self.place(Buffer::Directory(slot), from, to, now);
        self.directories[slot].dirty = true;
        let mut move_ = || {
            self.flush_directory(slot)?;
            self.enter(to.0, to.1, Pointer::Directory(serial), replaced.is_some(), now)?;
            self.leave(from.0, from.1, Pointer::Directory(serial), now)?;
            match replaced {
                Some(replaced) => self.end_directory(replaced.serial, (NONE, NONE)),
                None => Ok(()),
            }
        };
        let done = move_();
        self.must(done)
    }

    /// Says in an inode where it is and where it came from.
    fn place(&mut self, buffer: Buffer, from: (u32, u32), to: (u32, u32), now: Time) {
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
            if !mutant::active(Mutant::GoneNotWritten) {
                let last = self.append(Log::Directory, buffer, Area::DirInode, 0, serial, parent)?;
                self.dead(last, 1);
            }
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
