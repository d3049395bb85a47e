//! SCJ figure 9 (section VI.E): how long reads and updates of YCSB's workload A take.
//!
//! The workload is one stream of accesses; they are given to the paper's 32 connections in turn, each of which asks for its next
//! access when its last is answered. So a read waits for cleaning that another connection's update caused. Hits in the database's
//! pool ask nothing of the file system and are not among them; an update counts when it commits, its group with it.

use basalt_workloads::LatencySummary;

use super::scj::{BASELINE, JOURNALED, LOADS, Measured, Runs, SHARED, Setup, ratio};
use super::{Expectation, Item, Outcome, Say, Scale};

const LABEL: (&str, &str) = ("scj", "9");
const TOLERANCE: f64 = 0.1;

/// A number of a latency, and what the paper leaves of it for reads and for updates; its text says nothing of the 95th
/// percentile.
type Number = (&'static str, fn(&LatencySummary) -> u64, Option<[f64; 2]>);

const NUMBERS: [Number; 3] = [
    ("mean", |latency| latency.mean_ns, Some([0.89, 0.80])),
    ("95th percentile", |latency| latency.p95_ns, None),
    ("99th percentile", |latency| latency.p99_ns, Some([0.90, 0.81])),
];

pub(super) fn run(scale: &Scale, runs: &mut Runs, say: Say<'_>) -> Outcome {
    let load = LOADS[3].1;
    let baseline = runs.get(scale, &Setup::new(load, BASELINE), say)?;
    let shared = runs.get(scale, &Setup::new(load, SHARED), say)?;
    let mut items = Vec::new();
    for (way_name, way) in JOURNALED {
        let run = runs.get(scale, &Setup::new(load, way), say)?;
        for (kind, name) in ["reads", "updates"].into_iter().enumerate() {
            let all = [&*baseline, &*shared, &*run];
            items.extend(NUMBERS.iter().map(|number| compare(way_name, (kind, name), number, all)));
        }
    }
    Ok(items)
}

fn compare(way: &str, (kind, name): (usize, &str), number: &Number, runs: [&Measured; 3]) -> Item {
    let (which, of, paper) = number;
    let [baseline, shared, ours] = runs.map(|run| of(if kind == 0 { &run.reads } else { &run.updates }) as f64 / 1e6);
    let expectation = match paper {
        Some(left) => Expectation::Low { value: left[kind], tolerance: TOLERANCE },
        None => Expectation::Below(1.0),
    };
    let what = format!("{name}, {which} over the baseline's, {way}");
    if baseline == 0.0 {
        return Item::missing(LABEL, what, expectation, "nothing was read or updated in the measured phase");
    }
    let why = format!("ms: {ours:.2}; baseline {baseline:.2}; with shared checkpoints {shared:.2}");
    Item::new(LABEL, what, expectation, ratio(ours, baseline), why)
}
