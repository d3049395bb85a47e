//! Values in the plots of an experiment file that were not measured here: what a paper states, beside the curve.

use serde::Deserialize;
use toml::Value;

use super::file::CASE;
use super::parameter::Parameter;

/// A value that somebody states, drawn into a plot.
#[derive(Debug, Clone, PartialEq)]
pub struct StatedValue {
    /// The value of the plot's x parameter it belongs to; `None`: all.
    pub x: Option<String>,
    /// The value, in the unit of the plot's metrics.
    pub y: f64,
    /// Who says so, and what it is.
    pub text: String,
}

/// As it is written: `{ x = 85, y = 4.21, text = "paper, figure 7" }`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMark {
    x: Option<Value>,
    y: Value,
    text: String,
}

impl RawMark {
    /// Checks a mark of a plot over `parameter`, or over cases, which have these values in the file, on an axis that may be logarithmic.
    ///
    /// # Errors
    /// A text that names the field and says what is wrong.
    pub(super) fn check(
        self,
        parameter: Option<&Parameter>,
        values: &[String],
        scalar: impl Fn(&Value) -> Result<String, String>,
        is_logarithmic: bool,
    ) -> Result<StatedValue, String> {
        let y = match self.y {
            Value::Integer(number) => number as f64,
            Value::Float(number) if number.is_finite() => number,
            other => return Err(format!("y: `{other}` is not a number")),
        };
        if is_logarithmic && y <= 0.0 {
            return Err(format!("y: {y} has no place on a logarithmic axis"));
        }
        if self.text.trim().is_empty() {
            return Err("text: is empty; it says who states the value".to_owned());
        }
        let normalize = |text: String| parameter.map_or(Ok(text.clone()), |parameter| parameter.normalize(&text));
        let name = parameter.map_or(CASE, |parameter| parameter.name);
        let x = self.x.map(|x| {
            let x = scalar(&x).and_then(normalize).map_err(|why| format!("x: {why}"))?;
            let unknown = || format!("x: `{x}` is no value of {name} here; there are {}", values.join(", "));
            if values.contains(&x) { Ok(x) } else { Err(unknown()) }
        });
        Ok(StatedValue { x: x.transpose()?, y, text: self.text })
    }
}
