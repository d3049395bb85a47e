//! Workloads that have led recovery to new branches, varied; where a cut reaches a new one, there are more.

use std::sync::{Arc, Mutex};

use basalt_testkit::rng::Rng;

use crate::explore::{Density, Finding, Moments, Tally};
use crate::f2fs::{F2fsVolume, VOLUMES};
use crate::generate::{Flavour, steps};
use crate::modes::{Drawn, Setting, draw_journaled, draw_random, draw_short, explore};
use crate::script::Step;

/// Percent of runs that vary a workload, once there is one.
const VARIED: u64 = 70;
/// Most edits that make one workload of another.
const EDITS: u64 = 4;
/// Most steps that one edit takes out, repeats or takes over.
const PIECE: usize = 60;
/// Most steps of a workload that is kept: longer ones take the time of many.
const STEPS_MAX: usize = 400;

/// Workloads that have led to something new.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Vec<Arc<Drawn>>>);

impl Kept {
    /// Adds one.
    pub(crate) fn add(&self, drawn: Drawn) {
        if drawn.steps.len() <= STEPS_MAX
            && let Ok(mut kept) = self.0.lock()
        {
            kept.push(Arc::new(drawn));
        }
    }

    fn pick(&self, rng: &mut Rng) -> Option<Arc<Drawn>> {
        self.0.lock().ok().and_then(|kept| rng.pick(&kept).cloned())
    }
}

/// A workload that is like one which has led to something new, or a fresh one.
pub fn steered(seed: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    let mut rng = Rng::new(seed ^ 0x57);
    let kept = setting.reach.map(|reach| &reach.kept);
    let like = kept.filter(|_| rng.chance(VARIED)).and_then(|kept| Some((kept.pick(&mut rng)?, kept.pick(&mut rng)?)));
    let drawn = match like {
        Some((one, other)) => vary(&one, &other, &mut rng),
        None => [draw_random, draw_journaled, draw_short][rng.index(3)](&mut rng),
    };
    let density = Density { moments: Moments::Chosen(16), random: 1, nested: 12, thorough: 4 };
    explore(drawn.engine, drawn.workload(), density, seed, Setting { steered: true, ..setting }, tally)
}

/// A few edits away from a workload, with pieces of another one.
fn vary(one: &Drawn, other: &Drawn, rng: &mut Rng) -> Drawn {
    let mut drawn = one.clone();
    if rng.chance(10) {
        drawn.engine = &VOLUMES[rng.index(VOLUMES.len())];
    }
    for _ in 0..=rng.below(EDITS) {
        edit(&mut drawn.steps, &other.steps, drawn.engine, rng);
    }
    drawn.steps.truncate(STEPS_MAX);
    drawn
}

fn edit(steps: &mut Vec<Step>, other: &[Step], engine: &F2fsVolume, rng: &mut Rng) {
    let piece = |of: &[Step], rng: &mut Rng| {
        let start = rng.index(of.len() + 1);
        start..(start + 1 + rng.index(PIECE)).min(of.len())
    };
    match rng.below(4) {
        0 => drop(steps.drain(piece(steps, rng))),
        kind => {
            let inserted = match kind {
                1 => steps[piece(steps, rng)].to_vec(),
                2 => other[piece(other, rng)].to_vec(),
                _ => fresh(engine, rng),
            };
            let at = rng.index(steps.len() + 1);
            steps.splice(at..at, inserted);
        }
    }
}

/// A few steps that nobody had before.
fn fresh(engine: &F2fsVolume, rng: &mut Rng) -> Vec<Step> {
    let large = Flavour::Large(engine.user_bytes() / 100 * rng.between(10, 40));
    let flavours = [Flavour::Mixed, Flavour::Fsync, Flavour::Sparse, Flavour::Brim, Flavour::Names, large];
    let flavour = flavours[rng.index(flavours.len())];
    let count = 4 + rng.index(PIECE / 2);
    steps(rng, flavour, count)
}
