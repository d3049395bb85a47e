//! Directories in memory and on the chip: entries by key.
//!
//! A directory's inode has a log of entries. When the log is full, the entries of one bucket leave it together; a bucket that is full
//! becomes two (extendible hashing, in 16 slots of their own). So no directory gets full before the chip does.

use basalt_nand::NandDevice;

use crate::error::{Error, Result};
use crate::layout::bucket::{self, Entry, FIRST, INDEX_POINTER, MOST_DEPTH, Pointer};
use crate::layout::header::{Area, name_hash};
use crate::layout::inode::{self, ENTRY, Inode, SLOTS};
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes, DIRECTORIES};
use crate::mutant::{self, Mutant};
use crate::table::Located;
use crate::volume::{FlashLight, Log};

/// Names that may share a hash.
const SAME_HASH: u32 = 7;

/// A bucket, and which keys it has.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Where it is, or [`NONE`].
    page: u32,
    slot: usize,
    /// How many bits of the key behind the slot's the keys have in common, and which.
    depth: u32,
    prefix: usize,
    /// The depth of the slot's index; `None` without one.
    index: Option<u32>,
}

impl Bucket {
    fn has(&self, key: u32) -> bool {
        bucket::slot(key) == self.slot && bucket::bits(key, self.depth) == self.prefix
    }

    /// The last key that belongs here.
    fn last(&self) -> u32 {
        let fixed = 4 + self.depth;
        let bits = (self.slot as u32) << 28 | if self.depth == 0 { 0 } else { (self.prefix as u32) << (32 - fixed) };
        bits | u32::MAX >> fixed
    }
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Has a directory in memory; says in which slot.
    pub(crate) fn directory(&mut self, serial: u32) -> Result<usize> {
        let now = self.use_now();
        if let Some(slot) = self.directories.iter().position(|slot| slot.serial == serial) {
            self.directories[slot].used = now;
            return Ok(slot);
        }
        let page = match self.located(serial)? {
            Some(Located::Directory(page)) => page,
            Some(Located::File { .. }) => return Err(Error::NotADirectory),
            None => return Err(Error::NotFound),
        };
        let slot = self.free_directory_slot()?;
        self.read_inode(page, Buffer::Directory(slot), serial, true)?;
        self.forget_origin(Buffer::Directory(slot));
        let found = &mut self.directories[slot];
        (found.serial, found.page, found.dirty, found.used) = (serial, page, false, now);
        Ok(slot)
    }

    /// A slot for another directory: what was in it is on the chip.
    pub(crate) fn free_directory_slot(&mut self) -> Result<usize> {
        let oldest = (0..DIRECTORIES).min_by_key(|&slot| self.directories[slot].used).unwrap_or(0);
        if !self.stopped {
            self.flush_directory(oldest)?;
        }
        self.directories[oldest].serial = NONE;
        Ok(oldest)
    }

    /// Writes a directory, behind the new inodes that it leads to.
    pub(crate) fn flush_directory(&mut self, slot: usize) -> Result<()> {
        let DirectorySlotState { serial, page, dirty } = self.directory_state(slot);
        if serial == NONE || !dirty {
            return Ok(());
        }
        for file in 0..self.files.len() {
            let inode = self.memory.page(Buffer::File(file));
            // New here, or moved here in memory.
            let (parent, key) = (inode.parent(), inode.u32_at(inode::KEY));
            let logged = self.find_logged(slot, key).map(|at| self.logged(slot, at).pointer);
            if self.files[file].serial != NONE
                && parent == serial
                && logged == Some(Pointer::Unwritten)
                && !mutant::active(Mutant::DirectoryBeforeFiles)
            {
                self.flush_file(file)?;
            }
        }
        for child in 0..DIRECTORIES {
            let state = self.directory_state(child);
            let parent = self.memory.page(Buffer::Directory(child)).parent();
            let comes_first = !mutant::active(Mutant::DirectoryBeforeChildren);
            if comes_first && child != slot && state.serial != NONE && state.page == NONE && parent == serial {
                self.flush_directory(child)?;
            }
        }
        let buffer = Buffer::Directory(slot);
        let parent = self.memory.page(buffer).parent();
        let covers = self.covers.unwrap_or(self.sequence + 1);
        self.memory.page_mut(buffer).set_u64(inode::COVERS, covers);
        let new = self.append(Log::Directory, buffer, Area::DirInode, 0, serial, parent)?;
        self.forget_origin(buffer);
        self.directories[slot].page = new;
        self.directories[slot].dirty = false;
        self.dead_if_any(page);
        self.set_located(serial, Some(Located::Directory(new)))
    }

