//! `basalt completions`: a script that completes commands in a shell.

use clap_complete::Shell;

use crate::failure::{DONE, Outcome};
use crate::output::Output;

/// Print the completion script for a shell
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Runs the command.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::cli::definition(), "basalt", &mut script);
    let mut output = Output::new();
    output.bytes(&script)?;
    output.finish()?;
    Ok(DONE)
}
