//! `basalt tune`: shows and changes what a volume can have without being made anew.

use basalt_f2fs::format::FormatOptions;
use basalt_f2fs::tune::{self, JournalInfo};
use serde::Serialize;

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;
use crate::size;
use crate::target::Target;

/// Add a cleaning journal to a volume that is not mounted, or remove it
///
/// The journal lies between the superblocks and segment 0, where F2FS stores nothing: Linux can use the volume as before. Without options,
/// shows the present journal.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong arguments.")]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// on: a journal of 256K, unless there is one; off: no journal; SIZE: a journal of this size, instead of the present one
    #[arg(long, value_name = "on|off|SIZE", value_parser = parse_journal)]
    journal: Option<Journal>,

    /// Write over what somebody else keeps in front of segment 0, such as a boot loader
    #[arg(long, requires = "journal")]
    force: bool,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// Print the present and the former journal as JSON
    #[arg(long)]
    json: bool,
}

/// Which journal a volume is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Journal {
    /// The one it has, or one of the default size.
    On,
    /// One of so many bytes; 0 for none.
    Bytes(u64),
}

/// What is shown as JSON.
#[derive(Serialize)]
struct Report {
    /// The journal that there is.
    journal: JournalInfo,
    /// The journal that there was, if it was to be changed.
    before: Option<JournalInfo>,
}

/// Runs the command.
///
/// # Errors
/// When the target is in use, holds no volume or one that cannot be changed, or there is no room.
pub fn run(args: &Args) -> Outcome {
    let report = match args.journal {
        Some(journal) => change(args, journal)?,
        None => show(args)?,
    };
    let mut output = Output::new();
    if args.json {
        output.json(&report)?;
    } else if !args.quiet {
        describe(args, &report, &mut output)?;
    }
    output.finish()?;
    Ok(DONE)
}

fn show(args: &Args) -> Result<Report, Failure> {
    let device = args.target.open_shared()?;
    let journal = tune::journal(&device).map_err(|error| failure(args, &error))?;
    Ok(Report { journal, before: None })
}

fn change(args: &Args, journal: Journal) -> Result<Report, Failure> {
    let device = args.target.open_exclusive()?;
    let before = tune::journal(&device).map_err(|error| failure(args, &error))?;
    let bytes = match journal {
        Journal::On if before.bytes > 0 => before.bytes,
        Journal::On => FormatOptions::DEFAULT_JOURNAL_BYTES,
        Journal::Bytes(bytes) => bytes,
    };
    let set = if args.force { tune::force_journal } else { tune::set_journal };
    let journal = set(&device, bytes).map_err(|error| failure(args, &error))?;
    Ok(Report { journal, before: Some(before) })
}

fn failure(args: &Args, error: &basalt_f2fs::Error) -> Failure {
    Failure::volume(&args.target.path, error)
}

fn describe(args: &Args, report: &Report, output: &mut Output) -> Result<(), Failure> {
    let path = args.target.path.display();
    let journal = &report.journal;
    let more = match &report.before {
        Some(before) if before.bytes == journal.bytes => ", unchanged".to_owned(),
        Some(before) => format!(", was {}", journal_size(before.bytes)),
        None if journal.live => ", live: only Basalt can use the volume until it is recovered".to_owned(),
        None => String::new(),
    };
    output.line(format_args!("{path}: journal {}{more}", journal_size(journal.bytes)))?;
    output.line(format_args!("  room       {}", size::human(journal.room_bytes)))
}

/// A journal's size, for people.
pub(super) fn journal_size(bytes: u64) -> String {
    if bytes == 0 { "none".to_owned() } else { size::human(bytes) }
}

fn parse_journal(text: &str) -> Result<Journal, String> {
    match text {
        "on" => Ok(Journal::On),
        "off" => Ok(Journal::Bytes(0)),
        size => size::parse(size).map(Journal::Bytes).map_err(|error| format!("expected on, off or a size: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_by_word_or_size() {
        assert_eq!(parse_journal("on"), Ok(Journal::On));
        assert_eq!(parse_journal("off"), Ok(Journal::Bytes(0)));
        assert_eq!(parse_journal("1M"), Ok(Journal::Bytes(1 << 20)));
        for text in ["", "ON", "maybe", "-1"] {
            assert!(parse_journal(text).is_err(), "{text}");
        }
    }
}
