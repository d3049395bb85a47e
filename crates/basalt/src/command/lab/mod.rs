//! `basalt lab`: simulated flash, workloads, traces, comparisons, experiments. One file a command.

pub mod compare;
mod devices;
pub mod guest;
mod lifetime;
mod plan;
mod point;
mod profile;
mod report;
mod reproduce;
mod run;
mod volume;
pub mod workload;
pub mod workloads;

pub mod record;
pub mod replay;
pub mod trace;

use basalt_flash::device::{DeviceModel, ModelError, find};
use clap::{Args as ClapArgs, Subcommand};

use crate::failure::{Failure, Outcome};

/// Simulated flash, workloads, traces, comparisons and experiments
#[derive(Debug, ClapArgs)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Compare(compare::Args),
    #[command(hide = true)]
    Guest(guest::Args),
    Record(record::Args),
    Replay(replay::Args),
    Trace(trace::Args),
    Devices(devices::Args),
    Lifetime(lifetime::Args),
    Plan(plan::Args),
    Point(point::Args),
    Profile(profile::Args),
    Report(report::Args),
    Reproduce(reproduce::Args),
    Run(run::Args),
    Volume(Box<volume::Args>),
    Workload(workload::Args),
    Workloads(workloads::Args),
}

/// The device of this name. An unknown name is a wrong argument; a device file that cannot be read is a failure.
fn device(name: &str) -> Result<DeviceModel, Failure> {
    find(name).map_err(|error| match error {
        ModelError::Unknown { .. } => Failure::usage(error),
        error => Failure::new(error),
    })
}

/// Runs a command of the lab.
pub fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Compare(args) => compare::run(args),
        Command::Guest(args) => guest::run(args),
        Command::Record(args) => record::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Lifetime(args) => lifetime::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Point(args) => point::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Report(args) => report::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Run(args) => run::run(args),
        Command::Volume(args) => volume::run(args),
        Command::Workload(args) => workload::run(args),
        Command::Workloads(args) => workloads::run(args),
    }
}
