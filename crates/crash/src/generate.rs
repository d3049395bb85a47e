//! Random workloads.

use basalt_testkit::rng::Rng;

use crate::script::Step;

/// What a workload is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// A little of everything, on few names, so that steps meet.
    Mixed,
    /// Overwriting what nearly fills the volume: cleaning never stops. So many bytes are written first.
    Pressure(u64),
    /// As that, in large pieces and without a sync: the logs come round to segments that the last checkpoint still needs.
    Churn(u64),
    /// Mostly fsync: what comes between two checkpoints.
    Fsync,
    /// Overwriting and fsync of what nearly fills the volume, hardly ever a sync: cleaning goes on for long between two checkpoints, of
    /// what those need and of what only an fsync vouches for. So many bytes are written first.
    Cleaning(u64),
    /// As that, with nothing but small writes, an fsync behind most, and large ones now and then: the roll-forward chain runs through
    /// several segments, which are good to clean because most of it is dead.
    Chain(u64),
}

/// Bytes of one file of a volume that is filled.
const FILL_FILE: u64 = 512 << 10;

/// So many steps of a flavour.
pub fn steps(rng: &mut Rng, flavour: Flavour, count: usize) -> Vec<Step> {
    let mut steps = Vec::with_capacity(count);
    for name in ["d0", "d1", "d0/e"] {
        steps.push(Step::Mkdir(name.to_owned()));
    }
    if let Flavour::Pressure(bytes) | Flavour::Churn(bytes) | Flavour::Cleaning(bytes) | Flavour::Chain(bytes) = flavour
    {
        for number in 0..bytes.div_ceil(FILL_FILE) {
            let path = format!("fill{number}");
            steps.push(Step::Create(path.clone()));
            steps.push(Step::Write(path, 0, FILL_FILE as u32, rng.next_u64() >> 40));
        }
        steps.push(Step::Sync);
    }
    while steps.len() < count {
        steps.push(match flavour {
            Flavour::Pressure(bytes) if rng.chance(75) => pressure(rng, bytes),
            Flavour::Churn(bytes) => overwrite(rng, bytes, 128),
            Flavour::Fsync if rng.chance(55) => fsync_heavy(rng),
            Flavour::Chain(bytes) => chain(rng, bytes, steps.last()),
            Flavour::Cleaning(bytes) if rng.chance(97) => cleaning(rng, bytes),
            _ => mixed(rng),
        });
    }
    steps
}

fn path(rng: &mut Rng) -> String {
    let dir = ["", "", "d0/", "d1/", "d0/e/"][rng.index(5)];
    format!("{dir}f{}", rng.below(5))
}

fn directory(rng: &mut Rng) -> String {
    ["d0", "d1", "d0/e", "d1/g", "d2"][rng.index(5)].to_owned()
}

fn any(rng: &mut Rng) -> String {
    if rng.chance(80) { path(rng) } else { directory(rng) }
}

fn seed(rng: &mut Rng) -> u64 {
    rng.next_u64() >> 40
}

fn write(rng: &mut Rng, path: String) -> Step {
    let length = match rng.below(10) {
        0..3 => rng.between(1, 200),
        3..7 => rng.between(1, 3 * 4096),
        7..9 => 4096 * rng.between(1, 12),
        // Whole runs go to the device at once.
        _ => 4096 * rng.between(16, 40),
    };
    let offset = match rng.below(10) {
        0..4 => 0,
        4..8 => 4096 * rng.below(20),
        8 => rng.below(100_000),
        // Behind what the inode addresses itself.
        _ => 4096 * (860 + rng.below(40)),
    };
    let seed = seed(rng);
    Step::Write(path, offset, length as u32, seed)
}

fn fsync_heavy(rng: &mut Rng) -> Step {
    let path = path(rng);
    match rng.below(10) {
        0..5 => Step::Fsync(path),
        5 => Step::Fdatasync(path),
        _ => write(rng, path),
    }
}

