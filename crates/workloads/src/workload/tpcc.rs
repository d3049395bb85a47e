//! `tpcc`: the page writes of an OLTP database under TPC-C, and its log.
//!
//! 29 % of the writes go to 1.6 % of the pages (SFS paper, section 2.2); 31 % to 8.4 %, 25 % to 20 % and 15 % to 70 % for the rest, and 40 %
//! of all writes go round a log of an eighth of the set, as in the simulations that brought out the paper's figures (`sfs-reading`).
//! Set, ageing and measured bytes as for `zipf`. The log is synced after every 16 of its writes (16 connections in the SCJ paper's
//! table 1, committing as a group); table pages are synced after every 1024 writes, the database's own checkpoint.

use super::{Phase, Workload, overwritten, steady};
use crate::error::Result;
use crate::operation::{File, Operation};
use crate::settings::{BLOCK, Plan, Settings, blocks};
use crate::specification::Specification;
use crate::stream::{Classes, Scatter, TPCC};

use basalt_random::Rng;

const TABLES: File = File(0);
const LOG: File = File(1);
/// The log is this share of the set.
const LOG_SHARE: u64 = 8;
/// fsync of the log after that many of its writes, unless the settings say otherwise.
const COMMITS: u64 = 16;
/// fsync of the tables after that many of their writes.
const CHECKPOINT: u64 = 1024;

/// An OLTP database's writes.
pub(crate) struct Tpcc {
    name: String,
    rng: Rng,
    classes: Classes,
    scatter: Scatter,
    table_bytes: u64,
    log_bytes: u64,
    log_percent: u64,
    log_offset: u64,
    commits: u64,
    log_writes: u64,
    table_writes: u64,
    prepared: [u64; 2],
    plan: Plan,
}

impl Tpcc {
    /// Options: `set` (bytes or share of the volume), `log` (percent of the writes).
    pub(crate) fn new(mut options: Specification, settings: &Settings) -> Result<Tpcc> {
        let set = options.bytes("set", settings.share(12.5), settings)?.max(LOG_SHARE * BLOCK);
        let log_percent = options.number("log", 40, 0, 100)?;
        options.finish()?;
        let log_bytes = if log_percent == 0 { 0 } else { set / LOG_SHARE / BLOCK * BLOCK };
        let pages = u32::try_from((set - log_bytes) / BLOCK).unwrap_or(u32::MAX);
        let table_bytes = u64::from(pages) * BLOCK;
        let (age, measure) = steady(settings);
        let bytes = blocks(table_bytes) + log_bytes;
        Ok(Tpcc {
            name: format!("tpcc:set={set},log={log_percent}"),
            rng: Rng::new(settings.seed),
            classes: Classes::new(&TPCC, pages),
            scatter: Scatter::new(pages, settings.seed ^ 0x7BCC),
            table_bytes,
            log_bytes,
            log_percent,
            log_offset: 0,
            commits: settings.sync_every.unwrap_or(COMMITS),
            log_writes: 0,
            table_writes: 0,
            prepared: [0; 2],
            plan: Plan { initial_bytes: bytes, peak_bytes: bytes, files: 2, age, measure },
        })
    }
}

impl Workload for Tpcc {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool {
        if phase == Phase::Prepare {
            let [tables, log] = &mut self.prepared;
            return overwritten(TABLES, "tables", self.table_bytes, tables, operations)
                || self.log_bytes > 0 && overwritten(LOG, "log", self.log_bytes, log, operations);
        }
        let length = BLOCK as u32;
        if self.log_percent > 0 && self.rng.chance(self.log_percent) {
            operations.push(Operation::Write { file: LOG, offset: self.log_offset, length });
            self.log_offset = (self.log_offset + BLOCK) % self.log_bytes;
            self.log_writes += 1;
            if self.commits > 0 && self.log_writes.is_multiple_of(self.commits) {
                operations.push(Operation::SyncData(LOG));
            }
        } else {
            let page = self.scatter.apply(self.classes.sample(&mut self.rng));
            operations.push(Operation::Write { file: TABLES, offset: u64::from(page) * BLOCK, length });
            self.table_writes += 1;
            if self.commits > 0 && self.table_writes.is_multiple_of(CHECKPOINT) {
                operations.push(Operation::SyncData(TABLES));
            }
        }
        true
    }
}
