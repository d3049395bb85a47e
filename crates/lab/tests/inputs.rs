//! Results are of the files that their points read, and of what parameters stood for then.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use basalt_lab::experiment::{DirectoryError, InProcess, Record, ResultsDirectory, Summary, run};
use tempfile::TempDir;

/// Runs what is missing.
fn run_all(directory: &Path, file: &Path) -> Summary {
    let mut results = ResultsDirectory::create(directory, file, &[]).unwrap();
    let summary = run(&mut results, 1, &InProcess, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    results.finish().unwrap();
    summary
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
        let first = run_all(&results, &file);
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
