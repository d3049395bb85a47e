//! Threads: a run is the same each time it is played, and what is found is found again from its text.
#![cfg(feature = "mutants")]

use std::time::Duration;

use basalt_crash::engine::Engine;
use basalt_crash::explore::{Finding, Tally};
use basalt_crash::f2fs::volume;
use basalt_crash::modes::Setting;
use basalt_crash::planted::plant;
use basalt_crash::prepare::Image;
use basalt_crash::scenario::Scenario;
use basalt_crash::shrink::shrink;
use basalt_crash::threads::generate::workload;
use basalt_crash::threads::run::run;
use basalt_crash::threads::script::Threads;
use basalt_crash::threads::stage::Choice;
use basalt_crash::threads::threads;
use basalt_f2fs::mutant::Mutant;
use basalt_testkit::rng::Rng;

/// One seed gives one run, and its switches give the same one: every request, every moment of every step.
#[test]
fn a_run_is_the_same_from_its_seed_and_from_its_switches() {
    let mut switches = 0;
    for seed in 0..12 {
        let workload = workload(&mut Rng::new(seed));
        let base = Image::Empty.base(workload.engine).unwrap().device;
        let threads = Threads { acts: workload.acts.clone(), switches: Vec::new() };
        let play = |choice: &Choice| run(workload.engine, &base, &workload.setup, &threads, choice).unwrap();
        let first = play(&Choice::Seeded(seed));
        switches += first.switches.len();
        for choice in [Choice::Seeded(seed), Choice::Given(first.switches.clone())] {
            let again = play(&choice);
            assert_eq!(first.switches, again.switches, "seed {seed}, {choice:?}");
            assert_eq!(first.history.changes.len(), again.history.changes.len(), "seed {seed}");
            assert!(first.history.changes == again.history.changes, "seed {seed}: other requests");
            assert_eq!(first.effects, again.effects, "seed {seed}");
        }
    }
    assert!(switches > 100, "only {switches} switches: threads hardly met");
}

/// A bug that is found soon.
const PLANTED: Mutant = Mutant::CheckpointNotAwaited;

/// The first finding with a planted bug.
fn hunt() -> Finding {
    let mut tally = Tally::default();
    let found = (0..600).find_map(|seed| threads(seed, Setting::default(), &mut tally).err());
    found.expect("a planted bug is found")
}

#[test]
fn a_finding_is_shortened_and_replayed() {
    plant(Some(PLANTED));
    let finding = hunt();
    let engine = volume(&finding.scenario.volume).expect("the volume of a finding is known");
    let shorter = shrink(engine, &finding, Duration::from_secs(10));
    let size = |finding: &Finding| finding.scenario.to_string().lines().count();
    assert!(size(&shorter) < size(&finding), "nothing was left out of\n{}", finding.scenario);
    for finding in [&finding, &shorter] {
        let text = finding.scenario.to_string();
        let scenario: Scenario = text.parse().expect("a story is read back");
        assert_eq!(scenario, finding.scenario);
        let play = |engine: &dyn Engine| scenario.play(engine).map(drop);
        assert_eq!(play(engine), Err(finding.what.clone()), "{text}");
        plant(None);
        assert_eq!(play(engine), Ok(()), "without the planted bug:\n{text}");
        plant(Some(PLANTED));
    }
    plant(None);
}
