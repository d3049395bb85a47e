//! Runs operations on an engine and on the model, and compares what they say.

mod attributes;
mod content;
mod names;
mod volume;

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_f2fs::{Clock, F2fs};
use basalt_vfs::{Error, FileKind, FileSystem, InodeNumber, NewNode, Result, SetAttributes, Time};

use crate::campaign::Failure;
use crate::model::{Inode, Model};
use crate::operations::{Name, Operation, Which};
use crate::shape::{Shape, TestClock};

/// Result of a step of a test.
pub type Outcome<T> = std::result::Result<T, Failure>;

/// Blocks that an operation may need beyond its data: nodes, a new directory block, the inode.
const BLOCKS_ASIDE: u64 = 16;
/// As free space before an operation that may not fail for want of any.
const PLENTY: u64 = u64::MAX;

/// An engine and the model that it is held against.
pub struct World {
    /// The device, also to be looked at while the volume is closed.
    pub device: Arc<MemoryDevice>,
    /// What the engine works on: the device, or a wrapper of it.
    through: Arc<dyn BlockDevice>,
    /// The engine.
    pub fs: F2fs,
    /// The model.
    pub model: Model,
    /// The time.
    pub clock: Arc<TestClock>,
    shape: Shape,
}

/// Wraps what an operation of the engine failed with.
pub fn failed(what: &'static str) -> impl Fn(Error) -> Failure {
    move |error| format!("{what}: {error}")
}

impl World {
    /// A new volume.
    pub fn new(shape: Shape) -> Outcome<World> {
        let device = Arc::new(shape.device());
        World::on(shape, device.clone(), device)
    }

    /// A new volume on a wrapper of its device.
    pub fn on(shape: Shape, device: Arc<MemoryDevice>, through: Arc<dyn BlockDevice>) -> Outcome<World> {
        let clock = TestClock::new();
        let fs = shape.open(through.clone(), &clock).map_err(|error| format!("open: {error}"))?;
        let model = Model::of_fresh(&fs, shape).map_err(failed("first look"))?;
        Ok(World { device, through, fs, model, clock, shape })
    }

    /// Runs one operation on both.
    pub fn run(&mut self, operation: &Operation) -> Outcome<()> {
        // Every operation has its own time.
        self.clock.advance(1_000);
        self.dispatch(operation).map_err(|failure| format!("{operation:?}: {failure}"))
    }

    fn dispatch(&mut self, operation: &Operation) -> Outcome<()> {
        use Operation as Op;
        match operation {
            Op::Create { dir, name, kind, permissions, rdev, target, caller } => {
                let length = if *kind == FileKind::Symlink { *target as usize } else { 0 };
                let target = vec![b't'; length];
                let node = NewNode { kind: *kind, permissions: *permissions, rdev: *rdev, target: &target };
                self.in_directory(*dir, *name, |world, dir, name| world.create(dir, name, &node, caller).map(|_| ()))
            }
            Op::Unnamed { dir, permissions, caller } => self.create_unnamed(*dir, *permissions, caller),
            Op::Link { file, dir, name } => {
                self.in_directory(*dir, *name, |world, dir, name| world.link(*file, dir, name))
            }
            Op::Unlink { dir, name } => self.in_directory(*dir, *name, World::unlink),
            Op::RemoveDirectory { dir, name } => self.in_directory(*dir, *name, World::remove_directory),
            Op::Rename { dir, name, new_dir, new_name, flags } => self.in_directory(*dir, *name, |world, dir, name| {
                world.in_directory(*new_dir, *new_name, |world, new_dir, new_name| {
                    world.rename((dir, name), (new_dir, new_name), *flags)
                })
            }),
            Op::Lookup { dir, name } => self.in_directory(*dir, *name, World::lookup),
            Op::Forget { node } => self.forget(*node),
            Op::Write { file, offset, length, fill, buffered, clear } => self.on_file(*file, |world, ino| {
                world.write_random(ino, *offset, *length as usize, *fill, (*buffered, *clear))
            }),
            Op::Read { file, offset, length } => {
                self.on_file(*file, |world, ino| world.read(ino, *offset, *length as usize))
            }
            Op::Truncate { file, size } => self.on_file(*file, |world, ino| {
                world.set_attributes(ino, &SetAttributes { size: Some(*size), ..SetAttributes::default() })
            }),
            Op::Allocate { file, mode, offset, length } => {
                self.on_file(*file, |world, ino| world.allocate(ino, *mode, *offset, *length))
            }
            Op::Seek { file, offset, whence } => self.on_file(*file, |world, ino| world.seek(ino, *offset, *whence)),
            Op::SetAttributes { node, changes } => self.on_any(*node, |world, ino| world.set_attributes(ino, changes)),
            Op::SetXattr { node, name, length, fill, flags } => {
                self.on_any(*node, |world, ino| world.set_xattr(ino, *name, *length as usize, *fill, *flags))
            }
            Op::RemoveXattr { node, name } => self.on_any(*node, |world, ino| world.remove_xattr(ino, *name)),
            Op::SetAcl { node, default, acl } => self.on_any(*node, |world, ino| world.set_acl(ino, *default, *acl)),
            Op::SetFlags { node, flags } => self.on_any(*node, |world, ino| world.set_flags(ino, *flags)),
            Op::SetProject { node, id } => self.on_any(*node, |world, ino| world.set_project_id(ino, *id)),
            Op::Examine { node } => self.on_any(*node, |world, ino| world.same_inode(ino)),
            Op::List { dir, batch } => {
                let dir = self.directory(*dir);
                self.same_listing(dir, usize::from(*batch))
            }
            Op::Advance { nanoseconds } => {
                self.clock.advance(*nanoseconds);
                Ok(())
            }
            Op::Tick => {
                let _ = self.fs.tick(self.now());
                Ok(())
            }
            Op::Sync => self.fs.sync().map_err(failed("sync")),
            Op::SyncFile { file } => {
                self.on_any(*file, |world, ino| world.fs.sync_file(ino, false).map_err(failed("fsync")))
            }
            Op::Trim { offset, length, minimum } => {
                self.fs.trim(*offset, *length, *minimum).map(|_| ()).map_err(failed("trim"))
            }
            Op::Reopen => self.reopen(),
            Op::Fill { leave } => self.fill(*leave),
        }
    }

