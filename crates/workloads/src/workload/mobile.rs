//! `mobile`: a telephone: applications that keep everything in SQLite databases, and a camera.
//!
//! What a transaction does to files is SQLite's documented file format, pages of 4 KiB. Rollback journal (mode DELETE, SQLite's
//! default): the journal is made, a header of 512 bytes and 4,104 bytes a page are appended, it is synced twice (pages, then the
//! header that counts them); the pages are written to the database, which is synced; the journal is deleted. Write-ahead log: frames of
//! 4,120 bytes are appended, one fdatasync; from 1,000 frames on the pages are written to the database, synced, and the log begins anew.
//! That such transactions make most of what telephones write is from S. Jeong and others (*I/O stack optimization for smartphones*, USENIX ATC
//! 2013) and K. Lee and Y. Won (*Smart layers and dumb result*, EMSOFT 2012).
//! Ours: 24 applications (one for each 64 MiB on small volumes), a third of them with a write-ahead log; their databases take 10 % of the
//! volume, sizes falling as 1/rank; transactions go to the applications by Zipf's law at 1.0 and change 1 to 8 pages, chosen by Zipf's law
//! at 0.99. Of 1,000 steps 985 are transactions, 10 write a thumbnail of 16 to 64 KiB, 3 a photograph of 1 to 4 MiB, 1 an update of an
//! application (4 to 8 MiB, less on small volumes, made under a new name, synced and renamed), 1 deletes the ten oldest pictures. Pictures
//! take 30 % of the volume, and the oldest make way.

use std::collections::VecDeque;

use basalt_random::Rng;

use super::{Phase, Workload, overwritten, set_bytes, steady};
use crate::error::Result;
use crate::fileset::write_range;
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{BLOCK, Plan, Settings, blocks};
use crate::specification::Specification;
use crate::stream::{Scatter, Zipf};

const APPLICATIONS: u32 = 24;
/// Every third has a write-ahead log.
const WITH_LOG: u32 = 3;
/// File numbers: databases from 0, logs behind them, then what is opened for a step.
const LOGS: u32 = APPLICATIONS;
const JOURNAL: File = File(APPLICATIONS * 2);
const MEDIA: File = File(APPLICATIONS * 2 + 1);
/// Percent of the volume.
const SET_PERCENT: f64 = 40.0;
/// One part of four for databases, the rest for pictures.
const DATABASES_PART: u64 = 4;
const JOURNAL_HEADER: u32 = 512;
const JOURNAL_RECORD: u32 = 4 + 4096 + 4;
const LOG_HEADER: u64 = 32;
const LOG_FRAME: u32 = 24 + 4096;
const LOG_FRAMES: u64 = 1000;
/// An application's package, in bytes, and its share of the volume at most.
const PACKAGE: u64 = 8 << 20;
const PACKAGE_SHARE: u64 = 128;

/// An application's database.
struct Database {
    pages: u32,
    zipf: Zipf,
    scatter: Scatter,
    prepared: u64,
    /// Pages in the write-ahead log since it began, if there is one.
    log: Option<Vec<u32>>,
}

/// A telephone.
pub(crate) struct Mobile {
    name: String,
    rng: Rng,
    databases: Vec<Database>,
    heat: Zipf,
    /// Pictures by number and size, the oldest first.
    pictures: VecDeque<(u64, u64)>,
    picture_bytes: u64,
    picture_limit: u64,
    made: u64,
    packages: u32,
    package: u64,
    stage: u32,
    plan: Plan,
}

