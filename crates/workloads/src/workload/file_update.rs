//! `file-update`: parts of files rewritten, as by programs that edit pictures and films.
//!
//! The file update tests of the FlashLight paper (section 5.4.3): files as in Create/DeleteFiles (2,000 entries of 128 KiB on 256 MiB, 20 a
//! directory, requests of 64 KiB), one process that repeats CREATE, RANDOM_WRITE, DELETE, STAT. RANDOM_WRITE opens a file and writes,
//! by shape: `sequential` (the default) one extent of 32 to 128 KiB; `random` 16 extents of 2 KiB, the paper's most scattered test. Its
//! others are `extents=8,extent=4K`, `extents=4,extent=8K` and `extents=2,extent=16K`.

use basalt_random::Rng;

use super::{Phase, Workload, set_bytes, steady};
use crate::error::{Error, Result};
use crate::fileset::{FileSet, Item, Threads, queue, write_range};
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{Plan, Settings};
use crate::specification::Specification;

/// 2,000 entries of 128 KiB on 256 MiB, 80 % of them made at first.
const SET_PERCENT: f64 = 97.7 * 0.8;
const PREALLOCATED: u64 = 80;
/// The extent of the sequential shape, in bytes.
const EXTENT: (u64, u64) = (32 << 10, 128 << 10);
/// Updates begin at multiples of this.
const ALIGNMENT: u64 = 512;

/// What is rewritten at once.
#[derive(Debug, Clone, Copy)]
struct Update {
    extents: u64,
    /// Bytes of an extent, at least and at most.
    least: u64,
    most: u64,
}

/// Files edited in place.
pub(crate) struct FileUpdate {
    name: String,
    rng: Rng,
    set: FileSet,
    threads: Threads,
    update: Update,
    request: u32,
    plan: Plan,
}

impl FileUpdate {
    /// Value: the shape. Options: `set` (bytes of the files that exist), `mean`, `width`, `request`, `extents`, `extent` (bytes).
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<FileUpdate> {
        let shape = options.text("").unwrap_or_else(|| "sequential".to_owned());
        let (extents, least, most) = match shape.as_str() {
            "sequential" => (1, EXTENT.0, EXTENT.1),
            "random" => (16, 2 << 10, 2 << 10),
            _ => {
                let line = format!("file-update: there is no shape `{shape}`; there are sequential and random");
                return Err(Error::Specification(line));
            }
        };
        let extents = options.number("extents", extents, 1, 1024)?;
        let extent = options.bytes("extent", 0, settings)?;
        let (least, most) = if extent == 0 { (least, most) } else { (extent, extent) };
        let bytes = options.bytes("set", set_bytes(settings, SET_PERCENT), settings)?;
        let mean = options.bytes("mean", 128 << 10, settings)?.max(1);
        let width = options.number("width", 20, 2, 1_000_000)?;
        let request = options.bytes("request", 64 << 10, settings)?.clamp(1, u64::from(MAX_REQUEST)) as u32;
        options.finish()?;
        let mut rng = Rng::new(settings.seed);
        let entries = (bytes / mean * 100 / PREALLOCATED).clamp(4, 50_000_000) as u32;
        let set = FileSet::gamma("files", entries, width, mean, PREALLOCATED, &mut rng);
        let initial_bytes = set.bytes();
        let (age, measure) = steady(settings);
        let peak_bytes = initial_bytes + initial_bytes / 20 + mean * 8;
        let plan = Plan { initial_bytes, peak_bytes, files: set.count(), age, measure };
        let name =
            format!("file-update:{shape},extents={extents},extent={extent},set={bytes},mean={mean},width={width}");
        let update = Update { extents, least, most };
        Ok(FileUpdate { name, rng, set, threads: Threads::new(1), update, request, plan })
    }
}

/// One round of the process.
fn round(set: &mut FileSet, rng: &mut Rng, file: File, update: Update, request: u32, items: &mut Vec<Item>) {
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
        for _ in 0..update.extents {
            // Within the file: an update does not make it longer.
            let length = rng.between(update.least, update.most).min(size);
            let offset = rng.between(0, size - length) / ALIGNMENT * ALIGNMENT;
            write_range(file, offset, length, request, &mut operations);
        }
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

impl Workload for FileUpdate {
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
        let (rng, update, request) = (&mut self.rng, self.update, self.request);
        self.threads.step(&mut self.set, operations, |set, file, items| round(set, rng, file, update, request, items))
    }
}
