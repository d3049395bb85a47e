//! `res`: a desktop of a research group, after the shape of the RES trace.
//!
//! The SFS paper replays RES (D. Roselli, J. Lorch, T. Anderson: *A comparison of file system workloads*, USENIX 2000: 13 desktops, 113 days). The trace
//! is not public; what is known of it is: files are read-mostly or written again and again, hardly both; the same
//! files are overwritten many times; and of such desktops in general, that 90 % of the writes go to 1 % of the blocks (SFS paper, section 2.2) and
//! that file sizes are about lognormal, median 4 KiB, mean 108 KiB (N. Agrawal and others, FAST 2007).
//! Ours, chosen to that shape: 30 % of the volume in files, sizes cut off at 16 MiB; one file in eight is written, which one by Zipf's law
//! at 1.0; of 100 steps 40 rewrite a small one (half of them under a new name, then renamed, as editors do), 30 write 1 to 4 pages in place
//! in one of eight mail folders and databases (Zipf's law at 0.99), 15 append to a log that is cut at 1 MiB, 10 make a temporary file and
//! delete the oldest of 64, 5 read a read-mostly file. Everything is synced after every 256 steps, the sync daemon's part (`sync_every`).

use std::collections::VecDeque;

use basalt_random::Rng;

use super::{Phase, Workload, overwritten, set_bytes, steady};
use crate::error::Result;
use crate::fileset::{FileSet, read_range, write_range};
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{BLOCK, Plan, Settings, blocks};
use crate::specification::Specification;
use crate::stream::{Scatter, Zipf, lognormal};

const FILE: File = File(0);
const LOG: File = File(1);
/// Where the numbers of the folders' files begin.
const FOLDERS: u32 = 2;
const FOLDER_COUNT: u32 = 8;
/// Percent of the volume in files, and of those bytes in folders.
const SET_PERCENT: f64 = 30.0;
const FOLDER_PERCENT: u64 = 25;
/// One file in so many is written.
const WRITTEN: u32 = 8;
/// Median and mean of file sizes, and where they are cut off.
const MEDIAN: f64 = 4096.0;
const MEAN: f64 = 108.0 * 1024.0;
const LARGEST: u64 = 16 << 20;
/// Files rewritten whole are no larger than this.
const SMALL: u64 = 256 << 10;
const LOG_BYTES: u64 = 1 << 20;
const TEMPORARY: usize = 64;
/// Everything is synced after that many steps, unless the settings say otherwise.
const SYNC_EVERY: u64 = 256;

/// A desktop.
pub(crate) struct Res {
    name: String,
    rng: Rng,
    set: FileSet,
    /// Entries that are written, the hottest first.
    written: Vec<u32>,
    heat: Zipf,
    folder_bytes: u64,
    folders: [u64; FOLDER_COUNT as usize],
    pages: Zipf,
    scatter: Scatter,
    log: u64,
    log_made: bool,
    temporary: VecDeque<u64>,
    made: u64,
    sync_every: u64,
    steps: u64,
    plan: Plan,
}

impl Res {
    /// Options: `set` (bytes of all files).
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<Res> {
        let set = options.bytes("set", set_bytes(settings, SET_PERCENT), settings)?.max(4 << 20);
        options.finish()?;
        let mut rng = Rng::new(settings.seed);
        let folder_bytes = blocks(set * FOLDER_PERCENT / 100 / u64::from(FOLDER_COUNT));
        let sizes = sizes(set * (100 - FOLDER_PERCENT) / 100, &mut rng);
        let mut written: Vec<u32> = (0..sizes.len() as u32)
            .filter(|entry| sizes[*entry as usize] <= SMALL && rng.below(u64::from(WRITTEN)) == 0)
            .collect();
        if written.is_empty() {
            written.push(0);
        }
        let set_of_files = FileSet::new("home", &sizes, 20, |_| true);
        let pages = (folder_bytes / BLOCK).max(1) as u32 * FOLDER_COUNT;
        let initial_bytes = set_of_files.bytes() + folder_bytes * u64::from(FOLDER_COUNT);
        // Temporary files of 128 KiB at most, the log, and the second copy of a file that is being replaced.
        let peak_bytes = initial_bytes + (TEMPORARY as u64 + 1) * (128 << 10) + LOG_BYTES + SMALL;
        let (age, measure) = steady(settings);
        let files = set_of_files.count() + TEMPORARY as u64 + u64::from(FOLDER_COUNT) + 8;
        Ok(Res {
            name: format!("res:set={set}"),
            heat: Zipf::new(written.len() as u64, 1.0),
            set: set_of_files,
            written,
            folder_bytes,
            folders: [0; FOLDER_COUNT as usize],
            pages: Zipf::new(u64::from(pages), 0.99),
            scatter: Scatter::new(pages, settings.seed ^ 0x0DE5_4709),
            log: 0,
            log_made: false,
            temporary: VecDeque::new(),
            made: 0,
            sync_every: settings.sync_every.unwrap_or(SYNC_EVERY),
            steps: 0,
            plan: Plan { initial_bytes, peak_bytes, files, age, measure },
            rng,
        })
    }

