//! Job files of fio: what is read, what is refused, and what they do.

use std::collections::HashMap;

use basalt_workloads::{Files, Kind, Limit, Operation, Phase, Settings, Unobserved, VfsFiles, by_name, run};

use crate::job_files::{complaint, operations, workload, write};
use crate::support::{SIZE, Volume};

const ALL: usize = usize::MAX;

fn settings() -> Settings {
    Settings { size_bytes: SIZE, seed: 3, ..Settings::default() }
}

/// The operations that a text does once it has been laid out.
fn measured(text: &str, options: &str) -> Vec<Operation> {
    let mut workload = workload("t.fio", text, options, &settings()).unwrap_or_else(|error| panic!("{error}"));
    operations(&mut *workload, Phase::Prepare, ALL);
    operations(&mut *workload, Phase::Measure, ALL)
}

fn count(operations: &[Operation], kind: Kind) -> usize {
    operations.iter().filter(|operation| operation.kind() == kind).count()
}

/// Reads and writes as (file, offset, length).
fn ranges(operations: &[Operation]) -> Vec<(u32, u64, u32)> {
    let range = |operation: &Operation| match operation {
        Operation::Read { file, offset, length } | Operation::Write { file, offset, length } => {
            Some((file.0, *offset, *length))
        }
        _ => None,
    };
    operations.iter().filter_map(range).collect()
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let long = format!("[a]\nsize=1m\nfilename={}\n", "x".repeat(300));
    for (text, line) in [
        ("", "t.fio:1: there is no job; write `[name]` and its options"),
        ("[global]\nsize=1m\n", "t.fio:2: there is no job; write `[name]` and its options"),
        ("size=1m\n[a]\n", "t.fio:1: `size=1m` stands before the first `[job]`"),
        ("[a\nsize=1m", "t.fio:1: `[a` is not `[name]`"),
        ("[]\nsize=1m", "t.fio:1: `[]` is not `[name]`"),
        ("\n[a]\nrw=write", "t.fio:2: the job has no `size`; say how large its files are"),
        (
            "[a]\nsize=1m\nrw=trimwrite",
            "t.fio:3: rw: `trimwrite` is not read, write, rw, randread, randwrite or randrw",
        ),
        (
            "[a]\nsize=1m\nrw=randwrite:8",
            "t.fio:3: rw: `randwrite:8` is not read, write, rw, randread, randwrite or randrw",
        ),
        ("[a]\nsize=1m\nfoo=3", "t.fio:3: option `foo` is not known or not supported"),
        ("[global]\nbssplit=4k/50\n[a]\nsize=1m", "t.fio:2: option `bssplit` is not known or not supported"),
        ("[a]\nsize=1m\ninclude x.fio", "t.fio:3: option `include x.fio` is not known or not supported"),
        ("[a]\nsize=1m\nverify=crc32c", "t.fio:3: `verify=crc32c` is not supported: it changes the operations"),
        ("[a]\nsize=1m\nsync=1", "t.fio:3: `sync=1` is not supported: it changes the operations"),
        ("[a]\nsize=12x", "t.fio:2: size: `12x` is not a size such as 64m or 12% (of the volume)"),
        ("[a]\nsize=101%", "t.fio:2: size: `101%` is not a size such as 64m or 12% (of the volume)"),
        (
            "[a]\nsize=99999999999999999999",
            "t.fio:2: size: `99999999999999999999` is not a size such as 64m or 12% (of the volume)",
        ),
        ("[a]\nsize=2k", "t.fio:2: size: 2048 bytes are less than one request of 4096"),
        ("[a]\nsize=8k\nnrfiles=4", "t.fio:1: size: 2048 bytes a file are less than one request of 4096"),
        (
            "[a]\nsize=1m\nrw=rw\nbs=4k,1m\nnrfiles=16\ntime_based\nruntime=1",
            "t.fio:1: size: 65536 bytes a file are less than one request of 1048576",
        ),
        ("[a]\nsize=1m\nbs=0", "t.fio:3: bs: `0` is not a size to 1g, or one for reads and one for writes"),
        ("[a]\nsize=1m\nbs=2g", "t.fio:3: bs: `2g` is not a size to 1g, or one for reads and one for writes"),
        ("[a]\nsize=1m\nrw=randrw\nbs=4k,8k", "t.fio:4: bs: randrw needs one size for reads and writes"),
        ("[a]\nsize=8000t\nrw=randwrite\nbs=512", "t.fio:1: 17179869184000 blocks at random are more than 4294967295"),
        ("[a]\nsize=1m\nfsync=often", "t.fio:3: fsync: `often` is not a number from 0 to 18446744073709551615"),
        ("[a]\nsize=1m\nend_fsync=yes", "t.fio:3: end_fsync: `yes` is not 0 or 1"),
        ("[a]\nsize=1m\nrwmixread=101", "t.fio:3: rwmixread: `101` is not a number from 0 to 100"),
        ("[a]\nsize=1m\nnumjobs=1001", "t.fio:3: numjobs: `1001` is not a number from 1 to 1000"),
        ("[a]\nsize=1m\nnumjobs=900\n[b]\nsize=1m\nnumjobs=900", "t.fio:4: more than 1000 threads; lower numjobs"),
        ("[a]\nsize=1g\nnumjobs=100\nnrfiles=200", "t.fio:1: more than 10000 open files; lower numjobs or nrfiles"),
        ("[a]\nsize=1m\nfilename=a:b\nnrfiles=3", "t.fio:4: nrfiles: filename has 2; name as many, or none"),
        ("[a]\nsize=1m\nfilename=../x", "t.fio:3: `../x` leaves the target; name a path without `..`"),
        ("[a]\nsize=1m\ndirectory=/a/../b", "t.fio:3: `/a/../b` leaves the target; name a path without `..`"),
        ("[a]\nsize=1m\nfilename=a:", "t.fio:3: filename: a name is empty"),
        ("[a]\nsize=1m\nfilename=a:a/b", "t.fio: option filename: `a` is a file and a directory"),
        ("[a]\nsize=1m\nfilename=/dummy/x", "t.fio:3: `dummy` is in use by the lab itself; use another name"),
        (&long, "t.fio:3: a name is longer than 255 bytes, or a path longer than 4000"),
        ("[a]\nsize=${SIZE}", "t.fio:2: `size`: variables are not supported; write the value itself"),
        (
            "[a]\nsize=1m\nioengine=rbd",
            "t.fio:3: ioengine: `rbd` is not an engine that reads and writes files, as psync or libaio",
        ),
        (
            "[a]\nsize=1m\nrandom_distribution=zoned:50/5",
            "t.fio:3: random_distribution: `zoned:50/5` is not random, zipf:THETA (to 5) or pareto:H (between 0 and 1)",
        ),
        (
            "[a]\nsize=1m\nrandom_distribution=zipf",
            "t.fio:3: random_distribution: `zipf` is not random, zipf:THETA (to 5) or pareto:H (between 0 and 1)",
        ),
        (
            "[a]\nsize=1m\nrandom_distribution=zipf:nan",
            "t.fio:3: random_distribution: `zipf:nan` is not random, zipf:THETA (to 5) or pareto:H (between 0 and 1)",
        ),
        (
            "[a]\nsize=1m\nruntime=60",
            "t.fio:3: runtime: it would cut the job off by the clock, which workloads do not have; add time_based or remove it",
        ),
        (
            "[a]\nsize=1m\n[b]\nsize=1m\nthinktime=100",
            "t.fio:3: [a] and [b] run side by side at different paces (``, `thinktime=100`), and a workload has no clock; give both one pace",
        ),
    ] {
        assert_eq!(complaint("t.fio", text, &settings()), line, "{text}");
    }
}

