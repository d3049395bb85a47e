//! `basalt tune`, and the journal that `basalt mkfs` makes.

mod support;

use std::fs;

use basalt_device::{FileDevice, OpenOptions};
use basalt_f2fs::Geometry;
use basalt_f2fs::journal::guard;
use basalt_testkit::{images, skip};
use support::{Mounted, Scratch, basalt, can_mount};

/// The journal that `basalt tune` and `basalt info` find, in bytes.
#[track_caller]
fn journal(scratch: &Scratch) -> u64 {
    let image = scratch.text("image");
    let tuned = basalt(["tune", "--json", &image]).json();
    assert_eq!((tuned["before"].is_null(), tuned["journal"]["live"].as_bool()), (true, Some(false)), "{tuned}");
    let info = basalt(["info", "--json", &image]).json();
    assert_eq!(info["journal_bytes"], tuned["journal"]["bytes"]);
    assert_eq!(info["journal_live"], false);
    info["journal_bytes"].as_u64().unwrap()
}

#[test]
fn mkfs_makes_a_journal_of_each_size() {
    let scratch = Scratch::new();
    let image = scratch.text("image");
    for (options, bytes, said) in [
        (&[][..], 256 << 10, "journal    256 KiB"),
        (&["--journal-size", "0"], 0, "journal    none"),
        (&["--journal-size", "1"], 4096, "journal    4 KiB"),
        (&["--journal-size", "1.5M"], 3 << 19, "journal    1.5 MiB"),
        (&["--journal-size", "6M", "-s", "4"], 6 << 20, "journal    6 MiB"),
        // A boot loader could not read the volume while its journal is live.
        (&["--boot"], 0, "journal    none"),
        (&["--boot", "--journal-size", "256K"], 256 << 10, "journal    256 KiB"),
    ] {
        let arguments = [&["mkfs", "--force", "--size", "128M"][..], options, &[&image]].concat();
        let text = basalt(&arguments).ok();
        assert!(text.contains(said), "{options:?}: {text}");
        let made = basalt([&arguments[..], &["--json", "-n"]].concat()).json();
        assert_eq!((made["journal_bytes"].as_u64(), journal(&scratch)), (Some(bytes), bytes), "{options:?}");
        scratch.expect_clean();
    }
    let before = fs::read(&image).unwrap();
    for size in ["2M", "1G", "1T"] {
        basalt(["mkfs", "--force", "--journal-size", size, &image]).fails(1, &[&image, "journal", "2027520"]);
    }
    assert!(fs::read(&image).unwrap() == before, "the volume was touched");
    basalt(["mkfs", "--size", "64M", "--journal-size", "2M", &scratch.text("new")]).fails(1, &["journal"]);
    assert!(!scratch.path("new").exists());
}

#[test]
fn a_boot_loader_in_front_of_segment_0_stays_unless_forced() {
    let scratch = Scratch::new();
    let image = scratch.text("image");
    basalt(["mkfs", "--size", "64M", "--journal-size", "0", &image]).ok();
    let mut bytes = fs::read(&image).unwrap();
    bytes[20 * 4096..][..6].copy_from_slice(b"loader");
    fs::write(&image, &bytes).unwrap();
    basalt(["tune", "--journal", "on", &image]).fails(1, &[&image, "block 20", "boot loader", "--force"]);
    assert!(fs::read(&image).unwrap() == bytes, "the volume was touched");
    basalt(["tune", "--journal", "on", "--force", &image]).ok();
    assert_eq!(journal(&scratch), 256 << 10);
}

#[test]
fn tune_gives_changes_and_takes() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    for (wanted, bytes, said) in [
        ("on", 256 << 10, "journal 256 KiB, unchanged"),
        ("off", 0, "journal none, was 256 KiB"),
        ("off", 0, "journal none, unchanged"),
        ("1M", 1 << 20, "journal 1 MiB, was none"),
        ("on", 1 << 20, "journal 1 MiB, unchanged"),
        ("12K", 12 << 10, "journal 12 KiB, was 1 MiB"),
        ("0", 0, "journal none, was 12 KiB"),
        ("on", 256 << 10, "journal 256 KiB, was none"),
    ] {
        let text = basalt(["tune", "--journal", wanted, &image]).ok();
        assert!(text.starts_with(&format!("{image}: {said}\n")), "{wanted}: {text}");
        assert_eq!(journal(&scratch), bytes);
        scratch.expect_clean();
    }
    let text = basalt(["tune", &image]).ok();
    assert_eq!(text, format!("{image}: journal 256 KiB\n  room       1.9 MiB\n"));
    assert_eq!(basalt(["tune", "-q", "--journal", "off", &image]).ok(), "");
    let done = basalt(["tune", "--json", "--journal", "64K", &image]).json();
    assert_eq!((&done["before"]["bytes"], &done["journal"]["bytes"]), (&0.into(), &(64 << 10).into()));
    let text = basalt(["info", &image]).ok();
    assert!(text.lines().any(|line| line.split_whitespace().eq(["journal", "64", "KiB"])), "{text}");
}

