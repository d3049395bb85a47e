//! A hundred thousand power cuts violate nothing; half of them meet volumes whose cleaning a journal commits.
//!
//! `BASALT_CUTS=1000000` makes twice as many; `BASALT_SEED=17` begins with another seed.

use std::time::{Duration, Instant};

use basalt_crash::campaign::campaign;
use basalt_crash::explore::{Finding, Tally};
use basalt_crash::f2fs::volume;
use basalt_crash::modes::{Setting, enumerated, exhaustive, journaled, random};
use basalt_crash::shrink::shrink;
use basalt_crash::threads::threads;
use basalt_testkit::images::TOOLS;
use basalt_testkit::skip::tools_or_skip;

/// A number from the environment.
fn number(variable: &str, otherwise: u64) -> u64 {
    let Ok(value) = std::env::var(variable) else { return otherwise };
    value.parse().unwrap_or_else(|_| panic!("{variable}={value} is no number"))
}

fn cut(label: &'static str, cuts: u64, mode: impl Fn(u64, Setting, &mut Tally) -> Result<(), Finding> + Sync) -> u64 {
    let first = number("BASALT_SEED", 0);
    let elsewhere_every = if tools_or_skip(TOOLS) { 500 } else { 0 };
    let setting = Setting { device_mutant: None, elsewhere_every };
    let start = Instant::now();
    let outcome = campaign(label, first..u64::MAX, cuts, |seed, tally| mode(seed, setting, tally));
    if let Some((seed, finding)) = &outcome.finding {
        let engine = volume(&finding.scenario.volume).expect("the volume of a finding is known");
        let shorter = shrink(engine, finding, Duration::from_secs(60));
        panic!(
            "{label}, seed {seed}: {}\nshortest story found (save it, and: cargo run -p basalt-crash -- replay FILE):\n{}\n{}",
            finding.what, shorter.scenario, shorter.what
        );
    }
    let Tally { cuts, nested, checked_elsewhere, .. } = outcome.tally;
    println!(
        "{label}: {cuts} power cuts, {nested} of them after another one, {checked_elsewhere} volumes shown to fsck.f2fs, \
         {:.1} s, 0 violations",
        start.elapsed().as_secs_f64()
    );
    cuts
}

#[test]
fn a_hundred_thousand_power_cuts_violate_nothing() {
    let wanted = number("BASALT_CUTS", 51_000);
    // Every number of a sequence is as good as another: an odd stride reaches all kinds early.
    let spread =
        |number: u64, setting, tally: &mut Tally| enumerated(number.wrapping_mul(2_503) % 20_000, setting, tally);
    // Short workloads are the cheap ones. About every second cut of each of the first three modes meets a volume with a journal.
    let made = cut("exhaustive", wanted * 3 / 4, exhaustive)
        + cut("enumerated", wanted * 3 / 4, spread)
        + cut("random", wanted / 4, random)
        + cut("journaled", wanted / 4, journaled)
        + cut("threads", wanted / 4, threads);
    assert!(made >= wanted * 9 / 4 - 5, "only {made} power cuts");
}
