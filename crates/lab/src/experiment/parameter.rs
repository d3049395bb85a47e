//! What a kind of point can be asked for, and what it measures.

use basalt_flash::device::presets;

use crate::report::Unit;
use crate::size;
use crate::volume::Placing;

/// What values a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    /// Any text; the point itself says what is wrong with it.
    Text,
    /// A size in bytes: `4096`, `512M`, `1.5G`.
    Size {
        /// The least, in bytes.
        least: u64,
    },
    /// A size in bytes, or a share of the volume's: `12.5%`.
    Share {
        /// The least size, in bytes.
        least: u64,
    },
    /// A whole number.
    Number {
        /// The least.
        least: u64,
        /// The largest.
        largest: u64,
    },
    /// A whole number of percent.
    Percent {
        /// The least.
        least: u64,
        /// The largest.
        largest: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A device: a preset, or the path of a TOML file.
    Device,
    /// A placement policy.
    Placement,
    /// A placement policy, or one that has to be told what is written.
    Placing,
    /// A victim policy.
    Victim,
}

impl Form {
    /// The only values it takes; `None` if any text, size or number will do.
    fn words(self) -> Option<Vec<&'static str>> {
        match self {
            Form::Choice(words) => Some(words.to_vec()),
            Form::Placement => Some(basalt_schemes::placements().map(|policy| policy.name).collect()),
            Form::Placing => Some(Placing::all().map(|(name, _)| name).collect()),
            Form::Victim => Some(basalt_schemes::victims().map(|policy| policy.name()).collect()),
            Form::Text | Form::Device | Form::Size { .. } | Form::Share { .. } => None,
            Form::Number { .. } | Form::Percent { .. } => None,
        }
    }
}

/// A parameter of a kind of point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// Its name in files and on command lines.
    pub name: &'static str,
    /// What it has when nobody says; an empty text means that the point chooses.
    pub default: &'static str,
    /// What values it takes.
    pub form: Form,
    /// What it is, in a few words.
    pub about: &'static str,
}

impl Parameter {
    /// Reads a value and writes it in the one way that results and command lines have it.
    ///
    /// # Errors
    /// A text that says what is wrong with the value.
    pub fn normalize(&self, text: &str) -> Result<String, String> {
        if text == self.default {
            return Ok(text.to_owned());
        }
        match self.form {
            Form::Text | Form::Device if text.is_empty() => Err("is empty".to_owned()),
            Form::Text | Form::Device if text.contains(['\n', '\r', '\0']) => {
                Err("contains a control character".to_owned())
            }
            Form::Text => Ok(text.to_owned()),
            // A file may be on the machine that runs the point, and not on this one.
            Form::Device if text.contains('/') || text.ends_with(".toml") => Ok(text.to_owned()),
            Form::Device => presets::find(text).map(|_| text.to_owned()).map_err(|error| error.to_string()),
            Form::Share { .. } if text.ends_with('%') => share(text).map(|_| text.to_owned()),
            Form::Size { least } | Form::Share { least } => match size::parse(text)? {
                bytes if bytes < least => Err(format!("`{text}` is less than {}", size::human(least))),
                bytes => Ok(size::exact(bytes)),
            },
            Form::Number { least, largest } | Form::Percent { least, largest } => match text.parse::<u64>() {
                Ok(number) if (least..=largest).contains(&number) => Ok(number.to_string()),
                _ if largest == u64::MAX => Err(format!("`{text}` is not a whole number of at least {least}")),
                _ => Err(format!("`{text}` is not a whole number from {least} to {largest}")),
            },
            Form::Choice(_) | Form::Placement | Form::Placing | Form::Victim => {
                match self.form.words().unwrap_or_default() {
                    words if words.contains(&text) => Ok(text.to_owned()),
                    words => Err(format!("`{text}` is not one of {}", words.join(", "))),
                }
            }
        }
    }

    /// A value as a number for an axis; `None` if it is none, or a share of what only its point knows:
    /// [`Point::number`](super::Point::number).
    #[must_use]
    pub fn number(&self, value: &str) -> Option<f64> {
        match self.form {
            Form::Size { .. } | Form::Share { .. } => size::parse(value).ok().map(|bytes| bytes as f64),
            Form::Number { .. } | Form::Percent { .. } => value.parse().ok(),
            Form::Text | Form::Device | Form::Choice(_) | Form::Placement | Form::Placing | Form::Victim => None,
        }
    }

    /// Whether its values are numbers.
    #[must_use]
    pub fn is_numeric(&self) -> bool {
        matches!(self.form, Form::Size { .. } | Form::Share { .. } | Form::Number { .. } | Form::Percent { .. })
    }

    /// How its numbers are written on an axis.
    #[must_use]
    pub fn unit(&self) -> Unit {
        match self.form {
            Form::Size { .. } | Form::Share { .. } => Unit::Bytes,
            Form::Percent { .. } => Unit::Percent,
            _ => Unit::Plain,
        }
    }
}

/// A share in percent as a part of 1.
///
/// # Errors
/// A text that says what is wrong with it.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    match percent.filter(|percent| *percent > 0.0 && *percent <= 1000.0) {
        Some(percent) => Ok(percent / 100.0),
        None => Err(format!("`{text}` is not a share of the volume, such as 12.5%")),
    }
}

/// Something that a kind of point measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name in files and results.
    pub name: &'static str,
    /// What it is, as an axis says it; with the unit, where the numbers are plain.
    pub label: &'static str,
    /// How its numbers are written.
    pub unit: Unit,
}

impl Metric {
    /// A metric with plain numbers.
    pub const fn plain(name: &'static str, label: &'static str) -> Metric {
        Metric { name, label, unit: Unit::Plain }
    }

    /// A time in nanoseconds.
    pub const fn time(name: &'static str, label: &'static str) -> Metric {
        Metric { name, label, unit: Unit::Nanoseconds }
    }

    /// A number of bytes.
    pub const fn bytes(name: &'static str, label: &'static str) -> Metric {
        Metric { name, label, unit: Unit::Bytes }
    }
}

/// What a point measured: metrics of its kind and their values; a metric that does not apply is left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured(Vec<(&'static str, f64)>);

impl Measured {
    /// Adds a value. One that is no number is left out.
    pub fn add(&mut self, name: &'static str, value: f64) {
        if value.is_finite() {
            self.0.push((name, value));
        }
    }

    /// Adds a count.
    pub fn count(&mut self, name: &'static str, value: u64) {
        self.add(name, value as f64);
    }

    /// All values, in the order in which they were added.
    #[must_use]
    pub fn values(&self) -> &[(&'static str, f64)] {
        &self.0
    }
}