#[test]
fn volumes_of_linux_take_a_journal() {
    if !skip::tools_or_skip(&["mkfs.f2fs", "fsck.f2fs"]) {
        return;
    }
    for options in
        [&[][..], &["-s", "4"], &["-O", "extra_attr,inode_checksum,sb_checksum,quota"], &["-z", "2", "-s", "2"]]
    {
        let scratch = Scratch::new();
        let image = scratch.text("image");
        images::mkfs_f2fs(&scratch.path("image"), 256 << 20, options).unwrap();
        assert_eq!(journal(&scratch), 0, "{options:?}");
        basalt(["tune", "-q", "--journal", "on", &image]).ok();
        assert_eq!(journal(&scratch), 256 << 10, "{options:?}");
        scratch.expect_clean();
        let content = vec![7; 3 << 20];
        fs::write(scratch.path("file"), &content).unwrap();
        basalt(["put", &image, &scratch.text("file")]).ok();
        scratch.expect_clean();
        basalt(["tune", "-q", "--journal", "off", &image]).ok();
        assert_eq!(journal(&scratch), 0);
        scratch.expect_clean();
        assert!(basalt(["cat", &image, "/file"]).0.stdout == content);
    }
}

#[test]
fn tune_refuses_in_one_line() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let before = fs::read(&image).unwrap();
    for wrong in ["maybe", "1X", "-1", "", "On"] {
        basalt(["tune", &format!("--journal={wrong}"), &image]).fails(2, &["--journal"]);
    }
    basalt(["tune", &image, "--journal"]).fails(2, &["--journal"]);
    basalt(["tune", &image, "64K"]).fails(2, &["64K"]);
    basalt(["tune", "--journal", "2M", &image]).fails(1, &[&image, "no room", "512 blocks", "495"]);
    basalt(["tune", &scratch.text("nothing")]).fails(1, &["no such file"]);
    basalt(["tune", "--journal", "on", &scratch.file("text", "x".repeat(1 << 20))]).fails(1, &["no F2FS volume"]);
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn what_is_mounted_is_left_alone() {
    if !can_mount() {
        return;
    }
    for options in ["", "noloop,nojournal", "journal,pre_invalid=8M"] {
        let scratch = Scratch::with_volume("64M");
        let mounted = Mounted::new(&scratch, options);
        let image = scratch.text("image");
        basalt(["tune", "--journal", "off", &image]).fails(1, &[&image, "in use", mounted.point.to_str().unwrap()]);
        basalt(["tune", &image]).fails(1, &[&image, "in use"]);
        let stats = basalt(["stats".as_ref(), mounted.point.as_os_str(), "--json".as_ref()]).json();
        assert_eq!(stats["live"]["pre_invalid_blocks"], 0);
        mounted.unmount();
        assert_eq!(journal(&scratch), 256 << 10);
        scratch.expect_clean();
    }
}

#[test]
fn a_live_journal_is_shown_and_not_touched_and_resize_recovers_it() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let device = FileDevice::open(scratch.path("image"), &OpenOptions::default()).unwrap();
    let (geometry, _) = Geometry::read(&device).unwrap();
    guard::set(&device, &geometry, false).unwrap();
    drop(device);
    for wanted in ["on", "off", "1M"] {
        basalt(["tune", "--journal", wanted, &image]).fails(1, &[&image, "live", "fsck --repair"]);
    }
    assert_eq!(basalt(["tune", "--json", &image]).json()["journal"]["live"], true);
    assert!(basalt(["tune", &image]).ok().contains("live"));
    assert_eq!(basalt(["info", "--json", &image]).json()["journal_live"], true);
    assert!(basalt(["info", &image]).ok().contains("256 KiB, live"));
    basalt(["resize", "-q", &image, "128M"]).ok();
    assert_eq!(journal(&scratch), 256 << 10);
    scratch.expect_clean();
}
