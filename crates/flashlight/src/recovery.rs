//! After a power cut: what was written since the last checkpoint is found, in the order in which it was written.
//!
//! What each page says: docs/flashlight-format.md, "What outlasts a power cut".
//!
//! Nothing that a page written since the checkpoint needs was erased since, so all versions are there to be read. Live pages are counted
//! by the difference of old and new. At the end there is a checkpoint; a power cut before that begins all anew.

mod last;

use basalt_nand::NandDevice;

use crate::error::{Error, Result};
use crate::layout::bucket::Pointer;
use crate::layout::header::Area;
use crate::layout::inode::{self, GONE, Inode};
use crate::layout::leaf::{Head, LOGS, REMNANTS, State, WINDOW};
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::mount::ORPHANS;
use crate::mutant::{self, Mutant};
use crate::table::Located;
use crate::volume::{FlashLight, KEPT, Log};

/// Where the search for pages of a log is.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    area: Area,
    /// The block: the one that was open, then those of the window.
    block: Option<usize>,
    page: u32,
    /// The last page of it that was found.
    found: Option<(u64, u32)>,
}

impl Cursor {
    fn new(area: Area) -> Cursor {
        Cursor { area, block: None, page: 0, found: None }
    }
}

/// A block of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    /// What its pages are for; `None` if it is not in use, or has data.
    area: Option<Area>,
    /// Behind which page nothing is.
    pages: u8,
}

impl Used {
    const NOT: Used = Used { area: None, pages: 0 };
}

/// What the checkpoint says.
struct Since {
    /// Its sequence number.
    sequence: u64,
    /// The logs' open blocks.
    heads: [Head; LOGS],
    /// Free blocks that may be in use by now.
    window: [u32; WINDOW],
    /// Of each log that was open, behind which page of its block nothing is; then what is in each block of the window.
    open: [u32; LOGS],
    used: [Used; WINDOW],
    /// The page that was written last, and a copy of it that stays.
    saved: (u32, u32),
}

impl Since {
    fn new(checkpoint: u64, state: &State) -> Since {
        Since {
            sequence: checkpoint,
            heads: state.heads,
            window: state.window,
            open: [0; LOGS],
            used: [Used::NOT; WINDOW],
            saved: (NONE, NONE),
        }
    }
}

