//! One point of an experiment: a kind and its parameters; one independent command with a deterministic result.

use basalt_flash::device::presets;
use basalt_workloads::{Error, Settings, by_name};

use super::kinds::Kind;
use super::parameter::{Form, Measured, share};
use crate::size;

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// A point: every parameter of its kind has a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Point {
    kind: Kind,
    /// In the order of the kind's parameters.
    values: Vec<String>,
}

impl Point {
    /// A point of a kind with the parameters given as `name=value`; others have their defaults.
    ///
    /// # Errors
    /// A text that names the parameter and says what is wrong with it.
    pub fn parse<S: AsRef<str>>(kind: Kind, parameters: &[S]) -> Result<Point, String> {
        let mut given = Vec::with_capacity(parameters.len());
        for text in parameters {
            let text = text.as_ref();
            let (name, value) =
                text.split_once('=').ok_or_else(|| format!("`{text}` is not of the form NAME=VALUE"))?;
            given.push((name, value));
        }
        Point::new(kind, given)
    }

    /// A point of a kind with these parameters; others have their defaults.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn new<'a>(kind: Kind, given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Point, String> {
        let parameters = kind.parameters();
        let mut values: Vec<Option<String>> = vec![None; parameters.len()];
        for (name, value) in given {
            let index = kind.parameter_index(name)?;
            if values[index].is_some() {
                return Err(format!("{name} is given twice"));
            }
            let value = parameters[index].normalize(value).map_err(|why| format!("{name}: {why}"))?;
            values[index] = Some(value);
        }
        let values = values.into_iter().zip(parameters);
        let values = values.map(|(value, parameter)| value.unwrap_or_else(|| parameter.default.to_owned())).collect();
        let point = Point { kind, values };
        point.check_shares()?;
        Ok(point)
    }

    /// Whether shares are as large as the sizes that they stand for have to be.
    fn check_shares(&self) -> Result<(), String> {
        for parameter in self.kind.parameters() {
            let value = self.value(parameter.name);
            if let (Form::Share { least }, true) = (parameter.form, value.ends_with('%')) {
                let bytes = self.number(parameter.name).unwrap_or(0);
                if bytes < least {
                    let (name, least) = (parameter.name, size::human(least));
                    return Err(format!("{name}: `{value}` is {}, less than {least}", size::human(bytes)));
                }
            }
        }
        Ok(())
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// All parameters with their values, in the order of the kind.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.kind.parameters().iter().zip(&self.values).map(|(parameter, value)| (parameter.name, value.as_str()))
    }

    /// The value of a parameter; empty if the kind has none of that name.
    #[must_use]
    pub fn value(&self, name: &str) -> &str {
        self.parameters().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// A value that is a size or a whole number; `None` when it was left to the point. A share of the volume is in whole blocks.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        let value = self.value(name);
        let parameter = self.kind.parameters().iter().find(|parameter| parameter.name == name);
        if parameter.is_some_and(|parameter| matches!(parameter.form, Form::Number { .. } | Form::Percent { .. })) {
            // Above what a size can be, too.
            return value.parse().ok();
        }
        if let Ok(share) = share(value) {
            let volume = size::parse(self.value("size")).ok()?;
            // An exact share is one: 29 % of 400 MiB is a whole number, and its product with 0.29 is a little less.
            return Some((volume as f64 * share).round() as u64 / BLOCK * BLOCK);
        }
        // Sizes are what they are, and a plain number is a size too.
        if value.is_empty() { None } else { size::parse(value).ok() }
    }

    /// Whether the device and the workload that it names exist; running a point says so too.
    ///
    /// # Errors
    /// In words, when one of them does not.
    pub fn check_names(&self) -> Result<(), String> {
        let device = self.value("device");
        if !device.is_empty() {
            presets::find(device).map_err(|error| error.to_string())?;
        }
        let workload = self.value("workload");
        if !workload.is_empty() {
            let size_bytes = self.number("size").unwrap_or_else(|| Settings::default().size_bytes);
            let settings = Settings { size_bytes, ..Settings::default() };
            if let Err(error @ Error::Specification(_)) = by_name(workload, &settings) {
                return Err(error.to_string());
            }
        }
        Ok(())
    }

    /// The arguments of `basalt lab point` for it: its kind, and what differs from the defaults.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let differing = self.kind.parameters().iter().zip(&self.values);
        let differing = differing.filter(|(parameter, value)| parameter.default != *value);
        let parameters = differing.map(|(parameter, value)| format!("{}={value}", parameter.name));
        std::iter::once(self.kind.name().to_owned()).chain(parameters).collect()
    }

    /// The command line that runs it anywhere, for a shell.
    #[must_use]
    pub fn command(&self) -> String {
        let mut line = "basalt lab point".to_owned();
        for argument in self.arguments() {
            line.push(' ');
            line.push_str(&quoted(&argument));
        }
        line.push_str(" --json");
        line
    }

    /// Runs it, in this process. The same point gives the same result, on any machine.
    ///
    /// # Errors
    /// Why it could not be run, in one line.
    pub fn run(&self) -> Result<Measured, String> {
        self.kind.run(self)
    }
}

/// A word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=.,:/%@+".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
