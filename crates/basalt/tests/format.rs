//! `basalt mkfs`.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use basalt_testkit::loopdev::LoopDevice;
use basalt_testkit::skip;
use support::{Scratch, basalt};

#[test]
fn makes_a_new_image() {
    let scratch = Scratch::new();
    let image = scratch.text("image");
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let made = basalt(["mkfs", "--size", "128M", "-L", "café", "--uuid", uuid, "-s", "2", "--json", &image]).json();
    assert_eq!(made["uuid"], uuid);
    assert_eq!(made["size"], 128 << 20);
    let found = fs::metadata(&image).unwrap();
    assert_eq!(found.len(), 128 << 20);
    assert!(found.blocks() * 512 < 8 << 20, "the image is not sparse");
    scratch.expect_clean();
    let info = basalt(["info", "--json", &image]).json();
    assert_eq!(info["label"], "café");
    assert_eq!(info["segments_per_section"], 2);
}

#[test]
fn says_what_it_made_unless_quiet() {
    let scratch = Scratch::new();
    let image = scratch.text("image");
    let said = basalt(["mkfs", "--size", "64M", &image]).ok();
    assert!(said.contains("F2FS volume of 64 MiB made"), "{said}");
    assert_eq!(basalt(["mkfs", "-q", "--force", &image]).ok(), "");
}

#[test]
fn needs_a_size_for_what_is_not_there() {
    let scratch = Scratch::new();
    let image = scratch.text("image");
    basalt(["mkfs", &image]).fails(2, &[&image, "--size"]);
    assert!(!scratch.path("image").exists());
    scratch.file("image", "");
    basalt(["mkfs", &image]).fails(2, &[&image, "is empty; --size SIZE"]);
    basalt(["mkfs", "-q", "--size", "64M", &image]).ok();
    scratch.expect_clean();
}

#[test]
fn leaves_nothing_behind_when_it_fails() {
    let scratch = Scratch::new();
    let image = scratch.text("image");
    basalt(["mkfs", "--size", "1M", &image]).fails(1, &[&image, "1 segment per section: at least"]);
    basalt(["mkfs", "--size", "0", &image]).fails(2, &["--size", "0 bytes"]);
    assert!(!scratch.path("image").exists());
    basalt(["mkfs", "--size", "64M", "-s", "0", &image]).fails(2, &["a number from 1 to 4096"]);
    assert!(!scratch.path("image").exists());
    basalt(["mkfs", "--size", "64M", "-L", &"x".repeat(600), &image]).fails(1, &["label"]);
    assert!(!scratch.path("image").exists());
}

#[test]
fn a_rehearsal_writes_nothing() {
    let scratch = Scratch::new();
    let image = scratch.text("image");
    let said = basalt(["mkfs", "--dry-run", "--size", "1T", &image]).ok();
    assert!(said.contains("1 TiB would be made"), "{said}");
    assert!(!scratch.path("image").exists());
    basalt(["mkfs", "-q", "--size", "64M", &image]).ok();
    let before = fs::read(&image).unwrap();
    basalt(["mkfs", "-n", &image]).fails(1, &["f2fs"]);
    basalt(["mkfs", "-n", "--force", "--size", "128M", &image]).ok();
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn replaces_and_resizes_only_when_forced() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    basalt(["mkfs", &image]).fails(1, &["holds f2fs", "--force"]);
    basalt(["mkfs", "-q", "--force", "--size", "96M", &image]).ok();
    assert_eq!(fs::metadata(&image).unwrap().len(), 96 << 20);
    scratch.expect_clean();
}

#[test]
fn an_ordinary_file_with_data_is_used_whole() {
    // Zeros are nothing recognizable, as on a new disk.
    let scratch = Scratch::new();
    let image = scratch.text("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    basalt(["mkfs", "-q", &image]).ok();
    scratch.expect_clean();
}

#[test]
fn formats_block_devices() {
    if !skip::root_or_skip() || !skip::tools_or_skip(&["losetup"]) {
        return;
    }
    for sector in ["512", "4096"] {
        let scratch = Scratch::new();
        let image = scratch.path("image");
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let device = LoopDevice::attach_with(&image, &["--sector-size", sector]).expect("a loop device");
        let name = device.path().to_str().unwrap();
        basalt(["mkfs", "--size", "32M", name]).fails(2, &["block device of 64 MiB"]);
        basalt(["mkfs", "-q", name]).ok();
        basalt(["fsck", name]).ok();
        // The image behind it is in use.
        basalt(["fsck", "--wait", "0", image.to_str().unwrap()]).fails(8, &["in use", name]);
        drop(device);
        basalt(["fsck", image.to_str().unwrap()]).ok();
    }
}

/// As on a partition: what counts is where the disk begins.
#[test]
fn sections_are_aligned_to_the_disk_of_a_partition() {
    if !skip::root_or_skip() || !skip::tools_or_skip(&["losetup", "fsck.f2fs"]) {
        return;
    }
    const START: u64 = 1 << 20;
    let scratch = Scratch::new();
    let disk = scratch.path("disk");
    File::create(&disk).unwrap().set_len(START + (80 << 20)).unwrap();
    let device = LoopDevice::attach_with(&disk, &["--offset", &START.to_string()]).expect("a loop device");
    let name = device.path().to_str().unwrap();
    let would = basalt(["mkfs", "-n", "--json", "-s", "2", name]).json();
    let made = basalt(["mkfs", "--json", "-s", "2", name]).json();
    assert_eq!(would["segments"], made["segments"]);
    // The superblock's `segment0_blkaddr` and `main_blkaddr`.
    for field in [72, 92] {
        let mut address = [0; 4];
        File::open(&disk).unwrap().read_exact_at(&mut address, START + 1024 + field).unwrap();
        let place = START + u64::from(u32::from_le_bytes(address)) * 4096;
        assert!(place.is_multiple_of(4 << 20), "the field at {field} leads to byte {place} of the disk");
    }
    let checked = std::process::Command::new("fsck.f2fs").args(["--dry-run", name]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    basalt(["fsck", name]).ok();
}

#[test]
fn sections_follow_the_erase_unit_where_they_cost_little() {
    let scratch = Scratch::new();
    let sections = |size: &str, unit: &str| {
        let made =
            basalt(["mkfs", "-n", "--json", "--size", size, "--erase-unit", unit, &scratch.text("image")]).json();
        made["main_segments"].as_f64().unwrap() / made["sections"].as_f64().unwrap()
    };
    assert_eq!(sections("16G", "4M"), 2.0);
    assert_eq!(sections("16G", "512K"), 1.0);
    assert_eq!(sections("16G", "5M"), 1.0, "no whole segments");
    assert_eq!(sections("1G", "4M"), 1.0, "8 % of the room is too much");
    assert_eq!(sections("32G", "24M"), 4.0, "12 segments cost 6 % of the room, and 6 more than 3 %");
    assert_eq!(sections("128G", "24M"), 12.0);
    let image = scratch.text("image");
    basalt(["mkfs", "-n", "-s", "2", "--erase-unit", "4M", "--size", "1G", &image]).fails(2, &["--erase-unit"]);
}
