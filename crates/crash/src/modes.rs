//! Four ways to choose what is done and where the power goes.
//!
//! | mode | workloads | cuts |
//! |---|---|---|
//! | exhaustive | short ones, written by hand and random | at every request, all styles |
//! | enumerated | every sequence of two operations, each followed by nothing, fsync or sync; three, sampled (as CrashMonkey's ACE, OSDI 2018) | at the end, and chosen ones |
//! | random | long ones; tiny volumes nearly full, where cleaning never stops | chosen ones, and cuts of what follows them |
//! | journaled | longer ones on tight volumes with a journal, fsync-heavy or not | as random |

use std::sync::OnceLock;

use basalt_device::MemoryDevice;
use basalt_testkit::rng::Rng;

use crate::device_mutant::DeviceMutant;
use crate::engine::Engine;
use crate::enumerate::sequence;
use crate::explore::{Density, Explorer, Finding, Tally};
use crate::f2fs::{F2fsVolume, VOLUMES, volume};
use crate::generate::{Flavour, steps};
use crate::scenario::format;
use crate::script::Step;

/// What every run has in common.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setting {
    /// The device lies so.
    pub device_mutant: Option<DeviceMutant>,
    /// One closed volume in so many is shown to `fsck.f2fs`; 0 for none.
    pub elsewhere_every: u64,
}

/// An empty volume of each kind, made once; every run has a copy.
pub(crate) fn empty(engine: &F2fsVolume) -> Result<MemoryDevice, String> {
    static MADE: [OnceLock<Result<MemoryDevice, String>>; VOLUMES.len()] = [const { OnceLock::new() }; VOLUMES.len()];
    let index = VOLUMES.iter().position(|volume| volume.name() == engine.name()).unwrap_or_default();
    match MADE[index].get_or_init(|| format(engine)) {
        Ok(device) => Ok(device.snapshot()),
        Err(error) => Err(error.clone()),
    }
}

fn explore(
    engine: &F2fsVolume,
    steps: &[Step],
    density: Density,
    seed: u64,
    setting: Setting,
    tally: &mut Tally,
) -> Result<(), Finding> {
    let mut explorer = Explorer::new(engine);
    explorer.device_mutant = setting.device_mutant;
    explorer.elsewhere_every = setting.elsewhere_every;
    explorer.elsewhere_phase = seed.wrapping_mul(0x9E37_79B9) >> 8;
    let base = empty(engine).map_err(|what| explorer.cannot_begin(what))?;
    let result = explorer.run(&base, steps, density, seed);
    tally.add(&explorer.tally);
    result
}

/// Short workloads whose every request is cut: the ones below first, then random ones.
pub fn exhaustive(seed: u64, setting: Setting, tally: &mut Tally) -> Result<(), Finding> {
    let mut rng = Rng::new(seed ^ 0xE0);
    let engine = &VOLUMES[rng.index(VOLUMES.len())];
    let steps = match usize::try_from(seed).ok().and_then(|seed| SHORT.get(seed)) {
        Some(lines) => parse(lines),
        None => {
            let flavour = if rng.chance(50) { Flavour::Mixed } else { Flavour::Fsync };
            steps(&mut rng, flavour, 16)
        }
    };
    explore(engine, &steps, Density { moments: None, random: 3, nested: 10 }, seed, setting, tally)
}

/// Sequence `number` of those enumerated.
pub fn enumerated(number: u64, setting: Setting, tally: &mut Tally) -> Result<(), Finding> {
    let name = if number.is_multiple_of(2) { "roomy" } else { "tight-journal" };
    let engine = volume(name).unwrap_or(&VOLUMES[0]);
    explore(engine, &sequence(number), Density { moments: Some(3), random: 1, nested: 5 }, number, setting, tally)
}

