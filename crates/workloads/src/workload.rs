//! The trait of workloads, and the phases of a run.

pub(crate) mod copy_files;
pub(crate) mod create_delete;
pub(crate) mod create_files;
pub(crate) mod file_update;
pub(crate) mod fileserver;
pub(crate) mod mobile;
pub(crate) mod overwrite;
pub(crate) mod postmark;
pub(crate) mod res;
pub(crate) mod sysbench;
pub(crate) mod tpcc;
pub(crate) mod varmail;
pub(crate) mod ycsb;

use serde::{Deserialize, Serialize};

use crate::operation::{File, MAX_REQUEST, Operation};
use crate::settings::{Limit, Plan, Settings};

/// The phases of a run, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The workload's own files are made.
    Prepare,
    /// Data that is never updated fills the volume up to the utilization.
    Dummy,
    /// The workload runs until the file system is in the state in which it is to be measured.
    Age,
    /// The workload runs, and its report is kept.
    Measure,
}

impl Phase {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Prepare => "prepare",
            Phase::Dummy => "dummy",
            Phase::Age => "age",
            Phase::Measure => "measure",
        }
    }
}

/// A seeded stream of operations.
///
/// It knows no target: what it asks for depends on the settings it was made from and on nothing else. That is what makes one
/// workload the same on all file systems.
pub trait Workload: Send {
    /// Its specification with all options, as [`by_name`](crate::by_name) reads it.
    fn name(&self) -> String;

    /// What it needs, and how long it runs.
    fn plan(&self) -> Plan;

    /// Appends the next step's operations: at least one, at most a few thousand, that belong together (a transaction, a file).
    /// Returns false, and appends nothing, when the phase has come to its natural end. Phases are [`Phase::Prepare`], then
    /// [`Phase::Age`] and [`Phase::Measure`], which most workloads do not tell apart; the last two can be cut off after any step.
    fn step(&mut self, phase: Phase, operations: &mut Vec<Operation>) -> bool;

    /// How many logical threads it has: those of its source, where that has threads.
    fn threads(&self) -> usize {
        1
    }

    /// As [`step`](Self::step), of one thread: for runs in which threads overlap, and the order of their steps follows from how long each
    /// takes. False if this thread has nothing to do; it is asked again when another one has done something.
    fn step_thread(&mut self, phase: Phase, thread: usize, operations: &mut Vec<Operation>) -> bool {
        let _ = thread;
        self.step(phase, operations)
    }
}

/// Ageing and measuring of a workload that goes on for ever: 5/16 and 1/8 of the volume, the SFS paper's 20 GiB and 8 GiB of 64 GB
/// (section 4.1).
pub(crate) fn steady(settings: &Settings) -> (Limit, Limit) {
    (Limit::Bytes(settings.size_bytes / 16 * 5), Limit::Bytes(settings.size_bytes / 8))
}

/// The same of a workload that only reads: nothing ages, and as many operations as a writer would write blocks are measured.
pub(crate) fn steady_reads(settings: &Settings) -> (Limit, Limit) {
    (Limit::Operations(0), Limit::Operations((settings.size_bytes / 8 / crate::settings::BLOCK).max(1)))
}

/// Percent of the utilization that a workload's files take at most if nobody says otherwise. Small volumes keep a third back for
/// cleaning.
const SET_OF_UTILIZATION: f64 = 60.0;
const SET_OF_UTILIZATION_SMALL: f64 = 45.0;
const SMALL: u64 = 1 << 30;

/// Bytes of the files of a workload whose source uses `percent` of the volume, or what the utilization leaves.
fn set_bytes(settings: &Settings, percent: f64) -> u64 {
    let part = if settings.size_bytes < SMALL { SET_OF_UTILIZATION_SMALL } else { SET_OF_UTILIZATION };
    settings.share(percent.min(f64::from(settings.utilization_percent) * part / 100.0))
}

/// Makes a file of `bytes` bytes, a request a step, and leaves it open. False when it is complete.
fn overwritten(file: File, path: &str, bytes: u64, prepared: &mut u64, operations: &mut Vec<Operation>) -> bool {
    if *prepared >= bytes {
        return false;
    }
    if *prepared == 0 {
        operations.push(Operation::Create(file, path.to_owned()));
    }
    let length = (bytes - *prepared).min(u64::from(MAX_REQUEST));
    operations.push(Operation::Write { file, offset: *prepared, length: length as u32 });
    *prepared += length;
    true
}
