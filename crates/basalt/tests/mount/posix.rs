//! The POSIX test suite, and one file under everything a program can do to it.

use std::fs;
use std::process::Command;

use basalt_testkit::{helper, limit, skip};

use crate::fixture::Volume;
use crate::fsx;

#[test]
fn every_test_of_pjdfstest_that_ext4_passes() {
    let Some(volume) = Volume::new("1G") else { return };
    fs::create_dir(volume.path("suite")).unwrap();
    let script = helper::workspace().join("scripts/pjdfstest");
    let mut suite = Command::new(script);
    let output = limit::output(suite.arg(volume.path("suite")), limit::LONG).expect("scripts/pjdfstest");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) && text.contains("run scripts/install-dependencies") {
        return skip::skip(text.trim());
    }
    assert!(output.status.success(), "{text}");
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
        let run = |seed| move || fsx::exercise(&volume.path(format!("file{seed}")), seed, OPERATIONS);
        let threads: Vec<_> = (0..FILES).map(|seed| scope.spawn(run(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("see above")).collect()
    });
    volume.remount();
    for (seed, content) in contents.iter().enumerate() {
        let read = fs::read(volume.path(format!("file{seed}"))).unwrap();
        assert!(read == *content, "seed {seed} after mounting again");
    }
}
