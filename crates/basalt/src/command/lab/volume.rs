//! `basalt lab volume`: what a cleaning policy costs, on a volume without a file system.

use std::sync::Arc;

use basalt_flash::device::presets;
use basalt_lab::volume::{
    Around, AroundFiles, DeviceCost, FileLengths, FileLoad, Lengths, MemoryStatistics, Placing, Priced, Ran, Setup,
    SfsSetup, Source, defaults, run_around, run_files, set_blocks,
};
use basalt_segments::placement::Moved;
use basalt_segments::{BLOCKS_PER_SEGMENT, Touches};
use basalt_simulator::{Age, BLOCK_SIZE, Memory, Statistics, UTILIZATION_BINS};
use clap::builder::{PossibleValue, PossibleValuesParser};
use serde::Serialize;

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::size::{human, parse};

/// Characters of the longest bar of the histogram.
const BAR: u64 = 40;

/// Simulate the cost of a cleaning policy on a volume without a file system
///
/// Blocks are written once in order, then as the stream says: first to age the volume, then to measure. The decisions are those of the
/// F2FS engine, or those used in the literature. Nothing is written; `--device` says how long a device would take. Takes about 8 bytes of memory for each block
/// of 4 KiB: 2 GiB for 1 TiB.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the volume
    #[arg(long, value_name = "SIZE", default_value = defaults::SIZE, value_parser = parse)]
    size: u64,

    /// Blocks in use, in percent
    #[arg(long, value_name = "PERCENT", default_value = defaults::UTILIZATION, value_parser = clap::value_parser!(u8).range(1..=99))]
    utilization: u8,

    /// Stream of blocks to write: sequential, uniform, zipf:THETA, moving-zipf:THETA, hotcold:WRITES/BLOCKS, runs, write-once or tpcc
    #[arg(long, value_name = "STREAM", default_value = defaults::STREAM)]
    stream: String,

    /// Files that are written, read and removed, instead of a stream: `server:runs=10,cold=60000`, or a workload such as `mobile`, both made
    /// for `--size`; they pass a kernel's page cache, and the volume is as large as what reaches it needs
    #[arg(long, value_name = "LOAD", conflicts_with_all = ["stream", "set"])]
    files: Option<String>,

    /// Which section is cleaned next
    #[arg(long, value_name = "POLICY", default_value = defaults::POLICY, value_parser = victims())]
    policy: String,

    /// Which log each block is written to
    #[arg(long, value_name = "POLICY", default_value = "static", value_parser = placements())]
    placement: String,

    /// Segments of 2 MiB in a section, the unit of cleaning
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    section: u32,

    /// Active logs: with 6, cleaning copies to a log of its own; with 2, it does not
    #[arg(long, value_name = "N", default_value = defaults::LOGS, value_parser = clap::builder::RangedU64ValueParser::<u8>::new().range(2..=6))]
    logs: u8,

    /// When to clean: `free:N` keeps N sections free, `garbage:PERCENT` limits the dead share of written blocks, `paced` cleans as the
    /// F2FS engine does, `paced:reserve` as that does with `-o keep_free=reserve`
    #[arg(long, value_name = "RULE", default_value = defaults::CLEANING)]
    cleaning: String,

    /// Count the age of a section from the last write to it, not from the last change
    #[arg(long)]
    age_by_writes: bool,

    /// Block writes to measure [default: four for each block in use]
    #[arg(long, value_name = "N")]
    writes: Option<u64>,

    /// Block writes before measuring [default: four for each block in use]
    #[arg(long, value_name = "N", alias = "warm-up")]
    age: Option<u64>,

    /// Show the write cost of the SFS paper for a device's random reads of 4 KiB and sequential writes, as in 10.6/87 (MB/s)
    #[arg(long, value_name = "READ/WRITE", value_parser = bandwidths)]
    write_cost: Option<(f64, f64)>,

    /// Time what the volume writes and reads on this device model: a preset, or the path of a TOML file
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Bytes of a request to the device at most; a segment is written in order
    #[arg(long, value_name = "SIZE", default_value = defaults::REQUEST, value_parser = request, requires = "device")]
    request: u64,

    /// Put a page cache in front of the volume that holds so many bytes of dirty blocks, and writes them back all together when it is full;
    /// with `--files`, so many bytes of pages on its lists
    #[arg(long, value_name = "SIZE", value_parser = parse)]
    page_cache: Option<u64>,

    /// Bytes that the stream writes; the other blocks are written once, before [default: all in use]
    #[arg(long, value_name = "SIZE", value_parser = parse)]
    set: Option<u64>,

    /// Of placement sfs: dirty blocks that are collected before they are sorted [default: two sections for each group]
    #[arg(long, value_name = "SIZE")]
    pool: Option<String>,

    /// Of placement sfs: groups, from 1 to 8 [default: 4]
    #[arg(long, value_name = "N")]
    groups: Option<String>,

    /// Of placement sfs: seconds that blocks and sections are old at least [default: 30]
    #[arg(long, value_name = "SECONDS")]
    age_floor: Option<String>,

    /// Of placement sfs: whether what cleaning writes counts as a write of the block: on or off [default: on]
    #[arg(long, value_name = "ON")]
    clean_touch: Option<String>,

    /// Of placement sfs: how groups are found: iterative, eq-range or eq-count [default: iterative]
    #[arg(long, value_name = "NAME")]
    quantization: Option<String>,

    /// What touches a page for placement `page-cache`: each write and read, those of a page in a row once, or reads only
    #[arg(long, value_name = "RULE", default_value = Touches::NAMES[0], value_parser = PossibleValuesParser::new(Touches::NAMES))]
    touches: String,

    /// Where placements `page-cache` and `run-length` put what cleaning copies: cold, or by their list with 4 logs
    #[arg(long, value_name = "RULE", default_value = Moved::NAMES[0], value_parser = PossibleValuesParser::new(Moved::NAMES))]
    moved: String,

    /// Seed of the stream
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one line of JSON
    #[arg(long)]
    json: bool,

    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,
}

