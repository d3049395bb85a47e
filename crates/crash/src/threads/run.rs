//! One life of a volume with threads, recorded: what each step was called with, when it took effect, and when it returned.
//!
//! The order in which steps took effect is known: the engine reads its clock while it has the volume's lock for an operation, and each
//! change of a thread is one such operation. So there is one order of states, and every step must have done in its place what it says.

use std::sync::{Arc, Mutex};

use basalt_device::power::History;
use basalt_device::{MemoryDevice, PowerCutDevice};
use basalt_testkit::shuttled::shuttle::{Config, FailurePersistence, Runner, thread};
use basalt_vfs::{
    Caller, Error, FallocateMode, FileKind, FileSystem, InodeNumber, NewNode, RenameFlags, SetAttributes, XattrFlags,
};

use super::busy::Busy;
use super::oracle::{expect_final, expect_read};
use super::script::{Act, Switch, Threads};
use super::stage::{Choice, Director, Moment, Stage, StageDevice};
use crate::engine::{Engine, StepClock, ThreadedFileSystem};
use crate::explore::guarded;
use crate::found::find_tree;
use crate::perform::write;
use crate::script::Step;
use crate::session::Promise;
use crate::tree::{Id, Tree, bytes, symlink_target, xattr_name};

/// Bytes of stack of a thread.
const STACK: usize = 1 << 20;

/// A step that was done.
#[derive(Debug, Clone)]
pub struct Done {
    /// When it was called.
    pub call: Moment,
    /// When it had returned.
    pub returned: Moment,
    /// States that were over when it was called, and when it had returned: indices of [`Life::states`].
    pub states: (usize, usize),
    /// What it promised when it returned: the state that it was called in, or any later one up to its return.
    pub promise: Promise,
}

/// A life that has ended.
pub struct Life {
    /// What the device saw.
    pub history: History,
    /// All states, in their order; `effects[n]` led from `states[n]` to the next.
    pub states: Vec<Tree>,
    /// When each change took effect.
    pub effects: Vec<Moment>,
    /// What was done.
    pub done: Vec<Done>,
    /// Changes of the device before there were threads.
    pub start: usize,
    /// The last change of the device that may be cut: what came later is not known well enough.
    pub end: usize,
    /// Where threads were stopped for others.
    pub switches: Vec<Switch>,
    /// The volume was closed, and nothing was done to it afterwards.
    pub is_closed: bool,
}

/// A call as it was recorded.
struct Call {
    act: Act,
    call: Moment,
    effect: Option<Moment>,
    returned: Moment,
    outcome: Outcome,
}

enum Outcome {
    /// It succeeded, on this inode or with a new one.
    Done(InodeNumber),
    /// What was read.
    Read(InodeNumber, Vec<u8>),
}

#[derive(Default)]
struct Record {
    calls: Vec<Call>,
    wrong: Option<String>,
    /// A call ran out of space, and may have done a part: changes before it.
    limit: Option<usize>,
    closing: bool,
}

/// What all threads of a run share.
#[derive(Clone)]
struct Shared {
    fs: Arc<dyn ThreadedFileSystem>,
    stage: Stage,
    record: Arc<Mutex<Record>>,
    busy: Arc<Busy>,
}

const HELD: &str = "nothing panics with this lock";

/// A run that went wrong before any power cut.
#[derive(Debug)]
pub struct Failure {
    /// What did.
    pub what: String,
    /// Where threads were stopped for others until then.
    pub switches: Vec<Switch>,
}

/// Runs `setup` and then `threads` on a copy of `base`.
pub fn run(
    engine: &dyn Engine,
    base: &MemoryDevice,
    setup: &[Step],
    threads: &Threads,
    choice: &Choice,
) -> Result<Life, Failure> {
    let device = Arc::new(PowerCutDevice::new(base.snapshot()).with_pages(engine.flash_pages(base)));
    let stage = Stage::new(device.clone(), StepClock::starting(0), &threads.acts, choice);
    let ended = direct(engine, &stage, setup, threads);
    let life = ended.and_then(|ended| build(ended, device.history(), stage.switches()));
    life.map_err(|what| Failure { what, switches: stage.switches() })
}

