//! From results to a report.

use std::collections::BTreeMap;

use super::entry::{Entry, SEED};
use super::file::{CASE, Experiment};
use super::plan::{PlotPlan, Shape};
use super::point::Point;
use super::result::Record;
use crate::report::{Axis, Bars, Cell, Mark, Plot, Point as Place, Report, Section, Series, Table, Unit};
use crate::verdicts::{Row, VerdictFile};

/// The most failures that are shown one by one.
const MOST_FAILURES: usize = 50;

/// A point of a case, and what came of it.
#[derive(Debug, Clone)]
pub struct Measurement<'a> {
    /// The point.
    pub entry: Entry,
    /// What came of it.
    pub record: &'a Record,
    /// Numbers of a verdict file that are computed from it and others.
    pub defined: BTreeMap<String, f64>,
}

impl Measurement<'_> {
    /// The value of a metric, or of a definition.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.record.metric(name).or_else(|| self.defined.get(name).copied())
    }
}

/// The report of an experiment.
#[must_use]
pub fn report(
    experiment: &Experiment,
    records: &[Measurement<'_>],
    verdicts: Option<(&VerdictFile, &[Row])>,
) -> Report {
    let mut report = Report::new(&experiment.title);
    report.summary(&experiment.about);
    for (name, values) in &experiment.settings {
        report.parameter(*name, values.join(", "));
    }
    for case in &experiment.cases {
        let settings = case.settings.iter().map(|(name, values)| format!("{name}: {}", values.join(", ")));
        let settings = settings.collect::<Vec<_>>().join("; ");
        let settings = if settings.is_empty() { "none of its own".to_owned() } else { settings };
        report.parameter(format!("{CASE} {}", case.name), settings);
    }
    report.command("basalt lab run experiment.toml --output .");
    let mut result = Section::new("Result").text(counted(experiment, records));
    for plan in plans(experiment) {
        result = plotted(result, experiment, &plan, records);
    }
    report.add(result);
    if let Some((file, rows)) = verdicts {
        let section =
            file.plots.iter().fold(introduced(file, rows), |section, plan| plotted(section, experiment, plan, records));
        let section = section.table(held_against(rows));
        report.add(section);
    }
    report.add(Section::new("All points").table(table(experiment, records)));
    if let Some(section) = failures(records) {
        report.add(section);
    }
    report.add(commands(experiment));
    report
}

/// A section with one more plot.
fn plotted(section: Section, experiment: &Experiment, plan: &PlotPlan, records: &[Measurement<'_>]) -> Section {
    match plan.shape {
        Shape::Lines => section.plot(lines(experiment, plan, records)),
        Shape::Bars => section.bars(bars(experiment, plan, records)),
    }
}

fn counted(experiment: &Experiment, records: &[Measurement<'_>]) -> String {
    let points = experiment.entries().len();
    let failed = records.iter().filter(|one| one.record.outcome.is_err()).count();
    let mut text = format!("{} of {points} points were measured", records.len() - failed);
    if failed > 0 {
        text.push_str(&format!(", {failed} failed"));
    }
    text.push_str(&format!(": {}.", experiment.kind.about()));
    let seeds = experiment.settings.iter().find(|(name, _)| *name == SEED).map_or(0, |(_, values)| values.len());
    if seeds > 1 {
        let measured = if failed > 0 { "the seeds that were measured, of " } else { "" };
        text.push_str(&format!(
            " Values are means over {measured}{seeds} seeds; thin bars show the least and the largest."
        ));
    }
    text
}

/// The plots that the file asks for; without any, one of the first metric.
fn plans(experiment: &Experiment) -> Vec<PlotPlan> {
    if !experiment.plots.is_empty() {
        return experiment.plots.clone();
    }
    let compared = || experiment.axes().into_iter().filter(|name| *name != SEED);
    let Some(first) = compared().next() else { return Vec::new() };
    let numeric = compared().find(|name| parameter(experiment, name).is_some_and(|parameter| parameter.is_numeric()));
    let y: Vec<String> = experiment.metrics.iter().take(1).map(|name| (*name).to_owned()).collect();
    let title = y.first().and_then(|name| experiment.kind.metric(name)).map_or("", |metric| metric.label).to_owned();
    let (x, shape) = numeric.map_or((first, Shape::Bars), |x| (x, Shape::Lines));
    vec![PlotPlan { title, shape, x, y, only: Vec::new(), logarithmic: (false, false), stated: Vec::new() }]
}

fn parameter(experiment: &Experiment, name: &str) -> Option<&'static super::parameter::Parameter> {
    experiment.kind.parameters().iter().find(|parameter| parameter.name == name)
}

/// Mean, least and largest of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    mean: f64,
    least: f64,
    largest: f64,
}

fn spread(values: &[f64]) -> Option<Spread> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let largest = values.iter().copied().max_by(f64::total_cmp)?;
    Some(Spread { mean: values.iter().sum::<f64>() / values.len() as f64, least, largest })
}

