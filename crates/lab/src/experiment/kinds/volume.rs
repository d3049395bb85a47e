//! Points of the kind `volume`: a stream of block writes on the volume simulator.

use std::sync::Arc;

use basalt_flash::device::{DeviceModel, presets};
use basalt_schemes::SfsOptions;
use basalt_segments::placement::Moved;
use basalt_segments::{BLOCKS_PER_SEGMENT, Touches};
use basalt_simulator::{Age, BLOCK_SIZE, Statistics};
use basalt_traces::{ReadOptions, TraceReader};

use super::{ANY_NUMBER, SEGMENT, parameter};
use crate::engine::{block_times, read_weight};
use crate::experiment::parameter::{Form, Measured, Metric, Parameter};
use crate::experiment::point::Point;
use crate::size;
use crate::trace_load::TraceLoad;
use crate::volume::{
    Around, AroundFiles, DeviceCost, FileLengths, FileLoad, LIVE_TENTHS, Lengths, Placing, Priced, Setup, SfsSetup,
    Source,
};
use crate::volume::{defaults, live_tenths, run_around, run_files, set_blocks, size_of_trace};

/// What can be asked for.
pub const PARAMETERS: &[Parameter] = &[
    parameter(
        "stream",
        defaults::STREAM,
        Form::Text,
        "which blocks are written: zipf:THETA, moving-zipf:THETA, uniform, hotcold:90/10, sequential, runs, write-once, tpcc",
    ),
    parameter(
        "trace",
        "",
        Form::Text,
        "block trace whose writes are the stream, over and over; or the directory of a recording",
    ),
    parameter(
        "files",
        "",
        Form::Text,
        "files that are written, read and removed behind a kernel's page cache, instead of a stream: server, or a workload such as mobile",
    ),
    parameter(
        "until",
        "100",
        Form::Percent { least: 1, largest: 100 },
        "share of what is measured of files that is done, on the volume for all of it: 10 is the first of ten runs of `server`",
    ),
    parameter("policy", defaults::POLICY, Form::Victim, "which section is cleaned next"),
    parameter("placement", "static", Form::Placing, "which log each block is written to"),
    parameter(
        "size",
        "",
        Form::Size { least: 32 << 20 },
        "size of the volume [default: 1G; with a trace or files, as large as their blocks need]; of files, what they are made for",
    ),
    parameter(
        "utilization",
        defaults::UTILIZATION,
        Form::Percent { least: 1, largest: 99 },
        "blocks in use, in percent",
    ),
    parameter(
        "section",
        "2M",
        Form::Share { least: SEGMENT },
        "size of a section, the unit of cleaning; a share is the nearest whole number of segments",
    ),
    parameter(
        "logs",
        defaults::LOGS,
        Form::Choice(&["2", "4", "6"]),
        "active logs; with 6, cleaning copies to a log of its own",
    ),
    parameter(
        "cleaning",
        defaults::CLEANING,
        Form::Text,
        "when to clean: free:N keeps N sections free, garbage:PERCENT limits the dead share of written blocks, paced is the engine's way, paced:reserve keeps all free that the format reserves",
    ),
    parameter(
        "age-from",
        "modified",
        Form::Choice(&["modified", "written"]),
        "start of the age of a section: its last change or its last write",
    ),
    parameter("warm-up", "", ANY_NUMBER, "writes before measuring [default: four times the blocks in use]"),
    parameter("writes", "", ANY_NUMBER, "writes to measure [default: four times the blocks in use]"),
    parameter("age", "", Form::Share { least: 4096 }, "bytes of the writes before measuring, instead of warm-up"),
    parameter("measure", "", Form::Share { least: 4096 }, "bytes of the writes to measure, instead of writes"),
    parameter(
        "device",
        "ssd-m",
        Form::Device,
        "device whose bandwidths weigh the write cost, and that `request` times",
    ),
    parameter(
        "request",
        "",
        Form::Size { least: 4096 },
        "bytes of a request at most, up to a segment: times what the volume writes and reads on the device [default: no device]",
    ),
    parameter(
        "page-cache",
        "",
        Form::Size { least: 4096 },
        "dirty blocks of a page cache in front of the volume, written back all together when it is full [default: none]; with files, pages on its lists",
    ),
    parameter(
        "touches",
        "each",
        Form::Choice(Touches::NAMES),
        "what touches a page for placement `page-cache`: each write and read, those of a page in a row once, or reads only",
    ),
    parameter(
        "moved",
        "cold",
        Form::Choice(Moved::NAMES),
        "where placements `page-cache` and `run-length` put what cleaning copies: cold, or by their list with 4 logs",
    ),
    parameter("seed", "1", ANY_NUMBER, "seed of the stream"),
    parameter(
        "set",
        "",
        Form::Share { least: 4096 },
        "bytes that the stream writes; the other blocks are written once, before [default: all in use]",
    ),
    sfs_parameter(0, Form::Share { least: 0 }),
    sfs_parameter(1, Form::Number { least: 1, largest: SfsOptions::GROUPS_MAX as u64 }),
    sfs_parameter(2, Form::Text),
    sfs_parameter(3, Form::Choice(&["on", "off"])),
    sfs_parameter(4, Form::Choice(&["iterative", "eq-range", "eq-count"])),
    sfs_parameter(5, Form::Number { least: 1, largest: u32::MAX as u64 }),
    sfs_parameter(6, Form::Number { least: 1, largest: 1_000_000 }),
    sfs_parameter(7, Form::Size { least: 4096 }),
];

