//! Power cuts under a real mount: the kernel's page cache, direct and synchronous writes, and mappings, over a device that remembers all it
//! was asked, cut at moments of its choice afterwards.
//!
//! `BASALT_MOUNT_CUTS` says how many runs (8 without it), `BASALT_MOUNT_SEED` where to begin. Who goes first is the kernel's choice, so that a seed
//! does not bring the same run again; what fails is told with all it takes to understand it.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use basalt_device::block::Result;
use basalt_device::power::{Change, Fate, History, PowerCutDevice, Replay};
use basalt_device::{BlockDevice, DeviceLayer, MemoryDevice};
use basalt_f2fs::check::{CheckOptions, check};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_fuse::{MountOptions, Session, UnmountError};
use basalt_testkit::mapping::Mapper;
use basalt_testkit::rng::Rng;
use basalt_testkit::{limit, scratch};
use basalt_vfs::FileSystem;
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::kills::rounds;
use crate::support::can_mount;

const PAGE: usize = 4096;
/// Pages of the largest file.
const PAGES: usize = 48;
/// Files that are judged, a thread each.
const FILES: u64 = 3;
/// Operations of each thread.
const OPERATIONS: usize = 400;
/// Power cuts of a run.
const CUTS: usize = 60;

/// A power-cut device whose flush covers what came before it, also while others write.
struct Shared(PowerCutDevice);

impl DeviceLayer for Shared {
    type Below = PowerCutDevice;
    fn below(&self) -> &PowerCutDevice {
        &self.0
    }
    fn on_flush(&self) -> Result<()> {
        self.0.end_flush(self.0.position());
        Ok(())
    }
}

/// What an operation promises once it has returned.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Promise {
    Nothing,
    /// Everything done to the file before.
    All,
    /// The pages that it wrote itself, from the first to before the last.
    Pages(usize, usize),
}

/// A file after an operation.
#[derive(Debug, Clone)]
struct State {
    what: String,
    /// Requests to the device when it was called, and when it had returned.
    called: usize,
    returned: usize,
    promise: Promise,
    /// Pages in the file.
    size: usize,
    /// What each holds: the number of the write; 0 for zeros, also behind the end.
    pages: [u32; PAGES],
}

/// The thread that works on one file.
struct Worker<'a> {
    device: &'a Shared,
    number: u64,
    rng: Rng,
    buffered: File,
    synchronous: File,
    direct: File,
    direct_synchronous: File,
    mapped: Mapper,
    states: Vec<State>,
    writes: u32,
}

/// What a write of this number puts into a page.
fn page_of(file: u64, page: usize, write: u32) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    if write != 0 {
        let mark = (u64::from(write) << 24 | (page as u64) << 8 | (file + 1)).to_le_bytes();
        bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&mark));
    }
    bytes
}

/// Aligned as O_DIRECT wants it.
#[repr(align(4096))]
struct Aligned([u8; 4 * PAGE]);

