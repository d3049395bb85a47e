//! The same job file with fio itself, in a directory of this machine: what both do is compared.
//!
//! fio writes down what it does (`write_iolog`). Jobs in order are compared operation by operation, jobs at random by what does not depend on
//! the random numbers: how many reads, writes and fsyncs, how many bytes, how often each block.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use basalt_workloads::{Operation, Phase, Settings, by_name};

use crate::job_files::{operations, write};

/// One thing that was done: what, in which file, where, how many bytes.
type Done = (&'static str, String, u64, u64);

/// Whether fio is there; says so if not.
fn has_fio() -> bool {
    let found = Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("SKIPPED: fio is not installed; install the package `fio` to hold job files against fio itself");
    }
    found
}

/// What fio does.
fn theirs(place: &Path, job: &str) -> Vec<Done> {
    let run = place.join("run");
    std::fs::create_dir(&run).unwrap();
    let output = Command::new("fio").arg(job).current_dir(&run).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = std::fs::read_to_string(run.join("log")).unwrap();
    std::fs::remove_dir_all(&run).unwrap();
    let done = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, file, action, offset, length] = words[..] else { return None };
        let number = |text: &str| text.parse::<u64>().unwrap();
        match action {
            "read" => Some(("read", file.to_owned(), number(offset), number(length))),
            "write" => Some(("write", file.to_owned(), number(offset), number(length))),
            // Where a sync is written down as, is the offset of the I/O before it.
            "sync" => Some(("sync", file.to_owned(), 0, 0)),
            "datasync" => Some(("datasync", file.to_owned(), 0, 0)),
            _ => None,
        }
    };
    log.lines().filter_map(done).collect()
}

/// What our workload does; a request above 1 MiB is one.
fn ours(job: &str) -> Vec<Done> {
    let settings = Settings { size_bytes: 1 << 30, ..Settings::default() };
    let mut workload = by_name(job, &settings).unwrap_or_else(|error| panic!("{error}"));
    operations(&mut *workload, Phase::Prepare, usize::MAX);
    let mut paths = BTreeMap::new();
    let mut all = Vec::new();
    for operation in operations(&mut *workload, Phase::Measure, usize::MAX) {
        let path = |file| BTreeMap::get(&paths, &file).cloned().unwrap_or_default();
        match operation {
            Operation::Open(file, path) => drop(paths.insert(file, path)),
            Operation::Read { file, offset, length } => all.push(("read", path(file), offset, u64::from(length))),
            Operation::Write { file, offset, length } => all.push(("write", path(file), offset, u64::from(length))),
            Operation::Sync(file) => all.push(("sync", path(file), 0, 0)),
            Operation::SyncData(file) => all.push(("datasync", path(file), 0, 0)),
            _ => {}
        }
    }
    all
}

/// Both ways of doing a job.
fn both(text: &str) -> (Vec<Done>, Vec<Done>) {
    let place = tempfile::tempdir().unwrap();
    let job = write(place.path(), "t.fio", &format!("{text}write_iolog=log\n"));
    (theirs(place.path(), &job), ours(&job))
}

#[test]
fn jobs_in_order_are_those_of_fio() {
    if !has_fio() {
        return;
    }
    for text in [
        "[a]\nrw=write\nsize=1m\nfsync=7\n",
        "[a]\nrw=write\nbs=3000\nsize=100000\n",
        "[a]\nrw=write\nsize=1m\nnrfiles=3\nfsync=5\n",
        "[a]\nrw=write\nsize=64k\nio_size=70k\nfdatasync=4\n",
        "[a]\nrw=write\nsize=64k\nio_size=66k\n",
        "[a]\nrw=write\nsize=64k\nio_size=200k\nend_fsync=1\n",
        "[a]\nrw=write\nsize=64k\nio_size=32k\nloops=3\n",
        "[a]\nrw=write\nsize=64k\nloops=3\nend_fsync=1\nfsync=3\n",
        "[a]\nrw=write\nsize=64k\nnumber_ios=10\nloops=2\n",
        "[a]\nrw=write\nbs=16k,8k\nsize=256k\nfilename=p:q:r\n",
        "[a]\nrw=write\nbs=8k\nsize=256k\nfilename=p:q:r\nfile_service_type=sequential\n",
        "[a]\nrw=read\nbs=1KiB\nsize=1MiB\nfsync=3\n",
        "[a]\nrw=write\nsize=1m\ntime_based\n",
    ] {
        let (theirs, ours) = both(text);
        assert!(theirs.len() > 9, "{text}: {theirs:?}");
        for (index, pair) in theirs.iter().zip(&ours).enumerate() {
            assert_eq!(pair.0, pair.1, "operation {index} of {text}");
        }
        assert_eq!(theirs.len(), ours.len(), "{text}");
    }
}

