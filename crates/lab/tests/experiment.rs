//! Experiments: files, points, running them.

mod support;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use basalt_lab::experiment::{
    DirectoryError, Experiment, InProcess, Kind, Point, Record, ResultsDirectory, Runner, Summary, run, verdicts_of,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use support::{SMALL, run_all, with_file};

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text, Path::new("x.toml")).map_err(|error| error.to_string())
}

#[test]
fn points_are_the_product_of_all_lists_in_the_order_of_the_file() {
    let experiment = parse(SMALL).unwrap();
    let points = experiment.points();
    let shown: Vec<String> = points.iter().map(|point| point.arguments().join(" ")).collect();
    assert_eq!(shown.len(), 8);
    assert_eq!(shown[0], "volume size=128M utilization=60 warm-up=20000 writes=20000");
    assert_eq!(shown[1], "volume size=128M utilization=60 warm-up=20000 writes=20000 seed=2");
    assert_eq!(shown[2], "volume size=128M utilization=95 warm-up=20000 writes=20000");
    assert_eq!(shown[7], "volume policy=cost-benefit size=128M utilization=95 warm-up=20000 writes=20000 seed=2");
    assert_eq!(points.iter().collect::<HashSet<_>>().len(), 8);
}

/// What cases say replaces what all cases have, and a point of two cases runs once.
#[test]
fn cases_have_settings_of_their_own() {
    let text = r#"
title = "t"
kind = "engine"
[settings]
workload = ["zipf", "uniform"]
size = "1G"
cache = "12.5%"
[[case]]
name = "plain"
[[case]]
name = "large"
size = "2G"
journal = ["256K", "512K"]
[[case]]
name = "again"
workload = "zipf"
"#;
    let experiment = parse(text).unwrap();
    let shown = experiment
        .entries()
        .into_iter()
        .map(|entry| format!("{}: {}", entry.case, entry.point.arguments()[1..].join(" ")));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            "plain: workload=zipf cache=12.5%",
            "plain: workload=uniform cache=12.5%",
            "large: workload=zipf size=2G cache=12.5% journal=256K",
            "large: workload=zipf size=2G cache=12.5% journal=512K",
            "large: workload=uniform size=2G cache=12.5% journal=256K",
            "large: workload=uniform size=2G cache=12.5% journal=512K",
            "again: workload=zipf cache=12.5%",
        ]
    );
    assert_eq!(experiment.points().len(), 6);
    assert_eq!((experiment.axes(), experiment.common_axes()), (vec!["workload", "case", "journal"], vec!["workload"]));
    let bytes: Vec<_> = experiment.points().iter().map(|point| point.number("cache").unwrap() >> 20).collect();
    assert_eq!(bytes, [128, 128, 256, 256, 256, 256]);
    for (change, part) in [
        ("name = \"plain\"\ncolour = 1", "line 8: case `plain`: colour: engine points have no `colour`"),
        ("name = \"\"", "line 9: case.name: is empty"),
        ("name = \"again\"", "case: `again` comes twice"),
        ("name = \"plain\"\ncache = \"0%\"", "case `plain`: cache: `0%` is not a share of the volume"),
        ("name = \"plain\"\nmeasure = \"0.0000001%\"", "settings: measure: `0.0000001%` is 0 B, less than 1 B"),
        ("name = \"plain\"\nsize = \"10%\"", "case `plain`: size: `10%` is not a size"),
    ] {
        let error = parse(&text.replace("name = \"plain\"", change)).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    let plot = "\n[[plot]]\ntitle = \"p\"\nshape = \"bars\"\nx = \"case\"\ny = [\"victims\"]\nonly = { case = [\"plain\", \"WHICH\"] }\n";
    assert!(parse(&format!("{text}{}", plot.replace("WHICH", "large"))).is_ok());
    let error = parse(&format!("{text}{}", plot.replace("WHICH", "small"))).unwrap_err();
    assert!(error.contains("plot.only.case: there is no case `small`"), "{error}");
}

