//! Power cuts at every program and erase of random operations, and of the recovery behind them: see `support/power`.
//!
//! `BASALT_SEED` and `BASALT_SEEDS` choose others: `BASALT_SEEDS=100` is a campaign of about 14,000 cuts in each of the tests.

mod support;

use support::power::{Flavour, cut_everywhere, cut_once};

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

fn cut_seeds(flavour: Flavour, seeds: u64) {
    let first = number("BASALT_SEED", 0);
    let cut = |seed| cut_everywhere(flavour, seed, 150, 7).unwrap_or_else(|error| panic!("{error}"));
    let cuts: u64 = (first..first + number("BASALT_SEEDS", seeds)).map(cut).sum();
    println!("{cuts} power cuts");
    assert!(cuts > 100);
}

#[test]
fn nothing_synced_is_lost_wherever_the_power_goes() {
    cut_seeds(Flavour::PLAIN, 3);
}

#[test]
fn nor_where_blocks_fail_as_well() {
    cut_seeds(Flavour::FAILING, 3);
}

#[test]
fn nor_in_directories_that_have_buckets() {
    cut_seeds(Flavour::CROWDED, 1);
}

#[test]
fn nor_on_a_chip_that_had_another_volume() {
    cut_seeds(Flavour::USED, 2);
}

/// Lives of a few operations each, one behind the other on the same chip.
#[test]
fn nor_in_many_short_lives() {
    let first = number("BASALT_SEED", 0);
    for seed in first..first + number("BASALT_SEEDS", 3) * 20 {
        for flavour in [Flavour::NESTED, Flavour::TIGHT] {
            cut_once(flavour, seed).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
