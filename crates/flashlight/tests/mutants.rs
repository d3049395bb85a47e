//! The tests find bugs: each one that is planted in the engine is noticed.
//!
//! `BASALT_MUTANT=Origin` plants those alone whose name has that in it; `BASALT_RECORD=1` looks for all anew, and writes down what has found
//! them; `BASALT_MODES=power,model` looks with these alone; `BASALT_ROUNDS` is how many rounds of all modes a bug may survive.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use basalt_flashlight::mutant::{Mutant, activate};
use support::modes::{MODES, Mode};

/// What has found planted bugs before, one to a line: the bug, the mode, the seed. It is tried first, which is quick.
const RECORDED: &str = include_str!("mutants/found-by.txt");

/// A run that finds a planted bug.
#[derive(Clone, Copy, Debug)]
struct Run {
    mode: Mode,
    seed: u64,
}

impl Run {
    /// The one on record.
    fn recorded(mutant: Mutant) -> Option<Run> {
        RECORDED.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let &[name, mode, seed] = &words[..] else { return None };
            let mode = *MODES.iter().find(|known| known.name == mode)?;
            (name == format!("{mutant:?}")).then_some(Run { mode, seed: seed.parse().ok()? })
        })
    }

    /// What is wrong with a mutant, or without one. A panic is a finding, too.
    fn finding(&self, mutant: Option<Mutant>) -> Option<String> {
        activate(mutant);
        let done = catch_unwind(AssertUnwindSafe(|| (self.mode.run)(self.seed)));
        activate(None);
        match done {
            Ok(found) => found.err(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                Some(text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default())
            }
        }
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// The first run that finds a mutant: that on record, then others of all modes in turns.
fn hunt(mutant: Mutant) -> Option<(Run, String)> {
    let recorded = if std::env::var_os("BASALT_RECORD").is_some() { None } else { Run::recorded(mutant) };
    let first = number("BASALT_SEED", 0);
    let rounds = first..first + number("BASALT_ROUNDS", 60);
    let others = rounds.flat_map(|round| {
        let seeds = move |mode: Mode| round * mode.share..(round + 1) * mode.share;
        let modes = std::env::var("BASALT_MODES").unwrap_or_default();
        let wanted = move |mode: &Mode| modes.is_empty() || modes.split(',').any(|name| name == mode.name);
        MODES.into_iter().filter(wanted).flat_map(move |mode| seeds(mode).map(move |seed| Run { mode, seed }))
    });
    recorded.into_iter().chain(others).find_map(|run| Some((run, run.finding(Some(mutant))?)))
}

#[test]
fn every_planted_bug_is_found() {
    let only = std::env::var("BASALT_MUTANT").unwrap_or_default();
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (mut survivors, mut lines) = (Vec::new(), String::new());
    for mutant in Mutant::ALL.into_iter().filter(|mutant| {
        format!("{mutant:?}").contains(&only) || only.split(',').any(|name| name == format!("{mutant:?}"))
    }) {
        let start = std::time::Instant::now();
        let Some((run, finding)) = hunt(mutant) else {
            println!("{mutant:?}: NOT FOUND after {:?}", start.elapsed());
            survivors.push(mutant);
            continue;
        };
        let Run { mode, seed } = run;
        let finding: String = finding.lines().next().unwrap_or_default().chars().take(150).collect();
        println!("{mutant:?}: found by {} {seed} in {:?}: {finding}", mode.name, start.elapsed());
        lines += &format!("{mutant:?} {} {seed}\n", mode.name);
        // The bug is found, not the run at fault.
        if let Some(wrong) = run.finding(None) {
            println!("{} {seed} fails without a bug: {wrong}", mode.name);
            survivors.push(mutant);
        }
    }
    std::panic::set_hook(told);
    if std::env::var_os("BASALT_RECORD").is_some() && only.is_empty() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mutants/found-by.txt"), lines).unwrap();
    }
    assert!(survivors.is_empty(), "not found: {survivors:#?}");
}
