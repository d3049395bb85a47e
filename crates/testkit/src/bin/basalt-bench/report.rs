//! Measurements and the tables made of them.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// MiB/s.
    MebibytesPerSecond,
    /// 1/s.
    PerSecond,
    /// µs.
    Microseconds,
    /// s.
    Seconds,
    /// MiB.
    Mebibytes,
}

impl Unit {
    fn symbol(self) -> &'static str {
        match self {
            Unit::MebibytesPerSecond => "MiB/s",
            Unit::PerSecond => "1/s",
            Unit::Microseconds => "µs",
            Unit::Seconds => "s",
            Unit::Mebibytes => "MiB",
        }
    }

    fn more_is_better(self) -> bool {
        matches!(self, Unit::MebibytesPerSecond | Unit::PerSecond)
    }
}

/// What is wanted of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Aim {
    /// At least this many times as fast as the contender that ours is compared with.
    Ratio(f64),
    /// Less than this, in the measurement's unit.
    Below(f64),
}

/// One measurement.
#[derive(Debug, Clone)]
pub struct Sample {
    title: String,
    unit: Unit,
    value: f64,
    aim: Option<Aim>,
}

impl Sample {
    /// A measurement; the same title stands for the same thing in every run.
    pub fn new(title: impl Into<String>, unit: Unit, value: f64) -> Sample {
        Sample { title: title.into(), unit, value, aim: None }
    }

    /// The same with an aim.
    pub fn aim(self, aim: Aim) -> Sample {
        Sample { aim: Some(aim), ..self }
    }
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Facts by name.
    pub machine: Vec<(String, String)>,
    /// One table each.
    pub sections: Vec<Section>,
}

/// One table.
#[derive(Debug, Serialize, Deserialize)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// Who is measured, in the order of the columns.
    pub contenders: Vec<String>,
    /// What went wrong and is missing from the rows.
    pub failures: Vec<String>,
    ours: String,
    reference: String,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    title: String,
    unit: Unit,
    aim: Option<Aim>,
    /// One value a run, by contender.
    values: BTreeMap<String, Vec<f64>>,
}

impl Report {
    /// As a text in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from("| | |\n|---|---|\n");
        for (name, value) in &self.machine {
            line(&mut text, format_args!("| {name} | {value} |"));
        }
        for section in &self.sections {
            section.write(&mut text);
        }
        text
    }
}

impl Section {
    /// An empty section that compares `ours` with `reference`; the same name twice compares nothing.
    pub fn new(title: &str, ours: &str, reference: &str) -> Section {
        Section {
            title: title.to_owned(),
            contenders: Vec::new(),
            failures: Vec::new(),
            ours: ours.to_owned(),
            reference: reference.to_owned(),
            rows: Vec::new(),
        }
    }

    /// Adds one measurement of a contender.
    pub fn add(&mut self, contender: &str, sample: Sample) {
        let known = self.rows.iter().position(|row| row.title == sample.title);
        let at = known.unwrap_or_else(|| {
            self.rows.push(Row { title: sample.title, unit: sample.unit, aim: sample.aim, values: BTreeMap::new() });
            self.rows.len() - 1
        });
        // The index is of a row that was found or just added.
        self.rows[at].values.entry(contender.to_owned()).or_default().push(sample.value);
    }

    /// Notes a failure, and says so at once.
    pub fn fail(&mut self, what: String) {
        eprintln!("FAILED: {what}");
        self.failures.push(what);
    }

    /// Drops the aims, where they were set for another comparison.
    pub fn forget_aims(&mut self) {
        self.rows.iter_mut().for_each(|row| row.aim = None);
    }

    fn compares(&self) -> bool {
        self.ours != self.reference
    }

    fn write(&self, text: &mut String) {
        line(text, format_args!("\n### {}\n", self.title));
        let mut head = format!("| | unit | {} |", self.contenders.join(" | "));
        if self.compares() {
            head += &format!(" {} ÷ {} |", self.ours, self.reference);
        }
        line(text, format_args!("{head} aim |"));
        line(text, format_args!("|---{}|", "|---".repeat(head.matches('|').count() - 1)));
        for row in &self.rows {
            self.write_row(row, text);
        }
        for failure in &self.failures {
            line(text, format_args!("\n**Failed:** {}", failure.lines().next().unwrap_or_default()));
        }
    }