fn pressure(rng: &mut Rng, bytes: u64) -> Step {
    let file = format!("fill{}", rng.below(bytes.div_ceil(FILL_FILE)));
    match rng.below(20) {
        0 => Step::Fsync(file),
        1 => Step::Sync,
        2 => Step::Unlink(file),
        3 => Step::Create(file),
        _ => overwrite(rng, bytes, 40),
    }
}

fn cleaning(rng: &mut Rng, bytes: u64) -> Step {
    // Some files are hot, so that segments of them die soon.
    let files = bytes.div_ceil(FILL_FILE);
    let file = format!("fill{}", if rng.chance(60) { rng.below(files.min(3)) } else { rng.below(files) });
    match rng.below(100) {
        0..45 => Step::Fsync(file),
        45..47 => Step::Remount,
        47 => Step::Unlink(file),
        48 => Step::Create(file),
        49..65 => Step::Write(file, 4096 * rng.below(FILL_FILE / 4096), 4096, seed(rng)),
        65..80 => overwrite(rng, bytes, 12),
        80..92 => overwrite(rng, bytes, 40),
        _ => overwrite(rng, bytes, 128),
    }
}

fn chain(rng: &mut Rng, bytes: u64, last: Option<&Step>) -> Step {
    let files = bytes.div_ceil(FILL_FILE);
    match last {
        Some(Step::Write(file, _, 4096, _)) if rng.chance(90) => Step::Fsync(file.clone()),
        _ if rng.chance(12) => overwrite(rng, bytes, 128),
        _ => {
            let block = rng.below(FILL_FILE / 4096);
            Step::Write(format!("fill{}", rng.below(files.min(6))), 4096 * block, 4096, seed(rng))
        }
    }
}

/// Overwrites up to `most` blocks of one of the files that fill the volume.
fn overwrite(rng: &mut Rng, bytes: u64, most: u64) -> Step {
    let file = format!("fill{}", rng.below(bytes.div_ceil(FILL_FILE)));
    let blocks = rng.between(1 + most / 2, most).min(FILL_FILE / 4096);
    let offset = 4096 * rng.below(FILL_FILE / 4096 - blocks + 1);
    Step::Write(file, offset, (4096 * blocks) as u32, seed(rng))
}

fn mixed(rng: &mut Rng) -> Step {
    match rng.below(100) {
        0..14 => Step::Create(path(rng)),
        14..38 => {
            let path = path(rng);
            write(rng, path)
        }
        38..42 => Step::Truncate(path(rng), [0, rng.below(5_000), rng.below(200_000)][rng.index(3)]),
        42..46 => Step::Unlink(path(rng)),
        46..53 => Step::Rename(any(rng), any(rng)),
        53..55 => Step::Exchange(any(rng), any(rng)),
        55..58 => Step::Link(path(rng), path(rng)),
        58..61 => Step::Mkdir(directory(rng)),
        61..63 => Step::Rmdir(directory(rng)),
        63..65 => Step::Symlink(path(rng), [10, 60, 3000][rng.index(3)]),
        65..70 => {
            let length = [5, 100, 1500][rng.index(3)];
            Step::SetXattr(any(rng), rng.below(3) as u8, length, seed(rng))
        }
        70..72 => Step::RemoveXattr(any(rng), rng.below(3) as u8),
        72..74 => Step::Chmod(any(rng), rng.below(0o7777) as u32),
        74..76 => Step::Allocate(path(rng), 4096 * rng.below(20), rng.between(1, 40_000)),
        76..79 => Step::Punch(path(rng), rng.below(60_000), rng.between(1, 40_000)),
        79..81 => Step::Hold(path(rng)),
        81 => Step::Release,
        82..92 => Step::Fsync(any(rng)),
        92..94 => Step::Fdatasync(path(rng)),
        94..97 => Step::Sync,
        97..99 => Step::Tick(if rng.chance(50) { 1 } else { 10 }),
        _ => Step::Remount,
    }
}