const fn sfs_parameter(which: usize, form: Form) -> Parameter {
    let (name, usual, about) = SfsSetup::PARAMETERS[which];
    parameter(name, usual, form, about)
}

/// What is measured.
pub const METRICS: &[Metric] = &[
    Metric::plain("write_amplification", "write amplification"),
    Metric::plain("write_cost", "write cost"),
    Metric::plain("writes", "blocks written by users"),
    Metric::plain("copies", "blocks copied by cleaning"),
    Metric::plain("victims", "sections cleaned"),
    Metric::plain("copies_per_victim", "blocks copied for each section cleaned"),
    Metric { name: "victim_utilization", label: "live blocks of victims", unit: crate::report::Unit::Percent },
    Metric::plain("checkpoints", "checkpoints"),
    Metric::plain("write_mb_per_second", "written by users, in the time of the write cost (MB/s)"),
    Metric::plain("set_sections", "sections with blocks of the set"),
    live_up_to(0),
    live_up_to(1),
    live_up_to(2),
    live_up_to(3),
    live_up_to(4),
    live_up_to(5),
    live_up_to(6),
    live_up_to(7),
    live_up_to(8),
    live_up_to(9),
    Metric::plain("page_cache_absorbed", "writes to blocks that were dirty already"),
    Metric::plain("removed_in_memory", "pages removed before they were written back"),
    Metric { name: "active_share", label: "written pages on the active list", unit: crate::report::Unit::Percent },
    Metric::plain("device_seconds", "device time (s)"),
    Metric::plain("device_write_cost", "write cost by the device's time"),
    Metric::plain("device_writes", "writes to the device"),
    Metric::plain("device_reads", "reads of the device"),
    Metric::bytes("memory_bytes", "memory of the simulation"),
];

const fn live_up_to(tenth: usize) -> Metric {
    let (name, label) = LIVE_TENTHS[tenth];
    Metric { name, label, unit: crate::report::Unit::Percent }
}

/// What a table shows if nobody chooses.
pub const MAIN_METRICS: &[&str] =
    &["write_amplification", "write_cost", "victims", "copies_per_victim", "victim_utilization"];

