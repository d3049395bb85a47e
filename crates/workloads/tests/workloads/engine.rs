//! Every workload on the F2FS engine, on a memory device of 256 MiB.

use crate::support::{SIZE, Volume, clock};
use basalt_workloads::{Files, Kind, Limit, Phase, Settings, Unobserved, VfsFiles, by_name, list, run};

/// Every workload in each of its shapes.
pub const SHAPES: [&str; 20] = [
    "zipf",
    "zipf:0.8,set=30%,request=16K",
    "uniform",
    "hotcold",
    "sequential",
    "tpcc",
    "tpcc:log=0",
    "res",
    "ycsb-a",
    "fileserver",
    "varmail",
    "postmark:transactions=2000",
    "postmark:classic,transactions=2000",
    "sysbench:16K,set=20M",
    "create-files",
    "copy-files:files=50",
    "create-delete:threads=4",
    "file-update",
    "file-update:random",
    "mobile",
];

pub fn settings(utilization: u32) -> Settings {
    Settings {
        size_bytes: SIZE,
        utilization_percent: utilization,
        seed: 7,
        age: Some(Limit::Bytes(2 << 20)),
        measure: Some(Limit::Bytes(6 << 20)),
        verify: true,
        ..Settings::default()
    }
}

#[test]
fn every_workload_is_tested() {
    for description in list() {
        let tested = SHAPES.iter().any(|shape| shape.split(':').next() == Some(description.name));
        assert!(tested, "{} has no test", description.name);
    }
}

/// At 85 %, some at 60 %: it runs, what it reads is what it wrote, the volume is as full as asked for, and sound behind it.
#[test]
fn workloads_run_and_leave_a_sound_volume() {
    for shape in SHAPES {
        let emptier = ["zipf", "fileserver", "mobile"].contains(&shape);
        for utilization in [Some(85), emptier.then_some(60)].into_iter().flatten() {
            let settings = settings(utilization);
            let mut workload = by_name(shape, &settings).unwrap();
            let volume = Volume::new();
            let mut files = VfsFiles::new(volume.engine.clone());
            let free = files.free_bytes().unwrap();
            let mut clock = clock(&volume.engine);
            let report = run(&mut *workload, &settings, &mut files, &mut clock)
                .unwrap_or_else(|error| panic!("{shape} at {utilization} %: {error}"));
            let name = format!("{shape} at {utilization} %, seed {}", settings.seed);
            assert!(report.measure.operations > 0 && report.measure.written_bytes > 0, "{name}: {report:?}");
            assert_eq!(report.measure.phase, Phase::Measure);
            assert!(report.verified_bytes > 0 || shape.starts_with("postmark"), "{name}");
            assert!((report.utilization_percent - f64::from(utilization)).abs() < 1.5, "{name}: {report:?}");
            // Set and dummy data together stay near what was asked for while the workload runs.
            let used = 100.0 - files.free_bytes().unwrap() as f64 * 100.0 / free as f64;
            assert!(used < f64::from(utilization) + 2.0, "{name}: {used:.1} % at the end");
            let counted: u64 = report.measure.kinds.iter().map(|kind| kind.latency.count).sum();
            assert_eq!(counted, report.measure.operations, "{name}");
            drop(files);
            volume.close_and_check(&name);
        }
    }
}

/// The same seed gives the same operations and the same bytes on the device; another seed gives others.
#[test]
fn same_seed_same_operations_and_same_device() {
    for shape in SHAPES {
        let once = |seed| {
            // Made for a smaller volume, which takes less time.
            let size_bytes = SIZE / 4;
            let settings = Settings { size_bytes, seed, verify: false, dummy_bytes: Some(4 << 20), ..settings(80) };
            let mut workload = by_name(shape, &settings).unwrap();
            let volume = Volume::new();
            let mut files = VfsFiles::new(volume.engine.clone());
            let mut clock = clock(&volume.engine);
            let report = run(&mut *workload, &settings, &mut files, &mut clock).unwrap();
            drop(files);
            let hashes: Vec<u64> = report.before.iter().map(|phase| phase.operation_hash).collect();
            (hashes, report.measure.operation_hash, volume.content_hash())
        };
        let first = once(3);
        assert_eq!(first, once(3), "{shape}");
        let other = once(4);
        // What has no choices does the same for every seed, with other content.
        if !shape.starts_with("sequential") && !shape.starts_with("sysbench") {
            assert_ne!(first.1, other.1, "{shape}");
        }
        assert_ne!(first.2, other.2, "{shape}");
    }
}

