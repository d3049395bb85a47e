//! The page-level layer: any logical page anywhere, greedy garbage collection.

use super::geometry::{Geometry, GeometryError};
use super::observer::{FlashObserver, Programmed};
use super::pool::{NOWHERE, Pool};
use super::statistics::FtlStatistics;
use super::victims::Victims;
use super::{FtlError, TranslationKind, TranslationLayer, check};

/// How a [`PageLevel`] layer works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLevelOptions {
    /// Copies of garbage collection go to a block of their own instead of the host's. What was still live when its block
    /// was collected is colder than what the host writes now; apart, hot blocks die as wholes. This is what
    /// controllers do, and the default; without it skewed loads cost about 30 % more copies with greedy victims
    /// (`NoSep` against `SepGC` in the SepBIT paper's terms), while uniform ones cost the same.
    pub separate_copies: bool,
}

impl Default for PageLevelOptions {
    fn default() -> Self {
        PageLevelOptions { separate_copies: true }
    }
}

/// Index of the host's log.
const HOST: usize = 0;

/// Page mapping with greedy garbage collection: the victim is the block with the fewest live pages, of several the one
/// that has had so few for longest. A block is collected when the last but one erased block would be used up.
pub struct PageLevel<O = ()> {
    /// Physical page + 1 of each logical page, or [`NOWHERE`].
    map: Vec<u32>,
    pool: Pool<O>,
    /// Full blocks.
    victims: Victims,
    /// The blocks being filled: by the host, and by copies where they are apart.
    open: [Option<u32>; 2],
    /// Index in `open` where copies go.
    copies: usize,
}

impl PageLevel {
    /// A layer whose flash is all erased.
    ///
    /// # Errors
    /// When there are fewer than 4 spare blocks.
    pub fn new(geometry: Geometry, options: PageLevelOptions) -> Result<PageLevel, GeometryError> {
        PageLevel::observed(geometry, options, ())
    }
}

impl<O: FlashObserver> PageLevel<O> {
    /// A layer whose every program and erase `observer` sees.
    ///
    /// # Errors
    /// When there are fewer than 4 spare blocks.
    pub fn observed(geometry: Geometry, options: PageLevelOptions, observer: O) -> Result<PageLevel<O>, GeometryError> {
        // Both open blocks, the one kept for copies, and one so that some block always has a dead page.
        geometry.need_spare(4)?;
        Ok(PageLevel {
            map: vec![NOWHERE; geometry.logical_pages() as usize],
            pool: Pool::new(geometry, observer),
            victims: Victims::new(geometry.physical_blocks() as u32, geometry.pages_per_block()),
            open: [None, None],
            copies: usize::from(options.separate_copies),
        })
    }

    /// Who sees the programs and erases.
    pub fn observer(&self) -> &O {
        self.pool.observer()
    }

    fn write_page(&mut self, logical: u32) {
        // First the place, then the old copy: finding a place may move it.
        let block = self.host_block();
        let physical = self.pool.program(block, self.pool.next(block), logical, Programmed::ByHost);
        let old = std::mem::replace(&mut self.map[logical as usize], physical + 1);
        self.forget(old);
    }

    /// Makes the old place of a page dead, where it had one.
    #[inline]
    fn forget(&mut self, old: u32) {
        if old != NOWHERE {
            let block = self.pool.forget(old - 1);
            self.victims.lost_a_page(block);
        }
    }

    /// The block that takes the host's next page, collecting garbage before the last erased block goes.
    #[inline]
    fn host_block(&mut self) -> u32 {
        match self.open[HOST] {
            Some(block) if !self.pool.is_full(block) => block,
            _ => self.new_host_block(),
        }
    }

    fn new_host_block(&mut self) -> u32 {
        self.close(HOST);
        if self.copies != HOST {
            while self.pool.free_blocks() < 2 {
                self.collect();
            }
        }
        let block = self.pool.take();
        self.open[HOST] = Some(block);
        if self.pool.free_blocks() == 0 {
            // Copies share this block; a victim always has a dead page, so that room is left.
            self.collect();
        }
        block
    }

    /// Hands a full open block over to garbage collection.
    fn close(&mut self, log: usize) {
        if let Some(block) = self.open[log].take() {
            self.victims.insert(block, self.pool.live(block));
        }
    }

    /// Copies the live pages of the emptiest block away and erases it.
    fn collect(&mut self) {
        let victim = self.victims.take().expect("spare blocks leave one full block with a dead page");
        self.pool.statistics.collections += 1;
        let mut index = 0;
        while self.pool.live(victim) > 0 {
            let from = self.pool.page_of(victim, index);
            index += 1;
            // What was overwritten since is elsewhere by the map.
            let owner = self.pool.owner(from).filter(|&logical| self.map[logical as usize] == from + 1);
            if let Some(logical) = owner {
                let block = self.copy_block();
                self.map[logical as usize] = self.pool.copy(from, block, self.pool.next(block), logical) + 1;
            }
        }
        self.pool.erase(victim);
    }

    #[inline]
    fn copy_block(&mut self) -> u32 {
        match self.open[self.copies] {
            Some(block) if !self.pool.is_full(block) => block,
            _ => {
                self.close(self.copies);
                let block = self.pool.take();
                self.open[self.copies] = Some(block);
                block
            }
        }
    }
}

impl<O: FlashObserver> TranslationLayer for PageLevel<O> {
    fn kind(&self) -> TranslationKind {
        TranslationKind::PageLevel
    }

    fn geometry(&self) -> &Geometry {
        &self.pool.geometry
    }

    fn write(&mut self, first: u64, count: u64) -> Result<(), FtlError> {
        check(&self.pool.geometry, "write", first, count)?;
        self.pool.statistics.pages_written += count;
        // Checked against the geometry, whose pages fit 32 bits.
        for logical in first..first + count {
            self.write_page(logical as u32);
        }
        Ok(())
    }

    fn read(&mut self, first: u64, count: u64) -> Result<(), FtlError> {
        check(&self.pool.geometry, "read", first, count)?;
        self.pool.statistics.pages_read += count;
        Ok(())
    }

    fn trim(&mut self, first: u64, count: u64) -> Result<(), FtlError> {
        check(&self.pool.geometry, "trim", first, count)?;
        self.pool.statistics.trims += 1;
        for logical in first..first + count {
            let old = std::mem::replace(&mut self.map[logical as usize], NOWHERE);
            self.pool.statistics.pages_trimmed += u64::from(old != NOWHERE);
            self.forget(old);
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.pool.statistics.flushes += 1;
    }

    fn statistics(&self) -> FtlStatistics {
        self.pool.statistics
    }

    fn erase_counts(&self) -> &[u32] {
        self.pool.erase_counts()
    }

    fn location(&self, page: u64) -> Option<u64> {
        let entry = *self.map.get(usize::try_from(page).ok()?)?;
        entry.checked_sub(1).map(u64::from)
    }

    fn memory(&self) -> u64 {
        self.map.len() as u64 * 4 + self.pool.memory() + self.victims.memory()
    }
}
