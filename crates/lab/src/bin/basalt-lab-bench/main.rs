//! `basalt-lab-bench`: how fast the volume simulator is, and what the F2FS engine itself costs.
//!
//! | part | what is measured |
//! |---|---|
//! | `volume` | block writes a second of the volume simulator, 16 GiB, with cleaning, on one core |
//! | `huge` | the same for 1 TiB, and the memory it takes: about 2 GiB |
//! | `engine` | random writes of 4 KiB a second through the F2FS engine, without cleaning, on a device that keeps no data, by placement |
//! | `placement` | what placements take for each block, without the engine: 2 GiB overwritten and cleaned, with all that they are told |
//! | `plan` | what planning the use of a segment's slack takes, for a card whose random writes are slow |
//!
//! Every figure is the median of as many measurements as `--runs` says, in one run that goes on, and is by the processor time of the
//! only thread: what else the machine does hardly matters. Making the stream of block numbers is not measured.

mod decisions;
mod plans;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Atime, F2fs, OpenOptions, SystemClock};
use basalt_flash::device::forgetful::{FORGETTABLE, ForgetfulDevice};
use basalt_segments::cleaning::KeepFree;
use basalt_segments::{CostBenefit, Greedy, VictimPolicy};
use basalt_simulator::{Cleaning, Options, Volume};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};
use basalt_workloads::Stream;
use clap::{Parser, ValueEnum};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Writes of one measurement of the volume simulator.
const VOLUME_WRITES: usize = 4_000_000;
/// The same for the engine.
const ENGINE_WRITES: usize = 500_000;
/// Blocks of the file that is overwritten: 1 GiB.
const FILE_BLOCKS: u32 = 262_144;
/// The device of the engine's measurement: so large that nothing has to be cleaned.
const ENGINE_DEVICE: u64 = 64 << 30;
const BLOCK: usize = 4096;
/// Streams of which placements decide.
const DECIDED: [&str; 2] = ["uniform", "zipf:0.99"];
/// Shares of dead blocks, in percent, of the segments that are planned.
const PLANNED: [u64; 3] = [10, 50, 90];
/// Placements whose part in a write is measured, by what it takes more than with `static`.
const LEARNING: [&str; 6] = ["run-length", "page-cache", "sfs", "sfs-log", "hazard", "auto"];

type Failure = Box<dyn std::error::Error>;

/// Measure the volume simulator, and the F2FS engine on a device that keeps no data
#[derive(Debug, Parser)]
#[command(name = "basalt-lab-bench", version)]
struct Arguments {
    /// Only these parts; without, all but `huge`
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<Part>,

    /// Measurements, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=99))]
    runs: u8,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Volume,
    Huge,
    Engine,
    Placement,
    Plan,
}