#[test]
fn hostile_files_are_one_line_and_cost_nothing() {
    let place = tempfile::tempdir().unwrap();
    let refused = |path: &str| match by_name(path, &settings()) {
        Err(error) => error.to_string(),
        Ok(workload) => panic!("{}", workload.name()),
    };
    let big = place.path().join("big.fio");
    std::fs::File::create(&big).unwrap().set_len(1 << 30).unwrap();
    assert!(refused(big.to_str().unwrap()).ends_with("big.fio: is larger than 1048576 bytes; a job file is not"));
    assert!(
        refused(place.path().to_str().unwrap())
            .ends_with("is not a file; a workload is a name, or a job file of fio or Filebench")
    );
    assert!(refused("/dev/zero").ends_with("is not a file; a workload is a name, or a job file of fio or Filebench"));
    assert!(refused("missing.fio").starts_with("missing.fio: No such file"));
    let binary = place.path().join("binary.fio");
    std::fs::write(&binary, [0x5B, 0xFF, 0x00, 0x5D]).unwrap();
    assert!(refused(binary.to_str().unwrap()).ends_with("binary.fio: is not text (UTF-8)"));
    let many: String = (0..2000).map(|job| format!("[j{job}]\n")).collect();
    assert_eq!(complaint("t.fio", &many, &settings()), "t.fio:1001: more than 1000 jobs");
    let many: String = (0..2000).map(|option| format!("o{option}=1\n")).collect();
    assert_eq!(complaint("t.fio", &format!("[a]\n{many}"), &settings()), "t.fio:1002: more than 1000 options");
}

