//! The F2FS engine and the simulator under the same overwrites: the same victims, with the same number of blocks moved out of each,
//! data and nodes alike, and the same number of blocks written in all. A placement with logs of its own hears the same of both, event by
//! event: what is written where and why, what dies, what is sealed, what is free.
//!
//! Conditions: one file, made after mkfs and the only one; writes of one block each; background cleaning off, because it follows the
//! clock; nothing else that touches the volume. The page cache, its limits and the order of writeback are part of what is
//! simulated, so neither the size of the cache nor the moments of sync(2) matter, as long as both get the same.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::layout::inode::RawInode;
use basalt_f2fs::{Atime, Clock, F2fs, OpenOptions};
use basalt_random::Rng;
use basalt_segments::cleaning::{KeepFree, Victim};
use basalt_segments::placement::Policy;
use basalt_segments::{
    BlockTraits, Greedy, LogId, MainBlock, Placement, Reason, Segment, SegmentKind, StaticPlacement,
};
use basalt_simulator::{Age, Cleaning, FileModel, LogStart, Options, Volume};
use basalt_vfs::{Caller, FileKind, FileSystem, InodeNumber, NewNode, Time};
use zerocopy::FromBytes;

const BLOCK: usize = 4096;

/// A clock that stands still: nothing here may depend on time.
struct Still;

impl Clock for Still {
    fn now(&self) -> Time {
        Time { seconds: 1_700_000_000, nanoseconds: 0 }
    }

    fn uptime(&self) -> Duration {
        Duration::ZERO
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    mib: u64,
    segments_per_section: u32,
    cache_bytes: usize,
    /// Of the blocks that users may fill, how many the file takes, in percent.
    filled: u64,
    /// Writes between two calls of sync, of both.
    sync_every: u64,
    /// Zipf's exponent; 0 is uniform.
    theta: f64,
    seed: u64,
    placement: &'static Policy,
}

/// What a placement hears.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Written { block: BlockTraits, place: MainBlock },
    Dead(MainBlock),
    Sealed(LogId, Segment),
    Free(Segment),
}

/// `None` until it matters: the file is not made in groups.
type Told = Arc<Mutex<Option<Vec<Event>>>>;

thread_local! {
    /// What the placement was told that this thread made last.
    static MADE_LAST: RefCell<Told> = RefCell::default();
}

/// Blocks of the file in three groups, copies of them in a fourth, indirect nodes in a log of their own.
static GROUPS: Policy = Policy::new("groups", "blocks by number", |_| {
    let groups = Groups(Told::default());
    MADE_LAST.set(groups.0.clone());
    Ok(Box::new(groups))
});

struct Groups(Told);

impl Groups {
    fn tell(&self, event: Event) {
        self.0.lock().unwrap().iter_mut().for_each(|told| told.push(event));
    }
}

impl Placement for Groups {
    fn more_logs(&self) -> &[SegmentKind] {
        const KINDS: [SegmentKind; 5] = {
            use SegmentKind::{ColdData, ColdNode, HotData, WarmData};
            [HotData, WarmData, WarmData, ColdData, ColdNode]
        };
        &KINDS
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if self.0.lock().unwrap().is_none() {
            return StaticPlacement::default().log(block);
        }
        match block {
            BlockTraits { node: true, direct_node: false, .. } => LogId::more(4),
            BlockTraits { node: true, .. } | BlockTraits { of_directory: true, .. } => {
                StaticPlacement::default().log(block)
            }
            BlockTraits { reason: Reason::Cleaning, .. } => LogId::more(3),
            // One in four answers names no log of data.
            _ => LogId::more([0, 1, 2, 9][(block.index / 1000 % 4) as usize]),
        }
    }

    fn note_written(&self, block: &BlockTraits, place: MainBlock) {
        // Files have other numbers in the simulator, which does not know what a directory has.
        let index = if block.of_directory { 0 } else { block.index };
        self.tell(Event::Written { block: BlockTraits { file: 0, index, ..*block }, place });
    }

    fn note_dead(&self, place: MainBlock) {
        self.tell(Event::Dead(place));
    }

    fn note_sealed(&self, log: LogId, segment: Segment) {
        self.tell(Event::Sealed(log, segment));
    }

    fn note_free(&self, segment: Segment) {
        self.tell(Event::Free(segment));
    }
}

/// Blocks by rank from Zipf's law, ranks scattered over the file.
struct Stream {
    cumulative: Vec<f64>,
    scattered: Vec<u32>,
    rng: Rng,
}

