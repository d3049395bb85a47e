//! Where the pages of a file are.
//!
//! An inode has a log of extents. When it is full, the extents of the part of the file that has the most of them leave it together. In a small
//! file they go to an extent map: a page with the place of each page of that part. In a large one they go to the extent log of a region, 16
//! maps' worth, first: a page with extents, which is rewritten for few extents at a time; when it is full, all of them go to the maps. So
//! writes all over a large file rewrite a page of the index for about ten extents, and a place is found in three pages at most.
//!
//! The younger hides the older: what the inode's log says counts, then what the region's does, then the map.

use basalt_nand::NandDevice;

use crate::error::{Error, Result};
use crate::layout::extents::{self, Extent, Extents, SPARE};
use crate::layout::header::{Area, HEADER};
use crate::layout::inode::{self, EXTENT, Inode, MAPS_PER_REGION, MOST_MAPS, pointers};
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::mutant::{self, Mutant};
use crate::volume::{FlashLight, Log, count_dead};

/// Where the places of an extent map begin, and the extents of a region's log.
pub(crate) const FIRST: usize = 24;
/// How many extents a region's log has.
pub(crate) const COUNT: usize = HEADER;
/// Extents that an inode's log has room for at least, beside pointers.
const LEAST_EXTENTS: usize = 40;
/// Runs of pages that are remembered while the rest of a range is looked for.
const REMEMBERED: usize = 8;
/// Where a region's log is while it is merged: the page of the inode table makes way for it.
const ASIDE: Buffer = Buffer::Table;

/// Where a page of a file is, and for how many pages that goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup {
    /// The page of the chip, or [`NONE`].
    pub(crate) page: u32,
    /// For how many pages of the file, this one included: so many of the chip, or so many that are none.
    pub(crate) run: u32,
    /// A map or a region's log says so, not the inode.
    mapped: bool,
}

/// Pages of a file that the extent log of a region, at a page of the chip, says nothing of: what was found last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    region: u32,
    from: u32,
    to: u32,
}

