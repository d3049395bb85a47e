//! Points of the kind `volume`: a stream of block writes on the volume simulator.

use std::sync::Arc;

use basalt_flash::device::presets;
use basalt_simulator::{Age, Cleaning, Options, Statistics, Volume};
use basalt_workloads::Stream;

use super::{ANY_NUMBER, SEGMENT, parameter};
use crate::engine::read_weight;
use crate::experiment::parameter::{Form, Measured, Metric, Parameter};
use crate::experiment::point::Point;
use crate::size;

/// Writes before measuring, and measured, if nobody says: so often the blocks in use.
const TIMES: u64 = 4;

/// What can be asked for.
pub const PARAMETERS: &[Parameter] = &[
    parameter(
        "stream",
        "zipf:0.99",
        Form::Text,
        "which blocks are written: zipf:THETA, uniform, hotcold:90/10, sequential, tpcc",
    ),
    parameter("policy", "cost-benefit", Form::Victim, "which section is cleaned next"),
    parameter("placement", "static", Form::Placement, "which log each block is written to"),
    parameter("size", "1G", Form::Size { least: 32 << 20 }, "size of the volume"),
    parameter("utilization", "85", Form::Percent { least: 1, largest: 99 }, "blocks in use, in percent"),
    parameter("section", "2M", Form::Size { least: SEGMENT }, "size of a section, the unit of cleaning"),
    parameter("logs", "6", Form::Choice(&["2", "4", "6"]), "active logs; with 6, cleaning copies to a log of its own"),
    parameter(
        "age-from",
        "modified",
        Form::Choice(&["modified", "written"]),
        "start of the age of a section: its last change or its last write",
    ),
    parameter("free-sections", "4", Form::Number { least: 2, largest: 1 << 20 }, "free sections that cleaning keeps"),
    parameter("warm-up", "", ANY_NUMBER, "writes before measuring [default: four times the blocks in use]"),
    parameter("writes", "", ANY_NUMBER, "writes to measure [default: four times the blocks in use]"),
    parameter("device", "ssd-m", Form::Text, "device whose bandwidths weigh the write cost"),
    parameter("seed", "1", ANY_NUMBER, "seed of the stream"),
];

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
    Metric::bytes("memory_bytes", "memory of the simulation"),
];

/// What a table shows if nobody chooses.
pub const MAIN_METRICS: &[&str] =
    &["write_amplification", "write_cost", "victims", "copies_per_victim", "victim_utilization"];

/// Runs a point.
pub(super) fn run(point: &Point) -> Result<Measured, String> {
    let options = options(point)?;
    let device = Arc::new(presets::find(point.value("device")).map_err(|error| error.to_string())?);
    let section_blocks = options.segments_per_section * basalt_segments::BLOCKS_PER_SEGMENT;
    let blocks = options.blocks;
    let seed = point.number("seed").unwrap_or(1);
    let mut stream = Stream::parse(point.value("stream"), blocks, seed).map_err(|error| error.to_string())?;
    let mut volume = Volume::new(options).map_err(|error| error.to_string())?;
    let default = TIMES * u64::from(blocks);
    // Every block is in use before anything is overwritten.
    for block in 0..blocks {
        volume.write(block).map_err(|error| error.to_string())?;
    }
    overwrite(&mut volume, &mut stream, point.number("warm-up").unwrap_or(default))?;
    volume.take_statistics();
    overwrite(&mut volume, &mut stream, point.number("writes").unwrap_or(default))?;
    let statistics = volume.take_statistics();
    Ok(measured(&statistics, section_blocks, read_weight(&device), volume.memory().bytes))
}

fn overwrite(volume: &mut Volume, stream: &mut Stream, count: u64) -> Result<(), String> {
    (0..count).try_for_each(|_| volume.write(stream.next_block())).map_err(|error| error.to_string())
}

fn options(point: &Point) -> Result<Options, String> {
    let bytes = point.number("size").unwrap_or(1 << 30);
    let utilization = point.number("utilization").unwrap_or(85) as u8;
    let section = point.number("section").unwrap_or(SEGMENT);
    if !section.is_multiple_of(SEGMENT) {
        return Err(format!("section: {} is not a multiple of {}", size::exact(section), size::exact(SEGMENT)));
    }
    let options = Options::of(bytes / section * section, utilization).map_err(|error| error.to_string())?;
    let policy = super::victim(point, "policy")?;
    let segments_per_section = (section / SEGMENT) as u32;
    let sections = options.segments / segments_per_section.max(1);
    Ok(Options {
        segments_per_section,
        logs: point.number("logs").unwrap_or(6) as u8,
        policy,
        placement: super::placement(point)?,
        cleaning: Cleaning::FreeSections {
            least: point.number("free-sections").unwrap_or(4) as u32,
            victims: Options::victims_for(policy, sections),
        },
        age: if point.value("age-from") == "written" { Age::Written } else { Age::Modified },
        ..options
    })
}

fn measured(statistics: &Statistics, section_blocks: u32, read_weight: f64, memory: u64) -> Measured {
    let mut measured = Measured::default();
    measured.add("write_amplification", statistics.write_amplification());
    // Bandwidths in units of the random read.
    measured.add("write_cost", statistics.write_cost(1.0, read_weight));
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