#[test]
fn changed_settings_are_another_experiment() {
    let (scratch, file) = with_file(SMALL);
    let directory = scratch.path().join("results");
    let changes = ["seed=7", "utilization=60;70"].map(|text| text.parse().unwrap());
    let results = ResultsDirectory::create(&directory, &file, &changes).unwrap();
    let arguments: Vec<_> = results.missing().iter().map(|point| point.arguments().join(" ")).collect();
    assert_eq!(arguments.len(), 4);
    assert!(arguments[1].contains("utilization=70") && arguments[1].ends_with("seed=7"), "{arguments:?}");
    drop(results);
    // The copy in the directory has them too.
    fs::write(directory.join("results.jsonl"), "").unwrap();
    assert_eq!(ResultsDirectory::open(&directory).unwrap().missing().len(), 4);
    assert!(matches!(ResultsDirectory::create(&directory, &file, &[]), Err(DirectoryError::OtherExperiment { .. })));
    let wrong = ResultsDirectory::create(&scratch.path().join("wrong"), &file, &["colour=1".parse().unwrap()]);
    assert!(wrong.unwrap_err().to_string().contains("settings.colour: volume points have no `colour`"));
}

#[test]
fn a_points_command_is_the_point() {
    let point =
        Point::parse(Kind::Engine, &["workload=fileserver:files=2000,size=64K", "size=1.5G", "device=./my card.toml"]);
    let point = point.unwrap();
    assert_eq!(point.value("size"), "1536M");
    assert_eq!(
        point.command(),
        "basalt lab point engine workload=fileserver:files=2000,size=64K 'device=./my card.toml' size=1536M --json"
    );
    assert_eq!(Point::parse(Kind::Engine, &point.arguments()[1..]), Ok(point));
}

/// A share that is a whole number of blocks is that number.
#[test]
fn shares_of_the_size_are_exact() {
    for percent in 1..=100_u64 {
        let point = Point::parse(Kind::Engine, &["size=400M", &format!("age={percent}%")]).unwrap();
        assert_eq!(point.number("age"), Some((400 << 20) * percent / 100 / 4096 * 4096), "{percent} %");
    }
}

/// A size ends at 2^63 - 1 bytes, a whole number does not: such a seed is none of those that are left to the point.
#[test]
fn whole_numbers_are_those_that_were_given() {
    for seed in [0, 1, i64::MAX as u64, 1 << 63, u64::MAX] {
        let point = Point::parse(Kind::Volume, &[format!("seed={seed}"), format!("writes={seed}")]).unwrap();
        assert_eq!((point.number("seed"), point.number("writes")), (Some(seed), Some(seed)));
    }
    let point = Point::parse(Kind::Engine, &["utilization=80", "queue-depth=4"]).unwrap();
    let numbers = ["utilization", "queue-depth", "operations", "overprovision"].map(|name| point.number(name));
    assert_eq!(numbers, [Some(80), Some(4), None, None]);
}

/// Their runs would come to no end.
#[test]
fn volumes_and_pauses_have_an_upper_bound() {
    for size in ["1E", "7E", "17T"] {
        let point = Point::parse(Kind::Engine, &[format!("size={size}")]).unwrap();
        assert_eq!(point.run().unwrap_err(), format!("size: {size} is more than 16T, the most that a volume can have"));
    }
    let error = Point::parse(Kind::Engine, &["think=1000000000000000"]).unwrap_err();
    assert!(error.contains("think: `1000000000000000` is not a whole number from 0 to 86400000000"), "{error}");
}

