//! The engine against a model in memory: seeded random operations on many shapes of volumes.
//!
//! | module | what |
//! |---|---|
//! | [`model`] | what POSIX and Linux say a file system does |
//! | [`operations`] | random operations |
//! | [`run`], [`compare`] | runs them on both and compares |
//! | [`content`] | sparse file content |
//! | [`shape`] | the volumes, and the clock |
//! | [`campaign`] | many seeds; replaying and shrinking one |
//!
//! `BASALT_SEED=17` replays one seed; `BASALT_SEEDS=10` runs ten times as many as usual.

mod campaign;
mod compare;
mod content;
mod model;
mod operations;
mod run;
mod shape;

use basalt_testkit::rng::Rng;

use campaign::{Failure, campaign, caught, shrink};
use operations::Operation;
use run::World;
use shape::Shape;

/// The shape and the operations of a seed.
fn plan(seed: u64) -> (Shape, Vec<Operation>) {
    let mut rng = Rng::new(seed);
    let shape = Shape::random(&mut rng);
    let length = rng.between(20, 120);
    (shape, (0..length).map(|_| operations::random(&mut rng)).collect())
}

/// Runs operations, and at the end closes, checks, opens and compares.
fn run(shape: Shape, operations: &[Operation]) -> Result<(), Failure> {
    let mut world = World::new(shape)?;
    for operation in operations {
        world.run(operation)?;
    }
    world.same_tree()?;
    world.reopen()?;
    world.close()
}

#[test]
fn random_operations_do_what_the_model_says() {
    campaign(
        "random_operations_do_what_the_model_says",
        6000,
        |seed| {
            let (shape, operations) = plan(seed);
            run(shape, &operations)
        },
        |seed| {
            let (shape, operations) = plan(seed);
            let fails = |some: &[Operation]| caught(|| run(shape, some)).is_err();
            let shortest = shrink(&operations, fails);
            let failure = caught(|| run(shape, &shortest)).err();
            format!("{shape:?}\nshortest:\n{shortest:#?}\n{}", failure.unwrap_or_default())
        },
    );
}
