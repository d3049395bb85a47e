//! One run after the other of all modes, each with its share, until one finds something: how soon is a bug found?

use crate::explore::{Finding, Tally};
use crate::modes::{MODES, Mode, Setting};

/// What a hunt came to.
#[derive(Debug)]
pub struct Hunted {
    /// What was done in all modes.
    pub tally: Tally,
    /// The mode and the number of the run that found something, and what.
    pub found: Option<(&'static str, u64, Finding)>,
}

/// Makes up to so many cuts. Modes take turns, so that at any moment each has had its part of the cuts as in the tests.
pub fn hunt(setting: Setting<'_>, first: u64, cuts: u64) -> Hunted {
    let mut all: Vec<(&Mode, u64, Tally)> = MODES.iter().map(|mode| (mode, first, Tally::default())).collect();
    let mut total = Tally::default();
    while total.cuts < cuts {
        // A run without a cut counts as one: no mode has all the turns.
        let turn = |(mode, _, tally): &&mut (&Mode, u64, Tally)| (tally.cuts + tally.runs) * 1000 / mode.part_of_tests;
        let Some((mode, number, tally)) = all.iter_mut().min_by_key(turn) else { break };
        let mut run = Tally { runs: 1, ..Tally::default() };
        let (seed, result) = (mode.spread(*number), (mode.run)(mode.spread(*number), setting, &mut run));
        *number += 1;
        tally.add(&run);
        total.add(&run);
        if let Err(finding) = result {
            return Hunted { tally: total, found: Some((mode.name, seed, finding)) };
        }
    }
    Hunted { tally: total, found: None }
}
