//! What the tests of the translation layers share.

#![allow(dead_code, reason = "each test file uses its part")]

use basalt_flash::ftl::{FlashObserver, Geometry, GeometryOptions, Programmed};
use basalt_random::Rng;

/// A geometry of 4 KiB pages.
pub fn geometry(logical_pages: u64, pages_per_block: u32, over_provisioning_percent: f64) -> Geometry {
    Geometry::new(&GeometryOptions {
        logical_bytes: logical_pages * 4096,
        page_bytes: 4096,
        block_bytes: pages_per_block * 4096,
        over_provisioning_percent,
    })
    .unwrap()
}

/// Flash that stops the test when it is used as real NAND cannot be: a page programmed twice or out of order, a copy of
/// what is not there. It knows which version of which page every physical page holds.
pub struct Nand {
    pages_per_block: usize,
    content: Vec<Option<(u64, u64)>>,
    next: Vec<usize>,
    pub erases: Vec<u32>,
    versions: Vec<u64>,
}

impl Nand {
    pub fn new(geometry: &Geometry) -> Nand {
        let blocks = geometry.physical_blocks() as usize;
        Nand {
            pages_per_block: geometry.pages_per_block() as usize,
            content: vec![None; geometry.physical_pages() as usize],
            next: vec![0; blocks],
            erases: vec![0; blocks],
            versions: vec![0; geometry.logical_pages() as usize],
        }
    }

    /// The logical page and its version in a physical page.
    pub fn at(&self, physical: u64) -> Option<(u64, u64)> {
        self.content[physical as usize]
    }
}

impl FlashObserver for Nand {
    fn program(&mut self, physical: u64, logical: u64, why: Programmed) {
        let (block, index) = (physical as usize / self.pages_per_block, physical as usize % self.pages_per_block);
        assert!(index >= self.next[block], "page {index} of block {block} after page {}", self.next[block]);
        self.next[block] = index + 1;
        assert_eq!(self.content[physical as usize], None, "physical page {physical} programmed twice");
        let content = match why {
            Programmed::ByHost => {
                self.versions[logical as usize] += 1;
                (logical, self.versions[logical as usize])
            }
            Programmed::CopyOf(from) => self.content[from as usize].expect("a copy of an erased page"),
        };
        assert_eq!(content.0, logical, "a copy of another page");
        self.content[physical as usize] = Some(content);
    }

    fn erase(&mut self, block: u64) {
        let first = block as usize * self.pages_per_block;
        self.content[first..first + self.pages_per_block].fill(None);
        self.next[block as usize] = 0;
        self.erases[block as usize] += 1;
    }
}

/// Page numbers with Zipf's distribution over ranks that are scattered over the pages.
pub struct Zipf {
    cumulative: Vec<f64>,
    page_of_rank: Vec<u32>,
}

impl Zipf {
    pub fn new(pages: u64, exponent: f64, rng: &mut Rng) -> Zipf {
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=pages)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        cumulative.iter_mut().for_each(|share| *share /= sum);
        let mut page_of_rank: Vec<u32> = (0..pages as u32).collect();
        for last in (1..page_of_rank.len()).rev() {
            page_of_rank.swap(last, rng.index(last + 1));
        }
        Zipf { cumulative, page_of_rank }
    }

    pub fn next(&self, rng: &mut Rng) -> u64 {
        let drawn = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = self.cumulative.partition_point(|&share| share < drawn);
        u64::from(self.page_of_rank[rank.min(self.page_of_rank.len() - 1)])
    }
}
