//! The engine against a model in memory: seeded random operations on many shapes of volumes.
//!
//! | module | what |
//! |---|---|
//! | [`model`] | what POSIX and Linux say a file system does |
//! | [`operations`] | random operations |
//! | [`run`], [`compare`] | runs them on both and compares |
//! | [`fsx`], [`full`], [`large`], [`faults`] | one file; full volumes; large directories and deep trees; failing devices |
//! | [`content`] | sparse file content |
//! | [`treachery`] | a device that fails badly |
//! | [`shape`] | the volumes, and the clock |
//! | [`campaign`] | many seeds; replaying and shrinking one |
//!
//! `BASALT_SEED=17` replays one seed; `BASALT_SEEDS=10` runs ten times as many as usual.

mod campaign;
mod compare;
mod content;
mod faults;
mod fsx;
mod full;
mod large;
mod model;
mod operations;
mod run;
mod shape;
mod treachery;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use basalt_device::RequestKind;
use basalt_testkit::images::TOOLS;
use basalt_testkit::recorded;
use basalt_testkit::rng::Rng;
use basalt_testkit::skip::tools_or_skip;

use campaign::{campaign, caught, shrink};
use faults::{Fault, Met};
use operations::Operation;
use run::{Outcome, World};
use shape::Shape;

/// The shape and the operations of a seed.
fn plan(seed: u64) -> (Shape, Vec<Operation>) {
    let mut rng = Rng::new(seed);
    let shape = Shape::random(&mut rng);
    let length = rng.between(20, 120);
    let mut operations: Vec<Operation> = (0..length).map(|_| operations::random(&mut rng)).collect();
    if rng.chance(15) {
        operations.insert(operations.len() / 4, Operation::Fill { leave: rng.size(100) });
    }
    (shape, operations)
}

/// Of how many seeds one volume is shown to `fsck.f2fs`.
const FSCK_EVERY: u64 = 300;

/// Runs operations, and at the end closes, checks, opens and compares. Returns the volume closed.
fn run(shape: Shape, operations: &[Operation]) -> Outcome<World> {
    let mut world = World::new(shape)?;
    for operation in operations {
        world.run(operation)?;
    }
    world.same_tree()?;
    world.reopen()?;
    world.close()?;
    Ok(world)
}

/// Runs a planned sequence for many seeds, and shrinks the first that fails.
fn sequences(name: &str, count: u64, plan: impl Fn(u64) -> (Shape, Vec<Operation>) + Sync) {
    let has_fsck = tools_or_skip(TOOLS);
    campaign(
        name,
        count,
        |seed| {
            let (shape, operations) = plan(seed);
            let world = run(shape, &operations)?;
            if has_fsck && seed % FSCK_EVERY == 0 { world.fsck() } else { Ok(()) }
        },
        |seed| {
            let (shape, operations) = plan(seed);
            let fails = |some: &[Operation]| caught(|| run(shape, some).map(|_| ())).is_err();
            let shortest = shrink(&operations, fails);
            let failure = caught(|| run(shape, &shortest).map(|_| ())).err();
            format!("{shape:?}\nshortest:\n{shortest:#?}\n{}", failure.unwrap_or_default())
        },
    );
}

#[test]
fn random_operations_do_what_the_model_says() {
    sequences("random_operations_do_what_the_model_says", 6000, plan);
}

#[test]
fn one_file_holds_what_was_written() {
    sequences("one_file_holds_what_was_written", 3500, fsx::plan);
}

#[test]
fn full_volumes_refuse_and_recover() {
    let has_fsck = tools_or_skip(TOOLS);
    let run = |seed| {
        let world = full::run(seed)?;
        if has_fsck && seed % 20 == 0 { world.fsck() } else { Ok(()) }
    };
    campaign("full_volumes_refuse_and_recover", 60, run, |_| String::new());
}

#[test]
fn large_directories_and_deep_trees_hold() {
    let has_fsck = tools_or_skip(TOOLS);
    let run = |seed| {
        let world = match seed % 3 {
            0 => large::large_directory(seed, if seed == 0 { 20_000 } else { 4_000 })?,
            1 => large::many_directories(seed, 120)?,
            _ => large::deep_tree(seed, 300)?,
        };
        if has_fsck && seed < 4 { world.fsck() } else { Ok(()) }
    };
    campaign("large_directories_and_deep_trees_hold", 12, run, |_| String::new());
}

#[test]
fn blocks_of_the_last_checkpoint_are_not_used_again() {
    campaign("blocks_of_the_last_checkpoint_are_not_used_again", 6, full::churn, |_| String::new());
}

#[test]
fn unlinked_files_in_use_go_with_a_crash() {
    campaign("unlinked_files_in_use_go_with_a_crash", 6, |seed| large::orphans(seed, 2_500), |_| String::new());
}

#[test]
fn device_errors_lose_nothing_that_was_synced() {
    let failed = AtomicU64::new(0);
    let run = |seed| {
        failed.fetch_add(u64::from(faults::run(seed)?.read_only), Ordering::Relaxed);
        Ok(())
    };
    campaign("device_errors_lose_nothing_that_was_synced", 400, run, |_| String::new());
    let failed = failed.into_inner();
    assert!(failed > 150 || std::env::var_os("BASALT_SEED").is_some(), "only {failed} volumes met their fault");
}

#[test]
fn every_single_request_may_fail() {
    // Requests that failed; volumes that turned read-only; changes that failed while the volume went on.
    let (faults, read_only, survived) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let run = |seed: u64| {
        for fault in Fault::ALL {
            let met = faults::every_one(seed / 2, fault, seed % 2 == 1)?;
            let count = |what: fn(&Met) -> bool| met.iter().filter(|met| what(met)).count() as u64;
            let unnoticed = count(|met| !met.read_only);
            if unnoticed > 0 && matches!(fault, Fault::One(RequestKind::Write | RequestKind::Flush)) {
                return Err(format!("{fault:?}: {unnoticed} of {} were not noticed", met.len()));
            }
            faults.fetch_add(met.len() as u64, Ordering::Relaxed);
            read_only.fetch_add(count(|met| met.read_only), Ordering::Relaxed);
            survived.fetch_add(count(|met| met.survived), Ordering::Relaxed);
        }
        Ok(())
    };
    campaign("every_single_request_may_fail", 8, run, |_| String::new());
    let counts = [faults, read_only, survived].map(AtomicU64::into_inner);
    println!("{counts:?} faults, volumes read-only, failures survived");
    assert!(counts.iter().all(|count| *count > 20) || std::env::var_os("BASALT_SEED").is_some(), "{counts:?}");
}

#[test]
fn the_same_seed_leaves_the_same_device() {
    let run = |seed| {
        let (shape, operations) = plan(seed);
        let hashes = [run(shape, &operations)?.hash()?, run(shape, &operations)?.hash()?];
        if hashes[0] == hashes[1] { Ok(()) } else { Err(format!("hashes {hashes:x?}")) }
    };
    campaign("the_same_seed_leaves_the_same_device", 40, run, |_| String::new());
}

/// What the engine leaves on a device is on record: a change that does not mean to change it leaves it as it is.
#[test]
fn device_contents_are_as_recorded() {
    let lines = (0..40).map(|seed| {
        let (shape, operations) = plan(seed);
        let hash = run(shape, &operations).and_then(|world| world.hash());
        format!("seed {seed} contents {:016x}", hash.unwrap_or_else(|failure| panic!("seed {seed}: {failure}")))
    });
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/model/contents.txt");
    recorded::expect(&path, &lines.collect::<Vec<_>>());
}
