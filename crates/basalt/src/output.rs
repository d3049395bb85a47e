//! What commands write to standard output.

use std::io::{BufWriter, StdoutLock, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Standard output, buffered; [`finish`](Self::finish) at the end, so that a full disk is noticed.
pub struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    /// Standard output, for this command alone.
    pub fn new() -> Output {
        Output(BufWriter::new(std::io::stdout().lock()))
    }

    /// Writes a line.
    ///
    /// # Errors
    /// When nobody takes it.
    pub fn line(&mut self, line: impl std::fmt::Display) -> Result<(), Failure> {
        writeln!(self.0, "{line}").map_err(|error| Failure::output(&error))
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// When nobody takes them.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(|error| Failure::output(&error))
    }

    /// Writes a value as JSON, and a line's end.
    ///
    /// # Errors
    /// When nobody takes it.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        // The values are plain structures: only writing can fail.
        serde_json::to_writer_pretty(&mut self.0, value).map_err(|error| Failure::output(&error.into()))?;
        self.line("")
    }

    /// Writes a value as JSON on one line, for lists that programs read line by line.
    ///
    /// # Errors
    /// When nobody takes it.
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.0, value).map_err(|error| Failure::output(&error.into()))?;
        self.line("")
    }

    /// Hands everything over.
    ///
    /// # Errors
    /// When nobody takes it.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.0.flush().map_err(|error| Failure::output(&error))
    }
}

impl Default for Output {
    fn default() -> Self {
        Output::new()
    }
}