/// The run itself, under its scheduler.
fn direct(engine: &dyn Engine, stage: &Stage, setup: &[Step], threads: &Threads) -> Result<Ended, String> {
    let opener = engine.for_threads().ok_or_else(|| format!("{} cannot be run with threads", engine.name()))?;
    let ended: Arc<Mutex<Option<Result<Ended, String>>>> = Arc::default();
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let runner = Runner::new(Director::new(stage.clone()), config);
    let (setup, acts) = (setup.to_vec(), threads.acts.clone());
    let (inner, answer) = (stage.clone(), ended.clone());
    guarded(|| {
        runner.run(move || {
            let result = guarded(|| play(&*opener, &inner, &setup, &acts));
            *answer.lock().expect(HELD) = Some(result);
        });
        Ok(())
    })?;
    let ended = ended.lock().expect(HELD).take();
    ended.ok_or("the run never ended")?
}

/// What a run leaves.
struct Ended {
    before: Tree,
    calls: Vec<Call>,
    start: usize,
    limit: Option<usize>,
    /// What is there in the end, as the engine says that still has it open; nothing if it is closed.
    found: Option<Tree>,
}

/// Opens, sets up, runs the threads, looks. On the scheduler's first thread.
fn play(open: &crate::engine::Opener, stage: &Stage, setup: &[Step], acts: &[Vec<Act>]) -> Result<Ended, String> {
    let clock = stage.clone();
    let fs = open(Arc::new(StageDevice::new(stage.clone())), Box::new(move || clock.read_clock()))?;
    let before = find_tree(&*fs, None)?;
    let busy = Arc::new(Busy::with(acts, &*fs));
    let shared = Shared { fs, stage: stage.clone(), record: Arc::default(), busy };
    for step in setup {
        shared.act(&Act::Do(step.clone()));
    }
    let start = stage.now().changes;
    let handles: Vec<_> = acts
        .iter()
        .cloned()
        .map(|acts| {
            let shared = shared.clone();
            thread::spawn(move || shared.run(&acts))
        })
        .collect();
    stage.start();
    for handle in handles {
        handle.join().map_err(|_| "a thread panicked".to_owned())?;
    }
    let Shared { fs, record, .. } = shared;
    let Record { calls, wrong, limit, closing } = std::mem::take(&mut *record.lock().expect(HELD));
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let found = if closing || limit.is_some() { None } else { Some(find_tree(&*fs, None)?) };
    Ok(Ended { before, calls, start, limit, found })
}

impl Shared {
    /// All steps of a thread.
    fn run(&self, acts: &[Act]) {
        self.run_steps(acts);
        self.busy.leave(acts, &*self.fs);
    }

    fn run_steps(&self, acts: &[Act]) {
        for act in acts {
            self.stage.begin_step();
            if self.record.lock().expect(HELD).wrong.is_some() {
                return;
            }
            self.act(act);
        }
        self.stage.begin_step();
    }

    /// A step; what is wrong with it is recorded.
    fn act(&self, act: &Act) {
        if *act == Act::Close {
            self.record.lock().expect(HELD).closing = true;
        }
        let mut call = Moment::default();
        let answer = guarded(|| Ok(self.perform(act, &mut call)));
        let mut record = self.record.lock().expect(HELD);
        match answer {
            Err(panic) => wrong(&mut record, format!("`{act}` {panic}")),
            Ok(Ok(answered)) => {
                let Answered { effect, returned, outcome } = answered;
                record.calls.push(Call { act: act.clone(), call, effect, returned, outcome });
            }
            Ok(Err(Error::Io(_) | Error::Corrupted(_) | Error::ReadOnly | Error::Stale)) if record.closing => {}
            Ok(Err(error @ (Error::Io(_) | Error::Corrupted(_) | Error::ReadOnly | Error::Stale))) => {
                wrong(&mut record, format!("`{act}` failed: {error}"));
            }
            // It may have done its beginning, and nobody knows what others did since.
            Ok(Err(Error::NoSpace)) => {
                record.limit = Some(record.limit.map_or(call.changes, |limit| limit.min(call.changes)));
            }
            Ok(Err(_)) => {}
        }
    }

