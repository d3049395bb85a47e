//! `lab workloads` and `lab workload`.

mod support;

use std::fs;

use support::{Scratch, basalt};

#[test]
fn workloads_are_listed_with_their_sources() {
    let text = basalt(["lab", "workloads"]).ok();
    for part in ["zipf", "varmail", "mobile", "PATH.fio", "PATH.f ", "options: ", "source: FlashLight paper"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let lines = basalt(["lab", "workloads", "--json"]).ok();
    for line in lines.lines() {
        let workload: serde_json::Value = serde_json::from_str(line).unwrap();
        for field in ["name", "what", "options", "source"] {
            assert!(!workload[field].as_str().unwrap().is_empty(), "{line}");
        }
    }
    assert_eq!(lines.lines().count(), text.lines().filter(|line| line.contains("source: ")).count());
}

/// The same operations on a directory and on an image; on the image they are sound and still there.
#[test]
fn directory_and_image_get_the_same_operations() {
    let scratch = Scratch::with_volume("128M");
    let directory = scratch.directory("run");
    let (image, directory_text) = (scratch.text("image"), scratch.text("run"));
    let settings = "--size 64M --utilization 70 --dummy 1M --age 0 --operations 2000 --seed 9 --verify --json";
    let run = |place: &[&str]| {
        let mut arguments = vec!["lab", "workload", "varmail:set=4M"];
        arguments.extend(place);
        arguments.extend(settings.split(' '));
        let line = basalt(arguments).ok();
        assert_eq!(line.lines().count(), 1, "{line}");
        serde_json::from_str::<serde_json::Value>(&line).unwrap()
    };
    let on_image = run(&["--image", &image]);
    let on_directory = run(&[&directory_text]);
    for report in [&on_image, &on_directory] {
        // The operations and the sync that ends the phase.
        assert_eq!(report["measure"]["operations"], 2001);
        assert!(report["measure"]["fsyncs"].as_u64().unwrap() > 100, "{report}");
        assert!(report["measure"]["elapsed_ns"].as_u64().unwrap() > 0);
        assert!(report["verified_bytes"].as_u64().unwrap() > 1 << 20);
        assert_eq!(report["dummy_bytes"], 1 << 20);
    }
    assert_eq!(on_image["measure"]["operation_hash"], on_directory["measure"]["operation_hash"]);
    assert_eq!(on_image["settings"], on_directory["settings"]);
    assert!(directory.join("mail").is_dir() && directory.join("dummy").is_dir());
    assert!(basalt(["ls", &image, "/"]).ok().contains("mail"));
    scratch.expect_clean();
}

/// A job file of fio, by its path: the same operations on an image and in a directory, until the jobs end.
#[test]
fn job_files_are_workloads() {
    let scratch = Scratch::with_volume("256M");
    scratch.directory("run");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/log-and-table.fio");
    let run = |place: &[&str]| {
        let arguments = ["lab", "workload", example, "--size", "128M", "--dummy", "1M", "--verify", "--json"];
        let line = basalt(arguments.iter().chain(place)).ok();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()
    };
    let on_image = run(&["--image", &scratch.text("image")]);
    let in_directory = run(&[&scratch.text("run"), "--remove"]);
    for report in [&on_image, &in_directory] {
        assert_eq!(report["workload"], example);
        let bytes = ["written_bytes", "read_bytes"].map(|field| report["measure"][field].as_u64().unwrap());
        assert_eq!(bytes[0] + bytes[1], (24 << 20) + (8 << 20), "{report}");
        assert!(report["measure"]["fsyncs"].as_u64().unwrap() > 500, "{report}");
    }
    assert_eq!(on_image["measure"]["operation_hash"], in_directory["measure"]["operation_hash"]);
    assert!(basalt(["ls", &scratch.text("image"), "/"]).ok().contains("table.0.0"));
    scratch.expect_clean();
    let mail = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/mail-server.f:mails=200");
    let arguments = [
        "lab",
        "workload",
        mail,
        &scratch.text("run"),
        "--size",
        "128M",
        "--dummy",
        "1M",
        "--operations",
        "2000",
        "--age",
        "0",
        "--json",
    ];
    let line = basalt(arguments).ok();
    let report: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(report["measure"]["operations"], 2001);
    assert!(report["measure"]["fsyncs"].as_u64().unwrap() > 200, "{line}");
    scratch.directory("other");
    let bad = scratch.path("bad.fio");
    fs::write(&bad, "[a]\nsize=1m\nrw=trimwrite\n").unwrap();
    basalt(["lab", "workload", bad.to_str().unwrap(), &scratch.text("other")])
        .fails(2, &["bad.fio:3: rw: `trimwrite` is not read"]);
    let large = format!("{example}:size=200%");
    basalt(["lab", "workload", &large, &scratch.text("other")])
        .fails(2, &["log-and-table.fio: option size: `200%` is not a size"]);
    let large = format!("{example}:size=2g");
    let empty = Scratch::with_volume("256M");
    let arguments = ["lab", "workload", &large, "--image", &empty.text("image")];
    basalt(arguments).fails(1, &["its files need 4294967296 bytes"]);
}

#[test]
fn reports_are_readable_and_files_can_be_removed() {
    let scratch = Scratch::new();
    let directory = scratch.directory("run");
    let arguments = "--size 64M --dummy 0 --age 0 --bytes 1M --remove".split(' ');
    let place = scratch.text("run");
    let text = basalt(["lab", "workload", "res:set=4M", &place].into_iter().chain(arguments)).ok();
    for part in ["workload     res:set=", "prepare ", "measure ", "p99.9 µs", "write ", "rename "] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_run_is_one_line() {
    let scratch = Scratch::with_volume("64M");
    let (directory, image) = (scratch.directory("run"), scratch.text("image"));
    let place = directory.to_str().unwrap();
    let workload = |arguments: &[&str]| basalt(["lab", "workload"].iter().chain(arguments).copied());
    workload(&["zipff", place]).fails(2, &["there is no workload `zipff`"]);
    workload(&["zipf:x=1", place]).fails(2, &["has no option `x`"]);
    workload(&["zipf"]).fails(2, &["<DIR>"]);
    workload(&["zipf", place, "--image", &image]).fails(2, &["--image"]);
    workload(&["zipf", place, "--utilization", "101"]).fails(2, &["101"]);
    workload(&["zipf", place, "--seconds", "1", "--bytes", "1M"]).fails(2, &["--bytes"]);
    workload(&["zipf", &scratch.text("missing")]).fails(1, &["missing"]);
    workload(&["uniform:set=48M", "--image", &image]).fails(1, &["its files need", "85 % of the free space"]);
    fs::write(directory.join("precious"), "x").unwrap();
    workload(&["zipf", place, "--remove"]).fails(1, &["is not empty", "precious"]);
    assert!(directory.join("precious").exists());
}
