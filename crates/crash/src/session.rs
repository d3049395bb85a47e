//! One life of a volume: from opening until the power goes.

use std::ops::Range;
use std::sync::Arc;

use basalt_device::power::History;
use basalt_device::{MemoryDevice, PowerCutDevice};
use basalt_vfs::{
    Caller, Error, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, RenameFlags, SetAttributes, XattrFlags,
};

use crate::engine::{Engine, StepClock};
use crate::found::{self, find_tree};
use crate::script::Step;
use crate::tree::{Id, Tree, bytes, symlink_target, xattr_name};

/// What is durable from the moment a step has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Nothing new.
    Nothing,
    /// Everything.
    All,
    /// This inode: content, size, permissions, attributes, name.
    File(Id),
    /// This inode's content, size and name.
    Data(Id),
}

/// A step that was done.
#[derive(Debug, Clone)]
pub struct Done {
    /// The changes of the device that it made.
    pub changes: Range<usize>,
    /// What it promised when it returned.
    pub promise: Promise,
}

/// A life that has ended, ready for power cuts at any of its moments.
pub struct Life {
    /// What the device saw.
    pub history: History,
    /// What was done; the first is opening.
    pub done: Vec<Done>,
    /// The tree before each of `done`, and at the end.
    pub states: Vec<Tree>,
    /// The steps: `done` without the opening.
    pub steps: Vec<Step>,
}

/// A volume that is open.
pub struct Session<'a> {
    engine: &'a dyn Engine,
    fs: Box<dyn FileSystem>,
    device: Arc<PowerCutDevice>,
    clock: Arc<StepClock>,
    held: Vec<InodeNumber>,
    done: Vec<Done>,
    states: Vec<Tree>,
    steps: Vec<Step>,
}

/// What a refused step is called in messages.
type Answer = Result<InodeNumber, Error>;

impl<'a> Session<'a> {
    /// Opens the volume on `image`, all of which is durable, and looks at all that is there. `known` helps: pages that it
    /// has need not be kept twice.
    pub fn open(engine: &'a dyn Engine, image: MemoryDevice, known: Option<&Tree>) -> Result<Session<'a>, String> {
        let device = Arc::new(PowerCutDevice::new(image));
        let clock = StepClock::new();
        let fs = engine.open(device.clone(), clock.clone())?;
        let tree = find_tree(&*fs, known)?;
        // Looking is part of it: every change belongs to some step.
        let opening = Done { changes: 0..device.position(), promise: Promise::Nothing };
        Ok(Session {
            engine,
            fs,
            device,
            clock,
            held: Vec::new(),
            done: vec![opening],
            states: vec![tree.clone(), tree],
            steps: Vec::new(),
        })
    }

    /// What is on the volume, as far as the last step.
    pub fn tree(&self) -> &Tree {
        // There is a state from the beginning on.
        &self.states[self.states.len() - 1]
    }

    /// What is on the device now, cache included.
    pub fn image(&self) -> MemoryDevice {
        self.device.now()
    }

    /// The file system, to look at.
    pub fn file_system(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// Does a step. An error is a violation: refusals that a program may get are none.
    pub fn run(&mut self, step: &Step) -> Result<(), String> {
        let first = self.done.last().map_or(0, |done| done.changes.end);
        let mut tree = self.tree().clone();
        // A mount does that by itself, again and again: what was freed is discarded.
        self.fs.tick(self.clock.read());
        let answer = self.perform(step);
        let mut promise = Promise::Nothing;
        match &answer {
            Ok(made) => {
                tree.apply(step, *made).ok_or_else(|| format!("`{step}` succeeded, though it cannot"))?;
                promise = self.promise(step, &tree);
            }
            Err(Error::Io(_) | Error::Corrupted(_) | Error::ReadOnly | Error::Stale) => {
                return Err(format!("`{step}` failed: {}", answer.unwrap_err()));
            }
            // A refused write may have done its beginning.
            Err(Error::NoSpace) => self.look_again(step, &mut tree)?,
            Err(_) => {}
        }
        self.done.push(Done { changes: first..self.device.position(), promise });
        self.states.push(tree);
        self.steps.push(step.clone());
        Ok(())
    }

    /// Closes the volume and checks what is left.
    pub fn close(mut self) -> Result<MemoryDevice, String> {
        self.release();
        self.fs.close().map_err(|error| format!("close: {error}"))?;
        drop(self.fs);
        let image = self.device.now();
        self.engine.check(&image).map_err(|error| format!("after closing: {error}"))?;
        Ok(image)
    }

    /// Ends the life without closing the volume.
    pub fn end(self) -> Life {
        let Session { fs, device, done, states, steps, .. } = self;
        drop(fs);
        Life { history: device.history(), done, states, steps }
    }

    fn promise(&self, step: &Step, tree: &Tree) -> Promise {
        let of = |path: &str| tree.find(path).map(|id| (id, tree.get(id).map(|node| node.kind)));
        let dir_is_sync = self.engine.directory_fsync_is_sync();
        match step {
            Step::Sync | Step::Remount => Promise::All,
            Step::Fsync(path) | Step::Fdatasync(path) => match of(path) {
                Some((_, Some(FileKind::Directory))) if dir_is_sync => Promise::All,
                Some((id, _)) if matches!(step, Step::Fsync(_)) => Promise::File(id),
                Some((id, _)) => Promise::Data(id),
                None => Promise::Nothing,
            },
            _ => Promise::Nothing,
        }
    }

    /// The inode of a path, by the file system's own look-up; references are given back at once.
    fn find(&self, path: &str) -> Answer {
        let mut at = self.fs.root();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let found = self.fs.lookup(at, part.as_bytes())?.ino;
            self.fs.forget(found, 1);
            at = found;
        }
        Ok(at)
    }

    fn place<'p>(&self, path: &'p str) -> Result<(InodeNumber, &'p [u8]), Error> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(parent)?, name.as_bytes()))
    }

