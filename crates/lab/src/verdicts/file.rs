//! Verdict files: the rows of an experiment, checked.
//!
//! The file `NAME.verdict.toml` lies beside the experiment `NAME.toml`. Its texts are templates and its numbers may be expressions, in
//! the language of Jinja, over what the `scope` of a point has.
//!
//! ```toml
//! paper = "scj"
//! figure = "8"
//! title = "speed of all workloads"
//!
//! [constants]                       # what all expressions see
//! loads = ["fileserver", "varmail"]
//!
//! [define]                          # numbers of each point, by others
//! speed = "at(case='baseline').elapsed_ns / elapsed_ns"
//!
//! [[row]]                           # a row for each combination of the values of `with`
//! with = { workload = ["fileserver", "varmail"], case = ["journal"] }
//! item = "{{ workload }}: speed over the baseline's"
//! ours = "speed"
//! band = [1.13, 1.63]
//! stated = "section VI.E"
//! better = "more"
//! why = "{{ victims }} victims"
//!
//! [[plot]]                          # as in the experiment; y may be a definition
//! title = "Speed over the baseline's"
//! shape = "bars"
//! x = "workload"
//! y = ["speed"]
//! mark = [{ y = 1.13, text = "the paper's least, section VI.E" }]
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use minijinja::value::Serde;
use minijinja::{Environment, Value};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::expectation::Side;
use super::scope;
use crate::experiment::{Experiment, FileError, Kind, PlotPlan, RawPlot, Wrong};

/// More rows of one `[[row]]` than this are a mistake in the file.
const MOST_COMBINATIONS: usize = 1000;
/// So are more rows, and more definitions, of a file.
const MOST: usize = 500;

/// A number, or an expression for one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Quantity {
    /// The number itself.
    Number(f64),
    /// An expression.
    Expression(String),
}

/// How far ours may be off, as a share.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Share {
    /// Of the paper's value.
    Value(f64),
    /// Of the paper's gain.
    Gain(f64),
}

/// A number of the baseline that rows are a ratio to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BaselinePlan {
    /// What number, with its unit.
    pub what: String,
    /// The paper's.
    pub paper: Quantity,
    /// Ours.
    pub ours: Quantity,
    /// How far ours may be off, as a share of the paper's.
    pub tolerance: f64,
}

/// A row for each combination of values.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowPlan {
    /// Axes of the experiment that the row is of, and names that only expressions use, with their values.
    #[serde(default, deserialize_with = "words")]
    pub with: BTreeMap<String, Vec<String>>,
    /// The figure that the row belongs to, where it is not that of the file.
    pub figure: Option<String>,
    /// What is measured, with its unit.
    pub item: String,
    /// Our number.
    pub ours: Quantity,
    /// One of the six relations.
    pub near: Option<Quantity>,
    pub at_most: Option<Quantity>,
    pub at_least: Option<Quantity>,
    pub band: Option<[Quantity; 2]>,
    pub below: Option<Quantity>,
    pub above: Option<Quantity>,
    /// With the first three relations.
    pub tolerance: Option<Share>,
    /// One of the three sources: where, how, why.
    pub stated: Option<String>,
    pub derived: Option<String>,
    pub chosen: Option<String>,
    /// The side on which a number is better.
    pub better: Option<Side>,
    /// Whether ours is the paper's subject on its own terms: an expression.
    pub on_paper_terms: Option<String>,
    /// The name of a baseline.
    pub baseline: Option<String>,
    /// Under what conditions ours was measured.
    #[serde(default)]
    pub why: String,
}

/// Lists of texts and numbers, all as texts.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let lists = BTreeMap::<String, Vec<toml::Value>>::deserialize(deserializer)?;
    let word = |name: &str, value: &toml::Value| match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        other => Err(D::Error::custom(format_args!("with.{name}: `{other}` is neither a text nor a number"))),
    };
    let list = |(name, values): (String, Vec<toml::Value>)| {
        let words = values.iter().map(|value| word(&name, value)).collect::<Result<Vec<_>, _>>()?;
        Ok((name, words))
    };
    lists.into_iter().map(list).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    paper: String,
    figure: String,
    title: String,
    #[serde(default)]
    constants: BTreeMap<String, toml::Value>,
    #[serde(default)]
    define: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    baseline: BTreeMap<String, Spanned<BaselinePlan>>,
    row: Vec<Spanned<RowPlan>>,
    #[serde(default)]
    plot: Vec<Spanned<RawPlot>>,
}

/// A checked verdict file.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictFile {
    /// The paper's short name.
    pub paper: String,
    /// The figure's name in the paper.
    pub figure: String,
    /// What it shows.
    pub title: String,
    pub(super) constants: BTreeMap<String, Value>,
    pub(super) defines: BTreeMap<String, String>,
    pub(super) baselines: BTreeMap<String, BaselinePlan>,
    pub(super) rows: Vec<RowPlan>,
    /// Plots that show definitions too, with the paper's values in them.
    pub plots: Vec<PlotPlan>,
}

