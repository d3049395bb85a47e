//! Small changes of files that a checkpoint knows, an fsync behind most: what an fsync by a delta is for, and what it has to leave to others.

use basalt_testkit::rng::Rng;

use super::{overwrite, seed};
use crate::script::Step;

/// The files, and their first blocks and lengths: in the inode and behind its last address, in two direct nodes.
const FILES: [&str; 3] = ["t0", "t1", "t2"];
const PARTS: [(u64, u64); 3] = [(0, 30), (850, 120), (1_900, 60)];
/// Where they grow into nodes that they did not have.
const BEHIND: (u64, u64) = (2_930, 60);

/// Makes the files durable.
pub(super) fn begin(rng: &mut Rng, steps: &mut Vec<Step>) {
    for path in FILES {
        steps.push(Step::Create(path.to_owned()));
        for (first, blocks) in PARTS {
            steps.push(Step::Write(path.to_owned(), 4096 * first, (4096 * blocks) as u32, seed(rng)));
        }
    }
    steps.push(Step::Sync);
}

/// What comes behind `last`. `bytes` of other files were written first.
pub(super) fn step(rng: &mut Rng, bytes: u64, last: Option<&Step>) -> Step {
    if let Some(
        Step::Write(path, ..)
        | Step::Punch(path, ..)
        | Step::ZeroKeep(path, ..)
        | Step::Truncate(path, _)
        | Step::Allocate(path, ..)
        | Step::Reserve(path, ..),
    ) = last
        && path.starts_with('t')
        && rng.chance(40)
    {
        return if rng.chance(70) { Step::Fsync(path.clone()) } else { Step::Fdatasync(path.clone()) };
    }
    let path = FILES[rng.index(FILES.len())].to_owned();
    let (first, blocks) = if rng.chance(15) { BEHIND } else { PARTS[rng.index(PARTS.len())] };
    let offset = 4096 * (first + rng.below(blocks));
    let length = 4096 * if rng.chance(80) { rng.between(1, 6) } else { rng.between(20, 60) };
    // An end within a block moves without a new address.
    let ragged = if rng.chance(30) { length - rng.below(4096) } else { length };
    match rng.below(100) {
        0..38 => Step::Write(path, offset, ragged as u32, seed(rng)),
        38..44 => Step::Punch(path, offset, length),
        44..47 => Step::ZeroKeep(path, offset, ragged),
        // Within the last node, which stays; or in front of it, or behind.
        47..51 => Step::Truncate(path, 4096 * (1_895 + rng.below(90)) + rng.below(4096)),
        51..53 => Step::Truncate(path, 4096 * (2_900 + rng.below(200))),
        53..56 => Step::Allocate(path, offset, length),
        56..58 => Step::Reserve(path, offset, length),
        58..60 => Step::Chmod(path, 0o600 + rng.below(0o100) as u32),
        60..62 => Step::SetXattr(path, rng.below(2) as u8, [5, 100, 1500][rng.index(3)], seed(rng)),
        // New files, whose nodes may leave the cache before their first fsync.
        62..64 => Step::Create(format!("n{}", rng.below(6))),
        64..68 => Step::Write(format!("n{}", rng.below(6)), 4096 * rng.below(40), length as u32, seed(rng)),
        68..72 => Step::Fsync(format!("n{}", rng.below(6))),
        72 => Step::Unlink(format!("n{}", rng.below(6))),
        73..90 => overwrite(rng, bytes, 64),
        90..98 => Step::Fsync(path),
        98 => Step::Tick([1, 3, 6][rng.index(3)]),
        _ if rng.chance(30) => Step::Sync,
        _ => Step::Remount,
    }
}
