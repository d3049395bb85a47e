//! Why a model cannot be had.

use std::io;

/// A device or chip model that cannot be had, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No preset has this name, and no file.
    #[error("there is no device `{name}`; name a TOML file, or one of {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The presets.
        known: String,
    },
    /// A file that cannot be read.
    #[error("{place}: {source}")]
    Read {
        /// The file.
        place: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file that is no TOML, or lacks a field.
    #[error("{place}, line {line}: {reason}")]
    Syntax {
        /// The file or preset.
        place: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// A field with a value that makes no sense.
    #[error("{place}: {field}: {reason}")]
    Field {
        /// The file or preset.
        place: String,
        /// The field's full name, as `write.random.points`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl ModelError {
    pub(crate) fn syntax(place: &str, text: &str, error: &toml::de::Error) -> ModelError {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        ModelError::Syntax {
            place: place.to_owned(),
            line: before.matches('\n').count() + 1,
            reason: error.message().replace('\n', " "),
        }
    }

    pub(crate) fn field(place: &str, field: &str, reason: impl ToString) -> ModelError {
        ModelError::Field { place: place.to_owned(), field: field.to_owned(), reason: reason.to_string() }
    }
}