/// A long random workload.
pub fn random(seed: u64, setting: Setting, tally: &mut Tally) -> Result<(), Finding> {
    let mut rng = Rng::new(seed ^ 0x4A);
    let engine = &VOLUMES[rng.index(VOLUMES.len())];
    let user = engine.user_bytes();
    let is_tight = user < 24 << 20;
    let flavour = match rng.below(8) {
        0..2 => Flavour::Fsync,
        2 => Flavour::Churn(if is_tight { user / 100 * rng.between(40, 80) } else { 4 << 20 }),
        // Tight volumes are filled to between 60 and 90 percent.
        3..6 if is_tight => Flavour::Pressure(user / 100 * rng.between(60, 90)),
        _ => Flavour::Mixed,
    };
    let steps = steps(&mut rng, flavour, 120);
    explore(engine, &steps, Density { moments: Some(24), random: 1, nested: 12 }, seed, setting, tally)
}

/// A long workload on a volume whose journal is never idle.
pub fn journaled(seed: u64, setting: Setting, tally: &mut Tally) -> Result<(), Finding> {
    let mut rng = Rng::new(seed ^ 0x10);
    let engines: Vec<&F2fsVolume> = VOLUMES.iter().filter(|volume| volume.is_journaled()).collect();
    let engine = engines[rng.index(engines.len())];
    let user = engine.user_bytes();
    let (flavour, count) = match rng.below(8) {
        0 => (Flavour::Pressure(user / 100 * rng.between(60, 90)), 260),
        1..3 => (Flavour::Churn(user / 100 * rng.between(40, 80)), 400),
        3..5 => (Flavour::Chain(user / 100 * rng.between(60, 90)), 1200),
        _ => (Flavour::Cleaning(user / 100 * rng.between(50, 85)), [160, 260, 600][rng.index(3)]),
    };
    let steps = steps(&mut rng, flavour, count);
    explore(engine, &steps, Density { moments: Some(24), random: 1, nested: 12 }, seed, setting, tally)
}

fn parse(lines: &str) -> Vec<Step> {
    lines.split(';').filter_map(|line| line.trim().parse().ok()).collect()
}

/// Stories that file systems have got wrong before.
const SHORT: [&str; 14] = [
    "create a; write a 0 5000 1; fsync a; write a 0 5000 2; write a 8192 4096 3; fsync a",
    "create a; write a 0 100 1; fsync a; write a 50 9000 2; sync; truncate a 10; fsync a",
    "create a; write a 0 9000 1; fsync a; rename a b; create a; write a 0 20000 2; fsync a",
    "create a; write a 0 9000 1; sync; create b; write b 0 9000 2; fsync b; rename b a; sync",
    "mkdir d; create d/a; fsync d/a; rename d e; create e/b; fsync e/b; sync",
    "create a; sync; link a b; fsync a; unlink a; fsync b; create a; fsync a",
    "create a; write a 0 70000 1; hold a; sync; unlink a; sync; create b; write b 0 70000 2; sync; release; sync",
    "create a; setxattr a 0 100 1; fsync a; setxattr a 0 1500 2; setxattr a 1 8 3; fsync a; removexattr a 0; fsync a",
    "create a; allocate a 0 40000; fsync a; write a 4096 8192 1; fdatasync a; punch a 4096 4096; fsync a",
    "create a; write a 3600000 9000 1; fsync a; truncate a 100; fsync a; write a 3600000 4096 2; fsync a",
    "mkdir d; mkdir e; create d/x; create e/y; sync; exchange d e; fsync d; rename d/y e/x; fsync e/x",
    "create a; write a 0 163840 1; sync; write a 0 163840 2; fsync a; unlink a; create b; write b 0 163840 3; sync",
    "create a; write a 0 4096 1; fsync a; unlink a; create a; write a 0 4096 2; fsync a; unlink a; sync; remount",
    "symlink s 3000; symlink t 20; create a; fsync s; fsync t; chmod a 4711; fsync a; tick 10; tick 70",
];

/// How many of the exhaustive workloads are written by hand.
pub const STORIES: u64 = SHORT.len() as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stories_are_scripts() {
        for story in SHORT {
            assert_eq!(parse(story).len(), story.split(';').count(), "{story}");
        }
    }
}
