//! `create-delete`: files created, appended to, deleted.
//!
//! Create/DeleteFiles of the FlashLight paper (section 5.4 and table VII, a file server script of Filebench made smaller): 2,000 entries of
//! 128 KiB on 256 MiB, 20 a directory, requests of 64 KiB. Each thread repeats the four operations of section 5.4.2: CREATE a file of
//! 128 KiB, APPEND 128 KiB to one, DELETE one, STAT one. Sizes of the gamma distribution (shape 1.5). A file is appended to once in its
//! life on average, which doubles the set before it is steady: it begins with half of what it may take.

use basalt_random::Rng;

use super::{Phase, Workload, set_bytes, steady};
use crate::error::Result;
use crate::fileset::{FileSet, Item, Threads, queue, write_range};
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{Plan, Settings};
use crate::specification::Specification;

/// 2,000 entries of 128 KiB on 256 MiB, 80 % of them made at first.
const SET_PERCENT: f64 = 97.7 * 0.8;
const PREALLOCATED: u64 = 80;

/// Files come and go.
pub(crate) struct CreateDelete {
    name: String,
    rng: Rng,
    set: FileSet,
    threads: Threads,
    append: u64,
    request: u32,
    plan: Plan,
}

impl CreateDelete {
    /// Options: `set` (bytes of the files that exist at first), `mean` (bytes of a file), `append`, `width`, `request`, `threads`.
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<CreateDelete> {
        let bytes = options.bytes("set", set_bytes(settings, SET_PERCENT) * 45 / 100, settings)?;
        let mean = options.bytes("mean", 128 << 10, settings)?.max(1);
        let append = options.bytes("append", 128 << 10, settings)?.max(1);
        let width = options.number("width", 20, 2, 1_000_000)?;
        let request = options.bytes("request", 64 << 10, settings)?.clamp(1, u64::from(MAX_REQUEST)) as u32;
        let threads = options.number("threads", 1, 1, 1000)?;
        options.finish()?;
        let mut rng = Rng::new(settings.seed);
        let entries = (bytes / mean * 100 / PREALLOCATED).clamp(4, 50_000_000) as u32;
        let set = FileSet::gamma("files", entries, width, mean, PREALLOCATED, &mut rng);
        let initial_bytes = set.bytes();
        let grown = set.available() as u64 * append * 23 / 20 + mean * 8;
        let (age, measure) = steady(settings);
        let plan = Plan { initial_bytes, peak_bytes: initial_bytes + grown, files: set.count(), age, measure };
        let name = format!(
            "create-delete:set={bytes},mean={mean},append={append},width={width},request={request},threads={threads}"
        );
        Ok(CreateDelete { name, rng, set, threads: Threads::new(threads), append, request, plan })
    }
}

/// One round of a thread.
fn round(set: &mut FileSet, rng: &mut Rng, file: File, append: u64, request: u32, items: &mut Vec<Item>) {
    let mut operations = Vec::new();
    if let Some(entry) = set.take_missing(rng) {
        operations.push(Operation::Create(file, set.path(entry)));
        write_range(file, 0, set.size(entry), request, &mut operations);
        operations.push(Operation::Close(file));
        queue(items, operations.drain(..));
        items.push(Item::Put(entry, true));
    }
    if let Some(entry) = set.take(rng) {
        let size = set.size(entry);
        operations.push(Operation::Open(file, set.path(entry)));
        write_range(file, size, append, request, &mut operations);
        operations.push(Operation::Close(file));
        set.resize(entry, size + append);
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

impl Workload for CreateDelete {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        if phase == Phase::Prepare {
            return self.set.prepare(self.request, operations);
        }
        let (rng, append, request) = (&mut self.rng, self.append, self.request);
        self.threads.step(&mut self.set, operations, |set, file, items| round(set, rng, file, append, request, items))
    }
}
