//! `ycsb-a`: YCSB's workload A on a database that is one file with a log: half reads, half updates.
//!
//! YCSB's core workloads (B. F. Cooper and others, SoCC 2010): records of 1,000 bytes, chosen with Zipf's law at 0.99, scattered; an update writes
//! one field of 100 bytes. The database is the SCJ paper's (table 1, MySQL): 12 GB of 16 GB here in proportion, a buffer pool of a
//! twelfth of it, 32 connections. Its mechanics are InnoDB's defaults: pages of 16 KiB, 15 records each; a redo log written in
//! blocks of 512 bytes, round two files of 48 MiB for 12 GB in proportion, fdatasync at each commit; dirty pages written in batches of 64,
//! first to a doublewrite area of 2 MiB, then in place, fdatasync after each, when the pool has no clean page or three
//! quarters of the log are used.
//! Where threads overlap, each connection is one: it waits for the pages that it reads, and the one with which a commit is complete for that.
//! Ours: commits of 16 updates share one fdatasync, half of the 32 connections being in an update (`sync_every`); a redo record takes 256 bytes.

use basalt_random::Rng;

use super::{Phase, Workload, overwritten, set_bytes, steady};
use crate::error::Result;
use crate::operation::{File, MAX_REQUEST, Operation};
use crate::pool::{Access, Pool};
use crate::settings::{Plan, Settings, blocks};
use crate::specification::Specification;
use crate::stream::{Scatter, Zipf};

const DATABASE: File = File(0);
const LOG: File = File(1);
const DOUBLEWRITE: File = File(2);
/// 12 GB of 16 GB.
const SET_PERCENT: f64 = 75.0;
const PAGE: u32 = 16 << 10;
const RECORDS_PER_PAGE: u32 = 15;
const LOG_BLOCK: u64 = 512;
const REDO_RECORD: u64 = 256;
/// The database is this many times the pool, and the log.
const POOL_SHARE: u64 = 12;
const LOG_SHARE: u64 = 128;
const SMALLEST_LOG: u64 = 1 << 20;
const DOUBLEWRITE_BYTES: u64 = 2 << 20;
/// Dirty pages written at once.
const BATCH: usize = 64;
/// The SCJ paper's connections.
const CONNECTIONS: usize = 32;
/// Updates that are committed together, unless the settings say otherwise.
const COMMIT: u64 = 16;

/// A database under YCSB's workload A.
pub(crate) struct Ycsb {
    name: String,
    rng: Rng,
    zipf: Zipf,
    scatter: Scatter,
    pool: Pool,
    read_percent: u64,
    database_bytes: u64,
    log_bytes: u64,
    prepared: [u64; 3],
    /// Bytes of redo records ever, and how many of them were in the log at the last commit and when the last checkpoint was complete.
    redo: u64,
    committed: u64,
    checkpoint: u64,
    flushing: bool,
    commit: u64,
    updates: u64,
    doublewrite: u64,
    plan: Plan,
}

impl Ycsb {
    /// Options: `set` (bytes of the database), `theta`, `reads` (percent).
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<Ycsb> {
        let default = set_bytes(settings, SET_PERCENT);
        let set = options.bytes("set", default, settings)?;
        let theta = options.number("theta", 0.99, 0.0, 5.0)?;
        let read_percent = options.number("reads", 50, 0, 100)?;
        options.finish()?;
        let pages = u32::try_from(set / u64::from(PAGE)).unwrap_or(u32::MAX / RECORDS_PER_PAGE);
        let pages = pages.clamp(4, u32::MAX / RECORDS_PER_PAGE);
        let database_bytes = u64::from(pages) * u64::from(PAGE);
        let log_bytes = (database_bytes / LOG_SHARE).max(SMALLEST_LOG) / LOG_BLOCK * LOG_BLOCK;
        let records = pages * RECORDS_PER_PAGE;
        let bytes = database_bytes + blocks(log_bytes) + DOUBLEWRITE_BYTES;
        let (age, measure) = steady(settings);
        Ok(Ycsb {
            name: format!("ycsb-a:set={database_bytes},theta={theta},reads={read_percent}"),
            rng: Rng::new(settings.seed),
            zipf: Zipf::new(u64::from(records), theta),
            scatter: Scatter::new(records, settings.seed ^ 0x9C5B),
            pool: Pool::new((u64::from(pages) / POOL_SHARE) as usize),
            read_percent,
            database_bytes,
            log_bytes,
            prepared: [0; 3],
            redo: 0,
            committed: 0,
            checkpoint: 0,
            flushing: false,
            commit: settings.sync_every.unwrap_or(COMMIT),
            updates: 0,
            doublewrite: 0,
            plan: Plan { initial_bytes: bytes, peak_bytes: bytes, files: 3, age, measure },
        })
    }

