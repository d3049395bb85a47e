//! `basalt defrag`: puts the blocks of files of a mounted volume in sequence.

mod walk;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use basalt_fuse::{DefragmentError, NotMounted};
use rustix::io::Errno;
use serde::Serialize;

use self::walk::{Found, Walk};
use crate::failure::{DONE, Failure, Outcome, escaped};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::size::human;

/// What a file is read and written in.
const BLOCK: u64 = 4096;
/// The exit code where something was left out.
const INCOMPLETE: u8 = 1;

/// Put files of a mounted volume in sequence on the device, so that they are read faster
///
/// Writes again what lies in many small extents, where that leaves at most three quarters of them. Content, size and times stay, and programs go on using the
/// files meanwhile. It wears the device, and helps little where seeking costs nothing. Symbolic links are not followed, nor other file systems entered.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 done, 1 failed, or something was left out, 2 wrong arguments.")]
pub struct Args {
    /// Files, or with -r directories, of a mounted volume
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath, required = true)]
    paths: Vec<PathBuf>,

    /// All regular files in directories and below
    #[arg(short, long)]
    recursive: bool,

    /// Only count extents; change nothing
    #[arg(short, long, visible_alias = "dry-run")]
    check: bool,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// What was done.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Regular files that were looked at.
    files: u64,
    /// Their extents before, and now.
    extents_before: u64,
    extents: u64,
    /// Bytes that were written again.
    bytes_moved: u64,
    /// Files of which something was; with `--check`, those in more than one extent.
    changed: Vec<File>,
    /// Files and directories that were left out because of an error.
    failed: u64,
}

/// What was done to one file.
#[derive(Debug, Serialize)]
struct File {
    /// The path; what is no UTF-8 is replaced.
    path: String,
    /// Its bytes in hexadecimal, where it is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// On one line, as `ls` shows it on a terminal.
    #[serde(skip)]
    shown: String,
    extents_before: u64,
    extents: u64,
    bytes_moved: u64,
}

impl File {
    fn new(path: &[u8], [extents_before, extents]: [u64; 2], bytes_moved: u64) -> File {
        let is_text = std::str::from_utf8(path).is_ok();
        let path_hex = (!is_text).then(|| path.iter().map(|byte| format!("{byte:02x}")).collect());
        File {
            path: String::from_utf8_lossy(path).into_owned(),
            path_hex,
            shown: escaped(path),
            extents_before,
            extents,
            bytes_moved,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// When standard output cannot be written. What is wrong with a path is told, and is in the exit code.
pub fn run(args: &Args) -> Outcome {
    let doing = if args.check { "counting" } else { "defragmenting" };
    let progress = Progress::new(doing, Unit::Bytes, args.quiet);
    let (report, handed_over) = (Report::default(), BTreeSet::new());
    let mut work = Work { args, report, progress, handed_over, looked_at: 0, total: 0 };
    for path in &args.paths {
        if !work.take(path) {
            break;
        }
    }
    let Work { report, progress, .. } = work;
    drop(progress);
    let mut output = Output::new();
    if args.json {
        output.json(&report)?;
    } else if !args.quiet && (report.files > 0 || report.failed == 0) {
        print(&mut output, args, &report)?;
    }
    output.finish()?;
    Ok(if report.failed == 0 { DONE } else { INCOMPLETE })
}

fn print(output: &mut Output, args: &Args, report: &Report) -> Result<(), Failure> {
    for File { shown: path, extents_before, extents, bytes_moved, .. } in &report.changed {
        if args.check {
            output.line(format_args!("{path}: {extents} extents"))?;
        } else {
            let moved = human(*bytes_moved);
            output
                .line(format_args!("{path}: {extents_before} extents before, {extents} now; {moved} written again"))?;
        }
    }
    let Report { files, extents_before, extents, bytes_moved, changed, .. } = report;
    let (changed, moved) = (changed.len(), human(*bytes_moved));
    if args.check {
        output.line(format_args!("{files} files in {extents} extents, {changed} of them in more than one"))
    } else {
        output.line(format_args!(
            "{changed} of {files} files changed: {extents_before} extents before, {extents} now; {moved} written again"
        ))
    }
}

/// How much is left out because of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// This file or directory.
    File,
    /// All that the path of the command line leads to.
    Path,
    /// All that there still is to do.
    Everything,
}

/// Why something was left out.
struct Problem {
    failure: Failure,
    ends: Ends,
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Problem { failure, ends: Ends::File }
    }
}

impl From<NotMounted> for Problem {
    fn from(error: NotMounted) -> Self {
        DefragmentError::from(error).into()
    }
}

impl From<DefragmentError> for Problem {
    fn from(error: DefragmentError) -> Self {
        let failure = Failure::new(&error);
        let (failure, ends) = match error {
            DefragmentError::NotMounted(NotMounted::Other(_)) => {
                (failure.hint("name files of a mounted volume"), Ends::Path)
            }
            DefragmentError::NotMounted(NotMounted::Open { errno: Errno::NOTCONN, .. })
            | DefragmentError::Failed { errno: Errno::NOTCONN, .. } => (
                failure.hint("the process that served the mount has ended: unmount it, and mount the volume again"),
                Ends::Everything,
            ),
            DefragmentError::NotMounted(NotMounted::Open { .. }) => (failure, Ends::File),
            DefragmentError::Failed { errno, .. } => match errno {
                Errno::NOSPC => (
                    failure.hint("others need what little is free: delete files, or try `basalt clean`"),
                    Ends::Everything,
                ),
                Errno::IO => (failure.hint("a block of it cannot be read: see the log of the mount"), Ends::File),
                Errno::ROFS => (failure.hint("the volume is mounted read-only, or has failed"), Ends::Path),
                Errno::BADF => (failure.hint("only root may, and who may write the file"), Ends::File),
                Errno::INVAL => (failure.hint("the blocks of a pinned file may not move"), Ends::File),
                _ => (failure, Ends::File),
            },
        };
        Problem { failure, ends }
    }
}

/// A run of the command.
struct Work<'a> {
    args: &'a Args,
    report: Report,
    progress: Progress,
    /// Devices of volumes of which the kernel holds nothing back.
    handed_over: BTreeSet<u64>,
    /// Bytes of files: of those that are done, and of all, or 0 where nobody knows.
    looked_at: u64,
    total: u64,
}

