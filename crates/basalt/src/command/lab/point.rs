//! `basalt lab point`: one point of an experiment.

use basalt_lab::experiment::{Kind, Point, Record};

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;

/// Run one point of an experiment: the same arguments give the same result on any machine
///
/// A parameter without a NAME=VALUE has its default, which --list shows.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Kind of point: engine, volume or replay
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
}

/// Runs the command.
///
/// # Errors
/// When a parameter makes no sense, or the point fails.
pub fn run(args: &Args) -> Outcome {
    let mut output = Output::new();
    if args.list {
        list(args.kind, &mut output)?;
        output.finish()?;
        return Ok(DONE);
    }
    let point = Point::parse(args.kind, &args.parameters).map_err(Failure::usage)?;
    let record = Record::of(point.clone());
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
