//! `basalt lab lifetime`, `lab volume` and points of the volume simulator: the same question has the same answer.

mod support;

use std::fmt::Write;

use basalt_testkit::rng::Rng;
use serde_json::Value;
use support::{Scratch, basalt};

/// An iolog of fio with so many writes of `length` bytes, each at the beginning of a block of 4 KiB of the first 32 MiB.
fn iolog(count: u64, length: u64) -> String {
    let mut rng = Rng::new(5);
    let mut text = "fio version 2 iolog\n/dev/disk add\n/dev/disk open\n".to_owned();
    for _ in 0..count {
        writeln!(text, "/dev/disk write {} {length}", rng.below(8192) * 4096).unwrap();
    }
    text + "/dev/disk close\n"
}

fn years(trace: &str) -> Vec<f64> {
    let arguments = ["lab", "lifetime", "--trace", trace, "--device", "sd-b", "--per-day", "8G", "--json", "--quiet"];
    let answer = basalt(arguments).json();
    let estimates = answer["estimates"].as_array().unwrap().clone();
    assert!(estimates.len() >= 4, "{answer}");
    estimates.iter().map(|one| one["years"].as_f64().unwrap()).collect()
}

/// Flash programs whole pages, and a log writes whole blocks: an eighth of a block costs eight times as much for each byte.
#[test]
fn parts_of_pages_wear_as_whole_pages() {
    let scratch = Scratch::new();
    let parts = years(&scratch.file("parts.fio", iolog(30_000, 512)));
    let blocks = years(&scratch.file("blocks.fio", iolog(30_000, 4096)));
    for (part, block) in parts.iter().zip(&blocks) {
        assert!((block / part - 8.0).abs() < 1e-6, "{parts:?} {blocks:?}");
    }
}

#[test]
fn the_directory_of_a_recording_is_a_trace() {
    let scratch = Scratch::new();
    scratch.directory("recorded");
    let file = scratch.file("recorded/trace.fio", iolog(20_000, 4096));
    let directory = scratch.text("recorded");
    assert_eq!(years(&directory), years(&file));
    let point =
        |trace: &str| basalt(["lab", "point", "volume", &format!("trace={trace}"), "writes=50000", "--json"]).json();
    let (by_directory, by_file) = (point(&directory), point(&file));
    assert_eq!(by_directory["metrics"], by_file["metrics"]);
    scratch.directory("empty");
    basalt(["lab", "lifetime", "--trace", &scratch.text("empty"), "--device", "sd-b"]).fails(1, &["empty/trace.fio"]);
}

/// Points are written with twelve digits.
fn same_amplification(command: &Value, point: &Value) {
    let of = |answer: &Value| answer["write_amplification"].as_f64().unwrap();
    assert!((of(command) - of(&point["metrics"])).abs() < 1e-9, "{command} {point}");
}

/// A point and the command have the same defaults, and do the same.
#[test]
fn a_volume_costs_the_same_wherever_it_is_asked() {
    let command = basalt(["lab", "volume", "--json"]).json();
    let point = basalt(["lab", "point", "volume", "--json"]).json();
    same_amplification(&command, &point);
    let words = ["lab", "volume", "--cleaning", "paced", "--utilization", "70", "--policy", "cost-benefit", "--json"];
    let command = basalt(words).json();
    let words = ["lab", "point", "volume", "cleaning=paced", "utilization=70", "policy=cost-benefit", "--json"];
    same_amplification(&command, &basalt(words).json());
}

#[test]
fn a_request_has_a_block_at_least() {
    let words = ["lab", "volume", "--device", "ssd-m", "--request", "4095"];
    basalt(words).fails(2, &["--request", "4095", "less than a block of 4 KiB"]);
}

#[test]
fn a_trace_sets_the_size_of_its_volume() {
    let scratch = Scratch::new();
    let trace = format!("trace={}", scratch.file("trace.fio", iolog(20_000, 4096)));
    let point = basalt(["lab", "point", "volume", &trace, "utilization=80", "writes=100000", "--json"]).json();
    assert_eq!(point["metrics"]["writes"], 100_000, "{point}");
    assert!(point["metrics"]["write_amplification"].as_f64().unwrap() > 1.0, "{point}");
    // However many sections the rule of cleaning keeps.
    for rule in ["cleaning=paced", "cleaning=free:20", "cleaning=garbage:15"] {
        basalt(["lab", "point", "volume", &trace, rule, "writes=1000", "--json"]).json();
    }
    for wrong in ["size=1G", "stream=uniform"] {
        basalt(["lab", "point", "volume", &trace, wrong]).fails(1, &["exclude each other"]);
    }
    basalt(["lab", "point", "volume", "cleaning=often"]).fails(1, &["often", "free:4"]);
}

/// Whatever a mount can be told, a point can.
#[test]
fn an_engine_is_told_how_it_commits() {
    let point = |more: &[&str]| {
        let mut words = vec!["lab", "point", "engine", "workload=zipf:0.99,set=25%", "size=128M", "utilization=80"];
        words.extend(["age=64M", "measure=64M", "--json"]);
        words.extend(more);
        basalt(words).json()["metrics"].clone()
    };
    let (each, journaled) = (point(&["sections-per-commit=1"]), point(&["sections-per-commit=1", "journal=256K"]));
    assert!(each["checkpoints_cleaning"].as_u64().unwrap() > 20, "{each}");
    assert_eq!((&each["journal_commits"], &each["journal_blocks"]), (&0.into(), &0.into()), "{each}");
    assert!(journaled["journal_commits"].as_u64().unwrap() > 20, "{journaled}");
    assert!(journaled["journal_blocks"].as_u64() >= journaled["journal_commits"].as_u64(), "{journaled}");
    assert!(journaled["checkpoints"].as_u64() < each["checkpoints"].as_u64(), "{journaled} {each}");
    assert_eq!(point(&["discard=off"])["device_discards"], 0);
}

/// Every command exits with 2 for an unknown device and for a volume that cannot exist.
#[test]
fn what_cannot_be_is_a_wrong_argument() {
    let scratch = Scratch::new();
    let trace = scratch.file("trace.fio", iolog(10, 4096));
    for words in [
        &["devices", "nope"][..],
        &["lifetime", "--trace", &trace, "--device", "nope"],
        &["trace", &trace, "--device", "nope"],
        &["compare", "--workload", "zipf", "--device", "nope"],
        &["point", "engine", "device=nope"],
        &["point", "volume", "device=nope"],
        &["point", "replay", "device=nope"],
    ] {
        basalt([&["lab"], words].concat()).fails(2, &["there is no device `nope`", "ssd-m"]);
    }
    for words in [
        &["lifetime", "--trace", &trace, "--device", "sd-b", "--per-day", "0"][..],
        &["volume", "--logs", "3"],
        &["volume", "--size", "64M", "--cleaning", "free:0"],
        &["volume", "--size", "64M", "--cleaning", "paced"],
    ] {
        assert_eq!(basalt([&["lab"], words].concat()).code(), 2, "{words:?}");
    }
    // A file is looked for where the point runs.
    basalt(["lab", "point", "volume", "device=./nope.toml"]).fails(1, &["./nope.toml"]);
}
