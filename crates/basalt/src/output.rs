//! What commands write to standard output.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;

use crate::failure::{Failure, escaped, one_line};

/// How names are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Their bytes, for programs.
    Raw,
    /// On one line each, and no two alike: see [`escaped`].
    Escaped,
}

impl Names {
    /// Escaped on a terminal, which a name must not steer.
    pub fn of_stdout() -> Names {
        if io::stdout().is_terminal() { Names::Escaped } else { Names::Raw }
    }

    /// A name as it is written.
    pub fn show(self, name: &[u8]) -> Vec<u8> {
        match self {
            Names::Raw => name.to_vec(),
            Names::Escaped => escaped(name).into_bytes(),
        }
    }
}

/// Standard output, buffered; [`finish`](Self::finish) at the end, so that a full disk is noticed.
pub struct Output(BufWriter<Reader>);

impl Output {
    /// Standard output for a result. If its reader has gone, the rest is dropped: the exit code is still that of the result.
    pub fn new() -> Output {
        Output(BufWriter::new(Reader { to: io::stdout().lock(), is_needed: false }))
    }

    /// Standard output for what is only made to be read: nothing more is made once its reader has gone, as behind `| head`.
    pub fn streaming() -> Output {
        Output(BufWriter::new(Reader { to: io::stdout().lock(), is_needed: true }))
    }

    /// Writes a line.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn line(&mut self, line: impl std::fmt::Display) -> Result<(), Failure> {
        writeln!(self.0, "{line}").map_err(|error| Failure::output(&error))
    }

    /// Writes a name, and a line's end.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn name_line(&mut self, name: &[u8], how: Names) -> Result<(), Failure> {
        self.bytes(&how.show(name))?;
        self.line("")
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(|error| Failure::output(&error))
    }

    /// Writes a value as JSON, and a line's end.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        // The values are plain structures: only writing can fail.
        serde_json::to_writer_pretty(&mut self.0, value).map_err(|error| Failure::output(&error.into()))?;
        self.line("")
    }

    /// Writes a value as JSON on one line, for lists that programs read line by line.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.0, value).map_err(|error| Failure::output(&error.into()))?;
        self.line("")
    }

    /// Hands everything over.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.0.flush().map_err(|error| Failure::output(&error))
    }
}

impl Default for Output {
    fn default() -> Self {
        Output::new()
    }
}

/// The reader of standard output.
struct Reader {
    to: StdoutLock<'static>,
    /// Whether a reader that has gone is an error.
    is_needed: bool,
}

impl Reader {
    fn unless_gone<T>(&self, result: io::Result<T>, gone: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe && !self.is_needed => Ok(gone),
            result => result,
        }
    }
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes);
        self.unless_gone(written, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.to.flush();
        self.unless_gone(flushed, ())
    }
}

/// Tells something beside the result, as a line on standard error that cannot steer a terminal. Where nobody takes it, it is lost: the result
/// is what was asked for.
pub fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", one_line(&line.to_string()));
}
