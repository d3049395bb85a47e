//! SCJ figure 1 and section III: how much of the time of segment cleaning goes into the checkpoint that commits it.
//!
//! As in the paper F2FS in LFS mode (ours never writes in place) with a checkpoint behind each victim; and beside it Basalt's own
//! way without a journal, in which victims share one. Choosing a victim takes no time of the device.

use super::scj::{BASELINE, LOADS, Measured, Runs, SHARED, Setup, ratio};
use super::{Expectation, Item, Outcome, Say, Scale};

const LABEL: (&str, &str) = ("scj", "1");
/// Shares are of two systems with other code: they may differ by this much and still tell the same.
const TOLERANCE: f64 = 0.35;
/// The paper's shares of the checkpoint in the latency of cleaning, in the order of the workloads.
const SHARES: [f64; 4] = [0.52, 0.44, 0.57, 0.56];

pub(super) fn run(scale: &Scale, runs: &mut Runs, say: Say<'_>) -> Outcome {
    let mut items = Vec::new();
    for ((name, load), paper) in LOADS.into_iter().zip(SHARES) {
        let each = runs.get(scale, &Setup::new(load, BASELINE), say)?;
        let what = format!("share of the checkpoint in the time of cleaning, {name}");
        items.push(share(what, Expectation::Near { value: paper, tolerance: TOLERANCE }, &each));
        let shared = runs.get(scale, &Setup::new(load, SHARED), say)?;
        let what = format!("the same where victims share checkpoints, {name}");
        items.push(share(what, Expectation::Low { value: paper, tolerance: TOLERANCE }, &shared));
    }
    Ok(items)
}

/// The checkpoint's share of the time of foreground cleaning.
fn share(what: String, expectation: Expectation, run: &Measured) -> Item {
    let work = run.cleaning();
    if work.checkpoints == 0 || work.victims == 0 {
        return Item::missing(LABEL, what, expectation, "nothing was cleaned in the measured phase");
    }
    let [all, commit] = [work.select + work.copy + work.commit, work.commit].map(|time| time.as_secs_f64());
    let why = format!("{}: {:.1} victims a checkpoint", run.account(), work.victims as f64 / work.checkpoints as f64);
    Item::new(LABEL, what, expectation, ratio(commit, all), why)
}
