//! Slack on devices whose flash pages hold several blocks: only whole pages are written, and plans reckon in pages.
//!
//! A device that writes a part of a page has to write the rest of it again, and a power cut may lose both. So a page of which a block is needed is no
//! hole; its live blocks can be copied out, like an island.

use std::ops::Range;

use super::{DeviceTimes, SlackPlan};
use crate::BLOCKS_PER_SEGMENT;

/// Bytes of a block.
const BLOCK_BYTES: u32 = 4096;
/// The most pages that a segment has, where pages have more than a block.
const PAGES_MAX: usize = BLOCKS_PER_SEGMENT as usize / 2;
/// How often a plan is made better, at most.
const ROUNDS: u32 = 8;

/// How many blocks a flash page holds: a power of two, 1 to 64. 1 where nobody knows: blocks are written as they come then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashPage(u32);

impl FlashPage {
    /// A page that holds one block, or one of which nothing is known.
    pub const BLOCK: FlashPage = FlashPage(1);
    /// The largest page, in bytes.
    pub const MAX_BYTES: u32 = 64 * BLOCK_BYTES;

    /// A page of so many bytes: a power of two, at most [`MAX_BYTES`](Self::MAX_BYTES). Pages smaller than a block are taken for one.
    #[must_use]
    pub const fn of_bytes(bytes: u32) -> Option<FlashPage> {
        if !bytes.is_power_of_two() || bytes > FlashPage::MAX_BYTES {
            return None;
        }
        Some(if bytes < BLOCK_BYTES { FlashPage::BLOCK } else { FlashPage(bytes / BLOCK_BYTES) })
    }

    /// Blocks of a page.
    #[must_use]
    pub const fn blocks(self) -> u32 {
        self.0
    }

    /// Bytes of a page; those of a block where a page is smaller, or not known.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0 * BLOCK_BYTES
    }

    /// Of the blocks of a segment that have a bit here, the most significant first, those whose pages have all their bits.
    #[must_use]
    pub fn whole(self, words: &[u64; 8]) -> [u64; 8] {
        words.map(|word| {
            // The first bit of each page is left where all of its bits are set; then it stands for all of them.
            let (mut all, mut firsts, mut width) = (word, u64::MAX, 1);
            while width < self.0 {
                all &= all << width;
                firsts &= firsts_of_pairs(width);
                width *= 2;
            }
            let mut whole = all & firsts;
            while width > 1 {
                width /= 2;
                whole |= whole >> width;
            }
            whole
        })
    }
}

impl Default for FlashPage {
    fn default() -> FlashPage {
        FlashPage::BLOCK
    }
}

/// Of the groups of so many bits, a power of two less than 64, every other one, the most significant first.
const fn firsts_of_pairs(width: u32) -> u64 {
    let mut mask = 0;
    let mut at = 0;
    while at < u64::BITS {
        if (at / width).is_multiple_of(2) {
            mask |= 1 << (u64::BITS - 1 - at);
        }
        at += 1;
    }
    mask
}

/// What is known of the pages of a segment.
struct Pages {
    count: usize,
    /// Blocks of a page.
    blocks: u32,
    /// Live blocks of each.
    live: [u32; PAGES_MAX],
    /// Nanoseconds to read what is live of the pages in front of each, where neighbours are read together.
    reads: [u64; PAGES_MAX + 1],
    /// Dead blocks of the pages in front of each.
    dead: [u32; PAGES_MAX + 1],
}

/// The pages that are written, as runs, and what they give and take.
struct Chosen {
    runs: Vec<Range<usize>>,
    gained: u32,
    /// Without the commit.
    time: u64,
    copies: bool,
}

/// What blocks cost that are gained.
struct Price {
    time: u64,
    gained: u32,
}

impl Price {
    /// Nanoseconds for each; infinite where nothing is gained.
    fn each(&self) -> f64 {
        if self.gained == 0 { f64::INFINITY } else { self.time as f64 / f64::from(self.gained) }
    }

    fn is_less(&self, than: &Price) -> bool {
        let product = |time: u64, gained: u32| u128::from(time) * u128::from(gained);
        self.gained > 0 && (than.gained == 0 || product(self.time, than.gained) < product(than.time, self.gained))
    }
}

