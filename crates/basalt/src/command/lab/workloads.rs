//! `basalt lab workloads`: which workloads there are.

use basalt_workloads::Description;

use crate::failure::{DONE, Outcome};
use crate::output::Output;

/// List the workloads, their options, and where their numbers come from; and which job files of other programs are workloads, too
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one line of JSON for each workload
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &Args) -> Outcome {
    let mut output = Output::new();
    for Description { name, what, options, source } in basalt_workloads::list().chain(basalt_workloads::job_files()) {
        if args.json {
            output.json_line(&Description { name, what, options, source })?;
            continue;
        }
        output.line(format_args!("{name:<14} {what}"))?;
        output.line(format_args!("{:<14} options: {options}", ""))?;
        output.line(format_args!("{:<14} source: {source}", ""))?;
    }
    output.finish()?;
    Ok(DONE)
}
