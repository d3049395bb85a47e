//! `basalt lab report`: the report of results, once more.

use std::path::PathBuf;

use basalt_lab::experiment::ResultsDirectory;

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;

/// Make the report of an experiment from its results
///
/// DIR holds experiment.toml and results.jsonl, made by `basalt lab run`, or by the commands of `basalt lab plan` on other machines.
/// Writes report.html and results.parquet there. Once no result is missing, results.jsonl is sorted in the order of the experiment; before,
/// it stays as it is, since others may still be adding to it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the results
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// When there are no results, or they are wrong.
pub fn run(args: &Args) -> Outcome {
    let mut directory = ResultsDirectory::open(&args.directory).map_err(Failure::new)?;
    directory.finish().map_err(Failure::new)?;
    let mut output = Output::new();
    output.line(directory.report_path().display())?;
    output.finish()?;
    Ok(DONE)
}
