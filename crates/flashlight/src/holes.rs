//! Holes: where files have nothing, and how they come to have nothing.

use basalt_nand::NandDevice;

use crate::cleaning::Room;
use crate::error::{Error, Result};
use crate::layout::extents::Extent;
use crate::layout::inode::{self, Inode, MAPS_PER_REGION, Time};
use crate::layout::{NONE, Numbers};
use crate::memory::{Buffer, Bytes};
use crate::operations::InodeNumber;
use crate::volume::FlashLight;

impl<M: Bytes, D: NandDevice> FlashLight<M, D> {
    /// The first byte of a file at or behind `offset` that is no hole; `None` if there is none before the end. A hole is whole pages; what the
    /// inode holds is data. Reads the maps on the way, and two pages for each extent in the log of a region: a hole costs nothing, however long it
    /// is. Errors: it is no file, or its index cannot be read.
    pub fn next_data(&mut self, number: InodeNumber, offset: u64) -> Result<Option<u64>> {
        self.seek(number, offset, true)
    }

    /// The first byte of a file at or behind `offset` that is in a hole; the end of the file counts as one. `None` at the end and behind it. Reads
    /// and errors are those of [`next_data`](FlashLight::next_data).
    pub fn next_hole(&mut self, number: InodeNumber, offset: u64) -> Result<Option<u64>> {
        self.seek(number, offset, false)
    }

    fn seek(&mut self, number: InodeNumber, offset: u64, data: bool) -> Result<Option<u64>> {
        let slot = self.file(number.0)?;
        let size = self.size_of(slot)?;
        if offset >= size {
            return Ok(None);
        }
        if self.memory.page(Buffer::File(slot)).is_inline() {
            return Ok(Some(if data { offset } else { size }));
        }
        let (page_bytes, end) = (u64::from(self.geometry.page_bytes), self.pages_of(size) as u32);
        let mut at = (offset / page_bytes) as u32;
        while at < end {
            let found = self.look(slot, at)?;
            if (found.page != NONE) == data {
                return Ok(Some(offset.max(u64::from(at) * page_bytes)));
            }
            at = at.saturating_add(found.run);
        }
        Ok(if data { None } else { Some(size) })
    }

    /// Bytes of a file, as many as it can have.
    fn size_of(&self, slot: usize) -> Result<u64> {
        let size = self.memory.page(Buffer::File(slot)).u64_at(inode::SIZE);
        let what = "its size is more than a file can have";
        if size > self.most_bytes() { Err(Error::Damaged { page: self.files[slot].page, what }) } else { Ok(size) }
    }

    /// Makes `length` bytes of a file from `offset` on zeros, as far as it has them. Pages that lie within are freed; the size stays. Errors:
    /// [`Error::NoSpace`] on a chip so full that not even this can be written; a page at one of the ends cannot be read.
    pub fn punch(&mut self, number: InodeNumber, offset: u64, length: u64, now: Time) -> Result<()> {
        self.file(number.0)?;
        self.make_room(Room::Free)?;
        let slot = self.file(number.0)?;
        let size = self.size_of(slot)?;
        let (from, to) = (offset.min(size), offset.saturating_add(length).min(size));
        if from < to {
            self.punch_pages(slot, from, to)?;
        }
        self.touch(number, now)
    }

    /// Makes bytes of a file zeros that it has.
    fn punch_pages(&mut self, slot: usize, from: u64, to: u64) -> Result<()> {
        let inode = self.memory.page_mut(Buffer::File(slot));
        let size = inode.u64_at(inode::SIZE);
        if inode.is_inline() {
            // Of a damaged inode, the size may be more than there is content.
            let (body, count) = (inode.body(), inode.count() as u64);
            inode[body + from.min(count) as usize..body + to.min(count) as usize].fill(0);
            return Ok(());
        }
        let page_bytes = u64::from(self.geometry.page_bytes);
        // Behind the end of the file there is nothing to keep.
        let (first, last) = (from.div_ceil(page_bytes), if to == size { self.pages_of(size) } else { to / page_bytes });
        if first > last {
            return self.zero_within(slot, from, to);
        }
        self.zero_within(slot, from, (first * page_bytes).min(to))?;
        self.zero_within(slot, last * page_bytes, to)?;
        if first < last {
            let (offset, length) = (first as u32, (last - first) as u32);
            self.insert(slot, Extent { offset, page: NONE, length })?;
        }
        Ok(())
    }

    /// Lets go of the maps and the logs of regions that lie within a range, of which nothing counts any more.
    pub(crate) fn drop_index(&mut self, slot: usize, from: u32, to: u32) {
        let (per, inode) = (self.per_map(), self.memory.page(Buffer::File(slot)));
        let (maps, regions) = (inode.maps(), inode.regions());
        // The last ones go on behind the end of the file, where nothing is.
        let to = if u64::from(to) < self.pages_of(inode.u64_at(inode::SIZE)) { to } else { NONE };
        let within =
            |pages: u32, all: usize| (from.div_ceil(pages) as usize).min(all)..((to / pages) as usize).min(all);
        let of_maps = within(per, maps);
        let of_regions = within(per * MAPS_PER_REGION as u32, regions);
        for pointer in of_maps.chain(of_regions.start + maps..of_regions.end + maps) {
            let page = self.memory.page(Buffer::File(slot)).map(pointer);
            self.memory.page_mut(Buffer::File(slot)).set_map(pointer, NONE);
            self.dead_if_any(page);
        }
    }

    /// Whether a map or the log of a region has anything to say of a range.
    pub(crate) fn has_index(&self, slot: usize, from: u32, to: u32) -> bool {
        let (per, inode) = (self.per_map(), self.memory.page(Buffer::File(slot)));
        let maps = ((from / per) as usize)..(to.div_ceil(per) as usize).min(inode.maps());
        maps.into_iter().any(|which| inode.map(which) != NONE || inode.region(which / MAPS_PER_REGION) != NONE)
    }
}
