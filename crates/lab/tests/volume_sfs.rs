//! Placement `sfs`, as points of the kind `volume` have it.

use basalt_lab::experiment::{InProcess, Kind, Point, Record, Runner};

const BASE: [&str; 8] = [
    "placement=sfs",
    "policy=cost-hotness",
    "size=1G",
    "utilization=80",
    "set=256M",
    "stream=zipf:0.9",
    "cleaning=free:24",
    "seed=3",
];

/// A point of the base and these parameters, which replace those of the base.
fn point(more: &[&str]) -> Result<Point, String> {
    let name = |text: &str| text.split_once('=').map(|(name, _)| name.to_owned());
    let kept = BASE.iter().filter(|base| more.iter().all(|more| name(more) != name(base)));
    Point::parse(Kind::Volume, &kept.chain(more).copied().collect::<Vec<_>>())
}

fn record(more: &[&str]) -> Record {
    InProcess.run(&point(more).unwrap()).unwrap()
}

fn measured(more: &[&str], metric: &str) -> f64 {
    let record = record(more);
    assert!(record.outcome.is_ok(), "{record:?}");
    record.metric(metric).unwrap()
}

fn refused(more: &[&str]) -> String {
    match point(more) {
        Err(why) => why,
        Ok(point) => format!("{:?}", InProcess.run(&point).map(|record| record.outcome)),
    }
}

#[test]
fn groups_gain_and_every_parameter_counts() {
    let cost = |more: &[&str]| measured(more, "write_cost");
    let four = cost(&[]);
    assert!(four < cost(&["groups=1", "pool=16M"]), "{four}");
    assert_eq!(four, cost(&["groups=4", "age-floor=30", "clean-touch=on", "quantization=iterative", "pool=16M"]));
    let others = [
        ["pool=12M"],
        ["groups=3"],
        ["age-floor=2.5"],
        ["clean-touch=off"],
        ["quantization=eq-count"],
        ["device=sd-b"],
    ];
    for other in others {
        assert!((cost(&other) - four).abs() > 1e-6, "{other:?}");
    }
    assert!(measured(&[], "page_cache_absorbed") > 1000.0);
    // The set is all that is written: four times before, and four times while it is measured.
    assert_eq!(measured(&[], "writes"), 4.0 * 65_536.0);
}

#[test]
fn what_does_not_go_with_it_is_refused() {
    let cases: [(&[&str], &str); 9] = [
        (&["page-cache=4M"], "exclude each other"),
        (&["logs=2"], "needs another number"),
        (&["cleaning=paced"], "sections free"),
        (&["groups=9"], "groups"),
        (&["age-floor=soon"], "number of seconds"),
        (&["age-floor=-1"], "number of seconds"),
        (&["pool=400M"], "dirty blocks"),
        (&["set=1G"], "are in use"),
        (&["placement=sepbit", "groups=3"], "only placement sfs"),
    ];
    for (more, expected) in cases {
        let why = refused(more);
        assert!(why.contains(expected), "{more:?}: {why}");
    }
}
