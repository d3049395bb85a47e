//! Experiment files.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Spanned, Value};

use super::change::{Change, with_changes};
use super::kinds::Kind;
use super::plan::{PlotPlan, RawPlot};

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

impl FileError {
    /// What is wrong at a byte of a file's text.
    pub(crate) fn at(path: &Path, text: &str, byte: usize, reason: &str) -> FileError {
        FileError::Wrong {
            path: path.to_owned(),
            line: text.bytes().take(byte).filter(|&byte| byte == b'\n').count() + 1,
            reason: reason.lines().collect::<Vec<_>>().join(" "),
        }
    }
}

/// The text of a file of an experiment.
///
/// # Errors
/// When it cannot be read, or is too large for one.
pub(super) fn read(path: &Path) -> Result<String, FileError> {
    let unreadable = |reason: String| FileError::Unreadable { path: path.to_owned(), reason };
    let mut text = String::new();
    // Devices and pipes do not tell how much there is in them.
    let read = std::fs::File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 > LARGEST_FILE => Err(unreadable("is too large for an experiment".to_owned())),
        Ok(_) => Ok(text),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

/// What an experiment's cases are called along the bottom of a plot, in tables and in verdicts.
pub const CASE: &str = "case";

/// Settings with a name of their own, for what differs in more than one parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// Its settings with their values. They replace those of the same name that all cases have.
    pub settings: Vec<(&'static str, Vec<String>)>,
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
    /// The cases; without any, there is one that has no name and no settings of its own.
    pub cases: Vec<Case>,
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
    case: Vec<Spanned<RawCase>>,
    #[serde(default)]
    metrics: Vec<Spanned<String>>,
    #[serde(default)]
    plot: Vec<Spanned<RawPlot>>,
}

#[derive(Deserialize)]
struct RawCase {
    name: Spanned<String>,
    #[serde(flatten)]
    settings: BTreeMap<String, Value>,
}

/// A reason with the byte of the file it belongs to.
pub(crate) struct Wrong(pub usize, pub String);

impl Experiment {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`FileError`], one line that names the file, the line and the field.
    pub fn load(path: &Path) -> Result<Experiment, FileError> {
        Experiment::parse(&read(path)?, path)
    }

    /// The same with some settings changed.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(path: &Path, changes: &[Change]) -> Result<Experiment, FileError> {
        Experiment::parse(&with_changes(&read(path)?, changes), path)
    }

    /// Checks the text of a file; `path` is for messages.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(text: &str, path: &Path) -> Result<Experiment, FileError> {
        let wrong = |at: usize, reason: &str| FileError::at(path, text, at, reason);
        let raw: Raw =
            toml::from_str(text).map_err(|error| wrong(error.span().map_or(0, |span| span.start), error.message()))?;
        check(raw).map_err(|Wrong(at, reason)| wrong(at, &reason))
    }
}

fn check(raw: Raw) -> Result<Experiment, Wrong> {
    let at = raw.kind.span().start;
    let kind: Kind = raw.kind.get_ref().parse().map_err(|why| Wrong(at, format!("kind: {why}")))?;
    let settings = settings(kind, raw.settings)?;
    let cases = raw.case.into_iter().map(|case| check_case(kind, case)).collect::<Result<Vec<_>, Wrong>>()?;
    for (index, case) in cases.iter().enumerate() {
        if cases[..index].iter().any(|other| other.name == case.name) {
            return Err(Wrong(at, format!("case: `{}` comes twice", case.name)));
        }
    }
    let mut metrics = Vec::new();
    for name in &raw.metrics {
        metrics.push(metric(kind, name, "metrics")?);
    }
    if metrics.is_empty() {
        metrics = kind.main_metrics().to_vec();
    }
    let plots = Vec::new();
    let mut experiment = Experiment { title: raw.title, about: raw.about, kind, settings, cases, metrics, plots };
    if experiment.size().is_none_or(|count| count > MOST_POINTS) {
        return Err(Wrong(at, format!("settings: there are more than {MOST_POINTS} points")));
    }
    if let Some(why) = experiment.wrong_point() {
        return Err(Wrong(at, format!("settings: {why}")));
    }
    for plot in raw.plot {
        let plan = plot.into_inner().check(&experiment, &|_| false)?;
        experiment.plots.push(plan);
    }
    Ok(experiment)
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
        settings.push(setting(kind, name.get_ref(), value.get_ref()).map_err(wrong)?);
    }
    Ok(settings)
}

/// A setting with its values.
pub(super) fn setting(kind: Kind, name: &str, value: &Value) -> Result<(&'static str, Vec<String>), String> {
    let parameter = &kind.parameters()[kind.parameter_index(name)?];
    let items = match value {
        Value::Array(items) if items.is_empty() => return Err("is an empty list".to_owned()),
        Value::Array(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    let mut values = Vec::with_capacity(items.len());
    let mut known = HashSet::new();
    for item in items {
        let value = parameter.normalize(&scalar(item)?)?;
        if !known.insert(value.clone()) {
            return Err(format!("holds `{value}` twice"));
        }
        values.push(value);
    }
    Ok((parameter.name, values))
}

/// A case; its settings come in the order of the kind's parameters.
fn check_case(kind: Kind, raw: Spanned<RawCase>) -> Result<Case, Wrong> {
    let at = raw.span().start;
    let RawCase { name, settings: given } = raw.into_inner();
    let at_name = name.span().start;
    let name = name.into_inner();
    if name.is_empty() {
        return Err(Wrong(at_name, "case.name: is empty".to_owned()));
    }
    let mut settings = Vec::with_capacity(given.len());
    for (parameter, value) in &given {
        let wrong = |why: String| Wrong(at, format!("case `{name}`: {parameter}: {why}"));
        settings.push(setting(kind, parameter, value).map_err(wrong)?);
    }
    let place = |name: &str| kind.parameters().iter().position(|parameter| parameter.name == name);
    settings.sort_by_key(|(name, _)| place(name));
    Ok(Case { name, settings })
}

/// A single value as text.
pub(super) fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(true) => Ok("on".to_owned()),
        Value::Boolean(false) => Ok("off".to_owned()),
        _ => Err("is neither a text nor a number, nor a list of such".to_owned()),
    }
}

pub(super) fn metric(kind: Kind, name: &Spanned<String>, field: &str) -> Result<&'static str, Wrong> {
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
