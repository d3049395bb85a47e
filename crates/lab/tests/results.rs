//! Results of experiments: what is kept, for which experiment and which files, and what is left alone.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use basalt_lab::experiment::{DirectoryError, InProcess, Record, ResultsDirectory, verdicts_of};
use support::{SMALL, run_all, with_file};
use tempfile::TempDir;

/// What is refused leaves the directory as it was, and results without their experiment are not overwritten.
#[test]
fn a_directory_that_is_not_ours_stays_as_it_is() {
    let (scratch, file) = with_file(SMALL);
    let directory = scratch.path().join("results");
    run_all(&directory, &file, 2, &InProcess);
    let content = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    let (experiment, results) = (content("experiment.toml"), content("results.jsonl"));
    let open = ResultsDirectory::create(&directory, &file, &[]).unwrap();
    let other = scratch.path().join("other.toml");
    fs::write(&other, SMALL.replace("Small", "Little")).unwrap();
    let verdicts = "paper = \"scj\"\nfigure = \"1\"\ntitle = \"t\"\nrow = []\n";
    fs::write(verdicts_of(&other), verdicts).unwrap();
    assert!(matches!(ResultsDirectory::create(&directory, &other, &[]), Err(DirectoryError::InUse { .. })));
    assert_eq!(content("experiment.toml"), experiment);
    assert!(!directory.join("experiment.verdict.toml").exists());
    drop(open);
    // Verdicts come and go with their file.
    drop(ResultsDirectory::create(&directory, &other, &[]).unwrap());
    assert_eq!(content("experiment.verdict.toml"), verdicts);
    drop(ResultsDirectory::create(&directory, &file, &[]).unwrap());
    assert!(!directory.join("experiment.verdict.toml").exists());
    // Results that were copied beside the wrong experiment are not thrown away.
    fs::write(directory.join("experiment.toml"), SMALL.replace("128M", "192M")).unwrap();
    assert!(matches!(ResultsDirectory::open(&directory), Err(DirectoryError::Foreign { foreign: 8, .. })));
    fs::remove_file(directory.join("experiment.toml")).unwrap();
    assert!(matches!(ResultsDirectory::create(&directory, &file, &[]), Err(DirectoryError::OtherExperiment { .. })));
    assert_eq!(content("results.jsonl"), results);
}

/// A result that comes behind a line that was cut off, or behind the last writing of the file, is a line of its own.
#[test]
fn results_are_added_behind_whole_lines() {
    let (scratch, file) = with_file(SMALL);
    let directory = scratch.path().join("results");
    let create = || ResultsDirectory::create(&directory, &file, &[]).unwrap();
    let mut results = create();
    let points = results.missing();
    let record = |index: usize| {
        let metrics = BTreeMap::from([("copies".to_owned(), index as f64)]);
        Record { point: points[index].clone(), inputs: BTreeMap::new(), outcome: Ok(metrics) }
    };
    results.add(record(0)).unwrap();
    results.finish().unwrap();
    results.add(record(1)).unwrap();
    drop(results);
    let lines = directory.join("results.jsonl");
    let two = fs::read_to_string(&lines).unwrap();
    assert_eq!(two.lines().count(), 2);
    fs::write(&lines, format!("{two}{{\"kind\":\"volume\",\"para")).unwrap();
    let mut results = create();
    results.add(record(2)).unwrap();
    drop(results);
    let three = fs::read_to_string(&lines).unwrap();
    assert!(three.starts_with(&two) && three.lines().count() == 3, "{three}");
    assert_eq!(ResultsDirectory::open(&directory).unwrap().records().len(), 3);
    for (line, why) in
        [("{}".to_owned(), "line 4: "), (" ".repeat((1 << 20) + 1), "line 4: is too long; remove the line")]
    {
        fs::write(&lines, format!("{three}{line}\n")).unwrap();
        let error = ResultsDirectory::open(&directory).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// Whoever looks at results while others still write them leaves their file alone.
#[test]
fn a_report_of_some_results_does_not_touch_them() {
    let (scratch, file) = with_file(SMALL);
    let directory = scratch.path().join("results");
    let results = ResultsDirectory::create(&directory, &file, &[]).unwrap();
    let lines: Vec<String> = results
        .missing()
        .into_iter()
        .map(|point| {
            Record { point, inputs: BTreeMap::new(), outcome: Ok(BTreeMap::from([("copies".to_owned(), 1.0)])) }
                .to_line()
        })
        .collect();
    drop(results);
    let path = directory.join("results.jsonl");
    // As a shell's redirection: not at the end of the file, but where it was.
    let mut writer = fs::File::create(&path).unwrap();
    let (half, rest) = lines[1].split_at(40);
    writer.write_all(format!("{}\n{half}", lines[0]).as_bytes()).unwrap();
    let mut report = ResultsDirectory::open(&directory).unwrap();
    assert_eq!(report.records().len(), 1);
    report.finish().unwrap();
    drop(report);
    writer.write_all(format!("{rest}\n{}", lines[2..].join("\n")).as_bytes()).unwrap();
    drop(writer);
    // The last line has no end, and is whole.
    let mut report = ResultsDirectory::open(&directory).unwrap();
    assert_eq!(report.records().len(), lines.len());
    report.finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), lines.join("\n") + "\n");
}

