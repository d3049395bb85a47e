//! Random workloads for threads.
//!
//! Names belong to one thread each, or to nobody and stay: so a path leads to the same file whenever it is followed. Content belongs to
//! all: any thread writes to the files that all share, and fsyncs files of others.

use basalt_testkit::rng::Rng;

use super::script::{Act, ONE_WRITE};
use crate::f2fs::{F2fsVolume, VOLUMES};
use crate::script::Step;

/// What is done: by one, and then by several at once.
pub struct Workload {
    /// On a volume of this kind.
    pub engine: &'static F2fsVolume,
    /// Before there are threads.
    pub setup: Vec<Step>,
    /// What each thread does.
    pub acts: Vec<Vec<Act>>,
}

/// Bytes of one file of a volume that is filled.
const FILL_FILE: u64 = 512 << 10;
/// Files that all share.
const SHARED: u64 = 4;

/// What a workload is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flavour {
    /// Small changes and fsyncs.
    Small,
    /// Fsyncs of more than one seal lists, of this file that all share, beside small ones and other fsyncs of it.
    Large(u64),
    /// Overwriting what fills the volume: so many files.
    Cleaning(u64),
    /// The same for longer, and soon one of the threads closes the volume.
    Closing(u64),
    /// These files lose all they have and are written anew, whole, beside checkpoints: segments die while one is under way.
    Replacing(u64),
}

impl Flavour {
    /// Files that fill the volume.
    fn files(self) -> Option<u64> {
        match self {
            Flavour::Cleaning(files) | Flavour::Closing(files) | Flavour::Replacing(files) => Some(files),
            _ => None,
        }
    }
}

/// A thread that writes behind for the others, in a third of all workloads. The seed is one of its own, so that the others stay as they are.
pub fn write_behind(seed: u64) -> Option<Vec<Act>> {
    Rng::new(seed ^ 0xBE41).chance(33).then(|| vec![Act::WriteBehind])
}

/// The numbers of a seed, from its workload on.
pub(super) fn numbers(seed: u64) -> Rng {
    Rng::new(seed ^ 0x7D)
}

/// Whether a thread closes the volume in the workload of this seed.
pub fn closes(seed: u64) -> bool {
    workload(&mut numbers(seed)).acts.iter().any(|acts| acts.contains(&Act::Close))
}

/// A random workload.
pub fn workload(rng: &mut Rng) -> Workload {
    let kind = rng.below(13);
    let fits = |volume: &&F2fsVolume| match kind {
        0..4 => true,
        4..7 => volume.user_bytes() >= 14 << 20,
        7..10 => volume.user_bytes() < 24 << 20,
        _ => volume.is_journaled(),
    };
    let engines: Vec<&'static F2fsVolume> = VOLUMES.iter().filter(fits).collect();
    let engine = engines[rng.index(engines.len())];
    let files = (engine.user_bytes() / 100 * rng.between(45, 80)).div_ceil(FILL_FILE);
    let flavour = match kind {
        0..4 => Flavour::Small,
        4..7 => Flavour::Large(rng.below(SHARED)),
        7..10 => Flavour::Cleaning(files),
        12 => Flavour::Replacing(files),
        _ => Flavour::Closing(files),
    };
    let threads = rng.between(2, 4) as usize;
    let setup = setup(rng, flavour, threads);
    let mut acts: Vec<Vec<Act>> = (1..=threads).map(|thread| acts(rng, flavour, thread, threads)).collect();
    if rng.chance(50) {
        acts[threads - 1] = background(rng, flavour);
    }
    let closes = matches!(flavour, Flavour::Closing(_));
    if closes || rng.chance(15) {
        // Whatever the others still do.
        let thread = rng.index(threads);
        let at = rng.index(if closes { 4 } else { acts[thread].len() + 1 }).min(acts[thread].len());
        acts[thread].truncate(at);
        acts[thread].push(Act::Close);
    }
    Workload { engine, setup, acts }
}

fn seed(rng: &mut Rng) -> u64 {
    rng.next_u64() >> 40
}