/// The operations do not depend on how large the file system says it is, only on the settings.
#[test]
fn operations_do_not_depend_on_the_target() {
    for shape in ["zipf", "fileserver", "mobile"] {
        let settings = Settings { dummy_bytes: Some(16 << 20), ..settings(85) };
        let hash = |volume: &Volume| {
            let mut workload = by_name(shape, &settings).unwrap();
            let mut files = VfsFiles::new(volume.engine.clone());
            let report = run(&mut *workload, &settings, &mut files, &mut Unobserved).unwrap();
            assert_eq!(report.dummy_bytes, 16 << 20);
            let before: Vec<u64> = report.before.iter().map(|phase| phase.operation_hash).collect();
            (before, report.measure.operation_hash, report.measure.written_bytes)
        };
        assert_eq!(hash(&Volume::new()), hash(&Volume::of_size(2 * SIZE)), "{shape}");
    }
}

#[test]
fn what_cannot_fit_is_refused_before_anything_is_written() {
    let settings = settings(60);
    let mut workload = by_name("uniform:set=50%", &settings).unwrap();
    let volume = Volume::new();
    let mut files = VfsFiles::new(volume.engine.clone());
    let error = run(&mut *workload, &settings, &mut files, &mut Unobserved).unwrap_err();
    let line = error.to_string();
    assert!(line.starts_with("uniform:set=") && line.contains("60 % of the free space leave"), "{line}");
    assert!(error.is_no_space());
    assert_eq!(files.list("").unwrap().iter().filter(|entry| entry.name != "lost+found").count(), 0);
}

/// A volume that somebody else fills meanwhile: the error names the workload, the phase and the utilization.
#[test]
fn a_full_volume_is_said_to_be_full() {
    let settings = Settings { measure: Some(Limit::Bytes(400 << 20)), ..settings(85) };
    let mut workload = by_name("create-files:files=100,mean=16K", &settings).unwrap();
    let volume = Volume::new();
    let mut files = VfsFiles::new(volume.engine.clone());
    let mut clock = crate::support::Filler { engine: volume.engine.clone(), filled: false };
    let error = run(&mut *workload, &settings, &mut files, &mut clock).unwrap_err();
    let line = error.to_string();
    assert!(line.contains("create-files") && line.contains("measure phase at 85 % utilization"), "{line}");
}

#[test]
fn limits_end_a_phase() {
    let volume = Volume::new();
    let settings = Settings { measure: Some(Limit::Operations(500)), age: Some(Limit::Bytes(0)), ..settings(80) };
    let mut workload = by_name("zipf", &settings).unwrap();
    let mut files = VfsFiles::new(volume.engine.clone());
    let mut clock = clock(&volume.engine);
    let report = run(&mut *workload, &settings, &mut files, &mut clock).unwrap();
    // 500, and the sync that ends each phase.
    assert_eq!(report.measure.operations, 501);
    assert_eq!(report.measure.kind(Kind::Write).unwrap().bytes, report.measure.written_bytes);
    assert_eq!(report.before.len(), 2, "no ageing phase");

    let volume = Volume::new();
    let settings = Settings { measure: Some(Limit::Nanoseconds(2_000_000)), ..settings };
    let mut workload = by_name("zipf", &settings).unwrap();
    let mut files = VfsFiles::new(volume.engine.clone());
    let mut clock = crate::support::clock(&volume.engine);
    let report = run(&mut *workload, &settings, &mut files, &mut clock).unwrap();
    // The clock of the test takes 500 ns a look, three of them an operation.
    assert!((1250..1400).contains(&report.measure.operations), "{}", report.measure.operations);
    assert_eq!(report.measure.kind(Kind::Write).unwrap().latency.p50_ns, 500);
}

#[test]
fn wrong_specifications_are_one_clear_line() {
    let settings = settings(80);
    for (text, wanted) in [
        ("zipff", "there is no workload `zipff`; there are zipf, uniform"),
        ("zipf:x", "value `x` is not a number from 0 to 5"),
        ("zipf:0.9,sett=3", "has no option `sett`"),
        ("uniform:3", "takes no value `3`"),
        ("uniform:set=150%", "set `150%` is not a size"),
        ("uniform:set=1K,set=2K", "`set` is given twice"),
        ("zipf:0.9,0.8", "`0.8` is no option"),
        ("hotcold:110/3", "is not writes/blocks in percent"),
        ("postmark:modern", "there is no shape `modern`"),
        ("create-files:files=0", "files `0` is not a number from 1"),
        ("uniform:set=1T", "need"),
    ] {
        let line = by_name(text, &settings).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(line.contains(wanted) && !line.contains('\n'), "{text}: {line}");
    }
    let small = Settings { size_bytes: 1 << 20, ..settings.clone() };
    assert!(by_name("zipf", &small).is_err());
    let over = Settings { utilization_percent: 101, ..settings };
    assert!(by_name("zipf", &over).is_err());
}