/// Runs a point.
pub(super) fn run(point: &Point) -> Result<Measured, String> {
    let device = Arc::new(presets::find(point.value("device")).map_err(|error| error.to_string())?);
    if !point.value("files").is_empty() {
        return run_load(point, &device);
    }
    if point.number("until") != Some(100) {
        return Err("until is for files: a stream has `writes`".into());
    }
    let trace = trace(point)?;
    let mut setup = setup(point, trace.as_ref())?;
    setup.placement = with_sfs(setup.placement, point, &device)?;
    let mut options = setup.options()?;
    let set = set_blocks(point.number("set"), options.blocks)?;
    let mut source = match &trace {
        None => Source::stream(point.value("stream"), set, point.number("seed").unwrap_or(1))?,
        Some(trace) => {
            // Pieces and sections were rounded up.
            options.blocks = trace.blocks();
            Source::Trace(trace)
        }
    };
    let written = if trace.is_some() { options.blocks } else { set };
    let lengths = Lengths::or_usual(length(point, "warm-up", "age")?, length(point, "writes", "measure")?, written);
    let section_blocks = options.segments_per_section * BLOCKS_PER_SEGMENT;
    let priced = point.number("request").map(|bytes| Priced::new(Arc::clone(&device), bytes));
    let touches = Touches::by_name(point.value("touches")).ok_or("touches: no such rule")?;
    let around = Around { touches, ..Around::new(point.number("page-cache"), priced) };
    let ran = run_around(options, setup.placement, &mut source, lengths, around, &mut |_, _| ())?;
    let mut measured = measured(&ran.statistics, section_blocks, &device, ran.volume.memory().bytes);
    if !point.value("set").is_empty() {
        let (sections, tenths) = live_tenths(&ran.volume, set);
        measured.count("set_sections", sections);
        LIVE_TENTHS.iter().zip(tenths).for_each(|((name, _), share)| measured.add(name, share * 100.0));
    }
    if point.number("page-cache").is_some() || matches!(setup.placement, Placing::Sfs(_)) {
        measured.count("page_cache_absorbed", ran.absorbed);
    }
    if let Some(cost) = &ran.device {
        add_device(cost, ran.statistics.user_blocks, &mut measured);
    }
    Ok(measured)
}

/// The placement with what the point says of `sfs`, whose clock is the device's; a parameter of it is refused with any other.
fn with_sfs(placement: Placing, point: &Point, device: &Arc<DeviceModel>) -> Result<Placing, String> {
    let given = SfsSetup::PARAMETERS.iter().map(|&(name, usual, _)| (name, usual, point.value(name)));
    let mut given = given.filter(|(_, usual, value)| value != usual);
    let Placing::Sfs(mut sfs) = placement else {
        let refused = given.next().map(|(name, ..)| format!("{name}: only placement sfs has it"));
        return refused.map_or(Ok(placement), Err);
    };
    given.try_for_each(|(name, _, value)| match point.number(name).filter(|_| value.ends_with('%')) {
        Some(bytes) => sfs.set(name, &bytes.to_string()),
        None => sfs.set(name, value),
    })?;
    sfs.set_device(device);
    sfs.options.seed = point.number("seed").unwrap_or(1);
    Ok(Placing::Sfs(sfs))
}

/// Writes that are given in blocks, or in bytes.
fn length(point: &Point, blocks: &str, bytes: &str) -> Result<Option<u64>, String> {
    match (point.number(blocks), point.number(bytes)) {
        (Some(_), Some(_)) => Err(format!("{blocks} and {bytes} exclude each other")),
        (given, None) => Ok(given),
        (None, Some(bytes)) => Ok(Some(bytes / BLOCK_SIZE)),
    }
}

/// Runs a point with files.
fn run_load(point: &Point, device: &Arc<DeviceModel>) -> Result<Measured, String> {
    for (name, usual) in [("stream", defaults::STREAM), ("trace", ""), ("set", ""), ("age", ""), ("measure", "")] {
        if point.value(name) != usual {
            return Err(format!("{name} and files exclude each other"));
        }
    }
    let mut setup = setup(point, None)?;
    let load = FileLoad::parse(point.value("files"), setup.size)?;
    setup.placement = with_sfs(setup.placement, point, device)?;
    let lengths = FileLengths {
        seed: point.number("seed").unwrap_or(1),
        warm_up: point.number("warm-up"),
        measured: point.number("writes"),
        until: point.number("until").unwrap_or(100) as u8,
    };
    let touches = Touches::by_name(point.value("touches")).ok_or("touches: no such rule")?;
    let priced = point.number("request").map(|bytes| Priced::new(Arc::clone(device), bytes));
    let around = AroundFiles::new(point.number("page-cache"), touches, priced);
    let (ran, memory) = run_files(&setup, &load, &lengths, around, &mut |_, _| ())?;
    let section_blocks = ran.volume.table().section_blocks();
    let mut measured = measured(&ran.statistics, section_blocks, device, ran.volume.memory().bytes);
    measured.count("page_cache_absorbed", memory.absorbed);
    measured.count("removed_in_memory", memory.died);
    if let Some(share) = memory.active_share() {
        measured.add("active_share", share * 100.0);
    }
    if let Some(cost) = &ran.device {
        add_device(cost, ran.statistics.user_blocks, &mut measured);
    }
    Ok(measured)
}