#[test]
fn wrong_parameters_are_named() {
    for (parameters, part) in [
        (&["size"][..], "`size` is not of the form NAME=VALUE"),
        (&["colour=red"], "engine points have no `colour`; they have workload, device, write-gap, flash-page"),
        (&["size=12X"], "size: `12X` is not a size"),
        (&["size=1M"], "size: `1M` is less than 64 MiB"),
        (&["utilization=100"], "utilization: `100` is not a whole number from 1 to 99"),
        (&["ftl=ideal"], "ftl: `ideal` is not one of none, page-level, fast"),
        (&["seed=1", "seed=2"], "seed is given twice"),
        (&["workload="], "workload: is empty"),
    ] {
        let error = Point::parse(Kind::Engine, parameters).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn wrong_files_name_the_line_and_the_field() {
    let settings = "title = \"t\"\nkind = \"volume\"\n[settings]\n";
    let marked = |mark: &str| {
        let plot = "[[plot]]\ntitle = \"p\"\nx = \"utilization\"\ny = [\"copies\"]\nlogarithmic = [\"y\"]\n";
        format!("{settings}utilization = [60, 70]\n{plot}mark = [{{ {mark} }}]\n")
    };
    for (text, expected) in [
        ("title = ", "x.toml, line 1: "),
        ("kind = \"volume\"\n[settings]\n", "missing field `title`"),
        ("title = \"t\"\nkind = \"dream\"\n[settings]\n", "x.toml, line 2: kind: `dream` is not a kind of point"),
        ("title = \"t\"\ncolour = 1\nkind = \"volume\"\n[settings]\n", "x.toml, line 2: unknown field `colour`"),
        (&format!("{settings}\nspeed = 1\n"), "x.toml, line 5: settings.speed: volume points have no `speed`"),
        (&format!("{settings}seed = [1, 1]\n"), "x.toml, line 4: settings.seed: holds `1` twice"),
        (&format!("{settings}seed = []\n"), "x.toml, line 4: settings.seed: is an empty list"),
        (&format!("{settings}seed = [[1]]\n"), "x.toml, line 4: settings.seed: is neither a text nor a number"),
        (
            &format!("{settings}utilization = \"full\"\n"),
            "settings.utilization: `full` is not a whole number from 1 to 99",
        ),
        (&format!("metrics = [\"speed\"]\n{settings}"), "x.toml, line 1: metrics: volume does not measure `speed`"),
        (
            &format!("{settings}[[plot]]\ntitle = \"p\"\nx = \"policy\"\ny = [\"copies\"]\n"),
            "x.toml, line 6: plot.x: policy has no numbers; use shape = \"bars\"",
        ),
        (
            &format!("{settings}[[plot]]\ntitle = \"p\"\nx = \"seed\"\ny = [\"copies\"]\nlogarithmic = [\"z\"]\n"),
            "x.toml, line 8: plot.logarithmic: `z` is neither x nor y",
        ),
        (
            &marked("x = 85, y = 1, text = \"a\""),
            "x.toml, line 10: plot.mark.x: `85` is no value of utilization here; there are 60, 70",
        ),
        (
            &marked("x = \"full\", y = 1, text = \"a\""),
            "line 10: plot.mark.x: `full` is not a whole number from 1 to 99",
        ),
        (&marked("y = \"1.13\", text = \"a\""), "line 10: plot.mark.y: `\"1.13\"` is not a number"),
        (&marked("y = nan, text = \"a\""), "line 10: plot.mark.y: `nan` is not a number"),
        (&marked("y = 0, text = \"a\""), "line 10: plot.mark.y: 0 has no place on a logarithmic axis"),
        (&marked("y = 1, text = \" \""), "line 10: plot.mark.text: is empty"),
        (&marked("y = 1"), "line 10: missing field `text`"),
        (&marked("y = 1, z = 1, text = \"a\""), "line 10: unknown field `z`"),
        (
            &format!("{settings}seed = [{}]\nwrites = [{}]\n", numbers(400), numbers(400)),
            "settings: there are more than 100000 points",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expected), "{error}\nexpected: {expected}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let missing = Experiment::load(Path::new("/nonexistent/x.toml")).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/x.toml: "), "{missing}");
}

fn numbers(count: u32) -> String {
    (0..count).map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
}

/// Stops the run that it is part of behind its third point.
struct Stopping<'a> {
    stop: &'a AtomicBool,
    run: AtomicUsize,
}

impl Runner for Stopping<'_> {
    fn run(&self, point: &Point) -> Option<Record> {
        let record = InProcess.run(point);
        self.stop.store(self.run.fetch_add(1, Ordering::Relaxed) >= 2, Ordering::Relaxed);
        record
    }
}

