//! The cost-benefit victim policy.

use super::{SectionView, VictimPolicy};

/// Cleans the section whose free space is worth the most for the work: cold sections are taken at a higher
/// utilization than hot ones, whose live blocks will soon die by themselves.
///
/// ```text
/// benefit   (1 - u) * age        u    live blocks / blocks of the section
/// ------- = -------------        age  now - time of the last modification, at least 1
///  cost         2 * u
/// ```
///
/// The section with the highest ratio is the victim, so the cost given here is its reciprocal.
///
/// The `2u` is reading the live blocks and writing them: A. Kawaguchi, S. Nishioka and H. Motoda, "A Flash-Memory Based
/// File System", USENIX 1995, and C. Min et al., "SFS: Random Write Considered Harmful in Solid State Drives", FAST
/// 2012, section 2. The original (Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File
/// System", ACM TOCS 10(1), 1992, section 3.5) and F2FS divide by `1 + u`, which is right for a cleaner that reads whole
/// segments; ours reads live blocks alone.
///
/// F2FS also scales the age to 0…100 between the oldest and the youngest section. That keeps the order but for
/// rounding, so the age is taken as it is; a modification time in the future counts as now.
#[derive(Clone, Copy, Debug, Default)]
pub struct CostBenefit;

impl VictimPolicy for CostBenefit {
    fn name(&self) -> &'static str {
        "cost-benefit"
    }

    fn about(&self) -> &'static str {
        "the most free space for the cost of cleaning, weighted by age"
    }

    fn cost(&self, section: &SectionView, now: u64, _oldest: u64, _youngest: u64) -> f64 {
        // At least 1: among sections just modified the emptiest wins, and nothing divides by zero.
        let age = now.saturating_sub(section.modified).max(1) as f64;
        let live = f64::from(section.live);
        let dead = f64::from(section.capacity - section.live);
        // The section's capacity, by which u and 1 - u are divided, cancels out.
        2.0 * live / (dead * age)
    }

    fn ranks_ages(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Section;

    fn cost(live: u32, modified: u64, now: u64) -> f64 {
        let section = SectionView { section: Section::new(0), live, capacity: 512, modified, rate: None };
        CostBenefit.cost(&section, now, 0, now)
    }

    #[test]
    fn is_the_reciprocal_of_the_formula() {
        // u = 1/4, age 30: (3/4 * 30) / (1/2) = 45
        assert_eq!(1.0 / cost(128, 70, 100), 45.0);
        // u = 3/4, age 100: (1/4 * 100) / (3/2) = 16.67
        assert!((1.0 / cost(384, 0, 100) - 50.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn weighs_age_against_utilization() {
        assert!(cost(10, 50, 100) < cost(11, 50, 100), "same age: the emptier one");
        assert!(cost(10, 49, 100) < cost(10, 50, 100), "same utilization: the older one");
        assert!(cost(384, 0, 1000) < cost(128, 990, 1000), "a cold full one before a hot empty one");
    }

    #[test]
    fn stays_finite_and_ordered_at_the_limits() {
        for (modified, now) in [(0, 0), (5, 5), (u64::MAX, 0), (0, u64::MAX)] {
            let (low, high) = (cost(1, modified, now), cost(511, modified, now));
            assert!(low.is_finite() && high.is_finite() && low < high, "{modified} {now}");
        }
        assert_eq!(cost(10, 900, 100), cost(10, 100, 100), "a future time counts as now");
    }
}
