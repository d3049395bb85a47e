//! `basalt clean`: cleans a mounted volume now.

use std::path::PathBuf;

use basalt_fuse::{CleanError, NotMounted, clean_mounted};
use basalt_vfs::Emptied;
use rustix::io::Errno;
use serde::Serialize;

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;
use crate::progress::{Progress, Unit};

/// Clean a mounted volume now, so that later writes need not wait for it
///
/// Moves live blocks together and so makes sections free, which are what new data is written to. Without options, goes on until no section has more than 5 %
/// to gain. Others use the volume meanwhile. It wears the device a little: a volume that is idle is cleaned by itself where that is worth it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, or less is free than --until-free asks for and nothing more to gain, 2 wrong arguments."
)]
pub struct Args {
    /// Directory on the mounted volume
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,

    /// Empty at most so many sections; with --until-free, stop at whichever comes first
    #[arg(long, value_name = "N", value_parser = count)]
    sections: Option<u32>,

    /// Stop as soon as so many percent of all sections are free
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    until_free: Option<f64>,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

fn count(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|&count| count > 0).ok_or_else(|| "expected a number, 1 or more".to_owned())
}

/// A share that a volume can have free.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let value = number.parse::<f64>().ok().filter(|value| *value > 0.0 && *value < 100.0);
    value.ok_or_else(|| "expected a number of percent above 0 and below 100".to_owned())
}

/// What was done.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Sections that were emptied.
    sections_emptied: u64,
    /// Blocks that were moved out of them.
    blocks_moved: u64,
    /// Sections that were free before, and are now; and all there are.
    free_sections_before: u32,
    free_sections: u32,
    sections: u32,
}

impl Report {
    fn add(&mut self, emptied: &Emptied) {
        self.sections_emptied += u64::from(emptied.sections);
        self.blocks_moved += u64::from(emptied.blocks_moved);
        (self.free_sections, self.sections) = (emptied.free_sections, emptied.all_sections);
    }

    fn free_percent(&self) -> f64 {
        f64::from(self.free_sections) * 100.0 / f64::from(self.sections.max(1))
    }

    /// Sections that are still to be emptied; 0 where it is done.
    fn left(&self, args: &Args) -> u64 {
        let is_enough = args.until_free.is_some_and(|percent| self.free_percent() >= percent);
        // Whoever writes meanwhile makes victims: nobody is cleaned for ever.
        let most = args.sections.map_or(u64::from(self.sections), u64::from);
        if is_enough { 0 } else { most.saturating_sub(self.sections_emptied) }
    }
}

/// Runs the command.
///
/// # Errors
/// When the directory is not on a mount of Basalt's, the caller is not root, the device fails, or not enough can be freed.
pub fn run(args: &Args) -> Outcome {
    let report = clean(args)?;
    let mut output = Output::new();
    if args.json {
        output.json(&report)?;
    } else if !args.quiet {
        let Report { sections_emptied, blocks_moved, free_sections_before, free_sections, sections } = report;
        output.line(format_args!(
            "{}: {sections_emptied} sections emptied, {blocks_moved} blocks moved; {free_sections} of {sections} sections are free, {free_sections_before} were",
            args.directory.display()
        ))?;
    }
    output.finish()?;
    let is_at_limit = args.sections.is_some_and(|most| report.sections_emptied >= u64::from(most));
    match args.until_free {
        Some(wanted) if !is_at_limit && report.free_percent() < wanted => Err(Failure::at(
            args.directory.display(),
            format!(
                "only {:.1} % of the sections are free, and no other has more than 5 % to gain",
                report.free_percent()
            ),
        )
        .hint("delete files, or make the volume larger with `basalt resize`")),
        _ => Ok(DONE),
    }
}

fn clean(args: &Args) -> Result<Report, Failure> {
    let ask = |most| clean_mounted(&args.directory, most).map_err(|error| failure(&error));
    let mut progress = Progress::new("cleaning", Unit::Things, args.quiet);
    let mut report = Report::default();
    // Asks for nothing: tells how it is.
    report.add(&ask(0)?);
    report.free_sections_before = report.free_sections;
    loop {
        let left = report.left(args);
        if left == 0 {
            return Ok(report);
        }
        let emptied = ask(u32::try_from(left).unwrap_or(u32::MAX))?;
        report.add(&emptied);
        if emptied.sections == 0 {
            return Ok(report);
        }
        progress.update(report.sections_emptied, args.sections.map_or(0, u64::from));
    }
}

fn failure(error: &CleanError) -> Failure {
    let failure = Failure::new(error);
    match error {
        CleanError::Failed { errno: Errno::PERM, .. } => failure.hint("only root may clean a volume"),
        CleanError::Failed { errno: Errno::ROFS, .. } => failure.hint("the volume is mounted read-only, or has failed"),
        CleanError::Failed { errno: Errno::IO, .. } => failure.hint("see the system log for the error of the device"),
        CleanError::NotMounted(NotMounted::Other(_)) => failure.hint("name a directory of a mounted volume"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percent() {
        assert_eq!((percent("12.5"), percent("40%")), (Ok(12.5), Ok(40.0)));
        assert!(["0", "100", "-1", "x", "", "nan", "inf"].into_iter().all(|text| percent(text).is_err()));
    }
}
