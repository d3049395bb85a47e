//! What the expressions of a verdict file see: numbers of a point, and ways to other points.
//!
//! | name | means |
//! |---|---|
//! | a metric, a parameter (`-` is written `_`), `case` | that of the point that is meant |
//! | a definition of the file | the same, computed from others |
//! | `at(case='x', size='1G')` | the one point with these values, and else with those of the point that is meant |
//! | `all(case=['x', 'y'])` | all points that have been measured with one of these values, in the order of the experiment |
//! | `here` | the point that is meant; `here['p99_ns']` |
//! | `list(points, 'size', 'speed', 3)` | each point's value of a parameter, and a number to so many digits, as a text |
//! | filters `fixed(3)`, `bytes` | a number with three digits behind the point; a size as people write it |
//!
//! A value that was not measured is an error wherever it is used.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use minijinja::value::{Kwargs, Object, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use parking_lot::Mutex;

use crate::experiment::{CASE, Entry, Experiment, Kind, Measurement};
use crate::report::Unit;
use crate::size;

/// Definitions that use definitions, at most so deep.
const DEEPEST: usize = 32;
/// Bytes of the longest text that a definition or a template may give.
const LONGEST: usize = 64 << 10;
/// Instructions that an expression may take.
const FUEL: u64 = 1_000_000;
/// Names that are functions or the point itself.
const BUILT_IN: [&str; 4] = ["all", "at", "here", "list"];

/// The language without any values.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("fixed", |number: f64, digits: usize| format!("{number:.digits$}", digits = digits.min(12)));
    environment.add_filter("bytes", |number: f64| size::human(number as u64));
    environment
}

/// An error in one line.
pub(super) fn message(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

fn error(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

fn too_long(template: &str) -> String {
    let begin: String = template.chars().take(40).collect();
    format!("`{begin}` gives a text of more than {}", size::human(LONGEST as u64))
}

/// Whether a name means something in every expression over points of a kind.
pub(super) fn is_known(kind: Kind, name: &str) -> bool {
    name == CASE || BUILT_IN.contains(&name) || kind.metric(name).is_some() || parameter(kind, name).is_some()
}

/// The parameter that an expression calls so.
fn parameter(kind: Kind, name: &str) -> Option<&'static crate::experiment::Parameter> {
    kind.parameters().iter().find(|parameter| parameter.name == name || parameter.name.replace('-', "_") == name)
}

/// A point and its metrics, or why it has none.
struct Place {
    entry: Entry,
    metrics: Result<BTreeMap<String, f64>, String>,
}

/// All points of an experiment.
pub(super) struct Results {
    kind: Kind,
    /// Axes of all cases, and axes that only some cases have.
    common: Vec<&'static str>,
    own: Vec<&'static str>,
    places: Vec<Place>,
    defines: BTreeMap<String, String>,
    constants: BTreeMap<String, Value>,
    /// What definitions of a point have given: they are asked for again and again.
    known: Mutex<HashMap<(usize, String), Value>>,
    environment: Environment<'static>,
}

/// The definitions that are being computed, of which point.
type Path = Vec<(usize, String)>;

impl fmt::Debug for Results {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Results").field("points", &self.places.len()).finish_non_exhaustive()
    }
}

impl Results {
    pub(super) fn new(
        experiment: &Experiment,
        measured: &[Measurement<'_>],
        defines: BTreeMap<String, String>,
        constants: BTreeMap<String, Value>,
    ) -> Arc<Results> {
        let common = experiment.common_axes();
        let own = experiment.axes().into_iter().filter(|name| *name != CASE && !common.contains(name)).collect();
        let place = |one: &Measurement<'_>| Place { entry: one.entry.clone(), metrics: one.record.outcome.clone() };
        let places = measured.iter().map(place).collect();
        let kind = experiment.kind;
        let known = Mutex::default();
        Arc::new(Results { kind, common, own, places, defines, constants, known, environment: environment() })
    }

    /// The values of an axis, in the order of the experiment.
    pub(super) fn values(&self, name: &str) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for place in &self.places {
            let value = place.entry.value(name);
            if values.iter().all(|known| known != value) {
                values.push(value.to_owned());
            }
        }
        values
    }

    /// Whether a name tells points apart.
    pub(super) fn is_axis(&self, name: &str) -> bool {
        name == CASE || parameter(self.kind, name).is_some()
    }

    /// A value as results have it.
    fn normalized(&self, name: &str, value: &str) -> Result<(&'static str, String), String> {
        if name == CASE {
            return Ok((CASE, value.to_owned()));
        }
        let parameter = parameter(self.kind, name).ok_or_else(|| format!("there is no parameter `{name}`"))?;
        Ok((parameter.name, parameter.normalize(value).map_err(|why| format!("{name}: {why}"))?))
    }

