//! Placements of all sorts: whatever they answer, the volume stays whole, and what they are told is so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use basalt_device::{BlockDevice, DeviceLayer, MemoryDevice, Result};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_segments::placement::Policy;
use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, Reason, Segment, SegmentKind, StaticPlacement};
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, Error, FileKind, FileSystem, InodeNumber, NewNode};

const BLOCK: usize = 4096;
const FILE: NewNode<'_> = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };

fn formatted(mib: u64, journal_bytes: u64) -> MemoryDevice {
    let device = MemoryDevice::new(mib << 20, 512);
    let options = FormatOptions { discard_reads_zeros: true, journal_bytes, ..FormatOptions::default() };
    format(&device, &options, &mut |_, _| ()).unwrap();
    device
}

fn open(device: Arc<dyn BlockDevice>, placement: &'static Policy) -> F2fs {
    let options = OpenOptions { placement, cache_bytes: 8 << 20, discard: false, ..OpenOptions::default() };
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap()
}

fn expect_clean(device: &dyn BlockDevice) {
    let report = check(device, &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}

fn create(fs: &F2fs, number: usize) -> InodeNumber {
    fs.create(fs.root(), format!("file {number}").as_bytes(), &FILE, &Caller::default()).unwrap().ino
}

fn write(fs: &F2fs, ino: InodeNumber, block: usize, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        done += fs.write(ino, (block * BLOCK + done) as u64, &data[done..], false).unwrap();
    }
}

fn content(fs: &F2fs, number: usize) -> Vec<u8> {
    let ino = fs.lookup(fs.root(), format!("file {number}").as_bytes()).unwrap().ino;
    let mut bytes = vec![0; fs.attributes(ino).unwrap().size as usize];
    let mut done = 0;
    while done < bytes.len() {
        done += fs.read(ino, done as u64, &mut bytes[done..]).unwrap();
    }
    bytes
}

const FILES: usize = 12;
const BLOCKS: usize = 1200;

/// Makes `steps` random changes of files. Returns what the files hold at the end.
fn change(fs: &F2fs, seed: u64, steps: u32) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(seed);
    let inos: Vec<InodeNumber> = (0..FILES).map(|number| create(fs, number)).collect();
    let mut model = vec![Vec::new(); FILES];
    for _ in 0..steps {
        let file = rng.below(FILES as u64) as usize;
        match rng.below(40) {
            0 => fs.sync().unwrap(),
            1..6 => fs.sync_file(inos[file], false).unwrap(),
            _ => {
                let most = if rng.chance(25) { 64 } else { 4 };
                let count = 1 + rng.below(most) as usize;
                let block = rng.below((BLOCKS - count) as u64) as usize;
                let data = vec![rng.below(255) as u8 + 1; count * BLOCK];
                write(fs, inos[file], block, &data);
                let now: &mut Vec<u8> = &mut model[file];
                now.resize(now.len().max((block + count) * BLOCK), 0);
                now[block * BLOCK..][..data.len()].copy_from_slice(&data);
            }
        }
    }
    model
}

fn expect_content(fs: &F2fs, model: &[Vec<u8>]) {
    for (number, expected) in model.iter().enumerate() {
        assert!(content(fs, number) == *expected, "file {number}");
    }
}

/// Answers with logs of the other class, and with logs that are not there.
struct Wrong;

static WRONG: Policy = Policy::new("wrong", "never a log that may be", |_| Ok(Box::new(Wrong)));

impl Placement for Wrong {
    fn more_logs(&self) -> &[SegmentKind] {
        &[SegmentKind::HotNode, SegmentKind::ColdData]
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        let (recorded, more) = if block.node { (SegmentKind::WarmData, 1) } else { (SegmentKind::ColdNode, 0) };
        match (block.file + block.index) % 3 {
            0 => LogId::of(recorded),
            1 => LogId::more(more),
            _ => LogId::more(77),
        }
    }
}

#[test]
fn an_answer_that_cannot_be_counts_as_that_of_the_static_placement() {
    let device = Arc::new(formatted(128, FormatOptions::DEFAULT_JOURNAL_BYTES));
    let fs = open(device.clone(), &WRONG);
    let model = change(&fs, 3, 1500);
    fs.close().unwrap();
    expect_clean(&*device);
    let fs = open(device, <&Policy>::default());
    expect_content(&fs, &model);
}

/// Direct nodes of files have a log of their own, all but those of no file.
struct Nodes;

static NODES: Policy = Policy::new("nodes", "nodes apart", |_| Ok(Box::new(Nodes)));

impl Placement for Nodes {
    fn more_logs(&self) -> &[SegmentKind] {
        &[SegmentKind::WarmNode]
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        let is_chained = block.node && block.direct_node && !block.of_directory && block.file != 0;
        if is_chained { LogId::more(0) } else { StaticPlacement::default().log(block) }
    }
}

