//! SCJ figure 11 (section VI.G): the gain over the locality of random writes.
//!
//! fio's random writes of 32 KiB into 12 GB (an eighth of that here) by Zipf's law, its exponent varied: the more local, the less
//! metadata is dirty at a checkpoint, and the less there is to save. fio does not sync.

use std::rc::Rc;

use super::scj::{BASELINE, JOURNALED, Measured, Runs, Setup};
use super::{Expectation, Item, Outcome, Say, Scale};

const LABEL: (&str, &str) = ("scj", "11");
/// Where the text speaks of it, and what it only draws.
const PLACE: &str = "section VI.G";
const DRAWN: &str = "figure 11(a): all points are drawn so";
/// Exponents of Zipf's law, the least local first; the figure's own are only drawn.
const THETAS: [&str; 5] = ["0.2", "0.5", "0.8", "1.0", "1.1"];
/// 12 GB of 16 GiB.
const SET: &str = "69.8%";

/// The baseline and the journalled run at one exponent.
struct Point {
    theta: &'static str,
    baseline: Rc<Measured>,
    run: Rc<Measured>,
}

pub(super) fn run(scale: &Scale, runs: &mut Runs, say: Say<'_>) -> Outcome {
    let mut items = Vec::new();
    for (name, way) in JOURNALED {
        let mut points = Vec::new();
        for theta in THETAS {
            let load = format!("zipf:{theta},set={SET},request=32K");
            let baseline = Setup { sync_every: Some(0), ..Setup::new(&load, BASELINE) };
            let journal = Setup { way, ..baseline.clone() };
            let (baseline, run) = (runs.get(scale, &baseline, say)?, runs.get(scale, &journal, say)?);
            points.push(Point { theta, baseline, run });
        }
        if items.is_empty() {
            items.push(overhead("baseline", &points, |point| point.baseline.metadata()));
        }
        items.extend(compare(name, &points));
    }
    Ok(items)
}

fn compare(name: &str, points: &[Point]) -> Vec<Item> {
    let gain = |point: &Point| point.run.speedup(&point.baseline);
    let saved = |point: &Point| 1.0 - point.run.device_bytes as f64 / point.baseline.device_bytes.max(1) as f64;
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let least = points.iter().map(gain).fold(f64::INFINITY, f64::min);
    let gains = format!("speed over the baseline's: {}", list(points, gain));
    let item = |what: &str, expectation, ours, why| Item::new(LABEL, format!("{what}, {name}"), expectation, ours, why);
    let falls = format!("gain at θ = {} less that at {}", last.theta, first.theta);
    let writes = format!("share of the baseline's writes: {}", list(points, saved));
    vec![
        item("least speed over the baseline's", Expectation::Above(1.0).derived(DRAWN), least, gains.clone()),
        item(&falls, Expectation::Below(0.0).stated(PLACE), gain(last) - gain(first), gains),
        item("writes saved where they are least local", Expectation::Above(0.0).derived(DRAWN), saved(first), writes),
        overhead(name, points, |point| point.run.metadata()),
    ]
}

/// Figure 11(b): metadata falls as writes are more local.
fn overhead(which: &str, points: &[Point], of: impl Fn(&Point) -> f64) -> Item {
    let ends = points.first().zip(points.last());
    let what = format!("metadata at θ = {} over that at {}, {which}", THETAS[THETAS.len() - 1], THETAS[0]);
    let why = format!("blocks for each block of data: {}", list(points, &of));
    let fall = ends.map_or(f64::NAN, |(first, last)| of(last) / of(first));
    Item::new(LABEL, what, Expectation::Below(1.0).stated(PLACE), fall, why)
}

/// A number of each point.
fn list(points: &[Point], of: impl Fn(&Point) -> f64) -> String {
    let list: Vec<_> = points.iter().map(|point| format!("θ = {}: {:.3}", point.theta, of(point))).collect();
    list.join(", ")
}
