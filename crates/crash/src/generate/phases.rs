//! Workloads in phases: what an fsync has promised, long stretches without one, and what shows whether the promise holds.

use basalt_testkit::rng::Rng;

use super::{FILL_FILE, overwrite, seed};
use crate::script::Step;

/// Files that are a block below a node of their own: writing it makes two nodes dirty.
const DEEP_FILES: u64 = 24;
/// That block.
const DEEP: u64 = 4096 * 950;
/// Blocks of each of the two files that are overwritten in lulls. Together with nodes, fewer than a section has: where more than that is dead and
/// the last checkpoint needs it, the next one is due.
const HOT_BLOCKS: u64 = 96;

/// Files whose inodes fill most of a segment.
const ROUND_FILES: u64 = 400;
/// A file of which half is below direct nodes.
const WIDE: &str = "wide";
const WIDE_BYTES: u32 = 8 << 20;

/// [`Flavour::Lulls`](super::Flavour::Lulls), behind what is written first.
pub(super) fn lulls(rng: &mut Rng, bytes: u64, count: usize, steps: &mut Vec<Step>) {
    for path in (0..DEEP_FILES).map(deep) {
        steps.extend([Step::Create(path.clone()), Step::Write(path, DEEP, 4096, seed(rng))]);
    }
    steps.push(Step::Sync);
    while steps.len() < count {
        burst(rng, bytes, steps);
        lull(rng, steps);
    }
}

/// [`Flavour::Rounds`](super::Flavour::Rounds), behind what is written first.
pub(super) fn rounds(rng: &mut Rng, bytes: u64, count: usize, steps: &mut Vec<Step>) {
    steps.extend((0..ROUND_FILES).map(|number| Step::Create(round(number))));
    steps.push(Step::Create(WIDE.to_owned()));
    steps.push(Step::Write(WIDE.to_owned(), 0, WIDE_BYTES, seed(rng)));
    steps.push(Step::Sync);
    while steps.len() < count {
        come_round(rng, bytes, steps);
    }
}

fn deep(number: u64) -> String {
    format!("deep{number}")
}

/// A few writes, each with its fsync; sometimes the first ones of a session, or since a checkpoint.
fn burst(rng: &mut Rng, bytes: u64, steps: &mut Vec<Step>) {
    match rng.below(10) {
        0..3 => steps.push(Step::Remount),
        3..6 => steps.push(Step::Sync),
        _ => {}
    }
    for _ in 0..rng.between(1, 5) {
        let written = match rng.below(5) {
            0 => Step::Write(deep(rng.below(DEEP_FILES)), DEEP, 4096, seed(rng)),
            1 => overwrite(rng, bytes, 12),
            2 => hot(rng, 12),
            _ => hot(rng, HOT_BLOCKS),
        };
        let Step::Write(path, ..) = &written else { continue };
        let synced = if rng.chance(70) { Step::Fsync(path.clone()) } else { Step::Fdatasync(path.clone()) };
        steps.extend([written, synced]);
    }
}

/// Overwrites up to `most` blocks of a file that is hot: of one the inode addresses them, of the other a node below it.
fn hot(rng: &mut Rng, most: u64) -> Step {
    let (path, start) = [("fill0", 0), ("deep0", DEEP)][rng.index(2)];
    let blocks = rng.between(1 + most / 2, most);
    let offset = start + 4096 * rng.below(HOT_BLOCKS - blocks + 1);
    Step::Write(path.to_owned(), offset, (4096 * blocks) as u32, seed(rng))
}

/// Nodes of many files, then much data of few: were both in turns, memory pressure would write the nodes of those few too, and what is in the
/// chain keeps its data from being nobody's.
fn lull(rng: &mut Rng, steps: &mut Vec<Step>) {
    let is_synced = rng.chance(50);
    for _ in 0..[0, 100, 400, 700][rng.index(4)] {
        let path = deep(rng.below(DEEP_FILES));
        steps.push(Step::Write(path.clone(), DEEP, 4096, seed(rng)));
        if is_synced && rng.chance(1) {
            steps.push(Step::Fsync(path));
        }
    }
    for _ in 0..[40, 150, 250][rng.index(3)] {
        steps.push(hot(rng, HOT_BLOCKS));
    }
}

fn round(number: u64) -> String {
    format!("r{number}")
}

/// What no longer counts is left behind in the chain, or below it; all else is overwritten until the logs have come round; small fsyncs follow.
fn come_round(rng: &mut Rng, bytes: u64, steps: &mut Vec<Step>) {
    if rng.chance(50) {
        let half = WIDE_BYTES / 2;
        let write = |rng: &mut Rng| Step::Write(WIDE.to_owned(), half.into(), half, seed(rng));
        steps.extend([write(rng), Step::Fsync(WIDE.to_owned())]);
        steps.extend((0..rng.between(1, 3)).map(|_| write(rng)));
    } else {
        for _ in 0..rng.between(3, 4) {
            steps.extend((0..ROUND_FILES).map(|number| Step::Write(round(number), 0, 100, seed(rng))));
        }
    }
    let file_bytes = FILL_FILE as u32;
    for _ in 0..rng.between(70, 120) {
        let file = format!("fill{}", rng.below(bytes.div_ceil(FILL_FILE)));
        steps.push(Step::Write(file, 0, file_bytes, seed(rng)));
    }
    for _ in 0..rng.between(1, 4) {
        let path = round(rng.below(ROUND_FILES));
        steps.extend([Step::Write(path.clone(), 0, 200, seed(rng)), Step::Fsync(path)]);
    }
}