    fn directory_state(&self, slot: usize) -> DirectorySlotState {
        let found = &self.directories[slot];
        DirectorySlotState { serial: found.serial, page: found.page, dirty: found.dirty }
    }

    /// The keys that a name can have in a directory of this volume.
    pub(crate) fn keys(&self, name: &[u8]) -> core::ops::Range<u32> {
        let first = name_hash(name, &self.identity.uuid) & !SAME_HASH;
        first..first + SAME_HASH
    }

    /// Pointer of a slot.
    fn slot_pointer(&self, directory: usize, slot: usize) -> u32 {
        let page = self.memory.page(Buffer::Directory(directory));
        page.u32_at(page.body() + 4 * slot)
    }

    fn set_slot_pointer(&mut self, directory: usize, slot: usize, pointer: u32) {
        let page = self.memory.page_mut(Buffer::Directory(directory));
        let at = page.body() + 4 * slot;
        page.set_u32(at, pointer);
        self.directories[directory].dirty = true;
    }

    /// The entry of a directory's log.
    fn logged(&self, directory: usize, at: usize) -> Entry {
        let page = self.memory.page(Buffer::Directory(directory));
        bucket::entry(&page[page.log()..], at)
    }

    fn find_logged(&self, directory: usize, key: u32) -> Option<usize> {
        let page = self.memory.page(Buffer::Directory(directory));
        bucket::find(&page[page.log()..], page.count(), key)
    }

    /// The bucket that a key belongs to.
    fn bucket_of(&mut self, directory: usize, key: u32) -> Result<Bucket> {
        let slot = bucket::slot(key);
        let pointer = self.slot_pointer(directory, slot);
        if pointer == NONE || pointer & INDEX_POINTER == 0 {
            return Ok(Bucket { page: pointer, slot, depth: 0, prefix: 0, index: None });
        }
        self.load_work(pointer & !INDEX_POINTER, Area::Bucket)?;
        let index = self.memory.page(Buffer::Work);
        let depth = bucket::depth(index);
        let sub = bucket::bits(key, depth);
        let page = index.u32_at(FIRST + 4 * sub);
        // How deep the bucket is: as many pointers as lead to it.
        let mut own = depth;
        while own > 0 {
            let half = 1 << (depth - own);
            let first = sub >> (depth - own) << (depth - own);
            let buddy = first ^ half;
            if page == NONE || (0..half).any(|at| index.u32_at(FIRST + 4 * (buddy + at)) != page) {
                break;
            }
            own -= 1;
        }
        Ok(Bucket { page, slot, depth: own, prefix: bucket::bits(key, own), index: Some(depth) })
    }

    /// What a key points to.
    pub(crate) fn pointer(&mut self, directory: usize, key: u32) -> Result<Option<Pointer>> {
        if let Some(at) = self.find_logged(directory, key) {
            let pointer = self.logged(directory, at).pointer;
            return Ok(Some(pointer).filter(|&pointer| pointer != Pointer::Deleted));
        }
        let found = self.bucket_of(directory, key)?;
        if found.page == NONE {
            return Ok(None);
        }
        self.load_work(found.page, Area::Bucket)?;
        let page = self.memory.page(Buffer::Work);
        let at = bucket::find(&page[FIRST..], bucket::count(page), key);
        Ok(at.map(|at| bucket::entry(&page[FIRST..], at).pointer))
    }

