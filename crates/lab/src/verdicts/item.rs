//! A number of a paper beside ours, measured with one seed.

use super::verdict::{Claim, Verdict};

/// One number of one figure, with one seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The paper's short name: `scj`, `sfs`, …
    pub paper: String,
    /// The figure's or table's name in the paper.
    pub figure: String,
    /// What is measured, with its unit: the same for every seed.
    pub item: String,
    /// The paper's side.
    pub claim: Claim,
    /// Ours; none if it could not be measured here.
    pub ours: Option<f64>,
    /// Under what conditions ours was measured and, where it differs, the reason.
    pub why: String,
}

impl Item {
    /// Our number held against what the paper leads to expect; a number that is none (a share of nothing) was not measured.
    pub fn new(
        (paper, figure): (&str, &str),
        item: impl Into<String>,
        claim: Claim,
        ours: f64,
        why: impl Into<String>,
    ) -> Item {
        let ours = Some(ours).filter(|ours| ours.is_finite());
        Item { paper: paper.to_owned(), figure: figure.to_owned(), item: item.into(), claim, ours, why: why.into() }
    }

    /// A number of the paper that could not be measured, and why.
    pub fn missing(
        (paper, figure): (&str, &str),
        item: impl Into<String>,
        claim: Claim,
        why: impl Into<String>,
    ) -> Item {
        Item {
            paper: paper.to_owned(),
            figure: figure.to_owned(),
            item: item.into(),
            claim,
            ours: None,
            why: why.into(),
        }
    }

    /// What is to be thought of it; what could not be measured differs.
    pub fn verdict(&self) -> Verdict {
        self.ours.map_or(Verdict::Differs, |ours| self.claim.verdict(ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdicts::Expectation;

    #[test]
    fn what_is_no_number_was_not_measured() {
        let claim = Expectation::Above(1.0).stated("here");
        let item = |ours| Item::new(("scj", "1"), "speed", claim.clone(), ours, "");
        assert_eq!((item(1.5).ours, item(1.5).verdict()), (Some(1.5), Verdict::Holds));
        for ours in [f64::NAN, f64::INFINITY] {
            assert_eq!((item(ours).ours, item(ours).verdict()), (None, Verdict::Differs));
        }
        let missing = Item::missing(("scj", "1"), "speed", claim, "it broke");
        assert_eq!((missing.ours, missing.verdict()), (None, Verdict::Differs));
    }
}
