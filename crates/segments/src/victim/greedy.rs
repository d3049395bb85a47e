//! The greedy victim policy.

use super::{SectionView, VictimPolicy};

/// Cleans the section with the fewest live blocks: the least work now, whatever comes later.
///
/// `cost = live`
///
/// What foreground cleaning wants, where a writer waits. In the long run it is worse than [`CostBenefit`] on skewed
/// workloads, because it never takes a cold section whose free space is slow to grow.
///
/// Source: M. Rosenblum and J. Ousterhout, "The Design and Implementation of a Log-Structured File System", ACM TOCS
/// 10(1), 1992, section 3.5; F2FS uses it for foreground cleaning (FAST 2015, section 2.5).
///
/// [`CostBenefit`]: super::CostBenefit
#[derive(Clone, Copy, Debug, Default)]
pub struct Greedy;

impl VictimPolicy for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn about(&self) -> &'static str {
        "the section with the fewest live blocks"
    }

    fn cost(&self, section: &SectionView, _now: u64, _oldest: u64, _youngest: u64) -> f64 {
        f64::from(section.live)
    }

    fn ranks_ages(&self) -> bool {
        false
    }

    fn is_by_live_alone(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Section;

    #[test]
    fn only_the_live_blocks_count() {
        let cost = |live, modified| {
            let section = SectionView { section: Section::new(9), live, capacity: 512, modified, rate: None };
            Greedy.cost(&section, 100, 0, 100)
        };
        assert!(cost(10, 100) < cost(11, 0));
        assert_eq!(cost(10, 100), cost(10, 0));
    }
}
