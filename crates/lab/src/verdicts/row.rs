//! A number of a paper beside ours, measured with several seeds: their median, their spread, and whether they agree.

use serde::Serialize;

use super::expectation::number;
use super::item::Item;
use super::verdict::{Baseline, Claim, Verdict};

/// One line of the tables and of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The paper's short name: `scj`, `sfs`, …
    pub paper: String,
    /// The figure's or table's name in the paper.
    pub figure: String,
    /// What is measured, with its unit.
    pub item: String,
    /// `near`, `at most`, `at least`, `band`, `below` or `above`.
    pub relation: &'static str,
    /// The paper's number, or the bound it gives in words; of a band the lower end.
    pub paper_value: f64,
    /// The lowest number that the paper leads one to expect; none where that side is open.
    pub paper_low: Option<f64>,
    /// The highest.
    pub paper_high: Option<f64>,
    /// The paper's side as shown in tables.
    pub paper_text: String,
    /// How far ours may be off, as a share; none for bands and bounds, which are exact.
    pub tolerance: Option<f64>,
    /// What the tolerance is a share of: the paper's `value`, or its `gain` (what is between the value and 1).
    pub tolerance_of: Option<&'static str>,
    /// Where the paper's side comes from: `stated`, `derived` or `ours`.
    pub source: &'static str,
    /// Where it is stated, how it is derived, or why we chose it.
    pub source_note: String,
    /// Whether ours is the paper's own subject on the paper's own terms; only such a row can be bettered.
    pub on_paper_terms: bool,
    /// A number of the baseline that the row is a ratio to.
    pub baseline: Option<BaselineRow>,
    /// Our number: the median of the seeds; none if it could not be measured.
    pub ours: Option<f64>,
    /// The smallest of the seeds.
    pub ours_min: Option<f64>,
    /// The largest.
    pub ours_max: Option<f64>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// What is to be thought of the median.
    pub verdict: Verdict,
    /// What would be thought of each seed alone, in the order of the seeds.
    pub seed_verdicts: Vec<Verdict>,
    /// Under what conditions ours was measured, of the seed nearest to the median, and what the verdict rests on.
    pub why: String,
}

/// A number of the baseline, the paper's and ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BaselineRow {
    /// What number, with its unit.
    pub what: String,
    /// The paper's.
    pub paper: f64,
    /// Ours, the median of the seeds.
    pub ours: f64,
    /// How far ours may be off, as a share of the paper's.
    pub tolerance: f64,
    /// Whether the two are alike.
    pub is_alike: bool,
}

impl Row {
    /// Rows of what an experiment gave with each seed, in the order of the first seed that has them.
    pub fn merge(runs: Vec<(u64, Vec<Item>)>) -> Vec<Row> {
        let mut rows: Vec<Vec<(u64, Item)>> = Vec::new();
        for (seed, items) in runs {
            for item in items {
                let same = |row: &&mut Vec<(u64, Item)>| {
                    // A name that an experiment gives twice is two rows.
                    row.last().is_some_and(|(last, one)| {
                        *last != seed && (&one.figure, &one.item) == (&item.figure, &item.item)
                    })
                };
                match rows.iter_mut().find(same) {
                    Some(row) => row.push((seed, item)),
                    None => rows.push(vec![(seed, item)]),
                }
            }
        }
        rows.iter().filter_map(|items| Row::of_seeds(items)).collect()
    }

    /// The row of one number; none without seeds.
    fn of_seeds(items: &[(u64, Item)]) -> Option<Row> {
        let (_, first) = items.first()?;
        let mut values: Vec<f64> = items.iter().filter_map(|(_, item)| item.ours).collect();
        values.sort_by(f64::total_cmp);
        let ours = median(&values);
        let baselines: Vec<Baseline> = items
            .iter()
            .filter(|(_, item)| item.ours.is_some())
            .filter_map(|(_, item)| item.claim.baseline.clone())
            .collect();
        // A seed whose paper's side could not be computed says nothing of it.
        let known = items.iter().map(|(_, item)| &item.claim).find(|claim| claim.expectation.is_known());
        let claim = Claim { baseline: middle(&baselines), ..known.unwrap_or(&first.claim).clone() };
        let expectation = claim.expectation;
        let [paper_low, paper_high] = expectation.ends();
        let seed_verdicts: Vec<_> = items.iter().map(|(_, item)| item.verdict()).collect();
        let shown = ours.map_or(first, |ours| nearest(items, ours).unwrap_or(first));
        let unmeasured = items.len() - values.len();
        let mut notes = vec![shown.why.clone()];
        notes.extend(ours.and_then(|ours| claim.reason(ours)));
        if unmeasured > 0 && ours.is_some() {
            notes.push(format!("not measured with {unmeasured} of {} seeds", items.len()));
        }
        notes.retain(|note| !note.is_empty());
        Some(Row {
            paper: first.paper.clone(),
            figure: first.figure.clone(),
            item: first.item.clone(),
            relation: expectation.relation(),
            paper_value: expectation.value(),
            paper_low,
            paper_high,
            paper_text: expectation.text(),
            tolerance: expectation.tolerance().map(|tolerance| tolerance.share()),
            tolerance_of: expectation.tolerance().map(|tolerance| tolerance.of()),
            source: claim.source.name(),
            source_note: claim.source.note().to_owned(),
            on_paper_terms: claim.on_paper_terms,
            baseline: claim.baseline.as_ref().map(|baseline| BaselineRow {
                what: baseline.what.clone(),
                paper: baseline.paper,
                ours: baseline.ours,
                tolerance: baseline.tolerance.share(),
                is_alike: baseline.is_alike(),
            }),
            ours,
            ours_min: values.first().copied(),
            ours_max: values.last().copied(),
            seeds: items.iter().map(|(seed, _)| *seed).collect(),
            verdict: ours.map_or(Verdict::Differs, |ours| claim.verdict(ours)),
            seed_verdicts,
            why: notes.join("; "),
        })
    }

