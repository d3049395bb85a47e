//! `basalt fsck`: checks a volume, and repairs it.

mod explain;
mod flashlight;
mod repair;

use std::path::PathBuf;
use std::sync::Arc;

use basalt_device::BlockDevice;
use basalt_f2fs::check::{CheckOptions, CheckReport, FaultKind, Severity, Stage};
use basalt_f2fs::repair::check_recovered;
use basalt_f2fs::{Clock, SystemClock};

use crate::failure::{DONE, Failure, Outcome, one_line};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::target::{Patience, Target};

/// Exit code when faults are left on the volume.
const FAULTS_LEFT: u8 = 4;

/// Check a volume, and repair it
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("writes").args(["repair", "preen"]), after_help = "Without --repair nothing is written.\n\
                        Exit codes: 0 clean, 1 faults found and repaired, 4 faults left, 8 could not check or repair, \
                        16 wrong arguments.")]
pub struct Args {
    /// Image file or block device
    #[arg(value_name = "TARGET", value_hint = clap::ValueHint::FilePath, required_unless_present = "explain")]
    path: Option<PathBuf>,

    #[command(flatten)]
    patience: Patience,

    /// Repair the volume; refused if that would lose data that `basalt rescue` can still read
    #[arg(short = 'y', long)]
    repair: bool,

    /// Repair only what needs no decision by a user, as fsck(8) does at boot; stop if nodes have to be searched for
    #[arg(short = 'p', long, short_alias = 'a', conflicts_with = "repair")]
    preen: bool,

    /// Write nothing; with --repair, show what a repair would do
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Save the blocks that --repair overwrites to a new file
    #[arg(long, value_name = "FILE", requires = "writes", value_hint = clap::ValueHint::FilePath)]
    backup: Option<PathBuf>,

    /// Undo a repair with the file of its --backup; refused for another volume, and if this one was used since
    #[arg(long, value_name = "FILE", conflicts_with_all = ["repair", "preen", "dry_run", "json"], value_hint = clap::ValueHint::FilePath)]
    restore: Option<PathBuf>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,

    /// Explain a kind of fault and its repair: the name of a kind, `list` for all names, or `found` for all that the check finds
    #[arg(long, value_name = "KIND")]
    explain: Option<String>,

    /// Print nothing; the exit code is the result
    #[arg(short, long, conflicts_with_all = ["json", "explain"])]
    quiet: bool,

    /// Maximum number of faults and repairs to list
    #[arg(long, value_name = "N", default_value_t = CheckOptions::default().max_faults)]
    max_faults: usize,

    /// Repair even if that loses data that `basalt rescue` can still read, or overwrites an unreadable checkpoint; restore even if the
    /// volume was used since; no other effect (every volume is checked, clean or not)
    #[arg(short, long)]
    force: bool,
}

/// Runs the command.
///
/// # Errors
/// When the target is in use, cannot be read, or holds no volume; when a repair cannot be saved or written.
pub fn run(args: &Args) -> Outcome {
    if let Some(name) = args.explain.as_deref().filter(|name| *name != explain::FOUND) {
        return explain::run(name, args.json);
    }
    let Some(path) = args.path.clone() else {
        return Err(Failure::usage("--explain found: a <TARGET> is required"));
    };
    let target = Target { path, patience: args.patience.clone() };
    if let Some(from) = &args.restore {
        return repair::put_back(&target, from, args.force, args.quiet);
    }
    if let Some(outcome) = run_flashlight(args, &target)? {
        return Ok(outcome);
    }
    if args.repair || args.preen {
        return repair::run(&repair::Order {
            target: &target,
            dry_run: args.dry_run,
            preen: args.preen,
            force: args.force,
            backup: args.backup.as_deref(),
            json: args.json,
            quiet: args.quiet,
            max_listed: args.max_faults,
        });
    }
    check_only(args, &target)
}

/// Checks a FlashLight volume; `None` if the target is none.
fn run_flashlight(args: &Args, target: &Target) -> Result<Option<u8>, Failure> {
    let device = target.open_shared()?;
    let shape = crate::volume::flashlight::detect_whole(&device)?;
    shape.map(|shape| flashlight::run(args, target, device, shape)).transpose()
}

fn check_only(args: &Args, target: &Target) -> Outcome {
    let device: Arc<dyn BlockDevice> = Arc::new(target.open_shared()?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let report = {
        let mut bar: Option<(Stage, Progress)> = None;
        check_recovered(device, &CheckOptions { max_faults: args.max_faults }, &clock, &mut |progress| {
            if bar.as_ref().is_none_or(|(stage, _)| *stage != progress.stage) {
                let label = stage_name(progress.stage);
                // The old bar goes before the new one comes.
                bar = None;
                bar = Some((progress.stage, Progress::new(label, Unit::Things, args.quiet)));
            }
            if let Some((_, bar)) = &mut bar {
                bar.update(progress.done, progress.total);
            }
        })
        .map_err(|error| Failure::volume(&target.path, &error))?
    };
    let mut output = Output::new();
    if args.json {
        output.json(&report)?;
    } else if !args.quiet {
        describe(args, target, &report, &mut output)?;
    }
    output.finish()?;
    Ok(if report.is_clean() { DONE } else { FAULTS_LEFT })
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Tables => "checking tables",
        Stage::Nodes => "checking nodes",
        Stage::Trees => "checking files",
        Stage::Directories => "checking directories",
        Stage::Segments => "checking segments",
        Stage::Search => "searching segments",
    }
}

fn describe(args: &Args, target: &Target, report: &CheckReport, output: &mut Output) -> Result<(), Failure> {
    for fault in &report.faults {
        output.line(format_args!("{}: {}", severity_name(fault.severity), one_line(&fault.to_string())))?;
    }
    if report.truncated {
        output.line(format_args!("only the first {} faults are listed; --max-faults lists more", args.max_faults))?;
    }
    if args.explain.is_some() {
        explain_found(report, output)?;
    }
    let counts = &report.counts;
    let path = target.path.display();
    let verdict = if report.is_clean() { "clean" } else { "faults found" };
    if report.complete {
        output.line(format_args!(
            "{path}: {verdict}; {} files, {} directories, {} symbolic links, {} others; {} blocks in use, {} of them nodes",
            counts.files,
            counts.directories,
            counts.symlinks,
            counts.special + counts.unknown,
            counts.blocks,
            counts.nodes
        ))
    } else {
        output.line(format_args!(
            "{path}: {verdict}; the check stopped, because nothing behind these faults can be trusted; if --repair cannot repair \
             them, `basalt rescue {path} DIR` copies the files out"
        ))
    }
}

fn explain_found(report: &CheckReport, output: &mut Output) -> Result<(), Failure> {
    let mut kinds: Vec<FaultKind> = report.faults.iter().map(|fault| fault.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    explain::explain(&kinds, output)
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Minor => "minor",
        Severity::Damage => "damage",
        Severity::Fatal => "fatal",
    }
}
