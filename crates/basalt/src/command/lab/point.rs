//! `basalt lab point`: one point of an experiment.

use basalt_lab::experiment::{Kind, Point, Record};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;
use crate::progress::spinner;

/// Run one point of an experiment: the same arguments give the same result on any machine
///
/// A parameter without a NAME=VALUE has its default, which --list shows.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Kind of point: engine, volume, replay or requests
    #[arg(value_name = "KIND")]
    kind: Kind,

    /// Parameters of the point
    #[arg(value_name = "NAME=VALUE")]
    parameters: Vec<String>,

    /// List the parameters and metrics of the kind, and run nothing
    #[arg(long, conflicts_with = "parameters")]
    list: bool,

    /// Print the result as one line of JSON, even if the point fails
    #[arg(long)]
    json: bool,

    /// End as soon as the process with this number has ended, which waits for the result
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
}

/// Runs the command.
///
/// # Errors
/// When a parameter makes no sense, or the point fails.
pub fn run(args: &Args) -> Outcome {
    if let Some(parent) = args.parent {
        end_with(parent)?;
    }
    let mut output = Output::new();
    if args.list {
        list(args.kind, &mut output)?;
        output.finish()?;
        return Ok(DONE);
    }
    let point = Point::parse(args.kind, &args.parameters).map_err(Failure::usage)?;
    point.check_names().map_err(Failure::usage)?;
    let bar = spinner("running", false);
    let record = Record::of(point.clone());
    bar.finish_and_clear();
    if args.json {
        output.line(record.to_line())?;
    } else if record.outcome.is_ok() {
        for metric in args.kind.metrics() {
            if let Some(value) = record.metric(metric.name) {
                output.line(format_args!("{:<26} {:>14}  {}", metric.name, metric.unit.show(value), metric.label))?;
            }
        }
    }
    output.finish()?;
    match record.outcome {
        Ok(_) => Ok(DONE),
        Err(why) => Err(Failure::at(point.arguments().join(" "), why)),
    }
}

/// Ends this process when its parent ends, however that ends.
fn end_with(parent: i32) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| Failure::at("signals", error))?;
    // It may have ended before.
    match getppid().map(Pid::as_raw_pid) {
        Some(now) if now == parent => Ok(()),
        _ => Err(Failure::new(format_args!("process {parent}, which waits for the point, has ended"))),
    }
}

fn list(kind: Kind, output: &mut Output) -> Result<(), Failure> {
    output.line(format_args!("{}: {}\n\nParameters, with their defaults:", kind.name(), kind.about()))?;
    for parameter in kind.parameters() {
        let given = format!("{}={}", parameter.name, parameter.default);
        output.line(format_args!("  {given:<24} {}", parameter.about))?;
    }
    output.line("\nMetrics:")?;
    for metric in kind.metrics() {
        output.line(format_args!("  {:<24} {}", metric.name, metric.label))?;
    }
    Ok(())
}
