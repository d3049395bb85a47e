//! What the figures of partial GC rest on: their rows of a device alone, and the gap between random and sequential writes.

use std::sync::atomic::AtomicBool;

use basalt_lab::experiment::{InProcess, Kind, Point, Record};
use basalt_lab::reproduce::{Means, Measured, Runs, Scale, select};
use basalt_lab::verdicts::Verdict;

#[test]
fn bandwidth_grows_with_the_request_and_saturates_but_on_the_slow_card() {
    let stop = AtomicBool::new(false);
    let means = Means { runner: &InProcess, jobs: 2, output: None, stop: &stop };
    let scale = Scale { full: false, small: true, seed: 1 };
    let figure = select(Some("partial-gc"), Some("5"))[0];
    let measured = figure.run(&scale, 1..2, &means, &mut Runs::default(), &mut |_| ()).unwrap();
    let Measured { rows, failed } = measured;
    assert!(failed.is_empty() && rows.len() == 14, "{failed:?} {rows:?}");
    for row in &rows {
        // What the slow card lacks is room for many open allocation units: its 16 KiB are slower than its 4 KiB, and 4 MiB do not saturate it.
        let is_met = !row.item.starts_with("sd-a, random");
        assert_eq!(row.verdict == Verdict::Holds, is_met, "{row:?}");
    }
}

/// What a gap costs, writes to slack pay, and writes to free segments hardly do.
#[test]
fn a_gap_slows_writes_to_slack() {
    let speed = |reclaim: &str, gap: &str| {
        let reclaim = format!("reclaim={reclaim}");
        let gap = format!("write-gap={gap}");
        let point = [
            "device=emmc",
            "workload=uniform:set=40%",
            "size=256M",
            "utilization=80",
            "sync-every=256",
            "age=256M",
            "measure=32M",
        ];
        let point = Point::parse(Kind::Engine, &[&point[..], &[&reclaim, &gap]].concat()).unwrap();
        Record::of(point).metric("write_mb_per_second").unwrap()
    };
    let slower = |reclaim: &str| speed(reclaim, "0") / speed(reclaim, "32");
    let (clean, slack) = (slower("clean"), slower("slack"));
    assert!(clean < 1.5 && slack > 2.0 * clean, "{clean} {slack}");
}
