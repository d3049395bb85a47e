//! Threads that overlap in time: by hand on a made-up workload, and on the engine.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_flash::device::{Curve, DeviceKind, DeviceModel, Direction, Parallelism};
use basalt_flash::{TimedDevice, VirtualClock, preset};
use basalt_lab::engine::{EngineRun, EngineSettings, run};
use basalt_lab::experiment::{Kind as PointKind, Point};
use basalt_workloads::files::Entry;
use basalt_workloads::{
    Error, Event, File, Files, Handle, Kind, Limit, Observer, Operation, Phase, PhaseReport, Plan, Result, Runner,
    Settings, Space, Workload, by_name,
};

/// Bytes of a file and of a request.
const FILE: u64 = 1 << 20;
const PAGE: u32 = 4096;

/// Two units with stripes of a page; one takes 1000 us to write a page and 100 to read one. A flush takes 5000.
fn model() -> DeviceModel {
    let direction = |bandwidth: f64| {
        let curve = Curve { latency_us: 0.0, points: vec![(512, bandwidth)] };
        Direction { streams: 1, sequential: curve.clone(), random: curve }
    };
    DeviceModel {
        name: "round".into(),
        description: "for tests".into(),
        source: "made up".into(),
        kind: DeviceKind::Other,
        capacity_bytes: None,
        flush_us: 5000.0,
        discard_us: 0.0,
        parallelism: Some(Parallelism { units: 2, stripe_bytes: PAGE }),
        read: direction(40.96),
        write: direction(4.096),
        flash: None,
    }
}

fn not_scripted<T>() -> Result<T> {
    Err(Error::Stopped("no script does this".to_owned()))
}

/// Files that are places on a device: nothing but the requests of the workload takes time.
struct Places(Arc<TimedDevice<MemoryDevice>>);

impl Files for Places {
    fn create(&mut self, path: &str) -> Result<Handle> {
        Ok(Handle::new(path.parse().unwrap()))
    }

    fn read(&mut self, file: Handle, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.0.read_at(file.number() as u64 * FILE + offset, buffer).unwrap();
        Ok(buffer.len())
    }

    fn write(&mut self, file: Handle, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write_at(file.number() as u64 * FILE + offset, data).unwrap();
        Ok(())
    }

    fn sync(&mut self, _: Handle, _: bool) -> Result<()> {
        self.0.flush().unwrap();
        Ok(())
    }

    fn sync_all(&mut self) -> Result<()> {
        self.0.flush().unwrap();
        Ok(())
    }

    fn space(&mut self) -> Result<Space> {
        Ok(Space { total: 1 << 30, free: 1 << 30 })
    }

    fn close(&mut self, _: Handle) {}

    fn open(&mut self, _: &str) -> Result<Handle> {
        not_scripted()
    }

    fn make_directory(&mut self, _: &str) -> Result<()> {
        not_scripted()
    }

    fn remove_directory(&mut self, _: &str) -> Result<()> {
        not_scripted()
    }

    fn truncate(&mut self, _: Handle, _: u64) -> Result<()> {
        not_scripted()
    }

    fn size(&mut self, _: Handle) -> Result<u64> {
        not_scripted()
    }

    fn stat(&mut self, _: &str) -> Result<u64> {
        not_scripted()
    }

    fn unlink(&mut self, _: &str) -> Result<()> {
        not_scripted()
    }

    fn rename(&mut self, _: &str, _: &str) -> Result<()> {
        not_scripted()
    }

    fn list(&mut self, _: &str) -> Result<Vec<Entry>> {
        not_scripted()
    }
}

/// Threads that each do the same thing some times, on a file of their own.
struct Script {
    prepared: usize,
    threads: Vec<(u32, Vec<Operation>)>,
    turn: usize,
}

impl Script {
    fn new(threads: &[(u32, &[Operation])]) -> Script {
        let threads = threads.iter().map(|(times, operations)| (*times, operations.to_vec())).collect();
        Script { prepared: 0, threads, turn: 0 }
    }
}

impl Workload for Script {
    fn name(&self) -> String {
        "script".to_owned()
    }

