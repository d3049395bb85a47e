//! What a paper leads one to expect of a number, and where a number of ours lies beside it.

use serde::{Deserialize, Serialize};

/// How far ours may be off, as a share (0.1 is 10 %).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// A share of the paper's value.
    OfValue(f64),
    /// A share of the paper's gain, for ratios to a baseline: of what is between the value and 1. Where 0.9 of a latency is left,
    /// the gain is 0.1; a tolerance of a share of 0.9 would let go of all of it.
    OfGain(f64),
}

impl Tolerance {
    /// The share.
    pub fn share(self) -> f64 {
        match self {
            Tolerance::OfValue(share) | Tolerance::OfGain(share) => share,
        }
    }

    /// What it is a share of, as in `--json`: `value` or `gain`.
    pub fn of(self) -> &'static str {
        match self {
            Tolerance::OfValue(_) => "value",
            Tolerance::OfGain(_) => "gain",
        }
    }

    /// How far a number may be from this value, in the value's unit.
    pub fn slack(self, value: f64) -> f64 {
        match self {
            Tolerance::OfValue(share) => share * value.abs(),
            Tolerance::OfGain(share) => share * (value - 1.0).abs(),
        }
    }
}

/// What a paper leads one to expect of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expectation {
    /// The value itself.
    Near {
        /// The paper's number.
        value: f64,
        /// How far ours may be off on either side.
        tolerance: Tolerance,
    },
    /// The value or less.
    AtMost {
        /// The paper's number.
        value: f64,
        /// How far ours may be above it.
        tolerance: Tolerance,
    },
    /// The value or more.
    AtLeast {
        /// The paper's number.
        value: f64,
        /// How far ours may be below it.
        tolerance: Tolerance,
    },
    /// Within a range; it has no tolerance beside itself.
    Band {
        /// The least that the paper reports.
        low: f64,
        /// The most.
        high: f64,
    },
    /// Less than this.
    Below(f64),
    /// More than this.
    Above(f64),
}

/// Which side of two numbers: of the expectation, or the one that is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The smaller number.
    Less,
    /// The larger one.
    More,
}

/// Where a number lies beside the expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Within the tolerance, or on the asked side of a bound.
    Within,
    /// Further away than the tolerance, on this side.
    Beyond(Side),
}

impl Expectation {
    /// The relation's name, as in `--json`.
    pub fn relation(self) -> &'static str {
        match self {
            Expectation::Near { .. } => "near",
            Expectation::AtMost { .. } => "at most",
            Expectation::AtLeast { .. } => "at least",
            Expectation::Band { .. } => "band",
            Expectation::Below(_) => "below",
            Expectation::Above(_) => "above",
        }
    }

    /// The number of the paper, or the bound; of a band the lower end.
    pub fn value(self) -> f64 {
        match self {
            Expectation::Near { value, .. }
            | Expectation::AtMost { value, .. }
            | Expectation::AtLeast { value, .. }
            | Expectation::Band { low: value, .. }
            | Expectation::Below(value)
            | Expectation::Above(value) => value,
        }
    }

    /// The lowest and the highest number that the paper leads one to expect, before any tolerance; none on a side that is open.
    pub fn ends(self) -> [Option<f64>; 2] {
        match self {
            Expectation::Near { value, .. } => [Some(value), Some(value)],
            Expectation::AtMost { value, .. } | Expectation::Below(value) => [None, Some(value)],
            Expectation::AtLeast { value, .. } | Expectation::Above(value) => [Some(value), None],
            Expectation::Band { low, high } => [Some(low), Some(high)],
        }
    }

    /// Whether the paper's side is numbers: an expression for it may have none. Nothing lies within an unknown one.
    pub fn is_known(self) -> bool {
        self.ends().into_iter().flatten().all(|end| !end.is_nan())
    }

    /// The tolerance; none for bands and bounds, which are exact.
    pub fn tolerance(self) -> Option<Tolerance> {
        match self {
            Expectation::Near { tolerance, .. }
            | Expectation::AtMost { tolerance, .. }
            | Expectation::AtLeast { tolerance, .. } => Some(tolerance),
            Expectation::Band { .. } | Expectation::Below(_) | Expectation::Above(_) => None,
        }
    }

    /// The side on which a number is better by the relation itself: less where the paper says "at most", more for "at least".
    pub fn better(self) -> Option<Side> {
        match self {
            Expectation::AtMost { .. } => Some(Side::Less),
            Expectation::AtLeast { .. } => Some(Side::More),
            _ => None,
        }
    }

    /// The paper's side in words: `6.96`, `≤ 256`, `1.13 to 1.63`, `< 1.00`.
    pub fn text(self) -> String {
        let value = number(self.value());
        match self {
            unknown if !unknown.is_known() => "unknown".to_owned(),
            Expectation::Near { .. } => value,
            Expectation::AtMost { .. } => format!("≤ {value}"),
            Expectation::AtLeast { .. } => format!("≥ {value}"),
            Expectation::Band { high, .. } => format!("{value} to {}", number(high)),
            Expectation::Below(_) => format!("< {value}"),
            Expectation::Above(_) => format!("> {value}"),
        }
    }

    /// Where our number lies. "At most" and "at least" are exceeded on their good side beyond the tolerance too: the verdict says
    /// what that is worth.
    pub fn position(self, ours: f64) -> Position {
        if !self.is_known() {
            return Position::Beyond(Side::More);
        }
        let slack = self.tolerance().map_or(0.0, |tolerance| tolerance.slack(self.value()));
        let around = |low: f64, high: f64| match ours {
            ours if ours < low => Position::Beyond(Side::Less),
            ours if ours > high => Position::Beyond(Side::More),
            _ => Position::Within,
        };
        match self {
            Expectation::Near { value, .. }
            | Expectation::AtMost { value, .. }
            | Expectation::AtLeast { value, .. } => around(value - slack, value + slack),
            Expectation::Band { low, high } => around(low, high),
            Expectation::Below(bound) if ours >= bound => Position::Beyond(Side::More),
            Expectation::Above(bound) if ours <= bound => Position::Beyond(Side::Less),
            Expectation::Below(_) | Expectation::Above(_) => Position::Within,
        }
    }
}

