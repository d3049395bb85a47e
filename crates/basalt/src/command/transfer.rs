//! Shared by `put` and `get`: warnings and progress of the copy, and the summary at its end.

use crate::failure::{DONE, Failure, Outcome, one_line};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::size;
use crate::transfer::{Error, Observer, Report};

/// Exit code when something was left out.
const LEFT_OUT: u8 = 1;
/// How much copied between two looks at the progress bar.
const STEP: u64 = 1 << 20;

/// Shows warnings as they come, and a progress bar if it takes long.
pub(super) struct Teller {
    command: &'static str,
    progress: Progress,
    verbose: bool,
    shown: u64,
}

impl Teller {
    pub(super) fn new(command: &'static str, verbose: bool) -> Teller {
        Teller { command, progress: Progress::new("copying", Unit::Bytes, false), verbose, shown: 0 }
    }

    /// Says what was copied.
    pub(super) fn finish(self, report: &Report) -> Outcome {
        drop(self.progress);
        if self.verbose {
            let mut output = Output::new();
            output.line(format_args!(
                "{} files, {} directories, {} symbolic links, {} others, {} hard links, {}; {} left out",
                report.files,
                report.directories,
                report.symlinks,
                report.special,
                report.hard_links,
                size::human(report.bytes),
                report.left_out
            ))?;
            output.finish()?;
        }
        Ok(if report.left_out == 0 { DONE } else { LEFT_OUT })
    }
}

impl Observer for Teller {
    fn warning(&mut self, message: &str) {
        self.progress.line(&format!("basalt: {}: left out: {}", self.command, one_line(message)));
    }

    fn progress(&mut self, report: &Report) {
        if report.bytes.abs_diff(self.shown) >= STEP || report.bytes == self.shown {
            self.shown = report.bytes;
            self.progress.update(report.bytes, 0);
        }
    }
}

pub(super) fn failure(error: &Error) -> Failure {
    let failure = Failure::new(error);
    match error {
        Error::Volume { source: basalt_vfs::Error::NoSpace, .. } => failure.hint("files copied before are kept"),
        _ => failure,
    }
}
