//! `basalt lab trace`: what a block trace is like, and what it does to a simulated device.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use basalt_flash::{DeviceModel, TranslationKind};
use basalt_lab::replay::{self, Latency, LayerOutcome, Replay};
use basalt_traces::{
    Counts, Event, Format, IologVersion, IologWriter, KindStatistics, ReadOptions, TraceError, TraceReader,
    TraceStatistics,
};
use serde::Serialize;

use crate::failure::{DONE, Failure, Outcome, one_line};
use crate::output::Output;
use crate::progress::{Progress, Unit, spinner};
use crate::size::{self, human};

/// Analyse block traces, convert them, or run them on simulated flash
///
/// Reads fio's iolog (versions 2 and 3), blkparse's text, the CSV of MSR Cambridge, Alibaba and vscsi, and MQSim's text, plain or compressed by
/// gzip, zstd or lz4; and the directories of `basalt lab record`. Lines that do not fit the format are counted, and the first is shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --device or --ftl, each trace runs on a simulated device. The device is as large as the trace reaches (or --size), and was written \
once in order before (--fill). Unaligned writes touch whole pages; discards trim only whole pages.")]
pub struct Args {
    /// Traces, or directories of recordings
    #[arg(value_name = "FILE", required = true, value_hint = clap::ValueHint::AnyPath)]
    files: Vec<PathBuf>,

    /// Format: fio, blkparse, msr, alibaba, mqsim or vscsi-csv [default: detected from the content]
    #[arg(long)]
    format: Option<Format>,

    /// Events of a blkparse text that count as requests: Q (queued), D (dispatched to the device) or C (completed)
    #[arg(long, value_name = "Q|D|C", default_value = "D", value_parser = event)]
    event: Event,

    /// Take only the requests to this device of a trace of several devices (their names are shown)
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,

    /// Stop at the first bad line
    #[arg(long)]
    strict: bool,

    /// Write the requests as fio's iolog
    #[arg(long, value_name = "OUT", value_hint = clap::ValueHint::FilePath)]
    convert: Option<PathBuf>,

    /// Version of the iolog: 3 has times
    #[arg(long, value_name = "2|3", default_value = "3", value_parser = ["2", "3"], requires = "convert")]
    iolog_version: String,

    /// Simulated device: a preset of `basalt lab devices`, or a TOML file (ssd-m if only --ftl is given)
    #[arg(long)]
    device: Option<String>,

    /// Flash translation layers: page-level, fast, both or none
    #[arg(long, value_name = "LAYER", value_parser = ["page-level", "fast", "both", "none"])]
    ftl: Option<String>,

    /// Size of the simulated device
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,

    /// Share of the simulated device that was written before, in percent
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = clap::value_parser!(u8).range(0..=100))]
    fill: u8,

    /// Keep so many requests under way on the simulated device, in the order of the trace; a flush waits for all
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=65_536), requires = "device")]
    queue_depth: u32,

    /// Print one line of JSON for each trace
    #[arg(long)]
    json: bool,

    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
/// When a trace cannot be read, the output cannot be written, or the simulated device is too small.
pub fn run(args: &Args) -> Outcome {
    if args.convert.is_some() && args.files.len() > 1 {
        return Err(Failure::usage("--convert takes only one trace"));
    }
    let device = simulated(args)?;
    let mut output = Output::streaming();
    for (index, file) in args.files.iter().enumerate() {
        let result = study(args, file, device.as_ref())?;
        if args.json {
            // A plain structure always has a JSON form.
            output.line(serde_json::to_string(&result).map_err(Failure::new)?)?;
        } else {
            if index > 0 {
                output.line("")?;
            }
            describe(&result, &mut output)?;
        }
    }
    output.finish()?;
    Ok(DONE)
}

fn event(text: &str) -> Result<Event, String> {
    let all = [Event::Queued, Event::Dispatched, Event::Completed];
    let found = all.into_iter().find(|event| text.eq_ignore_ascii_case(&event.letter().to_string()));
    found.ok_or_else(|| format!("expected Q, D or C, not `{text}`"))
}

/// What is known of a trace.
#[derive(Serialize)]
struct Study {
    trace: String,
    format: &'static str,
    lines: u64,
    bad_lines: u64,
    first_bad_line: Option<String>,
    other_lines: u64,
    volumes: u64,
    volume_names: Vec<String>,
    requests: u64,
    statistics: TraceStatistics,
    simulated: Option<replay::Outcome>,
}

