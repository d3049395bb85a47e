//! `name:value,key=value,…`: how workloads and streams are written down.

use std::fmt::Display;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::settings::Settings;

/// A name with its options, taken apart. Every option must be asked for before [`finish`](Self::finish).
#[derive(Debug, Clone)]
pub(crate) struct Specification {
    text: String,
    name: String,
    /// Options not asked for yet; the value without a key has an empty one.
    options: Vec<(String, String)>,
}

impl Specification {
    /// Takes a specification apart.
    pub(crate) fn parse(text: &str) -> Result<Specification> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut options: Vec<(String, String)> = Vec::new();
        for (index, part) in rest.split(',').filter(|part| !part.is_empty()).enumerate() {
            let (key, value) = match part.split_once('=') {
                Some((key, value)) => (key, value),
                None if index == 0 => ("", part),
                None => {
                    return Err(Error::Specification(format!("{text}: `{part}` is no option; write `key=value`")));
                }
            };
            if options.iter().any(|(known, _)| known == key) {
                return Err(Error::Specification(format!("{text}: `{key}` is given twice")));
            }
            options.push((key.to_owned(), value.to_owned()));
        }
        Ok(Specification { text: text.to_owned(), name: name.to_owned(), options })
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// All of it, as it was written.
    pub(crate) fn whole(&self) -> &str {
        &self.text
    }

    /// Takes every option that nobody asked for yet.
    pub(crate) fn take_all(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.options)
    }

    /// The text of an option, if it is given; an empty key is the value right behind the colon.
    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        let index = self.options.iter().position(|(known, _)| known == key)?;
        Some(self.options.remove(index).1)
    }

    /// A number from `low` to `high`, or the default.
    pub(crate) fn number<T>(&mut self, key: &str, default: T, low: T, high: T) -> Result<T>
    where
        T: FromStr + PartialOrd + Display + Copy,
    {
        let Some(value) = self.text(key) else { return Ok(default) };
        match value.parse::<T>() {
            Ok(number) if number >= low && number <= high => Ok(number),
            _ => Err(self.wrong(key, &value, format_args!("a number from {low} to {high}"))),
        }
    }

    /// A size in bytes: `4096`, `64K`, `1.5M`, `12%` of the volume; or the default.
    pub(crate) fn bytes(&mut self, key: &str, default: u64, settings: &Settings) -> Result<u64> {
        let Some(value) = self.text(key) else { return Ok(default) };
        let size = if let Some(share) = value.strip_suffix('%') {
            share.parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share)).map(|share| settings.share(share))
        } else {
            let digits = value.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
            let shift = match value[digits.len()..].to_ascii_uppercase().as_str() {
                "" => Some(0_u32),
                "K" | "KIB" => Some(10),
                "M" | "MIB" => Some(20),
                "G" | "GIB" => Some(30),
                "T" | "TIB" => Some(40),
                _ => None,
            };
            shift.and_then(|shift| {
                let number = digits.parse::<f64>().ok().filter(|number| (0.0..1e12).contains(number))?;
                Some((number * (1_u64 << shift) as f64) as u64)
            })
        };
        size.ok_or_else(|| self.wrong(key, &value, format_args!("a size such as 64K, 8M or 12%")))
    }

    /// Complains about options that nobody asked for.
    pub(crate) fn finish(&self) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some((key, value)) if key.is_empty() => {
                Err(Error::Specification(format!("{}: `{}` takes no value `{value}`", self.text, self.name)))
            }
            Some((key, _)) => {
                Err(Error::Specification(format!("{}: `{}` has no option `{key}`", self.text, self.name)))
            }
        }
    }

    fn wrong(&self, key: &str, value: &str, wanted: std::fmt::Arguments<'_>) -> Error {
        let option = if key.is_empty() { "value" } else { key };
        Error::Specification(format!("{}: {option} `{value}` is not {wanted}", self.text))
    }
}
