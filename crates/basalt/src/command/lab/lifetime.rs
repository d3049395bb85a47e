//! `basalt lab lifetime`: how long a device lasts.

use std::path::PathBuf;

use basalt_flash::device::DeviceModel;
use basalt_lab::lifetime::{Estimate, Flash, Simulated, assumptions, of_trace, of_workload};
use basalt_lab::trace_load::TraceLoad;
use basalt_traces::{Format, ReadOptions, TraceReader};
use basalt_workloads::{Error, Settings, by_name};
use serde::Serialize;

use crate::failure::{DONE, Failure, Outcome};
use crate::output::{Output, tell};
use crate::progress::spinner;
use crate::size;

/// Estimate how many years a device lasts under a trace or a workload
///
/// Each line is a policy and the translation layer it was simulated on. It shows what the file system and the layer add to the bytes
/// written, and the years until the rated program/erase cycles are used; the assumptions follow. A trace is simulated as it was recorded, and as a
/// log-structured volume would write it; a workload runs on the F2FS engine.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("load").required(true))]
pub struct Args {
    /// Block trace: fio iolog, blkparse, MSR, Alibaba, MQSim or vscsi, which may be compressed; or the directory of a recording
    #[arg(long, value_name = "FILE", group = "load", value_hint = clap::ValueHint::AnyPath)]
    trace: Option<PathBuf>,

    /// Format of the trace [default: detected from its content]
    #[arg(long, value_name = "FORMAT", requires = "trace")]
    format: Option<Format>,

    /// Workload, as `basalt lab workloads` lists them
    #[arg(long, value_name = "NAME", group = "load")]
    workload: Option<String>,

    /// Device: a preset of `basalt lab devices`, or a TOML file
    #[arg(long, value_name = "DEVICE")]
    device: String,

    /// Capacity of the device [default: the preset's]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    capacity: Option<u64>,

    /// Bytes written a day [default: the trace's own rate; 20 GiB for a workload]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    per_day: Option<u64>,

    /// How full the device is, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 85, value_parser = clap::value_parser!(u8).range(1..=99))]
    utilization: u8,

    /// Size of the volume that a workload is simulated on
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse, conflicts_with = "trace")]
    size: u64,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Do not show what is simulated meanwhile (which only a terminal shows)
    #[arg(short, long)]
    quiet: bool,
}

/// Bytes that a workload writes in a day, unless an option sets it.
const USUAL_PER_DAY: u64 = 20 << 30;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// The whole answer.
#[derive(Serialize)]
struct Answer {
    flash: Flash,
    bytes_per_day: f64,
    estimates: Vec<Estimate>,
    left_out: Vec<String>,
    assumptions: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// When the device, trace or workload is not known or cannot be simulated.
pub fn run(args: &Args) -> Outcome {
    let device = super::device(&args.device)?;
    let flash = Flash::of(&device, args.capacity).map_err(Failure::usage)?;
    if args.per_day == Some(0) {
        return Err(Failure::usage("--per-day 0: nothing is written, and nothing wears"));
    }
    let (load, bytes_per_day, source) = match (&args.trace, &args.workload) {
        (Some(path), _) => trace(args, path, &device)?,
        (None, workload) => engine(args, workload.as_deref().unwrap_or_default(), &device)?,
    };
    let assumptions = assumptions(&flash, bytes_per_day, &source, &load);
    let estimates = load.amplifications.into_iter().map(|one| Estimate::new(&flash, one, bytes_per_day)).collect();
    let answer = Answer { flash, bytes_per_day, estimates, left_out: load.left_out, assumptions };
    let mut output = Output::new();
    if args.json {
        output.json(&answer)?;
    } else {
        show(&answer, &mut output)?;
    }
    output.finish()?;
    Ok(DONE)
}

/// What was measured, the rate of the load in bytes a day, and where the rate comes from.
type Measured = (Simulated, f64, String);

fn trace(args: &Args, path: &std::path::Path, device: &DeviceModel) -> Result<Measured, Failure> {
    let options = ReadOptions { format: args.format, ..ReadOptions::default() };
    let mut reader = TraceReader::open(path, &options).map_err(Failure::new)?;
    let load = TraceLoad::read(&mut reader).map_err(|why| Failure::at(path.display(), why))?;
    if reader.counts().bad_lines > 0 {
        let first = reader.counts().first_bad_line.as_ref().map(ToString::to_string).unwrap_or_default();
        tell(format_args!("basalt: {} bad lines skipped; the first: {first}", reader.counts().bad_lines));
    }
    let seconds = load.duration_ns as f64 / 1e9;
    let (rate, source) = match args.per_day {
        Some(bytes) => (bytes as f64, "as given".to_owned()),
        None if seconds < 1.0 => {
            let failure = Failure::at(path.display(), "the trace is shorter than a second, so it has no daily rate");
            return Err(failure.hint("give the bytes written a day with --per-day"));
        }
        None => {
            let cut = if load.is_cut { ", its beginning" } else { "" };
            (
                load.written_bytes as f64 / seconds * SECONDS_PER_DAY,
                format!("the trace's rate over {seconds:.0} s{cut}"),
            )
        }
    };
    let bar = spinner("simulating", args.quiet);
    let say = &mut |what: &str| bar.set_message(what.to_owned());
    let all = of_trace(&load, device, args.utilization, say).map_err(|why| Failure::at(path.display(), why))?;
    bar.finish_and_clear();
    Ok((all, rate, source))
}

fn engine(args: &Args, workload: &str, device: &DeviceModel) -> Result<Measured, Failure> {
    let settings = Settings {
        size_bytes: args.size,
        utilization_percent: args.utilization.into(),
        seed: args.seed,
        ..Settings::default()
    };
    // A wrong name is a wrong argument, and told before anything runs.
    if let Err(error @ Error::Specification(_)) = by_name(workload, &settings) {
        return Err(Failure::usage(error));
    }
    let bar = spinner("simulating", args.quiet);
    let say = &mut |what: &str| bar.set_message(what.to_owned());
    let all = of_workload(workload, &settings, device, say).map_err(Failure::new)?;
    bar.finish_and_clear();
    let source = if args.per_day.is_some() { "as given" } else { "assumed; set it with --per-day" };
    Ok((all, args.per_day.unwrap_or(USUAL_PER_DAY) as f64, source.to_owned()))
}

fn show(answer: &Answer, output: &mut Output) -> Result<(), Failure> {
    output.line(format_args!(
        "{:<28} {:<11} {:>6} {:>6} {:>10} {:>22}",
        "policy", "layer", "WAF", "WA", "years", "first block worn after"
    ))?;
    for estimate in &answer.estimates {
        let measured = &estimate.amplification;
        output.line(format_args!(
            "{:<28} {:<11} {:>6.2} {:>6.2} {:>10.1} {:>16.1} years",
            measured.policy,
            measured.layer.map_or("any", |layer| layer.name()),
            measured.waf,
            measured.wa,
            estimate.years,
            estimate.years_to_first_block
        ))?;
    }
    answer.left_out.iter().try_for_each(|one| output.line(format_args!("left out: {one}")))?;
    output.line("\nAssumptions:")?;
    answer.assumptions.iter().try_for_each(|one| output.line(format_args!("- {one}")))
}