    fn plan(&self) -> Plan {
        let (age, measure) = (Limit::Bytes(0), Limit::Operations(1000));
        Plan { initial_bytes: 0, peak_bytes: 0, files: self.threads.len() as u64, age, measure }
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        if phase == Phase::Prepare {
            let file = self.prepared;
            self.prepared += 1;
            operations
                .extend((file < self.threads.len()).then(|| Operation::Create(File(file as u32), file.to_string())));
            return !operations.is_empty();
        }
        let count = self.threads.len();
        (0..count).any(|_| {
            let thread = self.turn;
            self.turn = (thread + 1) % count;
            self.step_thread(phase, thread, operations)
        })
    }

    fn threads(&self) -> usize {
        self.threads.len()
    }

    fn step_thread(&mut self, _: Phase, thread: usize, operations: &mut Vec<Operation>) -> bool {
        let (left, script) = &mut self.threads[thread];
        if *left > 0 {
            *left -= 1;
            operations.extend_from_slice(script);
        }
        !operations.is_empty()
    }
}

/// A clock that can be set. The first operation of one kind keeps others out until it ends.
struct Time {
    clock: VirtualClock,
    keeps_out: Option<Kind>,
    until: u64,
    /// Each operation of the measured phase, when it was asked for, and when it was done, in microseconds.
    events: Vec<(Kind, u64, u64)>,
}

impl Observer for Time {
    fn now(&mut self) -> u64 {
        self.clock.now()
    }

    fn resume(&mut self, time: u64) {
        self.clock.resume(time);
    }

    fn join(&mut self, time: u64) {
        self.clock.join(time);
    }

    fn held_until(&mut self) -> u64 {
        self.until
    }

    fn operation(&mut self, event: &Event) -> Result<()> {
        if event.phase == Phase::Measure {
            if self.keeps_out == Some(event.kind) {
                (self.keeps_out, self.until) = (None, event.end_ns);
            }
            self.events.push((event.kind, event.start_ns / 1000, event.end_ns / 1000));
        }
        Ok(())
    }
}

/// What came of a script: its report, its events, flushes made and flushes shared.
struct Played {
    report: PhaseReport,
    events: Vec<(Kind, u64, u64)>,
    flushes: (u64, u64),
}

fn play(script: &[(u32, &[Operation])], depth: u32, overlap: bool, keeps_out: Option<Kind>) -> Played {
    let clock = VirtualClock::new();
    let memory = MemoryDevice::new(8 * FILE, 512);
    let device = Arc::new(TimedDevice::new(memory, Arc::new(model()), clock.clone()).with_queue(depth));
    let mut files = Places(Arc::clone(&device));
    let mut workload = Script::new(script);
    let settings = Settings { dummy_bytes: Some(0), ..Settings::default() };
    let mut time = Time { clock, keeps_out, until: 0, events: Vec::new() };
    let mut runner = Runner::new(&mut workload, &settings, &mut files, &mut time).overlap(overlap);
    runner.prepare().unwrap();
    let report = runner.measure().unwrap();
    drop(runner);
    let statistics = device.statistics();
    // The sync at the end of each phase finds nothing to do.
    let made = statistics.flush.latency.iter_recorded().filter(|value| value.value_iterated_to() > 1);
    let flushes = (made.map(|value| value.count_at_value()).sum(), statistics.flushes_shared);
    Played { report, events: time.events, flushes }
}

/// Writes a page of the thread's file, on the unit of that number, and syncs.
fn write_and_sync(thread: u32) -> [Operation; 2] {
    let file = File(thread);
    let offset = u64::from(thread % 2) * u64::from(PAGE);
    [Operation::Write { file, offset, length: PAGE }, Operation::Sync(file)]
}

