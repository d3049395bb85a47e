//! Experiment files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Spanned, Value};

use super::kinds::Kind;
use super::point::Point;

/// More points than this are a mistake in the file rather than an experiment.
const MOST_POINTS: usize = 100_000;
/// The largest experiment file read.
const LARGEST_FILE: u64 = 1 << 20;

/// What is wrong with an experiment file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A line makes no sense.
    #[error("{}, line {line}: {reason}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with which field.
        reason: String,
    },
}

/// How a plot is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Lines over a parameter with numbers.
    #[default]
    Lines,
    /// Bars in groups.
    Bars,
}

/// A plot of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlotPlan {
    /// Its title.
    pub title: String,
    /// How it is drawn.
    pub shape: Shape,
    /// The parameter along the bottom, or that the groups of bars differ in.
    pub x: &'static str,
    /// The metrics shown.
    pub y: Vec<&'static str>,
    /// Only points with these values are shown.
    pub only: Vec<(&'static str, String)>,
    /// Whether x, and whether y is logarithmic.
    pub logarithmic: (bool, bool),
}

/// A checked experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Its title.
    pub title: String,
    /// What is asked, and what was expected; may be empty.
    pub about: String,
    /// The kind of its points.
    pub kind: Kind,
    /// Each setting of the file with its values, in the order of the file.
    pub settings: Vec<(&'static str, Vec<String>)>,
    /// The metrics of the table; those of the kind if the file names none.
    pub metrics: Vec<&'static str>,
    /// The plots.
    pub plots: Vec<PlotPlan>,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    title: String,
    #[serde(default)]
    about: String,
    kind: Spanned<String>,
    settings: BTreeMap<Spanned<String>, Spanned<Value>>,
    #[serde(default)]
    metrics: Vec<Spanned<String>>,
    #[serde(default)]
    plot: Vec<Spanned<RawPlot>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlot {
    title: String,
    #[serde(default)]
    shape: Shape,
    x: Spanned<String>,
    y: Vec<Spanned<String>>,
    #[serde(default)]
    only: BTreeMap<Spanned<String>, Spanned<Value>>,
    #[serde(default)]
    logarithmic: Vec<Spanned<String>>,
}

/// A reason with the byte of the file it belongs to.
struct Wrong(usize, String);

impl Experiment {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`FileError`], one line that names the file, the line and the field.
    pub fn load(path: &Path) -> Result<Experiment, FileError> {
        let unreadable = |reason: String| FileError::Unreadable { path: path.to_owned(), reason };
        let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
        if size > LARGEST_FILE {
            return Err(unreadable("is too large for an experiment".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        Experiment::parse(&text, path)
    }

    /// Checks the text of a file; `path` is for messages.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(text: &str, path: &Path) -> Result<Experiment, FileError> {
        let wrong = |at: usize, reason: &str| FileError::Wrong {
            path: path.to_owned(),
            line: text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1,
            reason: reason.lines().collect::<Vec<_>>().join(" "),
        };
        let raw: Raw =
            toml::from_str(text).map_err(|error| wrong(error.span().map_or(0, |span| span.start), error.message()))?;
        check(raw).map_err(|Wrong(at, reason)| wrong(at, &reason))
    }

    /// All points, the last setting of the file changing fastest.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let count = self.settings.iter().map(|(_, values)| values.len()).product::<usize>();
        (0..count).filter_map(|index| self.point(index)).collect()
    }

    /// A point by its number.
    fn point(&self, index: usize) -> Option<Point> {
        let mut rest = index;
        let mut chosen = Vec::with_capacity(self.settings.len());
        for (name, values) in self.settings.iter().rev() {
            chosen.push((*name, values[rest % values.len()].as_str()));
            rest /= values.len();
        }
        // Every value was checked with the file.
        Point::new(self.kind, chosen).ok()
    }

    /// Settings with several values, in the order of the file.
    pub fn axes(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        let several = self.settings.iter().filter(|(_, values)| values.len() > 1);
        several.map(|(name, values)| (*name, values.as_slice()))
    }
}

fn check(raw: Raw) -> Result<Experiment, Wrong> {
    let at = raw.kind.span().start;
    let kind: Kind = raw.kind.get_ref().parse().map_err(|why| Wrong(at, format!("kind: {why}")))?;
    let settings = settings(kind, raw.settings)?;
    let points = settings.iter().try_fold(1_usize, |count, (_, values)| count.checked_mul(values.len()));
    if points.is_none_or(|count| count > MOST_POINTS) {
        return Err(Wrong(at, format!("settings: there are more than {MOST_POINTS} points")));
    }
    let mut metrics = Vec::new();
    for name in &raw.metrics {
        metrics.push(metric(kind, name, "metrics")?);
    }
    if metrics.is_empty() {
        metrics = kind.main_metrics().to_vec();
    }
    let mut plots = Vec::new();
    for plot in raw.plot {
        plots.push(check_plot(kind, plot.into_inner())?);
    }
    Ok(Experiment { title: raw.title, about: raw.about, kind, settings, metrics, plots })
}

/// Every setting with its values, sorted by where it stands in the file.
fn settings(
    kind: Kind,
    raw: BTreeMap<Spanned<String>, Spanned<Value>>,
) -> Result<Vec<(&'static str, Vec<String>)>, Wrong> {
    let mut raw: Vec<_> = raw.into_iter().collect();
    raw.sort_by_key(|(name, _)| name.span().start);
    let mut settings = Vec::with_capacity(raw.len());
    for (name, value) in raw {
        let wrong = |why: String| Wrong(name.span().start, format!("settings.{}: {why}", name.get_ref()));
        let index = kind.parameter_index(name.get_ref()).map_err(wrong)?;
        let parameter = &kind.parameters()[index];
        let items = match value.get_ref() {
            Value::Array(items) if items.is_empty() => return Err(wrong("is an empty list".to_owned())),
            Value::Array(items) => items.as_slice(),
            single => std::slice::from_ref(single),
        };
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let value = parameter.normalize(&scalar(item).map_err(wrong)?).map_err(wrong)?;
            if values.contains(&value) {
                return Err(wrong(format!("holds `{value}` twice")));
            }
            values.push(value);
        }
        settings.push((parameter.name, values));
    }
    Ok(settings)
}

