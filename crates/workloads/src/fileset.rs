//! Sets of many files in a tree of directories, as Filebench makes them: each entry exists or not, and whoever works on one has it
//! for itself.

use std::collections::VecDeque;

use basalt_random::Rng;

use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::blocks;
use crate::stream::gamma;

/// Files a directory has at least, so that the tree ends.
const NARROWEST: u32 = 2;

/// One file that may exist.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The size it is created with.
    nominal: u64,
    /// Its size now.
    size: u64,
}

/// Entries, and which of them nobody works on.
#[derive(Debug, Clone)]
pub(crate) struct FileSet {
    root: String,
    width: u32,
    depth: u32,
    entries: Vec<Entry>,
    existing: Vec<u32>,
    missing: Vec<u32>,
    /// How many entries the prepare phase has dealt with, and which of them it makes.
    prepared: u32,
    preallocated: Vec<bool>,
}

impl FileSet {
    /// `count` entries, `width` in a directory, below `root`. Sizes are of the gamma distribution with shape 1.5, Filebench's, cut off
    /// at eight means; `percent` of the entries exist at first.
    pub(crate) fn gamma(root: &str, count: u32, width: u32, mean: u64, percent: u64, rng: &mut Rng) -> FileSet {
        let sizes = (0..count).map(|_| {
            let size = gamma(rng, 1.5, mean as f64) as u64;
            size.clamp(1, mean.saturating_mul(8).max(1))
        });
        let sizes: Vec<u64> = sizes.collect();
        FileSet::new(root, &sizes, width, |_| percent > 0 && rng.chance(percent))
    }

    /// Entries of given sizes, of which those exist at first that `exists` says.
    pub(crate) fn new(
        root: impl Into<String>,
        sizes: &[u64],
        width: u32,
        mut exists: impl FnMut(u32) -> bool,
    ) -> FileSet {
        let width = width.max(NARROWEST);
        let mut set = FileSet {
            root: root.into(),
            width,
            depth: 0,
            entries: sizes.iter().map(|size| Entry { nominal: *size, size: *size }).collect(),
            existing: Vec::new(),
            missing: Vec::new(),
            prepared: 0,
            preallocated: Vec::new(),
        };
        let mut directories = (sizes.len() as u64).div_ceil(u64::from(width)).max(1);
        while directories > 1 {
            directories = directories.div_ceil(u64::from(width));
            set.depth += 1;
        }
        for entry in 0..sizes.len() as u32 {
            let exists = exists(entry);
            set.preallocated.push(exists);
            if exists { set.existing.push(entry) } else { set.missing.push(entry) }
        }
        set
    }

    /// Files and directories when all entries exist.
    pub(crate) fn count(&self) -> u64 {
        let directories = self.entries.len() as u64 / u64::from(self.width) + 1;
        self.entries.len() as u64 + directories * 2
    }

    /// How many files exist that nobody works on.
    pub(crate) fn available(&self) -> usize {
        self.existing.len()
    }

    /// Bytes of the files that exist, in whole blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.existing.iter().map(|entry| blocks(self.entries[*entry as usize].size)).sum()
    }

    /// How many entries there are.
    pub(crate) fn entries(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The path of an entry.
    pub(crate) fn path(&self, entry: u32) -> String {
        format!("{}/f{entry:07}", self.directory(entry / self.width, self.depth))
    }

    /// The path of a leaf directory, or of one above it: its first `levels` levels.
    fn directory(&self, leaf: u32, levels: u32) -> String {
        let mut path = self.root.clone();
        for level in 1..=levels {
            let digit = leaf / self.width.pow(self.depth - level) % self.width;
            path.push_str(&format!("/d{digit:04}"));
        }
        path
    }

    /// Makes the next entry that exists, and the directories up to it: `request` bytes at a time. False when all are made.
    pub(crate) fn prepare(&mut self, request: u32, operations: &mut Vec<Operation>) -> bool {
        while operations.is_empty() && (self.prepared as usize) < self.entries.len() {
            let entry = self.prepared;
            self.prepared += 1;
            self.make_directories(entry, operations);
            if self.preallocated[entry as usize] {
                let file = File(0);
                operations.push(Operation::Create(file, self.path(entry)));
                write_range(file, 0, self.size(entry), request, operations);
                operations.push(Operation::Close(file));
            }
        }
        !operations.is_empty()
    }

    /// The directories in which an entry is the first.
    fn make_directories(&self, entry: u32, operations: &mut Vec<Operation>) {
        if entry == 0 {
            operations.push(Operation::MakeDirectory(self.root.clone()));
        }
        if !entry.is_multiple_of(self.width) {
            return;
        }
        let leaf = entry / self.width;
        for level in 1..=self.depth {
            if leaf.is_multiple_of(self.width.pow(self.depth - level)) {
                operations.push(Operation::MakeDirectory(self.directory(leaf, level)));
            }
        }
    }

    /// Takes an existing file that nobody works on.
    pub(crate) fn take(&mut self, rng: &mut Rng) -> Option<u32> {
        take(&mut self.existing, rng)
    }

    /// Takes an entry that does not exist; it has its first size again.
    pub(crate) fn take_missing(&mut self, rng: &mut Rng) -> Option<u32> {
        let entry = take(&mut self.missing, rng)?;
        let file = &mut self.entries[entry as usize];
        file.size = file.nominal;
        Some(entry)
    }

    /// Gives an entry back, as an existing file or not.
    pub(crate) fn put(&mut self, entry: u32, exists: bool) {
        if exists { self.existing.push(entry) } else { self.missing.push(entry) }
    }

    /// The size of an entry in bytes.
    pub(crate) fn size(&self, entry: u32) -> u64 {
        self.entries[entry as usize].size
    }

    /// An entry has another size.
    pub(crate) fn resize(&mut self, entry: u32, size: u64) {
        self.entries[entry as usize].size = size;
    }
}

