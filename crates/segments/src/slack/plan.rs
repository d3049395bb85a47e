//! Which live blocks of a segment are copied out of the way, so that its holes become long enough.
//!
//! Source: E. Gwak and D. Shin, partial garbage collection for slack space recycling, 2014; here the choice is the best one by the device's times. With holes
//! h₁ … h_m, islands s₁ … s_{m−1} of live blocks between them, t(n) and r(n) the times to write and to read n blocks, C a commit that g
//! victims share:
//!
//! ```text
//! F(0) = 0;  F(j) = min over i < j of  F(i) + t(from the start of h_{i+1} to the end of h_j) + r(|s_{i+1}|) + … + r(|s_{j−1}|)
//! plan = min( t(|h₁|) + … + t(|h_m|),  F(m) + C/g )
//! ```
//!
//! What is written where an island was, is paid in t of the longer hole: the copy takes a place elsewhere, and the victim gives one back.

use std::ops::Range;

use super::{DeviceTimes, FlashPage, pages};
use crate::BLOCKS_PER_SEGMENT;

/// What full cleaning may take longer for each block that is gained, in percent: whole segments are written in longer runs than plans reckon with.
const HARDLY_LONGER_PERCENT: u32 = 5;
/// The most holes that a segment can have: every other block.
const HOLES_MAX: usize = BLOCKS_PER_SEGMENT as usize / 2;

/// What is written into the slack of a segment, and what is copied out first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlackPlan {
    /// Blocks that are copied out, as runs of offsets in the segment, rising: all that lie between two holes which become one.
    pub islands: Vec<Range<u32>>,
    /// Blocks that are gained: those of the holes. Islands take as many places elsewhere as they leave.
    pub gained: u32,
    /// Nanoseconds to read the islands, to commit, and to write all that then is one hole or another.
    pub time: u64,
}

impl SlackPlan {
    /// The plan for a segment that takes the least time. `dead` has a bit for each block that may be written, the most significant first;
    /// `sharing` victims have one commit between them, at least one.
    #[must_use]
    pub fn best(dead: &[u64; 8], times: &DeviceTimes, sharing: u32) -> SlackPlan {
        let holes = Holes::of(dead);
        let (in_place, joined) = (holes.time_in_place(times), holes.join(times));
        let with_commit = joined.time + times.commit() / u64::from(sharing.max(1));
        if in_place <= with_commit {
            return SlackPlan { islands: Vec::new(), gained: holes.blocks(), time: in_place };
        }
        SlackPlan { islands: joined.islands, gained: holes.blocks(), time: with_commit }
    }

    /// As [`best`](Self::best), where logs write whole flash pages alone: the plan that takes the least time for each block that is gained. Dead blocks
    /// of a page with live ones are gained if these are copied out.
    #[must_use]
    pub fn best_in_pages(dead: &[u64; 8], page: FlashPage, times: &DeviceTimes, sharing: u32) -> SlackPlan {
        if page == FlashPage::BLOCK {
            return SlackPlan::best(dead, times, sharing);
        }
        pages::best(dead, page, times, sharing)
    }

    /// The plan that copies nothing: slack space recycling as F2FS has it.
    #[must_use]
    pub fn in_place(dead: &[u64; 8], times: &DeviceTimes) -> SlackPlan {
        let holes = Holes::of(dead);
        SlackPlan { islands: Vec::new(), gained: holes.blocks(), time: holes.time_in_place(times) }
    }

    /// The plan that copies all that is live and writes the segment from end to end: full cleaning.
    #[must_use]
    pub fn full(dead: &[u64; 8], times: &DeviceTimes, sharing: u32) -> SlackPlan {
        let islands: Vec<Range<u32>> = runs(&dead.map(|word| !word)).collect();
        let reads: u64 = islands.iter().map(|island| times.read(length(island))).sum();
        let time = reads + times.commit() / u64::from(sharing.max(1)) + times.write(BLOCKS_PER_SEGMENT);
        SlackPlan { islands, gained: dead.iter().map(|word| word.count_ones()).sum(), time }
    }

    /// Nanoseconds for each block that is gained; infinite where none is.
    #[must_use]
    pub fn price(&self) -> f64 {
        if self.gained == 0 { f64::INFINITY } else { self.time as f64 / f64::from(self.gained) }
    }

    /// Blocks that are copied.
    #[must_use]
    pub fn copied(&self) -> u32 {
        self.islands.iter().map(length).sum()
    }
}

