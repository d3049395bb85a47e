//! `basalt lab plan`: the points of an experiment as a list of jobs.

use std::path::PathBuf;

use basalt_lab::experiment::{Change, Experiment};

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;

/// Print the points of an experiment as commands, one a line, for any scheduler
///
/// Each command is independent of the others, runs anywhere, and prints its result as one line. Collect the lines in any order in
/// results.jsonl, beside a copy of the file named experiment.toml; `basalt lab report` makes the report from them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Experiment file
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,

    /// Give a setting these values instead of those in FILE: size=16G, or 'seed=1;2;3'. A case that states it keeps its own
    #[arg(long, value_name = "NAME=VALUE;…")]
    set: Vec<Change>,
}

/// Runs the command.
///
/// # Errors
/// When the file is wrong.
pub fn run(args: &Args) -> Outcome {
    let experiment = Experiment::load_with(&args.file, &args.set).map_err(Failure::usage)?;
    let mut output = Output::new();
    for point in experiment.points() {
        output.line(point.command())?;
    }
    output.finish()?;
    Ok(DONE)
}