/// What is printed.
#[derive(Serialize)]
struct Report<'a> {
    size: u64,
    utilization: u8,
    stream: &'a str,
    policy: &'a str,
    placement: &'a str,
    segments_per_section: u32,
    logs: u8,
    cleaning: &'a str,
    seed: u64,
    /// None where no block was written.
    write_amplification: Option<f64>,
    mean_victim_utilization: f64,
    write_cost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_cache_absorbed: Option<u64>,
    /// Pages that were removed before they were written back.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_died: Option<u64>,
    /// Of the pages written back, those on the active list.
    #[serde(skip_serializing_if = "Option::is_none")]
    active_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<Device<'a>>,
    statistics: Statistics,
    memory: Memory,
}

/// What a device takes for it.
#[derive(Serialize)]
struct Device<'a> {
    name: &'a str,
    request: u64,
    seconds: f64,
    write_cost: Option<f64>,
    #[serde(flatten)]
    cost: DeviceCost,
}

/// Runs the command.
///
/// # Errors
/// When there is no such stream or rule, or the volume has no room for what it keeps free.
pub fn run(args: &Args) -> Outcome {
    let setup = setup(args)?;
    let mut progress = Progress::new("writing", Unit::Things, args.quiet);
    let (name, ran, memory) = match &args.files {
        Some(files) => run_load(args, &setup, files, &mut progress)?,
        None => run_stream(args, &setup, &mut progress)?,
    };
    drop(progress);
    let (statistics, volume) = (ran.statistics, &ran.volume);
    let absorbs = args.page_cache.is_some() || matches!(setup.placement, Placing::Sfs(_));
    let device = args.device.as_deref().zip(ran.device).map(|(name, cost)| Device {
        name,
        request: args.request,
        seconds: cost.seconds(),
        write_cost: cost.write_cost(statistics.user_blocks),
        cost,
    });
    let report = Report {
        size: u64::from(volume.options().segments) * u64::from(BLOCKS_PER_SEGMENT) * BLOCK_SIZE,
        utilization: args.utilization,
        stream: &name,
        policy: &args.policy,
        placement: &args.placement,
        segments_per_section: args.section,
        logs: args.logs,
        cleaning: &args.cleaning,
        seed: args.seed,
        write_amplification: (statistics.user_blocks > 0).then(|| statistics.write_amplification()),
        mean_victim_utilization: statistics.mean_victim_utilization(volume.table().section_blocks()),
        write_cost: args.write_cost.map(|(read, write)| statistics.write_cost(read, write)),
        page_cache_absorbed: (absorbs || memory.is_some()).then_some(ran.absorbed),
        memory_died: memory.map(|memory| memory.died),
        active_share: memory.and_then(|memory| memory.active_share()),
        device,
        statistics,
        memory: volume.memory(),
    };
    let mut output = Output::new();
    if args.json {
        output.json_line(&report)?;
    } else {
        describe(&report, &mut output)?;
    }
    output.finish()?;
    Ok(DONE)
}