/// A last line that is whole is a result, whoever left its end out.
#[test]
fn a_whole_last_line_is_kept_without_its_end() {
    let (scratch, file) = with_file(SMALL);
    let directory = scratch.path().join("results");
    let mut results = ResultsDirectory::create(&directory, &file, &[]).unwrap();
    let points = results.missing();
    let record = |index: usize| {
        let metrics = BTreeMap::from([("copies".to_owned(), index as f64)]);
        Record { point: points[index].clone(), inputs: BTreeMap::new(), outcome: Ok(metrics) }
    };
    results.add(record(0)).unwrap();
    drop(results);
    let path = directory.join("results.jsonl");
    fs::write(&path, fs::read_to_string(&path).unwrap().trim_end()).unwrap();
    let mut results = ResultsDirectory::create(&directory, &file, &[]).unwrap();
    assert_eq!(results.records().len(), 1);
    results.add(record(1)).unwrap();
    drop(results);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
}

/// An experiment that nobody ran is somebody's all the same.
#[test]
fn another_experiments_file_is_not_replaced() {
    let (scratch, file) = with_file(SMALL);
    for text in [SMALL.replace("128M", "192M"), "what is that?".to_owned()] {
        let copy = scratch.path().join("experiment.toml");
        fs::write(&copy, &text).unwrap();
        let refused = ResultsDirectory::create(scratch.path(), &file, &[]);
        assert!(matches!(refused, Err(DirectoryError::OtherExperiment { .. })), "{refused:?}");
        assert_eq!(fs::read_to_string(&copy).unwrap(), text);
        assert!(!scratch.path().join("results.jsonl").exists());
    }
}

#[test]
fn a_directory_is_for_one_run_of_one_experiment() {
    let (scratch, file) = with_file(SMALL);
    let directory = scratch.path().join("results");
    let open = ResultsDirectory::create(&directory, &file, &[]).unwrap();
    assert!(matches!(ResultsDirectory::create(&directory, &file, &[]), Err(DirectoryError::InUse { .. })));
    drop(open);
    fs::write(&file, SMALL.replace("128M", "192M")).unwrap();
    assert!(matches!(ResultsDirectory::create(&directory, &file, &[]), Err(DirectoryError::OtherExperiment { .. })));
    // Another title is no other experiment.
    fs::write(&file, SMALL.replace("Small", "Little")).unwrap();
    assert_eq!(ResultsDirectory::create(&directory, &file, &[]).unwrap().experiment().title, "Little <&>");
    // More seeds are none either, fewer are.
    run_all(&directory, &file, 2, &InProcess);
    fs::write(&file, SMALL.replace("[1, 2]", "[1, 2, 3]")).unwrap();
    let grown = ResultsDirectory::create(&directory, &file, &[]).unwrap();
    assert_eq!(grown.missing().iter().filter(|point| point.value("seed") == "3").count(), 4);
    assert!(!grown.records().is_empty());
    drop(grown);
    fs::write(&file, SMALL).unwrap();
    assert!(matches!(ResultsDirectory::create(&directory, &file, &[]), Err(DirectoryError::OtherExperiment { .. })));
    assert!(matches!(ResultsDirectory::open(scratch.path()), Err(DirectoryError::Experiment(_))));
}