#[test]
fn every_option_of_the_subset_is_read() {
    let text = "; a comment\n# another\n[global]\nioengine=libaio ; a remark\niodepth=32\ndirect=1\ngroup_reporting\ntime_based\n\
        bs=4k\nsize=1m\ndirectory=/mnt/disk\nrandrepeat=0\nthinktime=10\nverify=0\n[a]\nreadwrite=randwrite\nnumjobs=2\nfsync=8\n\
        [b]\nstonewall\nname=other\nrw=read\nblocksize=64k\nnrfiles=2\n";
    let mut workload = workload("t.fio", text, "", &settings()).unwrap_or_else(|error| panic!("{error}"));
    let plan = workload.plan();
    // Two threads of 1 MiB that only write, and 1 MiB to read.
    assert_eq!((plan.initial_bytes, plan.peak_bytes, plan.files), (1 << 20, 3 << 20, 4 + 2));
    assert_eq!((plan.age, plan.measure), (Limit::Operations(0), Limit::Operations(u64::MAX)));
    let made = operations(&mut *workload, Phase::Prepare, ALL);
    assert_eq!(
        made[..2],
        [Operation::MakeDirectory("mnt".to_owned()), Operation::MakeDirectory("mnt/disk".to_owned())]
    );
    assert!(made.contains(&Operation::Create(basalt_workloads::File(0), "mnt/disk/other.0.1".to_owned())));
    assert_eq!((count(&made, Kind::Create), count(&made, Kind::Truncate), count(&made, Kind::Write)), (4, 2, 2));
    let done = operations(&mut *workload, Phase::Measure, ALL);
    assert_eq!(count(&done, Kind::Write), 2 * 256);
    // None behind the last write: as fio.
    assert_eq!(count(&done, Kind::Fsync), 2 * 31);
    assert_eq!(count(&done, Kind::Read), 16);
    let first_read = done.iter().position(|operation| operation.kind() == Kind::Read).unwrap();
    let last_write = done.iter().rposition(|operation| operation.kind() == Kind::Write).unwrap();
    assert!(last_write < first_read, "stonewall waits");
    // Options behind the path replace those of all jobs.
    let done = measured(text, ":size=25%,io_size=64k");
    assert_eq!((count(&done, Kind::Write), count(&done, Kind::Read)), (2 * 16, 1));
}

