//! `lab compare`: small comparisons with real kernels in User-Mode Linux.

mod support;

use std::fs;

use basalt_testkit::skip;
use serde_json::Value;
use support::{Scratch, basalt, run};

/// Few overwriting megabytes a file system, so that booting takes most of the time.
const SMALL: [&str; 12] =
    ["lab", "compare", "--size", "256M", "--utilization", "60", "--age", "1M", "--measure", "4M", "--limit", "60"];

fn lines(json: &str) -> Vec<Value> {
    json.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn compare(more: &[&str]) -> support::Finished {
    basalt(SMALL.iter().chain(more))
}

#[test]
fn kernels_and_basalt_do_the_same_and_are_measured() {
    if basalt_testkit::Uml::new_or_skip().is_none() || !skip::tools_or_skip(&["mkfs.ext4", "mkfs.f2fs"]) {
        return;
    }
    let scratch = Scratch::new();
    let output = scratch.text("results");
    let json =
        compare(&["--workload", "zipf", "--fs", "basalt,ext4,f2fs", "--json", "--output", &output, "--keep"]).ok();
    let rows = lines(&json);
    let names: Vec<&str> = rows.iter().map(|row| row["fs"].as_str().unwrap()).collect();
    assert_eq!(names, ["basalt", "ext4", "f2fs"], "{json}");
    for row in &rows {
        assert_eq!(row["error"], Value::Null, "{json}");
        assert_eq!(row["operation_hash"], rows[0]["operation_hash"], "{json}");
        assert_eq!(row["application_bytes"], rows[0]["application_bytes"], "{json}");
        assert!(row["application_bytes"].as_u64().unwrap() >= 4 << 20, "{json}");
        // Overwrites of one block are absorbed in memory until the next fsync; metadata comes to what is left.
        let waf = row["waf"].as_f64().unwrap();
        assert!((0.3..3.0).contains(&waf), "{json}");
        assert!(row["flash_pages_per_page"].as_f64().unwrap() >= waf * 0.99, "{json}");
        // The device was full when the file system came, so what it writes is no longer free of erases.
        assert_eq!(row["fill_percent"], 100, "{json}");
        let (erases, per_block) = (row["erases"].as_f64().unwrap(), row["erases_per_block"].as_f64().unwrap());
        assert!(erases > 0.0 && row["erases_per_block_fast"].as_f64().unwrap() > 0.0, "{json}");
        // 512 blocks of 512 KiB, and a tenth as many spare ones.
        assert!((520.0..580.0).contains(&(erases / per_block)), "{json}");
        assert!(row["device_seconds"].as_f64().unwrap() > 0.0 && row["p99_ms"].as_f64().unwrap() > 0.0, "{json}");
        // Every fsync has one flush at least.
        assert!(row["flushes"].as_u64() >= row["fsyncs"].as_u64() && row["fsyncs"].as_u64() > Some(0), "{json}");
        let full = row["reached_utilization_percent"].as_f64().unwrap();
        assert!((58.0..62.0).contains(&full), "{json}");
    }
    assert_eq!(fs::read_to_string(format!("{output}/results.jsonl")).unwrap(), json);
    let report = fs::read_to_string(format!("{output}/report.html")).unwrap();
    assert!(report.contains("<svg") && report.contains("ext4"), "no plots");
    let trace = fs::read_to_string(format!("{output}/zipf-f2fs.fio")).unwrap();
    assert!(trace.starts_with("fio version 3 iolog\n") && trace.contains(" datasync "), "no iolog");
    // Images, recordings and the directory they were in are gone.
    assert_eq!(fs::read_dir(&output).unwrap().count(), 5);
}

#[test]
fn basalt_alone_repeats_to_the_byte() {
    let once = || {
        let json = compare(&["--workload", "varmail", "--fs", "basalt", "--json"]).ok();
        let mut row = lines(&json).remove(0);
        // Real time, the only thing that is not simulated.
        row.as_object_mut().unwrap().remove("elapsed_seconds").unwrap();
        row
    };
    let row = once();
    assert_eq!(row, once());
    assert_eq!((&row["fs"], &row["error"], &row["skipped"]), (&"basalt".into(), &Value::Null, &false.into()));
}

/// The same operations, and other places: a placement and its victim policy are those that the name says.
#[test]
fn placements_do_the_same_and_write_otherwise() {
    let names = ["basalt", "basalt-run-length", "basalt-auto", "basalt-sfs-log"];
    let load = ["--size", "128M", "--utilization", "85", "--age", "128M", "--measure", "64M"];
    let what = ["--workload", "zipf:0.99,set=30%", "--fs", &names.join(","), "--json"];
    let json = basalt(["lab", "compare"].iter().chain(&load).chain(&what)).ok();
    let rows = lines(&json);
    let of = |key: &str| rows.iter().map(|row| row[key].to_string()).collect::<Vec<_>>();
    assert_eq!(of("fs"), names.map(|name| format!("{name:?}")));
    assert!(of("operation_hash").iter().all(|hash| *hash == of("operation_hash")[0]), "{json}");
    let written = of("written_bytes");
    assert_eq!(written[0], written[1], "run-length is what mounts take: {json}");
    assert_eq!(written.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "{json}");
}

#[test]
fn a_device_that_was_written_before_erases_and_a_fresh_one_does_not() {
    let on = |fill: &str| {
        lines(&compare(&["--workload", "zipf", "--fs", "basalt", "--json", "--fill", fill]).ok()).remove(0)
    };
    let (filled, fresh) = (on("100"), on("0"));
    assert_eq!((&fresh["fill_percent"], &fresh["wa"], &fresh["erases"]), (&0.into(), &1.0.into(), &0.into()));
    assert_eq!(fresh["erases_per_block"], 0.0);
    assert!(filled["erases"].as_u64() > Some(0) && filled["wa"].as_f64() >= Some(1.0), "{filled}");
    // The file system knows nothing of it.
    for same in ["operation_hash", "written_bytes", "discarded_bytes", "waf", "device_seconds"] {
        assert_eq!(filled[same], fresh[same], "{same}");
    }
}

#[test]
fn few_erases_are_warned_of() {
    let table = compare(&["--workload", "zipf", "--fs", "basalt"]).ok();
    let warnings: Vec<&str> = table.lines().filter(|line| line.contains("Warning: ")).collect();
    assert_eq!(warnings.len(), 1, "{table}");
    assert!(warnings[0].contains("basalt (page-level, FAST)") && warnings[0].contains("--measure"), "{table}");
    // With what a small volume takes if nobody chooses a set.
    let table = run("lab compare --workload zipf --fs basalt --size 64M --utilization 60 --measure 128M").ok();
    assert!(table.contains("set 8 MiB") && !table.contains("Warning"), "{table}");
}

#[test]
fn a_run_that_reaches_its_limit_says_how_far_it_came() {
    if basalt_testkit::Uml::new_or_skip().is_none() || !skip::tools_or_skip(&["mkfs.ext4"]) {
        return;
    }
    let limited = ["--workload", "zipf", "--fs", "ext4,basalt", "--limit", "1", "--json"];
    let json = basalt(["lab", "compare", "--size", "256M", "--measure", "4M"].iter().chain(&limited)).out();
    let rows = lines(&json);
    let error = rows[0]["error"].as_str().unwrap();
    assert!(error.starts_with("not finished after 1 s: "), "{json}");
    assert_eq!(rows[0].get("waf"), None, "{json}");
}

#[test]
fn what_cannot_be_compared_is_said_in_one_line() {
    run("lab compare --workload nonsense --fs basalt").fails(2, &["nonsense"]);
    run("lab compare --workload zipf --fs zfs").fails(2, &["zfs", "there are basalt, basalt-PLACEMENT, ext4"]);
    run("lab compare --workload zipf --device floppy").fails(2, &["no device `floppy`", "ssd-m"]);
    run("lab compare --workload zipf --keep").fails(2, &["--output"]);
    run("lab compare --workload zipf --fill 101").fails(2, &["--fill"]);
    let full = "lab compare --workload zipf:set=90% --utilization 50 --size 256M --fs basalt";
    let ended = run(full);
    assert_eq!(ended.code(), 1);
    assert!(ended.out().contains("basalt") && ended.out().contains("50 %"), "{}", ended.out());
}
