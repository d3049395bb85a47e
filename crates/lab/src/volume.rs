//! A run of the volume simulator: blocks are written once in order, then as a stream or a trace says, first to age the volume, then to be
//! measured.
//!
//! `basalt lab volume` and points of the kind `volume` both do this, with the same defaults.

mod files;
mod front;
mod live;
mod page_cache;
mod placing;
mod priced;
mod sfs;

use std::sync::Arc;

use basalt_segments::cleaning::KeepFree;
use basalt_segments::{BLOCKS_PER_SEGMENT, Touches, VictimPolicy};
use basalt_simulator::{Age, BLOCK_SIZE, Cleaning, Options, Statistics, Volume, WORKING_SECTIONS};
use basalt_workloads::Stream;
use front::{Front, LONGEST_RUN};
use parking_lot::Mutex;
use priced::Shared;

use crate::trace_load::TraceLoad;
pub use files::{AroundFiles, FileLengths, FileLoad, MemoryStatistics, Pick, Server, run_files};
pub use live::{LIVE_TENTHS, live_tenths};
pub use page_cache::PageCache;
pub use placing::Placing;
pub use priced::{DeviceCost, Priced};
pub use sfs::SfsSetup;

/// What a run has unless told otherwise, as it is written on command lines and in experiments.
pub mod defaults {
    /// Size of the volume.
    pub const SIZE: &str = "1G";
    /// Blocks in use, in percent.
    pub const UTILIZATION: &str = "85";
    /// Which blocks are written.
    pub const STREAM: &str = "zipf:0.99";
    /// Which section is cleaned next: what the engine takes while a writer waits.
    pub const POLICY: &str = "greedy";
    /// Active logs.
    pub const LOGS: &str = "6";
    /// Bytes of a request to the device, if there is one below.
    pub const REQUEST: &str = "1M";
    /// When to clean.
    pub const CLEANING: &str = "free:4";
    /// Writes before measuring, and writes measured, for each block in use.
    pub const TIMES: u64 = 4;
}

/// The volume, and how it is cleaned.
#[derive(Clone)]
pub struct Setup {
    /// Size in bytes; of a trace, see [`size_of_trace`].
    pub size: u64,
    /// Blocks in use, in percent: 1 to 99.
    pub utilization: u8,
    /// Segments of 2 MiB in a section.
    pub segments_per_section: u32,
    /// Active logs: 2, 4 or 6.
    pub logs: u8,
    /// Which section is cleaned next.
    pub policy: &'static dyn VictimPolicy,
    /// Which log each block is written to.
    pub placement: Placing,
    /// When to clean: `free:N`, `garbage:PERCENT`, `paced` or `paced:reserve`.
    pub cleaning: String,
    /// From when on a section ages.
    pub age: Age,
}

impl Setup {
    /// The simulator's options: whole sections, so what is left over at the end is not used.
    ///
    /// # Errors
    /// In words, when they contradict each other.
    pub fn options(&self) -> Result<Options, String> {
        // What is in use is set below, and checked with all the rest.
        let options = Options::of(self.size, 1).map_err(|error| error.to_string())?;
        let per_section = self.segments_per_section.max(1);
        let segments = options.segments / per_section * per_section;
        let victims = match self.placement {
            Placing::Sfs(_) => sfs::VICTIMS,
            _ => Options::victims_for(self.policy, segments / per_section),
        };
        let blocks = u64::from(segments) * u64::from(BLOCKS_PER_SEGMENT) * u64::from(self.utilization) / 100;
        Ok(Options {
            segments,
            segments_per_section: per_section,
            // A share of blocks that a `u32` numbers.
            blocks: blocks as u32,
            logs: self.logs,
            placement: self.placement.policy(),
            policy: self.policy,
            cleaning: cleaning(&self.cleaning, self.utilization, victims)?,
            age: self.age,
            ..options
        })
    }
}