impl Gap {
    /// Nothing is known.
    pub(crate) const NONE: Gap = Gap { region: NONE, from: 0, to: 0 };
}

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// Pages of a file that a map has the places of.
    pub(crate) fn per_map(&self) -> u32 {
        (self.geometry.page_bytes - FIRST as u32) / 4
    }

    /// Maps that a file of so many bytes has or will have; `None` if its inode has no room to lead to them.
    pub(crate) fn maps_for(&self, inode: &[u8], size: u64) -> Option<usize> {
        let maps = self.pages_of(size).div_ceil(self.per_map().into()) as usize;
        // With the longest name: no rename takes away what the file needs.
        let room = inode.len().saturating_sub(inode.body_behind_longest_name());
        (maps <= MOST_MAPS && 4 * pointers(maps) + LEAST_EXTENTS * EXTENT <= room).then(|| maps.max(inode.maps()))
    }

    /// Bytes of pointers that an inode will have beyond those that it has, for a file of that size.
    fn more_pointers(&self, inode: &[u8], size: u64) -> usize {
        self.maps_for(inode, size).map_or(0, |maps| 4 * (pointers(maps) - pointers(inode.maps())))
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
        let (map, region) = (inode.map(which), inode.region(which / MAPS_PER_REGION));
        let limit = match self.look_in_region(region, offset)? {
            Ok(found) => {
                let run = (found.end() - offset).min(gap);
                return Ok(Lookup { page: found.page_at(offset), run, mapped: true });
            }
            Err(free) => gap.min(free).min(per - offset % per),
        };
        if map == NONE {
            return Ok(Lookup { page: NONE, run: limit, mapped: true });
        }
        self.load_work(map, Area::ExtentMap)?;
        let work = self.memory.page(Buffer::Work);
        let place = |at: u32| work.u32_at(FIRST + 4 * (offset % per + at) as usize);
        let page = place(0);
        let follows = |&at: &u32| place(at) == if page == NONE { NONE } else { page.wrapping_add(at) };
        let run = 1 + (1..limit).take_while(follows).count() as u32;
        Ok(Lookup { page, run, mapped: true })
    }

    /// The extent of a region's log that a page of the file is in, or how many pages there are until the next one begins.
    fn look_in_region(&mut self, region: u32, offset: u32) -> Result<core::result::Result<Extent, u32>> {
        if region == NONE {
            return Ok(Err(NONE));
        }
        if self.gap.region == region && (self.gap.from..self.gap.to).contains(&offset) {
            return Ok(Err(self.gap.to - offset));
        }
        self.load_work(region, Area::ExtentLog)?;
        let (list, count) = region_log(self.memory.page(Buffer::Work), region)?;
        let found = extents::find(list, count, offset);
        if let Err(free) = found {
            self.gap = Gap { region, from: offset, to: offset.saturating_add(free) };
        }
        Ok(found)
    }

    /// Where a page of a file is: for cleaning.
    pub(crate) fn page_of(&mut self, slot: usize, offset: u32) -> Result<u32> {
        if self.memory.page(Buffer::File(slot)).is_inline() {
            return Ok(NONE);
        }
        Ok(self.look(slot, offset)?.page)
    }

    /// The bytes of the inode's log of extents, with the counts of live pages.
    fn with_log<R>(&mut self, slot: usize, change: impl FnOnce(&mut Extents<'_>, &mut dyn FnMut(u32, u32)) -> R) -> R {
        let geometry = self.geometry;
        let inode = self.memory.page(Buffer::File(slot));
        let reserved = self.more_pointers(inode, inode.u64_at(inode::SIZE));
        let (inode, counts) = self.memory.page_and_counts(Buffer::File(slot));
        let (log, count) = (inode.log(), inode.count());
        // A damaged inode may have more than there is room for beside its pointers.
        let end = inode.len().saturating_sub(reserved).max(log + EXTENT * count);
        let mut list = Extents::new(&mut inode[log..end], count);
        let mut gone = 0u32;
        let result = change(&mut list, &mut |page, length| {
            gone = gone.saturating_add(length);
            if !mutant::active(Mutant::OverwriteNotCounted) {
                count_dead(counts, &geometry, page, length);
            }
        });
        let count = list.count();
        inode.set_count(count);
        let stored = inode.u32_at(inode::STORED);
        inode.set_u32(inode::STORED, stored.saturating_sub(gone));
        result
    }

    /// Lets pages of a file be somewhere else, or nowhere. What was there is dead. Maps and logs of regions of which nothing counts any more go.
    pub(crate) fn insert(&mut self, slot: usize, extent: Extent) -> Result<()> {
        self.files[slot].dirty = true;
        // First: what leaves the log for a map is counted there.
        while !self.with_log(slot, |list, _| list.has_room()) {
            self.merge_extents(slot)?;
        }
        self.count_mapped_dead(slot, extent.offset, extent.end())?;
        let absent = extent.page == NONE && {
            self.drop_index(slot, extent.offset, extent.end());
            !self.has_index(slot, extent.offset, extent.end())
        };
        self.with_log(slot, |list, dead| {
            if absent { list.remove(extent.offset, extent.length, dead) } else { list.insert(extent, dead) }
        });
        if extent.page != NONE {
            let inode = self.memory.page_mut(Buffer::File(slot));
            let stored = inode.u32_at(inode::STORED);
            inode.set_u32(inode::STORED, stored.saturating_add(extent.length));
        }
        Ok(())
    }

    /// Moves extents out of the inode until it has room for a file of that size, and for so many bytes more.
    pub(crate) fn fit(&mut self, slot: usize, size: u64, bytes: usize) -> Result<()> {
        loop {
            let inode = self.memory.page(Buffer::File(slot));
            let more = self.more_pointers(inode, size);
            if inode.is_inline() || inode.body() + inode.body_length() + SPARE * EXTENT + more + bytes <= inode.len() {
                return Ok(());
            }
            self.merge_extents(slot)?;
        }
    }

    /// Counts the pages as dead that maps and regions, and not the inode's log, have for a range: all of them, or none if a part of the index
    /// cannot be read.
    fn count_mapped_dead(&mut self, slot: usize, from: u32, to: u32) -> Result<()> {
        // Few runs are remembered, so that the index is not read twice.
        let (mut runs, mut count) = ([(NONE, 0); REMEMBERED], 0);
        self.each_mapped(slot, from, to, |_, page, length| {
            if let Some(run) = runs.get_mut(count) {
                *run = (page, length);
            }
            count += 1;
        })?;
        if count <= REMEMBERED {
            runs[..count].iter().for_each(|&(page, length)| self.count_dead_data(slot, page, length));
            return Ok(());
        }
        let counted =
            self.each_mapped(slot, from, to, |volume, page, length| volume.count_dead_data(slot, page, length));
        self.must(counted)
    }

    /// Visits the pages that maps and regions, and not the inode's log, have for a range.
    fn each_mapped(
        &mut self,
        slot: usize,
        mut from: u32,
        to: u32,
        mut each: impl FnMut(&mut Self, u32, u32),
    ) -> Result<()> {
        let mapped = self.memory.page(Buffer::File(slot)).maps() as u32 * self.per_map();
        while from < to.min(mapped) {
            let found = self.look(slot, from)?;
            let run = found.run.min(to - from);
            if found.mapped && found.page != NONE {
                each(self, found.page, run);
            }
            from += run;
        }
        Ok(())
    }

    /// Pages of a file's data are live no longer.
    fn count_dead_data(&mut self, slot: usize, page: u32, length: u32) {
        self.dead(page, length);
        let inode = self.memory.page_mut(Buffer::File(slot));
        let stored = inode.u32_at(inode::STORED);
        inode.set_u32(inode::STORED, stored.saturating_sub(length));
    }

    /// Moves the extents of one part of the file out of the inode.
    fn merge_extents(&mut self, slot: usize) -> Result<()> {
        let inode = self.memory.page(Buffer::File(slot));
        let maps = self.maps_for(inode, inode.u64_at(inode::SIZE)).ok_or(Error::FileTooLarge)?;
        self.set_maps(slot, maps)?;
        let per = self.per_map();
        // Of a sound file nothing lies behind its maps.
        let end = maps as u32 * per;
        self.with_log(slot, |list, dead| list.remove(end, NONE - end, dead));
        if maps == 0 {
            return Ok(());
        }
        let inode = self.memory.page(Buffer::File(slot));
        let list = &inode[inode.log()..];
        // Of each map, or of each region, the extents that begin there.
        let (parts, part) = match inode.regions() {
            0 => (maps, per),
            regions => (regions, per * MAPS_PER_REGION as u32),
        };
        let mut tally = [0u16; MOST_MAPS];
        for at in 0..inode.count() {
            let which = (extents::get(list, at).offset / part) as usize;
            tally[which.min(parts - 1)] += 1;
        }
        let most = (0..parts).max_by_key(|&which| tally[which]).unwrap_or(0);
        if inode.regions() > 0 { self.merge_into_region(slot, most) } else { self.merge_into_map(slot, most, 0) }
    }

    /// Moves the extents of the inode that are in a region to its log; with all that is there to the maps, if that has no room.
    fn merge_into_region(&mut self, slot: usize, which: usize) -> Result<()> {
        let buffer = Buffer::File(slot);
        let (first, end) = self.range_of_region(which);
        let old = self.memory.page(buffer).region(which);
        let mut count = 0;
        if old == NONE {
            self.work_mut().fill(0xFF);
        } else {
            self.load_work(old, Area::ExtentLog)?;
            count = region_log(self.memory.page(Buffer::Work), old)?.1;
        }
        self.work = NONE;
        let (work, inode) = self.memory.work_and(buffer);
        let list = &inode[inode.log()..];
        let mut region = Extents::new(&mut work[FIRST..], count);
        let mut fits = true;
        for extent in (0..inode.count()).map(|at| extents::get(list, at)) {
            let (from, to) = (extent.offset.max(first), extent.end().min(end));
            if from < to {
                fits = fits && region.has_room();
                if fits {
                    // What it hides was counted dead when it was written.
                    region.insert(Extent { offset: from, page: extent.page_at(from), length: to - from }, |_, _| {});
                }
            }
        }
        if !fits {
            return self.merge_region(slot, which);
        }
        let count = region.count();
        work.set_u16(COUNT, count as u16);
        let serial = self.files[slot].serial;
        let page = self.append(Log::Extent, Buffer::Work, Area::ExtentLog, 0, serial, which as u32)?;
        self.memory.page_mut(buffer).set_region(which, page);
        self.dead_if_any(old);
        self.with_log(slot, |list, _| list.remove(first, end - first, |_, _| {}));
        Ok(())
    }

    /// The pages of a file that are in a region.
    fn range_of_region(&self, which: usize) -> (u32, u32) {
        let part = self.per_map() * MAPS_PER_REGION as u32;
        (which as u32 * part, (which as u32 + 1) * part)
    }

    /// Moves all extents of a region to the maps, those of the inode too.
    fn merge_region(&mut self, slot: usize, which: usize) -> Result<()> {
        let buffer = Buffer::File(slot);
        let old = self.memory.page(buffer).region(which);
        self.flush_table()?;
        self.table.number = NONE;
        let mut count = 0;
        if old != NONE {
            self.read_metadata(old, ASIDE, Area::ExtentLog)?;
            count = region_log(self.memory.page(ASIDE), old)?.1;
        }
        let (maps, per) = (self.memory.page(buffer).maps(), self.per_map());
        for map in which * MAPS_PER_REGION..((which + 1) * MAPS_PER_REGION).min(maps) {
            let (first, end) = (map as u32 * per, (map as u32 + 1) * per);
            let begins = |list: &[u8], count: usize| match extents::find(list, count, first) {
                Ok(_) => true,
                Err(free) => free < end - first,
            };
            let inode = self.memory.page(buffer);
            let is_changed =
                begins(&self.memory.page(ASIDE)[FIRST..], count) || begins(&inode[inode.log()..], inode.count());
            if is_changed {
                self.merge_into_map(slot, map, count)?;
            }
        }
        self.memory.page_mut(buffer).set_region(which, NONE);
        self.dead_if_any(old);
        Ok(())
    }

    /// Moves the extents of one map's part of the file there: `aside` of the region's log, then those of the inode.
    fn merge_into_map(&mut self, slot: usize, which: usize, aside: usize) -> Result<()> {
        let buffer = Buffer::File(slot);
        let per = self.per_map();
        let (old, first) = (self.memory.page(buffer).map(which), which as u32 * per);
        if old == NONE {
            self.work_mut().fill(0xFF);
        } else {
            self.load_work(old, Area::ExtentMap)?;
        }
        self.work = NONE;
        (0..aside).for_each(|at| self.put_in_map(extents::get(&self.memory.page(ASIDE)[FIRST..], at), first));
        for at in 0..self.memory.page(buffer).count() {
            let inode = self.memory.page(buffer);
            self.put_in_map(extents::get(&inode[inode.log()..], at), first);
        }
        let work = self.memory.page(Buffer::Work);
        let empty = (0..per as usize).all(|at| work.u32_at(FIRST + 4 * at) == NONE);
        let serial = self.files[slot].serial;
        let map = if empty {
            NONE
        } else {
            self.append(Log::Extent, Buffer::Work, Area::ExtentMap, 0, serial, which as u32)?
        };
        self.memory.page_mut(buffer).set_map(which, map);
        self.dead_if_any(old);
        // The pages live on: the map leads to them.
        self.with_log(slot, |list, _| list.remove(first, per, |_, _| {}));
        Ok(())
    }

    /// Puts what an extent has of a map's part of the file into the map in the work page.
    fn put_in_map(&mut self, extent: Extent, first: u32) {
        let per = self.per_map();
        let work = self.memory.page_mut(Buffer::Work);
        for offset in extent.offset.max(first)..extent.end().min(first + per) {
            work.set_u32(FIRST + 4 * (offset - first) as usize, extent.page_at(offset));
        }
    }

    /// Gives an inode pointers to so many maps, and to the regions of them. Those that go lead nowhere.
    fn set_maps(&mut self, slot: usize, maps: usize) -> Result<()> {
        let page = self.files[slot].page;
        let inode = self.memory.page_mut(Buffer::File(slot));
        let (old, old_regions) = (inode.maps(), inode.regions());
        if maps == old {
            return Ok(());
        }
        let (body, log, length) = (inode.body(), inode.log(), EXTENT * inode.count());
        let new_log = body + 4 * pointers(maps);
        if new_log + length > inode.len() {
            return Err(Error::Damaged { page, what: "its inode has no room for the index that its size asks for" });
        }
        let regions = old_regions.min(pointers(maps) - maps);
        let from = body + 4 * old..body + 4 * (old + regions);
        // Regions come behind the maps, the log behind the regions: what moves back moves last.
        if maps > old {
            inode.copy_within(log..log + length, new_log);
            inode.copy_within(from, body + 4 * maps);
            inode[body + 4 * old..body + 4 * maps].fill(0xFF);
            inode[body + 4 * (maps + regions)..new_log].fill(0xFF);
        } else {
            inode.copy_within(from, body + 4 * maps);
            inode.copy_within(log..log + length, new_log);
        }
        inode.set_u16(inode::MAPS, maps as u16);
        Ok(())
    }

    /// Takes all pages from `from` on out of a file. With `from` 0 the file has none.
    pub(crate) fn cut(&mut self, slot: usize, from: u32) -> Result<()> {
        // What cannot be read stops it before anything has changed.
        self.each_mapped(slot, from, NONE, |_, _, _| {})?;
        self.files[slot].dirty = true;
        let (per, maps) = (self.per_map(), self.memory.page(Buffer::File(slot)).maps());
        // A map that stays in part is hidden by the log.
        let kept = (from.div_ceil(per) as usize).min(maps);
        let kept_pages = kept as u32 * per;
        if from < kept_pages {
            self.insert(slot, Extent { offset: from, page: NONE, length: kept_pages - from })?;
        }
        // Last: to insert may have moved extents to the log of the region.
        self.settle_region(slot, kept)?;
        let end = from.max(kept_pages);
        self.count_mapped_dead(slot, end, NONE)?;
        self.with_log(slot, |list, dead| list.remove(end, NONE - end, dead));
        let inode = self.memory.page(Buffer::File(slot));
        let (maps, regions) = (inode.maps(), inode.regions());
        for which in kept..maps {
            let map = self.memory.page(Buffer::File(slot)).map(which);
            self.dead_if_any(map);
        }
        for which in kept.div_ceil(MAPS_PER_REGION)..regions {
            let region = self.memory.page(Buffer::File(slot)).region(which);
            self.dead_if_any(region);
        }
        self.set_maps(slot, kept)
    }

    /// Before a file has only so many maps left: moves the extents of a region that stays in part to the maps, and of one that a file so small
    /// has not.
    fn settle_region(&mut self, slot: usize, kept: usize) -> Result<()> {
        let inode = self.memory.page(Buffer::File(slot));
        let stays_in_part = !kept.is_multiple_of(MAPS_PER_REGION) || pointers(kept) == kept;
        if kept == 0 || kept == inode.maps() || inode.regions() == 0 || !stays_in_part {
            return Ok(());
        }
        let which = (kept - 1) / MAPS_PER_REGION;
        if inode.region(which) == NONE { Ok(()) } else { self.merge_region(slot, which) }
    }

    /// For each page of a file: its data, its index, its inode. For recovery, which counts live pages.
    pub(crate) fn for_each_page(&mut self, slot: usize, each: impl Fn(&mut Self, u32, u32)) -> Result<()> {
        each(self, self.files[slot].page, 1);
        let inode = self.memory.page(Buffer::File(slot));
        if inode.is_inline() {
            return Ok(());
        }
        let (maps, end) = (inode.maps(), self.pages_of(inode.u64_at(inode::SIZE)) as u32);
        for which in 0..pointers(maps) {
            let page = self.memory.page(Buffer::File(slot)).map(which);
            if page != NONE {
                each(self, page, 1);
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
}

/// The extents in the log of a region, and how many.
fn region_log(page: &[u8], place: u32) -> Result<(&[u8], usize)> {
    let (list, count) = (&page[FIRST..], usize::from(page.u16_at(COUNT)));
    if count * EXTENT > list.len() {
        return Err(Error::Damaged { page: place, what: "the extent log of a region is longer than a page" });
    }
    Ok((list, count))
}
