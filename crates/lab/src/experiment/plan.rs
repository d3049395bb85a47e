//! The plots of an experiment: what a file asks for, checked.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::file::{CASE, Case, Experiment, Wrong, metric, scalar, setting};
use super::parameter::Parameter;
use super::stated::{RawMark, StatedValue};

/// Stated values of a plot: one for each letter.
const MOST_MARKS: usize = 26;

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
#[derive(Debug, Clone, PartialEq)]
pub struct PlotPlan {
    /// Its title.
    pub title: String,
    /// How it is drawn.
    pub shape: Shape,
    /// The parameter along the bottom, or that the groups of bars differ in; [`CASE`] for the cases.
    pub x: &'static str,
    /// The metrics shown, and the definitions of a verdict file.
    pub y: Vec<String>,
    /// Only points with one of these values are shown; [`CASE`] for the cases.
    pub only: Vec<(&'static str, Vec<String>)>,
    /// Whether x, and whether y is logarithmic.
    pub logarithmic: (bool, bool),
    /// Values that were not measured here.
    pub stated: Vec<StatedValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPlot {
    title: String,
    #[serde(default)]
    shape: Shape,
    x: Spanned<String>,
    y: Vec<Spanned<String>>,
    #[serde(default)]
    only: BTreeMap<Spanned<String>, Spanned<Value>>,
    #[serde(default)]
    logarithmic: Vec<Spanned<String>>,
    #[serde(default)]
    mark: Vec<Spanned<RawMark>>,
}

impl RawPlot {
    /// Checks a plot of an experiment; `defined` knows numbers of points beside the metrics of its kind.
    ///
    /// # Errors
    /// The place in the file, and what is wrong there.
    pub(crate) fn check(self, experiment: &Experiment, defined: &dyn Fn(&str) -> bool) -> Result<PlotPlan, Wrong> {
        let kind = experiment.kind;
        let x = experiment.named(&self.x, "x")?;
        if self.y.is_empty() {
            return Err(Wrong(self.x.span().start, "plot.y: names no metric".to_owned()));
        }
        let number = |name: &Spanned<String>| match defined(name.get_ref()) {
            true => Ok(name.get_ref().clone()),
            false => metric(kind, name, "plot.y").map(str::to_owned),
        };
        let y = self.y.iter().map(number).collect::<Result<Vec<_>, Wrong>>()?;
        let parameter = kind.parameters().iter().find(|parameter| parameter.name == x);
        if self.shape == Shape::Lines && !parameter.is_some_and(Parameter::is_numeric) {
            let why = format!("plot.x: {x} has no numbers; use shape = \"bars\"");
            return Err(Wrong(self.x.span().start, why));
        }
        let mut only = Vec::new();
        for (name, value) in &self.only {
            let wrong = |why: String| Wrong(name.span().start, format!("plot.only.{}: {why}", name.get_ref()));
            only.push(match experiment.named(name, "only")? {
                CASE => (CASE, known_cases(&experiment.cases, value.get_ref()).map_err(wrong)?),
                name => setting(kind, name, value.get_ref()).map_err(wrong)?,
            });
        }
        let logarithmic = logarithmic(&self.logarithmic)?;
        if let Some(one_more) = self.mark.get(MOST_MARKS) {
            return Err(Wrong(one_more.span().start, format!("plot.mark: there are more than {MOST_MARKS}")));
        }
        let values = experiment.values(x);
        let stated = self.mark.into_iter().map(|mark| {
            let at = mark.span().start;
            let checked = mark.into_inner().check(parameter, &values, scalar, logarithmic.1);
            checked.map_err(|why| Wrong(at, format!("plot.mark.{why}")))
        });
        let stated = stated.collect::<Result<_, _>>()?;
        Ok(PlotPlan { title: self.title, shape: self.shape, x, y, only, logarithmic, stated })
    }
}

impl Experiment {
    /// The parameter of this name, or [`CASE`] if there are cases.
    fn named(&self, name: &Spanned<String>, field: &str) -> Result<&'static str, Wrong> {
        if name.get_ref() == CASE && !self.cases.is_empty() {
            return Ok(CASE);
        }
        match self.kind.parameter_index(name.get_ref()) {
            Ok(index) => Ok(self.kind.parameters()[index].name),
            Err(why) => Err(Wrong(name.span().start, format!("plot.{field}: {why}"))),
        }
    }

    /// The values that a parameter, or the case, has in any point, in their order.
    fn values(&self, name: &str) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for entry in self.entries() {
            let value = entry.value(name);
            if values.iter().all(|known| known != value) {
                values.push(value.to_owned());
            }
        }
        values
    }
}

/// Which axes are logarithmic: x, and y.
fn logarithmic(names: &[Spanned<String>]) -> Result<(bool, bool), Wrong> {
    let mut logarithmic = (false, false);
    for name in names {
        match name.get_ref().as_str() {
            "x" => logarithmic.0 = true,
            "y" => logarithmic.1 = true,
            other => return Err(Wrong(name.span().start, format!("plot.logarithmic: `{other}` is neither x nor y"))),
        }
    }
    Ok(logarithmic)
}

/// The names of cases, one or a list of them.
fn known_cases(cases: &[Case], value: &Value) -> Result<Vec<String>, String> {
    let names = match value {
        Value::Array(names) => names.iter().map(scalar).collect::<Result<Vec<_>, _>>()?,
        name => vec![scalar(name)?],
    };
    match names.iter().find(|name| cases.iter().all(|case| case.name != **name)) {
        Some(unknown) => Err(format!("there is no case `{unknown}`")),
        None => Ok(names),
    }
}