/// Reads a rule of cleaning; `victims` are chosen in one search.
///
/// # Errors
/// In words, when it is none.
pub fn cleaning(rule: &str, utilization: u8, victims: u32) -> Result<Cleaning, String> {
    let wrong = || format!("`{rule}` is no rule of cleaning; write free:4, garbage:15, paced or paced:reserve");
    let paced = |keep_free| {
        // As mkfs reserves for this much over-provisioning: enough that victims always gain a section, and the logs.
        let spare = 100 - u32::from(utilization.min(99));
        Ok(Cleaning::Paced { reserved_sections: 2 * (100 / spare + 1) + 6, keep_free })
    };
    match rule.split_once(':') {
        None if rule == "paced" => paced(KeepFree::Adaptive),
        Some(("paced", "reserve")) => paced(KeepFree::Reserve),
        Some(("free", least)) => Ok(Cleaning::FreeSections { least: least.parse().map_err(|_| wrong())?, victims }),
        Some(("garbage", percent)) => {
            let percent: f64 = percent.parse().map_err(|_| wrong())?;
            Ok(Cleaning::GarbageShare { most: percent / 100.0, victims })
        }
        _ => Err(wrong()),
    }
}

/// Blocks that a stream writes: those of this many bytes, at the start of the volume; otherwise all. The others are written once, when the
/// volume is filled.
///
/// # Errors
/// In words, when there are not as many, or none.
pub fn set_blocks(set: Option<u64>, blocks: u32) -> Result<u32, String> {
    let Some(bytes) = set else { return Ok(blocks) };
    let found = u32::try_from(bytes / BLOCK_SIZE).ok().filter(|set| (1..=blocks).contains(set));
    found.ok_or_else(|| format!("a set of {bytes} bytes: from 1 to {blocks} blocks of 4096 bytes are in use"))
}

/// Bytes of a volume, in whole sections, of which the blocks of a trace take at most `utilization` percent: less where a trace writes to so
/// little that logs and the sections that the rule of cleaning keeps would have no room.
///
/// # Errors
/// In words, when the rule is none.
pub fn size_of_trace(
    load: &TraceLoad,
    utilization: u8,
    segments_per_section: u32,
    cleaning_rule: &str,
) -> Result<u64, String> {
    size_of_blocks(load.blocks(), utilization, segments_per_section, cleaning_rule)
}

/// As [`size_of_trace`], of so many blocks.
///
/// # Errors
/// In words, when the rule is none.
pub fn size_of_blocks(
    blocks: u32,
    utilization: u8,
    segments_per_section: u32,
    cleaning_rule: &str,
) -> Result<u64, String> {
    let section_blocks = u64::from(segments_per_section.max(1)) * u64::from(BLOCKS_PER_SEGMENT);
    let blocks = u64::from(blocks);
    let kept = cleaning(cleaning_rule, utilization, 1)?.kept_sections();
    let sections = (blocks * 100).div_ceil(u64::from(utilization.clamp(1, 99)) * section_blocks);
    let least = blocks.div_ceil(section_blocks) + u64::from(kept) + u64::from(WORKING_SECTIONS);
    Ok(sections.max(least) * section_blocks * BLOCK_SIZE)
}

/// Which blocks are written, over and over.
#[derive(Clone)]
pub enum Source<'a> {
    /// By chance, or in an order of its own.
    Stream(Stream),
    /// As a trace has them, from its first write to its last and then again.
    Trace(&'a TraceLoad),
}

impl Source<'_> {
    /// A stream by its name: `zipf:0.99`, `uniform`, …
    ///
    /// # Errors
    /// In words, when there is none of that name.
    pub fn stream(name: &str, blocks: u32, seed: u64) -> Result<Source<'static>, String> {
        Stream::parse(name, blocks, seed).map(Source::Stream).map_err(|error| error.to_string())
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Source::Stream(stream) => stream.name(),
            Source::Trace(_) => "trace",
        }
    }

    /// The blocks of a run over this many, as far as the oracle looks: from the first fill to four writes for each block behind the
    /// end.
    fn future(&self, blocks: u32, lengths: Lengths, mut cache: Option<PageCache>) -> Vec<u32> {
        let behind = defaults::TIMES * u64::from(blocks);
        let (mut source, mut future) = (self.clone(), (0..blocks).collect::<Vec<_>>());
        let count = lengths.warm_up.saturating_add(lengths.measured).saturating_add(behind);
        let told: Result<(), std::convert::Infallible> = source.write(&mut Position::default(), count, |block| {
            match &mut cache {
                Some(cache) => future.extend(cache.write(block).into_iter().flatten()),
                None => future.push(block),
            }
            Ok(())
        });
        let Ok(()) = told;
        future
    }

    /// Hands out block after block, without end, until `write` fails or has had `count`.
    fn write<E>(
        &mut self,
        from: &mut Position,
        count: u64,
        mut write: impl FnMut(u32) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Source::Stream(stream) => (0..count).try_for_each(|_| write(stream.next_block())),
            Source::Trace(load) => (0..count).try_for_each(|_| write(from.next(load))),
        }
    }
}

