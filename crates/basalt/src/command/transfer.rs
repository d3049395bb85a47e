//! Shared by `put` and `get`: several sources one after the other, what is told of the copy, and the summary at its end.

use crate::failure::{DONE, Failure, Outcome, one_line};
use crate::output::{Names, Output, tell};
use crate::progress::{Progress, Unit};
use crate::size;
use crate::transfer::{Error, Observer, Report};

/// Exit code when something was left out.
const LEFT_OUT: u8 = 1;
/// How much copied between two looks at the progress bar.
const STEP: u64 = 1 << 20;

/// Shows warnings as they come, the files that were copied if that is asked for, and a progress bar if it takes long.
pub(super) struct Teller {
    command: &'static str,
    progress: Progress,
    verbose: Option<Output>,
    /// Why standard output cannot be written.
    broken: Option<Failure>,
    shown: u64,
}

impl Teller {
    pub(super) fn new(command: &'static str, verbose: bool) -> Teller {
        let progress = Progress::new("copying", Unit::Bytes, verbose);
        Teller { command, progress, verbose: verbose.then(Output::new), broken: None, shown: 0 }
    }

    /// Says what was copied; `is_complete` is whether all sources were.
    pub(super) fn finish(self, report: &Report, is_complete: bool) -> Outcome {
        drop(self.progress);
        if let Some(failure) = self.broken {
            return Err(failure);
        }
        if let Some(mut output) = self.verbose {
            output.line(format_args!(
                "{}, {}, {}, {}, {}, {}; {} left out",
                count(report.files, "file", "files"),
                count(report.directories, "directory", "directories"),
                count(report.symlinks, "symbolic link", "symbolic links"),
                count(report.special, "other", "others"),
                count(report.hard_links, "hard link", "hard links"),
                size::human(report.bytes),
                report.left_out
            ))?;
            output.finish()?;
        }
        Ok(if report.left_out == 0 && is_complete { DONE } else { LEFT_OUT })
    }
}

impl Observer for Teller {
    fn warning(&mut self, message: &str) {
        self.progress.line(&format!("basalt: {}: left out: {}", self.command, one_line(message)));
    }

    fn copied(&mut self, path: &[u8]) {
        if let (Some(output), None) = (&mut self.verbose, &self.broken) {
            self.broken = output.name_line(path, Names::of_stdout()).err();
        }
    }

    fn progress(&mut self, report: &Report) {
        if report.bytes.abs_diff(self.shown) >= STEP || report.bytes == self.shown {
            self.shown = report.bytes;
            self.progress.update(report.bytes, 0);
        }
    }
}

/// `1 file`, `2 files`
fn count(number: u64, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// Copies each source. What cannot be copied is told, and the next one tried, unless there is no point in that. Whether all were copied.
pub(super) fn copy_each<S>(
    command: &str,
    sources: &[S],
    is_last: fn(&Error) -> bool,
    mut copy: impl FnMut(&S) -> Result<(), Error>,
) -> bool {
    let mut is_complete = true;
    for source in sources {
        if let Err(error) = copy(source) {
            tell(format_args!("basalt: {command}: {}", failure(&error).line()));
            is_complete = false;
            if is_last(&error) {
                break;
            }
        }
    }
    is_complete
}

pub(super) fn failure(error: &Error) -> Failure {
    let failure = Failure::new(error);
    match error.cause() {
        Error::Volume { source: basalt_vfs::Error::NoSpace, .. } => failure.hint("files copied before are kept"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(count(1, "file", "files"), "1 file");
        assert_eq!(count(0, "directory", "directories"), "0 directories");
    }
}