    /// The entry with the least key from `from` on.
    pub(crate) fn next_entry(&mut self, directory: usize, mut from: u32) -> Result<Option<Entry>> {
        loop {
            let found = self.bucket_of(directory, from)?;
            let last = found.last();
            let page = self.memory.page(Buffer::Directory(directory));
            let log = &page[page.log()..];
            let logged = (0..page.count()).map(|at| bucket::entry(log, at));
            let mut best = logged
                .filter(|entry| (from..=last).contains(&entry.key) && entry.pointer != Pointer::Deleted)
                .min_by_key(|entry| entry.key);
            if found.page != NONE {
                self.load_work(found.page, Area::Bucket)?;
                let page = self.memory.page(Buffer::Work);
                for at in 0..bucket::count(page) {
                    let entry = bucket::entry(&page[FIRST..], at);
                    let better = (from..=last).contains(&entry.key) && best.is_none_or(|best| entry.key < best.key);
                    if better && self.find_logged(directory, entry.key).is_none() {
                        best = Some(entry);
                    }
                }
            }
            match (best, last) {
                (Some(_), _) => return Ok(best),
                (None, u32::MAX) => return Ok(None),
                (None, _) => from = last + 1,
            }
        }
    }

    /// Lets a key point to something else, or to nothing. Needs room for metadata.
    pub(crate) fn set_pointer(&mut self, directory: usize, key: u32, pointer: Pointer) -> Result<()> {
        self.directories[directory].dirty = true;
        let buffer = Buffer::Directory(directory);
        if let Some(at) = self.find_logged(directory, key) {
            let nowhere_else = self.slot_pointer(directory, bucket::slot(key)) == NONE;
            let page = self.memory.page_mut(buffer);
            let (log, count) = (page.log(), page.count());
            if pointer == Pointer::Deleted && nowhere_else {
                page.copy_within(log + (count - 1) * ENTRY..log + count * ENTRY, log + at * ENTRY);
                page.set_count(count - 1);
            } else {
                bucket::set_entry(&mut page[log..], at, Entry { key, pointer });
            }
            return Ok(());
        }
        if pointer == Pointer::Deleted && self.slot_pointer(directory, bucket::slot(key)) == NONE {
            return Ok(());
        }
        self.make_log_room(directory, ENTRY)?;
        let page = self.memory.page_mut(buffer);
        let (log, count) = (page.log(), page.count());
        bucket::set_entry(&mut page[log..], count, Entry { key, pointer });
        page.set_count(count + 1);
        Ok(())
    }

    /// Moves entries out of a directory's log until so many bytes are free.
    pub(crate) fn make_log_room(&mut self, directory: usize, bytes: usize) -> Result<()> {
        let mut in_vain = 0;
        loop {
            let page = self.memory.page(Buffer::Directory(directory));
            if page.body() + page.body_length() + bytes <= page.len() {
                return Ok(());
            }
            // A bucket that is full is split first, at most as often as a key has bits for it; or there is nothing to move.
            let before = page.count();
            self.merge(directory)?;
            in_vain = if self.memory.page(Buffer::Directory(directory)).count() < before { 0 } else { in_vain + 1 };
            if in_vain > MOST_DEPTH {
                return Err(Error::NoSpace);
            }
        }
    }

    /// Moves the entries of the bucket that has the most of them out of the log.
    fn merge(&mut self, directory: usize) -> Result<()> {
        let slot = self.fullest(directory, SLOTS, |key| Some(bucket::slot(key)));
        let mut key = (slot as u32) << 28;
        let pointer = self.slot_pointer(directory, slot);
        if pointer != NONE && pointer & INDEX_POINTER != 0 {
            self.load_work(pointer & !INDEX_POINTER, Area::Bucket)?;
            let depth = bucket::depth(self.memory.page(Buffer::Work));
            let sub = self
                .fullest(directory, 1 << depth, |key| (bucket::slot(key) == slot).then(|| bucket::bits(key, depth)));
            key |= if depth == 0 { 0 } else { (sub as u32) << (28 - depth) };
        }
        let found = self.bucket_of(directory, key)?;
        if let Some(page) = self.rewritten(directory, &found, true)? {
            self.replace(directory, &found, &[page])?;
            self.forget_logged(directory, &found);
            return Ok(());
        }
        if found.depth == MOST_DEPTH {
            return Err(Error::NoSpace);
        }
        let half = |prefix| Bucket { depth: found.depth + 1, prefix, ..found };
        let (low, high) = (half(found.prefix << 1), half(found.prefix << 1 | 1));
        // What it has fits into two; the log's entries come with the next try.
        let (first, second) = (self.rewritten(directory, &low, false)?, self.rewritten(directory, &high, false)?);
        self.replace(directory, &found, &[first.unwrap_or(NONE), second.unwrap_or(NONE)])
    }