/// Where in a trace a run is.
#[derive(Default)]
struct Position {
    write: usize,
    block: u32,
}

impl Position {
    fn next(&mut self, load: &TraceLoad) -> u32 {
        let writes = load.writes();
        let blocks = writes[self.write].blocks();
        let block = blocks.start + self.block;
        if block + 1 < blocks.end {
            self.block += 1;
        } else {
            (self.write, self.block) = ((self.write + 1) % writes.len(), 0);
        }
        block
    }
}

/// How much is written, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// Before measuring, behind the first time that every block is written.
    pub warm_up: u64,
    /// Measured.
    pub measured: u64,
}

impl Lengths {
    /// What is given, and else so many for each block in use as is usual.
    #[must_use]
    pub fn or_usual(warm_up: Option<u64>, measured: Option<u64>, blocks: u32) -> Lengths {
        let usual = defaults::TIMES * u64::from(blocks);
        Lengths { warm_up: warm_up.unwrap_or(usual), measured: measured.unwrap_or(usual) }
    }
}

/// Writes of which the oracle can be told, each in eight bytes of memory.
const ORACLE_WRITES: u64 = 1 << 31;
/// Writes that go by between two calls of `progress`.
const PIECE: u64 = 1 << 20;

/// Runs it; `progress` hears of blocks written and of all there are to write. Returns what was measured, and the volume as it is then.
///
/// # Errors
/// In words, when the volume cannot be or has no room.
pub fn run(
    options: Options,
    source: &mut Source<'_>,
    lengths: Lengths,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Statistics, Volume), String> {
    let volume = Volume::new(options).map_err(|error| error.to_string())?;
    let front = Front::new(&Around::default(), Placing::default(), volume.options().blocks);
    let ran = run_on(volume, source, lengths, (front, None), progress)?;
    Ok((ran.statistics, ran.volume))
}

/// What stands around the volume.
#[derive(Debug, Default)]
pub struct Around {
    /// Blocks that a page cache in front of it may hold dirty. The first fill passes it by.
    pub page_cache_blocks: Option<usize>,
    /// What touches a page on the lists of this cache, for the placement that looks at them. They have as many pages as it has blocks.
    pub touches: Touches,
    /// The device below it.
    pub device: Option<Priced>,
}

impl Around {
    /// A page cache of so many bytes, if any, and this device, if any.
    #[must_use]
    pub fn new(page_cache_bytes: Option<u64>, device: Option<Priced>) -> Around {
        let blocks = |bytes: u64| usize::try_from(bytes / BLOCK_SIZE).unwrap_or(usize::MAX);
        Around { page_cache_blocks: page_cache_bytes.map(blocks), touches: Touches::default(), device }
    }

    fn page_cache(&self, blocks: u32) -> Option<PageCache> {
        self.page_cache_blocks.map(|most| PageCache::new(blocks, most))
    }
}

/// What a run gave.
pub struct Ran {
    /// What was measured.
    pub statistics: Statistics,
    /// Measured writes that the page cache or the pool of dirty blocks absorbed; none without one.
    pub absorbed: u64,
    /// What the device did while it was measured, if there is one.
    pub device: Option<DeviceCost>,
    /// The volume behind it.
    pub volume: Volume,
}

/// As [`run`], with this placement instead of the one of the options.
///
/// # Errors
/// In words, when the volume cannot be or has no room, or the oracle would need too much memory.
pub fn run_placed(
    options: Options,
    placing: Placing,
    source: &mut Source<'_>,
    lengths: Lengths,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Statistics, Volume), String> {
    let ran = run_around(options, placing, source, lengths, Around::default(), progress)?;
    Ok((ran.statistics, ran.volume))
}