    /// The points with one of these values each.
    fn matching<'a>(&'a self, wanted: &'a [(&'static str, Vec<String>)]) -> impl Iterator<Item = usize> + 'a {
        let fits =
            |entry: &Entry| wanted.iter().all(|(name, values)| values.iter().any(|value| entry.value(name) == value));
        (0..self.places.len()).filter(move |index| fits(&self.places[*index].entry))
    }

    /// All that tells a point from others.
    fn coordinates(&self, index: usize) -> BTreeMap<&'static str, String> {
        let entry = &self.places[index].entry;
        let names = self.common.iter().chain(&self.own).chain([&CASE]);
        names.map(|name| (*name, entry.value(name).to_owned())).collect()
    }

    /// A number or text of a point.
    fn value(self: &Arc<Self>, index: usize, name: &str, path: &Path) -> Option<Value> {
        let Place { entry, metrics } = self.places.get(index)?;
        if name == CASE {
            return Some(Value::from(entry.case.clone()));
        }
        if let Some(define) = self.defines.get(name) {
            return Some(self.defined(index, name, define, path));
        }
        if self.kind.metric(name).is_some() {
            let value = match metrics {
                Ok(metrics) => metrics.get(name).copied().ok_or_else(|| format!("{name} was not measured")),
                Err(why) => Err(why.clone()),
            };
            return Some(value.map_or_else(|why| Value::from(error(why)), plain));
        }
        let parameter = parameter(self.kind, name)?;
        match entry.point.number(parameter.name).filter(|_| parameter.is_numeric()) {
            Some(number) => Some(Value::from(number)),
            None => Some(Value::from(entry.point.value(parameter.name))),
        }
    }

    /// The same, if it is a finite number.
    pub(super) fn number(self: &Arc<Self>, index: usize, name: &str) -> Option<f64> {
        f64::try_from(self.value(index, name, &Path::new())?).ok().filter(|number| number.is_finite())
    }

    fn defined(self: &Arc<Self>, index: usize, name: &str, define: &str, path: &Path) -> Value {
        let key = (index, name.to_owned());
        if path.contains(&key) {
            return Value::from(error(format!("{name} is defined by itself")));
        }
        if path.len() >= DEEPEST {
            return Value::from(error(format!("{name}: definitions use each other more than {DEEPEST} deep")));
        }
        if let Some(value) = self.known.lock().get(&key) {
            return value.clone();
        }
        let mut path = path.clone();
        path.push(key.clone());
        let (fixed, extra) = (self.coordinates(index), BTreeMap::new());
        let scope = Scope { results: Arc::clone(self), fixed, extra, here: Some(index), path };
        let value = scope.evaluate(define).unwrap_or_else(|why| Value::from(error(why)));
        self.known.lock().insert(key, value.clone());
        value
    }
}

/// A point as a value.
#[derive(Debug)]
struct PlaceValue {
    results: Arc<Results>,
    index: usize,
    path: Path,
}

impl Object for PlaceValue {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = key.as_str()?;
        let unknown = || Value::from(error(format!("`{name}` is no metric, parameter or definition")));
        Some(self.results.value(self.index, name, &self.path).unwrap_or_else(unknown))
    }
}

/// What an expression sees.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    results: Arc<Results>,
    /// What is said of the point that is meant.
    fixed: BTreeMap<&'static str, String>,
    /// Names of the row.
    extra: BTreeMap<String, Value>,
    here: Option<usize>,
    path: Path,
}

