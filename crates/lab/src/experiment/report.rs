//! From results to a report.

use super::file::{Experiment, PlotPlan, Shape};
use super::point::Point;
use super::result::Record;
use crate::report::{Axis, Bars, Cell, Mark, Plot, Point as Place, Report, Section, Series, Table, Unit};

/// The parameter whose values are repetitions.
const SEED: &str = "seed";
/// The most failures that are shown one by one.
const MOST_FAILURES: usize = 50;

/// The report of an experiment.
#[must_use]
pub fn report(experiment: &Experiment, records: &[&Record]) -> Report {
    let mut report = Report::new(&experiment.title);
    report.summary(&experiment.about);
    for (name, values) in &experiment.settings {
        report.parameter(*name, values.join(", "));
    }
    report.command("basalt lab run experiment.toml --output .");
    let mut result = Section::new("Result").text(counted(experiment, records));
    for plan in plans(experiment) {
        result = match plan.shape {
            Shape::Lines => result.plot(lines(experiment, &plan, records)),
            Shape::Bars => result.bars(bars(experiment, &plan, records)),
        };
    }
    report.add(result);
    report.add(Section::new("All points").table(table(experiment, records)));
    if let Some(section) = failures(records) {
        report.add(section);
    }
    report.add(commands(experiment));
    report
}

fn counted(experiment: &Experiment, records: &[&Record]) -> String {
    let points = experiment.points().len();
    let failed = records.iter().filter(|record| record.outcome.is_err()).count();
    let mut text = format!("{} of {points} points were measured", records.len() - failed);
    if failed > 0 {
        text.push_str(&format!(", {failed} failed"));
    }
    text.push_str(&format!(": {}.", experiment.kind.about()));
    let seeds = experiment.axes().find(|(name, _)| *name == SEED).map_or(0, |(_, values)| values.len());
    if seeds > 1 {
        text.push_str(&format!(" Values are means over {seeds} seeds; thin bars show the least and the largest."));
    }
    text
}

/// The plots that the file asks for; without any, one of the first metric.
fn plans(experiment: &Experiment) -> Vec<PlotPlan> {
    if !experiment.plots.is_empty() {
        return experiment.plots.clone();
    }
    let compared = || experiment.axes().map(|(name, _)| name).filter(|name| *name != SEED);
    let Some(first) = compared().next() else { return Vec::new() };
    let numeric = compared().find(|name| parameter(experiment, name).is_some_and(|parameter| parameter.is_numeric()));
    let y: Vec<&'static str> = experiment.metrics.iter().copied().take(1).collect();
    let title = y.first().and_then(|name| experiment.kind.metric(name)).map_or("", |metric| metric.label).to_owned();
    let (x, shape) = numeric.map_or((first, Shape::Bars), |x| (x, Shape::Lines));
    vec![PlotPlan { title, shape, x, y, only: Vec::new(), logarithmic: (false, false) }]
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
    records: Vec<&'a Record>,
}

impl Group<'_> {
    fn spread(&self, metric: &str) -> Option<Spread> {
        let values: Vec<f64> = self.records.iter().filter_map(|record| record.metric(metric)).collect();
        spread(&values)
    }
}

/// Groups records by the values of these parameters, in the order in which they are met.
fn groups<'a>(records: &[&'a Record], by: &[&str]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for record in records {
        let values: Vec<&str> = by.iter().map(|name| record.point.value(name)).collect();
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
    let fixed = |name: &str| plan.only.iter().any(|(only, _)| *only == name);
    experiment.axes().map(|(name, _)| name).filter(|name| *name != plan.x && *name != SEED && !fixed(name)).collect()
}

fn chosen<'a>(plan: &PlotPlan, records: &[&'a Record]) -> Vec<&'a Record> {
    let shown = |record: &&&Record| plan.only.iter().all(|(name, value)| record.point.value(name) == value);
    records.iter().filter(shown).copied().collect()
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
    let label = if let [single] = metrics.as_slice() { single.label } else { "" };
    let axis = Axis::new(label).unit(metrics.first().map_or(Unit::Plain, |metric| metric.unit));
    if plan.logarithmic.1 { axis.logarithmic() } else { axis }
}

fn lines(experiment: &Experiment, plan: &PlotPlan, records: &[&Record]) -> Plot {
    let parameter = parameter(experiment, plan.x);
    let x = Axis::new(plan.x).unit(parameter.map_or(Unit::Plain, |parameter| parameter.unit()));
    let x = if plan.logarithmic.0 { x.logarithmic() } else { x };
    let mut plot = Plot::lines(&plan.title, x, value_axis(experiment, plan));
    let records = chosen(plan, records);
    for group in groups(&records, &series_axes(experiment, plan)) {
        for metric in &plan.y {
            let points = groups(&group.records, &[plan.x]).into_iter().filter_map(|place| {
                let x = parameter?.number(place.values[0])?;
                let spread = place.spread(metric)?;
                Some(Place { x, y: spread.mean, range: Some((spread.least, spread.largest)) })
            });
            plot = plot.with(Series::new(series_name(experiment, plan, &group.values, metric), points));
        }
    }
    plot
}

fn bars(experiment: &Experiment, plan: &PlotPlan, records: &[&Record]) -> Bars {
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
    bars
}

/// Every combination of axes but the seed, with the chosen metrics.
fn table(experiment: &Experiment, records: &[&Record]) -> Table {
    let axes: Vec<&str> = experiment.axes().map(|(name, _)| name).filter(|name| *name != SEED).collect();
    let metrics: Vec<_> = experiment.metrics.iter().filter_map(|name| experiment.kind.metric(name)).collect();
    let headings = axes.iter().copied().chain(metrics.iter().map(|metric| metric.label));
    let mut table = Table::new("", headings);
    for group in groups(records, &axes) {
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

fn failures(records: &[&Record]) -> Option<Section> {
    let failed: Vec<(&Point, &String)> =
        records.iter().filter_map(|record| Some((&record.point, record.outcome.as_ref().err()?))).collect();
    if failed.is_empty() {
        return None;
    }
    let mut table = Table::new("", ["point", "why it failed"]);
    for (point, why) in failed.iter().take(MOST_FAILURES) {
        table.row([Cell::text(point.arguments().join(" ")), Cell::text(*why).marked(Mark::Bad)]);
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