/// Threads take turns, one operation each.
#[test]
fn jobs_side_by_side_are_interleaved() {
    let done = measured("[a]\nrw=write\nsize=16k\nnumjobs=3\n", "");
    let order: Vec<u32> = ranges(&done).iter().map(|range| range.0).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
    assert_eq!((count(&done, Kind::Open), count(&done, Kind::Close)), (3, 3));
}

/// Without norandommap, every block is written once a pass, in another order each time; with it, some twice.
#[test]
fn the_random_map_writes_each_block_once_a_pass() {
    let text = "[a]\nrw=randwrite\nsize=4m\nloops=3\nnrfiles=2\n";
    let done = ranges(&measured(text, ""));
    assert_eq!(done.len(), 3 * 1024);
    let passes: Vec<Vec<(u32, u64, u32)>> = done.chunks(1024).map(<[_]>::to_vec).collect();
    for pass in &passes {
        let mut sorted = pass.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 1024);
        assert!(sorted.iter().all(|(file, offset, length)| *file < 2 && *offset < 2 << 20 && *length == 4096));
        assert_ne!(*pass, sorted);
    }
    assert!(passes[0] != passes[1] && passes[1] != passes[2]);
    let mut any = ranges(&measured(text, ":norandommap=1,loops=1"));
    assert_eq!(any.len(), 1024);
    any.sort_unstable();
    any.dedup();
    // 1 - 1/e of the blocks are hit.
    assert!((600..700).contains(&any.len()), "{}", any.len());
}

/// How often blocks are written, the most popular first.
fn popularity(offsets: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    offsets.for_each(|offset| *counts.entry(offset).or_default() += 1);
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts
}

/// The share of writes of the most popular blocks is that of the built-in workload, within a fiftieth of all writes.
#[test]
fn zipf_is_that_of_the_built_in_workload() {
    let text =
        "[a]\nrw=randwrite\nbs=4k\nsize=32m\nrandom_distribution=zipf:0.99\nfsync=256\nio_size=400m\noverwrite=1\n";
    let done = measured(text, "");
    let writes = count(&done, Kind::Write);
    assert_eq!((writes, count(&done, Kind::Fsync)), (102_400, 102_400 / 256 - 1));
    let mut built_in = by_name("zipf:0.99,set=32M", &settings()).unwrap();
    operations(&mut *built_in, Phase::Prepare, ALL);
    let theirs = operations(&mut *built_in, Phase::Measure, writes);
    let popular = [&done, &theirs].map(|operations| popularity(ranges(operations).into_iter().map(|range| range.1)));
    for first in [1, 10, 100, 1000, 4000, 8192] {
        let share = |counts: &Vec<u64>| counts.iter().take(first).sum::<u64>() as f64 / writes as f64;
        let (file, built_in) = (share(&popular[0]), share(&popular[1]));
        assert!((file - built_in).abs() < 0.02, "the first {first}: {file} and {built_in}");
    }
    // It is skewed, and scattered.
    assert!(popular[0][0] > 8000, "{}", popular[0][0]);
    let first = ranges(&done).iter().filter(|range| range.1 < 3 << 20).count();
    assert!(first < writes / 4, "{first}");
}

/// fio's Pareto: 80 % of the accesses on 20 % of the blocks, with a parameter of 0.2.
#[test]
fn pareto_has_its_shares() {
    let done = measured("[a]\nrw=randwrite\nsize=32m\nrandom_distribution=pareto:0.2\nio_size=200m\n", "");
    let counts = popularity(ranges(&done).into_iter().map(|range| range.1));
    let share = counts.iter().take(8192 / 5).sum::<u64>() as f64 / done.len() as f64;
    assert!((share - 0.8).abs() < 0.02, "{share}");
}

