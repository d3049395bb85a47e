//! Results of points: one JSON line each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Number, Value};

use super::inputs::Inputs;
use super::kinds::Kind;
use super::parameter::Measured;
use super::point::Point;

/// A point with what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The point.
    pub point: Point,
    /// The files that it read, by parameter: their content, as `LENGTH:CRC32`. A record of an earlier version has none.
    pub inputs: BTreeMap<String, String>,
    /// Metrics by name, or why the point failed, in one line.
    pub outcome: Result<BTreeMap<String, f64>, String>,
}

/// The line of a result, as it is read and, with [`Ordered`], written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<M> {
    kind: String,
    parameters: M,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    inputs: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metrics: Option<M>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Names and values that keep their order.
struct Ordered(Vec<(&'static str, Value)>);

impl Serialize for Ordered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Record {
    /// Runs a point, in this process. Values are rounded to twelve significant digits, so that reading a line gives back what was written.
    #[must_use]
    pub fn of(point: Point) -> Record {
        let metrics = |measured: Measured| {
            measured.values().iter().map(|&(name, value)| (name.to_owned(), rounded(value))).collect()
        };
        let inputs = Inputs::default().of(&point);
        let outcome = point.run().map(metrics);
        let record = Record { point, inputs, outcome };
        if record.has_other_inputs(&mut Inputs::default()) {
            return Record { outcome: Err("a file that it reads changed while it ran".to_owned()), ..record };
        }
        record
    }

    /// A point that did not run to its end.
    pub(super) fn failed(point: Point, why: String) -> Record {
        Record { point, inputs: BTreeMap::new(), outcome: Err(why) }
    }

    /// Whether a file that it read has other content now. One that is gone has not, and of a record of an earlier version that is not known.
    pub(super) fn has_other_inputs(&self, files: &mut Inputs) -> bool {
        let now = files.of(&self.point);
        self.inputs.iter().any(|(name, then)| now.get(name).is_some_and(|now| now != then))
    }

    /// The value of a metric.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.outcome.as_ref().ok()?.get(name).copied()
    }

    /// The line, without its end: metrics in the order of the kind, whole numbers without a fraction.
    #[must_use]
    pub fn to_line(&self) -> String {
        let parameters = self.point.parameters().map(|(name, value)| (name, Value::from(value)));
        let parameters = Ordered(parameters.collect());
        let kind = self.point.kind();
        let metrics = self.outcome.as_ref().ok().map(|_| {
            let known = kind.metrics().iter();
            let measured = known.filter_map(|metric| Some((metric.name, json_number(self.metric(metric.name)?))));
            Ordered(measured.collect())
        });
        let error = self.outcome.as_ref().err().cloned();
        let line = Line { kind: kind.name().to_owned(), parameters, inputs: self.inputs.clone(), metrics, error };
        // Texts and finite numbers always have a JSON form.
        serde_json::to_string(&line).unwrap_or_default()
    }

    /// Reads a line.
    ///
    /// # Errors
    /// Why it is none.
    pub fn from_line(text: &str) -> Result<Record, String> {
        let line: Line<BTreeMap<String, Value>> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let kind: Kind = line.kind.parse()?;
        let parameters = line.parameters.iter().map(|(name, value)| match value {
            Value::String(text) => {
                let (name, text) = (name.as_str(), text.as_str());
                let now = kind.renamed(name, text);
                Ok(now.map_or((name, text.to_owned()), |(name, text)| (name, text)))
            }
            _ => Err(format!("{name} is no text")),
        });
        let parameters = parameters.collect::<Result<Vec<_>, String>>()?;
        let given = parameters.iter().map(|(name, text)| (*name, text.as_str()));
        let point = Point::new(kind, given.chain(kind.before(&parameters)))?;
        let outcome = match (line.metrics, line.error) {
            (Some(metrics), None) => {
                let value = |(name, value): (String, Value)| match value.as_f64() {
                    Some(number) => Ok((name, number)),
                    None => Err(format!("{name} is no number")),
                };
                Ok(metrics.into_iter().map(value).collect::<Result<_, String>>()?)
            }
            (None, Some(error)) => Err(error),
            _ => return Err("there are neither metrics nor an error, or both".to_owned()),
        };
        Ok(Record { point, inputs: line.inputs, outcome })
    }
}

/// Whether a value is a whole number that an `f64` holds exactly: below 2^53.
fn is_whole(value: f64) -> bool {
    value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0
}

/// A value to twelve significant digits; whole numbers stay as they are. The parser of JSON is exact for so few digits only: with
/// more, a result that is read and written again could differ in its last digit.
fn rounded(value: f64) -> f64 {
    if is_whole(value) { value } else { format!("{value:.11e}").parse().unwrap_or(value) }
}

fn json_number(value: f64) -> Value {
    if is_whole(value) {
        return Value::Number(Number::from(value as i64));
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}