impl Mobile {
    /// Options: `databases` and `pictures` (bytes).
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<Mobile> {
        let set = set_bytes(settings, SET_PERCENT);
        let bytes = options.bytes("databases", set / DATABASES_PART, settings)?;
        let pictures = set - set / DATABASES_PART;
        let picture_limit = options.bytes("pictures", pictures, settings)?.max(8 << 20);
        options.finish()?;
        let applications = (settings.size_bytes >> 26).clamp(3, u64::from(APPLICATIONS)) as u32;
        let package = (settings.size_bytes / PACKAGE_SHARE).clamp(4096, PACKAGE);
        let harmonic: f64 = (1..=applications).map(|rank| 1.0 / f64::from(rank)).sum();
        let databases: Vec<Database> = (0..applications)
            .map(|rank| {
                let share = bytes as f64 / f64::from(rank + 1) / harmonic;
                let pages = (share / BLOCK as f64).clamp(8.0, 1e9) as u32;
                Database {
                    pages,
                    zipf: Zipf::new(u64::from(pages), 0.99),
                    scatter: Scatter::new(pages, settings.seed ^ u64::from(rank)),
                    prepared: 0,
                    log: rank.is_multiple_of(WITH_LOG).then(Vec::new),
                }
            })
            .collect();
        let database_bytes: u64 = databases.iter().map(|database| u64::from(database.pages) * BLOCK).sum();
        let logs = u64::from(applications.div_ceil(WITH_LOG)) * blocks((LOG_FRAMES + 8) * u64::from(LOG_FRAME));
        // Packages take a thirtieth of the volume.
        let packages = (settings.size_bytes / (30 * package)).clamp(1, u64::from(applications)) as u32;
        let initial_bytes = database_bytes + picture_limit;
        let peak_bytes = initial_bytes + logs + (u64::from(packages) + 1) * package + (5 << 20);
        let (age, measure) = steady(settings);
        let files = u64::from(APPLICATIONS) * 4 + picture_limit / (128 << 10) + 16;
        Ok(Mobile {
            name: format!("mobile:databases={bytes},pictures={picture_limit}"),
            rng: Rng::new(settings.seed),
            databases,
            heat: Zipf::new(u64::from(applications), 1.0),
            pictures: VecDeque::new(),
            picture_bytes: 0,
            picture_limit,
            made: 0,
            packages,
            package,
            stage: 0,
            plan: Plan { initial_bytes, peak_bytes, files, age, measure },
        })
    }

    fn prepare(&mut self, operations: &mut Vec<Operation>) -> bool {
        if self.stage == 0 {
            let directories = ["applications", "packages", "pictures"];
            operations.extend(directories.map(|name| Operation::MakeDirectory(name.to_owned())));
            self.stage = 1;
            return true;
        }
        for (number, database) in (0_u32..).zip(&mut self.databases) {
            let path = database_path(number);
            let bytes = u64::from(database.pages) * BLOCK;
            if database.prepared == 0 && database.log.is_some() {
                operations.push(Operation::Create(File(LOGS + number), format!("{path}-wal")));
            }
            if overwritten(File(number), &path, bytes, &mut database.prepared, operations) {
                return true;
            }
        }
        if self.picture_bytes < self.picture_limit / 10 * 9 {
            let photograph = self.rng.chance(23);
            self.picture(photograph, operations);
            return true;
        }
        false
    }

    /// A transaction of one application.
    fn transaction(&mut self, operations: &mut Vec<Operation>) {
        let number = (self.heat.sample(&mut self.rng) - 1) as u32;
        let count = self.rng.between(1, 8);
        let database = &mut self.databases[number as usize];
        let mut pages: Vec<u32> =
            (0..count).map(|_| database.scatter.apply((database.zipf.sample(&mut self.rng) - 1) as u32)).collect();
        pages.sort_unstable();
        pages.dedup();
        match &mut database.log {
            Some(log) => {
                append_to_log(number, log, &pages, operations);
                if log.len() as u64 >= LOG_FRAMES {
                    checkpoint(number, log, operations);
                }
            }
            None => rollback_journal(number, &pages, operations),
        }
    }

    /// A new thumbnail or photograph; the oldest pictures make way.
    fn picture(&mut self, photograph: bool, operations: &mut Vec<Operation>) {
        let size = if photograph { self.rng.between(1 << 20, 4 << 20) } else { self.rng.between(16 << 10, 64 << 10) };
        while self.picture_bytes + blocks(size) > self.picture_limit && self.delete_oldest(operations) {}
        let number = self.made;
        self.made += 1;
        operations.push(Operation::Create(MEDIA, picture_path(number)));
        write_range(MEDIA, 0, size, 256 << 10, operations);
        operations.extend([Operation::Sync(MEDIA), Operation::Close(MEDIA)]);
        self.pictures.push_back((number, size));
        self.picture_bytes += blocks(size);
    }