fn study(args: &Args, path: &Path, device: Option<&Simulated>) -> Result<Study, Failure> {
    let options =
        ReadOptions { format: args.format, event: args.event, strict: args.strict, volume: args.volume.clone() };
    let open = || TraceReader::open(path, &options).map_err(|error| failure(&error));
    let mut reader = open()?;
    let mut writer = args.convert.as_deref().map(|out| Converter::new(args, path, out)).transpose()?;
    let mut statistics = TraceStatistics::new();
    let mut progress = Progress::new("reading", Unit::Things, args.quiet);
    while let Some(request) = reader.next() {
        match request {
            Ok(request) => {
                statistics.add(&request);
                if let Some(writer) = &mut writer {
                    writer.push(&request)?;
                }
            }
            Err(TraceError::BadLine(_)) if !args.strict => {}
            Err(error) => return Err(failure(&error)),
        }
        progress.update(reader.counts().requests, 0);
    }
    drop(progress);
    if let Some(writer) = writer {
        writer.finish()?;
    }
    let simulated = device.map(|device| device.run(args, open()?, &statistics)).transpose()?;
    let Counts { lines, requests, bad_lines, other_lines, volumes, volume_names, first_bad_line, .. } =
        reader.counts().clone();
    Ok(Study {
        trace: path.display().to_string(),
        format: reader.format().name(),
        lines,
        bad_lines,
        first_bad_line: first_bad_line.map(|bad| bad.to_string()),
        other_lines,
        volumes,
        volume_names,
        requests,
        statistics,
        simulated,
    })
}

fn failure(error: &TraceError) -> Failure {
    let failure = Failure::new(error);
    match error {
        TraceError::Unrecognized { .. } => failure.hint("use --format"),
        TraceError::NoSuchEvent { .. } => failure.hint("use --event"),
        _ => failure,
    }
}

/// Writes an iolog beside reading.
struct Converter<'a> {
    out: &'a Path,
    writer: IologWriter<BufWriter<File>>,
}

impl Converter<'_> {
    fn new<'a>(args: &Args, trace: &Path, out: &'a Path) -> Result<Converter<'a>, Failure> {
        let failed = |error| Failure::at(out.display(), error);
        let version = if args.iolog_version == "2" { IologVersion::Two } else { IologVersion::Three };
        let name = trace.file_name().unwrap_or_default().to_string_lossy();
        let file = BufWriter::new(File::create_new(out).map_err(failed)?);
        Ok(Converter { out, writer: IologWriter::new(file, version, &name).map_err(failed)? })
    }

    fn push(&mut self, request: &basalt_traces::TraceRequest) -> Result<(), Failure> {
        self.writer.push(request).map_err(|error| Failure::at(self.out.display(), error))
    }

    fn finish(self) -> Result<(), Failure> {
        self.writer.finish().map(drop).map_err(|error| Failure::at(self.out.display(), error))
    }
}

/// The device to simulate.
struct Simulated {
    model: Arc<DeviceModel>,
    layers: Vec<TranslationKind>,
}

fn simulated(args: &Args) -> Result<Option<Simulated>, Failure> {
    if args.device.is_none() && args.ftl.is_none() {
        return Ok(None);
    }
    let model = super::device(args.device.as_deref().unwrap_or("ssd-m"))?;
    let layers = match args.ftl.as_deref() {
        Some("none") => Vec::new(),
        None | Some("both") => TranslationKind::ALL.to_vec(),
        Some(name) => vec![name.parse().map_err(Failure::usage)?],
    };
    Ok(Some(Simulated { model: Arc::new(model), layers }))
}

impl Simulated {
    fn run(
        &self,
        args: &Args,
        mut reader: TraceReader,
        statistics: &TraceStatistics,
    ) -> Result<replay::Outcome, Failure> {
        let logical_bytes = args.size.unwrap_or_else(|| replay::size_for(statistics.end));
        let replay = Replay::new(Arc::clone(&self.model), logical_bytes, &self.layers).map_err(Failure::new)?;
        let mut replay = replay.with_queue_depth(args.queue_depth);
        let bar = spinner("writing the flash once", args.quiet);
        replay.fill(f64::from(args.fill) / 100.0);
        bar.finish_and_clear();
        replay::replay_trace(&mut reader, &mut replay).map_err(Failure::new)?;
        Ok(replay.outcome())
    }
}

