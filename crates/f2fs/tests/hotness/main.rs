//! Hotness records: what a placement knows comes back when the volume is opened again, and is never in the way.

mod others;
mod when;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, Request, RequestKind};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::resize::resize;
use basalt_f2fs::{Clock, F2fs, OpenOptions, SystemClock};
use basalt_segments::placement::{Hints, Policy, Recalled, SegmentHints};
use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, Segment, StaticPlacement};
use basalt_vfs::{Caller, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, Time};

const BLOCK: u64 = 4096;
/// Blocks of the volume in front of segment 0.
const BEFORE: u64 = 512;
const HOLE: FallocateMode = FallocateMode::PUNCH_HOLE.union(FallocateMode::KEEP_SIZE);

/// As F2FS, and counts the blocks of data that were written to each segment since it was free.
static COUNTS: Policy = Policy::new("counts", "static", |_| Ok(Box::new(Counts::default())));
/// The same under another name.
static OTHER: Policy = Policy::new("counts2", "static", |_| Ok(Box::new(Counts::default())));

/// As F2FS, and counts the nodes that were written to each segment since it was free.
static COUNTS_NODES: Policy =
    Policy::new("counts-nodes", "static", |_| Ok(Box::new(Counts { of_nodes: true, ..Counts::default() })));

/// Places blocks as F2FS does. Its hints take all the room that they may.
static FILLS: Policy = Policy::new("fills", "static", |_| Ok(Box::new(Fills)));

struct Fills;

impl Placement for Fills {
    fn log(&self, block: &BlockTraits) -> LogId {
        StaticPlacement::default().log(block)
    }

    fn hints(&self, most: usize) -> Option<Hints> {
        Some(Hints { general: vec![7; most], segments: Vec::new() })
    }

    fn recall(&self, general: &[u8], _: &[Recalled<'_>]) {
        TOLD.set(Some((general.to_vec(), BTreeMap::new())));
    }
}

#[derive(Default)]
struct Counts {
    of_nodes: bool,
    counts: Mutex<BTreeMap<Segment, u16>>,
}

/// What was told last: the general bytes, and each segment's bytes and live blocks.
type Told = Option<(Vec<u8>, BTreeMap<u32, (Vec<u8>, u32)>)>;

thread_local! {
    static TOLD: RefCell<Told> = const { RefCell::new(None) };
}

impl Placement for Counts {
    fn log(&self, block: &BlockTraits) -> LogId {
        StaticPlacement::default().log(block)
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        let counts = block.node == self.of_nodes && !block.of_directory;
        *self.counts.lock().unwrap().entry(place.segment()).or_default() += u16::from(counts);
    }

    fn note_free(&self, segment: Segment) {
        self.counts.lock().unwrap().remove(&segment);
    }

    fn hints(&self, most: usize) -> Option<Hints> {
        let all = self.counts.lock().unwrap();
        let counted = all.iter().filter(|(_, count)| **count > 0);
        let hints = |(segment, count): (&Segment, &u16)| SegmentHints {
            segment: *segment,
            // Large, so that records take blocks.
            bytes: count.to_le_bytes().repeat(700),
        };
        let most = most / (1400 + SegmentHints::OVERHEAD);
        Some(Hints { general: b"known".to_vec(), segments: counted.map(hints).take(most).collect() })
    }

    fn recall(&self, general: &[u8], segments: &[Recalled<'_>]) {
        let live = |one: &Recalled<'_>| (0..512).filter(|at| one.is_live(*at)).count() as u32;
        let told = segments.iter().map(|one| (one.segment.get(), (one.bytes.to_vec(), live(one)))).collect();
        TOLD.set(Some((general.to_vec(), told)));
    }
}

fn formatted(journal_bytes: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(128 << 20, 512));
    let options = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| {}).unwrap();
    device
}

fn open_with(device: Arc<dyn BlockDevice>, options: OpenOptions) -> F2fs {
    TOLD.set(None);
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap()
}

fn open(device: &Arc<MemoryDevice>, placement: &'static Policy) -> F2fs {
    open_with(device.clone(), OpenOptions { placement, ..OpenOptions::default() })
}

/// What was told when the volume was opened, of this policy.
fn told(device: &Arc<MemoryDevice>, placement: &'static Policy) -> Told {
    let options = OpenOptions { placement, read_only: false, ..OpenOptions::default() };
    drop(open_with(Arc::new(device.snapshot()), options));
    TOLD.take()
}

fn file(fs: &F2fs, name: &str) -> InodeNumber {
    if let Ok(found) = fs.lookup(fs.root(), name.as_bytes()) {
        return found.ino;
    }
    let new = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    fs.create(fs.root(), name.as_bytes(), &new, &Caller::default()).unwrap().ino
}

fn write(fs: &F2fs, name: &str, blocks: std::ops::Range<u64>) {
    let ino = file(fs, name);
    blocks.for_each(|block| _ = fs.write(ino, block * BLOCK, &[7; BLOCK as usize], false).unwrap());
    fs.sync().unwrap();
}

fn before_segment_0(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; ((BEFORE - 16) * BLOCK) as usize];
    device.read_at(16 * BLOCK, &mut bytes).unwrap();
    bytes
}