    fn write_row(&self, row: &Row, text: &mut String) {
        let mut cells = vec![row.title.clone(), row.unit.symbol().to_owned()];
        cells.extend(
            self.contenders
                .iter()
                .map(|contender| row.values.get(contender).map_or("–".to_owned(), |values| spread(values))),
        );
        let ratio = row.ratio(&self.ours, &self.reference);
        if self.compares() {
            cells.push(ratio.map_or("–".to_owned(), |ratio| format!("**{ratio:.2}**")));
        }
        cells.push(row.verdict(&self.ours, ratio));
        line(text, format_args!("| {} |", cells.join(" | ")));
    }
}

impl Row {
    fn median(&self, contender: &str) -> Option<f64> {
        self.values.get(contender).map(|values| median(values))
    }

    /// How many times as fast ours is.
    fn ratio(&self, ours: &str, reference: &str) -> Option<f64> {
        let (ours, reference) = (self.median(ours)?, self.median(reference)?);
        Some(if self.unit.more_is_better() { ours / reference } else { reference / ours })
    }

    fn verdict(&self, ours: &str, ratio: Option<f64>) -> String {
        let (wanted, met) = match self.aim {
            None => return String::new(),
            Some(Aim::Ratio(least)) => (format!("≥ {least:.1}"), ratio.map(|ratio| ratio >= least)),
            Some(Aim::Below(most)) => (format!("< {most}"), self.median(ours).map(|value| value < most)),
        };
        match met {
            Some(true) => format!("{wanted}: met"),
            Some(false) => format!("{wanted}: missed"),
            None => wanted,
        }
    }
}

/// "median (lowest–highest)", or the only value.
fn spread(values: &[f64]) -> String {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let middle = number(median(values));
    if values.len() < 2 { middle } else { format!("{middle} ({}–{})", number(lowest), number(highest)) }
}

/// The middle value, or the mean of the two in the middle.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match (sorted.get(half), half.checked_sub(1).and_then(|below| sorted.get(below))) {
        (Some(&upper), Some(&lower)) if sorted.len().is_multiple_of(2) => f64::midpoint(lower, upper),
        (Some(&middle), _) => middle,
        (None, _) => f64::NAN,
    }
}

/// Three significant digits, or all before the point.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        small if small < 1.0 => 3,
        small if small < 10.0 => 2,
        small if small < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(spread(&[100.4, 90.0, 1234.0]), "100 (90.0–1234)");
        assert_eq!(spread(&[0.12345]), "0.123");
    }

    #[test]
    fn faster_is_above_one_whatever_the_unit() {
        let mut section = Section::new("title", "ours", "theirs");
        section.contenders = vec!["theirs".to_owned(), "ours".to_owned()];
        for (who, rate, time) in [("theirs", 100.0, 10.0), ("ours", 200.0, 5.0)] {
            section.add(who, Sample::new("rate", Unit::PerSecond, rate).aim(Aim::Ratio(2.5)));
            section.add(who, Sample::new("time", Unit::Seconds, time).aim(Aim::Below(6.0)));
        }
        section.fail("something: broke\nwith details".to_owned());
        let mut text = String::new();
        section.write(&mut text);
        assert_eq!(
            text,
            "\n### title\n\n| | unit | theirs | ours | ours ÷ theirs | aim |\n|---|---|---|---|---|---|\n\
             | rate | 1/s | 100 | 200 | **2.00** | ≥ 2.5: missed |\n| time | s | 10.0 | 5.00 | **2.00** | < 6: met |\n\
             \n**Failed:** something: broke\n"
        );
    }

    #[test]
    fn sections_survive_the_way_out_of_the_guest() {
        let mut section = Section::new("title", "ours", "theirs");
        section.add("ours", Sample::new("rate", Unit::PerSecond, 1.5).aim(Aim::Ratio(1.0)));
        let back: Section = serde_json::from_str(&serde_json::to_string(&section).unwrap()).unwrap();
        assert_eq!(back.rows[0].values["ours"], [1.5]);
    }
}