#[test]
fn two_threads_share_their_flushes() {
    let (first, second) = (write_and_sync(0), write_and_sync(1));
    let script: [(u32, &[Operation]); 2] = [(2, &first), (2, &second)];
    // One after the other: four times a write and a flush.
    let serial = play(&script, 2, false, None);
    assert_eq!((serial.report.elapsed_ns, serial.flushes), (24_000_000, (4, 0)));
    // Both write at the same time, and one flush is for both: 6 ms for each round.
    let overlapping = play(&script, 2, true, None);
    let (write, sync) = (Kind::Write, Kind::Fsync);
    let round = |from: u64| {
        [
            (write, from, from + 1000),
            (write, from, from + 1000),
            (sync, from + 1000, from + 6000),
            (sync, from + 1000, from + 6000),
        ]
    };
    let expected = [&round(0)[..], &round(6000), &[(Kind::Sync, 12_000, 12_000)]].concat();
    assert_eq!(overlapping.events, expected);
    assert_eq!((overlapping.report.elapsed_ns, overlapping.flushes), (12_000_000, (2, 2)));
    assert_eq!((overlapping.report.operations, overlapping.report.steps), (9, 4));
}

#[test]
fn a_device_that_serves_one_request_at_a_time_lets_them_wait() {
    let (first, second) = (write_and_sync(0), write_and_sync(1));
    let script: [(u32, &[Operation]); 2] = [(2, &first), (2, &second)];
    let played = play(&script, 1, true, None);
    let (write, sync) = (Kind::Write, Kind::Fsync);
    // The second write waits for the first; when it is done, the first one's flush is under way, so that each has its own.
    let expected = [
        (write, 0, 1000),
        (write, 0, 2000),
        (sync, 1000, 6000),
        (sync, 2000, 11_000),
        (write, 6000, 7000),
        (sync, 7000, 16_000),
        (write, 11_000, 12_000),
        (sync, 12_000, 21_000),
        (Kind::Sync, 21_000, 21_000),
    ];
    assert_eq!(played.events, expected);
    assert_eq!((played.report.elapsed_ns, played.flushes), (21_000_000, (4, 0)));
}

#[test]
fn who_keeps_others_out_holds_their_changes_and_not_their_reads() {
    let writer = write_and_sync(0);
    let other = [Operation::Write { file: File(1), offset: u64::from(PAGE), length: PAGE }];
    let reader = [Operation::Read { file: File(2), offset: u64::from(PAGE), length: PAGE }];
    let script: [(u32, &[Operation]); 3] = [(1, &writer), (2, &other), (12, &reader)];
    let played = play(&script, 4, true, Some(Kind::Fsync));
    let of = |kind| -> Vec<(u64, u64)> {
        let events = played.events.iter().filter(|event| event.0 == kind);
        events.map(|&(_, asked, done)| (asked, done)).collect()
    };
    assert_eq!(of(Kind::Fsync), [(1000, 6000)]);
    // The second write of the other thread is asked for at 1000, and waits for the fsync: its latency has the wait in it.
    assert_eq!(of(Kind::Write), [(0, 1000), (0, 1000), (1000, 7000)]);
    // The first read waits behind the write on its unit; none waits for the fsync.
    let reads = of(Kind::Read);
    assert_eq!((reads[0], reads[1], reads[11]), ((0, 1100), (1100, 1200), (2100, 2200)));
    assert_eq!(played.report.elapsed_ns, 7_000_000 + 5_000_000);
}

fn engine(threads: u32, overlap: bool) -> EngineSettings {
    let workload = Settings {
        size_bytes: 256 << 20,
        utilization_percent: 60,
        age: Some(Limit::Bytes(4 << 20)),
        measure: Some(Limit::Operations(200 * u64::from(threads))),
        ..Settings::default()
    };
    let mut settings = EngineSettings::new(preset("nvme").unwrap(), workload);
    settings.overlap = overlap;
    settings.queue_depth = 32;
    settings
}