fn assert_clean(device: &MemoryDevice) {
    let report = check(device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}

/// A volume with records of some full segments.
fn written(journal_bytes: u64) -> Arc<MemoryDevice> {
    let device = formatted(journal_bytes);
    let fs = open(&device, &COUNTS);
    assert_eq!(TOLD.take(), None, "there are no records on a new volume");
    write(&fs, "file", 0..4000);
    fs.close().unwrap();
    assert!(fs.statistics().hotness.blocks >= 2);
    assert_clean(&device);
    device
}

#[test]
fn what_is_known_comes_back_with_live_blocks() {
    for journal in [0, 256 << 10] {
        let device = written(journal);
        let (general, segments) = told(&device, &COUNTS).unwrap();
        assert_eq!(general, b"known");
        assert!(segments.len() >= 8, "{}", segments.len());
        for (segment, (bytes, live)) in &segments {
            assert_eq!(bytes.len(), 1400, "segment {segment}");
            assert_eq!(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])), *live, "segment {segment}: all are live");
        }
        let fs = open(&device, &COUNTS);
        assert_eq!(fs.statistics().hotness.segments_recalled, segments.len() as u64);
        fs.close().unwrap();
        assert_eq!(told(&device, &COUNTS), Some((general, segments)), "nothing was written since");
    }
}

#[test]
fn segments_that_were_written_to_are_dropped_and_deaths_are_told() {
    let device = written(0);
    let (_, before) = told(&device, &COUNTS).unwrap();
    // Another system has no records, and leaves these alone.
    let fs = open(&device, OpenOptions::default().placement);
    assert_eq!(TOLD.take(), None);
    let ino = file(&fs, "file");
    fs.fallocate(ino, HOLE, 1000 * BLOCK, 100 * BLOCK).unwrap();
    write(&fs, "more", 0..100);
    fs.close().unwrap();
    let (_, after) = told(&device, &COUNTS).unwrap();
    let live = |segments: &BTreeMap<u32, (Vec<u8>, u32)>| segments.values().map(|(_, live)| live).sum::<u32>();
    let dropped: BTreeMap<_, _> =
        before.iter().filter(|(at, _)| !after.contains_key(at)).map(|(at, one)| (*at, one.clone())).collect();
    assert_eq!(dropped.len(), 1, "the open segment of the log went on: {dropped:?}");
    assert_eq!(live(&before) - live(&dropped) - live(&after), 100);
    assert!(after.iter().all(|(at, (bytes, _))| before[at].0 == *bytes));
    let fs = open(&device, &COUNTS);
    assert_eq!(fs.statistics().hotness.segments_recalled, after.len() as u64, "those that were dropped do not count");
}

/// The halves take turns, and whichever the newest records are in, they count.
#[test]
fn the_newest_records_count() {
    let device = formatted(0);
    let mut last = None;
    for round in 0..4 {
        let fs = open(&device, &COUNTS);
        write(&fs, &format!("file{round}"), 0..2000);
        fs.close().unwrap();
        let (_, segments) = told(&device, &COUNTS).unwrap();
        let newest = segments.keys().max().copied();
        assert!(newest > last, "round {round}: {newest:?} after {last:?}");
        last = newest;
    }
}

/// Also where a program has not waited until its data was written.
#[test]
fn what_is_written_at_closing_is_known() {
    let device = formatted(0);
    let fs = open(&device, &COUNTS);
    let ino = file(&fs, "file");
    (0..4000).for_each(|block| _ = fs.write(ino, block * BLOCK, &[7; BLOCK as usize], false).unwrap());
    fs.close().unwrap();
    let (_, segments) = told(&device, &COUNTS).unwrap();
    assert_eq!(segments.values().map(|(_, live)| live).sum::<u32>(), 4000);
}

/// The segments at the end are no more.
#[test]
fn records_of_segments_that_are_gone_are_dropped() {
    let device = formatted(0);
    let fs = open(&device, &COUNTS);
    write(&fs, "file", 0..14_000);
    fs.close().unwrap();
    let (_, before) = told(&device, &COUNTS).unwrap();
    let fs = open(&device, OpenOptions::default().placement);
    fs.unlink(fs.root(), b"file").unwrap();
    fs.close().unwrap();
    let (clock, size): (Arc<dyn Clock>, _) = (Arc::new(SystemClock), 72 << 20);
    let shrunk: Arc<dyn BlockDevice> = device.clone();
    let report = resize(&shrunk, size, &OpenOptions::default(), &clock, &mut |_, _, _| ()).unwrap();
    let segments = report.after.main_segments;
    assert!(before.keys().any(|at| *at >= segments), "of {segments}");
    let (_, after) = told(&device, &COUNTS).unwrap();
    assert!(after.is_empty(), "{after:?}");
    assert_clean(&device);
}

/// Neither a write that fails nor blocks that cannot be read, and so are not known to be free, are anybody's error.
#[test]
fn a_device_that_fails_costs_the_records_alone() {
    let memory = written(0);
    for fails in [RequestKind::Write, RequestKind::Read] {
        let device = Arc::new(FaultyDevice::new(memory.snapshot()));
        let is_own = move |request: &Request| {
            let is_there = (17 * BLOCK..BEFORE * BLOCK).contains(&request.offset);
            (request.kind == fails && is_there).then_some(ErrorKind::Other)
        };
        device.fail_when(is_own);
        let fs = open_with(device.clone(), OpenOptions { placement: &COUNTS, ..OpenOptions::default() });
        assert_eq!(TOLD.take().is_some(), fails == RequestKind::Write);
        write(&fs, "file", 0..4096);
        fs.close().unwrap();
        assert!(device.injected() > 0 && fs.failure().is_none());
        assert_eq!(fs.statistics().hotness.blocks, 0, "{fails:?}");
        assert_clean(device.inner());
    }
}