/// One figure.
#[derive(Debug, Serialize)]
struct Figure {
    part: &'static str,
    name: String,
    /// Writes asked for, or plans, a second: the median, and all.
    writes_per_second: f64,
    measurements: Vec<f64>,
    /// Blocks written a second, copies by cleaning and nodes included.
    blocks_per_second: f64,
    /// Blocks written for each block that was asked for.
    write_amplification: f64,
    /// Bytes of memory for each block of the volume, where it is reckoned.
    memory_per_block: Option<f64>,
    memory_bytes: Option<u64>,
    /// Nanoseconds of deciding: what a write takes more than with the placement `static`; of `placement`, what each block takes; of `plan`, each
    /// plan.
    decision_ns: Option<f64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("basalt-lab-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let wants = |part| if arguments.only.is_empty() { part != Part::Huge } else { arguments.only.contains(&part) };
    let mut figures = Vec::new();
    let mut add = |figure: Figure| {
        if !arguments.json {
            show(&figure);
        }
        figures.push(figure);
    };
    if wants(Part::Volume) {
        let size = 16 << 30;
        for (stream, utilization, policy, paced) in [
            ("uniform", 80, &Greedy as &'static dyn VictimPolicy, false),
            ("uniform", 85, &Greedy, false),
            ("zipf:0.99", 80, &Greedy, false),
            ("zipf:0.99", 85, &CostBenefit, false),
            ("zipf:0.99", 80, &Greedy, true),
        ] {
            let name =
                format!("16 GiB, {utilization} %, {stream}, {}{}", policy.name(), if paced { ", paced" } else { "" });
            add(volume("volume", name, &volume_options(size, utilization, policy, paced)?, stream, 1, arguments.runs)?);
        }
    }
    if wants(Part::Huge) {
        for (policy, name) in [(&Greedy as &'static dyn VictimPolicy, "greedy"), (&CostBenefit, "cost-benefit")] {
            let options = volume_options(1 << 40, 80, policy, false)?;
            let name = format!("1 TiB, 80 %, zipf:0.99, {name}");
            add(volume("huge", name, &options, "zipf:0.99", 0, arguments.runs)?);
        }
    }
    if wants(Part::Engine) {
        let cache_bytes = OpenOptions::default().cache_bytes;
        let plain = engine(arguments.runs, "static", cache_bytes)?;
        let plain_ns = 1e9 / plain.writes_per_second;
        add(plain);
        for placement in LEARNING {
            let mut figure = engine(arguments.runs, placement, cache_bytes)?;
            figure.decision_ns = Some(1e9 / figure.writes_per_second - plain_ns);
            add(figure);
        }
        add(engine(arguments.runs, "static", 8 << 20)?);
    }
    if wants(Part::Placement) {
        for policy in basalt_schemes::placements() {
            for stream in DECIDED {
                add(decisions::decisions(arguments.runs, policy, stream)?);
            }
        }
    }
    if wants(Part::Plan) {
        for dead_percent in PLANNED {
            add(plans::plans(arguments.runs, dead_percent));
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&figures)?);
    }
    Ok(())
}

fn volume_options(
    size: u64,
    utilization: u8,
    policy: &'static dyn VictimPolicy,
    paced: bool,
) -> Result<Options, Failure> {
    let options = Options { policy, ..Options::of(size, utilization)? };
    let victims = Options::victims_for(policy, options.sections());
    let cleaning = if paced {
        Cleaning::Paced { reserved_sections: 50, keep_free: KeepFree::default() }
    } else {
        Cleaning::FreeSections { least: 4, victims }
    };
    Ok(Options { cleaning, ..options })
}

/// Fills the volume, ages it by `aged` writes for each block, at least until cleaning has begun, and measures.
fn volume(
    part: &'static str,
    name: String,
    options: &Options,
    stream: &str,
    aged: u64,
    runs: u8,
) -> Result<Figure, Failure> {
    let blocks = options.blocks;
    let mut stream = Stream::parse(stream, blocks, 1)?;
    let mut volume = Volume::new(options.clone())?;
    (0..blocks).try_for_each(|block| volume.write(block))?;
    for _ in 0..u64::from(blocks) * aged {
        volume.write(stream.next_block())?;
    }
    while volume.statistics().victims < 100 {
        volume.write(stream.next_block())?;
    }
    volume.take_statistics();
    let mut measurements = Vec::new();
    for _ in 0..runs {
        let writes: Vec<u32> = stream.by_ref().take(VOLUME_WRITES).collect();
        let start = used();
        writes.iter().try_for_each(|&block| volume.write(block))?;
        measurements.push(VOLUME_WRITES as f64 / seconds_since(start));
    }
    let (memory, amplification) = (volume.memory(), volume.statistics().write_amplification());
    Ok(figure(part, name, measurements, amplification, Some((memory.per_block, memory.bytes))))
}

/// Random overwrites of one file on the engine, each measurement with the sync that ends it. How much the engine may cache counts:
/// beyond what the processor's caches hold, each page is a trip to memory.
fn engine(runs: u8, placement: &str, cache_bytes: usize) -> Result<Figure, Failure> {
    let device = Arc::new(ForgetfulDevice::new(ENGINE_DEVICE));
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| {})?;
    let options = OpenOptions {
        background_cleaning: false,
        discard: false,
        atime: Atime::Noatime,
        placement: basalt_schemes::placement_by_name(placement).ok_or("no such placement")?,
        cache_bytes,
        ..OpenOptions::default()
    };
    let fs = F2fs::open(device, options, Arc::new(SystemClock))?;
    let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let ino = fs.create(fs.root(), b"file", &node, &Caller::default())?.ino;
    let piece: Vec<u8> = FORGETTABLE.iter().copied().chain(std::iter::repeat(0x5A)).take(BLOCK).collect();
    let megabyte = piece.repeat(256);
    for at in (0..u64::from(FILE_BLOCKS) * BLOCK as u64).step_by(megabyte.len()) {
        fs.write(ino, at, &megabyte, false)?;
    }
    fs.sync()?;
    let before = fs.statistics();
    let mut stream = Stream::parse("uniform", FILE_BLOCKS, 1)?;
    let mut measurements = Vec::new();
    for _ in 0..runs {
        let writes: Vec<u32> = stream.by_ref().take(ENGINE_WRITES).collect();
        let start = used();
        for block in writes {
            fs.write(ino, u64::from(block) * BLOCK as u64, &piece, false)?;
        }
        fs.sync()?;
        measurements.push(ENGINE_WRITES as f64 / seconds_since(start));
    }
    let after = fs.statistics();
    if after.cleaning.foreground.victims > 0 {
        return Err("the engine had to clean: what was measured is not its own cost".into());
    }
    let written =
        after.written.data_blocks + after.written.node_blocks - before.written.data_blocks - before.written.node_blocks;
    let amplification = written as f64 / (ENGINE_WRITES * usize::from(runs)) as f64;
    let name = format!("random 4 KiB writes, 1 GiB file, {} MiB cache, {placement}", cache_bytes >> 20);
    Ok(figure("engine", name, measurements, amplification, None))
}

/// Processor time that this thread has used.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn seconds_since(start: Duration) -> f64 {
    used().saturating_sub(start).as_secs_f64()
}

