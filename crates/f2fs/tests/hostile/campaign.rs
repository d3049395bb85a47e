//! Random damage, seed by seed, through the bodies of the fuzz targets.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use basalt_testkit::rng::Rng;

use crate::fuzz::volume::{Case, check_case, repair, rescue, resize, run};
use crate::fuzz::{Target, base, structures};

/// Set to repeat one seed of every campaign.
const REPLAY: &str = "BASALT_HOSTILE_SEED";
/// Set to run this many times as many seeds.
const MORE: &str = "BASALT_HOSTILE_TIMES";
/// One seed takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Address space that campaigns may add to what the process starts with.
const MEMORY_KIB: u64 = 1 << 20;

/// Runs `work` for every seed; what fails names its seed.
fn campaign(name: &str, seeds: u64, work: impl Fn(u64)) {
    let wanted = std::env::var(REPLAY).ok().map(|seed| seed.parse::<u64>().expect("a number"));
    let times = std::env::var(MORE).map_or(1, |times| times.parse::<u64>().expect("a number"));
    let seeds = wanted.map_or(0..seeds * times, |seed| seed..seed + 1);
    let (current, step) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = std::sync::mpsc::channel::<()>();
    let before = address_space();
    std::thread::scope(|scope| {
        let (finished, wait) = done;
        let (current, step) = (&current, &step);
        scope.spawn(move || watch(name, current, step, &wait));
        for seed in seeds {
            current.store(seed, Ordering::Relaxed);
            step.fetch_add(1, Ordering::Relaxed);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(seed))) {
                eprintln!("{name}: seed {seed} failed; repeat with {REPLAY}={seed}");
                drop(finished);
                resume_unwind(panic);
            }
            let grown = address_space().saturating_sub(before);
            assert!(grown < MEMORY_KIB, "{name}: seed {seed} took {grown} KiB; repeat with {REPLAY}={seed}");
        }
        drop(finished);
    });
}

/// Ends the process when one seed takes too long: a loop without a request would never end by itself.
fn watch(name: &str, current: &AtomicU64, step: &AtomicU64, done: &std::sync::mpsc::Receiver<()>) {
    let mut last = step.load(Ordering::Relaxed);
    while done.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        let now = step.load(Ordering::Relaxed);
        if now == last {
            let seed = current.load(Ordering::Relaxed);
            eprintln!("{name}: seed {seed} hangs; repeat with {REPLAY}={seed}");
            std::process::abort();
        }
        last = now;
    }
}

/// The most address space this process ever had, in KiB.
fn address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Random bytes, most of them small, as many as a case can use.
fn bytes(seed: u64, length: u64) -> Vec<u8> {
    let mut random = Rng::new(seed);
    let length = random.between(length / 8, length);
    (0..length).map(|_| random.next_u64() as u8).collect()
}

#[test]
fn damaged_volumes_are_walked_and_changed() {
    campaign("volume", 15_000, |seed| {
        if let Some(case) = Case::parse(&bytes(seed, 500)) {
            run(&case);
        }
    });
}

#[test]
fn damaged_volumes_are_checked() {
    campaign("check", 8000, |seed| {
        if let Some(case) = Case::parse(&bytes(seed, 120)) {
            check_case(&case);
        }
    });
}

#[test]
fn damaged_volumes_are_rescued_repaired_and_resized() {
    const WORK: [(&str, Target, u64); 3] = [("rescue", rescue, 1000), ("repair", repair, 150), ("resize", resize, 400)];
    for (name, target, seeds) in WORK {
        campaign(name, seeds, |seed| target(&bytes(seed ^ 0x4E5C, 200)));
    }
}

#[test]
fn what_the_engine_trips_over_the_check_names() {
    campaign("agreement", 6000, |seed| {
        let Some(mut case) = Case::parse(&bytes(seed ^ 0xA9EE, 100)) else { return };
        case.read_only = true;
        case.changes.clear();
        if let Some(damage) = run(&case) {
            assert!(!check_case(&case), "the check calls it clean, but {damage}: {case:?}");
        }
    });
}

#[test]
fn undamaged_volumes_take_every_change() {
    campaign("sound", 1500, |seed| {
        let Some(mut case) = Case::parse(&bytes(seed ^ 0x50D, 700)) else { return };
        (case.patches, case.read_only, case.blocks) = (Vec::new(), false, None);
        if let Some(damage) = run(&case) {
            panic!("damage where there is none: {damage}; {case:?}");
        }
    });
}

/// Damage of few bytes over a sound structure: a run of zeros, a few changed bytes, and so on.
fn sparse_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Rng::new(seed);
    let mut bytes = vec![0; length];
    bytes[0] = random.next_u64() as u8;
    bytes[1] = random.next_u64() as u8;
    for _ in 0..random.between(1, 6) {
        let at = random.index(length);
        bytes[at] = random.next_u64() as u8;
    }
    bytes
}

#[test]
fn damaged_structures_are_read() {
    const STRUCTURES: [(Target, u64, usize); 7] = [
        (structures::superblock, 20_000, 3074),
        (structures::checkpoint, 600, 400),
        (structures::tables, 600, 4098),
        (structures::node_inode, 20_000, 4097),
        (structures::dentry, 4000, 4098),
        (structures::xattr, 20_000, 400),
        (structures::fuse_request, 20_000, 200),
    ];
    for which in 0..4 {
        assert!(!base::base(which).nodes.is_empty());
    }
    for (target, seeds, length) in STRUCTURES {
        campaign("structure", seeds, |seed| {
            target(&sparse_bytes(seed, length));
            target(&bytes(seed, length as u64));
        });
    }
}