fn run_named(name: &str, settings: &EngineSettings) -> EngineRun {
    let mut workload = by_name(name, &settings.workload).unwrap();
    run(workload.as_mut(), settings).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What one thread does is the same, whether it could overlap with others or not.
#[test]
fn one_thread_alone_takes_the_same_time() {
    let (serial, alone) =
        (run_named("varmail:threads=1", &engine(1, false)), run_named("varmail:threads=1", &engine(1, true)));
    assert_eq!(serial.workload.measure, alone.workload.measure);
    assert_eq!((serial.engine.written, &serial.device), (alone.engine.written, &alone.device));
}

#[test]
fn mail_threads_share_flushes_and_a_run_repeats() {
    let run = |overlap| {
        let mut settings = engine(16, overlap);
        settings.workload.verify = true;
        run_named("varmail:threads=16", &settings)
    };
    let (serial, overlapping, again) = (run(false), run(true), run(true));
    assert_eq!(format!("{overlapping:?}"), format!("{again:?}"));
    assert!(overlapping.workload.verified_bytes > 0);
    let flushes = |run: &EngineRun| (run.workload.measure.fsyncs, run.device.flush.requests, run.device.flushes_shared);
    let ((syncs, made, shared), (serial_syncs, serial_made, none)) = (flushes(&overlapping), flushes(&serial));
    assert!(none == 0 && serial_made > serial_syncs * 9 / 10, "{serial_made} flushes for {serial_syncs}");
    assert!(made * 2 < syncs && shared > made, "{made} flushes and {shared} shared ones for {syncs}");
    let speed = |run: &EngineRun| run.workload.measure.operations_per_second();
    assert!(speed(&overlapping) > speed(&serial) * 2.0, "{} and {}", speed(&overlapping), speed(&serial));
}

#[test]
fn processors_take_time_of_their_own() {
    let mut settings = engine(4, false);
    let free = run_named("varmail:threads=4", &settings);
    settings.processor_ns = 3000;
    let paid = run_named("varmail:threads=4", &settings);
    assert_eq!(free.device, paid.device);
    let blocks = (free.device.read.bytes + free.device.write.bytes) / u64::from(PAGE);
    let more = (paid.workload.measure.elapsed_ns - free.workload.measure.elapsed_ns) / 3000;
    // A part of a block is a block, and a file's end may be one.
    assert!((blocks..=blocks + free.device.read.requests).contains(&more), "{more} and {blocks}");
}

/// Workloads with threads, with a page cache, a translation layer that takes time, and cleaning.
#[test]
fn everything_goes_together() {
    for name in ["fileserver:threads=8", "ycsb-a"] {
        let mut settings = engine(8, true);
        settings.workload.utilization_percent = 80;
        settings.workload.verify = true;
        settings.layers = vec![basalt_flash::TranslationKind::PageLevel];
        settings.layer_time = true;
        settings.page_cache = Some(basalt_workloads::PageCacheSettings::new(32 << 20));
        settings.think = std::time::Duration::from_micros(20);
        let (first, second) = (run_named(name, &settings), run_named(name, &settings));
        assert_eq!(format!("{first:?}"), format!("{second:?}"), "{name}");
        assert!(first.workload.measure.operations >= 1600 && first.workload.verified_bytes > 0);
    }
}

/// A queue of connections in front of the device, and threads that have times of their own, are two models of the same.
#[test]
fn a_point_has_threads_or_connections() {
    let small =
        ["size=128M", "utilization=60", "age=0", "operations=200", "device=nvme", "workload=varmail:set=16M,threads=4"];
    let point = |more: &[&str]| Point::parse(PointKind::Engine, &[&small[..], more].concat()).unwrap().run();
    let refused = point(&["threads=overlap", "connections=4"]).unwrap_err();
    assert_eq!(refused, "connections: ask in turn, and threads=overlap has threads that do not");
    // Each of four asks again when it is answered, and the others, some of which ask for less, are served first.
    let update = |connections: &str| -> f64 {
        let measured = point(&[connections]).unwrap();
        measured.values().iter().find(|value| value.0 == "updates_mean_ns").unwrap().1
    };
    let ratio = update("connections=4") / update("connections=1");
    assert!((1.5..4.0).contains(&ratio), "{ratio}");
    let names = |more: &[&str]| -> Vec<&str> { point(more).unwrap().values().iter().map(|value| value.0).collect() };
    let (serial, overlapping) = (names(&["connections=4"]), names(&["threads=overlap"]));
    assert!(serial.contains(&"updates_p99_ns") && !serial.contains(&"flushes_shared"), "{serial:?}");
    assert!(!overlapping.contains(&"updates_p99_ns") && overlapping.contains(&"flushes_shared"), "{overlapping:?}");
}
