//! A thread: its flowops one after the other, again and again.
//!
//! What a flowop does follows Filebench's `flowop_library.c`. Different is: a file is chosen at random among all that exist (Filebench
//! takes turns through them), and what writes in order begins again at the end of the working set or of the file's defined size (Filebench
//! writes on without an end).

use std::collections::VecDeque;

use basalt_random::Rng;

use super::flowops::LARGEST;
use super::script::{Action, Flowop, ThreadDefinition};
use super::set::Set;
use crate::fileset::{read_range, write_range};
use crate::operation::{File, MAX_REQUEST, Operation};

/// Requests that one flowop makes at most: of a smaller `iosize` they are larger.
const MOST_REQUESTS: u64 = 1 << 18;

/// A file number of a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// The set and the entry that it is, or was, a file of.
    file: Option<(usize, u32)>,
    open: bool,
    /// Where reads and writes in order go on.
    position: u64,
}

/// What all threads share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) sets: Vec<Set>,
    pub(super) rng: Rng,
    /// Flowops done, without those that only wait; bytes read and written.
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// A flowop has ended the run.
    pub(super) finished: bool,
}

/// What came of a flowop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// There is no file for it.
    NoFile,
}

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// An operation.
    Operation,
    /// Nothing: its flowops found no file, or only waited.
    Nothing,
    /// A flowop found no file, and that may end the run.
    OutOfFiles,
}

/// A thread.
#[derive(Debug, Clone)]
pub(super) struct Thread {
    /// The number of its definition.
    pub(super) definition: usize,
    /// The flowop that is next, and how often it was done already.
    at: usize,
    repeated: u64,
    slots: Vec<Slot>,
    /// The first of its file numbers.
    base: u32,
    queue: VecDeque<Operation>,
}

impl Thread {
    pub(super) fn new(definition: usize, slots: usize, base: u32) -> Thread {
        Thread { definition, at: 0, repeated: 0, slots: vec![Slot::default(); slots], base, queue: VecDeque::new() }
    }

    /// Appends the next operation. Behind a flowop that finds no file goes on with the next one, if that is not the end of the run.
    pub(super) fn turn(
        &mut self,
        definition: &ThreadDefinition,
        to_the_end: bool,
        shared: &mut Shared,
        operations: &mut Vec<Operation>,
    ) -> Turn {
        // Two rounds, at most, without an operation.
        let mut left = definition.flowops.len() * 2;
        loop {
            if let Some(operation) = self.queue.pop_front() {
                operations.push(operation);
                return Turn::Operation;
            }
            if left == 0 || shared.finished {
                return Turn::Nothing;
            }
            left -= 1;
            let flowop = &definition.flowops[self.at];
            let outcome = self.flowop(flowop, shared);
            if outcome == Outcome::NoFile && !to_the_end {
                return Turn::OutOfFiles;
            }
            self.repeated += 1;
            if self.repeated >= flowop.repeat || outcome == Outcome::NoFile || self.queue.is_empty() {
                self.repeated = 0;
                self.at = (self.at + 1) % definition.flowops.len();
            }
        }
    }

    fn number(&self, fd: usize) -> File {
        File(self.base + fd as u32)
    }

    fn flowop(&mut self, flowop: &Flowop, shared: &mut Shared) -> Outcome {
        let outcome = match flowop.action {
            Action::Wait => return Outcome::Done,
            Action::FinishOnCount | Action::FinishOnBytes => {
                let reached = if flowop.action == Action::FinishOnCount { shared.count } else { shared.bytes };
                shared.finished |= reached >= flowop.value;
                return Outcome::Done;
            }
            Action::Open => self.open(flowop, shared),
            Action::Create => self.create(flowop, shared),
            Action::Close => self.close(flowop.fd, shared),
            Action::Delete => self.delete(flowop, shared),
            Action::Stat => self.stat(flowop, shared),
            Action::List => self.list(flowop, shared),
            Action::Sync => self.sync(flowop.fd),
            Action::SyncSet => {
                let of_set = |slot: &Slot| slot.open && slot.file.map(|file| file.0) == flowop.set;
                let open: Vec<usize> = (0..self.slots.len()).filter(|fd| of_set(&self.slots[*fd])).collect();
                for fd in open {
                    self.sync(fd);
                }
                Outcome::Done
            }
            _ => self.transfer(flowop, shared),
        };
        shared.count += u64::from(outcome == Outcome::Done);
        outcome
    }

    /// The set and a file of it that exists: that of a number, or any.
    fn some_file(&self, flowop: &Flowop, shared: &mut Shared) -> Option<(usize, u32)> {
        let slot = &self.slots[flowop.fd];
        if flowop.fd > 0 && slot.file.is_some() {
            return slot.file;
        }
        let set = flowop.set?;
        Some((set, shared.sets[set].any(&mut shared.rng)?))
    }

    fn open(&mut self, flowop: &Flowop, shared: &mut Shared) -> Outcome {
        let Some(set) = flowop.set.filter(|_| !self.slots[flowop.fd].open) else { return Outcome::NoFile };
        let Some(entry) = shared.sets[set].any(&mut shared.rng) else { return Outcome::NoFile };
        self.queue.push_back(Operation::Open(self.number(flowop.fd), shared.sets[set].files.path(entry)));
        self.opened(flowop.fd, set, entry, shared);
        Outcome::Done
    }

    fn opened(&mut self, fd: usize, set: usize, entry: u32, shared: &mut Shared) {
        shared.sets[set].opened(entry);
        self.slots[fd] = Slot { file: Some((set, entry)), open: true, position: 0 };
    }

