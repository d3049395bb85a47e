//! Running a program and keeping all of what it said.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use crate::error::{Error, Result};
use crate::limit;
use crate::skip::find_program;

/// What a program left behind.
#[derive(Debug)]
pub struct Finished {
    /// The command line, for messages.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output, then standard error.
    pub output: String,
}

impl Finished {
    /// Itself when the program succeeded, else an error that shows its output.
    pub fn success(self) -> Result<Finished> {
        if self.status.success() {
            return Ok(self);
        }
        Err(Error::Tool { ended: describe(self.status), command: self.command, output: self.output })
    }
}

/// Runs a program to its end, with an empty standard input; it is also looked for in the system's own directories.
///
/// # Errors
/// When the program cannot be started, or has not ended after [`limit::LONG`]. An unsuccessful end is no error here: see
/// [`Finished::success`].
pub fn run<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Result<Finished> {
    let mut command = Command::new(find_program(program).unwrap_or_else(|| program.into()));
    command.args(arguments).stdin(Stdio::null());
    let line = command_line(&command);
    let output = limit::output(&mut command, limit::LONG)
        .map_err(|source| Error::Io { doing: format!("run `{line}`"), source })?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(Finished { command: line, status: output.status, output: text })
}

/// "exited with 4" or "was killed by signal 9".
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

fn command_line(command: &Command) -> String {
    let words: Vec<_> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}