    fn perform(&self, act: &Act, call: &mut Moment) -> Result<Answered, Error> {
        let fs = &*self.fs;
        match act {
            Act::Do(step) => self.step(step, call),
            Act::Look => self.timed(call, || {
                fs.look_around();
                fs.stat_fs().map(|_| 0)
            }),
            Act::Trim => self.timed(call, || fs.trim(0, u64::MAX, 0).map(|_| 0)),
            Act::WriteBehind => self.timed(call, || {
                fs.write_behind();
                Ok(0)
            }),
            Act::Close => self.timed(call, || fs.close().map(|()| 0)),
            Act::Read(path) => {
                let file = self.find(path)?;
                let mut content = vec![0; usize::try_from(fs.attributes(file.ino)?.size).unwrap_or_default()];
                let mut answered = self.timed(call, || fs.read(file.ino, 0, &mut content).map(|got| got as u64))?;
                if let Outcome::Done(got) = answered.outcome {
                    content.truncate(got as usize);
                    answered.outcome = Outcome::Read(file.ino, content);
                }
                Ok(answered)
            }
        }
    }

    fn step(&self, step: &Step, call: &mut Moment) -> Result<Answered, Error> {
        let fs = &*self.fs;
        match step {
            Step::Create(path) => self.make(path, FileKind::Regular, 0o644, b"", call),
            Step::Mkdir(path) => self.make(path, FileKind::Directory, 0o755, b"", call),
            Step::Symlink(path, length) => {
                self.make(path, FileKind::Symlink, 0o777, &symlink_target(path, *length), call)
            }
            Step::Link(from, to) => {
                let (file, (dir, name)) = (self.find(from)?, self.place(to)?);
                let answered = self.timed(call, || fs.link(file.ino, dir.ino, name).map(|found| found.ino));
                if answered.is_ok() {
                    fs.forget(file.ino, 1);
                }
                answered
            }
            Step::Unlink(path) => {
                let (dir, name) = self.place(path)?;
                self.timed(call, || fs.unlink(dir.ino, name).map(|()| 0))
            }
            Step::Rmdir(path) => {
                let (dir, name) = self.place(path)?;
                self.timed(call, || fs.remove_directory(dir.ino, name).map(|()| 0))
            }
            Step::Rename(from, to) => self.rename(from, to, RenameFlags::empty(), call),
            Step::Exchange(from, to) => self.rename(from, to, RenameFlags::EXCHANGE, call),
            Step::Write(path, offset, length, seed) => {
                let data = bytes(*seed, *length);
                self.on_file(path, call, |ino| {
                    if write(fs, ino, *offset, data, *seed)? < *length as usize { Err(Error::NoSpace) } else { Ok(()) }
                })
            }
            Step::Truncate(path, size) => {
                let changes = SetAttributes { size: Some(*size), ..SetAttributes::default() };
                self.on_file(path, call, |ino| fs.set_attributes(ino, &changes).map(drop))
            }
            Step::Chmod(path, permissions) => {
                let changes = SetAttributes { permissions: Some(*permissions), ..SetAttributes::default() };
                self.on_file(path, call, |ino| fs.set_attributes(ino, &changes).map(drop))
            }
            Step::Allocate(path, offset, length) => {
                self.on_file(path, call, |ino| fs.fallocate(ino, FallocateMode::empty(), *offset, *length))
            }
            Step::Punch(path, offset, length) => {
                let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
                self.on_file(path, call, |ino| fs.fallocate(ino, mode, *offset, *length))
            }
            Step::SetXattr(path, name, length, seed) => {
                let (name, value) = (xattr_name(*name), bytes(*seed, *length));
                self.on_file(path, call, |ino| fs.set_xattr(ino, name.as_bytes(), &value, XattrFlags::empty()))
            }
            Step::RemoveXattr(path, name) => {
                self.on_file(path, call, |ino| fs.remove_xattr(ino, xattr_name(*name).as_bytes()))
            }
            Step::Fsync(path) => self.on_file(path, call, |ino| fs.sync_file(ino, false)),
            Step::Fdatasync(path) => self.on_file(path, call, |ino| fs.sync_file(ino, true)),
            Step::Sync => self.timed(call, || fs.sync().map(|()| 0)),
            Step::Tick(seconds) => {
                self.stage.wait(*seconds);
                self.timed(call, || {
                    fs.tick(self.stage.read_clock());
                    Ok(0)
                })
            }
            _ => Err(Error::Invalid("not in a thread")),
        }
    }