/// What belongs together in a plot or table: values of some axes, in the order of the experiment.
struct Group<'a> {
    values: Vec<&'a str>,
    records: Vec<&'a Measurement<'a>>,
}

impl Group<'_> {
    fn spread(&self, metric: &str) -> Option<Spread> {
        let values: Vec<f64> = self.records.iter().filter_map(|one| one.value(metric)).collect();
        spread(&values)
    }
}

/// Groups records by the values of these parameters, in the order in which they are met.
fn groups<'a>(records: &[&'a Measurement<'a>], by: &[&str]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for record in records {
        let values: Vec<&str> = by.iter().map(|name| record.entry.value(name)).collect();
        let index = *known.entry(values.clone()).or_insert_with(|| {
            groups.push(Group { values, records: Vec::new() });
            groups.len() - 1
        });
        groups[index].records.push(record);
    }
    groups
}

/// The axes that are told apart by lines or bars: all but that along the bottom, the seed, and those fixed to one value.
fn series_axes(experiment: &Experiment, plan: &PlotPlan) -> Vec<&'static str> {
    let fixed = |name: &str| plan.only.iter().any(|(only, values)| *only == name && values.len() == 1);
    experiment.axes().into_iter().filter(|name| *name != plan.x && *name != SEED && !fixed(name)).collect()
}

fn chosen<'a>(plan: &PlotPlan, records: &'a [Measurement<'a>]) -> Vec<&'a Measurement<'a>> {
    let one_of = |entry: &Entry, name: &str, values: &[String]| values.iter().any(|value| entry.value(name) == value);
    let shown = |one: &&Measurement<'_>| plan.only.iter().all(|(name, values)| one_of(&one.entry, name, values));
    records.iter().filter(shown).collect()
}

/// The name of a line or bar: the values that tell it apart, and the metric where there are several.
fn series_name(experiment: &Experiment, plan: &PlotPlan, values: &[&str], metric: &str) -> String {
    let mut parts: Vec<&str> = values.to_vec();
    if plan.y.len() > 1 {
        parts.push(experiment.kind.metric(metric).map_or(metric, |metric| metric.label));
    }
    parts.join(", ")
}

fn value_axis(experiment: &Experiment, plan: &PlotPlan) -> Axis {
    let metrics: Vec<_> = plan.y.iter().filter_map(|name| experiment.kind.metric(name)).collect();
    // A definition is called by its name.
    let label = match (metrics.as_slice(), plan.y.as_slice()) {
        ([single], [_]) => single.label.to_owned(),
        ([], [defined]) => defined.replace('_', " "),
        _ => String::new(),
    };
    let axis = Axis::new(label).unit(metrics.first().map_or(Unit::Plain, |metric| metric.unit));
    if plan.logarithmic.1 { axis.logarithmic() } else { axis }
}

