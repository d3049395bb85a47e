//! What is to be thought of a number of ours beside a paper's: decided by rule, from what a row declares.

use serde::Serialize;

use super::expectation::{Expectation, Position, Side, Tolerance, number};

/// What a paper's result has become here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// The paper's own subject, measured on the paper's own terms, is better than in the paper by more than the tolerance.
    #[serde(rename = "bettered")]
    Bettered,
    /// The same within the tolerance, or the relation that the paper states.
    #[serde(rename = "holds")]
    Holds,
    /// Neither; `why` says why.
    #[serde(rename = "differs")]
    Differs,
    /// Out of tolerance, and a ratio to a baseline that was measured to be unlike the paper's: the row says nothing of the subject.
    #[serde(rename = "baseline differs")]
    BaselineDiffers,
}

impl Verdict {
    /// The word in tables and in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Bettered => "bettered",
            Verdict::Holds => "holds",
            Verdict::Differs => "differs",
            Verdict::BaselineDiffers => "baseline differs",
        }
    }

    /// Whether the paper's result is there.
    pub fn is_met(self) -> bool {
        matches!(self, Verdict::Bettered | Verdict::Holds)
    }
}

/// Where the paper's side of a row comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A number or a relation in the paper's text or in a table; where.
    Stated(String),
    /// Computed from stated numbers, or read from a figure; how.
    Derived(String),
    /// A bound that we chose, of which the paper says nothing; why it.
    Ours(String),
}

impl Source {
    /// The word in tables and in `--json`.
    pub fn name(&self) -> &'static str {
        match self {
            Source::Stated(_) => "stated",
            Source::Derived(_) => "derived",
            Source::Ours(_) => "ours",
        }
    }

    /// Where, how or why.
    pub fn note(&self) -> &str {
        match self {
            Source::Stated(note) | Source::Derived(note) | Source::Ours(note) => note,
        }
    }
}

/// The baseline that a row is a ratio to, by a number of it that the paper gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Baseline {
    /// What number of the baseline, with its unit.
    pub what: String,
    /// The paper's.
    pub paper: f64,
    /// Ours.
    pub ours: f64,
    /// How far ours may be from the paper's for the two to be alike.
    pub tolerance: Tolerance,
}

impl Baseline {
    /// Whether our baseline is like the paper's.
    pub fn is_alike(&self) -> bool {
        let Baseline { paper, tolerance, .. } = self;
        Expectation::Near { value: *paper, tolerance: *tolerance }.position(self.ours) == Position::Within
            && self.ours.is_finite()
    }

    /// Both numbers in words.
    pub fn text(&self) -> String {
        format!("{} {}, the paper's {}", self.what, number(self.ours), number(self.paper))
    }
}

/// The paper's side of a row: what it leads one to expect, and on what grounds ours is held against it.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The number or the relation.
    pub expectation: Expectation,
    /// Where it comes from.
    pub source: Source,
    /// The side on which a number is better; none where neither is.
    pub better: Option<Side>,
    /// Whether ours is the paper's own subject, measured on the paper's own terms.
    pub on_paper_terms: bool,
    /// What the row is a ratio to, where the paper gives a number of that.
    pub baseline: Option<Baseline>,
}

impl Expectation {
    /// As a source has it.
    pub fn claim(self, source: Source) -> Claim {
        Claim { expectation: self, source, better: self.better(), on_paper_terms: false, baseline: None }
    }

    /// As the paper states it, there.
    pub fn stated(self, place: impl Into<String>) -> Claim {
        self.claim(Source::Stated(place.into()))
    }

    /// As it follows from what the paper states or draws, in this way.
    pub fn derived(self, how: impl Into<String>) -> Claim {
        self.claim(Source::Derived(how.into()))
    }

    /// As we chose it, for this reason.
    pub fn ours(self, reason: impl Into<String>) -> Claim {
        self.claim(Source::Ours(reason.into()))
    }
}

impl Claim {
    /// On which side a number is better, where the relation does not say it.
    #[must_use]
    pub fn better(self, side: Side) -> Claim {
        Claim { better: Some(side), ..self }
    }

    /// Declares whether ours is the paper's own subject on the paper's own terms: its scheme, its size, its load. Only then can it be
    /// better than the paper's.
    #[must_use]
    pub fn on_paper_terms(self, are_same: bool) -> Claim {
        Claim { on_paper_terms: are_same, ..self }
    }

    /// Declares what the row is a ratio to; none where the paper gives no number of it.
    #[must_use]
    pub fn over(self, baseline: Option<Baseline>) -> Claim {
        Claim { baseline, ..self }
    }

    /// The verdict on a number of ours.
    pub fn verdict(&self, ours: f64) -> Verdict {
        if !ours.is_finite() {
            return Verdict::Differs;
        }
        let alike = self.baseline.as_ref().is_none_or(Baseline::is_alike);
        let side = match self.expectation.position(ours) {
            Position::Within => return Verdict::Holds,
            Position::Beyond(side) => side,
        };
        if self.better == Some(side) && self.on_paper_terms && alike {
            return Verdict::Bettered;
        }
        if self.expectation.better() == Some(side) {
            return Verdict::Holds;
        }
        if alike { Verdict::Differs } else { Verdict::BaselineDiffers }
    }

