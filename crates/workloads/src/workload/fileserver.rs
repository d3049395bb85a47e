//! `fileserver`: Filebench's file server.
//!
//! Filebench 1.4.9.1, `fileserver.f`: entries of 128 KiB on average (gamma, shape 1.5), 80 % of them made at first, 20 a directory; 50
//! threads that each create and write a file, append up to 16 KiB to another, read a third, delete a fourth and ask for a fifth's
//! attributes; requests of 1 MiB. The SCJ paper's table 1 has the same with 112,500 entries on 16 GiB: here that many in proportion, or
//! fewer where the utilization leaves less.

use basalt_random::Rng;

use super::{Phase, Workload, set_bytes, steady};
use crate::error::Result;
use crate::fileset::{FileSet, Item, Threads, queue, read_range, write_range};
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{Plan, Settings};
use crate::specification::Specification;

/// Percent of the entries that exist at first.
const PREALLOCATED: u64 = 80;
/// Entries of the SCJ paper: 112,500 of 128 KiB on 16 GiB are 85.8 % of the volume; 80 % of them exist.
const SET_PERCENT: f64 = 85.8 * 0.8;

/// A file server.
pub(crate) struct FileServer {
    name: String,
    rng: Rng,
    set: FileSet,
    threads: Threads,
    append: u64,
    plan: Plan,
}

impl FileServer {
    /// Options: `set` (bytes of the files that exist), `mean` (bytes of a file), `append` (bytes at most), `width` (files a directory),
    /// `threads`.
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<FileServer> {
        let bytes = options.bytes("set", set_bytes(settings, SET_PERCENT), settings)?;
        let mean = options.bytes("mean", 128 << 10, settings)?.max(1);
        let append = options.bytes("append", 16 << 10, settings)?.clamp(1, u64::from(MAX_REQUEST));
        let width = options.number("width", 20, 2, 1_000_000)?;
        let threads = options.number("threads", 50, 1, 1000)?;
        options.finish()?;
        let mut rng = Rng::new(settings.seed);
        let entries = (bytes / mean * 100 / PREALLOCATED).clamp(4, 100_000_000) as u32;
        let set = FileSet::gamma("files", entries, width, mean, PREALLOCATED, &mut rng);
        let initial_bytes = set.bytes();
        // Every file is appended to once in its life on average, by half the greatest length; sizes fluctuate with who exists.
        let grown = set.available() as u64 * append * 3 / 4 + initial_bytes / 20 + mean * 8;
        let (age, measure) = steady(settings);
        let plan = Plan { initial_bytes, peak_bytes: initial_bytes + grown, files: set.count(), age, measure };
        let name = format!("fileserver:set={bytes},mean={mean},append={append},width={width},threads={threads}");
        Ok(FileServer { name, rng, set, threads: Threads::new(threads), append, plan })
    }
}

/// One round of a thread.
fn round(set: &mut FileSet, rng: &mut Rng, file: File, append: u64, items: &mut Vec<Item>) {
    let mut operations = Vec::new();
    if let Some(entry) = set.take_missing(rng) {
        operations.push(Operation::Create(file, set.path(entry)));
        write_range(file, 0, set.size(entry), MAX_REQUEST, &mut operations);
        operations.push(Operation::Close(file));
        queue(items, operations.drain(..));
        items.push(Item::Put(entry, true));
    }
    if let Some(entry) = set.take(rng) {
        let length = rng.between(1, append);
        operations.push(Operation::Open(file, set.path(entry)));
        write_range(file, set.size(entry), length, MAX_REQUEST, &mut operations);
        operations.push(Operation::Close(file));
        set.resize(entry, set.size(entry) + length);
        queue(items, operations.drain(..));
        items.push(Item::Put(entry, true));
    }
    if let Some(entry) = set.take(rng) {
        operations.push(Operation::Open(file, set.path(entry)));
        read_range(file, 0, set.size(entry), MAX_REQUEST, &mut operations);
        operations.push(Operation::Close(file));
        queue(items, operations.drain(..));
        items.push(Item::Put(entry, true));
    }
    if let Some(entry) = set.take(rng) {
        items.push(Item::Do(Operation::Unlink(set.path(entry))));
        items.push(Item::Put(entry, false));
    }
    if let Some(entry) = set.take(rng) {
        items.push(Item::Do(Operation::Stat(set.path(entry))));
        items.push(Item::Put(entry, true));
    }
}

impl Workload for FileServer {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        if phase == Phase::Prepare {
            return self.set.prepare(MAX_REQUEST, operations);
        }
        let (rng, append) = (&mut self.rng, self.append);
        self.threads.step(&mut self.set, operations, |set, file, items| round(set, rng, file, append, items))
    }

    fn threads(&self) -> usize {
        self.threads.count()
    }

    fn step_thread(&mut self, _: Phase, thread: usize, operations: &mut Vec<Operation>) -> bool {
        let (rng, append) = (&mut self.rng, self.append);
        let plan = |set: &mut FileSet, file, items: &mut Vec<Item>| round(set, rng, file, append, items);
        self.threads.step_of(thread, &mut self.set, operations, plan)
    }
}