/// Runs the stream; its name, and what it gave.
fn run_stream(
    args: &Args,
    setup: &Setup,
    progress: &mut Progress,
) -> Result<(String, Ran, Option<MemoryStatistics>), Failure> {
    let options = setup.options().map_err(Failure::usage)?;
    options.check().map_err(Failure::usage)?;
    let set = set_blocks(args.set, options.blocks).map_err(Failure::usage)?;
    let mut source = Source::stream(&args.stream, set, args.seed).map_err(Failure::usage)?;
    let name = source.name().to_owned();
    let lengths = Lengths::or_usual(args.age, args.writes, set);
    let around = Around { touches: touches(args), ..Around::new(args.page_cache, priced(args)?) };
    setup.placement.check(setup.logs, &around).map_err(Failure::usage)?;
    let ran = run_around(options, setup.placement, &mut source, lengths, around, &mut |done, total| {
        progress.update(done, total)
    });
    Ok((name, ran.map_err(Failure::new)?, None))
}

/// Runs the files; their name, and what they gave.
fn run_load(
    args: &Args,
    setup: &Setup,
    files: &str,
    progress: &mut Progress,
) -> Result<(String, Ran, Option<MemoryStatistics>), Failure> {
    let load = FileLoad::parse(files, args.size).map_err(Failure::usage)?;
    setup.placement.check_files(setup.logs, touches(args)).map_err(Failure::usage)?;
    let lengths = FileLengths { warm_up: args.age, measured: args.writes, ..FileLengths::usual(args.seed) };
    load.check(&lengths).map_err(Failure::usage)?;
    let around = AroundFiles::new(args.page_cache, touches(args), priced(args)?);
    let ran = run_files(setup, &load, &lengths, around, &mut |done, total| progress.update(done, total));
    let (ran, memory) = ran.map_err(Failure::new)?;
    Ok((files.to_owned(), ran, Some(memory)))
}

fn touches(args: &Args) -> Touches {
    Touches::by_name(&args.touches).unwrap_or_default()
}

fn victims() -> PossibleValuesParser {
    basalt_schemes::victims()
        .map(|policy| PossibleValue::new(policy.name()).help(policy.about()))
        .collect::<Vec<_>>()
        .into()
}

fn placements() -> PossibleValuesParser {
    Placing::all().map(|(name, about)| PossibleValue::new(name).help(about)).collect::<Vec<_>>().into()
}

fn setup(args: &Args) -> Result<Setup, Failure> {
    let no_such = |name: &str| Failure::usage(format_args!("{name}: no such policy"));
    let placing = placing(args)?;
    Ok(Setup {
        size: args.size,
        utilization: args.utilization,
        segments_per_section: args.section,
        logs: args.logs,
        policy: basalt_schemes::victim_by_name(&args.policy).ok_or_else(|| no_such(&args.policy))?,
        placement: placing.with_moved(Moved::by_name(&args.moved).unwrap_or_default()).map_err(Failure::usage)?,
        cleaning: args.cleaning.clone(),
        age: if args.age_by_writes { Age::Written } else { Age::Modified },
    })
}

