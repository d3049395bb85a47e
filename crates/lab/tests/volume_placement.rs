//! Placements that something in front of the volume tells more: the lists of a page cache, and runs of neighbouring blocks.

use basalt_lab::experiment::{InProcess, Kind, Point, Record, Runner};

fn point(parameters: &[&str]) -> Record {
    let base = ["size=128M", "utilization=75", "writes=60000", "warm-up=60000"];
    InProcess.run(&Point::parse(Kind::Volume, &[&base[..], parameters].concat()).unwrap()).unwrap()
}

fn copies(parameters: &[&str]) -> f64 {
    let record = point(parameters);
    record.metric("copies").unwrap_or_else(|| panic!("{record:?}"))
}

#[test]
fn what_contradicts_itself_is_refused_in_one_line_with_the_reason() {
    let table: [(&[&str], &str); 9] = [
        (
            &["placement=page-cache"],
            "placement `page-cache` needs a page cache in front of the volume: page-cache=SIZE",
        ),
        (
            &["placement=page-cache", "page-cache=8M", "logs=2"],
            "needs a hot and a cold log: with 2 logs, there is one data log",
        ),
        (&["placement=run-length", "logs=2"], "placement `run-length` needs a hot and a cold log"),
        (&["placement=page-cache", "page-cache=8M", "moved=list"], "moved=list needs 4"),
        (&["moved=list", "logs=4"], "moved=list is a rule of the placements `page-cache` and `run-length` only"),
        (&["touches=reads", "page-cache=8M"], "touches=… is for placement `page-cache`"),
        (&["placement=page-cache", "page-cache=8M", "touches=reads"], "only write here"),
        (&["placement=sfs", "files=server:runs=1"], "placement `sfs` and files exclude each other"),
        (&["placement=oracle", "logs=4"], "4 logs: placement `oracle` needs another number"),
    ];
    for (parameters, expected) in table {
        let error = point(parameters).outcome.unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{parameters:?}: {error}");
    }
}

#[test]
fn pages_in_use_again_and_again_lie_apart() {
    let common = ["stream=hotcold:90/10", "page-cache=8M", "policy=cost-benefit"];
    let with = |more: &[&str]| copies(&[&common[..], more].concat());
    // One log for all data, against hot and cold ones whatever the rule for what is moved.
    let (mixed, apart) = (with(&["logs=4"]), with(&["logs=6"]));
    let lists = with(&["logs=4", "placement=page-cache", "moved=list"]);
    let moved_apart = with(&["logs=6", "placement=page-cache"]);
    assert!(lists < mixed * 0.9, "{lists} of {mixed}");
    assert!(moved_apart < apart, "{moved_apart} of {apart}");
    // A block that is written twice in a row is active by one rule, and not by the other.
    let once = with(&["logs=6", "placement=page-cache", "touches=once"]);
    assert!((once - moved_apart).abs() > 100.0, "{once} and {moved_apart}");
}

#[test]
fn long_runs_lie_apart_from_short_ones() {
    // Records of a log over and over, and files that are written once.
    let with = |more: &[&str]| copies(&[&["stream=runs"][..], more].concat());
    let (mixed, apart) = (with(&["logs=4"]), with(&["logs=4", "placement=run-length"]));
    assert!(apart < 0.9 * mixed, "{apart} of {mixed}");
    // Single blocks are all hot: another name for the log, and a log of the first fill that stays open, one segment of 64.
    let single = |more: &[&str]| copies(&[&["stream=uniform"][..], more].concat());
    let (plain, by_run) = (single(&["logs=6"]), single(&["logs=6", "placement=run-length"]));
    assert!((by_run / plain - 1.0).abs() < 0.2, "{by_run} of {plain}");
}
