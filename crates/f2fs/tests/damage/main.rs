//! Volumes damaged at random: what could be read before a repair, by rescue or a read-only mount, can be read after it, and both
//! checkers find nothing then.
//!
//! A part of it runs with the other tests; `make damage-campaign` (`COUNT=`, `SEED=`) runs all, and `fsck.f2fs` on the same volumes.

mod campaign;
#[allow(dead_code)] // Part of it is for tests/check_faults.rs.
#[path = "../editor/mod.rs"]
mod editor;
mod reading;
mod structures;
mod verdict;
mod volume;

use campaign::{Campaign, Order};

/// Volumes of each kind that are damaged with every run of the tests.
const COUNT: u64 = 60;

#[test]
fn a_few_volumes_with_five_places_damaged_lose_nothing() {
    Campaign::run(&Order { count: COUNT, seed: 0, wipe: false, compare: false }).expect_nothing_lost();
}

#[test]
fn a_few_volumes_with_one_structure_wiped_lose_nothing() {
    Campaign::run(&Order { count: COUNT, seed: 0, wipe: true, compare: false }).expect_nothing_lost();
}

/// Volumes of campaigns that a repair once harmed.
#[test]
fn volumes_that_lost_something_once_lose_nothing() {
    for seed in [
        // The root's second block is a copy of the first from long ago: every entry is there twice, and each directory keeps its right name.
        630,
        // An entry leads to a file whose own entry is gone, with all others of the root: both files get their names back.
        90_326,  // Both superblocks are damaged, at different places.
        100_658, // Likewise; one says that it has no checksum.
        101_373,
        // The first block of the newest checkpoint is damaged, and one owner in its summaries: it is the newest all the same.
        200_777, // The root has a wrong number of buckets.
        300_430,
        // A node is freed because the one above it is damaged, which is mended in the same round.
        700_005, 700_182,
        // The root leads to an old block of another directory in place of its first one: both have names of the same files.
        910_440, // A damaged footer makes a node claim the id of an inode that is there.
        910_443, // An entry with a wrong hash leads to another file, whose own entry is lost.
        920_111, 950_635, // A damaged footer has the id of a node of another file, which has a bad pointer.
    ] {
        Campaign::run(&Order { count: 1, seed, wipe: false, compare: false }).expect_nothing_lost();
    }
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

#[test]
#[ignore = "takes minutes: make damage-campaign"]
fn many_volumes_with_five_places_damaged_lose_nothing() {
    run_many(false);
}

#[test]
#[ignore = "takes minutes: make damage-campaign"]
fn many_volumes_with_one_structure_wiped_lose_nothing() {
    run_many(true);
}

fn run_many(wipe: bool) {
    let (count, seed) = (setting("BASALT_DAMAGED_VOLUMES", 1000), setting("BASALT_DAMAGE_SEED", 0));
    let result = Campaign::run(&Order { count, seed, wipe, compare: true });
    println!("{result}");
    result.expect_nothing_lost();
}
