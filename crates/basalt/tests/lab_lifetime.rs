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

/// What is told beside an answer may find no reader, and shows no control characters of a trace.
#[test]
fn what_is_told_on_standard_error_is_no_matter_for_the_answer() {
    let scratch = Scratch::new();
    let lines = iolog(2000, 4096).replace("/dev/disk close", "/dev/disk write \x1b[31mred 1\n/dev/disk close");
    let trace = scratch.file("some.fio", lines);
    let arguments = ["lab", "lifetime", "--trace", &trace, "--device", "sd-b", "--per-day", "8G"];
    let told = basalt(arguments).err();
    assert!(told.contains("1 bad lines skipped") && !told.contains('\x1b'), "{told:?}");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = std::process::Command::new(support::program()).args(arguments).stderr(full).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
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

/// A device that is never told what is free has something on every page, years later.
#[test]
fn without_discards_flash_is_full() {
    let small = ["--size", "128M", "--utilization", "60"];
    let load = ["lab", "lifetime", "--workload", "uniform", "--device", "sd-b", "--per-day", "8G", "--json", "--quiet"];
    let answer = basalt([&load[..], &small].concat()).json();
    let amplification = |policy: &str| -> f64 {
        let estimates = answer["estimates"].as_array().unwrap();
        let one = estimates.iter().find(|one| one["policy"] == policy && one["layer"] == "fast");
        one.unwrap_or_else(|| panic!("{policy}: {answer}"))["wa"].as_f64().unwrap()
    };
    assert!(amplification("basalt, nodiscard") > 1.2 * amplification("basalt"), "{answer}");
    // Sections of 8 MiB leave too little of so small a volume; the others are no worse for it.
    let left_out = answer["left_out"].as_array().unwrap();
    assert!(left_out.len() == 1 && left_out[0].as_str().unwrap().contains("8 MiB: uniform"), "{answer}");
    assert!(answer["assumptions"].to_string().contains("steady state"), "{answer}");
    basalt([&load[..], &["--size", "128M", "--utilization", "3"]].concat()).fails(1, &["basalt: uniform", "leave"]);
}

/// What a workload writes decides how long a device lasts when it has written for long, not when it has begun.
#[test]
fn a_workload_is_measured_when_it_is_steady() {
    let lifetime =
        ["lab", "lifetime", "--workload", "zipf", "--device", "sd-b", "--size", "128M", "--utilization", "70"];
    let answer = basalt([&lifetime[..], &["--json"]].concat()).json();
    let point = |length: &str| -> f64 {
        let lengths = [format!("age={length}"), format!("measure={length}")];
        let device =
            ["workload=zipf", "device=sd-b", "size=128M", "utilization=70", "ftl=fast", "ftl-fill=0", "journal=0"];
        let point = [&["lab", "point", "engine"], &device[..], &[&lengths[0], &lengths[1], "--json"]].concat();
        basalt(point).json()["metrics"]["ftl_write_amplification"].as_f64().unwrap()
    };
    let measured = answer["estimates"][1]["wa"].as_f64().unwrap();
    let (steady, fresh) = (point("1G"), point("24M"));
    assert!((measured / steady - 1.0).abs() < 0.05, "{measured}, steady {steady}");
    assert!((fresh / steady - 1.0).abs() > 0.1, "{fresh}, steady {steady}");
    // One that comes to an end says that it is one run.
    let ends =
        ["lab", "lifetime", "--workload", "sysbench", "--device", "sd-b", "--size", "128M", "--utilization", "70"];
    let answer = basalt([&ends[..], &["--json"]].concat()).json();
    assert!(answer["assumptions"].to_string().contains("one run on a new volume"), "{answer}");
}

/// What was erased less than once is not steady yet, and the number is not left alone.
#[test]
fn a_trace_that_is_too_short_is_warned_of() {
    let scratch = Scratch::new();
    let warned = |trace: &str, size: &str| -> bool {
        let shown = basalt(["lab", "trace", trace, "--device", "ssd-m", "--ftl", "page-level", "--size", size]).ok();
        shown.contains("Warning: less than one erase per block with page-level")
    };
    let (short, long) = (scratch.file("short.fio", iolog(3000, 4096)), scratch.file("long.fio", iolog(60_000, 4096)));
    assert!(warned(&short, "64M"));
    assert!(!warned(&long, "64M"));
}

/// The help that is named is that of the command.
#[test]
fn a_wrong_argument_names_the_help_of_its_command() {
    basalt(["lab", "lifetime", "--bogus"]).fails(2, &["`basalt lab lifetime --help`"]);
    basalt(["lab", "nope"]).fails(2, &["`basalt lab --help`"]);
}

/// Points are written with twelve digits.
fn same_amplification(command: &Value, point: &Value) {
    let of = |answer: &Value| answer["write_amplification"].as_f64().unwrap();
    assert!((of(command) - of(&point["metrics"])).abs() < 1e-9, "{command} {point}");
}

/// A point and the command have the same defaults, and do the same.
#[test]
fn a_volume_costs_the_same_wherever_it_is_asked() {
    let nothing = basalt(["lab", "volume", "--writes", "0", "--json"]).json();
    assert_eq!(nothing["write_amplification"], Value::Null, "{nothing}");
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
    basalt(["lab", "point", "volume", "device=./nope.toml"]).fails(2, &["./nope.toml"]);
    for words in [
        &["lifetime", "--workload", "nope", "--device", "sd-b"][..],
        &["compare", "--workload", "nope"],
        &["point", "engine", "workload=nope"],
        &["point", "engine", "workload=zipf:0.99,sett=3"],
    ] {
        let finished = basalt([&["lab"], words].concat());
        assert_eq!(finished.code(), 2, "{words:?}: {}", finished.err());
    }
}
