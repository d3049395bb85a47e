//! Devices that fail: errors reach the caller, the volume takes no more changes once something is amiss, and what was synced
//! is there afterwards. Random faults, and every single one of a short run.

use std::io::ErrorKind;
use std::sync::Arc;

use basalt_device::{MemoryDevice, RequestKind};
use basalt_f2fs::Atime;
use basalt_testkit::rng::Rng;
use basalt_vfs::{Caller, Error, FileKind, FileSystem, NewNode, RenameFlags};

use crate::model::Model;
use crate::operations::{self, Operation};
use crate::run::{Outcome, World, failed};
use crate::shape::Shape;
use crate::treachery::Treacherous;

type Device = Arc<Treacherous>;

/// How many operations run before the fault is armed, and at most after it.
struct Length {
    before: usize,
    after: usize,
}

const RANDOM: Length = Length { before: 40, after: 200 };
const EXHAUSTIVE: Length = Length { before: 15, after: 40 };
/// Of how many operations one is a sync, where every fault is tried.
const SYNC_EVERY: u64 = 8;

/// How a run with a fault went.
#[derive(Debug, Clone, Copy, Default)]
pub struct Met {
    /// The device has failed.
    pub fault: bool,
    /// The volume takes no more changes.
    pub read_only: bool,
    /// An operation that changes something failed, and the volume went on.
    pub survived: bool,
}

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// One request of a kind.
    One(RequestKind),
    /// All requests from one on: the device has gone.
    Gone,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 5] = [
        Fault::One(RequestKind::Read),
        Fault::One(RequestKind::Write),
        Fault::One(RequestKind::Flush),
        Fault::One(RequestKind::Discard),
        Fault::Gone,
    ];

    fn arm(self, device: &Device, nth: u64) {
        match self {
            Fault::One(kind) => device.faults().fail_nth(kind, nth, ErrorKind::Other),
            Fault::Gone => device.faults().fail_after(nth - 1, ErrorKind::NotConnected),
        }
    }
}

/// Runs operations until the device fails at random.
pub fn run(seed: u64) -> Outcome<Met> {
    let mut rng = Rng::new(seed ^ 0xFA17);
    let shape = Shape::random(&mut rng);
    let (fault, nth) = (Fault::ALL[rng.index(5)], rng.size(60) + 1);
    let nth = if matches!(fault, Fault::One(RequestKind::Flush | RequestKind::Discard)) { nth.min(4) } else { nth };
    trial(&mut rng, shape, seed.is_multiple_of(2), &RANDOM, operation, |device| fault.arm(device, nth))
}

/// Runs the same operations again and again, with another request failing each time, until they end without a fault.
/// Returns all that was met.
pub fn every_one(seed: u64, fault: Fault, cruel: bool) -> Outcome<Vec<Met>> {
    let mut all = Vec::new();
    for nth in 1.. {
        let mut rng = Rng::new(seed ^ 0xFA18);
        // A small cache, so that much is read and written.
        let shape = Shape { cache_bytes: 1 << 12, ..Shape::random(&mut rng) };
        let met = trial(&mut rng, shape, cruel, &EXHAUSTIVE, operation_or_sync, |device| fault.arm(device, nth))
            .map_err(|failure| format!("{fault:?} number {nth}, cruel: {cruel}: {failure}"))?;
        if !met.fault {
            break;
        }
        all.push(met);
    }
    Ok(all)
}

fn trial(
    rng: &mut Rng,
    shape: Shape,
    cruel: bool,
    length: &Length,
    next: fn(&mut Rng) -> Operation,
    arm: impl FnOnce(&Device),
) -> Outcome<Met> {
    // Reading must change nothing, so that several states can be compared.
    let shape = Shape { atime: Atime::Noatime, ..shape };
    let memory = Arc::new(shape.device());
    let device: Device = Arc::new(Treacherous::new(memory.clone(), cruel));
    let mut world = World::on(shape, memory, device.clone())?;
    for _ in 0..length.before {
        world.run(&next(rng))?;
    }
    world.fs.sync().map_err(failed("sync"))?;
    arm(&device);
    let operations: Vec<Operation> = (0..length.after).map(|_| next(rng)).collect();
    let mut met = Met::default();
    let states = run_until_failure(&mut world, &device, &operations, &mut met)?;
    met.fault = device.faults().injected() > 0;
    met.read_only = !world.fs.is_writable();
    device.faults().heal();
    if met.read_only {
        expect_read_only(&mut world, cruel)?;
    }
    find_state(world, states)?;
    Ok(met)
}