    /// The call itself, between its moments.
    fn timed(&self, call: &mut Moment, work: impl FnOnce() -> Result<InodeNumber, Error>) -> Result<Answered, Error> {
        *call = self.stage.now();
        self.stage.take_clock_read();
        let result = work();
        let effect = self.stage.take_clock_read();
        let returned = self.stage.now();
        Ok(Answered { effect, returned, outcome: Outcome::Done(result?) })
    }

    fn on_file(
        &self,
        path: &str,
        call: &mut Moment,
        work: impl FnOnce(InodeNumber) -> Result<(), Error>,
    ) -> Result<Answered, Error> {
        let file = self.find(path)?;
        self.timed(call, || work(file.ino).map(|()| file.ino))
    }

    fn make(
        &self,
        path: &str,
        kind: FileKind,
        permissions: u32,
        target: &[u8],
        call: &mut Moment,
    ) -> Result<Answered, Error> {
        let (dir, name) = self.place(path)?;
        let node = NewNode { kind, permissions, rdev: 0, target };
        let made = || self.fs.create(dir.ino, name, &node, &Caller::default()).map(|made| made.ino);
        let answered = self.timed(call, made)?;
        if let Outcome::Done(made) = answered.outcome {
            self.fs.forget(made, 1);
        }
        Ok(answered)
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags, call: &mut Moment) -> Result<Answered, Error> {
        let ((dir, name), (new_dir, new_name)) = (self.place(from)?, self.place(to)?);
        let caller = Caller::default();
        self.timed(call, || self.fs.rename(dir.ino, name, new_dir.ino, new_name, flags, &caller).map(|()| 0))
    }

    /// The inode at a path, which stays in use.
    fn find(&self, path: &str) -> Result<Found<'_>, Error> {
        let mut found = Found { fs: &*self.fs, ino: self.fs.root(), held: Vec::new() };
        for part in path.split('/').filter(|part| !part.is_empty()) {
            found.ino = self.fs.lookup(found.ino, part.as_bytes())?.ino;
            found.held.push(found.ino);
        }
        Ok(found)
    }

    fn place<'p>(&self, path: &'p str) -> Result<(Found<'_>, &'p [u8]), Error> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(parent)?, name.as_bytes()))
    }
}

struct Answered {
    effect: Option<Moment>,
    returned: Moment,
    outcome: Outcome,
}

/// An inode in use, with the directories that lead to it.
struct Found<'a> {
    fs: &'a dyn FileSystem,
    ino: InodeNumber,
    held: Vec<InodeNumber>,
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        self.held.iter().for_each(|ino| self.fs.forget(*ino, 1));
    }
}

fn wrong(record: &mut Record, what: String) {
    record.wrong.get_or_insert(what);
}

