//! The search for the section to clean, and for what is to be moved out of it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{FULL, SegmentState, SegmentTable};
use crate::{BLOCKS_PER_SEGMENT, Section, SectionView, Segment, VictimPolicy};

/// A section that may be cleaned, ordered by its cost, then by its number.
#[derive(Clone, Copy)]
struct Candidate {
    cost: f64,
    view: SectionView,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cost.total_cmp(&other.cost).then(self.view.section.cmp(&other.view.section))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// The candidates with the lowest costs so far, the worst of them on top.
struct Best {
    candidates: BinaryHeap<Candidate>,
    most: usize,
}

impl Best {
    /// So many at most.
    fn new(most: usize) -> Best {
        Best { candidates: BinaryHeap::new(), most }
    }

    /// Takes a candidate in if it is one of them, and may be; that is asked last: most have lost by then.
    fn offer(&mut self, candidate: Candidate, may: impl Fn(Section) -> bool) {
        let wins = self.candidates.len() < self.most || self.candidates.peek().is_some_and(|worst| candidate < *worst);
        if wins && may(candidate.view.section) {
            self.candidates.push(candidate);
            if self.candidates.len() > self.most {
                self.candidates.pop();
            }
        }
    }
}

impl SegmentTable {
    /// The section that is the cheapest to clean by `policy`, the lowest-numbered of equals; `None` if there is none.
    ///
    /// Never one with an active or reserved segment, one without a live block (it is free, or waits for a checkpoint only), one
    /// that is all live (nothing to gain), or one that `skip` says to leave out. `skip` must give the same answer for a
    /// section throughout the call; it is asked only about sections that would win. `now` is in the unit of time of
    /// [`SegmentTable::set_live`].
    ///
    /// Takes a pass over the table, or two for policies that rank ages: between one and three milliseconds for 1 TiB. With an
    /// [index](SegmentTable::index_by_live), policies that look at live blocks alone are served at once.
    #[must_use]
    pub fn select_victim(
        &self,
        policy: &dyn VictimPolicy,
        now: u64,
        skip: &dyn Fn(Section) -> bool,
    ) -> Option<Section> {
        if let Some(index) = self.by_live.as_ref().filter(|_| policy.is_by_live_alone()) {
            let may = |section| self.may_clean(section) && !skip(section);
            return index.emptiest(may, 1).first().copied();
        }
        if policy.finalists() > 0 {
            return self.select_victims(policy, now, skip, 1).first().copied();
        }
        let (oldest, youngest) = self.extremes(policy);
        let mut best: Option<Section> = None;
        let mut lowest = f64::INFINITY;
        self.each_partly_live(|view| {
            let cost = policy.cost(&view, now, oldest, youngest);
            // Whether the section may be cleaned is looked at last: most have lost by now.
            if (cost < lowest || best.is_none()) && self.may_clean(view.section) && !skip(view.section) {
                (best, lowest) = (Some(view.section), cost);
            }
        });
        best
    }

    /// The `count` sections that are the cheapest to clean by `policy`, the cheapest first, the lowest-numbered of equals first.
    /// Otherwise as [`SegmentTable::select_victim`], in about the same time.
    #[must_use]
    pub fn select_victims(
        &self,
        policy: &dyn VictimPolicy,
        now: u64,
        skip: &dyn Fn(Section) -> bool,
        count: usize,
    ) -> Vec<Section> {
        if let Some(index) = self.by_live.as_ref().filter(|_| policy.is_by_live_alone()) {
            return index.emptiest(|section| self.may_clean(section) && !skip(section), count);
        }
        let (oldest, youngest) = self.extremes(policy);
        let finalists = policy.finalists().max(count);
        let has_finals = policy.finalists() > 0;
        let has_emptiest = has_finals && policy.emptiest_finalists() > 0;
        let (mut best, mut emptiest) = (Best::new(finalists), Best::new(policy.emptiest_finalists().max(count)));
        let may = |section| self.may_clean(section) && !skip(section);
        self.each_partly_live(|view| {
            best.offer(Candidate { cost: policy.cost(&view, now, oldest, youngest), view }, may);
            if has_emptiest {
                emptiest.offer(Candidate { cost: f64::from(view.live), view }, may);
            }
        });
        let mut best = best.candidates.into_vec();
        if has_finals {
            best.extend(emptiest.candidates);
            for finalist in &mut best {
                finalist.cost = policy.final_cost(&finalist.view, now);
            }
        }
        best.sort_unstable();
        // Both looks may have found a section.
        best.dedup_by_key(|finalist| finalist.view.section);
        best.truncate(count);
        best.into_iter().map(|candidate| candidate.view.section).collect()
    }

