//! Threads: a run is the same each time it is played.

use basalt_crash::scenario::format;
use basalt_crash::threads::generate::workload;
use basalt_crash::threads::run::run;
use basalt_crash::threads::script::Threads;
use basalt_crash::threads::stage::Choice;
use basalt_testkit::rng::Rng;

/// One seed gives one run, and its switches give the same one: every request, every moment of every step.
#[test]
fn a_run_is_the_same_from_its_seed_and_from_its_switches() {
    let mut switches = 0;
    for seed in 0..12 {
        let workload = workload(&mut Rng::new(seed));
        let base = format(workload.engine).unwrap();
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