/// Runs operations until the volume takes no more. Returns the states that may be found on the device then.
fn run_until_failure(
    world: &mut World,
    device: &Device,
    operations: &[Operation],
    met: &mut Met,
) -> Outcome<Vec<Model>> {
    let mut states = vec![world.model.clone()];
    for operation in operations {
        let before = world.model.clone();
        let outcome = world.run(operation);
        // What failed half-way may be there or not.
        states.push(world.model.clone());
        match outcome {
            Ok(()) if world.fs.is_writable() => {
                if matches!(operation, Operation::Sync) {
                    states.drain(..states.len() - 1);
                }
            }
            Ok(()) => break,
            Err(failure) if failure.contains("device error") && world.fs.is_writable() => {
                expect_only_reads_failed(device, &failure)?;
                // Nothing is wrong once the device is well: the operation has happened, or it has not.
                device.faults().heal();
                met.survived = true;
                let after = std::mem::replace(&mut world.model, before);
                if let Err(mismatch) = world.same_tree() {
                    world.model = after;
                    world.same_tree().map_err(|_| format!("neither happened nor not: {failure}: {mismatch}"))?;
                }
                states.pop();
                states.push(world.model.clone());
            }
            Err(failure) if failure.contains("device error") => break,
            Err(failure) => return Err(failure),
        }
    }
    Ok(states)
}

/// A random operation; not the ones that open the volume again. fsync is sync here: only then is the whole tree that of one moment.
fn operation(rng: &mut Rng) -> Operation {
    loop {
        match operations::random(rng) {
            Operation::Reopen => {}
            Operation::SyncFile { .. } => return Operation::Sync,
            Operation::Rename { dir, name, new_dir, new_name, flags } => {
                // A whiteout is looked up as a second step.
                let flags = flags - RenameFlags::WHITEOUT;
                return Operation::Rename { dir, name, new_dir, new_name, flags };
            }
            other => return other,
        }
    }
}

fn operation_or_sync(rng: &mut Rng) -> Operation {
    if rng.below(SYNC_EVERY) == 0 { Operation::Sync } else { operation(rng) }
}

/// A failed write or flush must not leave the volume writable; discards are hints.
fn expect_only_reads_failed(device: &Device, failure: &str) -> Outcome<()> {
    let harmless = failure.contains(": read of") || failure.contains(": discard of");
    if harmless && device.faults().injected() > 0 {
        return Ok(());
    }
    Err(format!("the volume still takes changes after {failure}"))
}

/// A volume that failed refuses changes and says why; it can be read where the device has lost nothing.
fn expect_read_only(world: &mut World, cruel: bool) -> Outcome<()> {
    let node = NewNode { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    match world.fs.create(world.model.root, b"after the failure", &node, &Caller::default()) {
        Err(Error::ReadOnly) => {}
        other => return Err(format!("a failed volume made a file: {other:?}")),
    }
    if world.fs.failure().is_none() || world.fs.sync().is_ok() {
        return Err("a failed volume does not say so".into());
    }
    for ino in world.model.select(|_| true) {
        // Whatever comes of them, also where data is lost: an error is given to everybody, every time.
        if world.fs.sync_file(ino, true).is_ok() || world.fs.sync_file(ino, false).is_ok() {
            return Err(format!("fsync of inode {ino} succeeded on a failed volume"));
        }
    }
    world.fs.stat_fs().map_err(failed("statfs of a failed volume"))?;
    match world.fs.list_xattrs(world.model.root) {
        Err(error) if !cruel => Err(format!("a failed volume cannot be read: {error}")),
        _ => Ok(()),
    }
}

/// Opens the volume again and compares it with every state it may be in.
fn find_state(mut world: World, states: Vec<Model>) -> Outcome<()> {
    let (device, clock): (Arc<MemoryDevice>, _) = (world.device.clone(), world.clock.clone());
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