    fn prepare(&mut self, operations: &mut Vec<Operation>) -> bool {
        let [database, log, doublewrite] = &mut self.prepared;
        overwritten(DATABASE, "database", self.database_bytes, database, operations)
            || overwritten(LOG, "redo", self.log_bytes, log, operations)
            || overwritten(DOUBLEWRITE, "doublewrite", DOUBLEWRITE_BYTES, doublewrite, operations)
    }

    /// Writes the redo records since the last commit, the blocks they share with others included, and syncs.
    fn commit(&mut self, operations: &mut Vec<Operation>) {
        let mut from = self.committed / LOG_BLOCK * LOG_BLOCK;
        let end = self.redo.next_multiple_of(LOG_BLOCK);
        while from < end {
            let offset = from % self.log_bytes;
            let length = (end - from).min(self.log_bytes - offset).min(u64::from(MAX_REQUEST));
            operations.push(Operation::Write { file: LOG, offset, length: length as u32 });
            from += length;
        }
        operations.push(Operation::SyncData(LOG));
        self.committed = self.redo;
    }

    /// Writes a batch of dirty pages, twice.
    fn flush(&mut self, operations: &mut Vec<Operation>) {
        let pages = self.pool.clean(BATCH);
        if pages.is_empty() {
            return;
        }
        // A page may reach the disk only behind the records that changed it.
        if self.committed < self.redo {
            self.commit(operations);
        }
        let length = pages.len() as u32 * PAGE;
        if self.doublewrite + u64::from(length) > DOUBLEWRITE_BYTES {
            self.doublewrite = 0;
        }
        operations.push(Operation::Write { file: DOUBLEWRITE, offset: self.doublewrite, length });
        operations.push(Operation::SyncData(DOUBLEWRITE));
        self.doublewrite += u64::from(length);
        for page in pages {
            let offset = u64::from(page) * u64::from(PAGE);
            operations.push(Operation::Write { file: DATABASE, offset, length: PAGE });
        }
        operations.push(Operation::SyncData(DATABASE));
    }

    /// Makes room in the log a batch at a time once it is three quarters full.
    fn checkpoint(&mut self, operations: &mut Vec<Operation>) {
        if !self.flushing && self.redo - self.checkpoint > self.log_bytes / 4 * 3 {
            self.flushing = true;
        }
        if self.flushing {
            self.flush(operations);
            if self.pool.dirty() == 0 {
                self.flushing = false;
                self.checkpoint = self.redo;
            }
        }
    }
}

impl Workload for Ycsb {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn threads(&self) -> usize {
        CONNECTIONS
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        if phase == Phase::Prepare {
            return self.prepare(operations);
        }
        // Hits in the pool ask nothing of the file system: go on to what does.
        while operations.is_empty() {
            let record = self.scatter.apply((self.zipf.sample(&mut self.rng) - 1) as u32);
            let page = record / RECORDS_PER_PAGE;
            let update = !self.rng.chance(self.read_percent);
            let mut access = self.pool.access(page, update);
            while access == Access::Full {
                self.flush(operations);
                access = self.pool.access(page, update);
            }
            if access == Access::Miss {
                let offset = u64::from(page) * u64::from(PAGE);
                operations.push(Operation::Read { file: DATABASE, offset, length: PAGE });
            }
            if update {
                self.redo += REDO_RECORD;
                self.updates += 1;
                if self.commit > 0 && self.updates.is_multiple_of(self.commit) {
                    self.commit(operations);
                }
                self.checkpoint(operations);
            }
        }
        true
    }
}
