//! SCJ figure 1, sections III and IV: how much of the time of segment cleaning goes into the checkpoint that commits it, and how much of
//! what that checkpoint writes is of the cleaning.
//!
//! As in the paper F2FS in LFS mode (ours never writes in place) with a checkpoint behind each victim; and beside it Basalt's own
//! way without a journal, in which victims share one. Choosing a victim takes no time of the device.

use super::scj::{BASELINE, LOADS, Measured, Runs, SHARE_TOLERANCE, SHARED, SHARES, Setup, ratio};
use super::{Expectation, Item, Outcome, Say, Scale};

const LABEL: (&str, &str) = ("scj", "1");
/// A cleaning takes more than so many times as long as without its checkpoint.
const LONGER: f64 = 2.0;
/// Of the dirty metadata, cleaning has made less than this share dirty.
const CLEANINGS_SHARE: f64 = 0.01;

pub(super) fn run(scale: &Scale, runs: &mut Runs, say: Say<'_>) -> Outcome {
    let mut items = Vec::new();
    let mut longer = Vec::new();
    for ((name, load), paper) in LOADS.into_iter().zip(SHARES) {
        let each = runs.get(scale, &Setup::new(load, BASELINE), say)?;
        let what = format!("share of the checkpoint in the time of cleaning, {name}");
        let claim = Expectation::Near { value: paper, tolerance: SHARE_TOLERANCE }.stated("section III");
        items.push(Item::new(LABEL, what, claim, each.commit_share(), account(&each)));
        let shared = runs.get(scale, &Setup::new(load, SHARED), say)?;
        let what = format!("share of the checkpoint where victims share it, over that where each has its own, {name}");
        let claim = Expectation::Below(1.0).ours("victims that share a checkpoint should spend less on it");
        let fall = shared.commit_share() / each.commit_share();
        items.push(Item::new(LABEL, what, claim, fall, format!("{:.3}; {}", shared.commit_share(), account(&shared))));
        longer.push((name, 1.0 / (1.0 - each.commit_share())));
        if items.len() == 2 {
            items.extend(metadata(name, &each));
        }
    }
    items.push(longest(&longer));
    Ok(items)
}

/// What was cleaned, and how many victims a checkpoint freed.
fn account(run: &Measured) -> String {
    let work = run.cleaning();
    format!("{}: {:.1} victims a checkpoint", run.account(), ratio(work.victims as f64, work.checkpoints as f64))
}

/// Section IV: "increases the segment cleaning latency by more than 2x".
fn longest(longer: &[(&str, f64)]) -> Item {
    let most = longer.iter().map(|(_, times)| *times).fold(f64::NAN, f64::max);
    let list: Vec<_> = longer.iter().map(|(name, times)| format!("{name} {times:.2}")).collect();
    let what = "time of cleaning over that without its checkpoint, greatest of the workloads";
    Item::new(LABEL, what, Expectation::Above(LONGER).stated("section IV"), most, list.join(", "))
}

/// Figure 1(b): checkpoints take the longer the more metadata is dirty, and little of that is dirty because of cleaning.
fn metadata(name: &str, run: &Measured) -> [Item; 2] {
    let points: Vec<_> = run.cleanings.iter().map(|one| (one.metadata as f64, one.commit.as_secs_f64())).collect();
    let written: f64 = points.iter().map(|(blocks, _)| *blocks).sum();
    let why = format!(
        "over {} checkpoints; blocks of metadata a checkpoint: {:.0}",
        points.len(),
        written / points.len() as f64
    );
    let what = format!("correlation of a checkpoint's time and of the metadata that it writes, {name}");
    let grows = Item::new(LABEL, what, Expectation::Above(0.0).stated("section III"), correlation(&points), why);
    let work = run.cleaning();
    let nodes = (work.blocks_copied - work.data_blocks_copied) as f64;
    let why = format!(
        "{:.1} nodes lay in a victim and had to be written again; nodes that point to moved data are not counted, and would add to \
         them",
        ratio(nodes, work.victims as f64)
    );
    let what = format!("share of nodes that cleaning moved in the metadata of its checkpoints, {name}");
    let claim = Expectation::Below(CLEANINGS_SHARE).stated("section III");
    [grows, Item::new(LABEL, what, claim, nodes / written, why)]
}

/// Pearson's coefficient; not a number for fewer than two different points.
fn correlation(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / count, sum.1 + point.1 / count));
    let sums = points.iter().fold([0.0; 3], |[xy, xx, yy], point| {
        let (dx, dy) = (point.0 - x, point.1 - y);
        [xy + dx * dy, xx + dx * dx, yy + dy * dy]
    });
    sums[0] / (sums[1] * sums[2]).sqrt()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::scj::Cleaning;
    use super::*;
    use crate::reproduce::Verdict;

    #[test]
    fn what_rises_together_is_correlated() {
        let near = |points: &[(f64, f64)], expected: f64| {
            let found = correlation(points);
            assert!((found - expected).abs() < 1e-9, "{found}");
        };
        near(&[(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)], 1.0);
        near(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)], -1.0);
        near(&[(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)], 0.0);
        assert!(correlation(&[]).is_nan() && correlation(&[(1.0, 1.0)]).is_nan());
    }

    #[test]
    fn the_metadata_of_checkpoints_is_told() {
        let mut run = Measured::example(10, 1, 3);
        let cleaning = |metadata, milliseconds| Cleaning {
            victims: 1,
            commit: Duration::from_millis(milliseconds),
            metadata,
            ..Cleaning::default()
        };
        run.cleanings = vec![cleaning(100, 5), cleaning(200, 7), cleaning(300, 11)];
        let work = &mut run.engine.cleaning.foreground;
        (work.victims, work.blocks_copied, work.data_blocks_copied) = (3, 303, 300);
        let [grows, share] = metadata("example", &run);
        assert!(grows.ours.is_some_and(|ours| ours > 0.9) && grows.verdict() == Verdict::Holds, "{grows:?}");
        assert_eq!((share.ours, share.verdict()), (Some(3.0 / 600.0), Verdict::Holds));
        // Nothing cleaned: nothing to tell.
        let [grows, share] = metadata("example", &Measured::example(10, 1, 3));
        assert_eq!((grows.ours, share.ours), (None, None));
    }

    #[test]
    fn the_greatest_of_the_workloads_counts() {
        let item = longest(&[("one", 1.5), ("two", 2.5)]);
        assert_eq!((item.ours, item.verdict(), &*item.why), (Some(2.5), Verdict::Holds, "one 1.50, two 2.50"));
        assert_eq!(longest(&[]).ours, None);
    }
}
