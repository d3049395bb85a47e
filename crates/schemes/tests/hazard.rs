//! Write amplification of the hazard table against the simulator that it was found with: the same setting, written apart.

mod setting;

use basalt_schemes::{Dac, Hazard, LeastGainByWaiting};
use basalt_segments::CostBenefit;
use setting::{GIB, expect, options, run};

fn amplification(blocks: u32, groups: usize, stream: &str, spare: f64, seed: u64) -> f64 {
    let options = options(blocks, spare, groups as u32, &LeastGainByWaiting);
    let (statistics, _) = run(options, Box::new(Hazard::new(groups)), stream, seed);
    statistics.write_amplification()
}

/// The mean of three seeds on the set of 1 GiB.
fn mean(stream: &str, spare: f64) -> f64 {
    let seeds = [1, 2, 3].map(|seed| amplification(GIB, Hazard::GROUPS, stream, spare, seed));
    println!("{stream}, {spare}: {seeds:.3?}");
    seeds.iter().sum::<f64>() / 3.0
}

/// The other simulator's seeds differ by less than 0.4 %.
#[test]
fn one_seed_is_as_the_other_simulator_has_it() {
    for (stream, spare, expected) in
        [("zipf:0.99", 0.15, 1.902), ("hotcold:90/10", 0.15, 1.786), ("uniform", 0.07, 7.175)]
    {
        expect(stream, amplification(GIB, Hazard::GROUPS, stream, spare, 1), expected, 1.5);
    }
}

#[test]
#[ignore = "three seeds of each: two minutes"]
fn streams_without_structure_are_as_the_other_simulator_has_them() {
    for (stream, spare, expected) in [
        ("zipf:0.99", 0.15, 1.902),
        ("zipf:0.99", 0.07, 3.401),
        ("hotcold:90/10", 0.15, 1.786),
        ("hotcold:90/10", 0.07, 3.184),
        ("uniform", 0.15, 3.495),
        ("uniform", 0.07, 7.175),
    ] {
        expect(stream, mean(stream, spare), expected, 1.5);
    }
}

/// The other simulator says 1.945 for four groups and 1.907 for twelve: one seed.
#[test]
#[ignore = "half a minute"]
fn four_groups_and_twelve_are_as_the_other_simulator_has_them() {
    for (groups, expected) in [(4, 1.945), (12, 1.907)] {
        expect("zipf:0.99", amplification(GIB, groups, "zipf:0.99", 0.15, 1), expected, 1.5);
    }
}

/// Any number of groups works on a small volume, and is better than one group.
#[test]
fn any_number_of_groups_is_better_than_one() {
    let blocks = GIB / 8;
    let (one, _) = run(options(blocks, 0.15, 1, &CostBenefit), Box::new(Dac::new(1)), "zipf:0.99", 1);
    for groups in [2, 3, 7, 12] {
        let amplification = amplification(blocks, groups, "zipf:0.99", 0.15, 1);
        println!("{groups}: {amplification:.3}, one: {:.3}", one.write_amplification());
        assert!(amplification < 0.7 * one.write_amplification(), "{groups} groups: {amplification:.3}");
    }
}

/// Same stream, same places: nothing depends on addresses in memory or on the order in a map.
#[test]
fn runs_repeat() {
    let places = |seed| {
        let options = options(GIB / 16, 0.15, 7, &LeastGainByWaiting);
        let (_, volume) = run(options, Box::new(Hazard::default()), "zipf:0.99", seed);
        (0..GIB / 16).map(|block| volume.place_of(block)).collect::<Vec<_>>()
    };
    let first = places(1);
    assert!(first == places(1) && first != places(2));
}