/// As [`run_placed`], with this around the volume. With a page cache, lengths count writes to it; what is dirty in it is left there.
///
/// # Errors
/// As [`run_placed`].
pub fn run_around(
    options: Options,
    placing: Placing,
    source: &mut Source<'_>,
    lengths: Lengths,
    around: Around,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Ran, String> {
    let text = |error: basalt_simulator::Error| error.to_string();
    placing.check(options.logs, &around)?;
    let blocks = options.blocks;
    let mut volume = match (placing.told(options.logs)?, placing) {
        (Some(placement), _) => Volume::with_placement(options, placement).map_err(text)?,
        (None, Placing::Oracle) => {
            if lengths.warm_up.saturating_add(lengths.measured) > ORACLE_WRITES {
                return Err(format!("the oracle can be told of {ORACLE_WRITES} writes: write less"));
            }
            let future = source.future(blocks, lengths, around.page_cache(blocks));
            Volume::with_placement(options, Placing::oracle(future)).map_err(text)?
        }
        (None, Placing::Sfs(setup)) => setup.volume(options)?,
        (None, _) => Volume::new(Options { placement: placing.policy(), ..options }).map_err(text)?,
    };
    let front = Front::new(&around, placing, blocks);
    if let Some(lists) = front.lists() {
        volume.set_lists(lists);
    }
    run_on(volume, source, lengths, (front, around.device), progress)
}

fn run_on(
    mut volume: Volume,
    source: &mut Source<'_>,
    lengths: Lengths,
    (mut front, device): (Front, Option<Priced>),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Ran, String> {
    let text = |error: basalt_simulator::Error| error.to_string();
    let blocks = volume.options().blocks;
    let total = u64::from(blocks).saturating_add(lengths.warm_up).saturating_add(lengths.measured);
    let device = device.map(|device| Shared(Arc::new(Mutex::new(device))));
    if let Some(device) = &device {
        volume.set_traffic(Box::new(device.clone()));
    }
    let mut done = 0;
    let mut count = || {
        done += 1;
        if done % PIECE == 0 {
            progress(done, total);
        }
    };
    // Every block is in use before anything is overwritten, and before the clock of a pool begins.
    volume.stop_clock(true);
    for block in 0..blocks {
        count();
        volume.write_in_run(block, LONGEST_RUN).map_err(text)?;
    }
    volume.stop_clock(false);
    let mut write = |volume: &mut Volume, front: &mut Front, block| {
        count();
        front.write(volume, block)
    };
    let mut position = Position::default();
    source.write(&mut position, lengths.warm_up, |block| write(&mut volume, &mut front, block)).map_err(text)?;
    front.end_run(&mut volume).map_err(text)?;
    volume.take_statistics();
    let absorbed = front.absorbed();
    device.iter().for_each(|device| _ = device.0.lock().take());
    source.write(&mut position, lengths.measured, |block| write(&mut volume, &mut front, block)).map_err(text)?;
    front.end_run(&mut volume).map_err(text)?;
    let statistics = volume.take_statistics();
    Ok(Ran {
        statistics,
        absorbed: front.absorbed() - absorbed + statistics.absorbed,
        device: device.map(|device| device.0.lock().take()),
        volume,
    })
}

#[cfg(test)]
mod tests {
    use basalt_device::RequestKind;
    use basalt_traces::TraceRequest;

    use super::*;

    /// Measuring goes on in a trace where aging ended.
    #[test]
    fn a_trace_goes_on_where_aging_ended() {
        let request = |time_ns| {
            let offset = (time_ns * 7919) % 8192 * 4096;
            Ok(TraceRequest { time_ns, kind: RequestKind::Write, offset, length: 4096 })
        };
        let load = TraceLoad::read((0..8000).map(request)).unwrap();
        let setup = Setup {
            size: size_of_trace(&load, 80, 1, defaults::CLEANING).unwrap(),
            utilization: 50,
            segments_per_section: 1,
            logs: 6,
            policy: &basalt_segments::Greedy,
            placement: Default::default(),
            cleaning: defaults::CLEANING.to_owned(),
            age: Age::Modified,
        };
        let places = |warm_up, measured| {
            let mut options = setup.options().unwrap();
            options.blocks = load.blocks();
            let lengths = Lengths { warm_up, measured };
            let (_, volume) = run(options, &mut Source::Trace(&load), lengths, &mut |_, _| ()).unwrap();
            (0..load.blocks()).map(|block| volume.place_of(block)).collect::<Vec<_>>()
        };
        assert!(places(3000, 4000) == places(0, 7000));
    }
}