    fn create(&mut self, flowop: &Flowop, shared: &mut Shared) -> Outcome {
        let Some(set) = flowop.set.filter(|_| !self.slots[flowop.fd].open) else { return Outcome::NoFile };
        let Some(entry) = shared.sets[set].any_missing(&mut shared.rng) else { return Outcome::NoFile };
        shared.sets[set].created(entry);
        self.queue.push_back(Operation::Create(self.number(flowop.fd), shared.sets[set].files.path(entry)));
        self.opened(flowop.fd, set, entry, shared);
        Outcome::Done
    }

    fn close(&mut self, fd: usize, shared: &mut Shared) -> Outcome {
        let Slot { file: Some((set, entry)), open: true, .. } = self.slots[fd] else { return Outcome::NoFile };
        self.slots[fd].open = false;
        shared.sets[set].closed(entry);
        self.queue.push_back(Operation::Close(self.number(fd)));
        Outcome::Done
    }

    /// A file that somebody has open stays, and that is no failure.
    fn delete(&mut self, flowop: &Flowop, shared: &mut Shared) -> Outcome {
        let Some((set, entry)) = self.some_file(flowop, shared) else { return Outcome::NoFile };
        if flowop.fd > 0 {
            self.slots[flowop.fd].file = None;
        }
        let set = &mut shared.sets[set];
        if set.is_idle(entry) {
            self.queue.push_back(Operation::Unlink(set.files.path(entry)));
            set.deleted(entry);
        }
        Outcome::Done
    }

    fn stat(&mut self, flowop: &Flowop, shared: &mut Shared) -> Outcome {
        let open = flowop.fd > 0 && self.slots[flowop.fd].open;
        let found = match open {
            true => self.slots[flowop.fd].file,
            false => flowop.set.and_then(|set| Some((set, shared.sets[set].any(&mut shared.rng)?))),
        };
        let Some((set, entry)) = found else { return Outcome::NoFile };
        self.queue.push_back(Operation::Stat(shared.sets[set].files.path(entry)));
        Outcome::Done
    }

    /// The directory of any file.
    fn list(&mut self, flowop: &Flowop, shared: &mut Shared) -> Outcome {
        let Some(set) = flowop.set else { return Outcome::NoFile };
        let entry = shared.rng.index(shared.sets[set].files.entries() as usize) as u32;
        let path = shared.sets[set].files.path(entry);
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        self.queue.push_back(Operation::List(directory.to_owned()));
        Outcome::Done
    }

    fn sync(&mut self, fd: usize) -> Outcome {
        if !self.slots[fd].open {
            return Outcome::NoFile;
        }
        self.queue.push_back(Operation::Sync(self.number(fd)));
        Outcome::Done
    }

    /// Reads or writes a file, which is opened if it is not open.
    fn transfer(&mut self, flowop: &Flowop, shared: &mut Shared) -> Outcome {
        if !self.slots[flowop.fd].open && self.open(flowop, shared) == Outcome::NoFile {
            return Outcome::NoFile;
        }
        let Some((set, entry)) = self.slots[flowop.fd].file else { return Outcome::NoFile };
        let size = shared.sets[set].files.size(entry);
        let request = flowop.size.map_or(0, |size| size.sample(&mut shared.rng)).min(LARGEST);
        let reads = matches!(flowop.action, Action::Read | Action::ReadWhole);
        let (offset, length, piece) = match flowop.action {
            Action::ReadWhole => (0, size, request),
            Action::WriteWhole => (0, self.whole(flowop, set, entry, shared), request),
            Action::Append => (size, request, request),
            Action::AppendRandom => (size, shared.rng.between(1, request.max(1)), request),
            _ => {
                let working_set = match flowop.working_set.sample(&mut shared.rng) {
                    0 => shared.sets[set].nominal(entry),
                    bytes => bytes,
                };
                let bound = if reads { working_set.min(size) } else { working_set };
                let offset = self.offset(flowop, request, bound, shared);
                (offset, if reads { request.min(size.saturating_sub(offset)) } else { request }, request)
            }
        };
        // A whole file in requests of a byte would be as many requests as it has bytes.
        let piece = if piece == 0 { 0 } else { piece.max(length.div_ceil(MOST_REQUESTS)) };
        let piece = if piece == 0 { MAX_REQUEST } else { u32::try_from(piece).unwrap_or(MAX_REQUEST).min(MAX_REQUEST) };
        let mut operations = Vec::new();
        let range = if reads { read_range } else { write_range };
        range(self.number(flowop.fd), offset, length, piece, &mut operations);
        self.queue.extend(operations);
        shared.bytes += length;
        if !reads {
            shared.sets[set].written(entry, offset.saturating_add(length));
        }
        Outcome::Done
    }

    /// Bytes of a whole write: the size that the file, or that of `srcfd`, was defined with.
    fn whole(&self, flowop: &Flowop, set: usize, entry: u32, shared: &Shared) -> u64 {
        let source = self.slots.get(flowop.source_fd).filter(|_| flowop.source_fd > 0).and_then(|slot| slot.file);
        let (set, entry) = source.unwrap_or((set, entry));
        shared.sets[set].nominal(entry)
    }

    /// Where the next read or write of `request` bytes goes, within `bound` bytes of the file.
    fn offset(&mut self, flowop: &Flowop, request: u64, bound: u64, shared: &mut Shared) -> u64 {
        let request = request.max(1);
        if flowop.random {
            return shared.rng.below(bound / request) * request;
        }
        let slot = &mut self.slots[flowop.fd];
        // A read may end at the end of the file, a write goes past it only from its beginning.
        let reads = flowop.action == Action::Read;
        if (reads && slot.position >= bound) || (!reads && slot.position.saturating_add(request) > bound) {
            slot.position = 0;
        }
        let offset = slot.position;
        slot.position = offset.saturating_add(request);
        offset
    }
}
