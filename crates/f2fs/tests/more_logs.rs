//! Placements with many logs, with logs for nodes, and what a placement hears.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use basalt_device::{MemoryDevice, RecordingDevice, RequestKind};
use basalt_f2fs::Geometry;
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_segments::placement::Policy;
use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, SegmentKind, StaticPlacement};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};

const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

/// Direct nodes of every file in a log of its own.
struct Nodes;

impl Placement for Nodes {
    fn more_logs(&self) -> &[SegmentKind] {
        &[SegmentKind::WarmNode]
    }
    fn log(&self, block: &BlockTraits) -> LogId {
        if block.node && block.direct_node && !block.of_directory && block.file != 0 {
            LogId::more(0)
        } else {
            StaticPlacement::default().log(block)
        }
    }
}

static NODES: Policy = Policy::new("nodes", "", |_| Ok(Box::new(Nodes)));

fn memory(mib: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(mib << 20, 512));
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| {}).unwrap();
    device
}

/// Nodes of a file are written back before its fsync: more than may be dirty.
fn fsynced_survives(placement: &'static Policy) {
    let device = memory(256);
    let options = || OpenOptions { placement, cache_bytes: 1 << 20, ..OpenOptions::default() };
    let fs = F2fs::open(device.clone(), options(), Arc::new(SystemClock)).unwrap();
    let ino = fs.create(fs.root(), b"file", &FILE, &Caller::default()).unwrap().ino;
    fs.sync().unwrap();
    let at = |index: u64| index * 1018 * 4096 + (8 << 20);
    for index in 0..400 {
        assert_eq!(fs.write(ino, at(index), &[7; 4096], false).unwrap(), 4096);
    }
    fs.sync_file(ino, false).unwrap();
    let cut = Arc::new(device.snapshot());
    drop(fs);
    let fs = F2fs::open(cut, options(), Arc::new(SystemClock)).unwrap();
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    let mut lost = 0;
    for index in 0..400 {
        let mut bytes = [0; 4096];
        fs.read(ino, at(index), &mut bytes).unwrap();
        lost += u32::from(bytes != [7; 4096]);
    }
    assert_eq!(lost, 0, "of 400 blocks that were fsynced");
}

#[test]
fn fsynced_survives_default() {
    fsynced_survives(<&Policy>::default());
}

#[test]
fn fsynced_survives_nodes_in_another_log() {
    fsynced_survives(&NODES);
}

/// Data of files in groups by number, each group with a log of its own.
struct Many;

const MANY: usize = 24;

static KINDS: [SegmentKind; MANY] = [SegmentKind::WarmData; MANY];

impl Placement for Many {
    fn more_logs(&self) -> &[SegmentKind] {
        &KINDS
    }
    fn log(&self, block: &BlockTraits) -> LogId {
        if block.node || block.of_directory {
            return StaticPlacement::default().log(block);
        }
        LogId::more((block.file % MANY as u32) as u8)
    }
}

static GROUPS: Policy = Policy::new("many", "", |_| Ok(Box::new(Many)));

/// Each group has begun a segment when the volume fills up.
fn fills_up(placement: &'static Policy, mib: u64) {
    let device = memory(mib);
    let options = OpenOptions { placement, cache_bytes: 4 << 20, ..OpenOptions::default() };
    let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
    let create = |name: String| fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).map(|made| made.ino);
    for number in 0..MANY {
        let ino = create(format!("begin {number}")).unwrap();
        fs.write(ino, 0, &[1; 8192], false).unwrap();
        fs.sync_file(ino, false).unwrap();
    }
    fs.sync().unwrap();
    // From here on files of one group only, as far as the numbers go.
    let mut files: Vec<(u64, u64)> = Vec::new();
    let mut number = 0;
    let full = loop {
        number += 1;
        let ino = match create(format!("file {number}")) {
            Ok(ino) => ino,
            Err(error) => break format!("creating: {error}"),
        };
        if ino % MANY as u64 != 5 % MANY as u64 {
            continue;
        }
        match fs.write(ino, 0, &vec![2; 64 * 4096], false) {
            Ok(count) => files.push((ino, count as u64 / 4096)),
            Err(error) => break format!("writing: {error}"),
        }
        if number % 50 == 0
            && let Err(error) = fs.sync()
        {
            break format!("sync: {error}");
        }
    };
    println!("{full}; {} files, {:?}", files.len(), fs.info().states);
    fs.sync().unwrap();
    let mut rng = Rng::new(1);
    for round in 0..2000 {
        let (ino, blocks) = files[rng.index(files.len())];
        if blocks == 0 {
            continue;
        }
        let at = rng.below(blocks) * 4096;
        let written = fs.write(ino, at, &[7; 4096], false);
        assert_eq!(written.ok(), Some(4096), "round {round}: {:?} {:?}", fs.failure(), fs.info().states);
        if round % 50 == 0 {
            fs.sync().unwrap_or_else(|error| panic!("round {round}: sync: {error}"));
        }
    }
    fs.close().unwrap();
}

