//! SCJ figure 6 (section VI.C): how large the journal area has to be.
//!
//! 4 KiB to 1 MiB, with the paper's threshold. An area of one block is full after each commit, which makes it the baseline.

use std::rc::Rc;

use super::scj::{
    BASELINE, FILESERVER, JOURNAL, Measured, PAPER, Runs, Setup, UTILIZATION, on_paper_terms, volume_bytes,
};
use super::{Expectation, Item, Outcome, Say, Scale, Tolerance};
use crate::size;

const LABEL: (&str, &str) = ("scj", "6");
/// The sweep in bytes.
const SMALLEST: u64 = 4 << 10;
const STEPS: u32 = 9;
/// What counts as the same speed.
const SAME: f64 = 0.02;
/// Where the text speaks of the sweep.
const SWEEP: &str = "section VI.C";

/// A size of the area, and the run with it or why there is none.
type Point = (u64, Result<Rc<Measured>, String>);

pub(super) fn run(scale: &Scale, runs: &mut Runs, say: Say<'_>) -> Outcome {
    let baseline = runs.get(scale, &Setup::new(FILESERVER, BASELINE), say)?;
    let mut points = Vec::new();
    for journal_bytes in (0..STEPS).map(|step| SMALLEST << step) {
        let setup = Setup { journal_bytes, ..Setup::new(FILESERVER, PAPER) };
        points.push((journal_bytes, runs.get(scale, &setup, say)));
    }
    let set = volume_bytes(scale) as f64 * f64::from(UTILIZATION) / 100.0;
    Ok(items(&baseline, &points, set, on_paper_terms(PAPER, scale)))
}

/// Of a sweep; `set` is what the volume holds, in bytes.
fn items(baseline: &Measured, points: &[Point], set: f64, on_paper_terms: bool) -> Vec<Item> {
    let told = |run: &Measured| format!("{:.3} ({} checkpoints)", run.speedup(baseline), run.checkpoints());
    let list = points.iter().map(|(bytes, run)| {
        let told = run.as_ref().map_or_else(|why| format!("none: {why}"), |run| told(run));
        format!("{}: {told}", size::human(*bytes))
    });
    let list = format!("speed over the baseline's: {}", list.collect::<Vec<_>>().join(", "));
    let at = |bytes: u64| points.iter().find(|point| point.0 == bytes).and_then(|point| point.1.as_ref().ok());
    let compared = |what: &str, expectation: Expectation, ours: Option<f64>| {
        let claim = expectation.stated(SWEEP).on_paper_terms(on_paper_terms);
        match ours {
            Some(ours) => Item::new(LABEL, what, claim, ours, "of the same runs"),
            None => Item::missing(LABEL, what, claim, "of the same runs"),
        }
    };
    let within = |share| Tolerance::OfValue(share);
    let (smallest, largest, paper) = (at(SMALLEST), at(SMALLEST << (STEPS - 1)), at(JOURNAL));
    let enough = points.iter().find(|(_, run)| {
        let speed = run.as_ref().ok().map(|run| run.speedup(baseline));
        let most = largest.map(|run| run.speedup(baseline));
        speed.zip(most).is_some_and(|(speed, most)| speed >= most * (1.0 - SAME))
    });
    let mut items = vec![
        compared(
            "fileserver, speed with 4 KiB over the baseline's",
            Expectation::Near { value: 1.0, tolerance: within(SAME) },
            smallest.map(|run| run.speedup(baseline)),
        ),
        compared(
            "fileserver, speed with 1 MiB over that with 256 KiB",
            Expectation::Near { value: 1.0, tolerance: within(SAME) },
            largest.zip(paper).map(|(largest, paper)| largest.speedup(paper)),
        ),
        compared(
            "fileserver, checkpoints with 1 MiB over those with 256 KiB",
            Expectation::Near { value: 1.0, tolerance: within(SAME) },
            largest.zip(paper).map(|(largest, paper)| largest.checkpoints() as f64 / paper.checkpoints() as f64),
        ),
        compared(
            "fileserver, KiB of journal behind which nothing is gained",
            Expectation::AtMost { value: 256.0, tolerance: within(0.0) },
            enough.map(|(bytes, _)| *bytes as f64 / 1024.0),
        ),
        compared(
            "fileserver, the same in percent of the data set",
            // The paper's number has one digit: half of its last place is a quarter.
            Expectation::AtMost { value: 0.002, tolerance: within(0.25) },
            enough.map(|(bytes, _)| 100.0 * *bytes as f64 / set),
        ),
        compared(
            "fileserver, checkpoints with 256 KiB over those with 4 KiB",
            Expectation::Below(1.0),
            paper.zip(smallest).map(|(paper, smallest)| paper.checkpoints() as f64 / smallest.checkpoints() as f64),
        ),
    ];
    items[0].why = list;
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::Verdict;

    #[test]
    fn the_area_that_is_enough_is_found_and_impossible_ones_are_told() {
        let baseline = Measured::example(120, 4, 20);
        let times = [118, 110, 105, 103, 100, 100, 100, 99, 99];
        let points = times.iter().enumerate();
        let mut points: Vec<Point> =
            points.map(|(step, time)| (SMALLEST << step, Ok(Rc::new(Measured::example(*time, 3, 5))))).collect();
        let found = items(&baseline, &points, 3.2e9, false);
        assert_eq!(found[3].ours, Some(64.0));
        assert_eq!(found[4].ours, Some(100.0 * 65536.0 / 3.2e9));
        let (same, rest) = found.split_last().unwrap();
        assert!(rest.iter().all(|item| item.verdict() == Verdict::Holds), "{found:?}");
        // As many with each area.
        assert_eq!((same.ours, same.verdict()), (Some(1.0), Verdict::Differs));
        let own = items(&baseline, &points, 3.2e9, true);
        assert_eq!(own[3].verdict(), Verdict::Bettered);
        points[0].1 = Err("too small".to_owned());
        let found = items(&baseline, &points, 3.2e9, false);
        assert!(found[0].ours.is_none() && found[0].why.contains("too small"), "{found:?}");
        assert_eq!(found[3].ours, Some(64.0));
    }
}