#[test]
fn results_do_not_depend_on_jobs_or_interruptions() {
    let (one, file) = with_file(SMALL);
    let first = one.path().join("one");
    let expected = Summary { done: 4, before: 0, failed: 4, left: 0 };
    assert_eq!(run_all(&first, &file, 1, &InProcess), expected);
    let second = one.path().join("three");
    assert_eq!(run_all(&second, &file, 3, &InProcess), expected);

    // A third is stopped after three points, and its last line cut off.
    let third = one.path().join("stopped");
    let stop = AtomicBool::new(false);
    let mut results = ResultsDirectory::create(&third, &file, &[]).unwrap();
    let stopping = Stopping { stop: &stop, run: AtomicUsize::new(0) };
    let summary = run(&mut results, 1, &stopping, &stop, &mut |_, _| {}).unwrap();
    assert!(summary.left > 0 && summary.done + summary.failed >= 3, "{summary:?}");
    drop(results);
    let lines = third.join("results.jsonl");
    let mut text = fs::read(&lines).unwrap();
    text.extend_from_slice(b"{\"kind\":\"volume\",\"para");
    fs::write(&lines, text).unwrap();
    let before = fs::read_to_string(&lines).unwrap().lines().filter(|line| line.contains("\"metrics\"")).count();
    let summary = run_all(&third, &file, 2, &InProcess);
    assert_eq!(summary, Summary { before, ..expected });

    for name in ["results.jsonl", "results.parquet", "report.html"] {
        let content = fs::read(first.join(name)).unwrap();
        assert!(content == fs::read(second.join(name)).unwrap(), "{name} depends on jobs");
        assert!(content == fs::read(third.join(name)).unwrap(), "{name} depends on interruptions");
    }
}

/// Counts what it runs.
struct Counting(AtomicUsize);

impl Runner for Counting {
    fn run(&self, point: &Point) -> Option<Record> {
        self.0.fetch_add(1, Ordering::Relaxed);
        InProcess.run(point)
    }
}

#[test]
fn what_was_measured_is_not_measured_again_and_failures_are() {
    let (scratch, file) = with_file(SMALL);
    let directory = scratch.path().join("results");
    let counting = Counting(AtomicUsize::new(0));
    run_all(&directory, &file, 2, &counting);
    assert_eq!(counting.0.swap(0, Ordering::Relaxed), 8);
    run_all(&directory, &file, 2, &counting);
    assert_eq!(counting.0.load(Ordering::Relaxed), 4, "the failed ones");
    let page = fs::read_to_string(directory.join("report.html")).unwrap();
    assert!(page.contains("Failed points") && page.contains("Small &lt;&amp;&gt;"));
}

#[test]
fn what_never_ends_is_no_experiment() {
    let error = Experiment::load(Path::new("/dev/zero")).unwrap_err().to_string();
    assert_eq!(error, "/dev/zero: is too large for an experiment");
}

/// Waits for a second point that runs at the same time.
#[derive(Default)]
struct Together {
    begun: Mutex<usize>,
    another: Condvar,
}

impl Runner for Together {
    fn run(&self, point: &Point) -> Option<Record> {
        let mut begun = self.begun.lock().unwrap();
        *begun += 1;
        self.another.notify_all();
        let waited = self.another.wait_timeout_while(begun, Duration::from_secs(30), |begun| *begun < 2).unwrap();
        let alone = waited.1.timed_out();
        let outcome = if alone { Err("is alone".to_owned()) } else { Ok(BTreeMap::from([("copies".to_owned(), 1.0)])) };
        Some(Record { point: point.clone(), inputs: BTreeMap::new(), outcome })
    }
}

#[test]
fn several_jobs_run_at_the_same_time() {
    let (scratch, file) = with_file(SMALL);
    let summary = run_all(&scratch.path().join("results"), &file, 2, &Together::default());
    assert_eq!(summary, Summary { done: 8, before: 0, failed: 0, left: 0 });
}