#[test]
fn so_does_one_with_six() {
    fills_up(<&Policy>::default(), 128);
}

#[test]
fn a_volume_with_many_logs_fills_up_and_goes_on() {
    fills_up(&GROUPS, 128);
}

type Recorded = RecordingDevice<Arc<MemoryDevice>>;

/// How many blocks of the SSA were written since this was asked last. What is on the device is sound.
fn summaries_written(device: &Recorded) -> u64 {
    let geometry = Geometry::read(&**device.inner()).unwrap().0;
    let first = u64::from(geometry.ssa) << 12;
    let area = first..first + (u64::from(geometry.ssa_segments) << 21);
    let requests = device.take();
    let writes = requests.iter().filter(|it| it.kind == RequestKind::Write && area.contains(&it.offset));
    let bytes: u64 = writes.map(|write| write.length).sum();
    let report = check(&device.inner().snapshot(), &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
    bytes / 4096
}

#[test]
fn a_checkpoint_writes_summaries_of_logs_that_have_grown() {
    let device: Arc<Recorded> = Arc::new(RecordingDevice::new(memory(128), false));
    let options = OpenOptions { placement: &GROUPS, ..OpenOptions::default() };
    let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
    let create = |name: String| fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
    let files: Vec<u64> = (0..MANY).map(|number| create(format!("file {number}"))).collect();
    let groups: BTreeSet<u64> = files.iter().map(|ino| ino % MANY as u64).collect();
    files.iter().for_each(|&ino| assert_eq!(fs.write(ino, 0, &[1; 8192], false).unwrap(), 8192));
    fs.sync().unwrap();
    assert_eq!(summaries_written(&device), groups.len() as u64);

    create("empty".to_owned());
    fs.sync().unwrap();
    assert_eq!(summaries_written(&device), 0, "nothing went to these logs");

    for round in 0..3 {
        fs.write(files[0], 4096, &[2; 4096], false).unwrap();
        fs.sync().unwrap();
        assert_eq!(summaries_written(&device), 1, "round {round}: one log has grown");
    }
    fs.close().unwrap();
    assert_eq!(summaries_written(&device), 0);
}

/// All that such a log has written is dead: a checkpoint, which does not name the log, has its segment among the free ones.
#[test]
fn a_segment_of_which_all_is_dead_is_free_at_a_checkpoint() {
    let device = memory(128);
    let options = OpenOptions { placement: &GROUPS, ..OpenOptions::default() };
    let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
    for round in 0..3 {
        let names: Vec<String> = (0..MANY).map(|number| format!("file {round} {number}")).collect();
        for name in &names {
            let ino = fs.create(fs.root(), name.as_bytes(), &FILE, &Caller::default()).unwrap().ino;
            assert_eq!(fs.write(ino, 0, &[1; 8192], false).unwrap(), 8192);
        }
        fs.sync().unwrap();
        names.iter().for_each(|name| fs.unlink(fs.root(), name.as_bytes()).unwrap());
        fs.sync().unwrap();
        let report = check(&device.snapshot(), &CheckOptions::default(), &mut |_| ()).unwrap();
        assert!(report.is_clean(), "round {round}: {:?}", report.faults);
    }
    fs.close().unwrap();
    let report = check(&*device, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}

static UNTOLD: AtomicU64 = AtomicU64::new(0);

/// Counts blocks that die and were never told of.
#[derive(Default)]
struct Ledger(Mutex<BTreeSet<MainBlock>>);

impl Placement for Ledger {
    fn log(&self, block: &BlockTraits) -> LogId {
        StaticPlacement::default().log(block)
    }
    fn note_written(&self, _: &BlockTraits, place: MainBlock) {
        self.0.lock().unwrap().insert(place);
    }
    fn note_dead(&self, place: MainBlock) {
        UNTOLD.fetch_add(u64::from(!self.0.lock().unwrap().remove(&place)), Relaxed);
    }
}

static LEDGER: Policy = Policy::new("ledger", "", |_| Ok(Box::new(Ledger::default())));

#[test]
fn a_placement_hears_of_every_block_that_dies_later() {
    let device = memory(128);
    let options = OpenOptions { placement: &LEDGER, ..OpenOptions::default() };
    let fs = F2fs::open(device, options, Arc::new(SystemClock)).unwrap();
    let ino = fs.create(fs.root(), b"file", &FILE, &Caller::default()).unwrap().ino;
    fs.write(ino, 0, &[1; 8192], false).unwrap();
    fs.sync().unwrap();
    let before = UNTOLD.load(Relaxed);
    for byte in 0..100 {
        fs.write(ino, 0, &[byte; 4096], false).unwrap();
        fs.sync_file(ino, false).unwrap();
    }
    assert_eq!(UNTOLD.load(Relaxed) - before, 0, "of 100 fsyncs");
}