/// How often each block is read or written, most often first; reads, writes, syncs of both kinds; bytes.
fn summary(done: &[Done]) -> (Vec<usize>, BTreeMap<&'static str, usize>, u64) {
    let mut blocks: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    let mut kinds = BTreeMap::new();
    for (kind, file, offset, length) in done {
        *kinds.entry(*kind).or_default() += 1;
        if *length > 0 {
            *blocks.entry((file, *offset)).or_default() += 1;
        }
    }
    let mut often: Vec<usize> = blocks.into_values().collect();
    often.sort_unstable_by(|one, other| other.cmp(one));
    (often, kinds, done.iter().map(|done| done.3).sum())
}

#[test]
fn random_jobs_have_the_counts_of_fio() {
    if !has_fio() {
        return;
    }
    for text in [
        "[a]\nrw=randwrite\nsize=1m\nfsync=7\n",
        "[a]\nrw=randwrite\nbs=3000\nsize=100000\nloops=2\n",
        "[a]\nrw=randwrite\nsize=1m\nnrfiles=3\nfsync=9\n",
        "[a]\nrw=randread\nbs=8k\nsize=1m\nio_size=3m\n",
        "[a]\nrw=randwrite\nsize=1m\nnumber_ios=100\nend_fsync=1\n",
    ] {
        let (theirs, ours) = both(text);
        assert!(theirs.len() > 30, "{text}: {theirs:?}");
        assert_eq!(summary(&theirs), summary(&ours), "{text}");
    }
}

/// Where random numbers decide, shares are near to each other: which blocks are popular, and how many are written at all.
#[test]
fn distributions_are_those_of_fio() {
    if !has_fio() {
        return;
    }
    // fio's Zipf is an approximation that is up to a tenth off, and its scattering lets some ranks meet in one block.
    for (tolerance, text) in [
        (0.08, "[a]\nrw=randwrite\nsize=4m\nnorandommap\nio_size=32m\nfsync=256\n"),
        (0.12, "[a]\nrw=randwrite\nsize=4m\nrandom_distribution=zipf:0.9\nio_size=32m\nfsync=256\n"),
        (0.12, "[a]\nrw=randwrite\nsize=4m\nrandom_distribution=zipf:1.2\nio_size=32m\n"),
        (0.06, "[a]\nrw=randwrite\nsize=4m\nrandom_distribution=pareto:0.2\nio_size=32m\n"),
        (0.06, "[a]\nrw=randrw\nsize=16m\nrwmixread=70\n"),
        (0.25, "[a]\nrw=randrw\nsize=32m\nrwmixread=30\nfsync=16\n"),
    ] {
        let (theirs, ours) = both(text);
        let ((their_often, their_kinds, their_bytes), (our_often, our_kinds, our_bytes)) =
            (summary(&theirs), summary(&ours));
        assert_eq!(their_bytes, our_bytes, "{text}");
        let near = |one: usize, other: usize, what: &str| {
            let off = one.abs_diff(other) as f64 / one.max(1) as f64;
            assert!(off < tolerance, "{text}: {what} {one} with fio and {other} here");
        };
        near(their_often.len(), our_often.len(), "distinct blocks");
        for (kind, count) in &their_kinds {
            near(*count, our_kinds.get(kind).copied().unwrap_or_default(), kind);
        }
        for first in [10, 100, 500] {
            let sum = |often: &[usize]| often.iter().take(first).sum::<usize>();
            near(sum(&their_often), sum(&our_often), &format!("accesses to the first {first} blocks"));
        }
    }
}

/// The example of `experiments/`: two jobs side by side.
#[test]
fn the_example_does_the_same_with_fio() {
    if !has_fio() {
        return;
    }
    let example = std::path::absolute("../../experiments/log-and-table.fio").unwrap();
    let example = example.to_str().unwrap();
    let place = tempfile::tempdir().unwrap();
    let output =
        Command::new("fio").args(["--output-format=json", example]).current_dir(place.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ours = ours(example);
    for (index, file) in ["table.0.0", "log.0.0"].into_iter().enumerate() {
        let job = &report["jobs"][index];
        let mine: Vec<Done> = ours.iter().filter(|done| done.1 == file).cloned().collect();
        let (_, kinds, bytes) = summary(&mine);
        let their = |kind: &str, what: &str| job[kind][what].as_u64().unwrap();
        assert_eq!(their("read", "io_bytes") + their("write", "io_bytes"), bytes, "{file}");
        let count = |kind: &str| kinds.get(kind).copied().unwrap_or_default() as u64;
        for kind in ["read", "write"] {
            let (theirs, ours) = (their(kind, "total_ios"), count(kind));
            assert!(theirs.abs_diff(ours) * 10 <= theirs, "{file}: {theirs} {kind}s with fio and {ours} here");
        }
        // fio's report counts no fdatasync. Reads that happen to come behind an n-th write bring one more fsync each.
        let syncs = [their("sync", "total_ios"), count("sync")];
        assert!(syncs[0].abs_diff(syncs[1]) <= 15, "{file}: {syncs:?}");
        assert_eq!(place.path().join(file).metadata().unwrap().len(), if index == 0 { 48 << 20 } else { 8 << 20 });
    }
}
