//! `basalt lab run`: an experiment on this machine.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use basalt_lab::experiment::{Change, Children, DirectoryError, ResultsDirectory, Summary, run as run_points};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::size;

/// Exit code when some points failed.
const SOME_FAILED: u8 = 1;

/// Run an experiment: every point of the file, several at a time
///
/// Results go to a directory as results.jsonl, results.parquet and report.html. An interrupted run continues when it is started again;
/// points that failed run again. The exit code is 1 if a point failed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Experiment file
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,

    /// Directory of the results [default: the name of FILE without its extension]
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    output: Option<PathBuf>,

    /// Give a setting these values instead of those in FILE: size=16G, or 'seed=1;2;3'. A case that states it keeps its own
    #[arg(long, value_name = "NAME=VALUE;…")]
    set: Vec<Change>,

    /// Number of points that run at the same time [default: the number of processors]
    #[arg(short, long, value_name = "N", value_parser = size::jobs)]
    jobs: Option<NonZeroUsize>,

    /// Maximum time of a point; a point that takes longer fails
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = size::seconds)]
    limit: Duration,

    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,

    /// Print the results as lines of JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When the file is wrong, or results cannot be written.
pub fn run(args: &Args) -> Outcome {
    let path = args.output.clone().unwrap_or_else(|| default_directory(&args.file));
    let mut directory = ResultsDirectory::create(&path, &args.file, &args.set).map_err(|error| match error {
        DirectoryError::Experiment(error) => Failure::usage(error),
        error => Failure::new(error),
    })?;
    let program = std::env::current_exe().map_err(|error| Failure::at("this program's own path", error))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| Failure::at("signals", error))?;
    }
    let mut progress = Progress::new("points", Unit::Things, args.quiet);
    let runner = Children { program, limit: args.limit, stop: &stop };
    let summary = run_points(&mut directory, jobs(args), &runner, &stop, &mut |done, all| {
        progress.update(done as u64, all as u64);
    });
    drop(progress);
    let summary = summary.map_err(Failure::new)?;
    if stop.load(Ordering::Relaxed) && summary.left > 0 {
        let why = format!("stopped with {} points left", summary.left);
        return Err(Failure::at(path.display(), why).hint("run the same command to continue"));
    }
    directory.finish().map_err(Failure::new)?;
    show(&directory, &summary, args.json)?;
    Ok(if summary.failed > 0 { SOME_FAILED } else { DONE })
}

/// The default directory of the results.
fn default_directory(file: &Path) -> PathBuf {
    let name = file.file_stem().unwrap_or_default();
    let mut directory = PathBuf::from(name);
    // A file without an ending in this directory would be in its own way.
    if directory.is_file() || directory.as_os_str().is_empty() {
        directory.as_mut_os_string().push(".results");
    }
    directory
}

fn jobs(args: &Args) -> usize {
    args.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

fn show(directory: &ResultsDirectory, summary: &Summary, json: bool) -> Result<(), Failure> {
    let mut output = Output::new();
    if json {
        for record in directory.records() {
            output.line(record.to_line())?;
        }
        return output.finish();
    }
    for record in directory.records() {
        if let Err(why) = &record.outcome {
            output.line(format_args!("failed: {}: {why}", record.point.arguments().join(" ")))?;
        }
    }
    let Summary { done, before, failed, .. } = *summary;
    let earlier = if before > 0 { format!(" ({before} of them earlier)") } else { String::new() };
    let failures = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    output.line(format_args!("{done} points measured{earlier}{failures}: {}", directory.report_path().display()))?;
    output.finish()
}
