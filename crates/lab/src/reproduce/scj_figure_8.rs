//! SCJ figure 8 (section VI.E): speed, latency of cleaning, checkpoints and metadata of all four workloads.
//!
//! The paper's text gives the range of the gain, 1.13 (varmail) to 1.63, and a bound on checkpoints; the rest is drawn.

use super::scj::{BASELINE, JOURNALED, LOADS, Measured, Runs, SHARED, Setup, ratio};
use super::{Expectation, Item, Outcome, Say, Scale};

const LABEL: (&str, &str) = ("scj", "8");
/// The paper's gain: the least of its workloads, and the most.
const GAIN: Expectation = Expectation::Band { low: 1.13, high: 1.63 };
/// Its checkpoints over the baseline's: less than this.
const CHECKPOINTS: f64 = 0.06;

pub(super) fn run(scale: &Scale, runs: &mut Runs, say: Say<'_>) -> Outcome {
    let mut items = Vec::new();
    for (name, load) in LOADS {
        let baseline = runs.get(scale, &Setup::new(load, BASELINE), say)?;
        for (way_name, way) in JOURNALED {
            let run = runs.get(scale, &Setup::new(load, way), say)?;
            items.extend(compare(&format!("{name}, {way_name}"), &baseline, &run));
            if way.shared {
                let shared = runs.get(scale, &Setup::new(load, SHARED), say)?;
                items.push(over_shared(&format!("{name}, {way_name}"), &baseline, &shared, &run));
            }
        }
    }
    Ok(items)
}

/// A journalled run against a checkpoint behind each victim.
fn compare(label: &str, baseline: &Measured, run: &Measured) -> Vec<Item> {
    let item = |what: &str, expectation, ours, why| {
        Item::new(LABEL, format!("{label}: {what} over the baseline's"), expectation, ours, why)
    };
    let seconds = |run: &Measured| run.latency().as_secs_f64();
    let less = Expectation::Below(1.0);
    let counts = [run.checkpoints(), baseline.checkpoints()];
    let fewer = ratio(counts[0] as f64, counts[1] as f64);
    vec![
        item("speed", GAIN, run.speedup(baseline), format!("{}; baseline: {}", run.account(), baseline.account())),
        item(
            "latency of cleaning",
            less,
            ratio(seconds(run), seconds(baseline)),
            format!("ms a victim: {}; baseline: {}", run.phases(), baseline.phases()),
        ),
        item("checkpoints", Expectation::Below(CHECKPOINTS), fewer, format!("{}; baseline {}", counts[0], counts[1])),
        item(
            "metadata",
            less,
            ratio(run.metadata(), baseline.metadata()),
            format!("blocks for each block of data: {:.3}; baseline {:.3}", run.metadata(), baseline.metadata()),
        ),
    ]
}

/// What the journal gains where victims share commits with it and without.
fn over_shared(label: &str, baseline: &Measured, shared: &Measured, run: &Measured) -> Item {
    let why = format!(
        "not in the paper; shared checkpoints: {:.3} of the baseline's speed, {}; ms a victim: {}",
        shared.speedup(baseline),
        shared.account(),
        shared.phases()
    );
    let what = format!("{label}: speed over that with shared checkpoints");
    Item::new(LABEL, what, Expectation::Above(1.0), run.speedup(shared), why)
}
