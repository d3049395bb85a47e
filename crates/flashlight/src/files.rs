//! Files in memory and on the chip: their pages and where they are.
//!
//! A file's inode has its content while that fits, then a log of extents. When the log is full, the extents of the part of the file that
//! has the most of them leave it together, to an extent map: a page with the place of each page of that part.

use basalt_nand::NandDevice;

use crate::error::{Error, Result};
use crate::layout::bucket::Pointer;
use crate::layout::extents::{self, Extent, Extents};
use crate::layout::header::Area;
use crate::layout::inode::{self, EXTENT, Inode, MOST_MAPS};
use crate::layout::leaf::Head;
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes, FILES};
use crate::table::Located;
use crate::volume::{FlashLight, Log, count_dead};

/// Where the places of an extent map begin.
const MAP_FIRST: usize = 24;
/// Extents that the log has room for at least, beside pointers to maps.
const LEAST_EXTENTS: usize = 40;

/// Where a page of a file is, and for how many pages that goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup {
    /// The page of the chip, or [`NONE`].
    pub(crate) page: u32,
    run: u32,
    /// A map says so, not the log.
    mapped: bool,
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Has a file in memory; says in which slot.
    pub(crate) fn file(&mut self, serial: u32) -> Result<usize> {
        let now = self.use_now();
        if let Some(slot) = self.files.iter().position(|slot| slot.serial == serial) {
            self.files[slot].used = now;
            return Ok(slot);
        }
        let slot = self.free_file_slot()?;
        let (parent, key) = match self.located(serial)? {
            Some(Located::File { parent, key }) => (parent, key),
            Some(Located::Directory(_)) => return Err(Error::IsADirectory),
            None => return Err(Error::NotFound),
        };
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

    /// Pages of a file that a map has the places of.
    fn per_map(&self) -> u32 {
        (self.geometry.page_bytes - MAP_FIRST as u32) / 4
    }

    /// Maps that a file of so many bytes has or will have; `None` if its inode has no room to lead to them.
    pub(crate) fn maps_for(&self, inode: &[u8], size: u64) -> Option<usize> {
        let maps = self.pages_of(size).div_ceil(self.per_map().into()) as usize;
        let room = inode.len() - inode.body();
        (4 * maps + LEAST_EXTENTS * EXTENT <= room && maps <= MOST_MAPS).then(|| maps.max(inode.maps()))
    }

    /// Where a page of a file is.
    pub(crate) fn look(&mut self, slot: usize, offset: u32) -> Result<Lookup> {
        let inode = self.memory.page(Buffer::File(slot));
        let gap = match extents::find(&inode[inode.log()..], inode.count(), offset) {
            Ok(found) => return Ok(Lookup { page: found.page_at(offset), run: found.end() - offset, mapped: false }),
            Err(gap) => gap,
        };
        let per = self.per_map();
        let which = (offset / per) as usize;
        if which >= inode.maps() {
            return Ok(Lookup { page: NONE, run: gap, mapped: false });
        }
        let limit = gap.min(per - offset % per);
        let map = inode.u32_at(inode.body() + 4 * which);
        if map == NONE {
            return Ok(Lookup { page: NONE, run: limit, mapped: true });
        }
        self.load_work(map, Area::ExtentMap)?;
        let work = self.memory.page(Buffer::Work);
        let place = |at: u32| work.u32_at(MAP_FIRST + 4 * (offset % per + at) as usize);
        let page = place(0);
        let follows = |&at: &u32| place(at) == if page == NONE { NONE } else { page + at };
        let run = 1 + (1..limit).take_while(follows).count() as u32;
        Ok(Lookup { page, run, mapped: true })
    }

    /// Where a page of a file is: for cleaning.
    pub(crate) fn page_of(&mut self, slot: usize, offset: u32) -> Result<u32> {
        if self.memory.page(Buffer::File(slot)).is_inline() {
            return Ok(NONE);
        }
        Ok(self.look(slot, offset)?.page)
    }

    /// The bytes of the log of extents, with the counts of live pages.
    fn with_log<R>(&mut self, slot: usize, change: impl FnOnce(&mut Extents<'_>, &mut dyn FnMut(u32, u32)) -> R) -> R {
        let geometry = self.geometry;
        let inode = self.memory.page(Buffer::File(slot));
        let reserved = self.maps_for(inode, inode.u64_at(inode::SIZE)).map_or(0, |maps| 4 * (maps - inode.maps()));
        let (inode, counts) = self.memory.page_and_counts(Buffer::File(slot));
        let (log, count, end) = (inode.log(), inode.count(), inode.len() - reserved);
        let mut list = Extents::new(&mut inode[log..end], count);
        let result = change(&mut list, &mut |page, length| count_dead(counts, &geometry, page, length));
        let count = list.count();
        inode.set_count(count);
        result
    }

    /// Lets pages of a file be somewhere else, or nowhere. What was there is dead.
    pub(crate) fn insert(&mut self, slot: usize, extent: Extent) -> Result<()> {
        self.files[slot].dirty = true;
        self.count_mapped_dead(slot, extent.offset, extent.end())?;
        while !self.with_log(slot, |list, _| list.has_room()) {
            self.merge_extents(slot)?;
        }
        let absent = extent.page == NONE && self.memory.page(Buffer::File(slot)).maps() == 0;
        self.with_log(slot, |list, dead| {
            if absent { list.remove(extent.offset, extent.length, dead) } else { list.insert(extent, dead) }
        });
        Ok(())
    }

    /// Moves extents to maps until the inode has room for a file of that size, and for so many bytes more.
    pub(crate) fn fit(&mut self, slot: usize, size: u64, bytes: usize) -> Result<()> {
        loop {
            let inode = self.memory.page(Buffer::File(slot));
            let maps = self.maps_for(inode, size).map_or(0, |maps| maps - inode.maps());
            if inode.is_inline() || inode.body() + inode.body_length() + 2 * EXTENT + 4 * maps + bytes <= inode.len() {
                return Ok(());
            }
            self.merge_extents(slot)?;
        }
    }

    /// Counts the pages as dead that maps, and not the log, have for a range.
    fn count_mapped_dead(&mut self, slot: usize, mut from: u32, to: u32) -> Result<()> {
        let mapped = self.memory.page(Buffer::File(slot)).maps() as u32 * self.per_map();
        while from < to.min(mapped) {
            let found = self.look(slot, from)?;
            let run = found.run.min(to - from);
            if found.mapped && found.page != NONE {
                self.dead(found.page, run);
            }
            from += run;
        }
        Ok(())
    }

    /// Moves the extents of one map's part of the file there.
    fn merge_extents(&mut self, slot: usize) -> Result<()> {
        let buffer = Buffer::File(slot);
        let per = self.per_map();
        let inode = self.memory.page(buffer);
        let maps = self.maps_for(inode, inode.u64_at(inode::SIZE)).ok_or(Error::FileTooLarge)?;
        self.set_maps(slot, maps);
        let inode = self.memory.page(buffer);
        let list = &inode[inode.log()..];
        let mut tally = [0u16; MOST_MAPS];
        for at in 0..inode.count() {
            let which = (extents::get(list, at).offset / per) as usize;
            tally[which.min(maps - 1)] += 1;
        }
        let which = (0..maps).max_by_key(|&which| tally[which]).unwrap_or(0);
        let pointer = inode.body() + 4 * which;
        let (old, first) = (inode.u32_at(pointer), which as u32 * per);
        if old == NONE {
            self.work_mut().fill(0xFF);
        } else {
            self.load_work(old, Area::ExtentMap)?;
        }
        self.work = NONE;
        let (work, inode) = self.memory.work_and(buffer);
        let list = &inode[inode.log()..];
        for extent in (0..inode.count()).map(|at| extents::get(list, at)) {
            for offset in extent.offset.max(first)..extent.end().min(first + per) {
                work.set_u32(MAP_FIRST + 4 * (offset - first) as usize, extent.page_at(offset));
            }
        }
        let empty = (0..per as usize).all(|at| work.u32_at(MAP_FIRST + 4 * at) == NONE);
        let serial = self.files[slot].serial;
        let map = if empty {
            NONE
        } else {
            self.append(Log::Extent, Buffer::Work, Area::ExtentMap, 0, serial, which as u32)?
        };
        self.memory.page_mut(buffer).set_u32(pointer, map);
        self.dead_if_any(old);
        // The pages live on: the map leads to them.
        self.with_log(slot, |list, _| list.remove(first, per, |_, _| {}));
        Ok(())
    }

    /// Gives an inode so many pointers to maps. Those that go lead nowhere.
    fn set_maps(&mut self, slot: usize, maps: usize) {
        let inode = self.memory.page_mut(Buffer::File(slot));
        let (old, log, length) = (inode.maps(), inode.log(), EXTENT * inode.count());
        let new = inode.body() + 4 * maps;
        inode.copy_within(log..log + length, new);
        if maps > old {
            inode[log..new].fill(0xFF);
        }
        inode.set_u16(inode::MAPS, maps as u16);
    }

    /// Takes all pages from `from` on out of a file. With `from` 0 the file has none.
    pub(crate) fn cut(&mut self, slot: usize, from: u32) -> Result<()> {
        self.files[slot].dirty = true;
        let (per, maps) = (self.per_map(), self.memory.page(Buffer::File(slot)).maps() as u32);
        // A map that stays in part is hidden by the log.
        let kept = from.div_ceil(per).min(maps);
        if from < kept * per {
            self.insert(slot, Extent { offset: from, page: NONE, length: kept * per - from })?;
        }
        let end = from.max(kept * per);
        self.count_mapped_dead(slot, end, NONE)?;
        self.with_log(slot, |list, dead| list.remove(end, NONE - end, dead));
        for which in kept..maps {
            let inode = self.memory.page(Buffer::File(slot));
            let map = inode.u32_at(inode.body() + 4 * which as usize);
            self.dead_if_any(map);
        }
        if kept < maps {
            self.set_maps(slot, kept as usize);
        }
        Ok(())
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
        Ok(())
    }

    /// For each page of a file: its data, its maps, its inode. For recovery, which counts live pages.
    pub(crate) fn for_each_page(&mut self, slot: usize, each: impl Fn(&mut Self, u32, u32)) -> Result<()> {
        each(self, self.files[slot].page, 1);
        let inode = self.memory.page(Buffer::File(slot));
        if inode.is_inline() {
            return Ok(());
        }
        let (maps, end) = (inode.maps(), self.pages_of(inode.u64_at(inode::SIZE)) as u32);
        for which in 0..maps {
            let inode = self.memory.page(Buffer::File(slot));
            let map = inode.u32_at(inode.body() + 4 * which);
            if map != NONE {
                each(self, map, 1);
            }
        }
        let mut at = 0;
        while at < end {
            let found = self.look(slot, at)?;
            let run = found.run.min(end - at);
            if found.page != NONE {
                each(self, found.page, run);
            }
            at += run;
        }
        Ok(())
    }

    /// Moves an extent map, if the file still leads to that page.
    pub(crate) fn move_map(&mut self, serial: u32, which: u32, page: u32) -> Result<bool> {
        let slot = match self.file(serial) {
            Ok(slot) => slot,
            Err(Error::NotFound | Error::IsADirectory) => return Ok(false),
            Err(error) => return Err(error),
        };
        let inode = self.memory.page(Buffer::File(slot));
        let pointer = inode.body() + 4 * which as usize;
        if inode.is_inline() || which as usize >= inode.maps() || inode.u32_at(pointer) != page {
            return Ok(false);
        }
        self.load_work(page, Area::ExtentMap)?;
        let new = self.append(Log::Extent, Buffer::Work, Area::ExtentMap, 0, serial, which)?;
        self.memory.page_mut(Buffer::File(slot)).set_u32(pointer, new);
        self.files[slot].dirty = true;
        self.dead(page, 1);
        Ok(true)
    }
}