/// A number with three digits that matter; small ones with two.
pub fn number(value: f64) -> String {
    if value.abs() >= 1e9 {
        return format!("{value:.2e}");
    }
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

    const LESS: Position = Position::Beyond(Side::Less);
    const MORE: Position = Position::Beyond(Side::More);
    const WITHIN: Position = Position::Within;
    const TENTH: Tolerance = Tolerance::OfValue(0.1);

    #[test]
    fn a_tolerance_is_a_share_of_the_value_or_of_the_gain() {
        assert_eq!([TENTH.slack(2.0), TENTH.slack(-2.0)], [0.2, 0.2]);
        let gain = Tolerance::OfGain(0.5);
        // 1.5 times as fast is a gain of a half, and a latency of 0.25 is one of three quarters.
        assert_eq!([gain.slack(1.5), gain.slack(0.25), gain.slack(1.0)], [0.25, 0.375, 0.0]);
        assert_eq!((gain.share(), gain.of(), TENTH.of()), (0.5, "gain", "value"));
    }

    #[test]
    fn nothing_lies_within_what_is_unknown() {
        for unknown in [
            Expectation::Above(f64::NAN),
            Expectation::Near { value: f64::NAN, tolerance: TENTH },
            Expectation::Band { low: 1.0, high: f64::NAN },
        ] {
            assert_ne!(unknown.position(1.0), WITHIN);
            assert_eq!(unknown.text(), "unknown");
        }
    }

    #[test]
    fn a_small_gain_is_not_met_by_none() {
        // What is left is 0.89; 0.98 is within a tenth of that, and has lost four fifths of the gain.
        let left = |tolerance| Expectation::Near { value: 0.89, tolerance };
        assert_eq!(left(TENTH).position(0.97), WITHIN);
        assert_eq!(left(Tolerance::OfGain(0.2)).position(0.97), MORE);
        assert_eq!(left(Tolerance::OfGain(0.2)).position(0.91), WITHIN);
        assert_eq!(left(Tolerance::OfGain(0.2)).position(0.86), LESS);
    }

    #[test]
    fn numbers_lie_within_or_beyond_on_a_side() {
        for expectation in [
            Expectation::Near { value: 2.0, tolerance: TENTH },
            Expectation::AtMost { value: 2.0, tolerance: TENTH },
            Expectation::AtLeast { value: 2.0, tolerance: TENTH },
        ] {
            let found = [1.7, 1.81, 2.0, 2.19, 2.3].map(|ours| expectation.position(ours));
            assert_eq!(found, [LESS, WITHIN, WITHIN, WITHIN, MORE], "{expectation:?}");
        }
        let band = Expectation::Band { low: 1.13, high: 1.63 };
        assert_eq!([1.12, 1.13, 1.63, 1.7].map(|ours| band.position(ours)), [LESS, WITHIN, WITHIN, MORE]);
        assert_eq!([0.99, 1.0, 1.01].map(|ours| Expectation::Below(1.0).position(ours)), [WITHIN, MORE, MORE]);
        assert_eq!([0.99, 1.0, 1.01].map(|ours| Expectation::Above(1.0).position(ours)), [LESS, LESS, WITHIN]);
    }

    #[test]
    fn both_ends_and_the_words() {
        let cases = [
            (Expectation::Near { value: 0.5, tolerance: TENTH }, "near", [Some(0.5), Some(0.5)], "0.50"),
            (Expectation::AtMost { value: 256.0, tolerance: TENTH }, "at most", [None, Some(256.0)], "≤ 256"),
            (Expectation::AtLeast { value: 0.78, tolerance: TENTH }, "at least", [Some(0.78), None], "≥ 0.78"),
            (Expectation::Band { low: 1.13, high: 1.63 }, "band", [Some(1.13), Some(1.63)], "1.13 to 1.63"),
            (Expectation::Below(1.0), "below", [None, Some(1.0)], "< 1.00"),
            (Expectation::Above(0.002), "above", [Some(0.002), None], "> 0.0020"),
        ];
        for (expectation, relation, ends, text) in cases {
            assert_eq!((expectation.relation(), expectation.ends(), expectation.text()), (relation, ends, text.into()));
            let value = ends.into_iter().flatten().next();
            assert_eq!(value, Some(expectation.value()), "{expectation:?}");
        }
        let better = cases.map(|(expectation, ..)| expectation.better());
        assert_eq!(better, [None, Some(Side::Less), Some(Side::More), None, None, None]);
    }
}
