//! The memory of a mounted volume: given by the caller, and never more.

use basalt_nand::Geometry;

/// Inodes of directories in memory.
pub(crate) const DIRECTORIES: usize = 2;
/// Inodes of files in memory.
pub(crate) const FILES: usize = 2;
/// Pages of memory.
const PAGES: usize = DIRECTORIES + FILES + 2;

/// Bytes that a mounted volume needs beside [`FlashLight`](crate::FlashLight) itself: six pages, and a byte for each block.
pub const fn memory_bytes(geometry: &Geometry) -> usize {
    PAGES * geometry.page_bytes as usize + geometry.blocks as usize
}

/// A page of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    Directory(usize),
    File(usize),
    /// A page of the inode table.
    Table,
    /// Whatever is read, changed and programmed next; it keeps nothing across calls.
    Work,
}

/// The caller's bytes, cut into pages.
#[derive(Debug)]
pub(crate) struct Memory<'m> {
    pages: &'m mut [u8],
    page: usize,
    /// Live pages of each block, or 255 if it is bad.
    pub(crate) counts: &'m mut [u8],
}

impl<'m> Memory<'m> {
    /// `None` if there are too few bytes.
    pub(crate) fn new(bytes: &'m mut [u8], geometry: &Geometry) -> Option<Memory<'m>> {
        let page = geometry.page_bytes as usize;
        let (pages, rest) = bytes.split_at_mut_checked(PAGES * page)?;
        let counts = rest.get_mut(..geometry.blocks as usize)?;
        counts.fill(0);
        Some(Memory { pages, page, counts })
    }

    fn at(&self, buffer: Buffer) -> core::ops::Range<usize> {
        let number = match buffer {
            Buffer::Directory(slot) => slot,
            Buffer::File(slot) => DIRECTORIES + slot,
            Buffer::Table => DIRECTORIES + FILES,
            Buffer::Work => DIRECTORIES + FILES + 1,
        };
        number * self.page..(number + 1) * self.page
    }

    pub(crate) fn page(&self, buffer: Buffer) -> &[u8] {
        &self.pages[self.at(buffer)]
    }

    pub(crate) fn page_mut(&mut self, buffer: Buffer) -> &mut [u8] {
        let range = self.at(buffer);
        &mut self.pages[range]
    }

    /// The work page to change, and another page beside it.
    pub(crate) fn work_and(&mut self, buffer: Buffer) -> (&mut [u8], &mut [u8]) {
        let other = self.at(buffer);
        let (before, work) = self.pages.split_at_mut((PAGES - 1) * self.page);
        (work, &mut before[other])
    }

    /// A page, and the counts of live pages beside it.
    pub(crate) fn page_and_counts(&mut self, buffer: Buffer) -> (&mut [u8], &mut [u8]) {
        let range = self.at(buffer);
        (&mut self.pages[range], self.counts)
    }
}