    fn make(&self, path: &str, kind: FileKind, permissions: u32, target: &[u8]) -> Answer {
        let (parent, name) = self.place(path)?;
        let node = NewNode { kind, permissions, rdev: 0, target };
        let made = self.fs.create(parent, name, &node, &Caller::default())?.ino;
        self.fs.forget(made, 1);
        Ok(made)
    }

    fn perform(&mut self, step: &Step) -> Answer {
        let fs = &*self.fs;
        let nothing = |()| 0;
        match step {
            Step::Create(path) => self.make(path, FileKind::Regular, 0o644, b""),
            Step::Mkdir(path) => self.make(path, FileKind::Directory, 0o755, b""),
            Step::Symlink(path, length) => self.make(path, FileKind::Symlink, 0o777, &symlink_target(*length)),
            Step::Link(from, to) => {
                let (ino, (parent, name)) = (self.find(from)?, self.place(to)?);
                fs.link(ino, parent, name)?;
                fs.forget(ino, 1);
                Ok(0)
            }
            Step::Unlink(path) => self.place(path).and_then(|(parent, name)| fs.unlink(parent, name)).map(nothing),
            Step::Rmdir(path) => {
                self.place(path).and_then(|(parent, name)| fs.remove_directory(parent, name)).map(nothing)
            }
            Step::Rename(from, to) => self.rename(from, to, RenameFlags::empty()),
            Step::Exchange(from, to) => self.rename(from, to, RenameFlags::EXCHANGE),
            Step::Write(path, offset, length, seed) => {
                fs.write(self.find(path)?, *offset, &bytes(*seed, *length), false).map(|_| 0)
            }
            Step::Truncate(path, size) => {
                let changes = SetAttributes { size: Some(*size), ..SetAttributes::default() };
                fs.set_attributes(self.find(path)?, &changes).map(|_| 0)
            }
            Step::Allocate(path, offset, length) => {
                fs.fallocate(self.find(path)?, FallocateMode::empty(), *offset, *length).map(nothing)
            }
            Step::Punch(path, offset, length) => {
                let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
                fs.fallocate(self.find(path)?, mode, *offset, *length).map(nothing)
            }
            Step::SetXattr(path, name, length, seed) => {
                let (name, value) = (xattr_name(*name), bytes(*seed, *length));
                fs.set_xattr(self.find(path)?, name.as_bytes(), &value, XattrFlags::empty()).map(nothing)
            }
            Step::RemoveXattr(path, name) => {
                fs.remove_xattr(self.find(path)?, xattr_name(*name).as_bytes()).map(nothing)
            }
            Step::Chmod(path, permissions) => {
                let changes = SetAttributes { permissions: Some(*permissions), ..SetAttributes::default() };
                fs.set_attributes(self.find(path)?, &changes).map(|_| 0)
            }
            Step::Hold(path) => {
                let (parent, name) = self.place(path)?;
                self.held.push(fs.lookup(parent, name)?.ino);
                Ok(0)
            }
            Step::Release => {
                self.release();
                Ok(0)
            }
            Step::Fsync(path) => fs.sync_file(self.find(path)?, false).map(nothing),
            Step::Fdatasync(path) => fs.sync_file(self.find(path)?, true).map(nothing),
            Step::Sync => fs.sync().map(nothing),
            Step::Tick(seconds) => {
                self.clock.wait(*seconds);
                fs.tick(self.clock.read());
                Ok(0)
            }
            Step::Remount => self.remount().map(nothing),
        }
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Answer {
        let ((parent, name), (new_parent, new_name)) = (self.place(from)?, self.place(to)?);
        self.fs.rename(parent, name, new_parent, new_name, flags, &Caller::default())?;
        Ok(0)
    }

    fn release(&mut self) {
        for ino in self.held.drain(..) {
            self.fs.forget(ino, 1);
        }
    }

    fn remount(&mut self) -> Result<(), Error> {
        self.release();
        self.fs.close()?;
        self.fs = self.engine.open(self.device.clone(), self.clock.clone()).map_err(Error::Corrupted)?;
        Ok(())
    }

    /// Takes over what a step that ran out of space has left of its file.
    fn look_again(&self, step: &Step, tree: &mut Tree) -> Result<(), String> {
        let (Step::Write(path, ..) | Step::Truncate(path, _) | Step::Allocate(path, ..) | Step::Punch(path, ..)) = step
        else {
            return Ok(());
        };
        let (Some(id), Ok(ino)) = (tree.find(path), self.find(path)) else { return Ok(()) };
        let seen = found::find_node(&*self.fs, ino, tree.get(id).map(|node| &**node))?;
        if let Some(node) = tree.change(id) {
            (node.size, node.pages) = (seen.size, seen.pages);
        }
        Ok(())
    }
}
