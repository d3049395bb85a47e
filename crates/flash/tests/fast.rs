//! FAST against closed forms and against the same rules written down naively.

mod support;

use std::collections::HashMap;

use basalt_flash::ftl::{Fast, FastOptions, FtlStatistics, Geometry, TranslationLayer};
use basalt_random::Rng;
use support::geometry;

fn fast(geometry: Geometry) -> Fast {
    Fast::new(geometry, FastOptions::default()).unwrap()
}

#[test]
fn sequential_overwrites_are_switches_only() {
    // The last block is short: it is switched all the same.
    let geometry = geometry(65_536 - 20, 128, 10.0);
    let mut layer = fast(geometry);
    for _ in 0..5 {
        layer.write(0, geometry.logical_pages()).unwrap();
    }
    let statistics = layer.statistics();
    assert_eq!(statistics.write_amplification(), 1.0);
    assert_eq!((statistics.full_merges, statistics.partial_merges, statistics.collections), (0, 0, 0));
    // The first round fills the data blocks; of the others, the last sequential log is still open.
    assert_eq!(statistics.switch_merges, 4 * geometry.logical_blocks() - 1);
    assert_eq!(statistics.erases, statistics.switch_merges);
}

#[test]
fn an_abandoned_sequential_log_costs_what_is_missing() {
    let geometry = geometry(1280, 128, 50.0);
    let mut layer = fast(geometry);
    layer.write(0, 1280).unwrap();
    // 100 pages of block 0, then block 3 begins: 28 pages are copied.
    layer.write(0, 100).unwrap();
    layer.write(3 * 128, 1).unwrap();
    let statistics = layer.statistics();
    assert_eq!((statistics.partial_merges, statistics.pages_copied, statistics.erases), (1, 28, 1));
    // Out of order within block 3: 127 more, and the page itself goes to the random log.
    layer.write(3 * 128 + 50, 1).unwrap();
    let statistics = layer.statistics();
    assert_eq!((statistics.partial_merges, statistics.pages_copied, statistics.erases), (2, 28 + 127, 2));
    assert_eq!(statistics.full_merges, 0);
}

#[test]
fn a_random_log_of_n_blocks_costs_n_full_merges() {
    let geometry = geometry(32 * 64, 64, 20.0);
    let mut layer = Fast::new(geometry, FastOptions { random_log_blocks: Some(1) }).unwrap();
    layer.write(0, 32 * 64).unwrap();
    // One page of each of 32 blocks, twice: the only log block is full. The next write reclaims it.
    for round in 0..2 {
        for block in 0..32 {
            layer.write(block * 64 + 10 + round, 1).unwrap();
        }
    }
    assert_eq!(layer.statistics().full_merges, 0);
    layer.write(5, 1).unwrap();
    let statistics = layer.statistics();
    assert_eq!((statistics.full_merges, statistics.collections), (32, 1));
    assert_eq!((statistics.pages_copied, statistics.erases), (32 * 64, 33));
}

/// With every page equally likely to be written, a reclaimed log block holds pages of as many data blocks as it has
/// pages, nearly: each costs a whole block of copies.
#[test]
fn random_overwrites_cost_full_merges() {
    let geometry = geometry(65_536, 64, 10.0);
    let mut layer = fast(geometry);
    layer.write(0, 65_536).unwrap();
    let mut rng = Rng::new(11);
    for _ in 0..65_536 {
        layer.write(rng.below(65_536), 1).unwrap();
    }
    let filled = layer.statistics();
    for _ in 0..65_536 {
        layer.write(rng.below(65_536), 1).unwrap();
    }
    let statistics = layer.statistics().since(&filled);
    // One write in 64 is to the start of a block and opens a sequential log, which is never continued for long.
    assert!(statistics.partial_merges < 65_536 / 64 + 100, "{statistics:?}");
    assert!(statistics.full_merges > 8 * statistics.partial_merges, "{statistics:?}");
    // A block is merged when its oldest page leaves the log, as many writes after it came as the logs have pages: until
    // then 1/1,024 of all writes were to the block too, and share its 64 copies.
    let in_log = layer.random_log_blocks() as f64 * 64.0 * 64.0 / 63.0;
    let expected = 1.0 + 64.0 / (1.0 + in_log / 1024.0);
    let amplification = statistics.write_amplification();
    assert!((amplification / expected - 1.0).abs() < 0.06, "{amplification:.2}, expected {expected:.2}");
}