fn setup(rng: &mut Rng, flavour: Flavour, threads: usize) -> Vec<Step> {
    let mut steps = vec![Step::Mkdir("d".to_owned())];
    let shared = (0..SHARED).map(|number| format!("s{number}"));
    for path in shared.chain((1..=threads).map(|thread| format!("d/a{thread}"))) {
        steps.push(Step::Create(path.clone()));
        let blocks = [1, 3, 20][rng.index(3)];
        steps.push(Step::Write(path, 0, 4096 * blocks, seed(rng)));
    }
    if let Some(files) = flavour.files() {
        for number in 0..files {
            steps.push(Step::Create(format!("fill{number}")));
            steps.push(Step::Write(format!("fill{number}"), 0, FILL_FILE as u32, seed(rng)));
        }
        steps.push(Step::Sync);
        for _ in 0..rng.below(if matches!(flavour, Flavour::Closing(_)) { 160 } else { 80 }) {
            steps.push(overwrite(rng, files));
            if rng.chance(15) {
                steps.push(Step::Fsync(format!("fill{}", rng.below(files))));
            }
        }
    }
    if flavour != Flavour::Small || rng.chance(80) {
        steps.push(Step::Sync);
    }
    steps
}

/// Overwrites some blocks of one of the files that fill the volume.
fn overwrite(rng: &mut Rng, files: u64) -> Step {
    // Some are hot, so that segments of them die soon.
    let file = if rng.chance(50) { rng.below(files.min(3)) } else { rng.below(files) };
    let blocks = match rng.below(4) {
        0 => 1,
        1 => rng.between(2, 12),
        _ => rng.between(20, 100),
    };
    let offset = 4096 * rng.below(FILL_FILE / 4096 - blocks + 1);
    Step::Write(format!("fill{file}"), offset, (4096 * blocks) as u32, seed(rng))
}

fn acts(rng: &mut Rng, flavour: Flavour, thread: usize, threads: usize) -> Vec<Act> {
    let most = match flavour {
        Flavour::Cleaning(_) => 30,
        Flavour::Closing(_) => 90,
        Flavour::Replacing(_) => 60,
        _ => 10,
    };
    let count = rng.between(3, most);
    let mut acts = Vec::new();
    if let Flavour::Large(file) = flavour
        && (thread == 1 || rng.chance(25))
    {
        if rng.chance(40) {
            acts.push(Act::Do(small(rng, thread, threads)));
        }
        large(rng, file, &mut acts);
    }
    while acts.len() < count as usize {
        if let Flavour::Cleaning(files) = flavour
            && rng.chance(8)
        {
            dying(rng, files, &mut acts);
        }
        let act = match flavour {
            Flavour::Cleaning(files) if rng.chance(80) => cleaning(rng, files),
            Flavour::Closing(files) if rng.chance(80) => Act::Do(overwrite(rng, files)),
            Flavour::Closing(files) => cleaning(rng, files),
            Flavour::Replacing(_) if thread == 1 && rng.chance(70) => Act::Do(Step::Sync),
            Flavour::Replacing(files) if rng.chance(30) => cleaning(rng, files),
            Flavour::Replacing(files) => replacing(rng, files, &mut acts),
            Flavour::Large(file) if rng.chance(20) => Act::Do(Step::Fsync(format!("s{file}"))),
            _ if rng.chance(6) => look(rng, flavour),
            _ => Act::Do(small(rng, thread, threads)),
        };
        acts.push(act);
        // What went to the device at once is fsynced while others flush.
        let run = match acts.last() {
            Some(Act::Do(Step::Write(path, _, length, _))) if *length >= 64 << 10 => Some(path.clone()),
            _ => None,
        };
        if let Some(path) = run.filter(|_| flavour.files().is_none() && rng.chance(60)) {
            acts.push(Act::Do(Step::Fsync(path)));
        }
    }
    acts
}

/// A large file, written and fsynced.
fn large(rng: &mut Rng, file: u64, acts: &mut Vec<Act>) {
    let path = format!("s{file}");
    let mut left = rng.between(1 << 20, 7 << 19) / 4096 * 4096;
    let mut at = 0;
    while left > 0 {
        let length = left.min(ONE_WRITE);
        acts.push(Act::Do(Step::Write(path.clone(), at, length as u32, seed(rng))));
        (at, left) = (at + length, left - length);
    }
    acts.push(Act::Do(if rng.chance(80) { Step::Fsync(path) } else { Step::Fdatasync(path) }));
}

/// Files that were written one behind the other lose all they have: whole segments die, whatever others do meanwhile.
fn dying(rng: &mut Rng, files: u64, acts: &mut Vec<Act>) {
    let first = rng.below(files);
    let last = (first + rng.between(4, 12)).min(files);
    acts.extend((first..last).map(|file| Act::Do(Step::Truncate(format!("fill{file}"), 0))));
}

