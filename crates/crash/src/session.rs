//! One life of a volume: from opening until the power goes.

use std::ops::Range;
use std::sync::Arc;

use basalt_device::power::History;
use basalt_device::{MemoryDevice, PowerCutDevice};
use basalt_vfs::{Error, FileKind, FileSystem};

use crate::engine::{Engine, StepClock};
use crate::found::{self, find_tree, find_xattrs};
use crate::meta::Meta;
use crate::perform::{Answer, Held, Performer, expect_set};
use crate::reach::{self, Way};
use crate::same::expect_same;
use crate::script::Step;
use crate::tree::{Id, Tree};

/// Microseconds that pass between a power cut and the next opening.
const DARKNESS: u64 = 3_600_000_000;

/// What is durable from the moment a step has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Nothing new.
    Nothing,
    /// Everything.
    All,
    /// Everything but content: a checkpoint of Linux without a sync.
    Names,
    /// This inode: content, size, attributes, times, name.
    File(Id),
    /// As that, but for times that alone have changed.
    Data(Id),
}

/// A step that was done.
#[derive(Debug, Clone)]
pub struct Done {
    /// The changes of the device that it made.
    pub changes: Range<usize>,
    /// What it promised when it returned.
    pub promise: Promise,
    /// The newest state that is durable by its age once the step has returned.
    pub aged: usize,
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
    /// When the next life may begin, by the clock of this one.
    pub next: u64,
}

impl Life {
    /// The changes of a step, by its number in `steps`.
    pub fn changes_of(&self, step: usize) -> Range<usize> {
        self.done.get(step + 1).map_or(0..0, |done| done.changes.clone())
    }
}

/// A volume that is open.
pub struct Session<'a> {
    engine: &'a dyn Engine,
    fs: Box<dyn FileSystem>,
    /// What opening it went through.
    way: Way,
    device: Arc<PowerCutDevice>,
    clock: Arc<StepClock>,
    held: Held,
    done: Vec<Done>,
    states: Vec<Tree>,
    /// When each of `states` was reached, by the clock.
    reached: Vec<u64>,
    steps: Vec<Step>,
}