impl Stream {
    fn new(blocks: u32, theta: f64, seed: u64) -> Stream {
        let mut rng = Rng::new(seed);
        let mut sum = 0.0;
        let cumulative = (1..=blocks)
            .map(|rank| {
                sum += f64::from(rank).powf(-theta);
                sum
            })
            .collect();
        let mut scattered: Vec<u32> = (0..blocks).collect();
        for at in (1..scattered.len()).rev() {
            scattered.swap(at, rng.below(at as u64 + 1) as usize);
        }
        Stream { cumulative, scattered, rng }
    }

    fn next(&mut self) -> u32 {
        let total = self.cumulative.last().copied().unwrap_or(1.0);
        let point = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * total;
        let rank = self.cumulative.partition_point(|&sum| sum <= point);
        self.scattered[rank.min(self.scattered.len() - 1)]
    }
}

/// Victims of either side, gathered while only the last are remembered.
#[derive(Default)]
struct Gathered(Vec<Victim>);

impl Gathered {
    fn add(&mut self, recent: &[Victim]) {
        let known = self.0.len() as u64;
        assert!(recent.first().is_none_or(|first| first.number <= known), "victims were missed");
        self.0.extend(recent.iter().filter(|victim| victim.number >= known));
    }
}

struct Engine {
    fs: F2fs,
    ino: InodeNumber,
    device: Arc<dyn BlockDevice>,
}

impl Engine {
    fn new(case: &Case) -> Engine {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(case.mib << 20, 512));
        let format_options = FormatOptions {
            segments_per_section: case.segments_per_section,
            discard_reads_zeros: true,
            uuid: Some([7; 16]),
            ..FormatOptions::default()
        };
        format(&*device, &format_options, &mut |_, _| {}).unwrap();
        let options = OpenOptions {
            cache_bytes: case.cache_bytes,
            background_cleaning: false,
            atime: Atime::Noatime,
            placement: case.placement,
            discard: false,
            ..OpenOptions::default()
        };
        let fs = F2fs::open(device.clone(), options, Arc::new(Still)).unwrap();
        let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
        let ino = fs.create(fs.root(), b"file", &node, &Caller::default()).unwrap().ino;
        // One block makes it a file with addresses, no matter what fits into an inode.
        fs.write(ino, 0, &[1; BLOCK], false).unwrap();
        fs.sync().unwrap();
        fs.set_attributes(ino, &basalt_vfs::SetAttributes { size: Some(0), ..Default::default() }).unwrap();
        fs.sync().unwrap();
        Engine { fs, ino, device }
    }

    /// The volume as it is now, with nothing in the file.
    fn options(&self, case: &Case, blocks: u32) -> Options {
        let info = self.fs.info();
        let start = |kind: SegmentKind| LogStart {
            segment: info.logs[kind.index()].segment,
            offset: info.logs[kind.index()].offset,
            // Everything live is where the logs write: nothing else has been filled.
            live: info.kinds[kind.index()].live_blocks as u32,
        };
        assert!(info.kinds.iter().all(|kind| kind.segments <= 1), "{:?}", info.kinds);
        Options {
            segments: info.main_segments,
            segments_per_section: info.segments_per_section,
            blocks,
            logs: 6,
            placement: case.placement,
            groups: None,
            policy: &Greedy,
            cleaning: Cleaning::Paced {
                reserved_sections: info.usage.reserved_segments / info.segments_per_section,
                keep_free: KeepFree::default(),
            },
            age: Age::Modified,
            file: Some(FileModel {
                cache_blocks: case.cache_bytes / BLOCK,
                inode_slots: self.inode_slots(),
                logs: SegmentKind::ALL.map(start),
            }),
            pool: None,
        }
    }

    /// Addresses in the file's inode, which is the last node that was written.
    fn inode_slots(&self) -> u32 {
        let info = self.fs.info();
        let log = info.logs[SegmentKind::WarmNode.index()];
        let block = info.areas.main + log.segment * 512 + log.offset - 1;
        let mut bytes = [0; BLOCK];
        self.device.read_at(u64::from(block) * BLOCK as u64, &mut bytes).unwrap();
        let inode = RawInode::ref_from_bytes(&bytes).unwrap();
        assert_eq!((inode.i_size.get(), inode.i_links.get()), (0, 1), "not the file's inode");
        inode.address_slots(info.features.contains("flexible_inline_xattr"))
    }

    fn write(&self, block: u32) {
        let written = self.fs.write(self.ino, u64::from(block) * BLOCK as u64, &[block as u8; BLOCK], false);
        assert_eq!(written.unwrap(), BLOCK);
    }
}

