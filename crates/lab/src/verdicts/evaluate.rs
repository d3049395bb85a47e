//! From a verdict file and results to rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::expectation::{Expectation, Tolerance};
use super::file::{Quantity, RowPlan, Share, VerdictFile};
use super::item::Item;
use super::row::Row;
use super::scope::{Results, Scope};
use super::verdict::{Baseline, Claim, Source};
use crate::experiment::{Experiment, Measurement, SEED};

impl VerdictFile {
    /// The rows of these results, with every seed that they have. What cannot be computed was not measured, and says why.
    #[must_use]
    pub fn rows(&self, experiment: &Experiment, measured: &[Measurement<'_>]) -> Vec<Row> {
        let results = Results::new(experiment, measured, self.defines.clone(), self.constants.clone());
        let mut seeds = results.values(SEED);
        seeds.sort_by_key(|seed| seed.parse::<u64>().unwrap_or(0));
        let items = seeds.iter().map(|seed| {
            let items = self.rows.iter().flat_map(|plan| self.items(plan, &results, seed));
            (seed.parse().unwrap_or(0), items.collect())
        });
        Row::merge(items.collect())
    }

    /// What the definitions of the file give for each of these points, as far as they are numbers.
    #[must_use]
    pub fn definitions(&self, experiment: &Experiment, measured: &[Measurement<'_>]) -> Vec<BTreeMap<String, f64>> {
        let results = Results::new(experiment, measured, self.defines.clone(), self.constants.clone());
        let of = |index: usize| {
            let number = |name: &String| Some((name.clone(), results.number(index, name)?));
            self.defines.keys().filter_map(number).collect()
        };
        (0..measured.len()).map(of).collect()
    }

    /// The items of one row, one for each combination of its values.
    fn items(&self, plan: &RowPlan, results: &Arc<Results>, seed: &str) -> Vec<Item> {
        let count = plan.with.values().map(Vec::len).product::<usize>();
        let combination = |index: usize| {
            let mut rest = index;
            let mut with = vec![(SEED, seed)];
            // The last name changes fastest.
            for (name, values) in plan.with.iter().rev() {
                with.push((name.as_str(), values[rest % values.len()].as_str()));
                rest /= values.len();
            }
            with
        };
        (0..count).map(|index| self.item(plan, &Scope::of_row(results, &combination(index)))).collect()
    }

    fn item(&self, plan: &RowPlan, scope: &Result<Scope, String>) -> Item {
        let label = (self.paper.as_str(), plan.figure.as_deref().unwrap_or(&self.figure));
        let text = |template: &str| match scope {
            Ok(scope) => scope.render(template),
            Err(why) => Err(why.clone()),
        };
        let (name, unnamed) = match text(&plan.item) {
            Ok(name) => (name, None),
            Err(why) => (plan.item.clone(), Some(format!("its name cannot be told: {why}"))),
        };
        let made = scope.as_ref().map_err(Clone::clone).and_then(|scope| {
            let claim = self.claim(plan, scope)?;
            Ok((claim, number(scope, &plan.ours)))
        });
        match made {
            Ok((claim, Ok(ours))) => {
                let why = text(&plan.why).unwrap_or_else(|why| format!("the conditions cannot be told: {why}"));
                let why = unnamed.map_or(why.clone(), |unnamed| format!("{unnamed}; {why}"));
                Item::new(label, name, claim, ours, why)
            }
            Ok((claim, Err(why))) => Item::missing(label, name, claim, why),
            // The paper's side is a number of the file but for one that a mistake hides.
            Err(why) => Item::missing(label, name, Expectation::Above(f64::NAN).claim(source(plan)), why),
        }
    }

    fn claim(&self, plan: &RowPlan, scope: &Scope) -> Result<Claim, String> {
        let mut claim = expectation(plan, scope)?.claim(source(plan));
        if let Some(side) = plan.better {
            claim = claim.better(side);
        }
        if let Some(terms) = &plan.on_paper_terms {
            // What cannot be computed is not known to be the paper's.
            claim = claim.on_paper_terms(scope.evaluate(terms).is_ok_and(|terms| terms.is_true()));
        }
        let Some(baseline) = plan.baseline.as_ref().and_then(|name| self.baselines.get(name)) else { return Ok(claim) };
        // Without a number of ours the row rests on nothing.
        let ours = number(scope, &baseline.ours).ok().filter(|ours| ours.is_finite());
        let paper = number(scope, &baseline.paper)?;
        let tolerance = Tolerance::OfValue(baseline.tolerance);
        let baseline = ours.map(|ours| Baseline { what: baseline.what.clone(), paper, ours, tolerance });
        Ok(claim.over(baseline))
    }
}

/// Where the paper's side of a row is from.
fn source(plan: &RowPlan) -> Source {
    match (&plan.stated, &plan.derived, &plan.chosen) {
        (Some(place), ..) => Source::Stated(place.clone()),
        (_, Some(how), _) => Source::Derived(how.clone()),
        (.., reason) => Source::Ours(reason.clone().unwrap_or_default()),
    }
}

fn expectation(plan: &RowPlan, scope: &Scope) -> Result<Expectation, String> {
    let number = |quantity: &Quantity| number(scope, quantity);
    let tolerance = match plan.tolerance {
        Some(Share::Value(share)) => Tolerance::OfValue(share),
        Some(Share::Gain(share)) => Tolerance::OfGain(share),
        None => Tolerance::OfValue(0.0),
    };
    let RowPlan { near, at_most, at_least, band, below, above, .. } = plan;
    Ok(if let Some(value) = near {
        Expectation::Near { value: number(value)?, tolerance }
    } else if let Some(value) = at_most {
        Expectation::AtMost { value: number(value)?, tolerance }
    } else if let Some(value) = at_least {
        Expectation::AtLeast { value: number(value)?, tolerance }
    } else if let Some([low, high]) = band {
        Expectation::Band { low: number(low)?, high: number(high)? }
    } else if let Some(bound) = below {
        Expectation::Below(number(bound)?)
    } else if let Some(bound) = above {
        Expectation::Above(number(bound)?)
    } else {
        return Err("has no relation".to_owned());
    })
}

/// The number of an expression.
fn number(scope: &Scope, quantity: &Quantity) -> Result<f64, String> {
    match quantity {
        Quantity::Number(number) => Ok(*number),
        Quantity::Expression(text) => {
            f64::try_from(scope.evaluate(text)?).map_err(|_| format!("`{text}` is no number"))
        }
    }
}
