//! The POSIX test suite, and one file under everything a program can do to it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use basalt_testkit::{helper, limit, skip};

use crate::fixture::Volume;
use crate::fsx;
use crate::support::{Mounted, Scratch, basalt, can_mount};

/// Runs the suite below a directory. Without a list of its own, a file system passes what ext4 passes.
#[track_caller]
fn run_suite(root: &Path, list: &[&str]) {
    let directory = root.join("suite");
    fs::create_dir(&directory).unwrap();
    let mut suite = Command::new(helper::workspace().join("scripts/pjdfstest"));
    let output = limit::output(suite.args(list).arg(directory), limit::LONG).expect("scripts/pjdfstest");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) && text.contains("run scripts/install-dependencies") {
        return skip::skip(text.trim());
    }
    assert!(output.status.success(), "{text}");
}

#[test]
fn every_test_of_pjdfstest_that_ext4_passes() {
    let Some(volume) = Volume::new("1G") else { return };
    run_suite(&volume.root(), &[]);
}

/// A FlashLight volume on a chip of 64 MiB, through whose directory other users get. With pages of 4 KiB: the suite has a file of 2 GiB, which
/// is one hole, and the index of smaller pages ends before that.
fn flash() -> Scratch {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    basalt(["mkfs", "-q", "-t", "flashlight", "--nand", "4096+128x64x256", &scratch.text("image")]).ok();
    scratch
}

#[test]
fn every_test_of_pjdfstest_that_flashlight_has_the_means_for() {
    if !can_mount() {
        return;
    }
    let scratch = flash();
    let mounted = Mounted::new(&scratch, "");
    run_suite(&mounted.point, &["--except", "tests/pjdfstest/flashlight-exceptions.txt"]);
    mounted.unmount();
    basalt(["fsck", &scratch.text("image")]).ok();
}

/// Files at once, each with its own operations.
const FILES: u64 = 4;
/// Operations on each.
const OPERATIONS: u32 = 3_000;

#[test]
fn files_hold_what_was_written_mapped_cut_and_punched() {
    let Some(volume) = Volume::new("512M") else { return };
    let volume = &volume;
    let contents: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let run = |seed| move || fsx::exercise(&volume.path(format!("file{seed}")), seed, OPERATIONS, true);
        let threads: Vec<_> = (0..FILES).map(|seed| scope.spawn(run(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("see above")).collect()
    });
    volume.remount();
    for (seed, content) in contents.iter().enumerate() {
        let read = fs::read(volume.path(format!("file{seed}"))).unwrap();
        assert!(read == *content, "seed {seed} after mounting again");
    }
}

#[test]
fn files_on_flash_hold_what_was_written_mapped_cut_and_punched() {
    if !can_mount() {
        return;
    }
    let scratch = flash();
    let mounted = Mounted::new(&scratch, "");
    let path = |seed: u64| mounted.path(&format!("file{seed}"));
    let contents: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let run = |seed| move || fsx::exercise(&path(seed), seed, OPERATIONS / 2, false);
        let threads: Vec<_> = (0..2).map(|seed| scope.spawn(run(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("see above")).collect()
    });
    mounted.unmount();
    basalt(["fsck", &scratch.text("image")]).ok();
    for (seed, content) in contents.iter().enumerate() {
        let read = basalt(["cat", &scratch.text("image"), &format!("/file{seed}")]);
        assert!(read.0.stdout == *content, "seed {seed} after unmounting");
    }
}
