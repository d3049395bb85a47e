//! Files by path: the same operations as by `std::fs`, with the same results.
//!
//! | module | what |
//! |---|---|
//! | [`operations`] | random operations |
//! | [`sides`] | runs them by `std::fs` on the host and by `Files` on a volume |
//! | [`counting`] | a volume that counts the references it has given out |
//! | [`cases`] | what a host cannot show: the root, absolute links, damage to nothing outside |
//!
//! `BASALT_SEED=17` runs one seed; `BASALT_SEEDS=10` runs ten times as many as usual.

mod cases;
mod counting;
mod operations;
mod sides;

use std::io::SeekFrom;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use basalt_testkit::rng::Rng;
use basalt_vfs::Caller;
use basalt_vfs::path::Files;

use counting::Counting;
use operations::Operation;
use sides::{Host, Volume};

/// Seeds that are run.
const SEEDS: u64 = 50;
/// Operations of each.
const OPERATIONS: usize = 250;
/// How deep the directory lies in which both sides work: no path with forty links, each of which goes up once, leads out of it.
const DEPTH: usize = 45;

fn run(seed: u64) {
    let scratch = basalt_testkit::scratch::directory().unwrap();
    let below = "/0".repeat(DEPTH);
    let base = scratch.path().join(below.trim_start_matches('/'));
    std::fs::create_dir_all(&base).unwrap();
    // What the host's umask takes away.
    let made = std::fs::metadata(&base).unwrap().permissions().mode();
    let caller = Caller { uid: 0, gid: 0, umask: 0o777 & !made };

    let fs = Counting::new();
    let mut host = Host::new(&base);
    let mut volume = Volume::new(&below, Files::new(fs).with_caller(caller));
    let mut rng = Rng::new(seed);
    let mut log = Vec::new();
    for _ in 0..OPERATIONS {
        let operation = operations::random(&mut rng);
        let is_left_out = match &operation {
            // `std::fs::copy` empties a file that is copied onto itself; `Files` refuses.
            Operation::Copy(from, to) => host.is_same(from, to),
            // Where a directory ends is each file system's own business.
            Operation::Seek(place, SeekFrom::End(_)) => host.has_directory_open(*place),
            // `std` removes the emptied directory by its path, which may have led through what it has removed.
            Operation::RemoveDirAll(path) => host.leads_through_links(path),
            Operation::Chown(..) => std::fs::metadata("/proc/self").unwrap().uid() != 0,
            _ => false,
        };
        if is_left_out {
            continue;
        }
        let (expected, found) = (host.run(&operation), volume.run(&operation));
        log.push(format!("{operation:?} -> {expected:?}").chars().take(400).collect::<String>());
        assert_eq!(found, expected, "seed {seed}, the last of\n{}", log.join("\n"));
    }
    let fs = volume.close();
    fs.expect_none_held();
}

#[test]
fn files_by_path_are_as_those_of_std() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("BASALT_SEED") {
        Some(seed) => run(seed),
        None => (0..SEEDS * number("BASALT_SEEDS").unwrap_or(1)).for_each(run),
    }
}