    fn delete_oldest(&mut self, operations: &mut Vec<Operation>) -> bool {
        let Some((number, size)) = self.pictures.pop_front() else { return false };
        operations.push(Operation::Unlink(picture_path(number)));
        self.picture_bytes -= blocks(size);
        true
    }

    /// An application's package, replaced.
    fn update(&mut self, operations: &mut Vec<Operation>) {
        let number = self.rng.below(u64::from(self.packages));
        let size = self.rng.between(self.package / 2, self.package);
        let path = format!("packages/{number:02}");
        operations.push(Operation::Create(MEDIA, format!("{path}.new")));
        write_range(MEDIA, 0, size, MAX_REQUEST, operations);
        operations.extend([Operation::Sync(MEDIA), Operation::Close(MEDIA)]);
        operations.push(Operation::Rename(format!("{path}.new"), path));
    }
}

fn database_path(number: u32) -> String {
    format!("applications/{number:02}.db")
}

fn picture_path(number: u64) -> String {
    format!("pictures/{number:08}")
}

/// A transaction with a rollback journal.
fn rollback_journal(number: u32, pages: &[u32], operations: &mut Vec<Operation>) {
    let database = File(number);
    let path = format!("{}-journal", database_path(number));
    operations.push(Operation::Create(JOURNAL, path.clone()));
    operations.push(Operation::Write { file: JOURNAL, offset: 0, length: JOURNAL_HEADER });
    let mut offset = u64::from(JOURNAL_HEADER);
    for page in pages {
        // What is about to be overwritten is read first.
        operations.push(Operation::Read { file: database, offset: u64::from(*page) * BLOCK, length: BLOCK as u32 });
        operations.push(Operation::Write { file: JOURNAL, offset, length: JOURNAL_RECORD });
        offset += u64::from(JOURNAL_RECORD);
    }
    operations.push(Operation::Sync(JOURNAL));
    operations.push(Operation::Write { file: JOURNAL, offset: 0, length: JOURNAL_HEADER });
    operations.push(Operation::Sync(JOURNAL));
    write_pages(database, pages, operations);
    operations.extend([Operation::Sync(database), Operation::Close(JOURNAL), Operation::Unlink(path)]);
}

/// A transaction with a write-ahead log.
fn append_to_log(number: u32, log: &mut Vec<u32>, pages: &[u32], operations: &mut Vec<Operation>) {
    let file = File(LOGS + number);
    if log.is_empty() {
        operations.push(Operation::Write { file, offset: 0, length: LOG_HEADER as u32 });
    }
    for page in pages {
        let offset = LOG_HEADER + log.len() as u64 * u64::from(LOG_FRAME);
        operations.push(Operation::Write { file, offset, length: LOG_FRAME });
        log.push(*page);
    }
    operations.push(Operation::SyncData(file));
}

/// The log's pages go to the database; its next frame overwrites its first.
fn checkpoint(number: u32, log: &mut Vec<u32>, operations: &mut Vec<Operation>) {
    log.sort_unstable();
    log.dedup();
    operations.push(Operation::SyncData(File(LOGS + number)));
    write_pages(File(number), log, operations);
    operations.push(Operation::SyncData(File(number)));
    log.clear();
}

fn write_pages(file: File, pages: &[u32], operations: &mut Vec<Operation>) {
    operations.extend(pages.iter().map(|page| Operation::Write {
        file,
        offset: u64::from(*page) * BLOCK,
        length: BLOCK as u32,
    }));
}

impl Workload for Mobile {
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
        match self.rng.below(1000) {
            0..985 => self.transaction(operations),
            985..995 => self.picture(false, operations),
            995..998 => self.picture(true, operations),
            998 => self.update(operations),
            _ => {
                for _ in 0..10 {
                    self.delete_oldest(operations);
                }
                if operations.is_empty() {
                    self.transaction(operations);
                }
            }
        }
        true
    }
}