    /// The time of this operation.
    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Free blocks.
    pub fn free(&self) -> Outcome<u64> {
        Ok(self.fs.stat_fs().map_err(failed("statfs"))?.free)
    }

    /// Holds the engine's answer against the model's. Both values if both succeeded.
    ///
    /// A full volume is an excuse if `free`, the blocks free before, were not enough for `blocks` and a few more.
    fn settle<T, U>(
        &mut self,
        answer: Result<T>,
        (free, blocks): (u64, u64),
        model: impl FnOnce(&mut Model) -> Result<U>,
    ) -> Outcome<Option<(T, U)>> {
        if matches!(answer, Err(Error::NoSpace)) {
            // Refused by the limits of the format, whatever is free?
            if matches!(model(&mut self.model.clone()), Err(Error::NoSpace)) {
                return Ok(None);
            }
            if free >= blocks.saturating_add(BLOCKS_ASIDE) {
                return Err(format!("no space for {blocks} blocks, though {free} were free"));
            }
            return Ok(None);
        }
        match (answer, model(&mut self.model)) {
            (Ok(answer), Ok(expected)) => Ok(Some((answer, expected))),
            (Err(error), Err(expected)) if error.kind() == expected.kind() => Ok(None),
            (Ok(_), Err(expected)) => Err(format!("succeeded, expected: {expected}")),
            (Err(error), Ok(_)) => Err(format!("{error}, expected success")),
            (Err(error), Err(expected)) => Err(format!("{error}, expected: {expected}")),
        }
    }

    fn pick(&self, which: Which, wanted: impl Fn(&Inode) -> bool) -> Option<InodeNumber> {
        let candidates = self.model.select(wanted);
        (!candidates.is_empty()).then(|| candidates[which as usize % candidates.len()])
    }

    fn directory(&self, which: Which) -> InodeNumber {
        self.pick(which, Inode::is_directory).unwrap_or(self.model.root)
    }

    fn on_any(&mut self, which: Which, work: impl FnOnce(&mut World, InodeNumber) -> Outcome<()>) -> Outcome<()> {
        let picked = self.pick(which, |_| true);
        picked.map_or(Ok(()), |ino| work(self, ino))
    }

    fn on_file(&mut self, which: Which, work: impl FnOnce(&mut World, InodeNumber) -> Outcome<()>) -> Outcome<()> {
        let picked = self.pick(which, Inode::is_regular);
        picked.map_or(Ok(()), |ino| work(self, ino))
    }

    fn in_directory(
        &mut self,
        which: Which,
        name: Name,
        work: impl FnOnce(&mut World, InodeNumber, &[u8]) -> Outcome<()>,
    ) -> Outcome<()> {
        let dir = self.directory(which);
        let inode = &self.model.inodes[&dir];
        // What `.` and `..` of a directory without links lead to is nobody's business.
        let name = if inode.attributes.links == 0 { Name::Pool(1) } else { name };
        let existing: Vec<Vec<u8>> = inode.entries.keys().cloned().collect();
        work(self, dir, &name.bytes(&existing))
    }
}