    fn prepare(&mut self, operations: &mut Vec<Operation>) -> bool {
        if self.set.prepare(MAX_REQUEST, operations) {
            return true;
        }
        for (folder, prepared) in (0..FOLDER_COUNT).zip(&mut self.folders) {
            if overwritten(File(FOLDERS + folder), &format!("folder{folder}"), self.folder_bytes, prepared, operations)
            {
                return true;
            }
        }
        if !self.log_made {
            self.log_made = true;
            operations.push(Operation::MakeDirectory("temporary".to_owned()));
            operations.push(Operation::Create(LOG, "log".to_owned()));
            return true;
        }
        false
    }

    fn rewrite(&mut self, operations: &mut Vec<Operation>) {
        let entry = self.written[(self.heat.sample(&mut self.rng) - 1) as usize];
        let (path, size) = (self.set.path(entry), self.set.size(entry));
        let replaced = self.rng.chance(50);
        if replaced {
            operations.push(Operation::Create(FILE, format!("{path}.new")));
        } else {
            operations.push(Operation::Open(FILE, path.clone()));
            operations.push(Operation::Truncate(FILE, 0));
        }
        write_range(FILE, 0, size, MAX_REQUEST, operations);
        operations.push(Operation::Close(FILE));
        if replaced {
            operations.push(Operation::Rename(format!("{path}.new"), path));
        }
    }

    fn write_in_place(&mut self, operations: &mut Vec<Operation>) {
        let page = u64::from(self.scatter.apply((self.pages.sample(&mut self.rng) - 1) as u32));
        let per_folder = self.folder_bytes / BLOCK;
        let (folder, page) = (page / per_folder, page % per_folder);
        let count = self.rng.between(1, 4).min(per_folder - page);
        write_range(File(FOLDERS + folder as u32), page * BLOCK, count * BLOCK, MAX_REQUEST, operations);
    }

    fn append(&mut self, operations: &mut Vec<Operation>) {
        if self.log >= LOG_BYTES {
            operations.push(Operation::Truncate(LOG, 0));
            self.log = 0;
        }
        let length = self.rng.between(80, 2000).min(LOG_BYTES);
        write_range(LOG, self.log, length, MAX_REQUEST, operations);
        self.log += length;
    }

    fn temporary(&mut self, operations: &mut Vec<Operation>) {
        operations.push(Operation::Create(FILE, format!("temporary/{:08}", self.made)));
        let length = self.rng.size(128 << 10);
        write_range(FILE, 0, length, MAX_REQUEST, operations);
        operations.push(Operation::Close(FILE));
        self.temporary.push_back(self.made);
        self.made += 1;
        if self.temporary.len() > TEMPORARY
            && let Some(oldest) = self.temporary.pop_front()
        {
            operations.push(Operation::Unlink(format!("temporary/{oldest:08}")));
        }
    }

    fn read(&mut self, operations: &mut Vec<Operation>) {
        let entry = self.rng.below(u64::from(self.set.entries())) as u32;
        operations.push(Operation::Open(FILE, self.set.path(entry)));
        read_range(FILE, 0, self.set.size(entry), MAX_REQUEST, operations);
        operations.push(Operation::Close(FILE));
    }
}

/// Lognormal sizes that add up to about `bytes`, in blocks.
fn sizes(bytes: u64, rng: &mut Rng) -> Vec<u64> {
    // The mean of a lognormal distribution is its median times e^(σ²/2).
    let sigma = (2.0 * libm::log(MEAN / MEDIAN)).sqrt();
    let mut sizes = Vec::new();
    let mut sum = 0;
    while sum < bytes {
        let size = lognormal(rng, MEDIAN, sigma).clamp(1.0, LARGEST.min(bytes - sum).max(1) as f64) as u64;
        sum += blocks(size);
        sizes.push(size);
    }
    sizes
}

impl Workload for Res {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        if phase == Phase::Prepare {
            return self.prepare(operations);
        }
        match self.rng.below(100) {
            0..40 => self.rewrite(operations),
            40..70 => self.write_in_place(operations),
            70..85 => self.append(operations),
            85..95 => self.temporary(operations),
            _ => self.read(operations),
        }
        self.steps += 1;
        if self.sync_every > 0 && self.steps.is_multiple_of(self.sync_every) {
            operations.push(Operation::SyncAll);
        }
        true
    }
}
