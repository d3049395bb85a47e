//! SFS at the scale of its paper, or at a sixteenth of it, against another simulation.
//!
//! That simulation has SSD-M's 64 GB in segments of 32 MiB, data that is never updated up to 85 %,
//! a set of 8 GB under Zipf 0.9, 200 MiB of dirty pages, 25 GB of ageing and 15 GB measured, cost-hotness. It does not say what 8 GB are
//! and how old the data is at first: its numbers come out with 2^33 bytes, and data that is as old as the clock.

use std::time::Duration;

use basalt_schemes::{CostHotness, FaithfulSfs, Quantization, SfsOptions};
use basalt_simulator::{Age, BLOCK_SIZE, Cleaning, Options, PoolOptions, Statistics, Volume};
use basalt_workloads::Stream;

/// SSD-M's random reads of 4 KiB and sequential writes (table 1 of the paper), in MB/s.
const RANDOM_READ: f64 = 10.6;
const SEQUENTIAL_WRITE: f64 = 87.0;
/// Segments of 32 MiB in 64 GB.
const SECTIONS: u32 = 1907;

/// How the paper is read: the least age in seconds, and whether what cleaning writes counts.
type Reading = (u64, bool);
const FAITHFUL: Reading = (60, true);
const UNTOUCHED: Reading = (60, false);
const BARE: Reading = (0, false);

/// A run at a part of the paper's sizes. Sections shrink too, so their number stays. Time passes as at the full size.
fn run(part: u32, groups: usize, reading: Reading, quantization: Quantization, seed: u64) -> Statistics {
    let blocks = |bytes: u64| (bytes / BLOCK_SIZE / u64::from(part)) as u32;
    let segments_per_section = 16 / part;
    let (age_floor, clean_touch) = (Duration::from_secs(reading.0), reading.1);
    let sfs = SfsOptions { groups, quantization, age_floor, clean_touch, segments_per_section, seed };
    let placement = FaithfulSfs::new(sfs);
    let bandwidth = |bandwidth: f64| bandwidth / f64::from(part);
    let (read, write) = (bandwidth(RANDOM_READ), bandwidth(SEQUENTIAL_WRITE));
    let all = SECTIONS * segments_per_section * 512;
    let options = Options {
        segments_per_section,
        blocks: (u64::from(all) * 85 / 100) as u32,
        policy: &CostHotness,
        // Above 95 % in use.
        cleaning: Cleaning::FreeSections { least: SECTIONS / 20 + 1, victims: 3 },
        age: Age::Written,
        pool: Some(PoolOptions::of(blocks(200 << 20), placement.mixed_log(), read, write)),
        ..Options::of(u64::from(all) * BLOCK_SIZE, 50).unwrap()
    };
    let (set, used) = (blocks(8 << 30), options.blocks);
    let mut volume = Volume::with_placement(options, Box::new(placement)).unwrap();
    volume.stop_clock(true);
    (set..used).chain(0..set).for_each(|block| volume.write(block).unwrap());
    volume.stop_clock(false);
    let mut stream = Stream::parse("zipf:0.9", set, seed).unwrap();
    (0..blocks(25_000_000_000)).for_each(|_| volume.write(stream.next_block()).unwrap());
    volume.take_statistics();
    (0..blocks(15_000_000_000)).for_each(|_| volume.write(stream.next_block()).unwrap());
    *volume.statistics()
}

fn cost(part: u32, groups: usize, reading: Reading, quantization: Quantization) -> f64 {
    cost_of_seed(part, groups, reading, quantization, 1)
}

fn cost_of_seed(part: u32, groups: usize, reading: Reading, quantization: Quantization, seed: u64) -> f64 {
    let statistics = run(part, groups, reading, quantization, seed);
    let cost = statistics.write_cost(RANDOM_READ, SEQUENTIAL_WRITE);
    println!(
        "{groups} groups, {quantization:?}, floor {} s, clean_touch {}: write cost {cost:.2}, {:.1} % absorbed, {} victims at {:.1} %, {} checkpoints",
        reading.0,
        reading.1,
        statistics.absorbed as f64 / statistics.user_writes as f64 * 100.0,
        statistics.victims,
        statistics.mean_victim_utilization(16 / part * 512) * 100.0,
        statistics.checkpoints,
    );
    cost
}

