//! A number of a paper beside ours, and what is to be thought of it.

use serde::Serialize;

/// What a paper's result has become here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Ours is better than the paper's by more than the tolerance.
    Bettered,
    /// The same, within the tolerance, or the same shape.
    Holds,
    /// Neither; `why` says why.
    Differs,
}

impl Verdict {
    /// The word in tables and in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Bettered => "bettered",
            Verdict::Holds => "holds",
            Verdict::Differs => "differs",
        }
    }
}

/// What a paper leads one to expect of a number, with the tolerance as a share of the paper's value (0.1 is 10 %).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expectation {
    /// The value itself; further away on either side is no merit.
    Near {
        /// The paper's number.
        value: f64,
        /// Share of it that ours may be off.
        tolerance: f64,
    },
    /// The value or less.
    Low {
        /// The paper's number.
        value: f64,
        /// Share of it that ours may be off.
        tolerance: f64,
    },
    /// The value or more.
    High {
        /// The paper's number.
        value: f64,
        /// Share of it that ours may be off.
        tolerance: f64,
    },
    /// Within a range of which more is better: above it is better than the paper, below is not.
    Band {
        /// The least that the paper reports.
        low: f64,
        /// The most.
        high: f64,
    },
    /// Less than this, where the paper gives a relation and no number.
    Below(f64),
    /// More than this, where the paper gives a relation and no number.
    Above(f64),
}

impl Expectation {
    /// The number of the paper, or the bound; of a band the lower end.
    pub fn value(self) -> f64 {
        match self {
            Expectation::Near { value, .. } | Expectation::Low { value, .. } | Expectation::High { value, .. } => value,
            Expectation::Band { low, .. } => low,
            Expectation::Below(bound) | Expectation::Above(bound) => bound,
        }
    }

    /// The paper's side in words: `6.96`, `1.13 to 1.63`, `< 1`, `> 1`.
    pub fn text(self) -> String {
        match self {
            Expectation::Band { low, high } => format!("{} to {}", number(low), number(high)),
            Expectation::Near { .. } | Expectation::Low { .. } | Expectation::High { .. } => number(self.value()),
            Expectation::Below(bound) => format!("< {}", number(bound)),
            Expectation::Above(bound) => format!("> {}", number(bound)),
        }
    }

    /// What becomes of the expectation with our number.
    pub fn verdict(self, ours: f64) -> Verdict {
        let off = |value: f64| (ours - value) / value.abs();
        let holds = match self {
            Expectation::Near { value, tolerance } => off(value).abs() <= tolerance,
            Expectation::Low { value, tolerance } if off(value) < -tolerance => return Verdict::Bettered,
            Expectation::Low { value, tolerance } => off(value) <= tolerance,
            Expectation::High { value, tolerance } if off(value) > tolerance => return Verdict::Bettered,
            Expectation::High { value, tolerance } => off(value) >= -tolerance,
            Expectation::Band { high, .. } if ours > high => return Verdict::Bettered,
            Expectation::Band { low, .. } => ours >= low,
            Expectation::Below(bound) => ours < bound,
            Expectation::Above(bound) => ours > bound,
        };
        if holds { Verdict::Holds } else { Verdict::Differs }
    }
}

/// One number of one figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Item {
    /// The paper's short name: `scj`, `sfs`, …
    pub paper: &'static str,
    /// The figure's or table's name in the paper.
    pub figure: &'static str,
    /// What is measured, with its unit.
    pub item: String,
    /// The paper's number, or the bound it gives in words.
    pub paper_value: f64,
    /// The paper's side as shown in tables.
    pub paper_text: String,
    /// Ours; none if it could not be measured here.
    pub ours: Option<f64>,
    /// What is to be thought of it.
    pub verdict: Verdict,
    /// Under what conditions ours was measured and, where it differs, the reason.
    pub why: String,
}

impl Item {
    /// Our number held against what the paper leads to expect.
    pub fn new(
        (paper, figure): (&'static str, &'static str),
        item: impl Into<String>,
        expectation: Expectation,
        ours: f64,
        why: impl Into<String>,
    ) -> Item {
        Item {
            paper,
            figure,
            item: item.into(),
            paper_value: expectation.value(),
            paper_text: expectation.text(),
            ours: Some(ours),
            verdict: expectation.verdict(ours),
            why: why.into(),
        }
    }

    /// A number of the paper that could not be measured, and why.
    pub fn missing(
        (paper, figure): (&'static str, &'static str),
        item: impl Into<String>,
        expectation: Expectation,
        why: impl Into<String>,
    ) -> Item {
        Item {
            paper,
            figure,
            item: item.into(),
            paper_value: expectation.value(),
            paper_text: expectation.text(),
            ours: None,
            verdict: Verdict::Differs,
            why: why.into(),
        }
    }

    /// Our side as shown in tables.
    pub fn ours_text(&self) -> String {
        self.ours.map_or_else(|| "not measured".to_owned(), number)
    }
}

/// A number with three digits that matter.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_the_papers_cost_is_better_and_more_is_not() {
        let cost = Expectation::Low { value: 2.0, tolerance: 0.1 };
        assert_eq!(
            [1.5, 1.9, 2.19, 2.3].map(|ours| cost.verdict(ours)),
            [Verdict::Bettered, Verdict::Holds, Verdict::Holds, Verdict::Differs]
        );
    }

    #[test]
    fn more_than_the_papers_speed_is_better_and_less_is_not() {
        let speed = Expectation::High { value: 2.0, tolerance: 0.1 };
        assert_eq!(
            [2.5, 2.1, 1.81, 1.7].map(|ours| speed.verdict(ours)),
            [Verdict::Bettered, Verdict::Holds, Verdict::Holds, Verdict::Differs]
        );
        let band = Expectation::Band { low: 1.13, high: 1.63 };
        assert_eq!(
            [1.7, 1.63, 1.13, 1.12].map(|ours| band.verdict(ours)),
            [Verdict::Bettered, Verdict::Holds, Verdict::Holds, Verdict::Differs]
        );
        assert_eq!(band.text(), "1.13 to 1.63");
    }

    #[test]
    fn a_number_to_be_met_is_missed_on_both_sides() {
        let share = Expectation::Near { value: 0.5, tolerance: 0.2 };
        assert_eq!(
            [0.39, 0.41, 0.61].map(|ours| share.verdict(ours)),
            [Verdict::Differs, Verdict::Holds, Verdict::Differs]
        );
    }

    #[test]
    fn relations_hold_or_differ() {
        assert_eq!(Expectation::Above(1.0).verdict(1.01), Verdict::Holds);
        assert_eq!(Expectation::Below(1.0).verdict(1.01), Verdict::Differs);
        assert_eq!(Expectation::Below(1.0).text(), "< 1.00");
    }
}
