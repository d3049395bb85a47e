//! Which section is cleaned next.
//!
//! A victim policy gives every section a cost, and the cheapest is cleaned. One policy is one file of this module,
//! named after its paper's term; to add one, write the file, name it here, and add it to [`POLICIES`]. A policy that
//! needs to know more of a section (its hotness, say) gets it as a new field of [`SectionView`].
//!
//! The search itself is [`SegmentTable::select_victim`](crate::SegmentTable::select_victim).

mod cost_benefit;
mod greedy;

use crate::{Placement, Section};

pub use cost_benefit::CostBenefit;
pub use greedy::Greedy;

/// Every victim policy, by which options, help texts and reports list them.
pub static POLICIES: &[&dyn VictimPolicy] = &[&Greedy, &CostBenefit];

/// The names of all, in the order of [`POLICIES`].
#[must_use]
pub fn names() -> Vec<&'static str> {
    POLICIES.iter().map(|policy| policy.name()).collect()
}

/// The policy of this name, as in options; `None` if there is none.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn VictimPolicy> {
    POLICIES.iter().copied().find(|policy| policy.name() == name)
}

/// What a policy may look at. Only sections with at least one live and one dead block are shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SectionView {
    /// The section's number.
    pub section: Section,
    /// Live blocks: what cleaning has to move. From 1 to `capacity - 1`.
    pub live: u32,
    /// Blocks in the section.
    pub capacity: u32,
    /// When the section was modified last: the mean over its segments, weighted by their live blocks (a segment
    /// without any says nothing about what would be moved). In the engine's unit of time (F2FS: seconds).
    pub modified: u64,
    /// What the placement [expects](Placement::rate) of the live blocks; `None` where it does not know, or where the victim policy does
    /// not [weigh it](VictimPolicy::weighs_rate).
    pub rate: Option<f64>,
}

/// Decides which section is the best to clean.
pub trait VictimPolicy: Send + Sync {
    /// The name in options and reports.
    fn name(&self) -> &'static str;

    /// What it does, in a few words for help texts.
    fn about(&self) -> &'static str;

    /// The cost of cleaning this section; the lowest is cleaned, the first of equals. Never NaN.
    ///
    /// `now` is in the unit of [`SectionView::modified`]; `oldest` and `youngest` are the extremes of that field over
    /// all sections with live and dead blocks, for policies that look at a section's rank between them.
    fn cost(&self, section: &SectionView, now: u64, oldest: u64, youngest: u64) -> f64;

    /// Whether [`cost`](VictimPolicy::cost) looks at `oldest` and `youngest`; without, they are not looked for and mean nothing.
    fn ranks_ages(&self) -> bool {
        true
    }

    /// Whether [`cost`](VictimPolicy::cost), or [`final_cost`](VictimPolicy::final_cost) where there are
    /// [finalists](VictimPolicy::finalists), looks at [`SectionView::rate`]; without, the placement is not asked.
    fn weighs_rate(&self) -> bool {
        false
    }

    /// Sections that get a second look: of so many whose [`cost`](VictimPolicy::cost) is the lowest, the one with the lowest
    /// [`final_cost`](VictimPolicy::final_cost) is cleaned. 0: the cost alone decides. Where several are chosen at once, there are at
    /// least as many finalists.
    fn finalists(&self) -> usize {
        0
    }

    /// Sections that are finalists too, because they have the fewest live blocks. Without [`finalists`](VictimPolicy::finalists) none is.
    fn emptiest_finalists(&self) -> usize {
        0
    }

    /// The cost of cleaning a finalist; never NaN. Only finalists have a [`rate`](SectionView::rate) where there are any, so it may take
    /// long to learn.
    fn final_cost(&self, section: &SectionView, now: u64) -> f64 {
        self.cost(section, now, section.modified, section.modified)
    }

    /// Whether the cost rises with the live blocks and depends on nothing else, so that an index can stand in for it.
    fn is_by_live_alone(&self) -> bool {
        false
    }
}

/// A victim policy that gets what the placement has learned: [`SectionView::rate`] is filled in.
pub struct Informed<'a> {
    policy: &'a dyn VictimPolicy,
    placement: &'a dyn Placement,
}

impl<'a> Informed<'a> {
    /// Both together.
    #[must_use]
    pub fn new(policy: &'a dyn VictimPolicy, placement: &'a dyn Placement) -> Informed<'a> {
        Informed { policy, placement }
    }

    /// The policy to search with: itself, or the bare one where that does not look at rates.
    #[must_use]
    pub fn policy(&self) -> &dyn VictimPolicy {
        if self.policy.weighs_rate() { self } else { self.policy }
    }
}

impl VictimPolicy for Informed<'_> {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn about(&self) -> &'static str {
        self.policy.about()
    }

    fn cost(&self, section: &SectionView, now: u64, oldest: u64, youngest: u64) -> f64 {
        if self.policy.finalists() > 0 {
            return self.policy.cost(section, now, oldest, youngest);
        }
        let section = SectionView { rate: self.placement.rate(section), ..*section };
        self.policy.cost(&section, now, oldest, youngest)
    }

    fn finalists(&self) -> usize {
        self.policy.finalists()
    }

    fn emptiest_finalists(&self) -> usize {
        self.policy.emptiest_finalists()
    }

    fn final_cost(&self, section: &SectionView, now: u64) -> f64 {
        let section = SectionView { rate: self.placement.rate(section), ..*section };
        self.policy.final_cost(&section, now)
    }

    fn ranks_ages(&self) -> bool {
        self.policy.ranks_ages()
    }

    fn weighs_rate(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for dyn VictimPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_found_by_their_names_alone() {
        for policy in POLICIES {
            assert_eq!(by_name(policy.name()).map(VictimPolicy::name), Some(policy.name()));
        }
        assert!(by_name("").is_none());
        assert!(by_name("Greedy").is_none());
    }
}
