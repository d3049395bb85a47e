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

/// Bytes that a volume may use: a slice, an array, a vector.
pub trait Bytes: AsRef<[u8]> + AsMut<[u8]> {}

impl<M: AsRef<[u8]> + AsMut<[u8]>> Bytes for M {}

/// The caller's bytes, cut into pages.
#[derive(Debug)]
pub(crate) struct Memory<M> {
    bytes: M,
    page: usize,
    blocks: usize,
}

impl<M: Bytes> Memory<M> {
    /// `None` if there are too few bytes.
    pub(crate) fn new(bytes: M, geometry: &Geometry) -> Option<Memory<M>> {
        let enough = bytes.as_ref().len() >= memory_bytes(geometry);
        let (page, blocks) = (geometry.page_bytes as usize, geometry.blocks as usize);
        let mut memory = enough.then_some(Memory { bytes, page, blocks })?;
        memory.counts_mut().fill(0);
        Some(memory)
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

    fn counts_at(&self) -> core::ops::Range<usize> {
        PAGES * self.page..PAGES * self.page + self.blocks
    }

    pub(crate) fn page(&self, buffer: Buffer) -> &[u8] {
        &self.bytes.as_ref()[self.at(buffer)]
    }

    pub(crate) fn page_mut(&mut self, buffer: Buffer) -> &mut [u8] {
        let range = self.at(buffer);
        &mut self.bytes.as_mut()[range]
    }

    /// Live pages of each block, or 255 if it is bad.
    pub(crate) fn counts(&self) -> &[u8] {
        &self.bytes.as_ref()[self.counts_at()]
    }

    pub(crate) fn counts_mut(&mut self) -> &mut [u8] {
        let range = self.counts_at();
        &mut self.bytes.as_mut()[range]
    }

    /// The work page to change, and another page beside it.
    pub(crate) fn work_and(&mut self, buffer: Buffer) -> (&mut [u8], &mut [u8]) {
        let (other, work) = (self.at(buffer), self.at(Buffer::Work));
        let (before, from_work) = self.bytes.as_mut().split_at_mut(work.start);
        (&mut from_work[..self.page], &mut before[other])
    }

    /// Copies the work page to another page.
    pub(crate) fn copy_work(&mut self, to: Buffer) {
        let (work, other) = self.work_and(to);
        other.copy_from_slice(work);
    }

    /// A page, and the counts of live pages beside it.
    pub(crate) fn page_and_counts(&mut self, buffer: Buffer) -> (&mut [u8], &mut [u8]) {
        let (range, blocks) = (self.at(buffer), self.blocks);
        let (pages, counts) = self.bytes.as_mut().split_at_mut(PAGES * self.page);
        (&mut pages[range], &mut counts[..blocks])
    }
}
