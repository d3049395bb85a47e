//! The engine against a model: the same random operations on both, with mounts in between.

mod support;

use basalt_nand::chip::Failures;
use basalt_nand::{Chip, ChipOptions, Ecc, Geometry};
use support::{Device, Model, chip, volume_of};

/// A small chip, so that cleaning is at work all the time.
fn small() -> Geometry {
    Geometry::new(2048, 64, 16, 160).unwrap()
}

#[test]
fn random_operations_do_what_a_model_does() {
    for seed in 0..30 {
        run(seed, chip(small(), seed));
    }
}

/// Random operations with mounts in between; says how many blocks are bad at the end.
fn run(seed: u64, mut device: Device) -> u32 {
    let mut model = Model::new(seed, 600_000);
    let mut memory = support::memory(&small());
    support::format(&mut device, &mut memory, seed);
    for _ in 0..6 {
        let mut volume = volume_of(&mut device, &mut memory);
        for _ in 0..120 {
            model.step(&mut volume);
        }
        model.check(&mut volume);
        model.check_holes(&mut volume);
        volume.unmount().map_err(|(error, _)| error).unwrap();
    }
    let mut volume = volume_of(&mut device, &mut memory);
    model.check(&mut volume);
    volume.usage().bad_blocks
}

/// Blocks that are bad from the beginning, programs and erases that fail: nothing is lost.
#[test]
fn failing_blocks_lose_nothing() {
    let mut bad = 0;
    for seed in 0..30 {
        let failures = Failures { programs: 400, erases: 1_000, endurance: 0 };
        let options = ChipOptions { seed, failures, factory_bad: 20, ..ChipOptions::new(small()) };
        bad += run(seed, Ecc::new(Chip::new(options)).unwrap());
    }
    assert!(bad > 60, "{bad}");
}