/// An older root leads to what was, and may have been overwritten since.
const NEWER: Error =
    Error::Damaged { page: 0, what: "the newest root cannot be read, and the one before it is out of date" };

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Where a root may be lost that is newer than the one that was found: makes sure that nothing was written behind the checkpoint, which
    /// says so. A session that writes a root goes on where the checkpoint before it ended.
    pub(crate) fn check_nothing_since(&mut self, checkpoint: u64) -> Result<()> {
        if !self.roots.newer_may_be_lost() {
            return Ok(());
        }
        let mut since = Since::new(checkpoint, &self.state);
        let last = self.find_last(&mut since)?;
        if last.any { Err(NEWER) } else { Ok(()) }
    }

    /// Recovers what was written since the checkpoint with that sequence number.
    pub(crate) fn recover(&mut self, checkpoint: u64) -> Result<()> {
        let mut since = Since::new(checkpoint, &self.state);
        self.recovering = true;
        self.covers = Some(since.sequence);
        // The rest of an open block is never written: its first page may keep nothing.
        self.state.heads = [Head::CLOSED; LOGS];
        self.state.remnants = [Head::CLOSED; REMNANTS];
        let last = self.find_last(&mut since)?;
        if self.roots.newer_may_be_lost() && last.is_behind_newer_leaf() {
            return Err(NEWER);
        }
        if mutant::active(Mutant::TornBlockGoneOn) {
            self.state.heads = core::array::from_fn(|log| Head { next: since.open[log], ..since.heads[log] });
        }
        self.keep_root()?;
        if last.any {
            self.take_kept(&mut since);
            self.save_last(&mut since)?;
            self.replay_directories(&since)?;
            self.replay_inodes(&since)?;
            while !mutant::active(Mutant::UnreachableKept) && self.drop_unreachable(&since)? {}
            self.covers = None;
            self.take_unused(&since);
        } else {
            // The checkpoint itself may be what the power cut was in: if it cannot be read next time, the one before it counts. The first
            // blocks of the window were free then, too.
            self.covers = None;
            self.take_window();
        }
        self.ahead = NONE;
        if !mutant::active(Mutant::RecoveryNotClosed) {
            self.checkpoint(false)?;
        }
        if !mutant::active(Mutant::OrphansKept) {
            self.delete_orphans()?;
        }
        self.recovering = false;
        Ok(())
    }

    /// Writes go to the last blocks of the window, which only recovery uses. An earlier attempt may have: what it wrote is worth nothing.
    fn take_kept(&mut self, since: &mut Since) {
        let used = since.window.iter().filter(|&&block| block != NONE).count();
        let mut kept = [NONE; WINDOW];
        let last = used.saturating_sub(KEPT)..used;
        let last = if mutant::active(Mutant::RecoveryOverwrites) { 0..last.len() } else { last };
        let blocks = since.window[last.clone()].iter().filter(|&&block| !self.is_needed(block));
        for (at, &block) in blocks.enumerate() {
            kept[at] = block;
        }
        since.window[last].fill(NONE);
        self.set_window(kept);
    }

    /// Now that all live pages are counted, other blocks of the window are known to be free.
    fn take_unused(&mut self, since: &Since) {
        let left = self.window_left();
        let mut window = [NONE; WINDOW];
        window[..left].copy_from_slice(&self.state.window[self.window_used..self.window_used + left]);
        let mut count = left;
        for (&block, used) in since.window.iter().zip(&since.used).filter(|(block, _)| **block != NONE) {
            let free = self.memory.counts()[block as usize] == 0 && !self.is_needed(block);
            // A power cut now begins all anew, and needs the pages that were read.
            if free && used.area.is_none() {
                window[count] = block;
                count += 1;
            }
        }
        self.set_window(window);
    }

    /// Writes the page that was written last once more: the power cut may have been in it, and then it does not stay.
    fn save_last(&mut self, since: &mut Since) -> Result<()> {
        if mutant::active(Mutant::LastPageNotSaved) {
            since.saved.0 = NONE;
            return Ok(());
        }
        let last = since.saved.0;
        let Some(header) = self.header_of(last)? else { return Ok(()) };
        let log = match header.area {
            Area::FileInode => Log::File,
            Area::DirInode => Log::Directory,
            // Nothing leads to any other page that is the last one.
            _ => return Ok(()),
        };
        let copy = self.append(log, Buffer::Work, header.area, header.flags, header.owner, header.which)?;
        // Whoever leads to it counts it.
        self.dead(copy, 1);
        since.saved.1 = copy;
        Ok(())
    }

    /// The next page of a log since the checkpoint, which is then in the work page.
    fn next_page(&mut self, cursor: &mut Cursor, since: &Since) -> Result<()> {
        let log = if cursor.area == Area::FileInode { Log::File } else { Log::Directory } as usize;
        loop {
            let (block, end) = match cursor.block {
                None => (since.heads[log].block, since.open[log]),
                Some(at) if since.used[at].area == Some(cursor.area) => (since.window[at], since.used[at].pages.into()),
                Some(_) => (NONE, 0),
            };
            if cursor.block.is_none() {
                cursor.page = cursor.page.max(since.heads[log].next);
            }
            if block != NONE && cursor.page < end {
                let page = self.geometry.first_page(block) + cursor.page;
                cursor.page += 1;
                // The last page may read differently each time: only its copy is looked at.
                let page = if page == since.saved.0 { since.saved.1 } else { page };
                if page == NONE {
                    continue;
                }
                let header = self.header_of(page)?;
                let found = header.filter(|header| {
                    let is_new = header.sequence > since.sequence || mutant::active(Mutant::OldPagesReplayed);
                    header.area == cursor.area && is_new
                });
                if let Some(header) = found {
                    cursor.found = Some((header.sequence, page));
                    return Ok(());
                }
                continue;
            }
            let next = cursor.block.map_or(0, |at| at + 1);
            if next >= WINDOW {
                cursor.found = None;
                return Ok(());
            }
            (cursor.block, cursor.page) = (Some(next), 0);
        }
    }

    /// First the directories: each is what its newest inode says.
    fn replay_directories(&mut self, since: &Since) -> Result<()> {
        let mut cursor = Cursor::new(Area::DirInode);
        loop {
            self.next_page(&mut cursor, since)?;
            let Some((_, page)) = cursor.found else { return Ok(()) };
            let serial = self.memory.page(Buffer::Work).u32_at(8);
            self.forget_directories();
            self.state.next_serial = self.state.next_serial.max(serial.saturating_add(1));
            let before = match self.located(serial)? {
                Some(Located::Directory(before)) => Some(before),
                _ => None,
            };
            self.read_inode(page, Buffer::Directory(1), serial, true)?;
            let gone = self.memory.page(Buffer::Directory(1)).u32_at(inode::FLAGS) & GONE != 0;
            self.directories[1].serial = if gone { NONE } else { serial };
            if let Some(before) = before {
                self.read_inode(before, Buffer::Directory(0), serial, true)?;
                self.directories[0].serial = serial;
                self.for_each_bucket(0, |volume, page| volume.dead(page, 1))?;
                self.dead(before, 1);
            } else {
                self.state.inodes += u32::from(!gone);
            }
            // A directory that is gone has nothing in it: its files died with it, as far as they were on the chip.
            self.compare(before.is_some(), serial)?;
            if gone {
                self.state.inodes = self.state.inodes.saturating_sub(before.is_some().into());
                self.set_located(serial, None)?;
            } else {
                self.for_each_bucket(1, |volume, page| volume.live(page))?;
                self.live(page);
                self.set_located(serial, Some(Located::Directory(page)))?;
            }
            self.forget_directories();
        }
    }

    /// No directory in memory is relied on.
    fn forget_directories(&mut self) {
        for slot in &mut self.directories {
            (slot.serial, slot.dirty, slot.page) = (NONE, false, NONE);
        }
    }

    /// Counts the files that differ between a directory's old inode in the first slot, if there is one, and the new one in the second.
    fn compare(&mut self, old: bool, serial: u32) -> Result<()> {
        let mut from = 0;
        loop {
            let before = if old { self.next_entry(0, from)? } else { None };
            let after = self.next_entry(1, from)?;
            let Some(key) = before.iter().chain(&after).map(|entry| entry.key).min() else { return Ok(()) };
            let of = |entry: Option<crate::layout::bucket::Entry>| {
                entry.filter(|entry| entry.key == key).map(|entry| entry.pointer)
            };
            self.count_change(serial, key, of(before), of(after))?;
            match key.checked_add(1) {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// A key of a directory leads elsewhere: what it led to is dead, what it leads to is live.
    fn count_change(&mut self, parent: u32, key: u32, before: Option<Pointer>, after: Option<Pointer>) -> Result<()> {
        if before == after {
            return Ok(());
        }
        if let Some(Pointer::File(page)) = before {
            self.count_file(page, false)?;
            self.state.inodes = self.state.inodes.saturating_sub(1);
        }
        if let Some(Pointer::File(page)) = after {
            let serial = self.count_file(page, true)?;
            self.state.inodes += 1;
            self.state.next_serial = self.state.next_serial.max(serial.saturating_add(1));
            self.set_located(serial, Some(Located::File { parent, key }))?;
        }
        Ok(())
    }

    /// Counts all pages of the file whose inode is there; says its number.
    fn count_file(&mut self, page: u32, live: bool) -> Result<u32> {
        // The page that is replayed was read already.
        let slot = usize::from(self.ahead == page);
        let owner = match slot {
            1 => self.memory.page(Buffer::File(1)).serial(),
            _ => self.read_metadata(page, Buffer::File(0), Area::FileInode)?.owner,
        };
        self.take_file(slot, page, owner)?;
        let each = |volume: &mut Self, page: u32, length: u32| {
            if live {
                volume.live_all(page, length);
            } else if !mutant::active(Mutant::OldVersionsLive) {
                volume.dead(page, length);
            }
        };
        self.for_each_page(slot, each)?;
        self.files[slot].serial = NONE;
        Ok(owner)
    }

    /// Then the inodes that are newer than the directories that they are in.
    fn replay_inodes(&mut self, since: &Since) -> Result<()> {
        let mut files = Cursor::new(Area::FileInode);
        let mut directories = Cursor::new(Area::DirInode);
        self.next_page(&mut files, since)?;
        self.next_page(&mut directories, since)?;
        loop {
            let next = match mutant::active(Mutant::ReplayUnordered) {
                true => files.found.or(directories.found),
                false => [files.found, directories.found].into_iter().flatten().min(),
            };
            let Some((sequence, page)) = next else { return Ok(()) };
            if files.found == next {
                self.replay_inode(sequence, page, false)?;
                self.next_page(&mut files, since)?;
            } else {
                self.replay_inode(sequence, page, true)?;
                self.next_page(&mut directories, since)?;
            }
            self.covers = Some(sequence);
        }
    }

    /// A new directory may be on the chip while the one above it, new as well, never got there: it is dropped with all that is in it.
    /// An fsync of anything in it would have written both. Whether there was one.
    fn drop_unreachable(&mut self, since: &Since) -> Result<bool> {
        let mut cursor = Cursor::new(Area::DirInode);
        let mut dropped = false;
        loop {
            self.next_page(&mut cursor, since)?;
            if cursor.found.is_none() {
                return Ok(dropped);
            }
            let serial = self.memory.page(Buffer::Work).serial();
            if serial <= ORPHANS || !matches!(self.located(serial)?, Some(Located::Directory(_))) {
                continue;
            }
            let slot = self.directory(serial)?;
            let inode = self.memory.page(Buffer::Directory(slot));
            let (parent, key) = (inode.parent(), inode.u32_at(inode::KEY));
            let leads = match self.directory(parent) {
                Ok(slot) => self.pointer(slot, key)? == Some(Pointer::Directory(serial)),
                Err(Error::NotFound | Error::NotADirectory) => false,
                Err(error) => return Err(error),
            };
            if !leads {
                self.drop_directory(serial)?;
                dropped = true;
            }
        }
    }

    fn drop_directory(&mut self, serial: u32) -> Result<()> {
        let mut from = 0;
        loop {
            let slot = self.directory(serial)?;
            let Some(entry) = self.next_entry(slot, from)? else { break };
            if let Pointer::File(page) = entry.pointer {
                self.count_file(page, false)?;
                self.state.inodes = self.state.inodes.saturating_sub(1);
            }
            let Some(next) = entry.key.checked_add(1) else { break };
            from = next;
        }
        let slot = self.directory(serial)?;
        self.for_each_bucket(slot, |volume, page| volume.dead(page, 1))?;
        let page = self.directories[slot].page;
        self.dead_if_any(page);
        (self.directories[slot].serial, self.directories[slot].dirty) = (NONE, false);
        self.state.inodes = self.state.inodes.saturating_sub(1);
        self.set_located(serial, None)
    }

    /// One inode: where it is, and where it is no longer.
    fn replay_inode(&mut self, sequence: u64, page: u32, directory: bool) -> Result<()> {
        // It may have been read just now.
        if self.work != page && self.header_of(page)?.is_none() {
            return Ok(());
        }
        if !directory {
            // Its directory is read next, and the work page is needed for that.
            self.files[1].serial = NONE;
            self.memory.copy_work(Buffer::File(1));
            self.ahead = page;
        }
        let work = self.memory.page(Buffer::Work);
        let (serial, parent, key) = (work.serial(), work.parent(), work.u32_at(inode::KEY));
        let from = (work.u32_at(inode::FROM_DIR), work.u32_at(inode::FROM_KEY));
        let gone = directory && work.u32_at(inode::FLAGS) & GONE != 0;
        if from.0 != NONE && !mutant::active(Mutant::OriginIgnored) {
            self.point(sequence, serial, from, None)?;
        }
        if gone || serial <= ORPHANS {
            return Ok(());
        }
        if directory && !matches!(self.located(serial)?, Some(Located::Directory(_))) {
            return Ok(());
        }
        let pointer = if directory { Pointer::Directory(serial) } else { Pointer::File(page) };
        self.point(sequence, serial, (parent, key), Some(pointer))
    }

    /// Lets a key of a directory lead elsewhere, if the directory does not know better.
    fn point(&mut self, sequence: u64, serial: u32, (parent, key): (u32, u32), pointer: Option<Pointer>) -> Result<()> {
        let slot = match self.directory(parent) {
            Ok(slot) => slot,
            // The directory is gone, too.
            Err(Error::NotFound | Error::NotADirectory) => return Ok(()),
            Err(error) => return Err(error),
        };
        if self.memory.page(Buffer::Directory(slot)).u64_at(inode::COVERS) >= sequence
            && !mutant::active(Mutant::CoversIgnored)
        {
            // An older page of the file may have been at a place that another directory does not know to be left.
            if let Some(Pointer::File(page)) = pointer
                && self.pointer(slot, key)? == Some(Pointer::File(page))
            {
                self.set_located(serial, Some(Located::File { parent, key }))?;
            }
            return Ok(());
        }
        let before = self.pointer(slot, key)?;
        if before == pointer {
            return Ok(());
        }
        self.count_change(parent, key, before, pointer)?;
        let slot = self.directory(parent)?;
        self.count_entry(slot, before, pointer);
        self.set_pointer(slot, key, pointer.unwrap_or(Pointer::Deleted))
    }
}