impl Work<'_> {
    /// Takes a path of the command line; false where nothing else can be done either.
    fn take(&mut self, path: &Path) -> bool {
        let walk = match self.begin(path) {
            Ok(walk) => walk,
            Err(problem) => return self.leave_out(&problem) != Ends::Everything,
        };
        for found in walk {
            let Err(problem) = found.and_then(|found| self.file(&found)) else { continue };
            match self.leave_out(&problem) {
                Ends::File => {}
                Ends::Path => return true,
                Ends::Everything => return false,
            }
        }
        true
    }

    fn begin(&mut self, path: &Path) -> Result<Walk, Problem> {
        let walk = Walk::new(path, !self.args.check, &mut self.handed_over)?;
        if walk.is_of_directory() && !self.args.recursive {
            let failure = Failure::at(path.display(), "is a directory").hint("with -r, all files in it are taken");
            return Err(failure.into());
        }
        self.total = if self.args.paths.len() == 1 { walk.bytes() } else { 0 };
        Ok(walk)
    }

    fn leave_out(&mut self, problem: &Problem) -> Ends {
        self.progress.line(&format!("basalt: defrag: {}", problem.failure.line()));
        self.report.failed += 1;
        problem.ends
    }

    fn file(&mut self, found: &Found) -> Result<(), Problem> {
        let before = found.file.extents()?.extents;
        let mut moved = 0;
        let result = if self.args.check || before < 2 { Ok(()) } else { self.rewrite(found, &mut moved) };
        let extents = if moved > 0 { found.file.extents()?.extents } else { before };
        self.looked_at += found.size;
        self.progress.update(self.looked_at, self.total);
        let report = &mut self.report;
        (report.files, report.bytes_moved) = (report.files + 1, report.bytes_moved + moved);
        (report.extents_before, report.extents) = (report.extents_before + before, report.extents + extents);
        if moved > 0 || self.args.check && before > 1 {
            report.changed.push(File::new(&found.path, [before, extents], moved));
        }
        result
    }

    /// Puts a file in sequence, as long as there is no error; `moved` grows by what was written again.
    fn rewrite(&mut self, found: &Found, moved: &mut u64) -> Result<(), Problem> {
        self.go_through(found, moved)?;
        // A block that cannot be read is told where nothing around it is left to be written again.
        if *moved > 0 { self.go_through(found, moved) } else { Ok(()) }
    }

    fn go_through(&mut self, found: &Found, moved: &mut u64) -> Result<(), Problem> {
        let (mut next, end) = (0, found.size.next_multiple_of(BLOCK));
        while next < end {
            let done = found.file.defragment(next, end - next)?;
            *moved += done.moved;
            if done.next <= next {
                break;
            }
            next = done.next;
            self.progress.update(self.looked_at + next, self.total);
        }
        Ok(())
    }
}