    /// Of so many groups, that with the most entries of the log.
    fn fullest(&self, directory: usize, groups: usize, group: impl Fn(u32) -> Option<usize>) -> usize {
        let page = self.memory.page(Buffer::Directory(directory));
        let log = &page[page.log()..];
        let mut tally = [0u16; 1 << MOST_DEPTH];
        for entry in (0..page.count()).map(|at| bucket::entry(log, at)) {
            if let Some(group) = group(entry.key).filter(|_| entry.pointer != Pointer::Unwritten) {
                tally[group] += 1;
            }
        }
        (0..groups).max_by_key(|&group| tally[group]).unwrap_or(0)
    }

    /// Writes a bucket anew, with what the log has of it if that is wanted, and says where; [`NONE`] if it is empty. `None`: there is no
    /// room for all of them.
    fn rewritten(&mut self, directory: usize, new: &Bucket, with_log: bool) -> Result<Option<u32>> {
        if new.page == NONE {
            self.work_mut().fill(0);
        } else {
            self.load_work(new.page, Area::Bucket)?;
        }
        self.work = NONE;
        let (work, page) = self.memory.work_and(Buffer::Directory(directory));
        let mut kept = 0;
        for at in 0..bucket::count(work) {
            let entry = bucket::entry(&work[FIRST..], at);
            if new.has(entry.key) {
                bucket::set_entry(&mut work[FIRST..], kept, entry);
                kept += 1;
            }
        }
        bucket::set_count(work, kept);
        work[bucket::DEPTH] = new.depth as u8;
        let log = &page[page.log()..];
        let logged = if with_log { page.count() } else { 0 };
        for entry in (0..logged).map(|at| bucket::entry(log, at)) {
            if new.has(entry.key) && entry.pointer != Pointer::Unwritten && !bucket::apply(work, entry) {
                return Ok(None);
            }
        }
        if bucket::count(work) == 0 {
            return Ok(Some(NONE));
        }
        let serial = self.directories[directory].serial;
        self.append(Log::Bucket, Buffer::Work, Area::Bucket, 0, serial, new.slot as u32).map(Some)
    }

    /// Lets the directory lead to one new bucket, or to two, in place of one.
    fn replace(&mut self, directory: usize, old: &Bucket, new: &[u32]) -> Result<()> {
        let serial = self.directories[directory].serial;
        if let ([page], None) = (new, old.index) {
            self.set_slot_pointer(directory, old.slot, *page);
            self.dead_if_any(old.page);
            if mutant::active(Mutant::BucketErasedEarly) {
                self.erase_if_dead(old.page)?;
            }
            return Ok(());
        }
        let pointer = self.slot_pointer(directory, old.slot);
        let mut depth = old.index.unwrap_or(0);
        if old.index.is_some() {
            self.load_work(pointer & !INDEX_POINTER, Area::Bucket)?;
        } else {
            self.work_mut().fill(0);
        }
        let work = self.work_mut();
        if new.len() == 2 && depth == old.depth {
            // Each pointer becomes two, from the last one on.
            for at in (0..1 << depth).rev() {
                let page = if old.index.is_some() { work.u32_at(FIRST + 4 * at) } else { NONE };
                work.set_u32(FIRST + 8 * at, page);
                work.set_u32(FIRST + 8 * at + 4, page);
            }
            depth += 1;
        }
        work[bucket::DEPTH] = depth as u8;
        let pointers = 1 << (depth - old.depth);
        for at in 0..pointers {
            let place = FIRST + 4 * (old.prefix * pointers + at);
            work.set_u32(place, new[at * new.len() / pointers]);
        }
        let index = self.append(Log::Bucket, Buffer::Work, Area::Bucket, bucket::INDEX, serial, old.slot as u32)?;
        self.set_slot_pointer(directory, old.slot, INDEX_POINTER | index);
        if old.index.is_some() {
            self.dead(pointer & !INDEX_POINTER, 1);
        }
        self.dead_if_any(old.page);
        Ok(())
    }