impl<'a> Session<'a> {
    /// Opens the volume on `image`, all of which is durable, and looks at all that is there. `known` helps: pages that it
    /// has need not be kept twice. `start` is the time, in microseconds since the epoch.
    pub fn open(
        engine: &'a dyn Engine,
        image: MemoryDevice,
        known: Option<&Tree>,
        start: u64,
    ) -> Result<Session<'a>, String> {
        let pages = engine.flash_pages(&image);
        let device = Arc::new(PowerCutDevice::new(image).with_pages(pages));
        let clock = StepClock::starting(start);
        let (fs, way) = reach::record(|| engine.open(device.clone(), clock.clone()));
        let fs = fs?;
        let tree = find_tree(&*fs, known)?;
        // Looking is part of it: every change belongs to some step.
        let opening = Done { changes: 0..device.position(), promise: Promise::Nothing, aged: 0 };
        let now = clock.stands_at();
        Ok(Session {
            engine,
            fs,
            way,
            device,
            clock,
            held: Held::default(),
            done: vec![opening],
            states: vec![tree.clone(), tree],
            reached: vec![now, now],
            steps: Vec::new(),
        })
    }

    /// What is on the volume, as far as the last step.
    pub fn tree(&self) -> &Tree {
        // There is a state from the beginning on.
        &self.states[self.states.len() - 1]
    }

    /// What opening the volume went through.
    pub fn way(&self) -> &Way {
        &self.way
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
        let mut touched = touched(&tree, step);
        let mut aged = self.tick();
        let answer = match step {
            Step::Tick(seconds) => {
                self.clock.wait(*seconds);
                aged = self.tick();
                Ok(0)
            }
            Step::Remount => self.remount().map(|()| 0),
            _ => Performer { fs: &*self.fs, held: &mut self.held }.perform(step),
        };
        let is_done = answer.is_ok();
        let promise = self.judge(step, answer, &mut tree)?;
        touched.extend(self::touched(&tree, step));
        self.observe(&mut tree, touched).map_err(|error| format!("after `{step}`: {error}"))?;
        if let Some(node) = step.paths().first().and_then(|path| tree.get(tree.find(path)?)).filter(|_| is_done) {
            expect_set(step, &node.meta)?;
        }
        self.done.push(Done { changes: first..self.device.position(), promise, aged });
        self.states.push(tree);
        self.reached.push(self.clock.stands_at());
        self.steps.push(step.clone());
        Ok(())
    }

    /// What a mount does by itself, again and again; the newest state that is durable by its age after that.
    fn tick(&self) -> usize {
        let now = self.clock.stands_at();
        self.fs.tick(self.clock.read());
        let interval = u64::try_from(self.engine.commit_interval().as_micros()).unwrap_or(u64::MAX);
        let old = self.reached.iter().take_while(|reached| reached.saturating_add(interval) <= now).count();
        old.saturating_sub(1)
    }

    /// Takes the answer of a step over into the tree; what it promises.
    fn judge(&self, step: &Step, answer: Answer, tree: &mut Tree) -> Result<Promise, String> {
        match answer {
            Ok(made) => {
                tree.apply(step, made).ok_or_else(|| format!("`{step}` succeeded, though it cannot"))?;
                return Ok(self.promise(step, tree));
            }
            Err(error @ (Error::Io(_) | Error::Corrupted(_) | Error::ReadOnly | Error::Stale)) => {
                return Err(format!("`{step}` failed: {error}"));
            }
            // A refused write may have done its beginning.
            Err(Error::NoSpace) => self.look_again(step, tree)?,
            Err(_) => {}
        }
        Ok(Promise::Nothing)
    }

    /// Takes over attributes and ACLs of what a step was about; its size and user attributes are those it was given.
    fn observe(&self, tree: &mut Tree, mut touched: Vec<Id>) -> Result<(), String> {
        touched.sort_unstable();
        touched.dedup();
        for id in touched {
            let Some(node) = tree.get(id).cloned() else { continue };
            let attributes = self.fs.attributes(node.ino).map_err(|error| format!("inode {}: {error}", node.ino))?;
            let meta = Meta::of(&attributes);
            if node.kind == FileKind::Regular && attributes.size != node.size {
                return Err(format!("inode {} has {} bytes, expected {}", node.ino, attributes.size, node.size));
            }
            let xattrs = find_xattrs(&*self.fs, node.ino)?;
            let is_user = |(name, _): &(&String, &Vec<u8>)| name.starts_with("user.");
            if !xattrs.iter().filter(is_user).eq(node.xattrs.iter().filter(is_user)) {
                return Err(format!("inode {} has not the attributes it was given", node.ino));
            }
            if (meta, &xattrs) != (node.meta, &node.xattrs)
                && let Some(node) = tree.change(id)
            {
                (node.meta, node.xattrs) = (meta, xattrs);
            }
        }
        Ok(())
    }

    /// Holds what is on the volume against what was done: nothing but that may be there.
    pub fn expect_as_done(&self) -> Result<(), String> {
        let found = find_tree(&*self.fs, Some(self.tree()))?;
        expect_same(self.tree(), &found)
    }

    /// Closes the volume and checks what is left: what was done, and nothing but that, is there when it is opened once more.
    pub fn close(mut self) -> Result<MemoryDevice, String> {
        self.held.release(&*self.fs);
        self.fs.close().map_err(|error| format!("close: {error}"))?;
        let Session { fs, device, engine, clock, mut states, .. } = self;
        drop(fs);
        let image = device.now();
        // A check has to read everything; what was never needed may still be unreadable.
        if image.unreadable_sectors() == 0 {
            engine.check_closed(&image).map_err(|error| format!("after closing: {error}"))?;
        }
        let state = states.pop().unwrap_or_else(|| Tree::new(0));
        let again = Session::open(engine, image.snapshot(), Some(&state), clock.stands_at())?;
        expect_same(&state, again.tree()).map_err(|error| format!("after closing and opening: {error}"))?;
        Ok(image)
    }

    /// Ends the life without closing the volume.
    pub fn end(self) -> Life {
        let Session { fs, device, done, states, steps, clock, .. } = self;
        drop(fs);
        Life { history: device.history(), done, states, steps, next: clock.stands_at() + DARKNESS }
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

    fn remount(&mut self) -> Result<(), Error> {
        self.held.release(&*self.fs);
        self.fs.close()?;
        self.fs = self.engine.open(self.device.clone(), self.clock.clone()).map_err(Error::Corrupted)?;
        Ok(())
    }

    /// Takes over what a step that ran out of space has left of its file.
    fn look_again(&self, step: &Step, tree: &mut Tree) -> Result<(), String> {
        let Some(id) = step.paths().first().and_then(|path| tree.find(path)) else { return Ok(()) };
        let Some(node) = tree.get(id).cloned() else { return Ok(()) };
        if node.kind != FileKind::Regular {
            return Ok(());
        }
        let seen = found::find_node(&*self.fs, node.ino, Some(&node))?;
        if let Some(node) = tree.change(id) {
            (node.size, node.pages) = (seen.size, seen.pages);
        }
        Ok(())
    }
}

/// The inodes that a step is about: those at its paths, and the directories they are in.
fn touched(tree: &Tree, step: &Step) -> Vec<Id> {
    let of = |path: &str| tree.find(path).into_iter().chain(tree.place(path).map(|(dir, _)| dir));
    step.paths().into_iter().flat_map(of).collect()
}
