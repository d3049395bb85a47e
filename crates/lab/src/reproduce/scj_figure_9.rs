//! SCJ figure 9 (section VI.E): how long reads and updates of YCSB's workload A take.
//!
//! The workload is one stream of accesses; they are given to the paper's 32 connections in turn, each of which asks for its next
//! access when its last is answered. So a read waits for cleaning that another connection's update caused. Hits in the database's
//! pool ask nothing of the file system and are not among them; an update counts when it commits, its group with it.

use basalt_workloads::LatencySummary;

use super::scj::{BASELINE, GAIN_TOLERANCE, JOURNALED, LOADS, Measured, Runs, SHARED, Setup, on_paper_terms, ratio};
use super::{Expectation, Item, Outcome, Say, Scale, Side};

const LABEL: (&str, &str) = ("scj", "9");
/// YCSB's place among the workloads.
const YCSB: usize = 3;

/// A number of a latency, and what the paper leaves of it for reads and for updates; its text says nothing of the 95th
/// percentile.
type Number = (&'static str, fn(&LatencySummary) -> u64, Option<[f64; 2]>);

const NUMBERS: [Number; 3] = [
    ("mean", |latency| latency.mean_ns, Some([0.89, 0.80])),
    ("95th percentile", |latency| latency.p95_ns, None),
    ("99th percentile", |latency| latency.p99_ns, Some([0.90, 0.81])),
];

pub(super) fn run(scale: &Scale, runs: &mut Runs, say: Say<'_>) -> Outcome {
    let load = LOADS[YCSB].1;
    let baseline = runs.get(scale, &Setup::new(load, BASELINE), say)?;
    let shared = runs.get(scale, &Setup::new(load, SHARED), say)?;
    let mut items = Vec::new();
    for (way_name, way) in JOURNALED {
        let run = runs.get(scale, &Setup::new(load, way), say)?;
        for (kind, name) in ["reads", "updates"].into_iter().enumerate() {
            let all = [&*baseline, &*shared, &*run];
            let on_terms = on_paper_terms(way, scale);
            items.extend(NUMBERS.iter().map(|number| compare(way_name, (kind, name), number, all, on_terms)));
        }
    }
    Ok(items)
}

fn compare(way: &str, (kind, name): (usize, &str), number: &Number, runs: [&Measured; 3], on_terms: bool) -> Item {
    let rests_on = runs[0].as_baseline(YCSB);
    let (which, of, paper) = number;
    let [baseline, shared, ours] = runs.map(|run| of(if kind == 0 { &run.reads } else { &run.updates }) as f64 / 1e6);
    let expectation = match paper {
        Some(left) => Expectation::Near { value: left[kind], tolerance: GAIN_TOLERANCE }
            .derived("1 less the fall in section VI.E"),
        None => Expectation::Below(1.0).derived("section VI.E: latency falls; the 95th percentile is only drawn"),
    };
    let claim = expectation.better(Side::Less).on_paper_terms(on_terms).over(rests_on);
    let what = format!("{name}, {which} over the baseline's, {way}");
    if baseline == 0.0 {
        return Item::missing(LABEL, what, claim, "nothing was read or updated in the measured phase");
    }
    let why = format!("ms: {ours:.2}; baseline {baseline:.2}; with shared checkpoints {shared:.2}");
    Item::new(LABEL, what, claim, ratio(ours, baseline), why)
}