fn figure(
    part: &'static str,
    name: String,
    measurements: Vec<f64>,
    write_amplification: f64,
    memory: Option<(f64, u64)>,
) -> Figure {
    let mut sorted = measurements.clone();
    sorted.sort_by(f64::total_cmp);
    let writes_per_second = sorted[sorted.len() / 2];
    Figure {
        part,
        name,
        writes_per_second,
        blocks_per_second: writes_per_second * write_amplification,
        measurements,
        write_amplification,
        memory_per_block: memory.map(|(per_block, _)| per_block),
        memory_bytes: memory.map(|(_, bytes)| bytes),
        decision_ns: None,
    }
}

fn show(figure: &Figure) {
    let Figure { part, name, write_amplification, .. } = figure;
    let millions = |value: f64| value / 1e6;
    let (writes, blocks) = (millions(figure.writes_per_second), millions(figure.blocks_per_second));
    if *part == "plan" {
        println!("{part:<9} {name:<52} {:>7.1} us a plan", figure.decision_ns.unwrap_or_default() / 1000.0);
        return;
    }
    println!("{part:<9} {name:<52} {writes:>7.2} M writes/s {blocks:>7.2} M blocks/s  WA {write_amplification:.2}");
    if let Some(more) = figure.decision_ns {
        let of = if *part == "placement" { "a block" } else { "a write more than static" };
        println!("{:<63} {more:.0} ns {of}", "");
    }
    if let (Some(per_block), Some(bytes)) = (figure.memory_per_block, figure.memory_bytes) {
        println!("{:<63} {per_block:.1} bytes of memory a block, {:.0} MiB", "", bytes as f64 / f64::from(1 << 20));
    }
}
