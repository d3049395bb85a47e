//! Workloads that write again: into slack, and by defragmentation.

use basalt_testkit::rng::Rng;

use super::{Drawn, Setting, any_volume, explore};
use crate::explore::{Density, Finding, Moments, Tally};
use crate::f2fs::{F2fsVolume, VOLUMES};
use crate::generate::{Flavour, steps};
use crate::prepare::Image;
use crate::script::Step;

/// Overwriting and fsync, and files are put in sequence in between.
pub(super) fn defragmented(seed: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    let drawn = draw_defragmented(&mut Rng::new(seed ^ 0xDE));
    let density = Density { moments: Moments::Chosen(24), random: 1, nested: 12, thorough: 4 };
    explore(drawn.engine, drawn.workload(), density, seed, setting, tally)
}

/// Behind some writes their file, or another that was written before, is put in sequence.
fn draw_defragmented(rng: &mut Rng) -> Drawn {
    let engine = any_volume(rng);
    let user = engine.user_bytes();
    let (flavour, count) = match rng.below(5) {
        0 => (Flavour::Cleaning(user / 100 * rng.between(30, 60)), 160),
        1 => (Flavour::Large(user / 100 * rng.between(20, 50)), 80),
        2 => (Flavour::Brim, 40),
        3 => (Flavour::Mixed, 120),
        _ => (Flavour::Fsync, 120),
    };
    let (mut written, mut all) = (Vec::new(), Vec::new());
    for step in steps(rng, flavour, count) {
        let path = if let Step::Write(path, ..) = &step { Some(path.clone()) } else { None };
        all.push(step);
        written.extend(path);
        if let Some(last) = written.len().checked_sub(1).filter(|_| rng.chance(25)) {
            // The last ones most often.
            all.push(Step::Defragment(written[last - rng.index(8.min(written.len()))].clone()));
        }
    }
    Drawn { engine, image: Image::Empty, steps: all }
}

/// A long workload on a volume whose logs fill slack.
pub(super) fn slack(seed: u64, setting: Setting<'_>, tally: &mut Tally) -> Result<(), Finding> {
    let drawn = draw_slack(&mut Rng::new(seed ^ 0x51));
    let density = Density { moments: Moments::Chosen(24), random: 2, nested: 8, thorough: 3 };
    explore(drawn.engine, drawn.workload(), density, seed, setting, tally)
}

fn draw_slack(rng: &mut Rng) -> Drawn {
    let with_pages = rng.chance(60);
    let engines: Vec<&'static F2fsVolume> =
        VOLUMES.iter().filter(|volume| volume.fills_slack() && volume.knows_pages() == with_pages).collect();
    let engine = engines[rng.index(engines.len())];
    let user = engine.user_bytes();
    let (flavour, count) = match rng.below(10) {
        0..2 => (Flavour::Pressure(user / 100 * rng.between(70, 95)), 260),
        2 => (Flavour::Churn(user / 100 * rng.between(50, 85)), 400),
        3 => (Flavour::Lulls(user / 100 * rng.between(20, 40)), 600),
        4 => (Flavour::Rounds(user / 100 * rng.between(12, 30)), 450),
        _ => (Flavour::Cleaning(user / 100 * rng.between(60, 90)), [200, 400, 600][rng.index(3)]),
    };
    Drawn { engine, image: Image::Empty, steps: steps(rng, flavour, count) }
}