/// Reads and writes are mixed as asked for; fsyncs come by the number of writes.
#[test]
fn mixed_jobs_have_their_share_of_reads() {
    let done = measured("[a]\nrw=randrw\nsize=16m\nrwmixwrite=30\nfdatasync=10\n", "");
    let (reads, writes) = (count(&done, Kind::Read), count(&done, Kind::Write));
    assert_eq!(reads + writes, 4096);
    assert!((1130..1330).contains(&writes), "{writes}");
    // As fio: again behind each read that follows the n-th write, before the next write.
    let syncs = count(&done, Kind::Fdatasync);
    assert!((writes / 10 * 2..writes / 10 * 5).contains(&syncs), "{syncs}");
    // In order, reads and writes each go on from where the last was.
    let done = measured("[a]\nrw=rw\nsize=16m\n", "");
    for kind in [Kind::Read, Kind::Write] {
        let some: Vec<Operation> = done.iter().filter(|operation| operation.kind() == kind).cloned().collect();
        assert!(ranges(&some).iter().enumerate().all(|(index, range)| range.1 == index as u64 * 4096));
    }
}

/// A job with a time goes on until the phase ends, as the built-in workloads.
#[test]
fn endless_jobs_have_the_length_of_the_phase() {
    let mut endless = workload("t.fio", "[a]\nrw=write\nsize=1m\ntime_based\nruntime=60\n", "", &settings()).unwrap();
    assert_eq!(endless.plan().measure, Limit::Bytes(SIZE / 8));
    operations(&mut *endless, Phase::Prepare, ALL);
    assert_eq!(operations(&mut *endless, Phase::Measure, 10_000).len(), 10_000);
    let mut ends = workload("t.fio", "[a]\nrw=write\nsize=1m\nnumber_ios=100\n", "", &settings()).unwrap();
    assert_eq!(ranges(&operations(&mut *ends, Phase::Measure, ALL)).len(), 100);
}

/// On an engine: what is read is what was written, the same every time, another with another seed; the volume is sound.
#[test]
fn jobs_run_on_an_engine() {
    let place = tempfile::tempdir().unwrap();
    let text = "[global]\ndirectory=/srv\nbs=8k\n[w]\nrw=randwrite\nsize=8m\nfsync=16\nnumjobs=2\nend_fsync=1\n[m]\nrw=randrw\nsize=4m\n\
        nrfiles=3\n[big]\nstonewall\nrw=write\nbs=3m\nsize=12m\n";
    let path = write(place.path(), "t.fio", text);
    let mut hashes = Vec::new();
    for seed in [1, 1, 2] {
        let settings = Settings { seed, verify: true, dummy_bytes: Some(1 << 20), ..settings() };
        let mut workload = by_name(&path, &settings).unwrap();
        assert_eq!(workload.name(), path);
        let volume = Volume::new();
        let mut files = VfsFiles::new(volume.engine.clone());
        let report = run(&mut *workload, &settings, &mut files, &mut Unobserved).unwrap();
        assert!(report.measure.written_bytes >= (16 << 20) + (12 << 20), "{report:?}");
        assert!(report.verified_bytes >= 32 << 20, "{report:?}");
        assert_eq!(files.stat("srv/big.0.0").unwrap(), 12 << 20);
        hashes.push(report.measure.operation_hash);
        drop(files);
        volume.close_and_check("fio");
    }
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2]);
}

/// What does not fit is refused before anything is written.
#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let line = complaint("t.fio", "[a]\nrw=write\nsize=8000t\n", &settings());
    assert!(line.contains("its files need 8796093022208000 bytes, and the whole volume has 268435456"), "{line}");
    let place = tempfile::tempdir().unwrap();
    let path = write(place.path(), "t.fio", "[a]\nrw=write\nsize=200m\n");
    let settings = settings();
    let mut workload = by_name(&path, &settings).unwrap();
    let volume = Volume::new();
    let mut files = VfsFiles::new(volume.engine.clone());
    let error = run(&mut *workload, &settings, &mut files, &mut Unobserved).unwrap_err().to_string();
    assert!(error.contains("its files need 210138726 bytes, and 85 % of the free space leave"), "{error}");
    let names: Vec<String> = files.list("").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["lost+found"]);
}