fn take(from: &mut Vec<u32>, rng: &mut Rng) -> Option<u32> {
    if from.is_empty() {
        return None;
    }
    let index = rng.index(from.len());
    Some(from.swap_remove(index))
}

/// Writes a range in requests of at most `request` bytes.
pub(crate) fn write_range(file: File, offset: u64, length: u64, request: u32, operations: &mut Vec<Operation>) {
    range(offset, length, request, |offset, length| operations.push(Operation::Write { file, offset, length }));
}

/// Reads a range in requests of at most `request` bytes.
pub(crate) fn read_range(file: File, offset: u64, length: u64, request: u32, operations: &mut Vec<Operation>) {
    range(offset, length, request, |offset, length| operations.push(Operation::Read { file, offset, length }));
}

fn range(offset: u64, length: u64, request: u32, mut emit: impl FnMut(u64, u32)) {
    let request = u64::from(request.clamp(1, MAX_REQUEST));
    let mut done = 0;
    while done < length {
        let piece = request.min(length - done);
        emit(offset + done, piece as u32);
        done += piece;
    }
}

/// What a logical thread still has to do.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    /// An operation.
    Do(Operation),
    /// Give an entry back to the set, as an existing file or not.
    Put(u32, bool),
}

/// Logical threads whose operations are interleaved one by one, in turn: as concurrent as a stream of operations can be that is
/// the same every time.
#[derive(Debug, Clone)]
pub(crate) struct Threads {
    queues: Vec<VecDeque<Item>>,
    turn: usize,
}

impl Threads {
    pub(crate) fn new(count: u32) -> Threads {
        Threads { queues: vec![VecDeque::new(); count.max(1) as usize], turn: 0 }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.queues.len()
    }

    /// The next operation of one thread, `plan` as in [`step`](Self::step). What is given back behind an operation is free for others when the
    /// thread comes for its next one. False if it finds nothing to do.
    pub(crate) fn step_of(
        &mut self,
        thread: usize,
        set: &mut FileSet,
        operations: &mut Vec<Operation>,
        mut plan: impl FnMut(&mut FileSet, File, &mut Vec<Item>),
    ) -> bool {
        let Some(queue) = self.queues.get_mut(thread) else { return false };
        for is_planned in [false, true] {
            while let Some(item) = queue.pop_front() {
                match item {
                    Item::Put(entry, exists) => set.put(entry, exists),
                    Item::Do(operation) => {
                        operations.push(operation);
                        return true;
                    }
                }
            }
            if !is_planned {
                let mut items = Vec::new();
                plan(set, File(thread as u32), &mut items);
                queue.extend(items);
            }
        }
        false
    }

    /// The next operation of the thread whose turn it is. `plan` fills a queue that has run empty with the thread's next round; its
    /// file number is the thread's. False if no thread has anything to do.
    pub(crate) fn step(
        &mut self,
        set: &mut FileSet,
        operations: &mut Vec<Operation>,
        mut plan: impl FnMut(&mut FileSet, File, &mut Vec<Item>),
    ) -> bool {
        for _ in 0..self.queues.len() {
            let thread = self.turn;
            self.turn = (self.turn + 1) % self.queues.len();
            let queue = &mut self.queues[thread];
            if queue.is_empty() {
                let mut items = Vec::new();
                plan(set, File(thread as u32), &mut items);
                queue.extend(items);
            }
            let mut found = false;
            // What is given back right behind an operation is free for the next thread.
            while let Some(item) = queue.front() {
                match item {
                    Item::Put(entry, exists) => set.put(*entry, *exists),
                    Item::Do(operation) if !found => {
                        operations.push(operation.clone());
                        found = true;
                    }
                    Item::Do(_) => break,
                }
                queue.pop_front();
            }
            if found {
                return true;
            }
        }
        false
    }
}

/// Turns operations into items of a thread.
pub(crate) fn queue(items: &mut Vec<Item>, operations: impl IntoIterator<Item = Operation>) {
    items.extend(operations.into_iter().map(Item::Do));
}
