//! The points of an experiment, case by case, and what tells them apart.

use std::collections::HashSet;

use super::file::{CASE, Case, Experiment};
use super::point::Point;

/// The parameter whose values are repetitions.
pub const SEED: &str = "seed";

/// The settings of a case with their values.
type Product<'a> = Vec<(&'static str, &'a [String])>;

/// A point, as part of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The name of the case; empty where the experiment has none.
    pub case: String,
    /// The point.
    pub point: Point,
}

impl Entry {
    /// The value of a parameter, or the case by the name [`CASE`].
    #[must_use]
    pub fn value(&self, name: &str) -> &str {
        if name == CASE { &self.case } else { self.point.value(name) }
    }
}

impl Experiment {
    /// All points of all cases in their order, the last setting changing fastest. A point that two cases have comes with each.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let entries = self.products().into_iter().flat_map(|(case, settings)| {
            let count = settings.iter().map(|(_, values)| values.len()).product::<usize>();
            (0..count).filter_map(move |index| {
                let point = Point::new(self.kind, chosen(&settings, index)).ok()?;
                Some(Entry { case: case.to_owned(), point })
            })
        });
        entries.collect()
    }

    /// Why a point cannot be, although each of its values can.
    pub(super) fn wrong_point(&self) -> Option<String> {
        self.products().into_iter().find_map(|(_, settings)| {
            let count = settings.iter().map(|(_, values)| values.len()).product::<usize>();
            (0..count).find_map(|index| Point::new(self.kind, chosen(&settings, index)).err())
        })
    }

    /// All points, each once, in the order of the entries.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let mut known = HashSet::new();
        self.entries().into_iter().map(|entry| entry.point).filter(|point| known.insert(point.clone())).collect()
    }

    /// The number of entries; none if it is too large for a number.
    pub(super) fn size(&self) -> Option<usize> {
        let product = |(_, settings): (&str, Product<'_>)| {
            settings.iter().try_fold(1_usize, |count, (_, values)| count.checked_mul(values.len()))
        };
        self.products().into_iter().map(product).try_fold(0_usize, |sum, count| sum.checked_add(count?))
    }

    /// What tells entries apart, apart from what their case says: parameters with several values in all cases, in the order of the
    /// file; [`CASE`] if there are several; parameters with several values in one case.
    #[must_use]
    pub fn axes(&self) -> Vec<&'static str> {
        let mut axes = self.common_axes();
        if self.cases.len() > 1 {
            axes.push(CASE);
        }
        for (_, settings) in self.products() {
            for (name, values) in settings {
                if values.len() > 1 && !axes.contains(&name) {
                    axes.push(name);
                }
            }
        }
        axes
    }

    /// Those parameters that have several values whatever the case is, in the order of the file.
    #[must_use]
    pub fn common_axes(&self) -> Vec<&'static str> {
        self.settings.iter().filter(|(_, values)| values.len() > 1).map(|(name, _)| *name).collect()
    }

    /// Each case with all its settings: those of the file, some replaced, and its own.
    fn products(&self) -> Vec<(&str, Product<'_>)> {
        let all = || self.settings.iter().map(|(name, values)| (*name, values.as_slice()));
        if self.cases.is_empty() {
            return vec![("", all().collect())];
        }
        self.cases.iter().map(|case| (case.name.as_str(), self.settings_of(case))).collect()
    }

    /// The settings of one case.
    fn settings_of<'a>(&'a self, case: &'a Case) -> Product<'a> {
        let find = |settings: &'a [(&'static str, Vec<String>)], name: &str| {
            settings.iter().find(|(known, _)| *known == name).map(|(_, values)| values.as_slice())
        };
        let common = self.settings.iter().map(|(name, values)| (*name, find(&case.settings, name).unwrap_or(values)));
        let own = case.settings.iter().filter(|(name, _)| find(&self.settings, name).is_none());
        common.chain(own.map(|(name, values)| (*name, values.as_slice()))).collect()
    }
}

/// The values of one point of a product.
fn chosen<'a>(settings: &[(&'static str, &'a [String])], index: usize) -> Vec<(&'static str, &'a str)> {
    let mut rest = index;
    let mut chosen = Vec::with_capacity(settings.len());
    for (name, values) in settings.iter().rev() {
        chosen.push((*name, values[rest % values.len()].as_str()));
        rest /= values.len();
    }
    chosen
}