fn add_device(cost: &DeviceCost, new_blocks: u64, measured: &mut Measured) {
    measured.add("device_seconds", cost.seconds());
    measured.add("device_write_cost", cost.write_cost(new_blocks).unwrap_or(f64::NAN));
    measured.count("device_writes", cost.writes);
    measured.count("device_reads", cost.reads);
}

/// The trace that a point names, if it does.
fn trace(point: &Point) -> Result<Option<TraceLoad>, String> {
    let path = point.value("trace");
    if path.is_empty() {
        return Ok(None);
    }
    for (name, usual) in [("stream", defaults::STREAM), ("size", ""), ("set", "")] {
        if point.value(name) != usual {
            return Err(format!("{name} and trace exclude each other"));
        }
    }
    let mut reader = TraceReader::open(path, &ReadOptions::default()).map_err(|error| error.to_string())?;
    TraceLoad::read(&mut reader).map(Some).map_err(|why| format!("{path}: {why}"))
}

fn setup(point: &Point, trace: Option<&TraceLoad>) -> Result<Setup, String> {
    let mut section = point.number("section").unwrap_or(SEGMENT);
    if point.value("section").ends_with('%') {
        section = (section + SEGMENT / 2) / SEGMENT * SEGMENT;
    }
    if !section.is_multiple_of(SEGMENT) {
        return Err(format!("section: {} is not a multiple of {}", size::exact(section), size::exact(SEGMENT)));
    }
    let segments_per_section = u32::try_from(section / SEGMENT).map_err(|_| "section: too large".to_owned())?;
    let utilization = point.number("utilization").unwrap_or(85) as u8;
    let size = match (point.number("size"), trace) {
        (_, Some(trace)) => size_of_trace(trace, utilization, segments_per_section, point.value("cleaning"))?,
        (Some(bytes), None) => bytes,
        (None, None) => size::parse(defaults::SIZE)?,
    };
    Ok(Setup {
        size,
        utilization,
        segments_per_section,
        logs: point.number("logs").unwrap_or(6) as u8,
        policy: super::victim(point, "policy")?,
        placement: placing(point)?,
        cleaning: point.value("cleaning").to_owned(),
        age: if point.value("age-from") == "written" { Age::Written } else { Age::Modified },
    })
}

fn placing(point: &Point) -> Result<Placing, String> {
    let moved = Moved::by_name(point.value("moved")).ok_or("moved: no such rule")?;
    Placing::by_name(point.value("placement")).ok_or("placement: no such policy")?.with_moved(moved)
}

fn measured(statistics: &Statistics, section_blocks: u32, device: &Arc<DeviceModel>, memory: u64) -> Measured {
    let mut measured = Measured::default();
    let (_, write_ns) = block_times(device);
    // Where a cache took everything, nothing was written that could be amplified.
    if statistics.user_blocks > 0 {
        measured.add("write_amplification", statistics.write_amplification());
        // Bandwidths in units of the random read.
        let cost = statistics.write_cost(1.0, read_weight(device));
        measured.add("write_cost", cost);
        let nanoseconds = cost * statistics.user_blocks as f64 * write_ns;
        measured.add("write_mb_per_second", (statistics.user_writes * BLOCK_SIZE) as f64 * 1000.0 / nanoseconds);
    }
    measured.count("writes", statistics.user_writes);
    measured.count("copies", statistics.copies);
    measured.count("victims", statistics.victims);
    measured.add("copies_per_victim", statistics.copies as f64 / statistics.victims as f64);
    if statistics.victims > 0 {
        measured.add("victim_utilization", statistics.mean_victim_utilization(section_blocks) * 100.0);
    }
    measured.count("checkpoints", statistics.checkpoints);
    measured.count("memory_bytes", memory);
    measured
}
