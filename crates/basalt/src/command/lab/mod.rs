//! `basalt lab`: simulated flash, workloads, traces, comparisons, experiments. One file a command.

use clap::{Args as ClapArgs, Subcommand};

use crate::failure::Outcome;

/// Simulated flash, workloads, traces, comparisons and experiments
#[derive(Debug, ClapArgs)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

/// Runs a command of the lab.
pub fn run(args: &Args) -> Outcome {
    match args.command {}
}
