//! Points of the kind `replay`: a block trace on a simulated device with a translation layer.

use std::sync::Arc;

use basalt_flash::device::presets;
use basalt_flash::ftl::TranslationKind;
use basalt_traces::{ReadOptions, TraceReader};

use super::{ANY_NUMBER, parameter};
use crate::experiment::parameter::{Form, Measured, Metric, Parameter};
use crate::experiment::point::Point;
use crate::replay::{Outcome, Replay, replay_trace, size_for};

/// What can be asked for.
pub const PARAMETERS: &[Parameter] = &[
    parameter("trace", "", Form::Text, "the trace, in any format that `basalt lab trace` reads"),
    parameter("format", "", Form::Text, "format of the trace [default: detected from its content]"),
    parameter("volume", "", Form::Text, "only the requests to this volume of the trace"),
    parameter("device", "ssd-m", Form::Device, "preset of `basalt lab devices`, or the path of a device's TOML file"),
    parameter("size", "", Form::Size { least: 1 << 20 }, "size of the device [default: as far as the trace reaches]"),
    parameter("ftl", "page-level", Form::Choice(&["page-level", "fast"]), "flash translation layer"),
    parameter(
        "fill",
        "100",
        Form::Percent { least: 0, largest: 100 },
        "share of the device that was written before, in percent",
    ),
    parameter(
        "repeat",
        "1",
        Form::Number { least: 1, largest: 1000 },
        "how often the trace runs; the last time is measured",
    ),
    parameter(
        "queue-depth",
        "1",
        Form::Number { least: 1, largest: 65_536 },
        "requests under way at a time, in the order of the trace; a flush waits for all",
    ),
    parameter("seed", "1", ANY_NUMBER, "has no effect: a trace has no random choices"),
];

/// What is measured.
pub const METRICS: &[Metric] = &[
    Metric::plain("requests", "requests"),
    Metric::bytes("bytes_written", "written"),
    Metric::bytes("bytes_read", "read"),
    Metric::plain("bad_lines", "lines of the trace that could not be read"),
    Metric::time("device_ns", "device time by the model"),
    Metric::time("device_with_copies_ns", "device time with the copies of the translation layer"),
    Metric::plain("ftl_write_amplification", "write amplification of the translation layer"),
    Metric::plain("ftl_pages_programmed", "flash pages programmed"),
    Metric::plain("ftl_erases", "erases"),
    Metric::plain("wear_deviation", "standard deviation of the erases of a block"),
    Metric::time("p50_ns", "latency, median"),
    Metric::time("p99_ns", "latency, p99"),
    Metric::time("p99_9_ns", "latency, p99.9"),
    Metric::time("write_p99_ns", "latency of writes, p99"),
];

/// What a table shows if nobody chooses.
pub const MAIN_METRICS: &[&str] =
    &["bytes_written", "device_with_copies_ns", "ftl_write_amplification", "ftl_erases", "p99_ns"];

/// Runs a point.
pub(super) fn run(point: &Point) -> Result<Measured, String> {
    let device = presets::find(point.value("device")).map_err(|error| error.to_string())?;
    let kind: TranslationKind = point.value("ftl").parse()?;
    let logical_bytes = match point.number("size") {
        Some(bytes) => bytes,
        None => reach(point)?,
    };
    let replay = Replay::new(Arc::new(device), logical_bytes, &[kind]).map_err(|error| error.to_string())?;
    let mut replay = replay.with_queue_depth(point.number("queue-depth").unwrap_or(1) as u32);
    replay.fill(point.number("fill").unwrap_or(100) as f64 / 100.0);
    let mut bad_lines = 0;
    for _ in 0..point.number("repeat").unwrap_or(1) {
        replay.begin_measuring();
        let mut trace = open(point)?;
        replay_trace(&mut trace, &mut replay).map_err(|error| error.to_string())?;
        bad_lines = trace.counts().bad_lines;
    }
    Ok(measured(&replay.outcome(), bad_lines))
}

fn open(point: &Point) -> Result<TraceReader, String> {
    let path = point.value("trace");
    if path.is_empty() {
        return Err("trace: missing".to_owned());
    }
    let format = match point.value("format") {
        "" => None,
        name => Some(name.parse()?),
    };
    let volume = Some(point.value("volume")).filter(|name| !name.is_empty()).map(str::to_owned);
    TraceReader::open(path, &ReadOptions { format, volume, ..ReadOptions::default() })
        .map_err(|error| error.to_string())
}

/// The byte behind the last one that the trace touches.
fn reach(point: &Point) -> Result<u64, String> {
    let mut end = 0;
    for request in open(point)? {
        match request {
            Ok(request) => end = request.end().max(end),
            Err(basalt_traces::TraceError::BadLine(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    if end == 0 {
        Err(format!("{}: the trace has no reads or writes", point.value("trace")))
    } else {
        Ok(size_for(end))
    }
}

fn measured(outcome: &Outcome, bad_lines: u64) -> Measured {
    let mut measured = Measured::default();
    measured.count("requests", outcome.requests.requests());
    measured.count("bytes_written", outcome.requests.bytes_written);
    measured.count("bytes_read", outcome.requests.bytes_read);
    measured.count("bad_lines", bad_lines);
    measured.count("device_ns", outcome.device_ns);
    for layer in &outcome.layers {
        measured.count("device_with_copies_ns", layer.device_ns);
        measured.add("ftl_write_amplification", layer.wa);
        measured.count("ftl_pages_programmed", layer.statistics.pages_programmed);
        measured.count("ftl_erases", layer.statistics.erases);
        measured.add("wear_deviation", layer.wear.standard_deviation);
        measured.count("p50_ns", layer.latency.p50_ns);
        measured.count("p99_ns", layer.latency.p99_ns);
        measured.count("p99_9_ns", layer.latency.p999_ns);
        measured.count("write_p99_ns", layer.write_latency.p99_ns);
    }
    measured
}
