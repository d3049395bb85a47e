//! What a placement takes of the processor for each block, apart from the engine: what the engine told it is recorded, and told again.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Atime, F2fs, OpenOptions, SystemClock};
use basalt_flash::device::forgetful::{FORGETTABLE, ForgetfulDevice};
use basalt_segments::placement::{PlacementOptions, Policy};
use basalt_segments::{
    BlockTraits, LogId, MainBlock, PageTemperatures, Placement, Reason, SectionView, Segment, SegmentKind, Touches,
};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode};
use basalt_workloads::Stream;

use crate::{BLOCK, Failure, Figure, figure, seconds_since, used};

/// The volume, and the share of it that is overwritten: cleaning goes on all the time.
const DEVICE: u64 = 2 << 30;
const SHARE: u64 = 85;
/// Writes for each block of the file before anything is measured, and measured ones.
const AGED: u64 = 1;
const WRITES: u64 = 1_000_000;
/// Writes between two fsyncs.
const SYNC_EVERY: u64 = 256;

/// What a placement is told and asked.
enum Call {
    Coming(Vec<MainBlock>),
    Log(BlockTraits),
    Written(BlockTraits, MainBlock),
    Dead(MainBlock),
    Sealed(LogId, Segment),
    Free(Segment),
    Rate(SectionView),
    /// The measured part begins.
    Begin,
}

thread_local! {
    static INNER: Cell<Option<&'static Policy>> = const { Cell::new(None) };
    static MEMORY: Cell<usize> = const { Cell::new(0) };
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// Does what another placement does, and takes note of it.
struct Recorder(Box<dyn Placement>);

static RECORDED: Policy = Policy::new("recorded", "as another one, and takes note of what it is told", |options| {
    let inner = INNER.get().ok_or("has nothing to record")?;
    Ok(Box::new(Recorder(inner.make(options)?)))
})
.with_rates();

fn note(call: Call) {
    CALLS.with_borrow_mut(|calls| calls.push(call));
}

impl Placement for Recorder {
    fn touches(&self) -> Option<Touches> {
        self.0.touches()
    }

    fn more_logs(&self) -> &[SegmentKind] {
        self.0.more_logs()
    }

    fn limit_memory(&self, bytes: usize) {
        MEMORY.set(bytes);
        self.0.limit_memory(bytes);
    }

    fn note_coming(&self, places: &[MainBlock]) {
        note(Call::Coming(places.to_vec()));
        self.0.note_coming(places);
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        note(Call::Log(*block));
        self.0.log(block)
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        note(Call::Written(*block, place));
        self.0.note_written(block, place);
    }

    fn note_dead(&self, place: MainBlock) {
        note(Call::Dead(place));
        self.0.note_dead(place);
    }

    fn note_sealed(&self, log: LogId, segment: Segment) {
        note(Call::Sealed(log, segment));
        self.0.note_sealed(log, segment);
    }

    fn note_free(&self, segment: Segment) {
        note(Call::Free(segment));
        self.0.note_free(segment);
    }

    fn rate(&self, section: &SectionView) -> Option<f64> {
        note(Call::Rate(*section));
        self.0.rate(section)
    }
}

/// A placement, and the lists that the engine keeps for one that looks at them.
struct Told {
    placement: Box<dyn Placement>,
    lists: Option<PageTemperatures<(u32, u32)>>,
}

impl Told {
    fn new(policy: &Policy) -> Result<Told, Failure> {
        let placement = policy.make(&PlacementOptions::new(6))?;
        placement.limit_memory(MEMORY.get());
        let pages = OpenOptions::default().cache_bytes / BLOCK;
        let lists = placement.touches().map(|touches| PageTemperatures::new(pages, touches));
        Ok(Told { placement, lists })
    }

    fn tell(&mut self, call: &Call) {
        match (call, &mut self.lists) {
            (Call::Log(block), Some(lists)) if !block.node && block.reason != Reason::Cleaning => {
                lists.note_write((block.file, block.index));
                let list = lists.list((block.file, block.index));
                std::hint::black_box(self.placement.log(&BlockTraits { list, ..*block }));
            }
            (call, _) => tell(&*self.placement, call),
        }
    }
}

fn tell(placement: &dyn Placement, call: &Call) {
    match call {
        Call::Coming(places) => placement.note_coming(places),
        Call::Log(block) => _ = std::hint::black_box(placement.log(block)),
        Call::Written(block, place) => placement.note_written(block, *place),
        Call::Dead(place) => placement.note_dead(*place),
        Call::Sealed(log, segment) => placement.note_sealed(*log, *segment),
        Call::Free(segment) => placement.note_free(*segment),
        Call::Rate(section) => _ = std::hint::black_box(placement.rate(section)),
        Call::Begin => {}
    }
}

/// What a write of a user takes, with the copies, deaths and victims that go with it; as often as `runs` says.
pub fn decisions(runs: u8, policy: &'static Policy, stream: &str) -> Result<Figure, Failure> {
    record(policy, stream)?;
    let calls = CALLS.take();
    let begin = calls.iter().position(|call| matches!(call, Call::Begin)).ok_or("nothing was measured")?;
    let blocks = calls[begin..].iter().filter(|call| matches!(call, Call::Written(..))).count();
    let mut measurements = Vec::new();
    for _ in 0..runs {
        let mut told = Told::new(policy)?;
        calls[..begin].iter().for_each(|call| told.tell(call));
        let start = used();
        calls[begin..].iter().for_each(|call| told.tell(call));
        measurements.push(WRITES as f64 / seconds_since(start));
    }
    let name = format!("decisions of {}, {stream}", policy.name);
    let mut figure = figure("placement", name, measurements, blocks as f64 / WRITES as f64, None);
    figure.decision_ns = Some(1e9 / figure.blocks_per_second);
    Ok(figure)
}

/// Overwrites a file on a volume that is cleaned all the time.
fn record(policy: &'static Policy, stream: &str) -> Result<(), Failure> {
    INNER.set(Some(policy));
    let device = Arc::new(ForgetfulDevice::new(DEVICE));
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| {})?;
    let options = OpenOptions {
        background_cleaning: false,
        discard: false,
        atime: Atime::Noatime,
        placement: &RECORDED,
        victim: policy.victim.unwrap_or(OpenOptions::default().victim),
        ..OpenOptions::default()
    };
    let fs = F2fs::open(device, options, Arc::new(SystemClock))?;
    let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    let ino = fs.create(fs.root(), b"file", &node, &Caller::default())?.ino;
    let piece: Vec<u8> = FORGETTABLE.iter().copied().chain(std::iter::repeat(0x5A)).take(BLOCK).collect();
    let blocks = u32::try_from(fs.stat_fs()?.available * SHARE / 100)?;
    for block in 0..u64::from(blocks) {
        fs.write(ino, block * BLOCK as u64, &piece, false)?;
    }
    fs.sync()?;
    let writes = u64::from(blocks) * AGED;
    for (step, block) in (0..).zip(Stream::parse(stream, blocks, 1)?.take((writes + WRITES) as usize)) {
        if step == writes {
            note(Call::Begin);
        }
        fs.write(ino, u64::from(block) * BLOCK as u64, &piece, false)?;
        if step % SYNC_EVERY == 0 {
            fs.sync_file(ino, true)?;
        }
    }
    if fs.statistics().cleaning.foreground.victims == 0 {
        return Err("nothing was cleaned".into());
    }
    fs.close()?;
    Ok(())
}
