//! `varmail`: Filebench's mail server, which syncs every mail.
//!
//! Filebench 1.4.9.1, `varmail.f`: all files in one directory, 80 % of the entries made at first; 16 threads that each delete a mail; create
//! one, append up to 16 KiB, fsync; read another whole, append, fsync; read a third. Mean size 32 KiB as in the SCJ paper's table 1
//! (475,000 entries on 16 GiB; Filebench's own default is 16 KiB): here that many in proportion, or fewer where the utilization leaves
//! less.

use basalt_random::Rng;

use super::{Phase, Workload, set_bytes, steady};
use crate::error::Result;
use crate::fileset::{FileSet, Item, Threads, queue, read_range, write_range};
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{Plan, Settings};
use crate::specification::Specification;

/// Percent of the entries that exist at first.
const PREALLOCATED: u64 = 80;
/// Entries of the SCJ paper: 475,000 of 32 KiB on 16 GiB are 90.6 % of the volume; 80 % of them exist.
const SET_PERCENT: f64 = 90.6 * 0.8;

/// A mail server.
pub(crate) struct VarMail {
    name: String,
    rng: Rng,
    set: FileSet,
    threads: Threads,
    append: u64,
    plan: Plan,
}

impl VarMail {
    /// Options: `set` (bytes of the mails that exist), `mean` (bytes of a mail), `append` (bytes at most), `threads`.
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<VarMail> {
        let bytes = options.bytes("set", set_bytes(settings, SET_PERCENT), settings)?;
        let mean = options.bytes("mean", 32 << 10, settings)?.max(1);
        let append = options.bytes("append", 16 << 10, settings)?.clamp(1, u64::from(MAX_REQUEST));
        let threads = options.number("threads", 16, 1, 1000)?;
        options.finish()?;
        let mut rng = Rng::new(settings.seed);
        let entries = (bytes / mean * 100 / PREALLOCATED).clamp(4, 100_000_000) as u32;
        let set = FileSet::gamma("mail", entries, 1_000_000, mean, PREALLOCATED, &mut rng);
        let initial_bytes = set.bytes();
        // A new mail holds what is appended, twice in its life on average, and half a block each time: the set shrinks unless mails were
        // smaller than that at first.
        let each = (append + 8192).saturating_sub(mean);
        let grown = set.available() as u64 * each + initial_bytes / 30 + append * u64::from(threads);
        let (age, measure) = steady(settings);
        let plan = Plan { initial_bytes, peak_bytes: initial_bytes + grown, files: set.count(), age, measure };
        let name = format!("varmail:set={bytes},mean={mean},append={append},threads={threads}");
        Ok(VarMail { name, rng, set, threads: Threads::new(threads), append, plan })
    }
}

/// One round of a thread.
fn round(set: &mut FileSet, rng: &mut Rng, file: File, append: u64, items: &mut Vec<Item>) {
    if let Some(entry) = set.take(rng) {
        items.push(Item::Do(Operation::Unlink(set.path(entry))));
        items.push(Item::Put(entry, false));
    }
    let mut operations = Vec::new();
    if let Some(entry) = set.take_missing(rng) {
        let length = rng.between(1, append);
        operations.push(Operation::Create(file, set.path(entry)));
        write_range(file, 0, length, MAX_REQUEST, &mut operations);
        operations.extend([Operation::Sync(file), Operation::Close(file)]);
        set.resize(entry, length);
        queue(items, operations.drain(..));
        items.push(Item::Put(entry, true));
    }
    if let Some(entry) = set.take(rng) {
        let length = rng.between(1, append);
        let size = set.size(entry);
        operations.push(Operation::Open(file, set.path(entry)));
        read_range(file, 0, size, MAX_REQUEST, &mut operations);
        write_range(file, size, length, MAX_REQUEST, &mut operations);
        operations.extend([Operation::Sync(file), Operation::Close(file)]);
        set.resize(entry, size + length);
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
}

impl Workload for VarMail {
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