/// Recovery follows the recorded log of warm nodes alone.
#[test]
fn what_was_fsynced_is_found_wherever_the_placement_wants_nodes() {
    let device = Arc::new(formatted(128, 0));
    let fs = open(device.clone(), &NODES);
    let mut model = change(&fs, 4, 300);
    fs.sync().unwrap();
    let mut rng = Rng::new(5);
    for round in 0..12 {
        let file = rng.below(FILES as u64) as usize;
        let ino = fs.lookup(fs.root(), format!("file {file}").as_bytes()).unwrap().ino;
        let (block, byte) = (rng.below(model[file].len() as u64 / BLOCK as u64) as usize, round + 1);
        write(&fs, ino, block, &[byte; BLOCK]);
        model[file][block * BLOCK..][..BLOCK].fill(byte);
        fs.sync_file(ino, false).unwrap();
        let after = open(Arc::new(device.snapshot()), &NODES);
        assert!(content(&after, file) == model[file], "round {round}: file {file}");
    }
    fs.close().unwrap();
    expect_clean(&*device);
}

/// What a device has written and not flushed.
struct Flushed(MemoryDevice);

static UNFLUSHED: AtomicBool = AtomicBool::new(false);
static FREED: AtomicU32 = AtomicU32::new(0);

impl DeviceLayer for Flushed {
    type Below = MemoryDevice;
    fn below(&self) -> &MemoryDevice {
        &self.0
    }
    fn on_flush(&self) -> Result<()> {
        UNFLUSHED.store(false, SeqCst);
        self.0.flush()
    }
    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        UNFLUSHED.store(true, SeqCst);
        self.0.write_vectored_at(offset, slices)
    }
}

/// Looks at the device when it hears of a free segment.
struct Free;

static FREE: Policy = Policy::new("free", "the static one", |_| Ok(Box::new(Free)));

impl Placement for Free {
    fn log(&self, block: &BlockTraits) -> LogId {
        StaticPlacement::default().log(block)
    }

