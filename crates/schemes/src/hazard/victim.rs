//! The victim policy of the hazard table.

use basalt_segments::{SectionView, VictimPolicy};

use super::math::ln;

/// Sections that get a second look.
const FINALISTS: usize = 32;
/// And so many of the emptiest. With more, the final cost, of a sample, picks among sections that differ by chance.
const EMPTIEST: usize = 8;

/// Of the 32 sections with the best ratio of benefit to cost, (1 − u) / u · age, cleans the one that gains the least by waiting:
///
/// ```text
/// final cost = u · rate / G(u)     G(u) = 1 − u + u · ln u
/// ```
///
/// The rate is what the placement has [learned](basalt_segments::Placement::rate): expected deaths of one of the live blocks for each
/// block written; without, the reciprocal of the section's age. G comes from the choice of the cycle time τ that minimises copies and
/// priced space, λ / (e^λτ − 1) + μ · λτ / (1 − e^−λτ), for blocks that die at the rate λ: clean when λ · u / G(u) ≤ μ. Near u = 1 it is the
/// rule of declining cost of MDC ([`DecliningCost`](crate::DecliningCost)).
///
/// Source: ours; the first look is that of D. Rosenblum and J. Ousterhout (ACM TOCS 10(1), 1992, section 3.5) with the work of A. Kawaguchi
/// and others (USENIX 1995).
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastGainByWaiting;

impl VictimPolicy for LeastGainByWaiting {
    fn name(&self) -> &'static str {
        "hazard"
    }

    fn about(&self) -> &'static str {
        "of the best 32 by cost-benefit, the section that gains the least by waiting (placement hazard)"
    }

    fn cost(&self, section: &SectionView, now: u64, oldest: u64, youngest: u64) -> f64 {
        basalt_segments::CostBenefit.cost(section, now, oldest, youngest)
    }

    fn ranks_ages(&self) -> bool {
        false
    }

    fn weighs_rate(&self) -> bool {
        true
    }

    fn finalists(&self) -> usize {
        FINALISTS
    }

    fn final_cost(&self, section: &SectionView, now: u64) -> f64 {
        let rate = section.rate.unwrap_or_else(|| 1.0 / now.saturating_sub(section.modified).max(1) as f64);
        let used = f64::from(section.live) / f64::from(section.capacity);
        used * rate / (1.0 - used + used * ln(used))
    }
}

/// As [`LeastGainByWaiting`], but the 8 sections with the fewest live blocks get a second look too: where sections are all alike in how soon
/// their blocks die, these are the best, and the first look, which prefers old ones, leaves them out.
///
/// Source: ours. Meant for the placement [`Auto`](crate::Auto).
#[derive(Clone, Copy, Debug, Default)]
pub struct AutoVictim;

impl VictimPolicy for AutoVictim {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn about(&self) -> &'static str {
        "of the best 32 by cost-benefit and the 8 emptiest, the section that gains the least by waiting (placement auto)"
    }

    fn cost(&self, section: &SectionView, now: u64, oldest: u64, youngest: u64) -> f64 {
        LeastGainByWaiting.cost(section, now, oldest, youngest)
    }

    fn ranks_ages(&self) -> bool {
        LeastGainByWaiting.ranks_ages()
    }

    fn weighs_rate(&self) -> bool {
        LeastGainByWaiting.weighs_rate()
    }

    fn finalists(&self) -> usize {
        FINALISTS
    }

    fn emptiest_finalists(&self) -> usize {
        EMPTIEST
    }

    fn final_cost(&self, section: &SectionView, now: u64) -> f64 {
        LeastGainByWaiting.final_cost(section, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_segments::Section;

    fn section(live: u32, modified: u64, rate: Option<f64>) -> SectionView {
        SectionView { section: Section::new(0), live, capacity: 512, modified, rate }
    }

    #[test]
    fn both_have_the_same_costs() {
        for (live, modified, rate) in [(100, 3, None), (500, 900, Some(0.25))] {
            let view = section(live, modified, rate);
            let costs = |policy: &dyn VictimPolicy| (policy.cost(&view, 1000, 0, 999), policy.final_cost(&view, 1000));
            assert_eq!(costs(&AutoVictim), costs(&LeastGainByWaiting));
            assert_eq!((AutoVictim.emptiest_finalists(), LeastGainByWaiting.emptiest_finalists()), (EMPTIEST, 0));
        }
    }

    #[test]
    fn the_final_cost_is_the_formula() {
        let cost = |live, rate| LeastGainByWaiting.final_cost(&section(live, 0, Some(rate)), 1000);
        // u = 1/2: G = 1/2 − ln 2 / 2 = 0.15343.
        assert!((cost(256, 0.01) - 0.5 * 0.01 / 0.153_426_4).abs() < 1e-7);
        // Near 1, G is (1 − u)² / 2.
        let used = 510.0 / 512.0;
        assert!((cost(510, 1.0) / (2.0 * used / (1.0f64 - used).powi(2)) - 1.0).abs() < 0.01);
        assert!(cost(511, 1.0).is_finite() && cost(1, 1.0) > 0.0);
        assert!(cost(100, 0.01) < cost(101, 0.01) && cost(100, 0.01) < cost(100, 0.02));
        let old = LeastGainByWaiting.final_cost(&section(256, 0, None), 100);
        assert!(old < LeastGainByWaiting.final_cost(&section(256, 50, None), 100), "without a rate, the older one");
    }

    #[test]
    fn both_look_at_finalists_with_their_rates() {
        let looks = |policy: &dyn VictimPolicy| (policy.weighs_rate(), policy.ranks_ages(), policy.finalists());
        assert_eq!(looks(&AutoVictim), (true, false, 32));
        assert_eq!(looks(&AutoVictim), looks(&LeastGainByWaiting));
    }
}
