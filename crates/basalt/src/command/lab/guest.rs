//! `basalt lab guest`: what machines of User-Mode Linux run for `basalt lab compare`. Not for people.

use std::path::PathBuf;

use crate::failure::{DONE, Failure, Outcome};

/// Run the workload of a comparison within its machine
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do, as JSON
    #[arg(value_name = "TASK")]
    task: PathBuf,

    /// Where the file system is mounted
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// When the task cannot be read, or standard output cannot be written. What goes wrong with the workload is in the output.
pub fn run(args: &Args) -> Outcome {
    let done = basalt_lab::peers::guest::run_in(&args.task, &args.directory, &mut std::io::stdout().lock())
        .map_err(|error| Failure::at(args.task.display(), error))?;
    Ok(if done { DONE } else { 1 })
}
