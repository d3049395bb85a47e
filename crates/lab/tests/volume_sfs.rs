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
        ["stands-for=64G"],
    ];
    for other in others {
        assert!((cost(&other) - four).abs() > 1e-6, "{other:?}");
    }
    // Where there is room, free sections do not ask for checkpoints.
    let roomy = |interval| measured(&["pool=4M", "cleaning=free:48", interval], "checkpoints");
    let usual = roomy("checkpoint-sections=20");
    assert!(roomy("checkpoint-sections=3") > 3.0 * usual && roomy("checkpoint-seconds=1") > 1.5 * usual, "{usual}");
    assert!(measured(&[], "page_cache_absorbed") > 1000.0);
    // The set is all that is written: four times before, and four times while it is measured.
    assert_eq!(measured(&[], "writes"), 4.0 * 65_536.0);
}

#[test]
fn what_does_not_go_with_it_is_refused() {
    let cases: [(&[&str], &str); 14] = [
        (&["age=1G", "warm-up=5"], "exclude each other"),
        (&["measure=1G", "writes=5"], "exclude each other"),
        (&["section=0.1%"], "less than"),
        (&["checkpoint-sections=0"], "checkpoint-sections"),
        (&["placement=sepbit", "stands-for=4G"], "only placement sfs"),
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

/// An experiment at another size has sizes of its own, and its seconds are those of the size that it stands for.
#[test]
fn sizes_can_be_shares_of_the_volume() {
    let all = |more: &[&str]| record(more).outcome.unwrap();
    let bytes = ["section=4M", "set=256M", "pool=32M", "age=512M", "measure=128M"];
    let shares = ["section=0.4%", "set=25%", "pool=3.125%", "age=50%", "measure=12.5%"];
    let counts = ["section=4M", "set=256M", "pool=32M", "warm-up=131072", "writes=32768"];
    assert_eq!(all(&bytes), all(&shares));
    assert_eq!(all(&bytes), all(&counts));
    assert_eq!(all(&["stands-for=1G"]), all(&[]));
    let cost = |more: &[&str]| measured(more, "write_cost");
    let slow = cost(&["stands-for=8G", "age-floor=48", "checkpoint-seconds=80"]);
    let fast = cost(&["age-floor=6", "checkpoint-seconds=10"]);
    assert!((slow / fast - 1.0).abs() < 0.02, "{slow} {fast}");
}

fn tenths(more: &[&str]) -> Vec<f64> {
    (1..=10).map(|tenth| measured(more, &format!("live_to_{}", 10 * tenth))).collect()
}

/// What is written in order dies in order: a section is live as a whole, or not at all. The dummy data of the volume does not count.
#[test]
fn sections_are_told_by_how_much_of_them_is_live() {
    let in_order = ["stream=sequential", "placement=static", "warm-up=65536", "writes=65536"];
    let shares = tenths(&in_order);
    assert!(shares[9] > 95.0, "{shares:?}");
    let sections = measured(&in_order, "set_sections");
    assert!((126.0..=132.0).contains(&sections), "{sections}");
    for more in [&[][..], &["stream=uniform"]] {
        let shares = tenths(more);
        assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-6, "{shares:?}");
        let mean: f64 =
            shares.iter().zip(0..).map(|(share, tenth)| share / 100.0 * (0.05 + 0.1 * f64::from(tenth))).sum();
        // All 128 sections' worth of blocks live in them.
        let live = mean * measured(more, "set_sections");
        assert!((live / 128.0 - 1.0).abs() < 0.15, "{live}: {shares:?}");
    }
    assert!(record(&["placement=static", "set="]).metric("set_sections").is_none());
}

/// Without cleaning, users write as fast as the device does in order; with it, by as much less as the write cost says.
#[test]
fn throughput_is_that_of_the_write_cost() {
    let speed = |more: &[&str]| measured(more, "write_mb_per_second");
    let free = speed(&["placement=static", "warm-up=0", "writes=10000"]);
    assert!((free - 87.0).abs() < 0.1, "{free}");
    let busy = ["placement=static", "stream=uniform", "set=800M"];
    let expected = 87.0 / measured(&busy, "write_cost");
    assert!((speed(&busy) / expected - 1.0).abs() < 1e-3);
    // Writes that the pool absorbs take no time.
    let absorbed = measured(&[], "page_cache_absorbed") / measured(&[], "writes");
    let expected = 87.0 / measured(&[], "write_cost") / (1.0 - absorbed);
    assert!((speed(&[]) / expected - 1.0).abs() < 0.05, "{} {expected}", speed(&[]));
}