/// The placement with what was said of `sfs`, whose clock is the device's, or that of the write cost; an option of it is refused with any
/// other.
fn placing(args: &Args) -> Result<Placing, Failure> {
    let no_such = || Failure::usage(format_args!("{}: no such policy", args.placement));
    let given = [&args.pool, &args.groups, &args.age_floor, &args.clean_touch, &args.quantization];
    let given = SfsSetup::PARAMETERS.iter().zip(given);
    let mut given = given.filter_map(|(&(name, ..), value)| Some((name, value.as_deref()?)));
    let placing = Placing::by_name(&args.placement).ok_or_else(no_such)?;
    let Placing::Sfs(mut sfs) = placing else {
        return match given.next() {
            Some((name, _)) => Err(Failure::usage(format_args!("--{name}: only --placement sfs has it"))),
            None => Ok(placing),
        };
    };
    given.try_for_each(|(name, value)| sfs.set(name, value)).map_err(Failure::usage)?;
    if let Some(name) = &args.device {
        sfs.set_device(&Arc::new(presets::find(name).map_err(Failure::usage)?));
    } else if let Some(bandwidths) = args.write_cost {
        sfs.bandwidths = bandwidths;
    }
    sfs.options.seed = args.seed;
    Ok(Placing::Sfs(sfs))
}

/// The device, if one is asked for.
fn priced(args: &Args) -> Result<Option<Priced>, Failure> {
    let Some(name) = &args.device else { return Ok(None) };
    let model = presets::find(name).map_err(Failure::usage)?;
    Ok(Some(Priced::new(Arc::new(model), args.request)))
}

/// A request has a block at least.
fn request(text: &str) -> Result<u64, String> {
    match parse(text)? {
        bytes @ ..4096 => Err(format!("{bytes} bytes are less than a block of 4 KiB")),
        bytes => Ok(bytes),
    }
}

fn bandwidths(text: &str) -> Result<(f64, f64), String> {
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    text.split_once('/')
        .and_then(|(read, write)| Some((number(read)?, number(write)?)))
        .ok_or_else(|| format!("`{text}` is not two bandwidths; write for example 10.6/87"))
}

fn describe(report: &Report<'_>, output: &mut Output) -> Result<(), Failure> {
    let Report { statistics, memory, .. } = report;
    output.line(format_args!(
        "{} at {} %, {}, {}, {} logs, {}",
        human(report.size),
        report.utilization,
        report.stream,
        report.policy,
        report.logs,
        report.cleaning
    ))?;
    let amplification = report.write_amplification.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    output.line(format_args!("write amplification  {amplification}"))?;
    if let Some(cost) = report.write_cost {
        output.line(format_args!("write cost           {cost:.3}"))?;
    }
    if let Some(device) = &report.device {
        let cost = device.write_cost.map_or_else(String::new, |cost| format!(", write cost {cost:.3}"));
        output.line(format_args!("device time          {:.3} s on {}{cost}", device.seconds, device.name))?;
    }
    if let Some(absorbed) = report.page_cache_absorbed {
        output.line(format_args!("writes absorbed      {absorbed}"))?;
    }
    if let Some(died) = report.memory_died {
        output.line(format_args!("removed in memory    {died}"))?;
    }
    if let Some(share) = report.active_share {
        output.line(format_args!("active when written  {:.1} %", share * 100.0))?;
    }
    output.line(format_args!("blocks written       {}", statistics.user_blocks))?;
    output.line(format_args!("blocks copied        {}", statistics.copies))?;
    output.line(format_args!(
        "sections emptied     {}, {:.1} % live on average",
        statistics.victims,
        report.mean_victim_utilization * 100.0
    ))?;
    output.line(format_args!("checkpoints          {}", statistics.checkpoints))?;
    output.line(format_args!("memory               {}, {:.1} bytes a block", human(memory.bytes), memory.per_block))?;
    let bins = &statistics.victims_by_utilization;
    let most = bins.iter().copied().max().unwrap_or_default();
    if most > 0 {
        output.line("sections emptied by the share of blocks that had to be moved:")?;
    }
    for (bin, &count) in bins.iter().enumerate().filter(|(_, count)| **count > 0) {
        let upto = (bin + 1) * 100 / UTILIZATION_BINS;
        let bar = "#".repeat((count * BAR).div_ceil(most) as usize);
        output.line(format_args!("  to {upto:>3} %  {count:>9}  {bar}"))?;
    }
    Ok(())
}
