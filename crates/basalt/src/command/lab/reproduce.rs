//! `basalt lab reproduce`: the papers' results, measured again.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use basalt_lab::experiment::Children;
use basalt_lab::reproduce::{
    Figure, Means, Measured, Runs, Scale, Step, Uncovered, markdown, markdown_uncovered, select, uncovered,
};
use basalt_lab::verdicts::Row;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::{DONE, Failure, Outcome};
use crate::output::{self, Output};
use crate::progress::{Progress, Unit};
use crate::size;

/// Exit code when some points of an experiment failed.
const SOME_FAILED: u8 = 1;
/// The longest that a point of an experiment may take.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

/// Measure the papers' results again, and compare
///
/// Each row has a number of a paper, where it is from (stated in the text, derived from it, or ours), our number, a verdict (bettered,
/// holds, differs or baseline differs) and the reason. Behind the rows of whole papers comes a list of what their text says that no row
/// covers. The exit code is 1 if a point of an experiment failed. Figures that compare file systems boot a small Linux (User-Mode Linux) and take minutes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this paper: scj, sfs, page-cache or partial-gc
    #[arg(value_name = "PAPER")]
    paper: Option<String>,

    /// Only this figure of the paper
    #[arg(value_name = "FIGURE", requires = "paper")]
    figure: Option<String>,

    /// List the figures and about how long each takes, and run none
    #[arg(long)]
    list: bool,

    /// Use the papers' own sizes instead of a fraction of them, or five times the usual where a paper gives none; takes hours instead of
    /// minutes
    #[arg(long)]
    full: bool,

    /// Use a quarter of the usual sizes, for a first look; SFS figure 15 is as usual
    #[arg(long, conflicts_with = "full")]
    small: bool,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Run everything with so many seeds, from --seed on; rows show the median and the spread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,

    /// Number of points of an experiment that run at the same time [default: the number of processors]
    #[arg(short, long, value_name = "N", value_parser = size::jobs)]
    jobs: Option<NonZeroUsize>,

    /// Keep results here, a directory with a report for each figure that is an experiment file; what is there is not measured again
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    output: Option<PathBuf>,

    /// Tell neither figures nor progress on standard error
    #[arg(short, long)]
    quiet: bool,

    /// Print one line of JSON for each row
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print Markdown tables
    #[arg(long)]
    markdown: bool,
}

/// Runs the command.
///
/// # Errors
/// When there is no such figure, or an experiment cannot be run.
pub fn run(args: &Args) -> Outcome {
    let figures = select(args.paper.as_deref(), args.figure.as_deref());
    if figures.is_empty() {
        let wanted =
            [args.paper.as_deref(), args.figure.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
        return Err(Failure::usage(format_args!("{wanted}: no such paper or figure; --list lists them")));
    }
    let mut output = Output::new();
    if args.list {
        for figure in figures {
            if args.json {
                output.json_line(&Listed::of(figure))?;
                continue;
            }
            output.line(format_args!("{} {}\t{}\t{}", figure.paper, figure.figure, figure.takes, figure.title))?;
        }
        output.finish()?;
        return Ok(DONE);
    }
    let end = args.seed.checked_add(args.seeds);
    let seeds = args.seed..end.ok_or_else(|| Failure::usage(format_args!("--seed {}: too large", args.seed)))?;
    let scale = Scale { full: args.full, small: args.small, seed: args.seed };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| Failure::at("signals", error))?;
    }
    let program = std::env::current_exe().map_err(|error| Failure::at("this program's own path", error))?;
    let runner = Children { program, limit: LONGEST, stop: &stop };
    let jobs = args.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let means = Means { runner: &runner, jobs, output: args.output.clone(), stop: &stop };
    let mut runs = Runs::default();
    let mut some_failed = false;
    for figure in figures {
        let Measured { rows, failed } = measure(figure, &scale, seeds.clone(), &means, &mut runs, args.quiet)?;
        show(figure, rows, args)?;
        for why in &failed {
            output::tell(format_args!("{}: failed: {why}", figure.label()));
        }
        some_failed |= !failed.is_empty();
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::new("stopped"));
        }
    }
    // One figure is asked for by somebody who knows what is in it.
    if args.figure.is_none() {
        show_uncovered(&uncovered(args.paper.as_deref()).collect::<Vec<_>>(), args)?;
    }
    Ok(if some_failed { SOME_FAILED } else { DONE })
}

/// A figure in the list, as JSON.
#[derive(serde::Serialize)]
struct Listed {
    paper: &'static str,
    figure: &'static str,
    takes: &'static str,
    title: &'static str,
}

impl Listed {
    fn of(figure: &Figure) -> Listed {
        Listed { paper: figure.paper, figure: figure.figure, takes: figure.takes, title: figure.title }
    }
}

fn measure(
    figure: &Figure,
    scale: &Scale,
    seeds: Range<u64>,
    means: &Means<'_>,
    runs: &mut Runs,
    quiet: bool,
) -> Result<Measured, Failure> {
    if !quiet {
        output::tell(format_args!("{}: {}", figure.label(), figure.title));
    }
    let mut progress = Progress::new("points", Unit::Things, quiet);
    let mut say = |step: Step<'_>| match step {
        Step::Begins(_) if quiet => {}
        Step::Begins(step) => output::tell(format_args!("  {step}")),
        Step::Points(done, all) => progress.update(done, all),
    };
    figure.run(scale, seeds, means, runs, &mut say).map_err(|why| Failure::at(figure.label(), why))
}

/// Shows the rows of a figure as soon as they are there.
fn show(figure: &'static Figure, rows: Vec<Row>, args: &Args) -> Result<(), Failure> {
    let mut output = Output::new();
    if args.markdown {
        output.bytes(markdown(&[(figure, rows)]).as_bytes())?;
        return output.finish();
    }
    if args.json {
        rows.iter().try_for_each(|row| output.json_line(row))?;
        return output.finish();
    }
    output.line(format_args!("{}: {}", figure.label(), figure.title))?;
    for row in &rows {
        let mark = if row.verdict.is_met() { " " } else { "!" };
        let spread = match row.spread_text() {
            spread if spread.is_empty() => spread,
            spread => format!(" ({spread})"),
        };
        output.line(format_args!(
            "{mark} {:<16} {:<58} paper {:>9} ({})  ours {:>9}{spread}",
            row.verdict.name(),
            row.item,
            row.paper_text,
            row.source,
            row.ours_text()
        ))?;
        output.line(format_args!("            paper: {}; ours: {}", row.source_note, row.remarks()))?;
    }
    output.finish()
}

/// Shows what no row covers.
fn show_uncovered(list: &[&Uncovered], args: &Args) -> Result<(), Failure> {
    let mut output = Output::new();
    if args.markdown {
        output.bytes(markdown_uncovered(list).as_bytes())?;
        return output.finish();
    }
    if args.json {
        list.iter().try_for_each(|one| output.json_line(one))?;
        return output.finish();
    }
    output.line("What no row covers:")?;
    for one in list {
        output.line(format_args!("  {} {}: {}", one.paper.to_uppercase(), one.place, one.uncovered))?;
        output.line(format_args!("            {}", one.why))?;
    }
    output.finish()
}