fn lines(experiment: &Experiment, plan: &PlotPlan, records: &[Measurement<'_>]) -> Plot {
    let parameter = parameter(experiment, plan.x);
    let x = Axis::new(plan.x).unit(parameter.map_or(Unit::Plain, |parameter| parameter.unit()));
    let x = if plan.logarithmic.0 { x.logarithmic() } else { x };
    let mut plot = Plot::lines(&plan.title, x, value_axis(experiment, plan));
    let records = chosen(plan, records);
    for group in groups(&records, &series_axes(experiment, plan)) {
        for metric in &plan.y {
            let points = groups(&group.records, &[plan.x]).into_iter().filter_map(|place| {
                let x = place.records.first()?.entry.point.number(plan.x)? as f64;
                let spread = place.spread(metric)?;
                Some(Place { x, y: spread.mean, range: Some((spread.least, spread.largest)) })
            });
            plot = plot.with(Series::new(series_name(experiment, plan, &group.values, metric), points));
        }
    }
    for stated in &plan.stated {
        let at = |x: &String| records.iter().find(|one| one.entry.value(plan.x) == x);
        let x = stated.x.as_ref().and_then(|x| Some(at(x)?.entry.point.number(plan.x)? as f64));
        plot = plot.stated(x, stated.y, &stated.text);
    }
    plot
}

fn bars(experiment: &Experiment, plan: &PlotPlan, records: &[Measurement<'_>]) -> Bars {
    let records = chosen(plan, records);
    let axes = series_axes(experiment, plan);
    let series: Vec<Vec<&str>> = groups(&records, &axes).into_iter().map(|group| group.values).collect();
    let names =
        series.iter().flat_map(|values| plan.y.iter().map(|metric| series_name(experiment, plan, values, metric)));
    let mut bars = Bars::new(&plan.title, value_axis(experiment, plan), names);
    for group in groups(&records, &[plan.x]) {
        let parts = groups(&group.records, &axes);
        let values = series.iter().flat_map(|values| {
            let part = parts.iter().find(|part| part.values == *values);
            plan.y.iter().map(move |metric| Some(part?.spread(metric)?.mean))
        });
        bars = bars.group(group.values[0], values.collect::<Vec<Option<f64>>>());
    }
    for stated in &plan.stated {
        bars = bars.stated(stated.x.clone(), stated.y, &stated.text);
    }
    bars
}

/// Every combination of axes but the seed, with the chosen metrics.
fn table(experiment: &Experiment, records: &[Measurement<'_>]) -> Table {
    let axes: Vec<&str> = experiment.axes().into_iter().filter(|name| *name != SEED).collect();
    let metrics: Vec<_> = experiment.metrics.iter().filter_map(|name| experiment.kind.metric(name)).collect();
    let headings = axes.iter().copied().chain(metrics.iter().map(|metric| metric.label));
    let mut table = Table::new("", headings);
    let records: Vec<_> = records.iter().collect();
    for group in groups(&records, &axes) {
        let numeric = |name: &str| parameter(experiment, name).is_some_and(|parameter| parameter.is_numeric());
        let names = axes.iter().zip(&group.values);
        let names = names.map(|(name, value)| if numeric(name) { Cell::numeric(*value) } else { Cell::text(*value) });
        let values = metrics.iter().map(|metric| {
            group.spread(metric.name).map_or_else(Cell::missing, |spread| Cell::quantity(spread.mean, metric.unit))
        });
        table.row(names.chain(values).collect::<Vec<_>>());
    }
    table
}

/// The section of a verdict file: whose figure it is, and how many rows are as there.
fn introduced(file: &VerdictFile, rows: &[Row]) -> Section {
    let met = rows.iter().filter(|row| row.verdict.is_met()).count();
    let title = format!("{} figure {}: the paper and ours", file.paper.to_uppercase(), file.figure);
    Section::new(title).text(format!("{met} of {} rows hold or are bettered.", rows.len()))
}

/// The rows of the verdict file.
fn held_against(rows: &[Row]) -> Table {
    let mut table = Table::new("", ["what", "paper", "source", "ours", "spread", "verdict", "conditions and reasons"]);
    for row in rows {
        let verdict = Cell::text(row.verdict.name());
        table.row([
            Cell::text(&row.item),
            Cell::text(&row.paper_text),
            Cell::text(format!("{}: {}", row.source, row.source_note)),
            Cell::text(row.ours_text()),
            Cell::text(row.spread_text()),
            if row.verdict.is_met() { verdict.marked(Mark::Good) } else { verdict.marked(Mark::Bad) },
            Cell::text(row.remarks()),
        ]);
    }
    table
}

fn failures(records: &[Measurement<'_>]) -> Option<Section> {
    let failure = |one: &'_ Measurement<'_>| Some((one.record.point.clone(), one.record.outcome.clone().err()?));
    let mut failed: Vec<(Point, String)> = records.iter().filter_map(failure).collect();
    // A point of two cases fails once.
    let mut known = std::collections::HashSet::new();
    failed.retain(|(point, _)| known.insert(point.clone()));
    if failed.is_empty() {
        return None;
    }
    let mut table = Table::new("", ["point", "why it failed"]);
    for (point, why) in failed.iter().take(MOST_FAILURES) {
        table.row([Cell::text(point.arguments().join(" ")), Cell::text(why).marked(Mark::Bad)]);
    }
    let section = Section::new("Failed points").table(table);
    let more = failed.len().saturating_sub(MOST_FAILURES);
    Some(if more > 0 { section.text(format!("{more} more failed; results.jsonl has them all.")) } else { section })
}

/// How to run one point, or all, elsewhere.
fn commands(experiment: &Experiment) -> Section {
    let section = Section::new("Single points")
        .text("Every point is one command with the same result on every machine. The first of them:");
    let first = experiment.points().first().map(Point::command).unwrap_or_default();
    section.code(first).text("The list of all:").code("basalt lab plan experiment.toml")
}