#[test]
fn the_table_holds_what_the_lines_hold() {
    let (scratch, file) = with_file(SMALL);
    run_all(scratch.path(), &file, 2, &InProcess);
    let lines = fs::read_to_string(scratch.path().join("results.jsonl")).unwrap();
    let records: Vec<Record> = lines.lines().map(|line| Record::from_line(line).unwrap()).collect();
    for (record, line) in records.iter().zip(lines.lines()) {
        assert_eq!(record.to_line(), line);
    }

    let table = SerializedFileReader::new(fs::File::open(scratch.path().join("results.parquet")).unwrap()).unwrap();
    let rows: Vec<_> = table.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), records.len());
    let names: Vec<String> = rows[0].get_column_iter().map(|(name, _)| name.clone()).collect();
    let column = |name: &str| names.iter().position(|known| known == name).unwrap();
    for (row, record) in rows.iter().zip(&records) {
        assert_eq!(row.get_string(column("policy")).unwrap(), record.point.value("policy"));
        assert_eq!(row.get_double(column("size")).unwrap(), f64::from(128 << 20));
        let copies = row.get_double(column("copies")).ok();
        assert_eq!(copies, record.metric("copies"));
        assert_eq!(row.get_string(column("error")).ok(), record.outcome.as_ref().err());
    }
    assert!(records.iter().any(|record| record.metric("copies").is_some_and(|copies| copies > 0.0)));
}

/// Shrinks a setting of an example to its first value, or to another one.
fn shrink(settings: &mut toml::Table, name: &str, to: Option<&str>) {
    if let Some(value) = settings.get_mut(name) {
        if let toml::Value::Array(items) = value {
            items.truncate(1);
        }
        if let Some(to) = to {
            *value = to.into();
        }
    }
}

/// Whether a file has verdicts, or is such.
fn is_of_a_paper(path: &Path) -> bool {
    verdicts_of(path).exists() || path.to_str().unwrap().ends_with(".verdict.toml")
}

#[test]
fn the_examples_run() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let failed = Mutex::new(Vec::new());
    let mut found = 0;
    for entry in fs::read_dir(&examples).unwrap() {
        let path = entry.unwrap().path();
        // Those with verdicts are figures of a paper, of larger volumes: tests/verdicts.rs.
        if path.extension().is_none_or(|ending| ending != "toml") || is_of_a_paper(&path) {
            continue;
        }
        let experiment = Experiment::load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(experiment.points().len() > 1, "{}", path.display());
        let mut small: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        let settings = small["settings"].as_table_mut().unwrap();
        let size = if experiment.kind == Kind::Engine { "256M" } else { "192M" };
        for (name, to) in [
            ("size", Some(size)),
            ("age", Some("2M")),
            ("measure", Some("2M")),
            ("utilization", None),
            ("seed", None),
            ("device", None),
            ("section", None),
            ("stream", None),
        ] {
            shrink(settings, name, to);
        }
        // Where hundreds of points are left, one workload with one journal is enough.
        if experiment.points().len() > 1000 {
            shrink(settings, "workload", None);
            shrink(settings, "journal", None);
        }
        let (scratch, file) = with_file(&small.to_string());
        let summary = run_all(scratch.path(), &file, 2, &InProcess);
        assert!(summary.done > 0);
        if summary.failed > 0 {
            failed.lock().unwrap().push(fs::read_to_string(scratch.path().join("results.jsonl")).unwrap());
        }
        found += 1;
    }
    assert!(found >= 2, "no examples in {}", examples.display());
    assert!(failed.lock().unwrap().is_empty(), "{failed:?}");
}

/// The limit is on the points of all cases together.
#[test]
fn the_points_of_all_cases_are_counted_together() {
    let text = |cases: usize, seeds: usize| {
        let seeds: Vec<_> = (1..=seeds).map(|seed| seed.to_string()).collect();
        let cases: String = (0..cases).map(|case| format!("[[case]]\nname = \"c{case}\"\n")).collect();
        format!("title = \"t\"\nkind = \"volume\"\n[settings]\nseed = [{}]\n{cases}", seeds.join(", "))
    };
    assert!(parse(&text(10, 1000)).is_ok());
    assert!(parse(&text(10, 10_000)).is_ok());
    let error = parse(&text(11, 10_000)).unwrap_err();
    assert!(error.contains("settings: there are more than 100000 points"), "{error}");
}