/// Puts the states in order, and holds what was seen against them.
fn build(ended: Ended, history: History, switches: Vec<Switch>) -> Result<Life, String> {
    let Ended { before, mut calls, start, limit, found } = ended;
    let end = limit.unwrap_or(history.changes.len());
    calls.retain(|call| limit.is_none_or(|limit| call.call.changes <= limit));
    let mut states = vec![before];
    let mut effects = Vec::new();
    let mut changes: Vec<&Call> = calls.iter().filter(|call| call.is_change()).collect();
    changes.sort_by_key(|call| call.effect);
    for call in changes {
        let (Act::Do(step), Some(effect)) = (&call.act, call.effect) else {
            return Err(format!("`{}` took effect without a look at the clock", call.act));
        };
        let mut tree = states[states.len() - 1].clone();
        apply(&mut tree, step, &call.outcome)?;
        states.push(tree);
        effects.push(effect);
    }
    if let Some(found) = found {
        expect_final(&states[states.len() - 1], &found)?;
    }
    let at = |moment: Moment| effects.partition_point(|effect| *effect < moment);
    let mut done = Vec::with_capacity(calls.len());
    for Call { act, call, returned, outcome, .. } in &calls {
        let between = (at(*call), at(*returned));
        let promise = match (act, outcome) {
            (Act::Read(path), Outcome::Read(ino, content)) => {
                if let Some(id) = id_of(&states[between.0..=between.1], *ino) {
                    let seen = expect_read(&states[between.0..=between.1], id, content);
                    seen.map_err(|complaint| format!("`read {path}`: {complaint}"))?;
                }
                Promise::Nothing
            }
            (Act::Do(Step::Sync) | Act::Close | Act::Trim, _) => Promise::All,
            (Act::Do(step @ (Step::Fsync(_) | Step::Fdatasync(_))), Outcome::Done(ino)) => {
                promise(&states[between.0..=between.1], step, *ino)
            }
            _ => Promise::Nothing,
        };
        done.push(Done { call: *call, returned: *returned, states: between, promise });
    }
    let closed = calls.iter().find(|call| call.act == Act::Close).map(|call| call.returned);
    let is_closed = limit.is_none() && closed.is_some_and(|closed| effects.iter().all(|effect| *effect < closed));
    Ok(Life { history, states, effects, done, start, end, switches, is_closed })
}

impl Call {
    fn is_change(&self) -> bool {
        match &self.act {
            Act::Do(step) => !step.is_sync() && !matches!(step, Step::Tick(_)),
            _ => false,
        }
    }
}

/// Does in the model what a step did. The path must lead to what it was done to: a script in which threads change each other's names
/// says nothing.
fn apply(tree: &mut Tree, step: &Step, outcome: &Outcome) -> Result<(), String> {
    let (Outcome::Done(ino) | Outcome::Read(ino, _)) = outcome;
    if let Step::Write(path, ..)
    | Step::Truncate(path, _)
    | Step::Allocate(path, ..)
    | Step::Punch(path, ..)
    | Step::SetXattr(path, ..)
    | Step::RemoveXattr(path, _)
    | Step::Chmod(path, _)
    | Step::Link(path, _) = step
    {
        let meant = tree.find(path).and_then(|id| tree.get(id)).map(|node| node.ino);
        if meant != Some(*ino) {
            return Err(format!(
                "`{step}` was done to inode {ino}, but in the order of effects its path leads to {meant:?}"
            ));
        }
    }
    tree.apply(step, *ino).ok_or_else(|| format!("`{step}` succeeded, though it cannot"))
}

/// Who had this number in the first of these states in which anybody had.
fn id_of(states: &[Tree], ino: InodeNumber) -> Option<Id> {
    states.iter().find_map(|state| state.iter().find(|(_, node)| node.ino == ino).map(|(id, _)| id))
}

fn promise(states: &[Tree], step: &Step, ino: InodeNumber) -> Promise {
    let Some(id) = id_of(states, ino) else { return Promise::Nothing };
    let kind = states.iter().find_map(|state| state.get(id)).map(|node| node.kind);
    match step {
        _ if kind != Some(FileKind::Regular) => Promise::All,
        Step::Fdatasync(_) => Promise::Data(id),
        _ => Promise::File(id),
    }
}
