//! SFS figure 9, its baseline: the write cost of a log-structured file system with cost-benefit cleaning (LFS-CB) over utilization.
//!
//! The volume is the paper's: SSD-M's 64 GB, segments of 32 MiB, dummy data that is never updated up to the utilization, cleaning
//! above 95 % in use with up to three victims at once, one log for new and moved blocks, 20 GiB written for ageing before 8 GiB
//! are measured (sections 4.1 to 4.3). What the paper does not say is taken from what reproduces its other numbers: a set of 8 GB
//! that is updated, 200 MiB of dirty pages, θ = 0.9 for Zipf.

use std::sync::atomic::{AtomicBool, Ordering};

use basalt_segments::CostBenefit;
use basalt_simulator::{Age, BLOCK_SIZE, Cleaning, Options, Statistics, Volume};
use basalt_workloads::stream::Stream;

use super::{Outcome, STOPPED, Scale, Tell};
use crate::verdicts::{Expectation, Item, Side, Tolerance};
use crate::volume::PageCache;

const LABEL: (&str, &str) = ("sfs", "9");
/// Segments of F2FS in one of SFS: 32 MiB.
const SEGMENTS_PER_SECTION: u32 = 16;
/// Capacity of SSD-M in bytes.
const CAPACITY: u64 = 64_000_000_000;
/// Bytes of the data that is updated.
const UPDATED: u64 = 8_000_000_000;
/// Dirty pages that the page cache holds, in bytes.
const DIRTY: u64 = 200 << 20;
/// Bytes that the application writes before and while it is measured.
const AGEING: u64 = 20 << 30;
const MEASURED: u64 = 8 << 30;
/// Share of the capacity above which SFS and LFS-CB clean, and sections emptied at once (section 3.6).
const WATER_MARK_PERCENT: u32 = 95;
const VICTIMS: u32 = 3;
/// SSD-M's random reads of 4 KiB and sequential writes, in MB/s (table 1).
const RANDOM_READ: f64 = 10.6;
const SEQUENTIAL_WRITE: f64 = 87.0;
/// Utilizations measured, in percent.
const UTILIZATIONS: [u32; 4] = [70, 80, 85, 90];

/// A workload of the figure, and the paper's write cost with one group at 85 % (figure 7a), the nearest that its text gives.
struct Load {
    name: &'static str,
    stream: &'static str,
    one_group: Option<f64>,
}

const LOADS: [Load; 3] = [
    Load { name: "Zipf", stream: "zipf:0.9", one_group: Some(6.96) },
    Load { name: "TPC-C", stream: "tpcc:log=40", one_group: Some(5.98) },
    Load { name: "uniform", stream: "uniform", one_group: None },
];

/// What one run gave.
struct Run {
    cost: f64,
    absorbed: f64,
    statistics: Statistics,
}

pub(super) fn run(scale: &Scale, stop: &AtomicBool, say: Tell<'_>) -> Outcome {
    // A quarter of every size; the sections shrink with them, so that there are as many.
    let divisor = match (scale.full, scale.small) {
        (true, _) => 1,
        (false, true) => SEGMENTS_PER_SECTION,
        (false, false) => 4,
    };
    let mut items = Vec::new();
    for load in &LOADS {
        let mut costs = Vec::new();
        for utilization in UTILIZATIONS {
            say(&format!("LFS-CB, {}, {utilization} % in use", load.name));
            let run = measure(load, utilization, divisor, scale.seed, stop)?;
            costs.push(run.cost);
            if let (85, Some(paper)) = (utilization, load.one_group) {
                items.push(one_group(load, paper, &run));
            }
            if (utilization, load.name) == (70, "Zipf") {
                items.push(victims(&run, SEGMENTS_PER_SECTION / divisor));
            }
        }
        items.push(rise(load, &costs));
    }
    Ok(items)
}