    /// The blocks of a section to be moved next, live and pre-invalid ones: those of its first closed segment that has any at or behind
    /// block `from` of the section, at most `most`, as offsets in the segment, rising. `None` if there is nothing more to move.
    ///
    /// Segments that are active or reserved stay as they are. Ask again after each answer: what is moved may open a segment of the section.
    #[must_use]
    pub fn movable(&self, section: Section, from: u32, most: u32) -> Option<(Segment, Vec<u32>)> {
        let mut segments = self.segments_of(section).skip((from / BLOCKS_PER_SEGMENT) as usize);
        // Later segments lie behind `from` as a whole.
        let mut first = from % BLOCKS_PER_SEGMENT;
        segments.find_map(|segment| {
            let first = std::mem::take(&mut first);
            if matches!(self.state(segment), SegmentState::Free | SegmentState::Active | SegmentState::Reserved) {
                return None;
            }
            let blocks = self.blocks_to_move(segment, first, most as usize);
            (!blocks.is_empty()).then_some((segment, blocks))
        })
    }

    /// Blocks that are neither live nor in a free or prefree segment.
    #[must_use]
    pub fn dead_blocks(&self) -> u64 {
        let free = self.free_segments() + self.prefree_segments();
        let used = u64::from(self.segments() - free) * u64::from(BLOCKS_PER_SEGMENT);
        used.saturating_sub(self.live_data_blocks() + self.live_node_blocks())
    }

    /// The oldest and the youngest modification among the candidates, for policies that want to know.
    fn extremes(&self, policy: &dyn VictimPolicy) -> (u64, u64) {
        let (mut oldest, mut youngest) = (u64::MAX, 0);
        if policy.ranks_ages() {
            self.each_partly_live(|view| {
                oldest = oldest.min(view.modified);
                youngest = youngest.max(view.modified);
            });
        }
        (oldest, youngest)
    }

    /// Calls `visit` with every section that has a live and a dead block, rising. Pre-invalid blocks count as live ones where they have to be
    /// moved like those.
    fn each_partly_live(&self, mut visit: impl FnMut(SectionView)) {
        let size = self.segments_per_section as usize;
        let capacity = self.segments_per_section * BLOCKS_PER_SEGMENT;
        if self.keeps_any() {
            return self.each_partly_needed(capacity, visit);
        }
        if size == 1 {
            // The common layout, without the sums of the general one: it has the most sections to go through.
            for (section, (&live, &modified)) in Section::all(self.sections).zip(self.live.iter().zip(&self.modified)) {
                if live != 0 && live != FULL {
                    visit(SectionView { section, live: u32::from(live), capacity, modified, rate: None });
                }
            }
            return;
        }
        let sections = self.live.chunks_exact(size).zip(self.modified.chunks_exact(size));
        for (section, (live, modified)) in Section::all(self.sections).zip(sections) {
            let total = live.iter().map(|&live| u32::from(live)).sum();
            if total != 0 && total != capacity {
                let modified = mean_modified(live, modified, total);
                visit(SectionView { section, live: total, capacity, modified, rate: None });
            }
        }
    }

    /// As [`each_partly_live`](Self::each_partly_live), where there are pre-invalid blocks to be moved.
    fn each_partly_needed(&self, capacity: u32, mut visit: impl FnMut(SectionView)) {
        for section in Section::all(self.sections) {
            let live = self.live_in_section(section);
            let needed = self.needed_in_section(section);
            if live != 0 && needed != capacity {
                let segments = self.indices_of(section);
                let modified = mean_modified(&self.live[segments.clone()], &self.modified[segments], live);
                visit(SectionView { section, live: needed, capacity, modified, rate: None });
            }
        }
    }

    /// Whether nobody writes to a section, and nothing in it has to stay where it is.
    fn may_clean(&self, section: Section) -> bool {
        let is_taken = |state: &SegmentState| matches!(state, SegmentState::Active | SegmentState::Reserved);
        !self.states[self.indices_of(section)].iter().any(is_taken) && !self.has_pinned(section)
    }
}

/// The mean of the segments' times of modification, each weighted by its live blocks, of which there are `total` > 0.
fn mean_modified(live: &[u16], modified: &[u64], total: u32) -> u64 {
    let weigh = |(&live, &modified): (&u16, &u64)| u64::from(live).checked_mul(modified);
    let sum = live.iter().zip(modified).try_fold(0u64, |sum, segment| sum.checked_add(weigh(segment)?));
    match sum {
        Some(sum) => sum / u64::from(total),
        // Times this far off are damage on disk; the mean still has to be right, not fast.
        None => {
            let sum: u128 = live.iter().zip(modified).map(|(&live, &time)| u128::from(live) * u128::from(time)).sum();
            // A weighted mean is not above the greatest of its values, so it fits.
            (sum / u128::from(total)) as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::mean_modified;

    #[test]
    fn the_mean_is_weighted_and_does_not_overflow() {
        assert_eq!(mean_modified(&[7], &[u64::MAX], 7), u64::MAX);
        assert_eq!(mean_modified(&[100, 300], &[10, 50], 400), 40);
        assert_eq!(mean_modified(&[5, 0, 0], &[33, 0, u64::MAX], 5), 33);
        assert_eq!(mean_modified(&[512, 512], &[u64::MAX, u64::MAX - 2], 1024), u64::MAX - 1);
    }
}