/// Runs a reading with a number of groups, and holds it against a number.
fn expect(part: u32, groups: usize, reading: Reading, expected: f64, percent: f64) -> f64 {
    let cost = cost(part, groups, reading, Quantization::Iterative);
    assert!((cost / expected - 1.0).abs() * 100.0 <= percent, "{cost:.2}, expected {expected} within {percent} %");
    cost
}

/// The mean of three seeds at the paper's scale: they differ by 2 %.
fn at_full_size(groups: usize, reading: Reading) -> f64 {
    let costs = [1, 2, 3].map(|seed| cost_of_seed(1, groups, reading, Quantization::Iterative, seed));
    let mean = costs.iter().sum::<f64>() / costs.len() as f64;
    println!("mean: {mean:.3}");
    mean
}

fn is_near(cost: f64, expected: f64) {
    assert!((cost / expected - 1.0).abs() <= 0.05, "{cost:.3}, expected {expected} within 5 %");
}

#[test]
#[ignore = "the paper's scale: minutes"]
fn the_faithful_reading_is_as_another_simulation_has_it() {
    is_near(at_full_size(1, FAITHFUL), 5.80);
    is_near(at_full_size(4, FAITHFUL), 3.65);
}

#[test]
#[ignore = "the paper's scale: minutes"]
fn without_clean_touch_it_is_as_another_simulation_has_it() {
    is_near(at_full_size(1, UNTOUCHED), 7.20);
    is_near(at_full_size(4, UNTOUCHED), 4.62);
}

/// The other simulation says "about 7.20 to 6.59". How much of the gain is left hangs on how old the newest section is when blocks are
/// sorted: here a block is as old as the beginning of its section's write, and seeds differ by 15 %.
#[test]
#[ignore = "the paper's scale: minutes"]
fn without_a_floor_groups_gain_little() {
    let (one, four) = (at_full_size(1, BARE), at_full_size(4, BARE));
    is_near(one, 7.20);
    assert!(four > 0.80 * one, "{one:.3} {four:.3}");
}

/// At a sixteenth, fewer writes are absorbed and costs are a little higher. What this program had when its numbers were right at full size.
#[test]
fn write_costs_at_a_sixteenth_stay_as_they_are() {
    let costs = |reading, one, four| (expect(16, 1, reading, one, 2.0), expect(16, 4, reading, four, 2.0));
    let faithful = costs(FAITHFUL, 6.01, 3.97);
    let untouched = costs(UNTOUCHED, 6.91, 4.78);
    let bare = costs(BARE, 6.91, 5.93);
    let gain = |(one, four): (f64, f64)| four / one;
    // What another simulation has is 0.63, 0.64 and 0.92.
    assert!(
        gain(faithful) < 0.70 && gain(untouched) < 0.75 && gain(bare) > 0.82,
        "{faithful:?} {untouched:?} {bare:?}"
    );
}

/// Figure 7(b): equal numbers cost the most (143 % of iterative quantization), equal ranges less (115 %).
#[test]
fn iterative_quantization_is_better_than_equal_parts() {
    let [iterative, range, count] = Quantization::ALL.map(|(_, quantization)| cost(16, 4, FAITHFUL, quantization));
    assert!(range > 1.03 * iterative && count > 1.10 * range, "{iterative:.2} {range:.2} {count:.2}");
}

/// Any number of groups, all readings, all quantizations.
#[test]
#[ignore = "a table to look at"]
fn table() {
    for reading in [FAITHFUL, UNTOUCHED, BARE, (0, true)] {
        for groups in 1..=8 {
            cost(16, groups, reading, Quantization::Iterative);
        }
    }
    for (_, quantization) in Quantization::ALL {
        cost(1, 4, FAITHFUL, quantization);
    }
}