    /// Takes the entries that a bucket has now out of the log.
    fn forget_logged(&mut self, directory: usize, found: &Bucket) {
        let page = self.memory.page_mut(Buffer::Directory(directory));
        let (log, count) = (page.log(), page.count());
        let list = &mut page[log..];
        let mut kept = 0;
        for at in 0..count {
            let entry = bucket::entry(list, at);
            if !found.has(entry.key) || entry.pointer == Pointer::Unwritten {
                bucket::set_entry(list, kept, entry);
                kept += 1;
            }
        }
        page.set_count(kept);
        self.directories[directory].dirty = true;
    }

    /// For each page of buckets and their indexes of a directory in memory.
    pub(crate) fn for_each_bucket(&mut self, directory: usize, each: impl Fn(&mut Self, u32)) -> Result<()> {
        for slot in 0..SLOTS {
            let pointer = self.slot_pointer(directory, slot);
            if pointer == NONE {
                continue;
            }
            if pointer & INDEX_POINTER == 0 {
                each(self, pointer);
                continue;
            }
            self.load_work(pointer & !INDEX_POINTER, Area::Bucket)?;
            let pointers = 1 << bucket::depth(self.memory.page(Buffer::Work));
            let mut before = NONE;
            for at in 0..pointers {
                self.load_work(pointer & !INDEX_POINTER, Area::Bucket)?;
                let page = self.memory.page(Buffer::Work).u32_at(FIRST + 4 * at);
                if page != NONE && page != before {
                    each(self, page);
                }
                before = page;
            }
            each(self, pointer & !INDEX_POINTER);
        }
        Ok(())
    }

    /// Moves a bucket or an index of a directory, if the directory still leads to that page.
    pub(crate) fn move_bucket(&mut self, serial: u32, slot: u32, page: u32) -> Result<bool> {
        let directory = match self.directory(serial) {
            Ok(directory) => directory,
            Err(Error::NotFound | Error::NotADirectory) => return Ok(false),
            Err(error) => return Err(error),
        };
        let slot = slot as usize % SLOTS;
        let pointer = self.slot_pointer(directory, slot);
        if pointer == NONE {
            return Ok(false);
        }
        let index = (pointer & INDEX_POINTER != 0).then_some(pointer & !INDEX_POINTER);
        if pointer == page || index == Some(page) {
            let flags = if index.is_some() { bucket::INDEX } else { 0 };
            self.load_work(page, Area::Bucket)?;
            let new = self.append(Log::Bucket, Buffer::Work, Area::Bucket, flags, serial, slot as u32)?;
            self.set_slot_pointer(directory, slot, new | pointer & INDEX_POINTER);
            self.dead(page, 1);
            if mutant::active(Mutant::BucketErasedEarly) {
                self.erase_if_dead(page)?;
            }
            return Ok(true);
        }
        let Some(index) = index else { return Ok(false) };
        self.load_work(index, Area::Bucket)?;
        let leads = |work: &[u8], at: usize| work.u32_at(FIRST + 4 * at) == page;
        let pointers = 1 << bucket::depth(self.memory.page(Buffer::Work));
        if !(0..pointers).any(|at| leads(self.memory.page(Buffer::Work), at)) {
            return Ok(false);
        }
        self.load_work(page, Area::Bucket)?;
        let new = self.append(Log::Bucket, Buffer::Work, Area::Bucket, 0, serial, slot as u32)?;
        self.load_work(index, Area::Bucket)?;
        let work = self.work_mut();
        for at in 0..pointers {
            if leads(work, at) {
                work.set_u32(FIRST + 4 * at, new);
            }
        }
        let moved = self.append(Log::Bucket, Buffer::Work, Area::Bucket, bucket::INDEX, serial, slot as u32)?;
        self.set_slot_pointer(directory, slot, INDEX_POINTER | moved);
        self.dead(page, 1);
        self.dead(index, 1);
        Ok(true)
    }
}

/// What matters when a directory is written.
struct DirectorySlotState {
    serial: u32,
    page: u32,
    dirty: bool,
}
