//! `basalt fsck`: checks a volume.

use basalt_f2fs::check::{CheckOptions, CheckReport, FaultKind, Severity, Stage, check};

use crate::failure::{DONE, Failure, Outcome, one_line};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::target::Target;

/// Exit code when faults are left on the volume.
const FAULTS_LEFT: u8 = 4;

/// Check a volume
#[derive(Debug, clap::Args)]
#[command(after_help = "Nothing is written.\n\
                        Exit codes: 0 clean, 4 faults found, 8 could not be checked, 16 wrong arguments.")]
pub struct Args {
    #[command(flatten)]
    target: Target,

    /// Show the report as JSON
    #[arg(long)]
    json: bool,

    /// Explain each kind of fault that was found
    #[arg(long, conflicts_with = "json")]
    explain: bool,

    /// Say nothing; the exit code tells
    #[arg(short, long, conflicts_with_all = ["json", "explain"])]
    quiet: bool,

    /// Most faults to list
    #[arg(long, value_name = "N", default_value_t = CheckOptions::default().max_faults)]
    max_faults: usize,

    /// Write nothing, which is always so
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Check even what looks clean, which is always so
    #[arg(short, long)]
    force: bool,
}

/// Runs the command.
///
/// # Errors
/// When the target is in use, cannot be read, or holds no volume.
pub fn run(args: &Args) -> Outcome {
    let device = args.target.open_shared()?;
    let report = {
        let mut bar: Option<(Stage, Progress)> = None;
        check(&device, &CheckOptions { max_faults: args.max_faults }, &mut |progress| {
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
        .map_err(|error| Failure::volume(&args.target.path, &error))?
    };
    let mut output = Output::new();
    if args.json {
        output.json(&report)?;
    } else if !args.quiet {
        describe(args, &report, &mut output)?;
    }
    output.finish()?;
    Ok(if report.is_clean() { DONE } else { FAULTS_LEFT })
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Tables => "tables",
        Stage::Nodes => "nodes",
        Stage::Trees => "files",
        Stage::Directories => "directories",
        Stage::Segments => "segments",
    }
}

fn describe(args: &Args, report: &CheckReport, output: &mut Output) -> Result<(), Failure> {
    for fault in &report.faults {
        output.line(format_args!("{}: {}", severity_name(fault.severity), one_line(&fault.to_string())))?;
    }
    if report.truncated {
        output.line(format_args!("more faults than the {} listed; --max-faults lists more", args.max_faults))?;
    }
    if args.explain {
        explain(report, output)?;
    }
    let counts = &report.counts;
    let path = args.target.path.display();
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
        output
            .line(format_args!("{path}: {verdict}; the check ended early, because nothing behind them can be trusted"))
    }
}

fn explain(report: &CheckReport, output: &mut Output) -> Result<(), Failure> {
    let mut kinds: Vec<FaultKind> = report.faults.iter().map(|fault| fault.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        output.line(format_args!("\n{kind}\n  {}", kind.explain()))?;
    }
    if !report.faults.is_empty() {
        output.line("")?;
    }
    Ok(())
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Minor => "minor",
        Severity::Damage => "damage",
        Severity::Fatal => "fatal",
    }
}