/// A file loses all it has, and gets as much again, which is the act returned.
fn replacing(rng: &mut Rng, files: u64, acts: &mut Vec<Act>) -> Act {
    let path = format!("fill{}", rng.below(files));
    acts.push(Act::Do(Step::Truncate(path.clone(), 0)));
    Act::Do(Step::Write(path, 0, FILL_FILE as u32, seed(rng)))
}

fn cleaning(rng: &mut Rng, files: u64) -> Act {
    Act::Do(match rng.below(100) {
        0..60 => overwrite(rng, files),
        60..82 => Step::Fsync(format!("fill{}", rng.below(files))),
        82..84 => Step::Sync,
        84..93 => Step::Tick([1, 10][rng.index(2)]),
        _ => return Act::Read(format!("fill{}", rng.below(files))),
    })
}

/// Ticks, statistics, reading, discards: what mounts do by themselves, and others beside.
fn background(rng: &mut Rng, flavour: Flavour) -> Vec<Act> {
    let count = rng.between(2, 10);
    (0..count).map(|_| look(rng, flavour)).collect()
}

fn look(rng: &mut Rng, flavour: Flavour) -> Act {
    match rng.below(10) {
        0..4 => Act::Do(Step::Tick([1, 6, 20][rng.index(3)])),
        4..6 => Act::Look,
        6 => Act::Trim,
        7 => Act::Do(Step::Sync),
        _ => Act::Read(match flavour.files() {
            Some(files) => format!("fill{}", rng.below(files)),
            None => format!("s{}", rng.below(SHARED)),
        }),
    }
}

/// A file of this thread.
fn own(rng: &mut Rng, thread: usize) -> String {
    match rng.below(4) {
        0 => format!("a{thread}"),
        1 => format!("d/a{thread}"),
        2 => format!("d/b{thread}"),
        _ => format!("b{thread}"),
    }
}

/// A file whose content this thread may change.
fn file(rng: &mut Rng, thread: usize) -> String {
    if rng.chance(50) { format!("s{}", rng.below(SHARED)) } else { own(rng, thread) }
}

fn write(rng: &mut Rng, path: String) -> Step {
    let length = match rng.below(10) {
        0..2 => rng.between(1, 200),
        2..5 => rng.between(1, 3 * 4096),
        5..7 => 4096 * rng.between(1, 12),
        // Whole runs go to the device at once.
        _ => 4096 * rng.between(16, 40),
    };
    let offset = match rng.below(10) {
        0..5 => 0,
        5..8 => 4096 * rng.below(20),
        8 => rng.below(100_000),
        // Behind what the inode addresses itself.
        _ => 4096 * (860 + rng.below(40)),
    };
    let offset = if offset % ONE_WRITE + length > ONE_WRITE { offset / ONE_WRITE * ONE_WRITE } else { offset };
    Step::Write(path, offset, length as u32, seed(rng))
}

fn small(rng: &mut Rng, thread: usize, threads: usize) -> Step {
    match rng.below(100) {
        0..36 => {
            let path = file(rng, thread);
            write(rng, path)
        }
        36..62 => Step::Fsync(synced(rng, thread, threads)),
        62..67 => Step::Fdatasync(synced(rng, thread, threads)),
        67..75 => Step::Create(own(rng, thread)),
        75..79 => Step::Rename(own(rng, thread), own(rng, thread)),
        79..82 => Step::Unlink(own(rng, thread)),
        82..84 => Step::Link(own(rng, thread), own(rng, thread)),
        84..87 => Step::Truncate(file(rng, thread), [0, rng.below(5_000), rng.below(200_000)][rng.index(3)]),
        87..89 => Step::Punch(file(rng, thread), rng.below(60_000), rng.between(1, 40_000)),
        89..91 => Step::Allocate(file(rng, thread), 4096 * rng.below(20), rng.between(1, 40_000)),
        91..94 => Step::SetXattr(file(rng, thread), rng.below(3) as u8, [5, 100, 1500][rng.index(3)], seed(rng)),
        94..96 => Step::Chmod(file(rng, thread), rng.below(0o777) as u32),
        96..98 => Step::Sync,
        98 => Step::Fsync("d".to_owned()),
        _ => Step::Tick([1, 10][rng.index(2)]),
    }
}

/// What a thread fsyncs: its own files, those of all, and now and then another's.
fn synced(rng: &mut Rng, thread: usize, threads: usize) -> String {
    if rng.chance(80) {
        file(rng, thread)
    } else {
        let other = 1 + rng.index(threads);
        own(rng, other)
    }
}
