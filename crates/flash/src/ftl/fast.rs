//! FAST: data blocks mapped as wholes, log blocks shared by all of them.
//!
//! After Lee, Park, Chung, Lee, Park, Song: "A log buffer-based flash translation layer using fully-associative sector
//! translation", ACM TECS 6(3), 2007.
//!
//! - A page is written to its own place in its data block while that place is still erased. NAND wants the pages of a
//!   block in ascending order, so here the place must also lie behind all that is programmed.
//! - Otherwise a page at the start of a block begins the one *sequential log block*; the pages that follow it one by one
//!   are appended. Complete, it takes the data block's place: a *switch merge*, no copies. Left incomplete — another
//!   block begins, or its pages come out of order — the missing pages are copied in first: a *partial merge*.
//! - All else goes to the *random log blocks*, in order of arrival, whatever block it belongs to. When they are full the
//!   oldest is reclaimed: for each block with a live page in it, the newest pages are gathered from everywhere into a new
//!   data block: a *full merge*.
//!
//! Where the paper leaves a choice open: the page that ends a sequential log out of order goes to the random log, since
//! a sequential log that does not begin at page 0 could never be switched; and a full merge of the block that owns the
//! sequential log becomes a merge of that log, which costs less.

use std::collections::VecDeque;

use super::geometry::{Geometry, GeometryError};
use super::observer::{FlashObserver, Programmed};
use super::pool::{NOWHERE, Pool};
use super::statistics::FtlStatistics;
use super::{FtlError, TranslationKind, TranslationLayer, check};

/// How a [`Fast`] layer works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FastOptions {
    /// Random log blocks. Without a number, all spare blocks but two: the sequential log and the target of merges.
    pub random_log_blocks: Option<u32>,
}

/// Spare blocks that are no random log blocks.
const RESERVED: u32 = 2;

/// The sequential log: the only block whose pages replace those of one logical block in order.
#[derive(Clone, Copy)]
struct SequentialLog {
    block: u32,
    /// The logical block whose pages it has.
    owner: u32,
}

/// The FAST hybrid layer: see the [module](self).
pub struct Fast<O = ()> {
    /// Physical page + 1 of each logical page, or [`NOWHERE`]. A real controller derives most of it from `data_blocks`.
    map: Vec<u32>,
    /// Physical block + 1 of each logical block, or [`NOWHERE`].
    data_blocks: Vec<u32>,
    pool: Pool<O>,
    sequential: Option<SequentialLog>,
    /// The oldest first; the last is being filled.
    random: VecDeque<u32>,
    random_log_blocks: usize,
    pages_per_block: u32,
}

impl Fast {
    /// A layer whose flash is all erased.
    ///
    /// # Errors
    /// When there are fewer than 4 spare blocks, or not two more than random log blocks.
    pub fn new(geometry: Geometry, options: FastOptions) -> Result<Fast, GeometryError> {
        Fast::observed(geometry, options, ())
    }
}

impl<O: FlashObserver> Fast<O> {
    /// A layer whose every program and erase `observer` sees.
    ///
    /// # Errors
    /// When there are fewer than 4 spare blocks, or not two more than random log blocks.
    pub fn observed(geometry: Geometry, options: FastOptions, observer: O) -> Result<Fast<O>, GeometryError> {
        geometry.need_spare(4)?;
        let spare = geometry.physical_blocks() - geometry.logical_blocks();
        // Both differences and products fit: the geometry holds blocks below 2^32.
        let random_log_blocks = options.random_log_blocks.unwrap_or(spare as u32 - RESERVED);
        if random_log_blocks == 0 {
            return Err(GeometryError("FAST needs a random log block; random_log_blocks is 0".to_owned()));
        }
        geometry.need_spare(u64::from(random_log_blocks) + u64::from(RESERVED))?;
        Ok(Fast {
            map: vec![NOWHERE; geometry.logical_pages() as usize],
            data_blocks: vec![NOWHERE; geometry.logical_blocks() as usize],
            pool: Pool::new(geometry, observer),
            sequential: None,
            random: VecDeque::new(),
            random_log_blocks: random_log_blocks as usize,
            pages_per_block: geometry.pages_per_block(),
        })
    }

    /// Who sees the programs and erases.
    pub fn observer(&self) -> &O {
        self.pool.observer()
    }

    /// Random log blocks there may be.
    pub fn random_log_blocks(&self) -> usize {
        self.random_log_blocks
    }

    fn write_page(&mut self, logical: u32) {
        let (owner, index) = (logical / self.pages_per_block, logical % self.pages_per_block);
        let data = match self.data_blocks[owner as usize] {
            NOWHERE => {
                let block = self.pool.take();
                self.data_blocks[owner as usize] = block + 1;
                block
            }
            entry => entry - 1,
        };
        if index >= self.pool.next(data) {
            self.program(data, index, logical);
        } else if index == 0 {
            self.finish_sequential();
            let block = self.pool.take();
            self.sequential = Some(SequentialLog { block, owner });
            self.program(block, 0, logical);
        } else {
            self.write_to_log(owner, index, logical);
        }
    }

