//! Random workloads.

mod phases;
mod told;

use basalt_testkit::rng::Rng;

use crate::prepare::name_of;
use crate::script::{Special, Step};

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
    /// As that, with an fsync of a small file that has hardly changed for every few hundred blocks: its seal lists much that others wrote,
    /// and that cleaning has moved since.
    Seldom(u64),
    /// As pressure, among small files that grow and are not synced: cleaning takes checkpoints that leave out their pages.
    Growth(u64),
    /// Files whose blocks nodes of their own address, rewritten in pieces of more than a seal lists, synced or not: so many bytes of them.
    Large(u64),
    /// Fsyncs, and between them long lulls in which a few files are overwritten and nothing is made durable, on a volume with room: commits free what
    /// has lived and died since the last checkpoint, which is long ago, and memory pressure makes the chain longer. So many bytes of files.
    Lulls(u64),
    /// Nodes of a chain or the data below them die without an fsync, and then so much of a few files of so many bytes is overwritten, on a volume with
    /// room, that the logs come round to what a commit has freed; fsyncs follow.
    Rounds(u64),
    /// Files that a sync made durable, changed a little between fsyncs and hardly ever more, near where nodes begin; beside them others are
    /// overwritten, so that cleaning goes on. So many bytes of those.
    Told(u64),
    /// As many blocks as a seal lists with the nodes above them, or one or two fewer or more, fsynced: of files that are there already.
    Brim,
    /// Many files, each fsynced when it is written, hardly ever a sync: recovery has more to do than a small cache holds.
    Many,
    /// Names in a directory of many.
    Names,
    /// Sparse files, around the first and last blocks of each kind of node.
    Sparse,
}

impl Flavour {
    /// Bytes that are written first.
    fn filled(self) -> Option<u64> {
        match self {
            Flavour::Pressure(bytes)
            | Flavour::Churn(bytes)
            | Flavour::Cleaning(bytes)
            | Flavour::Growth(bytes)
            | Flavour::Chain(bytes)
            | Flavour::Lulls(bytes)
            | Flavour::Rounds(bytes)
            | Flavour::Told(bytes)
            | Flavour::Seldom(bytes) => Some(bytes),
            Flavour::Mixed
            | Flavour::Fsync
            | Flavour::Large(_)
            | Flavour::Brim
            | Flavour::Many
            | Flavour::Names
            | Flavour::Sparse => None,
        }
    }
}

