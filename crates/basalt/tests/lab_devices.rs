//! `lab devices` and `lab profile`.

mod support;

use std::fs;

use basalt_flash::DeviceModel;
use support::{Scratch, basalt, run};

#[test]
fn devices_are_listed_with_their_numbers() {
    let list = run("lab devices").ok();
    for name in
        ["ssd-h", "ssd-m", "ssd-l", "hdd-m", "nvme", "sd-a", "sd-b", "sd-l", "sd-c", "emmc", "nand-slc", "onenand"]
    {
        assert!(list.lines().any(|line| line.starts_with(&format!("{name} "))), "{name} is missing in\n{list}");
    }
    let line = list.lines().find(|line| line.starts_with("ssd-m ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1..7], ["213", "10.6", "87.0", "0.600", "page-level", "5000"], "{line}");
    assert!(line.contains("SFS paper"), "{line}");

    let json = run("lab devices --json").ok();
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 13);
    assert_eq!(lines[0]["name"], "ssd-h");
    // Times are whole nanoseconds.
    let random_write = lines[0]["random_write"].as_f64().unwrap();
    assert!((random_write - 5.3).abs() < 1e-4, "{random_write}");
    assert_eq!((&lines[10]["kind"], &lines[10]["read_ns"]), (&"nand-chip".into(), &77_800.into()));
}

#[test]
fn a_printed_device_can_be_changed_and_is_checked() {
    let scratch = Scratch::new();
    let text = run("lab devices sd-b").ok();
    assert_eq!(text, basalt_flash::preset_text("sd-b").unwrap());
    assert!(run("lab devices onenand").ok().contains("erase_ns = 2_048_000"));
    let path = scratch.file("card.toml", text.replace("flush_us = 3_000", "flush_us = 12.5"));
    let shown = basalt(["lab", "devices", &path]).ok();
    assert_eq!(DeviceModel::parse(&shown, "shown").unwrap(), DeviceModel::load(&path).unwrap());
    assert_eq!(basalt(["lab", "devices", "--json", &path]).json()["flush_us"], 12.5);

    let path = scratch.file("bad.toml", text.replace("streams = 6", "streams = 6000"));
    basalt(["lab", "devices", &path]).fails(1, &["bad.toml: write.streams: 6000 is not from 1 to 1024"]);
    let path = scratch.file("worse.toml", "name = ");
    basalt(["lab", "devices", &path]).fails(1, &["worse.toml, line 1"]);
    run("lab devices floppy").fails(2, &["no device `floppy`", "sd-a"]);
}

#[test]
fn profiling_reads_only_unless_told_to_write() {
    let scratch = Scratch::new();
    let content: Vec<u8> = (0..32 << 20).map(|index: u32| (index / 4096) as u8).collect();
    let image = scratch.file("image", &content);
    let output = scratch.text("measured.toml");
    let profile = |more: &[&str]| basalt(["lab", "profile", "--quiet", &image, "--seconds", "0.5"].iter().chain(more));

    assert_eq!(profile(&["--output", &output]).ok(), "");
    assert!(fs::read(&image).unwrap() == content, "reading changed the target");
    let model = DeviceModel::load(&output).unwrap();
    assert_eq!((model.capacity_bytes, model.name.as_str()), (Some(32 << 20), "measured"));
    assert!(model.source.contains("reads only") && model.read == model.write);

    // A mount plans by how long writes take. What else it says about the target does not matter here: it is no volume.
    let mount = |options: &str| basalt(["mount", "-o", &format!("profile={options}"), &image, &scratch.text("mnt")]);
    mount(&output).fails(1, &["mount option", "measured.toml", "knows reads only", "--write"]);
    mount("missing.toml").fails(1, &["mount option `profile=missing.toml`", "No such file"]);
    mount(&image).fails(1, &["mount option", "is no model of a device"]);

    let printed = profile(&["--write", "--name", "mine"]).ok();
    let model = DeviceModel::parse(&printed, "printed").unwrap();
    assert!(model.name == "mine" && model.read != model.write && model.flush_us > 0.0);
    assert_eq!(model.write.random.points[0].0, 4096);
    assert!(fs::read(&image).unwrap() != content);
    mount(&scratch.file("mine.toml", &printed)).fails(32, &["mount point does not exist"]);
    assert_eq!(fs::metadata(&image).unwrap().len(), 32 << 20);
    assert_eq!(profile(&["--json"]).json()["kind"], "other");
}

#[test]
fn what_cannot_be_profiled_is_refused() {
    let scratch = Scratch::new();
    let small = scratch.file("small", vec![0; 1 << 20]);
    basalt(["lab", "profile", &small]).fails(1, &["1048576 bytes", "at least 16777216"]);
    basalt(["lab", "profile", "--name", "two words", &small]).fails(2, &["--name"]);
    basalt(["lab", "profile", &scratch.text("nothing")]).fails(1, &["no such file"]);
    // Somebody has it: an exclusive lock, as every mount takes.
    let image = scratch.file("image", vec![0; 16 << 20]);
    let held = basalt_device::FileDevice::open(&image, &basalt_device::OpenOptions::default()).unwrap();
    for more in [&["--write"][..], &[]] {
        let arguments = ["lab", "profile", "--wait", "0", "--seconds", "0.1", &image];
        basalt(arguments.iter().chain(more)).fails(1, &["image", "in use"]);
    }
    drop(held);
}