/// What an earlier version measured is read: it had `free-sections` instead of a rule of cleaning.
#[test]
fn results_of_an_earlier_version_are_read() {
    let line = r#"{"kind":"volume","parameters":{"policy":"greedy","free-sections":"8"},"metrics":{"write_cost":2}}"#;
    let record = Record::from_line(line).unwrap();
    assert_eq!((record.point.value("cleaning"), record.metric("write_cost")), ("free:8", Some(2.0)));
}

/// Points with a translation layer ran on fresh flash before `ftl-fill` was a parameter.
#[test]
fn results_on_fresh_flash_stay_so() {
    let point = |parameters: &str| {
        let line = format!(r#"{{"kind":"engine","parameters":{{{parameters}}},"metrics":{{"victims":2}}}}"#);
        Record::from_line(&line).unwrap().point
    };
    assert_eq!(point(r#""ftl":"fast""#).value("ftl-fill"), "0");
    assert_eq!(point(r#""ftl":"fast","ftl-fill":"100""#).value("ftl-fill"), "100");
    assert_eq!(point(r#""ftl":"none""#).value("ftl-fill"), "100");
}

/// The path of a file is not what is in it: results of another content are not taken for those of this one, nor thrown away.
#[test]
fn results_belong_to_the_content_of_files() {
    let scratch = TempDir::new().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (job, device, trace) = (path("j.fio"), path("d.toml"), path("t.fio"));
    fs::write(&job, "[j]\nrw=randwrite\nsize=8m\nio_size=1m\n").unwrap();
    fs::write(&device, include_str!("../../flash/presets/ssd-m.toml")).unwrap();
    fs::write(&trace, "fio version 2 iolog\n/d add\n/d open\n/d write 0 4096\n/d close\n").unwrap();
    let engine = format!(
        "title = \"t\"\nkind = \"engine\"\n[settings]\nworkload = \"{job}:numjobs=1\"\ndevice = \"{device}\"\nsize = \"128M\"\nutilization = 60\n"
    );
    let replay = format!(
        "title = \"t\"\nkind = \"replay\"\n[settings]\ntrace = \"{trace}\"\ndevice = \"ssd-m\"\nsize = \"64M\"\n"
    );
    for (name, text, changed) in [
        ("job", &engine, (&job, "[j]\nrw=write\nsize=8m\nio_size=1m\n")),
        ("device", &engine, (&device, "\n# as long\n")),
        ("trace", &replay, (&trace, "fio version 2 iolog\n/d add\n/d open\n/d write 0 8192\n/d close\n")),
    ] {
        let (file, results) = (PathBuf::from(path(&format!("{name}.toml"))), PathBuf::from(path(name)));
        fs::write(&file, text).unwrap();
        let first = run_all(&results, &file, 1, &InProcess);
        assert_eq!(
            (first.done, first.failed),
            (1, 0),
            "{name}: {}",
            fs::read_to_string(results.join("results.jsonl")).unwrap()
        );
        assert_eq!(ResultsDirectory::create(&results, &file, &[]).unwrap().missing().len(), 0, "{name}");
        let before = fs::read(changed.0).unwrap();
        let after =
            if name == "device" { [&before, changed.1.as_bytes()].concat() } else { changed.1.as_bytes().to_vec() };
        fs::write(changed.0, after).unwrap();
        let error = ResultsDirectory::create(&results, &file, &[]).unwrap_err();
        assert!(matches!(error, DirectoryError::OtherInputs { changed: 1, .. }), "{name}: {error}");
        // The report is still that of what was measured.
        assert_eq!(ResultsDirectory::open(&results).unwrap().records().len(), 1, "{name}");
        // And with the file as it was, the results are those of this experiment.
        fs::write(changed.0, before).unwrap();
        assert_eq!(ResultsDirectory::create(&results, &file, &[]).unwrap().missing().len(), 0, "{name}");
        fs::remove_file(changed.0).unwrap();
        assert!(
            ResultsDirectory::create(&results, &file, &[]).is_ok(),
            "{name}: of a file that is gone nothing is known"
        );
        fs::write(changed.0, "").unwrap();
        assert!(ResultsDirectory::create(&results, &file, &[]).is_err(), "{name}");
        fs::remove_file(changed.0).unwrap();
        if name == "job" {
            fs::write(&job, "[j]\nrw=randwrite\nsize=8m\nio_size=1m\n").unwrap();
        }
    }
}