/// Bytes of one file of a volume that is filled.
const FILL_FILE: u64 = 512 << 10;
/// Blocks of one of the files that are rewritten in large pieces, and the first of them: most are behind what any inode addresses itself.
const LARGE_BLOCKS: u64 = 640;
const LARGE_FIRST: u64 = 900;
/// Blocks that a seal lists.
const SEAL_BLOCKS: u64 = 507;
/// Files with all kinds of nodes.
const SPARSE: [&str; 2] = ["p0", "p1"];
/// Blocks of a file near which another node, or another kind of node, begins: those that the inode addresses itself (their number depends on the
/// volume), two direct nodes, two indirect ones and the second child of each, the double indirect one and the second child of that.
const NODE_BEGINNINGS: [u64; 9] = [0, 900, 1_910, 2_945, 3_960, 1_039_250, 1_040_270, 2_075_570, 3_111_890];
/// Files that are fsynced among much that is not.
const SMALL: [&str; 3] = ["s0", "s1", "s2"];
/// So many steps of a flavour.
pub fn steps(rng: &mut Rng, flavour: Flavour, count: usize) -> Vec<Step> {
    let mut steps = Vec::with_capacity(count);
    for name in ["d0", "d1", "d0/e"] {
        steps.push(Step::Mkdir(name.to_owned()));
    }
    if let Some(bytes) = flavour.filled() {
        for number in 0..bytes.div_ceil(FILL_FILE) {
            let path = format!("fill{number}");
            steps.push(Step::Create(path.clone()));
            steps.push(Step::Write(path, 0, FILL_FILE as u32, rng.next_u64() >> 40));
        }
        steps.push(Step::Sync);
    }
    if let Flavour::Seldom(_) = flavour {
        for path in SMALL {
            steps.extend([Step::Create(path.to_owned()), Step::Write(path.to_owned(), 0, 4096, seed(rng))]);
        }
    }
    if let Flavour::Large(bytes) = flavour {
        for number in 0..large_files(bytes) {
            let path = format!("big{number}");
            steps.push(Step::Create(path.clone()));
            steps.push(Step::Write(path, 4096 * LARGE_FIRST, (4096 * LARGE_BLOCKS) as u32, seed(rng)));
        }
        steps.extend(SMALL.map(|path| Step::Create(path.to_owned())));
        steps.push(Step::Sync);
    }
    match flavour {
        Flavour::Lulls(bytes) => phases::lulls(rng, bytes, count, &mut steps),
        Flavour::Rounds(bytes) => phases::rounds(rng, bytes, count, &mut steps),
        _ => {}
    }
    if let Flavour::Told(_) = flavour {
        told::begin(rng, &mut steps);
    }
    if flavour == Flavour::Brim {
        steps.extend(SMALL.map(|path| Step::Create(path.to_owned())));
        steps.push(Step::Sync);
    }
    if let Flavour::Growth(_) = flavour {
        steps.extend((0..6).map(|number| Step::Create(format!("f{number}"))));
    }
    if flavour == Flavour::Sparse {
        steps.extend(SPARSE.map(|path| Step::Create(path.to_owned())));
    }
    while steps.len() < count {
        steps.push(match flavour {
            Flavour::Pressure(bytes) if rng.chance(75) => pressure(rng, bytes),
            Flavour::Churn(bytes) => overwrite(rng, bytes, 128),
            Flavour::Fsync if rng.chance(55) => fsync_heavy(rng),
            Flavour::Chain(bytes) => chain(rng, bytes, steps.last()),
            Flavour::Seldom(bytes) if rng.chance(97) => seldom(rng, bytes, steps.last()),
            Flavour::Large(bytes) if rng.chance(97) => large(rng, bytes, steps.last()),
            Flavour::Told(bytes) if rng.chance(99) => told::step(rng, bytes, steps.last()),
            Flavour::Brim => brim(rng, steps.last()),
            Flavour::Many if rng.chance(95) => many(rng, steps.last()),
            Flavour::Names if rng.chance(70) => names(rng),
            Flavour::Sparse if rng.chance(90) => sparse(rng, steps.last()),
            Flavour::Cleaning(bytes) if rng.chance(97) => cleaning(rng, bytes),
            Flavour::Growth(bytes) if rng.chance(90) => growth(rng, bytes),
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
        _ if rng.chance(85) => 4096 * rng.between(16, 40),
        _ if rng.chance(50) => 4096 * rng.between(200, 300),
        // As much as one seal lists, or nearly.
        _ => 4096 * rng.between(505, 507),
    };
    let offset = match rng.below(10) {
        0..4 => 0,
        4..8 => 4096 * rng.below(20),
        8 => rng.below(100_000),
        // Behind what the inode addresses itself; now and then behind the first, the second, the double-indirect node.
        _ if rng.chance(70) => 4096 * (860 + rng.below(40)),
        _ => 4096 * ([2_950, 1_039_200, 2_075_600][rng.index(3)] + rng.below(100)),
    };
    let seed = seed(rng);
    if rng.chance(8) {
        return Step::WriteBack(path, offset / 4096 * 4096, length.next_multiple_of(4096) as u32, seed);
    }
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
        // Behind the end, where there may be no room any more: all or nothing of it is to be there.
        4..6 => Step::Write(file, FILL_FILE + 4096 * rng.below(200), 4096 * rng.between(1, 60) as u32, seed(rng)),
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
        // The chain goes on in the log's segment, and leaves that behind.
        _ if rng.below(400) == 0 => Step::Remount,
        _ if rng.chance(12) => overwrite(rng, bytes, 128),
        _ => {
            let block = rng.below(FILL_FILE / 4096);
            Step::Write(format!("fill{}", rng.below(files.min(6))), 4096 * block, 4096, seed(rng))
        }
    }
}

fn seldom(rng: &mut Rng, bytes: u64, last: Option<&Step>) -> Step {
    if let Some(Step::Write(path, ..)) = last
        && SMALL.contains(&&**path)
    {
        // Mostly of this one.
        return Step::Fsync(if rng.chance(60) { path.clone() } else { SMALL[rng.index(SMALL.len())].to_owned() });
    }
    let file = format!("fill{}", rng.below(bytes.div_ceil(FILL_FILE)));
    match rng.below(100) {
        0..8 => Step::Write(SMALL[rng.index(SMALL.len())].to_owned(), 0, 4096, seed(rng)),
        8..10 => Step::Fsync(file),
        _ => {
            let blocks = [1, 1, 1, 4, 12, 40][rng.index(6)];
            let first = rng.below(FILL_FILE / 4096 - blocks + 1);
            Step::Write(file, 4096 * first, (4096 * blocks) as u32, seed(rng))
        }
    }
}

fn names(rng: &mut Rng) -> Step {
    let name = |rng: &mut Rng| format!("many/{}", name_of(rng.below(600) as u32));
    match rng.below(20) {
        0..4 => Step::Create(name(rng)),
        4..8 => Step::Unlink(name(rng)),
        8..11 => Step::Rename(name(rng), name(rng)),
        11 => Step::Exchange(name(rng), name(rng)),
        12 => Step::Rename(name(rng), path(rng)),
        13 => Step::Link(name(rng), name(rng)),
        14 => Step::Write(name(rng), 0, rng.between(1, 9000) as u32, seed(rng)),
        15 => Step::Mkdir(name(rng)),
        16 => Step::Rename("many".to_owned(), "d0/many".to_owned()),
        17 => Step::Rename("d0/many".to_owned(), "many".to_owned()),
        _ => Step::Fsync(name(rng)),
    }
}

/// Something near where a node begins.
fn sparse(rng: &mut Rng, last: Option<&Step>) -> Step {
    match last {
        // Nodes that only an fsync vouches for go, and the end comes back behind where they were.
        Some(Step::Fsync(path)) if rng.chance(25) => return Step::Truncate(path.clone(), rng.below(5_000)),
        Some(Step::Truncate(path, size)) if rng.chance(50) => {
            let end = 4096 * NODE_BEGINNINGS[rng.index(NODE_BEGINNINGS.len())] + rng.below(200_000);
            let is_longer = end > *size && rng.chance(60);
            return if is_longer { Step::Truncate(path.clone(), end) } else { Step::Fsync(path.clone()) };
        }
        _ => {}
    }
    let path = SPARSE[rng.index(SPARSE.len())].to_owned();
    let page = NODE_BEGINNINGS[rng.index(NODE_BEGINNINGS.len())] + rng.below(45);
    let offset = 4096 * page;
    let length = 4096 * if rng.chance(80) { rng.between(1, 4) } else { rng.between(20, 50) };
    // An end within a block moves without a new address.
    let length = if rng.chance(40) { length - rng.below(4096) } else { length };
    match rng.below(20) {
        0..9 => Step::Write(path, offset, length as u32, seed(rng)),
        9..11 => Step::Truncate(path, offset + rng.below(4096)),
        11 => Step::Punch(path, offset, 4096 * rng.between(1, 2_500)),
        12 if rng.chance(50) => Step::Reserve(path, offset, length),
        12 => Step::Allocate(path, offset, length),
        13..17 => Step::Fsync(path),
        17 => Step::Fdatasync(path),
        18 => Step::Unlink(path),
        _ => Step::Create(path),
    }
}

fn growth(rng: &mut Rng, bytes: u64) -> Step {
    let path = format!("f{}", rng.below(6));
    match rng.below(24) {
        0..9 => overwrite(rng, bytes, 40),
        // Small enough for the inode itself, at first.
        9..13 => Step::Write(path, 0, rng.between(1, 3_400) as u32, seed(rng)),
        13..16 => Step::Write(path, rng.below(30_000), rng.between(1, 12_000) as u32, seed(rng)),
        16 => Step::Create(path),
        17..19 => Step::Reserve(path, 0, 4096 * rng.between(1, 6)),
        19 => Step::Truncate(path, rng.below(20_000)),
        20 => Step::Unlink(path),
        _ => Step::Fsync(path),
    }
}

fn large_files(bytes: u64) -> u64 {
    (bytes / (4096 * LARGE_BLOCKS)).max(1)
}

fn large(rng: &mut Rng, bytes: u64, last: Option<&Step>) -> Step {
    if let Some(Step::Write(path, ..)) = last
        && rng.chance(45)
    {
        return if rng.chance(60) { Step::Fdatasync(path.clone()) } else { Step::Fsync(path.clone()) };
    }
    let path = format!("big{}", rng.below(large_files(bytes)));
    let blocks = match rng.below(20) {
        0 => return Step::Remount,
        1..4 => return Step::Write(SMALL[rng.index(SMALL.len())].to_owned(), 0, 4096, seed(rng)),
        4..8 => rng.between(1, 40),
        8..11 => rng.between(100, 400),
        // As many as a seal lists with the nodes above them, nearly, or more.
        _ => rng.between(500, LARGE_BLOCKS),
    };
    let first = LARGE_FIRST + rng.below(LARGE_BLOCKS - blocks + 1);
    Step::Write(path, 4096 * first, (4096 * blocks) as u32, seed(rng))
}

fn brim(rng: &mut Rng, last: Option<&Step>) -> Step {
    if let Some(Step::Write(path, ..)) = last {
        return if rng.chance(70) { Step::Fsync(path.clone()) } else { Step::Fdatasync(path.clone()) };
    }
    // With the inode alone above them, or with a node of their own, too.
    let first = if rng.chance(60) { 0 } else { LARGE_FIRST };
    let blocks = rng.between(SEAL_BLOCKS - 3, SEAL_BLOCKS + 1);
    Step::Write(SMALL[rng.index(SMALL.len())].to_owned(), 4096 * first, (4096 * blocks) as u32, seed(rng))
}

fn many(rng: &mut Rng, last: Option<&Step>) -> Step {
    match last {
        Some(Step::Create(path)) => Step::Write(path.clone(), 0, 4096 * rng.between(1, 40) as u32, seed(rng)),
        Some(Step::Write(path, ..)) => Step::Fsync(path.clone()),
        _ => {
            let path = format!("{}m{}", ["", "d0/", "d1/"][rng.index(3)], rng.below(60));
            if rng.chance(20) { Step::Unlink(path) } else { Step::Create(path) }
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
        0..12 => Step::Create(path(rng)),
        12..34 => {
            let path = path(rng);
            write(rng, path)
        }
        34..39 => Step::Truncate(path(rng), [0, rng.below(5_000), rng.below(200_000)][rng.index(3)]),
        39..43 => Step::Unlink(path(rng)),
        43..50 => Step::Rename(any(rng), any(rng)),
        50..52 => Step::Exchange(any(rng), any(rng)),
        52..55 => Step::Link(if rng.chance(20) { handle(rng) } else { path(rng) }, path(rng)),
        55..57 => Step::Mkdir(directory(rng)),
        57 => Step::Rmdir(directory(rng)),
        58..65 => attributes(rng),
        65..70 => rare(rng),
        70..74 => range(rng),
        74..76 => Step::Hold(path(rng)),
        76 => Step::Release,
        77..88 => Step::Fsync(if rng.chance(5) { handle(rng) } else { any(rng) }),
        88..91 => Step::Fdatasync(path(rng)),
        91..94 => Step::Sync,
        94..97 => Step::Tick([1, 3, 6, 10][rng.index(4)]),
        97 => [Step::Statfs, Step::Trim, Step::Walk][rng.index(3)].clone(),
        _ => Step::Remount,
    }
}

/// A handle of a file without a name.
fn handle(rng: &mut Rng) -> String {
    format!("@{}", rng.below(2))
}

/// What changes an inode besides its content.
fn attributes(rng: &mut Rng) -> Step {
    let path = if rng.chance(8) { handle(rng) } else { any(rng) };
    match rng.below(14) {
        0..5 => Step::SetXattr(path, rng.below(3) as u8, [5, 100, 1500, 3000][rng.index(4)], seed(rng)),
        5..7 => Step::RemoveXattr(path, rng.below(3) as u8),
        7 => Step::SetAcl(path, rng.below(50) as u32),
        8 => Step::Chown(path, rng.below(3) as u32, rng.below(3) as u32),
        9..11 => Step::Utimes(path, rng.below(1 << 33) as i64 - 1000, rng.below(1_000_000_000) as u32),
        // Immutable and append-only ones seldom: they stop nearly everything else.
        11 => Step::Flags(path, [0x40, 0x80, 0x8, 0x20, 0x10, 0][rng.index(6)]),
        12 => Step::Flags(path, 0),
        _ => Step::Chmod(path, rng.below(0o7777) as u32),
    }
}

/// What is made seldom, and renames of kinds that are seldom.
fn rare(rng: &mut Rng) -> Step {
    let special = [Special::Fifo, Special::Socket, Special::Char, Special::Block];
    match rng.below(8) {
        0..3 => Step::Symlink(path(rng), [10, 60, 3000, 3500, 4000, 4095][rng.index(6)]),
        3 => Step::Special(path(rng), special[rng.index(4)], rng.below(1 << 20) as u32),
        4 => Step::Unnamed(handle(rng)),
        5 => {
            let handle = handle(rng);
            write(rng, handle)
        }
        6 => Step::RenameNew(any(rng), path(rng)),
        _ => Step::Whiteout(path(rng), path(rng)),
    }
}

/// A range of a file, in each of the ways to treat one.
fn range(rng: &mut Rng) -> Step {
    let (path, offset, length) = (path(rng), rng.below(80_000), rng.between(1, 40_000));
    match rng.below(8) {
        0..2 => Step::Allocate(path, offset, length),
        2 => Step::Reserve(path, offset, length),
        3..6 => Step::Punch(path, offset, length),
        6 => Step::Zero(path, offset, length),
        _ => Step::ZeroKeep(path, offset, length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of a write and an fsync of the same file right behind it, by the blocks of the write.
    fn fsynced(flavour: Flavour) -> Vec<u32> {
        let steps = steps(&mut Rng::new(1), flavour, 300);
        let pairs = steps.windows(2).filter_map(|pair| match pair {
            [Step::Write(path, _, length, _), Step::Fsync(synced) | Step::Fdatasync(synced)] if path == synced => {
                Some(length / 4096)
            }
            _ => None,
        });
        pairs.collect()
    }

    #[test]
    fn workloads_for_recovery_have_something_to_recover() {
        let many = fsynced(Flavour::Many).len();
        assert!(many >= 60, "{many}");
        let large = fsynced(Flavour::Large(16 << 20));
        for (blocks, least) in [(1..100, 5), (100..500, 5), (506..LARGE_BLOCKS as u32 + 1, 20)] {
            let count = large.iter().filter(|length| blocks.contains(length)).count();
            assert!(count >= least, "{blocks:?}: {count} of {large:?}");
        }
    }
}
