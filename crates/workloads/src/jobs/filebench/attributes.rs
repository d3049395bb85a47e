//! Attributes: `name=value`, or `name` alone, between commas.

use super::super::{Line, Source};
use super::values::Amount;
use crate::error::{Error, Result};

/// What an attribute or a variable has.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A name, a path, a text.
    Text(String),
    Amount(Amount),
    /// There, without a value.
    Present,
}

/// Attributes that are not taken yet.
pub(super) struct Attributes<'s> {
    pub(super) source: &'s Source,
    /// What they are of, for messages.
    pub(super) of: String,
    pub(super) line: Line,
    pub(super) given: Vec<(Line, String, Value)>,
}

impl Attributes<'_> {
    pub(super) fn error(&self, line: Line, what: &str) -> Error {
        self.source.error(line, format_args!("{}: {what}", self.of))
    }

    fn take(&mut self, name: &str) -> Option<(Line, Value)> {
        let index = self.given.iter().position(|given| given.1 == name)?;
        let (line, _, value) = self.given.remove(index);
        Some((line, value))
    }

    /// A text.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<(Line, String)>> {
        match self.take(name) {
            None => Ok(None),
            Some((line, Value::Text(text))) => Ok(Some((line, text))),
            Some((line, Value::Amount(amount))) => match amount.constant() {
                // A name may look like a number.
                Some(number) => Ok(Some((line, number.to_string()))),
                None => Err(self.error(line, &format!("{name} is not a text"))),
            },
            Some((line, Value::Present)) => Err(self.error(line, &format!("{name} has no value"))),
        }
    }

    /// A number that may be a random variable.
    pub(super) fn amount(&mut self, name: &str) -> Result<Option<Amount>> {
        match self.take(name) {
            None => Ok(None),
            Some((_, Value::Amount(amount))) => Ok(Some(amount)),
            Some((line, _)) => Err(self.error(line, &format!("{name} is not a number"))),
        }
    }

    /// A fixed number from `low` to `high`.
    pub(super) fn number(&mut self, name: &str, default: u64, low: u64, high: u64) -> Result<u64> {
        let line = self.given.iter().find(|given| given.1 == name).map_or(self.line, |given| given.0);
        let Some(amount) = self.amount(name)? else { return Ok(default) };
        let number = amount.constant().filter(|number| (low..=high).contains(number));
        number.ok_or_else(|| self.error(line, &format!("{name} is not a number from {low} to {high}")))
    }

    /// Whether it is there, and neither `false` nor 0.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool> {
        match self.take(name) {
            None => Ok(false),
            Some((_, Value::Present)) => Ok(true),
            Some((_, Value::Text(text))) if text == "true" => Ok(true),
            Some((_, Value::Text(text))) if text == "false" => Ok(false),
            Some((_, Value::Amount(amount))) if amount.constant().is_some() => Ok(amount.constant() != Some(0)),
            Some((line, _)) => Err(self.error(line, &format!("{name} is not true or false"))),
        }
    }

    /// A share in percent: all without a value, nothing without the attribute.
    pub(super) fn percent(&mut self, name: &str) -> Result<u64> {
        match self.given.iter().find(|given| given.1 == name) {
            Some((_, _, Value::Present)) => self.flag(name).map(|_| 100),
            Some((_, _, Value::Text(_))) => self.flag(name).map(|all| if all { 100 } else { 0 }),
            _ => self.number(name, 0, 0, 100),
        }
    }

    /// Takes what says nothing about the operations.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        self.given.retain(|given| !names.contains(&given.1.as_str()));
    }

    /// Complains about attributes that nobody took.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self.given.first() {
            None => Ok(()),
            Some((line, name, _)) => {
                let (line, what) = (*line, format!("attribute `{name}` is not known or not supported"));
                Err(self.error(line, &what))
            }
        }
    }
}
