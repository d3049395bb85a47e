//! The trait of workloads, and the phases of a run.

use serde::{Deserialize, Serialize};

use crate::operation::Operation;
use crate::settings::Plan;

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
}
