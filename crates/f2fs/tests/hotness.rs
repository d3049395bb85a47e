//! Hotness records: what a placement knows comes back when the volume is opened again, and is never in the way.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, Request, RequestKind};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_segments::placement::{Hints, Policy, Recalled, SegmentHints};
use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, Segment, StaticPlacement};
use basalt_vfs::{Caller, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, Time};

const BLOCK: u64 = 4096;
/// Blocks of the volume in front of segment 0.
const BEFORE: u64 = 512;

/// As F2FS, and counts the blocks of data that were written to each segment since it was free.
static COUNTS: Policy = Policy { name: "counts", about: "static", make: |_| Some(Box::new(Counts::default())) };
/// The same under another name.
static OTHER: Policy = Policy { name: "counts2", about: "static", make: |_| Some(Box::new(Counts::default())) };

#[derive(Default)]
struct Counts(Mutex<BTreeMap<Segment, u16>>);

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
        *self.0.lock().unwrap().entry(place.segment()).or_default() += u16::from(!block.node && !block.of_directory);
    }

    fn note_free(&self, segment: Segment) {
        self.0.lock().unwrap().remove(&segment);
    }

    fn hints(&self, most: usize) -> Option<Hints> {
        let all = self.0.lock().unwrap();
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
    let hole = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    fs.fallocate(ino, hole, 1000 * BLOCK, 100 * BLOCK).unwrap();
    write(&fs, "more", 0..100);
    fs.close().unwrap();
    let (_, after) = told(&device, &COUNTS).unwrap();
    let live = |segments: &BTreeMap<u32, (Vec<u8>, u32)>| segments.values().map(|(_, live)| live).sum::<u32>();
    let dropped: BTreeMap<_, _> =
        before.iter().filter(|(at, _)| !after.contains_key(at)).map(|(at, one)| (*at, one.clone())).collect();
    assert_eq!(dropped.len(), 1, "the open segment of the log went on: {dropped:?}");
    assert_eq!(live(&before) - live(&dropped) - live(&after), 100);
    assert!(after.iter().all(|(at, (bytes, _))| before[at].0 == *bytes));
}

#[test]
fn those_of_another_policy_or_volume_do_not_count() {
    let device = written(0);
    assert_eq!(told(&device, &OTHER), None);
    let records = before_segment_0(&device);
    let other = formatted(0);
    other.write_at(16 * BLOCK, &records).unwrap();
    assert_eq!(told(&other, &COUNTS), None, "the UUID is another");
    // The other policy's take their place, in turns.
    for _ in 0..2 {
        let fs = open(&device, &OTHER);
        write(&fs, "file", 0..4096);
        fs.close().unwrap();
    }
    assert!(told(&device, &OTHER).is_some());
    assert_eq!(told(&device, &COUNTS), None);
}

#[test]
fn torn_records_leave_those_of_before() {
    let device = written(0);
    let (_, first) = told(&device, &COUNTS).unwrap();
    let before = before_segment_0(&device);
    let fs = open(&device, &COUNTS);
    write(&fs, "second", 0..2048);
    fs.close().unwrap();
    let (_, second) = told(&device, &COUNTS).unwrap();
    assert_ne!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    let after = before_segment_0(&device);
    let changed: Vec<usize> =
        (0..before.len() / 4096).filter(|at| before[at * 4096..][..4096] != after[at * 4096..][..4096]).collect();
    assert!(changed.len() >= 2, "{changed:?}");
    for torn in &changed {
        let copy = Arc::new(device.snapshot());
        copy.write_at((16 + *torn as u64) * BLOCK, &before[torn * 4096..][..4096]).unwrap();
        let (_, left) = told(&copy, &COUNTS).unwrap();
        assert!(left.keys().all(|at| first.contains_key(at)), "block {torn}");
        assert_clean(&copy);
    }
    // All of it: nothing comes back, and nothing else is lost.
    device.write_at(16 * BLOCK, &vec![0xFF; before.len()]).unwrap();
    assert_eq!(told(&device, &COUNTS), None);
    assert_clean(&device);
}

