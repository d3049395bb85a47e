//! SCJ figure 10 (section VI.F): what is left of the gain when the volume is fuller, and copying costs more than checkpoints.

use std::rc::Rc;
use std::time::Duration;

use super::scj::{BASELINE, FILESERVER, JOURNALED, Measured, Runs, Setup, ratio};
use super::{Expectation, Item, Outcome, Say, Scale};

const LABEL: (&str, &str) = ("scj", "10");
/// Where the text speaks of it.
const PLACE: &str = "section VI.F";
/// Utilizations in percent; the figure's own are only drawn.
const UTILIZATIONS: [u32; 5] = [70, 75, 80, 85, 90];

/// The baseline and the journalled run at one utilization.
struct Point {
    utilization: u32,
    baseline: Rc<Measured>,
    run: Rc<Measured>,
}

pub(super) fn run(scale: &Scale, runs: &mut Runs, say: Say<'_>) -> Outcome {
    let mut items = Vec::new();
    for (name, way) in JOURNALED {
        let mut points = Vec::new();
        for utilization in UTILIZATIONS {
            let baseline = Setup { utilization, ..Setup::new(FILESERVER, BASELINE) };
            let journal = Setup { way, ..baseline.clone() };
            let (baseline, run) = (runs.get(scale, &baseline, say)?, runs.get(scale, &journal, say)?);
            points.push(Point { utilization, baseline, run });
        }
        if items.is_empty() {
            items.push(shares(&points));
        }
        items.extend(compare(name, &points));
    }
    Ok(items)
}

fn compare(name: &str, points: &[Point]) -> Vec<Item> {
    let gain = |point: &Point| point.run.speedup(&point.baseline);
    let gains = format!("speed over the baseline's: {}", list(points, |point| format!("{:.3}", gain(point))));
    let both = |point: &Point| format!("{:.2} and {:.2}", point.run.amplification(), point.baseline.amplification());
    let writes = format!("WAF with journal and the baseline's: {}", list(points, both));
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    // Where little is cleaned there is little to gain: the fall begins where the gain is greatest.
    let most = points.iter().map(gain).fold(0.0, f64::max);
    let rise = last.run.amplification() / first.run.amplification();
    let falls = Expectation::Below(0.0);
    let item = |what: &str, expectation, ours, why| {
        Item::new(LABEL, format!("fileserver, {what}, {name}"), expectation, ours, why)
    };
    vec![
        item(
            "gain at 90 % less the greatest",
            falls.derived("section VI.F: the gain falls; from where it is greatest"),
            gain(last) - most,
            gains.clone(),
        ),
        item("gain at 90 % less that at 70 %", falls.stated(PLACE), gain(last) - gain(first), gains),
        item("WAF at 90 % over that at 70 %", Expectation::Above(1.0).stated(PLACE), rise, writes),
    ]
}

/// What the paper explains the fall with: metadata becomes a smaller part of all that is written.
fn shares(points: &[Point]) -> Item {
    let share = |point: &Point| metadata_share(&point.baseline);
    let fall = points.first().zip(points.last()).map_or(f64::NAN, |(first, last)| share(last) / share(first));
    let what = "fileserver, share of metadata in the baseline's writes at 90 % over that at 70 %";
    let time = |point: &Point| {
        let (work, all) = (point.baseline.cleaning(), point.baseline.elapsed.as_secs_f64());
        let of = |time: Duration| ratio(time.as_secs_f64(), all);
        format!("{:.3} ({:.2} and {:.2} of the time)", share(point), of(work.copy), of(work.commit))
    };
    let why = format!("with the shares of copying and of checkpoints in the baseline's time: {}", list(points, time));
    Item::new(LABEL, what, Expectation::Below(1.0).stated(PLACE), fall, why)
}

fn list(points: &[Point], of: impl Fn(&Point) -> String) -> String {
    let list: Vec<_> = points.iter().map(|point| format!("{} %: {}", point.utilization, of(point))).collect();
    list.join(", ")
}

/// Metadata's share of all blocks written.
fn metadata_share(run: &Measured) -> f64 {
    let written = run.engine.written;
    (written.node_blocks + written.metadata_blocks) as f64 / written.blocks().max(1) as f64
}