impl VerdictFile {
    /// Checks the text of a file against its experiment; `path` is for messages.
    ///
    /// # Errors
    /// [`FileError`], one line that names the file, the line and the field.
    pub fn parse(text: &str, path: &Path, experiment: &Experiment) -> Result<VerdictFile, FileError> {
        let mut raw: Raw = toml::from_str(text)
            .map_err(|error| FileError::at(path, text, error.span().map_or(0, |span| span.start), error.message()))?;
        if raw.row.len() > MOST || raw.define.len() > MOST {
            let why = format!("there are more than {MOST} rows or definitions");
            return Err(FileError::at(path, text, 0, &why));
        }
        let check = Check::new(&raw, experiment);
        for (name, define) in &raw.define {
            let wrong = |why: String| FileError::at(path, text, define.span().start, &format!("define.{name}: {why}"));
            check.expression(define.get_ref(), &BTreeMap::new()).map_err(wrong)?;
        }
        for row in &raw.row {
            let wrong = |why: String| FileError::at(path, text, row.span().start, &format!("row: {why}"));
            check.row(row.get_ref(), &raw.baseline).map_err(wrong)?;
        }
        let plots = std::mem::take(&mut raw.plot).into_iter().map(|plot| {
            let checked = plot.into_inner().check(experiment, &|name| raw.define.contains_key(name));
            checked.map_err(|Wrong(at, reason)| FileError::at(path, text, at, &reason))
        });
        let plots = plots.collect::<Result<Vec<_>, FileError>>()?;
        Ok(VerdictFile {
            plots,
            paper: raw.paper,
            figure: raw.figure,
            title: raw.title,
            constants: raw.constants.iter().map(|(name, value)| (name.clone(), Value::from(Serde(value)))).collect(),
            defines: raw.define.into_iter().map(|(name, define)| (name, define.into_inner())).collect(),
            baselines: raw.baseline.into_iter().map(|(name, one)| (name, one.into_inner())).collect(),
            rows: raw.row.into_iter().map(Spanned::into_inner).collect(),
        })
    }
}

/// What expressions may name.
struct Check<'a> {
    environment: Environment<'static>,
    kind: Kind,
    raw: &'a Raw,
}

impl<'a> Check<'a> {
    fn new(raw: &'a Raw, experiment: &Experiment) -> Check<'a> {
        Check { environment: scope::environment(), kind: experiment.kind, raw }
    }

    fn row(&self, row: &RowPlan, baselines: &BTreeMap<String, Spanned<BaselinePlan>>) -> Result<(), String> {
        let fields = || {
            let relations = [&row.near, &row.at_most, &row.at_least, &row.below, &row.above];
            relations.into_iter().flatten().chain(row.band.iter().flatten())
        };
        let relations = fields().count() - usize::from(row.band.is_some());
        if relations != 1 {
            return Err("has to have one of near, at_most, at_least, band, below and above".to_owned());
        }
        let takes_tolerance = row.near.is_some() || row.at_most.is_some() || row.at_least.is_some();
        if takes_tolerance != row.tolerance.is_some() {
            return Err("has to have a tolerance with near, at_most and at_least, and none with the others".to_owned());
        }
        if [&row.stated, &row.derived, &row.chosen].into_iter().flatten().count() != 1 {
            return Err("has to have one of stated, derived and chosen".to_owned());
        }
        if let Some([Quantity::Number(low), Quantity::Number(high)]) = &row.band
            && low > high
        {
            return Err(format!("band: {low} is above {high}"));
        }
        if let Some(Share::Value(share) | Share::Gain(share)) = row.tolerance
            && share < 0.0
        {
            return Err(format!("tolerance: {share} is below 0"));
        }
        let combinations = row.with.values().try_fold(1_usize, |count, values| count.checked_mul(values.len()));
        if combinations.is_none_or(|count| count > MOST_COMBINATIONS) {
            return Err(format!("with: has more than {MOST_COMBINATIONS} combinations"));
        }
        if let Some((name, _)) = row.with.iter().find(|(_, values)| values.is_empty()) {
            return Err(format!("with.{name}: is an empty list"));
        }
        let field = |name: &'static str| move |why: String| format!("{name}: {why}");
        for expression in std::iter::once(&row.ours).chain(fields()) {
            self.quantity(expression, &row.with)?;
        }
        if let Some(terms) = &row.on_paper_terms {
            self.expression(terms, &row.with).map_err(field("on_paper_terms"))?;
        }
        self.template(&row.item, &row.with).map_err(field("item"))?;
        self.template(&row.why, &row.with).map_err(field("why"))?;
        if let Some(name) = &row.baseline {
            let plan = baselines.get(name).ok_or_else(|| format!("baseline: there is no `{name}`"))?.get_ref();
            for quantity in [&plan.paper, &plan.ours] {
                self.quantity(quantity, &row.with).map_err(|why| format!("baseline.{name}: {why}"))?;
            }
        }
        Ok(())
    }

    fn quantity(&self, quantity: &Quantity, with: &BTreeMap<String, Vec<String>>) -> Result<(), String> {
        match quantity {
            Quantity::Number(_) => Ok(()),
            Quantity::Expression(text) => self.expression(text, with).map_err(|why| format!("`{text}`: {why}")),
        }
    }

    fn expression(&self, text: &str, with: &BTreeMap<String, Vec<String>>) -> Result<(), String> {
        let expression = self.environment.compile_expression(text).map_err(|error| scope::message(&error))?;
        self.known(expression.undeclared_variables(false), with)
    }

    fn template(&self, text: &str, with: &BTreeMap<String, Vec<String>>) -> Result<(), String> {
        let template = self.environment.template_from_str(text).map_err(|error| scope::message(&error))?;
        self.known(template.undeclared_variables(false), with)
    }

    /// Whether all these names mean something.
    fn known(
        &self,
        names: impl IntoIterator<Item = String>,
        with: &BTreeMap<String, Vec<String>>,
    ) -> Result<(), String> {
        let means = |name: &str| {
            with.contains_key(name)
                || self.raw.constants.contains_key(name)
                || self.raw.define.contains_key(name)
                || scope::is_known(self.kind, name)
                || self.environment.globals().any(|(known, _)| known == name)
        };
        // In the same order whenever the file is read.
        match names.into_iter().filter(|name| !means(name)).min() {
            Some(unknown) => Err(format!("`{unknown}` is no metric, parameter, constant or definition")),
            None => Ok(()),
        }
    }
}
