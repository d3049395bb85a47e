//! What tests of experiments share.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use basalt_lab::experiment::{ResultsDirectory, Runner, Summary, run};
use tempfile::TempDir;

/// Eight points of a few milliseconds, of which two cannot be: 95 % of 128 MiB leave nothing to clean with.
pub const SMALL: &str = r#"
title = "Small <&>"
about = "Two policies."
kind = "volume"

[settings]
policy = ["greedy", "cost-benefit"]
utilization = [60, 95]
size = "128M"
writes = 20000
warm-up = 20000
seed = [1, 2]

[[plot]]
title = "Write amplification"
x = "utilization"
y = ["write_amplification"]
"#;

/// A directory with an experiment file in it.
pub fn with_file(text: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.toml");
    fs::write(&file, text).unwrap();
    (directory, file)
}

/// Runs what is missing, and writes everything.
pub fn run_all(directory: &Path, file: &Path, jobs: usize, runner: &dyn Runner) -> Summary {
    let mut results = ResultsDirectory::create(directory, file, &[]).unwrap();
    let summary = run(&mut results, jobs, runner, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    results.finish().unwrap();
    summary
}
