//! Power cuts by the ten thousand violate nothing: every mode has its part.
//!
//! There are 12,500, and 50,000 with `BASALT_THOROUGH=1`. `BASALT_CUTS=1000000` makes another number; `BASALT_SEED=17` begins with another seed.

use std::time::{Duration, Instant};

use basalt_crash::campaign::campaign;
use basalt_crash::explore::{Seen, Tally};
use basalt_crash::f2fs::volume;
use basalt_crash::modes::{MODES, Mode, Setting};
use basalt_crash::shrink::shrink;
use basalt_testkit::images::TOOLS;
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::thorough;

/// A number from the environment.
fn number(variable: &str, otherwise: u64) -> u64 {
    let Ok(value) = std::env::var(variable) else { return otherwise };
    value.parse().unwrap_or_else(|_| panic!("{variable}={value} is no number"))
}

/// Makes so many cuts in one mode; how many it were.
fn cut(mode: &Mode, cuts: u64, seen: &Seen) -> u64 {
    let first = number("BASALT_SEED", 0);
    let elsewhere_every = if tools_or_skip(TOOLS) { 500 } else { 0 };
    let setting = Setting { elsewhere_every, seen: Some(seen), ..Setting::default() };
    let start = Instant::now();
    // Where runs are numbered one after the other, an odd stride reaches all kinds early.
    let run =
        |seed: u64, tally: &mut Tally| (mode.run)(if mode.is_list { mode.spread(seed) } else { seed }, setting, tally);
    let outcome = campaign(mode.name, first..u64::MAX, cuts, run);
    if let Some((seed, finding)) = &outcome.finding {
        let engine = volume(&finding.scenario.volume).expect("the volume of a finding is known");
        let shorter = shrink(engine, finding, Duration::from_secs(60));
        panic!(
            "{}, seed {seed}: {}\nshortest story found (save it, and: cargo run -p basalt-crash -- replay FILE):\n{}\n{}",
            mode.name, finding.what, shorter.scenario, shorter.what
        );
    }
    let Tally { cuts, states, nested, checked_elsewhere, .. } = outcome.tally;
    println!(
        "{}: {cuts} power cuts, {nested} of them after another one, that left {states} distinct states, {checked_elsewhere} \
         volumes shown to fsck.f2fs, {:.1} s, 0 violations",
        mode.name,
        start.elapsed().as_secs_f64()
    );
    cuts
}

#[test]
fn power_cuts_violate_nothing() {
    let wanted = number("BASALT_CUTS", thorough::count(12_500, 50_000));
    let parts: u64 = MODES.iter().map(|mode| mode.part_of_tests).sum();
    let seen = Seen::new();
    for mode in MODES {
        let cuts = wanted * mode.part_of_tests / parts;
        let made = cut(mode, cuts, &seen);
        assert!(made >= cuts, "{}: only {made} power cuts", mode.name);
    }
}