/// Whether segments, of each of which these blocks are dead, are better emptied by full cleaning: for a block that is gained it takes hardly longer than
/// their best plans do, and what it gives are whole segments.
#[must_use]
pub fn are_better_emptied(segments: &[[u64; 8]], page: FlashPage, times: &DeviceTimes) -> bool {
    let sharing = u32::try_from(segments.len()).unwrap_or(u32::MAX);
    let sum = |plan: &dyn Fn(&[u64; 8]) -> SlackPlan| {
        segments.iter().map(plan).fold((0_u64, 0_u64), |(time, gained), plan| {
            (time.saturating_add(plan.time), gained + u64::from(plan.gained))
        })
    };
    let (best, best_gained) = sum(&|dead| SlackPlan::best_in_pages(dead, page, times, sharing));
    let (full, full_gained) = sum(&|dead| SlackPlan::full(dead, times, sharing));
    // Products of 128 bits: times of hours, and all blocks of a volume.
    let price = |time: u64, of_other: u64| u128::from(time) * u128::from(of_other);
    full_gained > 0
        && price(full, best_gained) * 100 <= price(best, full_gained) * (100 + u128::from(HARDLY_LONGER_PERCENT))
}

/// The holes of a segment, in order: where each begins, and where it ends.
struct Holes {
    count: usize,
    starts: [u32; HOLES_MAX],
    ends: [u32; HOLES_MAX],
}

/// What joining holes leads to, without the commit.
struct Joined {
    islands: Vec<Range<u32>>,
    time: u64,
}

impl Holes {
    fn of(dead: &[u64; 8]) -> Holes {
        let mut holes = Holes { count: 0, starts: [0; HOLES_MAX], ends: [0; HOLES_MAX] };
        for run in runs(dead) {
            (holes.starts[holes.count], holes.ends[holes.count]) = (run.start, run.end);
            holes.count += 1;
        }
        holes
    }

    fn blocks(&self) -> u32 {
        self.each().map(|hole| length(&hole)).sum()
    }

    fn time_in_place(&self, times: &DeviceTimes) -> u64 {
        self.each().map(|hole| times.write(length(&hole))).sum()
    }

    fn each(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.starts.iter().zip(&self.ends).take(self.count).map(|(&start, &end)| start..end)
    }

    /// The dynamic programme F: holes are joined where that takes less time.
    fn join(&self, times: &DeviceTimes) -> Joined {
        let mut front = [0; HOLES_MAX];
        let (mut reads, mut best) = (0, 0);
        for last in 0..self.count {
            if last > 0 {
                reads += times.read(self.starts[last] - self.ends[last - 1]) as i64;
                front[last] = best - reads;
            }
            best = reads + self.least(last, &front, times);
        }
        Joined { islands: self.islands_between(&front, times), time: best as u64 }
    }

    /// The least of F(last + 1), less the reads of all islands in front of hole `last`. `front` has for each hole F in front of it, less the
    /// reads of all islands in front of it.
    fn least(&self, last: usize, front: &[i64; HOLES_MAX], times: &DeviceTimes) -> i64 {
        self.times_to(last, front, times).min().unwrap_or_default()
    }

    /// As [`least`](Self::least), for each hole that may be the first of those joined with `last`.
    fn times_to<'a>(
        &'a self,
        last: usize,
        front: &'a [i64; HOLES_MAX],
        times: &'a DeviceTimes,
    ) -> impl ExactSizeIterator<Item = i64> + DoubleEndedIterator + 'a {
        let (writes, end) = (times.writes(), self.ends[last]);
        let holes = self.starts[..=last].iter().zip(&front[..=last]);
        // Never longer than a segment; the mask tells the compiler.
        holes
            .map(move |(&start, &front)| front + writes[((end - start - 1) & (BLOCKS_PER_SEGMENT - 1)) as usize] as i64)
    }

    /// The islands inside of what is joined, the fewest where several ways take the least time.
    fn islands_between(&self, front: &[i64; HOLES_MAX], times: &DeviceTimes) -> Vec<Range<u32>> {
        let mut islands = Vec::new();
        let mut end = self.count;
        while end > 0 {
            let least = self.least(end - 1, front, times);
            let first = self.times_to(end - 1, front, times).rposition(|time| time == least).unwrap_or_default();
            islands.extend((first + 1..end).rev().map(|hole| self.ends[hole - 1]..self.starts[hole]));
            end = first;
        }
        islands.reverse();
        islands
    }
}

/// The runs of bits that are set, as offsets; the most significant bit of a word is its first.
pub(crate) fn runs(words: &[u64; 8]) -> impl Iterator<Item = Range<u32>> {
    let words = *words;
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = next(&words, from, false)?;
        let end = next(&words, start, true).unwrap_or(BLOCKS_PER_SEGMENT);
        from = end;
        Some(start..end)
    })
}

/// The first bit from `from` on that is set, or with `clear`, is not.
fn next(words: &[u64; 8], from: u32, clear: bool) -> Option<u32> {
    let mut mask = u64::MAX >> (from % u64::BITS);
    for (at, &word) in (0..).zip(words).skip((from / u64::BITS) as usize) {
        let word = (if clear { !word } else { word }) & mask;
        if word != 0 {
            return Some(at * u64::BITS + word.leading_zeros());
        }
        mask = u64::MAX;
    }
    None
}

fn length(run: &Range<u32>) -> u32 {
    run.end - run.start
}

#[cfg(test)]
mod tests;