    /// Appends to the sequential log what continues it, anything else to the random log.
    fn write_to_log(&mut self, owner: u32, index: u32, logical: u32) {
        if let Some(log) = self.sequential.filter(|log| log.owner == owner) {
            if index == self.pool.next(log.block) {
                return self.program(log.block, index, logical);
            }
            self.finish_sequential();
        }
        let block = match self.random.back() {
            Some(&block) if !self.pool.is_full(block) => block,
            _ => self.new_random_log(),
        };
        self.program(block, self.pool.next(block), logical);
    }

    /// Programs a page for the host; its old place is dead then.
    fn program(&mut self, block: u32, index: u32, logical: u32) {
        let physical = self.pool.program(block, index, logical, Programmed::ByHost);
        let old = std::mem::replace(&mut self.map[logical as usize], physical + 1);
        if old != NOWHERE {
            self.pool.invalidate(old - 1);
        }
    }

    /// Opens another random log block, reclaiming the oldest when all are in use.
    fn new_random_log(&mut self) -> u32 {
        if self.random.len() == self.random_log_blocks {
            self.reclaim_oldest();
        }
        let block = self.pool.take();
        self.random.push_back(block);
        block
    }

    /// Merges every logical block with a live page in the oldest random log block, and erases that.
    fn reclaim_oldest(&mut self) {
        let Some(victim) = self.random.pop_front() else { return };
        self.pool.statistics.collections += 1;
        for index in 0..self.pages_per_block {
            if self.pool.live(victim) == 0 {
                break;
            }
            if let Some(logical) = self.pool.owner(self.pool.page_of(victim, index)) {
                self.merge(logical / self.pages_per_block);
            }
        }
        self.pool.erase(victim);
    }

    /// Puts a logical block's pages together.
    fn merge(&mut self, owner: u32) {
        match self.sequential.filter(|log| log.owner == owner) {
            Some(_) => self.finish_sequential(),
            None => self.full_merge(owner),
        }
    }

    fn full_merge(&mut self, owner: u32) {
        let block = self.pool.take();
        self.gather(owner, 0, block);
        self.pool.statistics.full_merges += 1;
        self.replace_data_block(owner, block);
    }

    /// Copies the live pages of a logical block from page `first` on to their places in `block`, and counts them.
    fn gather(&mut self, owner: u32, first: u32, block: u32) -> u32 {
        let base = owner * self.pages_per_block;
        let mut copied = 0;
        for index in first..self.pages_per_block {
            let logical = base + index;
            // The last block may be shorter.
            let Some(entry) = self.map.get_mut(logical as usize) else { break };
            if *entry != NOWHERE {
                *entry = self.pool.copy(*entry - 1, block, index, logical) + 1;
                copied += 1;
            }
        }
        copied
    }

    /// Makes `block`, which has all live pages of a logical block, its data block.
    fn replace_data_block(&mut self, owner: u32, block: u32) {
        let old = std::mem::replace(&mut self.data_blocks[owner as usize], block + 1);
        if old != NOWHERE {
            self.pool.erase(old - 1);
        }
        self.drop_empty_data_block(owner);
    }

    /// Erases a logical block's data block if nothing in it is live.
    fn drop_empty_data_block(&mut self, owner: u32) {
        let entry = &mut self.data_blocks[owner as usize];
        if *entry != NOWHERE && self.pool.live(*entry - 1) == 0 {
            self.pool.erase(*entry - 1);
            *entry = NOWHERE;
        }
    }

    /// Turns the sequential log, if there is one, into a data block: as it is, or completed with copies.
    fn finish_sequential(&mut self) {
        let Some(SequentialLog { block, owner }) = self.sequential.take() else { return };
        let next = self.pool.next(block);
        if self.has_newer_pages(owner, next, block) {
            // Pages were trimmed and written again elsewhere meanwhile.
            self.full_merge(owner);
            self.pool.erase(block);
            return;
        }
        match self.gather(owner, next, block) {
            0 => self.pool.statistics.switch_merges += 1,
            _ => self.pool.statistics.partial_merges += 1,
        }
        self.replace_data_block(owner, block);
    }

    /// Whether a page of the logical block before `next` is live anywhere but in `block`.
    fn has_newer_pages(&self, owner: u32, next: u32, block: u32) -> bool {
        let base = owner * self.pages_per_block;
        (0..next).any(|index| match self.map[(base + index) as usize] {
            NOWHERE => false,
            entry => self.pool.block_of(entry - 1) != block,
        })
    }
}

impl<O: FlashObserver> TranslationLayer for Fast<O> {
    fn kind(&self) -> TranslationKind {
        TranslationKind::Fast
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
            if old != NOWHERE {
                self.pool.statistics.pages_trimmed += 1;
                let block = self.pool.invalidate(old - 1);
                let owner = logical as u32 / self.pages_per_block;
                if self.data_blocks[owner as usize] == block + 1 {
                    self.drop_empty_data_block(owner);
                }
            }
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
        let logs = self.random_log_blocks as u64 * 4;
        self.map.len() as u64 * 4 + self.data_blocks.len() as u64 * 4 + logs + self.pool.memory()
    }
}