fn describe(study: &Study, output: &mut Output) -> Result<(), Failure> {
    let statistics = &study.statistics;
    let mut row = |name: &str, value: String| output.line(format_args!("{name:<14}{}", one_line(&value)));
    row("trace", format!("{} ({})", study.trace, study.format))?;
    row("lines", format!("{}, {} bad, {} without a request", study.lines, study.bad_lines, study.other_lines))?;
    if let Some(bad) = &study.first_bad_line {
        row("first bad line", format!(" {bad}"))?;
    }
    if study.volumes > 1 {
        let names = study.volume_names.join(", ");
        let more = if study.volumes > study.volume_names.len() as u64 { ", …" } else { "" };
        row("devices", format!("{} (--volume selects one): {names}{more}", study.volumes))?;
    }
    row("requests", study.requests.to_string())?;
    kind("reads", &statistics.reads, &mut row)?;
    kind("writes", &statistics.writes, &mut row)?;
    kind("discards", &statistics.discards, &mut row)?;
    row("flushes", statistics.flushes.to_string())?;
    row("duration", seconds(statistics.duration_ns as f64))?;
    let partial = if statistics.footprint_is_partial { "at least " } else { "" };
    let (footprint, written) = (human(statistics.footprint), human(statistics.writes.footprint));
    row("footprint", format!("{partial}{footprint}, {written} of it written, up to byte {}", statistics.end))?;
    match &study.simulated {
        Some(outcome) => describe_outcome(outcome, output),
        None => Ok(()),
    }
}

fn kind(
    name: &str,
    kind: &KindStatistics,
    row: &mut impl FnMut(&str, String) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if kind.requests == 0 {
        return row(name, "0".to_owned());
    }
    row(
        name,
        format!(
            "{}, {} ({} on average, up to {}), {:.1} % sequential, {:.1} % not aligned to 4 KiB",
            kind.requests,
            human(kind.bytes),
            human(kind.mean_length() as u64),
            human(kind.longest),
            kind.sequential_share() * 100.0,
            kind.unaligned as f64 / kind.requests as f64 * 100.0
        ),
    )
}

fn describe_outcome(outcome: &replay::Outcome, output: &mut Output) -> Result<(), Failure> {
    output.line("")?;
    let size = human(outcome.logical_bytes);
    let latency = shown(&outcome.latency);
    let depth = if outcome.queue_depth > 1 { format!(", queue depth {}", outcome.queue_depth) } else { String::new() };
    output.line(format_args!(
        "on {} of {size}{depth}: busy {}, {latency}",
        outcome.device,
        seconds(outcome.device_ns as f64)
    ))?;
    for layer in &outcome.layers {
        output.line(describe_layer(layer))?;
    }
    let few: Vec<&str> =
        outcome.layers.iter().filter(|layer| layer.wear.mean < 1.0).map(|layer| layer.layer.name()).collect();
    if !few.is_empty() {
        output.line(format_args!(
            "Warning: less than one erase per block with {}, so WA may not be steady: replay the trace several times (`basalt lab point replay \
             repeat=N`), or on a smaller device (--size)",
            few.join(", ")
        ))?;
    }
    Ok(())
}

fn describe_layer(layer: &LayerOutcome) -> String {
    let statistics = &layer.statistics;
    format!(
        "  {:<11} WA {:.3}: {} pages written, {} programmed, {} erases (each block {:.2}, at most {}); with copies: busy {}, {}",
        layer.layer.name(),
        layer.wa,
        statistics.pages_written,
        statistics.pages_programmed,
        statistics.erases,
        layer.wear.mean,
        layer.wear.max,
        seconds(layer.device_ns as f64),
        shown(&layer.latency)
    )
}

fn shown(latency: &Latency) -> String {
    let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    let (half, most, nearly) = (latency.p50_ns, latency.p99_ns, latency.p999_ns);
    format!("p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms", milliseconds(half), milliseconds(most), milliseconds(nearly))
}

fn seconds(nanoseconds: f64) -> String {
    format!("{:.3} s", nanoseconds / 1e9)
}