/// A single value as text.
fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(true) => Ok("on".to_owned()),
        Value::Boolean(false) => Ok("off".to_owned()),
        _ => Err("is neither a text nor a number, nor a list of such".to_owned()),
    }
}

fn metric(kind: Kind, name: &Spanned<String>, field: &str) -> Result<&'static str, Wrong> {
    match kind.metric(name.get_ref()) {
        Some(metric) => Ok(metric.name),
        None => {
            let known: Vec<&str> = kind.metrics().iter().map(|metric| metric.name).collect();
            let why = format!(
                "{field}: {} does not measure `{}`; it measures {}",
                kind.name(),
                name.get_ref(),
                known.join(", ")
            );
            Err(Wrong(name.span().start, why))
        }
    }
}

fn check_plot(kind: Kind, raw: RawPlot) -> Result<PlotPlan, Wrong> {
    let parameter = |name: &Spanned<String>, field: &str| {
        let index = kind.parameter_index(name.get_ref());
        index.map_err(|why| Wrong(name.span().start, format!("plot.{field}: {why}")))
    };
    let x = &kind.parameters()[parameter(&raw.x, "x")?];
    if raw.y.is_empty() {
        return Err(Wrong(raw.x.span().start, "plot.y: names no metric".to_owned()));
    }
    let y = raw.y.iter().map(|name| metric(kind, name, "plot.y")).collect::<Result<Vec<_>, Wrong>>()?;
    if raw.shape == Shape::Lines && !x.is_numeric() {
        let why = format!("plot.x: {} has no numbers; use shape = \"bars\"", x.name);
        return Err(Wrong(raw.x.span().start, why));
    }
    let mut only = Vec::new();
    for (name, value) in &raw.only {
        let parameter = &kind.parameters()[parameter(name, "only")?];
        let wrong = |why: String| Wrong(name.span().start, format!("plot.only.{}: {why}", parameter.name));
        only.push((parameter.name, parameter.normalize(&scalar(value.get_ref()).map_err(wrong)?).map_err(wrong)?));
    }
    let mut logarithmic = (false, false);
    for name in &raw.logarithmic {
        match name.get_ref().as_str() {
            "x" => logarithmic.0 = true,
            "y" => logarithmic.1 = true,
            other => return Err(Wrong(name.span().start, format!("plot.logarithmic: `{other}` is neither x nor y"))),
        }
    }
    Ok(PlotPlan { title: raw.title, shape: raw.shape, x: x.name, y, only, logarithmic })
}