/// Ages a volume and measures what its cleaning costs.
fn measure(load: &Load, utilization: u32, divisor: u32, seed: u64, stop: &AtomicBool) -> Result<Run, String> {
    let text = |error: basalt_simulator::Error| error.to_string();
    let blocks = |bytes: u64| bytes / BLOCK_SIZE / u64::from(divisor);
    let updated = blocks(UPDATED) as u32;
    let options = options(utilization, divisor);
    let dummy = options.blocks - updated;
    let mut volume = Volume::new(options).map_err(text)?;
    // The dummy data first, from end to end, then the set.
    (updated..updated + dummy).chain(0..updated).try_for_each(|block| volume.write(block)).map_err(text)?;
    let mut stream = Stream::parse(load.stream, updated, seed).map_err(|error| error.to_string())?;
    let mut cache = PageCache::new(updated, blocks(DIRTY) as usize);
    replay(&mut volume, &mut stream, &mut cache, blocks(AGEING), stop)?;
    let _ = volume.take_statistics();
    let absorbed = cache.absorbed();
    replay(&mut volume, &mut stream, &mut cache, blocks(MEASURED), stop)?;
    let statistics = volume.take_statistics();
    Ok(Run {
        cost: statistics.write_cost(RANDOM_READ, SEQUENTIAL_WRITE),
        absorbed: (cache.absorbed() - absorbed) as f64 / blocks(MEASURED) as f64,
        statistics,
    })
}

/// Writes as many blocks as an application would; the cache hands on what it does not absorb.
fn replay(
    volume: &mut Volume,
    stream: &mut Stream,
    cache: &mut PageCache,
    writes: u64,
    stop: &AtomicBool,
) -> Result<(), String> {
    for _ in 0..writes {
        if let Some(dirty) = cache.write(stream.next_block()) {
            if stop.load(Ordering::Relaxed) {
                return Err(STOPPED.to_owned());
            }
            dirty.into_iter().try_for_each(|block| volume.write(block)).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn options(utilization: u32, divisor: u32) -> Options {
    let per_section = SEGMENTS_PER_SECTION / divisor;
    let section_bytes = u64::from(per_section) * u64::from(basalt_segments::BLOCKS_PER_SEGMENT) * BLOCK_SIZE;
    let sections = (CAPACITY / u64::from(divisor) / section_bytes) as u32;
    let section_blocks = per_section * basalt_segments::BLOCKS_PER_SEGMENT;
    Options {
        segments: sections * per_section,
        segments_per_section: per_section,
        blocks: (u64::from(sections) * u64::from(section_blocks) * u64::from(utilization) / 100) as u32,
        groups: None,
        placement: Default::default(),
        logs: 2,
        policy: &CostBenefit,
        cleaning: Cleaning::FreeSections { least: sections * (100 - WATER_MARK_PERCENT) / 100, victims: VICTIMS },
        age: Age::Written,
        file: None,
        pool: None,
    }
}

fn one_group(load: &Load, paper: f64, run: &Run) -> Item {
    let why = format!(
        "{:.0} % of writes absorbed by the page cache; {:.2} blocks moved for each written; the paper's number is one group with \
         cost-hotness instead of cost-benefit, and its θ, trace and set size are not given",
        100.0 * run.absorbed,
        run.statistics.copies as f64 / run.statistics.user_blocks.max(1) as f64
    );
    // What cleaning adds to the cost of writing alone, which is 1, is what may be off.
    let claim =
        Expectation::Near { value: paper, tolerance: Tolerance::OfGain(0.2) }.stated("section 4.2, figure 7(a)");
    let what = format!("write cost without grouping, {}, 85 %", load.name);
    Item::new(LABEL, what, claim.better(Side::Less), run.cost, why)
}

/// Figure 11(a) is of the same runs; its example is the only number of LFS-CB's own that the text gives.
fn victims(run: &Run, segments_per_section: u32) -> Item {
    let share = run.statistics.mean_victim_utilization(segments_per_section * basalt_segments::BLOCKS_PER_SEGMENT);
    let claim =
        Expectation::Near { value: 0.30, tolerance: Tolerance::OfValue(0.35) }.stated("section 4.3.2, figure 11(a)");
    let why = "the paper gives one victim as an example; ours is the mean over all victims of the measured part";
    Item::new(LABEL, "live share of LFS-CB's victims, Zipf, 70 %", claim.better(Side::Less), share, why)
}

fn rise(load: &Load, costs: &[f64]) -> Item {
    let rises = costs.is_sorted();
    let list: Vec<_> = UTILIZATIONS.iter().zip(costs).map(|(at, cost)| format!("{at} %: {cost:.2}")).collect();
    let least = costs.windows(2).map(|pair| pair[1] / pair[0]).fold(f64::INFINITY, f64::min);
    let shape = if rises { "it rises with each step" } else { "it does not rise with every step" };
    let what = format!("write cost over that of the utilization before, least step, {}", load.name);
    let claim = Expectation::Above(1.0).derived("figure 9: the curves of LFS-CB rise");
    Item::new(LABEL, what, claim, least, format!("{}: {shape}", list.join(", ")))
}