impl<'a> Worker<'a> {
    fn new(device: &'a Shared, root: &Path, number: u64, seed: u64) -> Worker<'a> {
        let path = root.join(format!("file{number}"));
        let open = |flags: OFlags| {
            let flags = flags.bits() as i32;
            File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(&path).unwrap()
        };
        let buffered = open(OFlags::empty());
        buffered.sync_all().unwrap();
        File::open(root).unwrap().sync_all().unwrap();
        let at = device.0.position();
        let first = State {
            what: "created".into(),
            called: at,
            returned: at,
            promise: Promise::All,
            size: 0,
            pages: [0; PAGES],
        };
        Worker {
            device,
            number,
            rng: Rng::new(seed * 100 + number),
            buffered,
            synchronous: open(OFlags::DSYNC),
            direct: open(OFlags::DIRECT),
            direct_synchronous: open(OFlags::DIRECT | OFlags::SYNC),
            mapped: Mapper::start(&path).unwrap(),
            states: vec![first],
            writes: 0,
        }
    }

    fn last(&self) -> &State {
        self.states.last().expect("a file begins with a state")
    }

    /// One operation, noted with what it promises.
    fn step(&mut self) {
        let called = self.device.0.position();
        let mut next = self.last().clone();
        let (what, promise) = match self.rng.below(24) {
            20..24 if next.size > 0 => self.write_mapped(&mut next),
            0..5 => self.write(&mut next, "write", false, |worker| &worker.buffered),
            5..7 => self.write(&mut next, "direct write", false, |worker| &worker.direct),
            7 => self.write(&mut next, "synchronous write", true, |worker| &worker.synchronous),
            8 => self.write(&mut next, "synchronous direct write", true, |worker| &worker.direct_synchronous),
            9..12 => self.truncate(&mut next),
            12..14 => self.punch(&mut next),
            14..18 => {
                self.buffered.sync_all().unwrap();
                ("fsync".into(), Promise::All)
            }
            _ => {
                self.buffered.sync_data().unwrap();
                ("fdatasync".into(), Promise::All)
            }
        };
        self.states.push(State { what, called, returned: self.device.0.position(), promise, ..next });
    }

    /// The content of the next write to some pages.
    fn fill(&mut self, next: &mut State, from: usize, to: usize) -> Aligned {
        self.writes += 1;
        let mut content = Aligned([0; 4 * PAGE]);
        for page in from..to {
            next.pages[page] = self.writes;
            content.0[(page - from) * PAGE..][..PAGE].copy_from_slice(&page_of(self.number, page, self.writes));
        }
        content
    }

    fn write(
        &mut self,
        next: &mut State,
        how: &str,
        is_synchronous: bool,
        file: impl Fn(&Self) -> &File,
    ) -> (String, Promise) {
        let from = self.rng.index(PAGES - 4);
        let to = from + 1 + self.rng.index(4);
        let content = self.fill(next, from, to);
        next.size = next.size.max(to);
        file(self).write_all_at(&content.0[..(to - from) * PAGE], (from * PAGE) as u64).unwrap();
        let promise = if is_synchronous { Promise::Pages(from, to) } else { Promise::Nothing };
        (format!("{how} of pages {from}..{to}"), promise)
    }

    /// Within the file: a page behind its end cannot be touched.
    fn write_mapped(&mut self, next: &mut State) -> (String, Promise) {
        let from = self.rng.index(next.size);
        let to = (from + 1 + self.rng.index(4)).min(next.size);
        let content = self.fill(next, from, to);
        let is_synchronous = self.rng.chance(50);
        self.mapped.write((from * PAGE) as u64, &content.0[..(to - from) * PAGE], is_synchronous).unwrap();
        let (how, promise) =
            if is_synchronous { ("msync", Promise::Pages(from, to)) } else { ("mapping", Promise::Nothing) };
        (format!("{how} of pages {from}..{to}"), promise)
    }

    fn truncate(&mut self, next: &mut State) -> (String, Promise) {
        next.size = self.rng.index(PAGES);
        next.pages[next.size..].fill(0);
        self.buffered.set_len((next.size * PAGE) as u64).unwrap();
        (format!("truncate to {} pages", next.size), Promise::Nothing)
    }

    fn punch(&mut self, next: &mut State) -> (String, Promise) {
        let from = self.rng.index(PAGES - 8);
        let to = from + 1 + self.rng.index(8);
        next.pages[from..to].fill(0);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.buffered.as_fd(), flags, (from * PAGE) as u64, ((to - from) * PAGE) as u64).unwrap();
        (format!("punch pages {from}..{to}"), Promise::Nothing)
    }
}

/// Times that 64 KiB are overwritten at most: the device remembers all of it, and the files that are judged may take long on a busy machine.
const CHURNS: usize = 8192;

/// Overwrites files without an fsync, so that there is something to clean.
fn churn(root: &Path, seed: u64, is_over: &AtomicBool) {
    let mut rng = Rng::new(seed);
    let content: Vec<u8> = (0..1 << 16).map(|at| (at % 251) as u8).collect();
    for _ in 0..CHURNS {
        if is_over.load(SeqCst) {
            return;
        }
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join(format!("churn{}", rng.below(12))))
            .unwrap();
        file.write_all_at(&content, rng.below(14) << 16).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

fn open(device: Arc<dyn BlockDevice>) -> F2fs {
    let options = OpenOptions {
        cache_bytes: 1 << 20,
        pre_invalid_bytes: Some(1 << 30),
        sections_per_commit: Some(1),
        ..OpenOptions::default()
    };
    F2fs::open(device, options, Arc::new(SystemClock)).unwrap()
}

/// Works on a mounted volume, and hands out what happened.
fn work(seed: u64) -> (History, Vec<Vec<State>>) {
    let base = MemoryDevice::new(88 << 20, 512);
    let options = FormatOptions {
        overprovision_percent: Some(50.0),
        journal_bytes: if seed.is_multiple_of(2) { 0 } else { 1 << 20 },
        discard_reads_zeros: true,
        ..FormatOptions::default()
    };
    format(&base, &options, &mut |_, _| {}).unwrap();
    let device = Arc::new(Shared(PowerCutDevice::new(base)));
    let directory = scratch::directory().unwrap();
    let session = Session::mount(Arc::new(open(device.clone())), &MountOptions::new(directory.path(), "cuts")).unwrap();
    let unmounter = session.unmounter();
    let server = std::thread::spawn(move || session.run());
    let is_over = AtomicBool::new(false);
    let states = std::thread::scope(|scope| {
        let root = directory.path();
        let churning = scope.spawn(|| churn(root, seed, &is_over));
        let workers: Vec<_> = (0..FILES)
            .map(|number| {
                let mut worker = Worker::new(&device, root, number, seed);
                scope.spawn(move || {
                    (0..OPERATIONS).for_each(|_| worker.step());
                    worker.states
                })
            })
            .collect();
        let states = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        is_over.store(true, SeqCst);
        churning.join().unwrap();
        states
    });
    let history = device.0.history();
    while let Err(UnmountError::Busy(_)) = unmounter.unmount() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    limit::join(server, limit::SHORT).unwrap();
    (history, states)
}

/// Holds a file against what was promised at the moment of the cut; what is wrong, if anything.
fn judge(fs: &F2fs, number: u64, states: &[State], at: usize) -> std::result::Result<(), String> {
    let Some(upper) = states.iter().rposition(|state| state.called <= at) else { return Ok(()) };
    let is_kept = |state: &State| state.returned <= at;
    if !is_kept(&states[0]) {
        return Ok(());
    }
    let all = states[..=upper].iter().rposition(|state| is_kept(state) && state.promise == Promise::All).unwrap_or(0);
    let name = format!("file{number}");
    let found = fs.lookup(fs.root(), name.as_bytes()).map_err(|error| format!("{name}: {error}"))?;
    let size = fs.attributes(found.ino).map_err(|error| error.to_string())?.size as usize;
    let sizes = || states[all..=upper].iter().map(|state| state.size);
    let (least, most) = (sizes().min().unwrap_or(0) * PAGE, sizes().max().unwrap_or(0) * PAGE);
    if !size.is_multiple_of(PAGE) || size < least || size > most {
        return Err(format!("{name} has {size} bytes, not {least} to {most}"));
    }
    for page in 0..size / PAGE {
        let wrote = |state: &State| {
            is_kept(state) && matches!(state.promise, Promise::Pages(from, to) if (from..to).contains(&page))
        };
        let lower = states[..=upper].iter().rposition(wrote).map_or(all, |wrote| wrote.max(all));
        let mut bytes = [0; PAGE];
        fs.read(found.ino, (page * PAGE) as u64, &mut bytes).map_err(|error| format!("{name}: {error}"))?;
        if !states[lower..=upper].iter().any(|state| bytes == page_of(number, page, state.pages[page])) {
            let write = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) >> 24;
            let may: Vec<u32> = states[lower..=upper].iter().map(|state| state.pages[page]).collect();
            let done: Vec<&str> = states[lower..=upper].iter().map(|state| state.what.as_str()).collect();
            return Err(format!(
                "{name}, page {page}: holds write {write}, not one of {may:?}; done since then: {done:?}"
            ));
        }
    }
    Ok(())
}