    fn note_free(&self, segment: Segment) {
        assert!(!UNFLUSHED.load(SeqCst), "segment {segment} is told to be free before the checkpoint is durable");
        FREED.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_segment_is_told_to_be_free_once_that_is_durable() {
    let fs = open(Arc::new(Flushed(formatted(128, 0))), &FREE);
    change(&fs, 6, 4000);
    fs.close().unwrap();
    assert!(FREED.load(SeqCst) > 10, "{FREED:?} segments freed");
}

/// Compares everything that it is told with what it was told before.
#[derive(Default)]
struct Exact(Mutex<Told>);

static EXACT: Policy = Policy::new("exact", "files by number", |_| Ok(Box::new(Exact::default())));
static COPIED: AtomicU32 = AtomicU32::new(0);

#[derive(Default)]
struct Told {
    /// The block of a file at each place, as file and index.
    live: BTreeMap<MainBlock, (u32, u32)>,
    places: BTreeMap<(u32, u32), MainBlock>,
    /// Where the block was that was written last: nothing comes before the news of its death.
    leaving: Option<MainBlock>,
    /// Segments that are neither a log's nor free.
    sealed: BTreeSet<Segment>,
}

impl Placement for Exact {
    fn more_logs(&self) -> &[SegmentKind] {
        &[SegmentKind::WarmData, SegmentKind::HotData, SegmentKind::ColdData]
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        match block.reason {
            _ if block.node || block.of_directory => StaticPlacement::default().log(block),
            Reason::Cleaning => LogId::more(2),
            Reason::Writeback | Reason::Fsync => LogId::more((block.file % 2) as u8),
        }
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        let mut told = self.0.lock().unwrap();
        assert_eq!(told.leaving, None, "what was overwritten before {place} is not told to be dead");
        let is_open = !told.sealed.contains(&place.segment());
        assert!(is_open, "segment {} is sealed, but gets a block", place.segment());
        if !block.node {
            let owner = (block.file, block.index);
            assert_eq!(told.live.insert(place, owner), None, "place {place} is live already");
            told.leaving = told.places.insert(owner, place);
            // Where those lay that were there at opening was not told.
            assert!(told.leaving.is_none() || told.leaving == block.from, "{block:?} lay at {:?}", told.leaving);
        }
        COPIED.fetch_add(u32::from(block.reason == Reason::Cleaning), SeqCst);
    }

    fn note_dead(&self, place: MainBlock) {
        let mut told = self.0.lock().unwrap();
        if let Some(left) = told.leaving.take() {
            assert_eq!(left, place, "another block dies than the one that was written");
        }
        if let Some(owner) = told.live.remove(&place)
            && told.places.get(&owner) == Some(&place)
        {
            told.places.remove(&owner);
        }
    }

    fn note_sealed(&self, log: LogId, segment: Segment) {
        assert!(self.0.lock().unwrap().sealed.insert(segment), "log {log:?} seals segment {segment} once more");
    }

    fn note_free(&self, segment: Segment) {
        let mut told = self.0.lock().unwrap();
        told.sealed.remove(&segment);
        let (first, last) = (MainBlock::in_segment(segment, 0), MainBlock::in_segment(segment, 511));
        assert_eq!(told.live.range(first..=last).next(), None, "something is live in segment {segment}");
    }
}

#[test]
fn what_a_placement_is_told_adds_up() {
    for journal_bytes in [0, FormatOptions::DEFAULT_JOURNAL_BYTES] {
        let device = Arc::new(formatted(128, journal_bytes));
        let fs = open(device.clone(), &EXACT);
        let model = change(&fs, 7, 3000);
        for number in [2, 5] {
            fs.unlink(fs.root(), format!("file {number}").as_bytes()).unwrap();
        }
        fs.close().unwrap();
        expect_clean(&*device);
        let fs = open(device, &EXACT);
        let rest: Vec<usize> = (0..FILES).filter(|number| ![2, 5].contains(number)).collect();
        assert!(rest.into_iter().all(|number| content(&fs, number) == model[number]));
    }
    assert!(COPIED.load(SeqCst) > 1000, "{COPIED:?} blocks copied");
}

/// Segments that the journal frees are free without a checkpoint: of them, too, is told.
#[test]
fn what_the_journal_frees_is_told() {
    let device = Arc::new(MemoryDevice::new(96 << 20, 512));
    let journal_bytes = 256 << 10;
    let overprovision_percent = Some(30.0);
    let options =
        FormatOptions { discard_reads_zeros: true, journal_bytes, overprovision_percent, ..FormatOptions::default() };
    format(&*device, &options, &mut |_, _| ()).unwrap();
    let options = OpenOptions {
        placement: &EXACT,
        cache_bytes: 1 << 20,
        pre_invalid_bytes: Some(1 << 30),
        sections_per_commit: Some(1),
        ..OpenOptions::default()
    };
    let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
    let files = fs.stat_fs().unwrap().available * 85 / 100 / 256;
    let inos: Vec<InodeNumber> = (0..files as usize).map(|number| create(&fs, number)).collect();
    inos.iter().for_each(|ino| write(&fs, *ino, 0, &vec![1; 256 * BLOCK]));
    fs.sync().unwrap();
    let mut rng = Rng::new(9);
    for _ in 0..20_000 {
        write(&fs, inos[rng.index(inos.len())], rng.below(256) as usize, &[2; BLOCK]);
    }
    let commits = fs.statistics().cleaning.total().journal_commits;
    assert!(commits > 10, "{commits} commits of the journal");
    fs.close().unwrap();
    expect_clean(&*device);
}

/// More logs than the volume has segments.
struct Many;

static MANY: Policy = Policy::new("many", "each block its log", |_| Ok(Box::new(Many)));

impl Placement for Many {
    fn more_logs(&self) -> &[SegmentKind] {
        &[SegmentKind::WarmData; 100]
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if block.node { StaticPlacement::default().log(block) } else { LogId::more((block.index % 100) as u8) }
    }
}

/// Its logs take what nobody else needs: space for users is as without them.
#[test]
fn more_logs_than_segments_take_no_room_from_others() {
    let device = Arc::new(formatted(64, 0));
    let fs = open(device.clone(), &MANY);
    let mut written = Vec::new();
    for number in 0.. {
        let Ok(made) = fs.create(fs.root(), format!("file {number}").as_bytes(), &FILE, &Caller::default()) else {
            break;
        };
        match fs.write(made.ino, 0, &vec![7; 100 * BLOCK], false) {
            Ok(length) => written.push((made.ino, length)),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("file {number}: {error}"),
        }
    }
    let mut rng = Rng::new(8);
    for step in 0..3000 {
        let (ino, length) = written[rng.below(written.len() as u64) as usize];
        let at = rng.below((length / BLOCK) as u64) * BLOCK as u64;
        let overwritten = fs.write(ino, at, &[9; BLOCK], false);
        assert!(overwritten.is_ok(), "step {step}: overwriting takes no space, but {overwritten:?}");
        if rng.below(50) == 0 {
            fs.sync_file(ino, false).unwrap();
        }
    }
    fs.close().unwrap();
    expect_clean(&*device);
}

/// As F2FS has it, with an ear for its limit of memory.
static LIMITED: Policy = Policy::new("limited", "as static", |_| Ok(Box::new(Limited)));
static LIMIT: AtomicUsize = AtomicUsize::new(0);

struct Limited;

impl Placement for Limited {
    fn log(&self, block: &BlockTraits) -> LogId {
        StaticPlacement::default().log(block)
    }

    fn limit_memory(&self, bytes: usize) {
        LIMIT.store(bytes, SeqCst);
    }
}

#[test]
fn a_placement_may_take_an_eighth_of_the_cache_besides() {
    open(Arc::new(formatted(64, 0)), &LIMITED).close().unwrap();
    assert_eq!(LIMIT.load(SeqCst), 1 << 20);
}