    /// What the verdict rests on, where a reader may wonder: a better number that is none, a baseline that is another.
    pub fn reason(&self, ours: f64) -> Option<String> {
        let verdict = self.verdict(ours);
        let is_better = matches!((self.expectation.position(ours), self.better), (Position::Beyond(side), Some(better)) if side == better);
        match (verdict, &self.baseline) {
            (Verdict::BaselineDiffers, Some(baseline)) => Some(format!("another baseline: {}", baseline.text())),
            (Verdict::Differs, _) if is_better => {
                Some("a better number, but not of the paper's subject on the paper's terms".to_owned())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Tolerance = Tolerance::OfValue(0.1);

    fn baseline(ours: f64) -> Option<Baseline> {
        Some(Baseline { what: "share".to_owned(), paper: 0.5, ours, tolerance: TENTH })
    }

    fn verdicts<const N: usize>(claim: &Claim, ours: [f64; N]) -> [&'static str; N] {
        ours.map(|ours| claim.verdict(ours).name())
    }

    #[test]
    fn a_better_number_is_better_only_on_the_papers_terms() {
        let cost = Expectation::AtMost { value: 2.0, tolerance: TENTH }.stated("here");
        assert_eq!(verdicts(&cost, [1.5, 1.9, 2.19, 2.3]), ["holds", "holds", "holds", "differs"]);
        let cost = cost.on_paper_terms(true);
        assert_eq!(verdicts(&cost, [1.5, 1.9, 2.19, 2.3]), ["bettered", "holds", "holds", "differs"]);
        let speed = Expectation::AtLeast { value: 2.0, tolerance: TENTH }.stated("here");
        assert_eq!(verdicts(&speed, [2.5, 2.1, 1.81, 1.7]), ["holds", "holds", "holds", "differs"]);
        let speed = speed.on_paper_terms(true);
        assert_eq!(verdicts(&speed, [2.5, 2.1, 1.81, 1.7]), ["bettered", "holds", "holds", "differs"]);
    }

    #[test]
    fn a_value_to_be_met_is_missed_on_both_sides() {
        let share = Expectation::Near { value: 2.0, tolerance: TENTH }.stated("here");
        assert_eq!(verdicts(&share, [1.7, 2.1, 2.3]), ["differs", "holds", "differs"]);
        assert_eq!(share.reason(1.7), None);
        // Without a side that is better there is nothing to be better at.
        assert_eq!(verdicts(&share.clone().on_paper_terms(true), [1.7, 2.3]), ["differs", "differs"]);
        let less = share.clone().better(Side::Less);
        assert_eq!(verdicts(&less, [1.7, 2.1, 2.3]), ["differs", "holds", "differs"]);
        assert!(less.reason(1.7).unwrap().contains("not of the paper's subject"));
        assert_eq!((less.reason(2.3), less.reason(2.0)), (None, None));
        assert_eq!(verdicts(&less.on_paper_terms(true), [1.7, 2.1, 2.3]), ["bettered", "holds", "differs"]);
        let band = Expectation::Band { low: 1.13, high: 1.63 }.stated("here").better(Side::More);
        assert_eq!(verdicts(&band, [1.12, 1.13, 1.7]), ["differs", "holds", "differs"]);
        assert_eq!(verdicts(&band.on_paper_terms(true), [1.12, 1.63, 1.7]), ["differs", "holds", "bettered"]);
    }

    #[test]
    fn relations_hold_or_differ_and_are_never_bettered() {
        let above = Expectation::Above(1.0).stated("here").better(Side::More).on_paper_terms(true);
        assert_eq!(verdicts(&above, [0.5, 1.01, 100.0]), ["differs", "holds", "holds"]);
        let below = Expectation::Below(1.0).ours("because").on_paper_terms(true);
        assert_eq!(verdicts(&below, [0.5, 1.01]), ["holds", "differs"]);
    }

    #[test]
    fn a_ratio_to_another_baseline_says_nothing_where_it_is_off() {
        let left =
            Expectation::Near { value: 0.5, tolerance: TENTH }.derived("so").better(Side::Less).on_paper_terms(true);
        let (alike, unlike) = (left.clone().over(baseline(0.54)), left.over(baseline(0.7)));
        assert_eq!(verdicts(&alike, [0.3, 0.5, 0.7]), ["bettered", "holds", "differs"]);
        assert_eq!(verdicts(&unlike, [0.3, 0.5, 0.7]), ["baseline differs", "holds", "baseline differs"]);
        assert_eq!(unlike.reason(0.3).unwrap(), "another baseline: share 0.70, the paper's 0.50");
        assert_eq!(alike.reason(0.7), None);
        assert!(baseline(0.54).unwrap().is_alike());
        assert!(!baseline(f64::NAN).unwrap().is_alike() && !baseline(f64::INFINITY).unwrap().is_alike());
        assert_eq!(verdicts(&alike, [f64::NAN, f64::INFINITY]), ["differs", "differs"]);
        // More than was asked for is no fault of the baseline.
        let most = Expectation::AtMost { value: 0.5, tolerance: TENTH }.stated("here").on_paper_terms(true);
        assert_eq!(verdicts(&most.over(baseline(0.7)), [0.3, 0.7]), ["holds", "baseline differs"]);
    }

    #[test]
    fn words() {
        let verdicts = [Verdict::Bettered, Verdict::Holds, Verdict::Differs, Verdict::BaselineDiffers];
        for verdict in verdicts {
            assert_eq!(serde_json::to_string(&verdict).unwrap(), format!("\"{}\"", verdict.name()));
        }
        assert_eq!(verdicts.map(Verdict::is_met), [true, true, false, false]);
        let sources = [Source::Stated("a".into()), Source::Derived("b".into()), Source::Ours("c".into())];
        assert_eq!(
            sources.each_ref().map(|source| (source.name(), source.note())),
            [("stated", "a"), ("derived", "b"), ("ours", "c")]
        );
    }
}
