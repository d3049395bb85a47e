//! The physical blocks: what is programmed, what is live, what is free. Shared by the layers.

use std::collections::VecDeque;

use super::geometry::Geometry;
use super::observer::{FlashObserver, Programmed};
use super::statistics::FtlStatistics;

/// What the maps hold for "nowhere": so that fresh maps are zeroed memory, which the system hands out only when touched.
pub(super) const NOWHERE: u32 = 0;

/// The blocks of a simulated flash, dense arrays indexed by physical page or block.
pub(super) struct Pool<O> {
    pub geometry: Geometry,
    pub statistics: FtlStatistics,
    pages_per_block: u32,
    /// The power of two that `pages_per_block` is, where it is one: a shift is several times faster than a division.
    block_shift: Option<u32>,
    /// Logical page + 1 of each physical page that is live; of others [`NOWHERE`], or, after [`forget`](Pool::forget), what it was.
    owners: Vec<u32>,
    /// Live pages of each block.
    live: Vec<u16>,
    /// First page of each block that may still be programmed: pages are programmed in ascending order.
    next: Vec<u16>,
    erases: Vec<u32>,
    /// Erased blocks, the one erased longest ago first: going round them all levels the wear.
    free: VecDeque<u32>,
    observer: O,
}

impl<O: FlashObserver> Pool<O> {
    pub fn new(geometry: Geometry, observer: O) -> Pool<O> {
        // The geometry holds both below 2^32.
        let blocks = geometry.physical_blocks() as usize;
        Pool {
            geometry,
            statistics: FtlStatistics::default(),
            pages_per_block: geometry.pages_per_block(),
            block_shift: geometry
                .pages_per_block()
                .checked_ilog2()
                .filter(|_| geometry.pages_per_block().is_power_of_two()),
            owners: vec![NOWHERE; geometry.physical_pages() as usize],
            live: vec![0; blocks],
            next: vec![0; blocks],
            erases: vec![0; blocks],
            free: (0..blocks as u32).collect(),
            observer,
        }
    }

    /// Bytes of the arrays.
    pub fn memory(&self) -> u64 {
        let blocks = self.live.len() as u64;
        self.owners.len() as u64 * 4 + blocks * (2 + 2 + 4) + self.free.capacity() as u64 * 4
    }

    pub fn observer(&self) -> &O {
        &self.observer
    }

    pub fn erase_counts(&self) -> &[u32] {
        &self.erases
    }

    pub fn free_blocks(&self) -> usize {
        self.free.len()
    }

    /// Takes the block that was erased longest ago. The layers keep so many spare that there always is one.
    pub fn take(&mut self) -> u32 {
        self.free.pop_front().expect("the geometry was checked to leave a spare block")
    }

    /// The block of a physical page.
    #[inline]
    pub fn block_of(&self, physical: u32) -> u32 {
        match self.block_shift {
            Some(shift) => physical >> shift,
            None => physical / self.pages_per_block,
        }
    }

    /// The physical page at an index within a block.
    #[inline]
    pub fn page_of(&self, block: u32, index: u32) -> u32 {
        block * self.pages_per_block + index
    }

    #[inline]
    pub fn live(&self, block: u32) -> u16 {
        self.live[block as usize]
    }

    /// First page index of the block that may be programmed.
    #[inline]
    pub fn next(&self, block: u32) -> u32 {
        u32::from(self.next[block as usize])
    }

    #[inline]
    pub fn is_full(&self, block: u32) -> bool {
        self.next(block) == self.pages_per_block
    }

    /// The logical page that a physical page holds, if it is live; one that was [forgotten](Self::forget) may still be named.
    #[inline]
    pub fn owner(&self, physical: u32) -> Option<u32> {
        self.owners[physical as usize].checked_sub(1)
    }

    /// Programs page `index` of a block, which must not lie before the block's next, and returns the physical page.
    #[inline]
    pub fn program(&mut self, block: u32, index: u32, logical: u32, why: Programmed) -> u32 {
        debug_assert!(index >= self.next(block) && index < self.pages_per_block);
        let physical = self.page_of(block, index);
        // A block has at most 2^15 pages.
        self.next[block as usize] = index as u16 + 1;
        self.live[block as usize] += 1;
        self.owners[physical as usize] = logical + 1;
        self.statistics.pages_programmed += 1;
        self.observer.program(u64::from(physical), u64::from(logical), why);
        physical
    }

    /// Programs page `index` of a block with a copy of the live page `from`, which is dead then.
    #[inline]
    pub fn copy(&mut self, from: u32, block: u32, index: u32, logical: u32) -> u32 {
        self.statistics.pages_copied += 1;
        let physical = self.program(block, index, logical, Programmed::CopyOf(u64::from(from)));
        self.invalidate(from);
        physical
    }

    /// As [`invalidate`](Self::invalidate), but [`owner`](Self::owner) may go on naming the page: for a layer whose map tells better,
    /// and which is spared a look at memory that is seldom in the processor's cache.
    #[inline]
    pub fn forget(&mut self, physical: u32) -> u32 {
        let block = self.block_of(physical);
        self.live[block as usize] -= 1;
        block
    }

    /// Marks a live page dead and returns its block.
    #[inline]
    pub fn invalidate(&mut self, physical: u32) -> u32 {
        debug_assert!(self.owner(physical).is_some());
        let block = self.block_of(physical);
        self.owners[physical as usize] = NOWHERE;
        self.live[block as usize] -= 1;
        block
    }

    /// Erases a block without live pages: it is free then.
    pub fn erase(&mut self, block: u32) {
        debug_assert_eq!(self.live(block), 0);
        self.next[block as usize] = 0;
        self.erases[block as usize] += 1;
        self.statistics.erases += 1;
        self.free.push_back(block);
        self.observer.erase(u64::from(block));
    }
}
