//! The victim policy of MDC.

use basalt_segments::{SectionView, VictimPolicy};

/// Cleans the section whose cost of cleaning declines the least while it waits.
///
/// ```text
/// cost = (live / dead)² · rate     rate  expected deaths of one of its blocks for each block written
/// ```
///
/// The rate is what the placement has [learned](basalt_segments::Placement::rate): with [`Mdc`](crate::Mdc), that of the paper. Where the
/// placement knows none, it is the reciprocal of the section's age.
///
/// Source: D. Lomet and C. Luo, "Efficiently Reclaiming Space in a Log Structured Store", ICDE 2021 (arXiv 2005.00044), section 5.1.3:
/// ((B − A)/A)² · 1/(C · (u_now − u_p2)), where all C live pages of a segment have the same size.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecliningCost;

impl VictimPolicy for DecliningCost {
    fn name(&self) -> &'static str {
        "declining-cost"
    }

    fn about(&self) -> &'static str {
        "the section whose cost declines the least by waiting (MDC, 2021)"
    }

    fn cost(&self, section: &SectionView, now: u64, _oldest: u64, _youngest: u64) -> f64 {
        let rate = section.rate.unwrap_or_else(|| 1.0 / now.saturating_sub(section.modified).max(1) as f64);
        let ratio = f64::from(section.live) / f64::from(section.capacity - section.live);
        ratio * ratio * rate
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
    use basalt_segments::Section;

    #[test]
    fn is_the_formula_of_the_paper() {
        let cost = |live, modified, rate| {
            let section = SectionView { section: Section::new(0), live, capacity: 512, modified, rate };
            DecliningCost.cost(&section, 100, 0, 100)
        };
        // 128 live pages and 384 pages of free space; u_now - u_p2 = 50: rate 2 / (128 * 50), twice the paper's.
        let paper = (128.0f64 / 384.0).powi(2) / (128.0 * 50.0);
        assert!((cost(128, 0, Some(2.0 / (128.0 * 50.0))) - 2.0 * paper).abs() < 1e-15);
        assert!(cost(256, 0, None) < cost(256, 50, None), "without a rate, the older one");
        assert!(cost(256, 100, None).is_finite() && cost(1, 200, None) < cost(511, 200, None));
    }
}