#[test]
fn the_journal_stays_whole() {
    // As long as it can be: there is no room for records.
    let most = (BEFORE - 17) * BLOCK;
    let device = formatted(most);
    let fs = open(&device, &COUNTS);
    write(&fs, "file", 0..4096);
    fs.close().unwrap();
    assert_eq!(fs.statistics().hotness.blocks, 0);
    assert_eq!(told(&device, &COUNTS), None);
    // With room, records begin behind it. Also where it is not used.
    for journal in [true, false] {
        let device = formatted(1 << 20);
        let before = before_segment_0(&device);
        let fs = open_with(device.clone(), OpenOptions { placement: &COUNTS, journal, ..OpenOptions::default() });
        write(&fs, "file", 0..4096);
        fs.close().unwrap();
        assert!(fs.statistics().hotness.blocks > 0);
        let after = before_segment_0(&device);
        let own = (1 + (1 << 20) / BLOCK as usize) * BLOCK as usize;
        assert!(before[..own] == after[..own], "journal {journal}");
        assert!(told(&device, &COUNTS).is_some());
    }
}

#[test]
fn little_that_was_written_is_not_worth_it() {
    let device = written(0);
    let before = before_segment_0(&device);
    let fs = open(&device, &COUNTS);
    write(&fs, "little", 0..40);
    fs.close().unwrap();
    assert_eq!((fs.statistics().hotness.blocks, before_segment_0(&device) == before), (0, true));
    // Nor is anything of F2FS's.
    let fs = open(&device, OpenOptions::default().placement);
    write(&fs, "file", 0..4096);
    fs.close().unwrap();
    assert!(before_segment_0(&device) == before);
    // Nor where nothing may be written.
    let fs = open_with(device.clone(), OpenOptions { placement: &COUNTS, read_only: true, ..OpenOptions::default() });
    fs.close().unwrap();
    assert!(before_segment_0(&device) == before);
}

/// A power cut takes what was learned since the last records, and these are kept once in a while.
#[test]
fn records_are_kept_while_the_volume_is_open() {
    let device = formatted(0);
    let fs = open(&device, &COUNTS);
    let tick = |seconds| _ = fs.tick(Time { seconds, nanoseconds: 0 });
    tick(1_000_000);
    write(&fs, "file", 0..1000);
    tick(1_000_100);
    let blocks = |fs: &F2fs| fs.statistics().hotness.blocks;
    let first = blocks(&fs);
    assert!(first > 0, "512 blocks are due for at least 8");
    write(&fs, "file", 1000..1000 + 63 * first.max(8) - 100);
    tick(1_000_200);
    assert_eq!(blocks(&fs), first, "64 times as much was not written");
    write(&fs, "file", 0..400);
    tick(1_000_300);
    assert!(blocks(&fs) > first);
    let written = fs.statistics().written;
    assert!(written.metadata_blocks > blocks(&fs) && blocks(&fs) > 0);
    // The power fails.
    let (_, segments) = told(&device, &COUNTS).unwrap();
    assert!(!segments.is_empty());
    drop(fs);
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

/// Without a journal nobody has said that the blocks in front of segment 0 are Basalt's: a boot loader there stays.
#[test]
fn what_somebody_else_keeps_there_stays() {
    for (block, byte) in [(17, 1), (300, 1), (511, 9), (17, 0xFF)] {
        let device = formatted(0);
        device.write_at(block * BLOCK + 77, &[byte]).unwrap();
        let before = before_segment_0(&device);
        let fs = open(&device, &COUNTS);
        let tick = |seconds| _ = fs.tick(Time { seconds, nanoseconds: 0 });
        for round in 1..4 {
            write(&fs, "file", 0..4096);
            tick(1_000_000 + 100 * round);
        }
        fs.close().unwrap();
        let after = before_segment_0(&device);
        let changed = before.iter().zip(&after).enumerate().find(|(_, (was, is))| **was != 0 && was != is);
        assert_eq!(changed, None, "block {block}");
        assert_clean(&device);
    }
    // Erased flash holds nothing.
    let device = formatted(0);
    device.write_at(17 * BLOCK, &vec![0xFF; ((BEFORE - 17) * BLOCK) as usize]).unwrap();
    let fs = open(&device, &COUNTS);
    write(&fs, "file", 0..4096);
    fs.close().unwrap();
    assert!(told(&device, &COUNTS).is_some());
    // A journal says it.
    let device = formatted(256 << 10);
    device.write_at(400 * BLOCK, b"left by what was on the card before").unwrap();
    let fs = open(&device, &COUNTS);
    write(&fs, "file", 0..4096);
    fs.close().unwrap();
    assert!(told(&device, &COUNTS).is_some());
}