/// The plan for a segment with these dead blocks that takes the least time for each block that is gained; as [`SlackPlan::best`], whose plans gain the
/// same whatever they copy.
pub(super) fn best(dead: &[u64; 8], page: FlashPage, times: &DeviceTimes, sharing: u32) -> SlackPlan {
    let pages = Pages::of(dead, page, times);
    let commit = times.commit() / u64::from(sharing.max(1));
    let priced = |chosen: &Chosen| Price {
        time: if chosen.copies { chosen.time + commit } else { chosen.time },
        gained: chosen.gained,
    };
    let everything = pages.summed(std::iter::once(0..pages.count).collect(), times);
    let in_place = pages.chosen_in_place(times);
    let mut best = if priced(&everything).is_less(&priced(&in_place)) { everything } else { in_place };
    // Dinkelbach's method: a block that is gained is worth the least price so far, which falls until nothing is better. It does within a few rounds.
    for _ in 0..ROUNDS {
        let next = pages.chosen(priced(&best).each(), times);
        if !priced(&next).is_less(&priced(&best)) {
            break;
        }
        best = next;
    }
    SlackPlan { islands: pages.islands(&best.runs, dead), gained: best.gained, time: priced(&best).time }
}

impl Pages {
    fn of(dead: &[u64; 8], page: FlashPage, times: &DeviceTimes) -> Pages {
        let blocks = page.blocks();
        let count = (BLOCKS_PER_SEGMENT / blocks) as usize;
        let mut pages =
            Pages { count, blocks, live: [0; PAGES_MAX], reads: [0; PAGES_MAX + 1], dead: [0; PAGES_MAX + 1] };
        // Blocks that are read together, up to here.
        let mut together = 0;
        for at in 0..count {
            let first = at as u32 * blocks;
            let word = dead[(first / u64::BITS) as usize] << (first % u64::BITS);
            let live = blocks - (word >> (u64::BITS - blocks)).count_ones();
            let before = if together == 0 { 0 } else { times.read(together) };
            together = if live == 0 { 0 } else { together + blocks };
            let read = if live == 0 { 0 } else { times.read(together) - before };
            pages.live[at] = live;
            pages.reads[at + 1] = pages.reads[at] + read;
            pages.dead[at + 1] = pages.dead[at] + blocks - live;
        }
        pages
    }

    /// Each run of dead pages by itself: nothing is copied.
    fn chosen_in_place(&self, times: &DeviceTimes) -> Chosen {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for at in (0..self.count).filter(|&at| self.live[at] == 0) {
            match runs.last_mut().filter(|run| run.end == at) {
                Some(run) => run.end += 1,
                None => runs.push(at..at + 1),
            }
        }
        self.summed(runs, times)
    }

    /// The runs of pages that take the least time, less what they gain at this worth a block. Dead pages are in one in any case, because logs write them.
    fn chosen(&self, worth: f64, times: &DeviceTimes) -> Chosen {
        let mut least = [0.0_f64; PAGES_MAX + 1];
        // Where the run begins that ends in front of a page; the page itself where it is in none.
        let mut from = [0_usize; PAGES_MAX + 1];
        for end in 1..=self.count {
            let skipped = if self.live[end - 1] == 0 { f64::INFINITY } else { least[end - 1] };
            (least[end], from[end]) = (skipped, end);
            for start in (0..end).rev() {
                let cost = least[start] + self.cost(start..end, worth, times);
                if cost < least[end] {
                    (least[end], from[end]) = (cost, start);
                }
            }
        }
        let (mut runs, mut end) = (Vec::new(), self.count);
        while end > 0 {
            if from[end] == end {
                end -= 1;
            } else {
                runs.push(from[end]..end);
                end = from[end];
            }
        }
        runs.reverse();
        self.summed(runs, times)
    }

    fn cost(&self, run: Range<usize>, worth: f64, times: &DeviceTimes) -> f64 {
        self.time(&run, times) as f64 - worth * f64::from(self.dead[run.end] - self.dead[run.start])
    }

    fn time(&self, run: &Range<usize>, times: &DeviceTimes) -> u64 {
        times.write((run.end - run.start) as u32 * self.blocks) + (self.reads[run.end] - self.reads[run.start])
    }

    fn summed(&self, runs: Vec<Range<usize>>, times: &DeviceTimes) -> Chosen {
        let gained = runs.iter().map(|run| self.dead[run.end] - self.dead[run.start]).sum();
        let time = runs.iter().map(|run| self.time(run, times)).sum();
        let copies = runs.iter().cloned().flatten().any(|at| self.live[at] > 0);
        Chosen { runs, gained, time, copies }
    }

    /// What is live in these runs of pages, as runs of offsets of blocks.
    fn islands(&self, runs: &[Range<usize>], dead: &[u64; 8]) -> Vec<Range<u32>> {
        let live = dead.map(|word| !word);
        let within = |run: &Range<usize>| run.start as u32 * self.blocks..run.end as u32 * self.blocks;
        let clipped = |island: Range<u32>, run: &Range<u32>| island.start.max(run.start)..island.end.min(run.end);
        let all: Vec<Range<u32>> = super::runs(&live).collect();
        let islands =
            runs.iter().map(within).flat_map(|run| all.iter().map(move |island| clipped(island.clone(), &run)));
        islands.filter(|island| island.start < island.end).collect()
    }
}

#[cfg(test)]
mod tests;
