//! Devices that fail: errors reach the caller, the volume takes no more changes, and what was synced is there afterwards.

use std::io::ErrorKind;
use std::sync::Arc;

use basalt_device::{FaultyDevice, MemoryDevice, RequestKind};
use basalt_f2fs::Atime;
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, Error, FileKind, FileSystem, NewNode};

use crate::model::Model;
use crate::operations::{self, Operation};
use crate::run::{Outcome, World, failed};
use crate::shape::Shape;

/// Operations before the fault is armed, and at most after it.
const BEFORE: usize = 40;
const AFTER: usize = 200;

type Device = Arc<FaultyDevice<Arc<MemoryDevice>>>;

/// Runs operations until the device fails, opens again and looks for a state since the last sync. Whether it did fail.
pub fn run(seed: u64) -> Outcome<bool> {
    let mut rng = Rng::new(seed ^ 0xFA17);
    // Reading must change nothing, so that several states can be compared.
    let shape = Shape { atime: Atime::Noatime, ..Shape::random(&mut rng) };
    let memory = Arc::new(shape.device());
    let device: Device = Arc::new(FaultyDevice::new(memory.clone()));
    let mut world = World::on(shape, memory, device.clone())?;
    for _ in 0..BEFORE {
        world.run(&operation(&mut rng))?;
    }
    world.fs.sync().map_err(failed("sync"))?;
    arm(&device, &mut rng);
    let mut states = vec![world.model.clone()];
    for _ in 0..AFTER {
        let operation = operation(&mut rng);
        // What failed half-way may be there or not.
        let outcome = world.run(&operation);
        states.push(world.model.clone());
        match outcome {
            Ok(()) if world.fs.is_writable() => {
                if matches!(operation, Operation::Sync | Operation::SyncFile { .. }) && world.fs.failure().is_none() {
                    states.drain(..states.len() - 1);
                }
            }
            Ok(()) => break,
            Err(failure) if failure.contains("device error") => {
                if world.fs.is_writable() {
                    // Only looked: nothing has changed, and nothing is wrong once the device is well.
                    expect_only_reads_failed(&device, &failure)?;
                    device.heal();
                    states.pop();
                    states.push(world.model.clone());
                    continue;
                }
                break;
            }
            Err(failure) => return Err(failure),
        }
    }
    device.heal();
    let failed = !world.fs.is_writable();
    if failed {
        expect_read_only(&mut world)?;
    }
    find_state(world, states)?;
    Ok(failed)
}

/// A random operation; not the ones that open the volume again.
fn operation(rng: &mut Rng) -> Operation {
    loop {
        match operations::random(rng) {
            Operation::Reopen => {}
            other => return other,
        }
    }
}

/// Chooses a fault.
fn arm(device: &Device, rng: &mut Rng) {
    let nth = rng.size(60) + 1;
    match rng.below(5) {
        0 => device.fail_nth(RequestKind::Read, nth, ErrorKind::Other),
        1 => device.fail_nth(RequestKind::Write, nth, ErrorKind::Other),
        2 => device.fail_nth(RequestKind::Flush, nth.min(4), ErrorKind::Other),
        3 => device.fail_nth(RequestKind::Discard, nth.min(4), ErrorKind::Other),
        _ => device.fail_after(nth, ErrorKind::Other),
    }
}

/// A failed write or flush must not leave the volume writable; discards are hints.
fn expect_only_reads_failed(device: &Device, failure: &str) -> Outcome<()> {
    let harmless = failure.contains(": read of") || failure.contains(": discard of");
    if harmless && device.injected() > 0 {
        return Ok(());
    }
    Err(format!("the volume still takes changes after {failure}"))
}

/// A volume that failed refuses changes and says why.
fn expect_read_only(world: &mut World) -> Outcome<()> {
    let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    match world.fs.create(world.model.root, b"after the failure", &node, &Caller::default()) {
        Err(Error::ReadOnly) => {}
        other => return Err(format!("a failed volume made a file: {other:?}")),
    }
    if world.fs.failure().is_none() || world.fs.sync().is_ok() {
        return Err("a failed volume does not say so".into());
    }
    world.fs.list_xattrs(world.model.root).map(|_| ()).map_err(failed("a failed volume cannot be read"))
}

/// Opens the volume again and compares it with every state it may be in.
fn find_state(mut world: World, states: Vec<Model>) -> Outcome<()> {
    let (device, clock) = (world.device.clone(), world.clock.clone());
    // What was not closed was not written: the engine goes without a word.
    world.fs =
        world.model.shape.open(device.clone(), &clock).map_err(|error| format!("open after the failure: {error}"))?;
    let mut mismatch = String::new();
    for state in states.into_iter().rev() {
        world.model = state;
        world.model.end_references();
        match world.same_tree() {
            Ok(()) => {
                world.close()?;
                return world.check_volume();
            }
            Err(failure) => mismatch = failure,
        }
    }
    Err(format!("no state since the last sync; compared with that one: {mismatch}"))
}