/// Where the power goes: behind an operation that promises something, or anywhere.
fn moments(rng: &mut Rng, states: &[Vec<State>], end: usize) -> Vec<usize> {
    let promised: Vec<usize> =
        states.iter().flatten().filter(|state| state.promise != Promise::Nothing).map(|state| state.returned).collect();
    let first = states.iter().map(|states| states[0].returned).min().unwrap_or(0);
    let mut moments: Vec<usize> = (0..CUTS)
        .map(|_| match rng.pick(&promised) {
            Some(moment) if rng.chance(60) => *moment,
            _ => first + rng.index(end - first + 1),
        })
        .collect();
    moments.sort_unstable();
    moments
}

/// What becomes of what was in the cache.
fn fates(rng: &mut Rng, cached: &[Change]) -> Vec<Fate> {
    let style = rng.below(4);
    let mut fate = |change: &Change| match style {
        0 => Fate::Lost,
        1 => Fate::Kept,
        2 if rng.chance(50) => Fate::Kept,
        3 if rng.chance(30) => Fate::Torn((0..change.sectors()).map(|_| rng.chance(50)).collect()),
        3 if rng.chance(50) => Fate::Kept,
        _ => Fate::Lost,
    };
    cached.iter().map(&mut fate).collect()
}

#[test]
fn what_was_made_durable_through_the_kernel_outlives_power_cuts() {
    if !can_mount() {
        return;
    }
    let first = rounds("BASALT_MOUNT_SEED", 1);
    let (mut cuts, mut written) = (0, 0);
    for seed in first..first + rounds("BASALT_MOUNT_CUTS", 8) {
        let (history, states) = work(seed);
        let mut rng = Rng::new(seed);
        let mut replay = Replay::new(&history);
        written += history.changes.len();
        for at in moments(&mut rng, &states, history.changes.len()) {
            let image = replay.cut(at, |cached| fates(&mut rng, cached));
            let image = Arc::new(image);
            let fs = open(image.clone());
            for (number, states) in (0..).zip(&states) {
                if let Err(wrong) = judge(&fs, number, states, at) {
                    let kept = scratch::directory().unwrap().keep().join("cut.img");
                    fs::write(&kept, image_bytes(&image)).unwrap();
                    panic!(
                        "seed {seed}, cut at request {at}: {wrong}; {:?}; the volume is kept as {}",
                        fs.warnings(),
                        kept.display()
                    );
                }
            }
            fs.close().unwrap();
            let report = check(&*image, &CheckOptions { max_faults: 5 }, &mut |_| {}).unwrap();
            assert!(report.is_clean(), "seed {seed}, cut at request {at}: {:?}", report.faults);
            cuts += 1;
        }
    }
    println!("{cuts} power cuts in {written} requests");
}

fn image_bytes(image: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; image.size() as usize];
    image.read_at(0, &mut bytes).unwrap();
    bytes
}