/// Fills a file and overwrites it until `wanted` data sections were emptied.
fn compare(case: Case, wanted: usize) {
    let engine = Engine::new(&case);
    let engine_told = MADE_LAST.take();
    *engine_told.lock().unwrap() = Some(Vec::new());
    let usage = engine.fs.info().usage;
    let blocks = ((usage.user_blocks - usage.used_blocks) * case.filled / 100) as u32;
    let mut volume = Volume::new(engine.options(&case, blocks)).unwrap();
    let told = MADE_LAST.take();
    *told.lock().unwrap() = Some(Vec::new());
    let (before, mut stream) = (engine.fs.statistics().written, Stream::new(blocks, case.theta, case.seed));
    let (mut ours, mut theirs) = (Gathered::default(), Gathered::default());
    let (mut writes, mut data, mut events) = (0u64, 0, 0);
    while data < wanted {
        let block = if writes < u64::from(blocks) { writes as u32 } else { stream.next() };
        engine.write(block);
        volume.write(block).unwrap();
        writes += 1;
        if writes.is_multiple_of(case.sync_every) {
            engine.fs.sync().unwrap();
            volume.sync().unwrap();
        }
        if writes.is_multiple_of(1000) {
            events += same_events(&told, &engine_told, writes);
            theirs.add(&engine.fs.recent_victims());
            ours.add(&volume.recent_victims());
            let at = ours.0.iter().zip(&theirs.0).position(|(ours, theirs)| ours != theirs);
            if let Some(at) = at {
                panic!("{case:?}, after {writes} writes: simulated {:?}, the engine {:?}", ours.0[at], theirs.0[at]);
            }
            assert_eq!(ours.0.len(), theirs.0.len(), "{case:?}: number of victims after {writes} writes");
            data = ours.0.iter().filter(|victim| !victim.kind.is_node()).count();
            assert!(writes < 20 * u64::from(blocks), "{case:?}: {data} victims after {writes} writes");
        }
    }
    let written = engine.fs.statistics().written;
    let simulated = volume.statistics();
    assert_eq!(written.data_blocks - before.data_blocks, simulated.user_blocks + simulated.copies, "{case:?}");
    assert_eq!(written.node_blocks - before.node_blocks, simulated.nodes, "{case:?}");
    assert_eq!(written.blocks_moved, simulated.copies + simulated.nodes_moved, "{case:?}");
    assert_eq!(written.checkpoints - before.checkpoints, simulated.checkpoints, "{case:?}");
    let nodes = ours.0.len() - data;
    println!("{case:?}: {writes} writes, {data} data victims, {nodes} node victims, {events} events, {simulated:?}");
    if case.placement.name == GROUPS.name {
        assert!(events as u64 > 2 * writes, "{events} events of {writes} writes");
    }
}

/// Compares what both placements were told since the last time, and forgets it: the number of events.
fn same_events(ours: &Told, theirs: &Told, writes: u64) -> usize {
    let [ours, theirs] = [ours, theirs].map(|told| told.lock().unwrap().replace(Vec::new()).unwrap());
    if let Some(at) = ours.iter().zip(theirs.iter()).position(|(ours, theirs)| ours != theirs) {
        panic!("before {writes} writes, event {at}: simulated {:?}, the engine {:?}", ours[at], theirs[at]);
    }
    assert_eq!(ours.len(), theirs.len(), "number of events before {writes} writes");
    ours.len()
}

#[test]
fn a_placement_with_groups_hears_the_same() {
    for (sync_every, cache_bytes) in [(1000, 8 << 20), (u64::MAX, 1 << 20)] {
        let case = Case {
            mib: 512,
            segments_per_section: 1,
            cache_bytes,
            filled: 92,
            sync_every,
            theta: 0.99,
            seed: 5,
            placement: &GROUPS,
        };
        compare(case, 300);
    }
}

#[test]
fn uniform_overwrites_choose_the_same_victims() {
    let case = Case {
        mib: 512,
        segments_per_section: 1,
        cache_bytes: 64 << 20,
        filled: 90,
        sync_every: 4096,
        theta: 0.0,
        seed: 1,
        placement: Default::default(),
    };
    compare(case, 1000);
}

#[test]
fn skewed_overwrites_choose_the_same_victims() {
    let case = Case {
        mib: 512,
        segments_per_section: 1,
        cache_bytes: 8 << 20,
        filled: 92,
        sync_every: 1000,
        theta: 0.99,
        seed: 2,
        placement: Default::default(),
    };
    compare(case, 600);
}

#[test]
fn so_they_do_without_sync_and_with_a_small_cache() {
    let case = Case {
        mib: 512,
        segments_per_section: 1,
        cache_bytes: 1 << 20,
        filled: 95,
        sync_every: u64::MAX,
        theta: 0.6,
        seed: 3,
        placement: Default::default(),
    };
    compare(case, 400);
}

#[test]
fn so_they_do_in_large_sections() {
    let case = Case {
        mib: 1024,
        segments_per_section: 4,
        cache_bytes: 16 << 20,
        filled: 90,
        sync_every: 2500,
        theta: 0.8,
        seed: 4,
        placement: Default::default(),
    };
    compare(case, 150);
}