/// The rules of FAST once more, with maps instead of arrays and nothing shared with the real one.
#[derive(Default)]
struct Naive {
    pages_per_block: u64,
    logical_pages: u64,
    random_logs: usize,
    next_block: u64,
    /// Physical blocks by number, with the pages programmed in them.
    blocks: HashMap<u64, Vec<Option<u64>>>,
    place: HashMap<u64, (u64, usize)>,
    data: HashMap<u64, u64>,
    sequential: Option<(u64, u64)>,
    random: Vec<u64>,
    done: FtlStatistics,
}

impl Naive {
    fn new_block(&mut self) -> u64 {
        self.next_block += 1;
        self.blocks.insert(self.next_block, Vec::new());
        self.next_block
    }

    fn erase(&mut self, block: u64) {
        self.blocks.remove(&block).unwrap();
        self.done.erases += 1;
    }

    fn put(&mut self, block: u64, index: usize, page: u64) {
        let pages = self.blocks.get_mut(&block).unwrap();
        pages.resize(index, None);
        pages.push(Some(page));
        self.place.insert(page, (block, index));
        self.done.pages_programmed += 1;
    }

    /// Copies the pages of a logical block, from an index on, to their places.
    fn copy(&mut self, owner: u64, from: usize, block: u64) -> u64 {
        let mut copies = 0;
        for index in from as u64..self.pages_per_block {
            let page = owner * self.pages_per_block + index;
            if page < self.logical_pages && self.place.contains_key(&page) {
                self.put(block, index as usize, page);
                copies += 1;
            }
        }
        self.done.pages_copied += copies;
        copies
    }

    fn end_sequential(&mut self) {
        let Some((block, owner)) = self.sequential.take() else { return };
        let from = self.blocks[&block].len();
        if self.copy(owner, from, block) == 0 {
            self.done.switch_merges += 1;
        } else {
            self.done.partial_merges += 1;
        }
        let old = self.data.insert(owner, block).unwrap();
        self.erase(old);
    }

    fn reclaim(&mut self) {
        let victim = self.random.remove(0);
        self.done.collections += 1;
        for index in 0..self.pages_per_block as usize {
            let Some(page) = self.blocks[&victim][index] else { continue };
            if self.place[&page] != (victim, index) {
                continue;
            }
            let owner = page / self.pages_per_block;
            if self.sequential.is_some_and(|(_, of)| of == owner) {
                self.end_sequential();
            } else {
                let block = self.new_block();
                self.copy(owner, 0, block);
                self.done.full_merges += 1;
                let old = self.data.insert(owner, block).unwrap();
                self.erase(old);
            }
        }
        self.erase(victim);
    }

    fn write(&mut self, page: u64) {
        self.done.pages_written += 1;
        let (owner, index) = (page / self.pages_per_block, (page % self.pages_per_block) as usize);
        if !self.data.contains_key(&owner) {
            let block = self.new_block();
            self.data.insert(owner, block);
        }
        let data = self.data[&owner];
        if self.blocks[&data].len() <= index {
            return self.put(data, index, page);
        }
        if index == 0 {
            self.end_sequential();
            let block = self.new_block();
            self.sequential = Some((block, owner));
            return self.put(block, 0, page);
        }
        if let Some((block, _)) = self.sequential.filter(|(_, of)| *of == owner) {
            if self.blocks[&block].len() == index {
                return self.put(block, index, page);
            }
            self.end_sequential();
        }
        let full = |naive: &Naive| {
            naive.random.last().is_none_or(|last| naive.blocks[last].len() as u64 == naive.pages_per_block)
        };
        if full(self) {
            if self.random.len() == self.random_logs {
                self.reclaim();
            }
            let block = self.new_block();
            self.random.push(block);
        }
        let last = *self.random.last().unwrap();
        self.put(last, self.blocks[&last].len(), page);
    }
}

#[test]
fn a_naive_model_counts_the_same() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let pages_per_block = rng.between(2, 20);
        let geometry = geometry(pages_per_block * 30 - rng.below(2), pages_per_block as u32, 30.0);
        let random_logs = 1 + rng.below(6) as u32;
        let mut layer = Fast::new(geometry, FastOptions { random_log_blocks: Some(random_logs) }).unwrap();
        let logical_pages = geometry.logical_pages();
        let mut naive = Naive { pages_per_block, logical_pages, random_logs: random_logs as usize, ..Naive::default() };
        for _ in 0..3000 {
            let first = rng.below(logical_pages);
            let (first, count) = match rng.below(4) {
                0 => (first / pages_per_block * pages_per_block, rng.between(1, 2 * pages_per_block)),
                _ => (first, rng.size(3)),
            };
            let count = count.min(logical_pages - first);
            layer.write(first, count).unwrap();
            (first..first + count).for_each(|page| naive.write(page));
            assert_eq!(layer.statistics(), naive.done, "seed {seed}");
        }
    }
}