impl Scope {
    /// The scope of a row: these values, whether they are of an axis or names of the row's own.
    ///
    /// # Errors
    /// When a value is none of its axis.
    pub(super) fn of_row(results: &Arc<Results>, with: &[(&str, &str)]) -> Result<Scope, String> {
        let (mut fixed, mut extra) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in with {
            if results.is_axis(name) {
                let (name, value) = results.normalized(name, value)?;
                fixed.insert(name, value);
            } else {
                extra.insert((*name).to_owned(), Value::from(*value));
            }
        }
        Ok(Scope { results: Arc::clone(results), fixed, extra, here: None, path: Path::new() })
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// Why it has none, in one line.
    pub(super) fn evaluate(&self, expression: &str) -> Result<Value, String> {
        let evaluate = || self.results.environment.compile_expression(expression)?.eval(self.to_value());
        let value = evaluate().map_err(|error| message(&error))?;
        match value.kind() {
            ValueKind::Undefined => Err(format!("`{expression}` has no value")),
            // An error that nothing has used yet.
            ValueKind::Invalid => Err(value.to_string()),
            ValueKind::String if value.as_str().is_some_and(|text| text.len() > LONGEST) => Err(too_long(expression)),
            _ => Ok(value),
        }
    }

    /// The text of a template.
    ///
    /// # Errors
    /// Why it has none, in one line.
    pub(super) fn render(&self, template: &str) -> Result<String, String> {
        let text = self.results.environment.render_str(template, self.to_value()).map_err(|error| message(&error))?;
        if text.len() > LONGEST { Err(too_long(template)) } else { Ok(text) }
    }

    fn to_value(&self) -> Value {
        Value::from_object(self.clone())
    }

    fn place(&self, index: usize) -> Value {
        Value::from_object(PlaceValue { results: Arc::clone(&self.results), index, path: self.path.clone() })
    }

    /// The point that is meant.
    fn meant(&self) -> Result<usize, String> {
        if let Some(index) = self.here {
            return Ok(index);
        }
        let wanted: Vec<_> = self.fixed.iter().map(|(name, value)| (*name, vec![value.clone()])).collect();
        self.single(&wanted)
    }

    fn single(&self, wanted: &[(&'static str, Vec<String>)]) -> Result<usize, String> {
        let mut found = self.results.matching(wanted);
        let said = || {
            let said = wanted.iter().map(|(name, values)| format!("{name}={}", values.join("|")));
            said.collect::<Vec<_>>().join(" ")
        };
        match (found.next(), found.next()) {
            (Some(index), None) => Ok(index),
            (None, _) => Err(format!("no point has {}", said())),
            (Some(_), Some(_)) => Err(format!("several points have {}", said())),
        }
    }

    /// The values that the arguments ask for, and those of the point that is meant for everything else.
    fn wanted(&self, arguments: &Kwargs) -> Result<Vec<(&'static str, Vec<String>)>, Error> {
        let mut wanted: BTreeMap<&'static str, Vec<String>> =
            self.fixed.iter().map(|(name, value)| (*name, vec![value.clone()])).collect();
        if arguments.has(CASE) {
            // Another case has other axes of its own.
            wanted.retain(|name, _| !self.results.own.contains(name));
        }
        let mut given: Vec<&str> = arguments.args().collect();
        given.sort_unstable();
        for name in given {
            let value: Value = arguments.get(name)?;
            let values: Vec<Value> =
                if value.kind() == ValueKind::Seq { value.try_iter()?.collect() } else { vec![value] };
            let normalized = |value: &Value| self.results.normalized(name, &value.to_string()).map_err(error);
            let pairs = values.iter().map(normalized).collect::<Result<Vec<_>, Error>>()?;
            let Some((name, _)) = pairs.first() else { return Err(error(format!("{name}: is an empty list"))) };
            wanted.insert(name, pairs.iter().map(|(_, value)| value.clone()).collect());
        }
        Ok(wanted.into_iter().collect())
    }

    fn function(&self, name: &str) -> Option<Value> {
        let scope = self.clone();
        match name {
            "at" => Some(Value::from_function(move |arguments: Kwargs| {
                let index = scope.single(&scope.wanted(&arguments)?).map_err(error)?;
                Ok::<Value, Error>(scope.place(index))
            })),
            "all" => Some(Value::from_function(move |arguments: Kwargs| {
                let wanted = scope.wanted(&arguments)?;
                let measured = |index: &usize| scope.results.places[*index].metrics.is_ok();
                let found = scope.results.matching(&wanted).filter(measured).map(|index| scope.place(index));
                Ok::<Value, Error>(Value::from(found.collect::<Vec<_>>()))
            })),
            "here" => Some(self.meant().map_or_else(|why| Value::from(error(why)), |index| self.place(index))),
            "list" => Some(Value::from_function(list)),
            _ => None,
        }
    }
}

impl Object for Scope {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = key.as_str()?;
        if let Some(value) = self.extra.get(name).or_else(|| self.results.constants.get(name)) {
            return Some(value.clone());
        }
        if let Some(function) = self.function(name) {
            return Some(function);
        }
        if !is_known(self.results.kind, name) && !self.results.defines.contains_key(name) {
            return None;
        }
        match self.meant() {
            Ok(index) => self.results.value(index, name, &self.path),
            // Several points are meant that have this in common.
            Err(why) => match self.fixed.iter().find(|(known, _)| known.replace('-', "_") == name) {
                Some((_, value)) => Some(Value::from(value.clone())),
                None => Some(Value::from(error(why))),
            },
        }
    }
}

/// A number; a whole one is written without a fraction.
fn plain(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 { Value::from(number as i64) } else { Value::from(number) }
}

/// Each point's value of a parameter, and a number of it: `64 MiB: 1.234, 128 MiB: 1.250`.
fn list(points: Value, axis: String, name: String, digits: usize) -> Result<String, Error> {
    let mut parts = Vec::new();
    for point in points.try_iter()? {
        let number = f64::try_from(point.get_attr(&name)?)?;
        let text = match point.downcast_object_ref::<PlaceValue>() {
            Some(place) => place.axis(&axis),
            None => point.get_attr(&axis)?.to_string(),
        };
        parts.push(format!("{text}: {number:.digits$}", digits = digits.min(12)));
    }
    Ok(parts.join(", "))
}

impl PlaceValue {
    /// A value of an axis as people write it.
    fn axis(&self, name: &str) -> String {
        let point = &self.results.places[self.index].entry;
        let Some(parameter) = parameter(self.results.kind, name) else { return point.value(name).to_owned() };
        match point.point.number(parameter.name).filter(|_| parameter.unit() == Unit::Bytes) {
            Some(bytes) => size::human(bytes),
            None => point.value(parameter.name).to_owned(),
        }
    }
}
