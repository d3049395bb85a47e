//! The victim policy of SFS.

use basalt_segments::{SectionView, VictimPolicy};

/// Cleans the section that gains the most for the work and is the least likely to lose more blocks by itself.
///
/// ```text
///                  1 - u          u  live blocks / blocks of the section
/// cost-hotness = ---------        H  hotness of the section: writes of its live blocks / their ages
///                2 · u · H
/// ```
///
/// The section with the highest is the victim, so the cost given here is its reciprocal: 0 for one without live blocks, which is cleaned
/// before all others, and infinite for one without dead blocks, which is cleaned after all others.
///
/// The hotness is what the placement has [learned](basalt_segments::Placement::rate): with [`FaithfulSfs`](crate::FaithfulSfs), that of
/// the paper. Where the placement knows none, it is the reciprocal of the section's age, which makes this cost-benefit.
///
/// Source: C. Min et al., "SFS: Random Write Considered Harmful in Solid State Drives", FAST 2012, section 3.6.
#[derive(Clone, Copy, Debug, Default)]
pub struct CostHotness;

impl VictimPolicy for CostHotness {
    fn name(&self) -> &'static str {
        "cost-hotness"
    }

    fn about(&self) -> &'static str {
        "the most free space for the cost of cleaning, cold sections first (SFS, 2012)"
    }

    fn cost(&self, section: &SectionView, now: u64, _oldest: u64, _youngest: u64) -> f64 {
        if section.live == 0 {
            return 0.0;
        }
        let dead = section.capacity.saturating_sub(section.live);
        if dead == 0 {
            return f64::INFINITY;
        }
        let hotness = section.rate.unwrap_or_else(|| 1.0 / now.saturating_sub(section.modified).max(1) as f64);
        // The section's capacity, by which u and 1 - u are divided, cancels out.
        2.0 * f64::from(section.live) * hotness / f64::from(dead)
    }

    fn ranks_ages(&self) -> bool {
        false
    }

    fn weighs_rate(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_segments::{CostBenefit, Section};

    fn view(live: u32, modified: u64, rate: Option<f64>) -> SectionView {
        SectionView { section: Section::new(0), live, capacity: 512, modified, rate }
    }

    fn cost(live: u32, rate: f64) -> f64 {
        CostHotness.cost(&view(live, 0, Some(rate)), 100, 0, 100)
    }

    #[test]
    fn is_the_reciprocal_of_the_formula() {
        // u = 1/4, H = 0.05: (3/4) / (2 · 1/4 · 0.05) = 30
        assert!((1.0 / cost(128, 0.05) - 30.0).abs() < 1e-9);
        // u = 3/4, H = 0.01: (1/4) / (2 · 3/4 · 0.01) = 16.67
        assert!((1.0 / cost(384, 0.01) - 50.0 / 3.0).abs() < 1e-9);
        assert!(cost(384, 0.001) < cost(128, 0.05), "a cold full one before a hot empty one");
    }

    #[test]
    fn the_empty_are_first_and_the_full_are_never_cleaned() {
        assert_eq!((cost(0, 1e9), cost(512, 1e-9)), (0.0, f64::INFINITY));
        assert!(cost(0, 1e9) < cost(1, 1e-9) && cost(511, 1e9) < cost(512, 1e-9));
        // One without age or hotness has a number too.
        assert!(cost(511, 0.0) == 0.0 && CostHotness.cost(&view(511, 900, None), 100, 0, 100).is_finite());
    }

    #[test]
    fn is_cost_benefit_where_no_hotness_is_known() {
        for (live, modified) in [(1, 0), (128, 50), (511, 99), (300, 200)] {
            let view = view(live, modified, None);
            let expected = CostBenefit.cost(&view, 100, 0, 100);
            assert!((CostHotness.cost(&view, 100, 0, 100) / expected - 1.0).abs() < 1e-12);
        }
    }
}