    /// Our side as shown in tables: the median.
    pub fn ours_text(&self) -> String {
        self.ours.map_or_else(|| "not measured".to_owned(), number)
    }

    /// The spread of the seeds as shown in tables; empty with one seed.
    pub fn spread_text(&self) -> String {
        match (self.ours_min, self.ours_max) {
            (Some(min), Some(max)) if self.seeds.len() > 1 => format!("{} to {}", number(min), number(max)),
            _ => String::new(),
        }
    }

    /// Where a seed alone would have another verdict than the row: how many have which.
    pub fn disagreement(&self) -> Option<String> {
        if self.seed_verdicts.iter().all(|one| *one == self.verdict) {
            return None;
        }
        let all = [Verdict::Bettered, Verdict::Holds, Verdict::Differs, Verdict::BaselineDiffers];
        let count = |verdict: Verdict| self.seed_verdicts.iter().filter(|one| **one == verdict).count();
        let counts = all.into_iter().map(|verdict| (verdict, count(verdict))).filter(|(_, count)| *count > 0);
        let counts: Vec<_> = counts.map(|(verdict, count)| format!("{} with {count}", verdict.name())).collect();
        Some(format!("of the seeds alone: {}", counts.join(", ")))
    }

    /// The conditions, and whether the seeds disagree.
    pub fn remarks(&self) -> String {
        let parts = [Some(self.why.clone()).filter(|why| !why.is_empty()), self.disagreement()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// The middle of sorted numbers, of an even count the mean of the two in the middle.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// The baseline with the median of ours.
fn middle(baselines: &[Baseline]) -> Option<Baseline> {
    let mut values: Vec<f64> = baselines.iter().map(|baseline| baseline.ours).collect();
    values.sort_by(f64::total_cmp);
    Some(Baseline { ours: median(&values)?, ..baselines.first()?.clone() })
}

/// The item whose number is nearest to this one, the earliest of several.
fn nearest(items: &[(u64, Item)], number: f64) -> Option<&Item> {
    let distance = |item: &Item| item.ours.map_or(f64::INFINITY, |ours| (ours - number).abs());
    items.iter().map(|(_, item)| item).min_by(|one, other| distance(one).total_cmp(&distance(other)))
}

#[cfg(test)]
mod tests {
    use super::super::expectation::{Expectation, Tolerance};
    use super::*;

    fn item(name: &str, claim: Claim, ours: Option<f64>) -> Item {
        let why = ours.map_or_else(|| "broken".to_owned(), |ours| format!("because {ours}"));
        Item { paper: "scj".to_owned(), figure: "8".to_owned(), item: name.to_owned(), claim, ours, why }
    }

    fn near(value: f64) -> Claim {
        Expectation::Near { value, tolerance: Tolerance::OfGain(0.2) }.stated("section VI")
    }

    #[test]
    fn the_median_has_the_verdict_and_the_seeds_their_spread() {
        let claim = near(1.5);
        let runs = [(4, 1.7), (5, 1.45), (6, 1.55)];
        let runs = runs.map(|(seed, ours)| {
            (seed, vec![item("speed", claim.clone(), Some(ours)), item("age", claim.clone(), Some(1.5))])
        });
        let rows = Row::merge(runs.to_vec());
        assert_eq!(rows.iter().map(|row| &*row.item).collect::<Vec<_>>(), ["speed", "age"]);
        let row = &rows[0];
        assert_eq!((row.ours, row.ours_min, row.ours_max), (Some(1.55), Some(1.45), Some(1.7)));
        assert_eq!((&*row.seeds, row.verdict), (&[4, 5, 6][..], Verdict::Holds));
        assert_eq!(row.seed_verdicts, [Verdict::Differs, Verdict::Holds, Verdict::Holds]);
        assert_eq!((row.spread_text(), &*row.why), ("1.45 to 1.70".to_owned(), "because 1.55"));
        assert_eq!(row.remarks(), "because 1.55; of the seeds alone: holds with 2, differs with 1");
        assert_eq!((rows[1].disagreement(), rows[1].remarks()), (None, "because 1.5".to_owned()));
    }

    #[test]
    fn an_even_number_of_seeds_has_the_mean_of_the_middle() {
        let runs =
            [(1, 1.0), (2, 4.0), (3, 2.0), (4, 3.0)].map(|(seed, ours)| (seed, vec![item("x", near(2.5), Some(ours))]));
        let rows = Row::merge(runs.to_vec());
        assert_eq!((rows[0].ours, &*rows[0].why), (Some(2.5), "because 2"));
    }

    #[test]
    fn seeds_that_measured_nothing_are_told() {
        let one = |seed, ours| (seed, vec![item("x", near(1.5), ours)]);
        let rows = Row::merge(vec![one(1, None), one(2, Some(1.5)), one(3, None)]);
        assert_eq!((rows[0].ours, rows[0].verdict), (Some(1.5), Verdict::Holds));
        assert_eq!(rows[0].why, "because 1.5; not measured with 2 of 3 seeds");
        let rows = Row::merge(vec![one(1, None), one(2, None)]);
        assert_eq!((rows[0].ours, rows[0].ours_min, rows[0].verdict), (None, None, Verdict::Differs));
        assert_eq!((rows[0].ours_text(), rows[0].spread_text()), ("not measured".to_owned(), String::new()));
        assert_eq!(rows[0].why, "broken");
    }

    #[test]
    fn the_papers_side_is_that_of_a_seed_that_has_one() {
        let unknown = Expectation::Above(f64::NAN).stated("section VI");
        let below = Expectation::Below(0.5).stated("section VI");
        let rows = Row::merge(vec![(1, vec![item("x", unknown, None)]), (2, vec![item("x", below, Some(1.0))])]);
        assert_eq!((&*rows[0].paper_text, rows[0].verdict), ("< 0.50", Verdict::Differs));
    }

    #[test]
    fn the_baseline_is_the_median_too() {
        let over = |ours| Baseline { what: "share".to_owned(), paper: 0.5, ours, tolerance: Tolerance::OfValue(0.1) };
        let runs = [(1, 0.9), (2, 0.52), (3, 0.7)];
        let runs = runs.map(|(seed, ours)| (seed, vec![item("x", near(0.5).over(Some(over(ours))), Some(0.8))]));
        let row = Row::merge(runs.to_vec()).remove(0);
        assert_eq!(row.seed_verdicts, [Verdict::BaselineDiffers, Verdict::Differs, Verdict::BaselineDiffers]);
        assert_eq!(row.verdict, Verdict::BaselineDiffers);
        let baseline = row.baseline.as_ref().unwrap();
        assert_eq!((baseline.ours, baseline.is_alike), (0.7, false));
        assert!(row.why.contains("another baseline: share 0.70, the paper's 0.50"), "{}", row.why);
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!((&json["verdict"], &json["tolerance_of"]), (&"baseline differs".into(), &"gain".into()));
        assert_eq!(json["baseline"]["tolerance"], 0.1);
    }

    #[test]
    fn the_baseline_of_a_seed_that_measured_nothing_does_not_count() {
        let over = |ours| Baseline { what: "share".to_owned(), paper: 0.5, ours, tolerance: Tolerance::OfValue(0.1) };
        let runs = [(1, 0.9, None), (2, 0.5, Some(0.8)), (3, 0.9, None)];
        let runs = runs.map(|(seed, base, ours)| (seed, vec![item("x", near(0.5).over(Some(over(base))), ours)]));
        let row = Row::merge(runs.to_vec()).remove(0);
        assert_eq!((row.baseline.unwrap().ours, row.verdict), (0.5, Verdict::Differs));
    }

    #[test]
    fn a_name_that_comes_twice_is_two_rows() {
        let items = |ours| vec![item("x", near(1.5), Some(ours)), item("x", near(1.5), Some(2.0 * ours))];
        let rows = Row::merge(vec![(1, items(1.0)), (2, items(1.5))]);
        assert_eq!(rows.iter().map(|row| row.ours).collect::<Vec<_>>(), [Some(1.25), Some(2.5)]);
    }
}
