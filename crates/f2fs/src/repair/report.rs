//! How to repair, and what a repair tells.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use serde::Serialize;

use super::finds::Loss;
use crate::check::{CheckOptions, CheckProgress, Counts, Fault, FaultKind, Place, Severity};
use crate::clock::{Clock, SystemClock};

/// How to repair.
#[derive(Clone)]
pub struct RepairOptions {
    /// Most repairs and faults to list.
    pub max_listed: usize,
    /// The clock of the recovery that an unclean volume gets first.
    pub clock: Arc<dyn Clock>,
}

impl Default for RepairOptions {
    fn default() -> Self {
        RepairOptions { max_listed: CheckOptions::default().max_faults, clock: Arc::new(SystemClock) }
    }
}

/// How far a repair has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairProgress {
    /// The check that is under way, from 1.
    pub round: u32,
    /// How far it is.
    pub check: CheckProgress,
}

/// One thing that is put right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// Which rule was broken.
    pub kind: FaultKind,
    /// How bad that was.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// What was found.
    pub found: String,
    /// What is done.
    pub action: String,
}

impl Repair {
    pub(super) fn of(fault: &Fault, action: impl Into<String>) -> Repair {
        Repair {
            kind: fault.kind,
            severity: fault.severity,
            place: fault.place,
            found: fault.found.clone(),
            action: action.into(),
        }
    }
}

impl std::fmt::Display for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}: {}", self.kind, self.place, self.found, self.action)
    }
}

/// What a repair does, or would do.
#[derive(Debug, Clone, Serialize)]
pub struct RepairReport {
    /// What is put right, in order; at most as many as were asked for.
    pub repairs: Vec<Repair>,
    /// How many that are, listed or not.
    pub repaired: u64,
    /// Faults that are left.
    pub left: Vec<Fault>,
    /// Whether the volume is clean afterwards.
    pub clean: bool,
    /// Blocks that are written.
    pub blocks: u64,
    /// Checks that were made.
    pub rounds: u32,
    /// What is on the volume afterwards.
    pub counts: Counts,
    /// What [rescue](crate::rescue) can read now and nobody could afterwards; at most as many as were asked for.
    pub losses: Vec<Loss>,
    /// Whether nodes were put back that the node address table had lost: the damage was more than a repair without a user should touch.
    pub restored_nodes: bool,
    /// Whether a checkpoint pack that cannot be read may be the newer one: what only it knows is gone with this repair.
    pub uncertain_checkpoint: bool,
}

impl RepairReport {
    /// Whether this gives a reason to ask first, where `planned` gave none for that.
    pub(super) fn asks_for_more_than(&self, planned: &RepairReport) -> bool {
        let asks_for_force = |report: &RepairReport| !report.losses.is_empty() || report.uncertain_checkpoint;
        let asks = asks_for_force(self) || self.restored_nodes && !planned.restored_nodes;
        asks && !asks_for_force(planned)
    }
}

/// The repairs so far.
pub(super) struct Log {
    pub(super) repairs: Vec<Repair>,
    pub(super) seen: FxHashSet<(FaultKind, Place)>,
    pub(super) count: u64,
    pub(super) limit: usize,
    /// Whether what follows is no repair, but comes from moving what was repaired.
    pub(super) muted: bool,
    pub(super) has_restored_nodes: bool,
    pub(super) has_uncertain_checkpoint: bool,
}

impl Log {
    pub(super) fn add(&mut self, repair: Repair) {
        self.has_restored_nodes |= repair.kind == FaultKind::NatMissing;
        self.has_uncertain_checkpoint |= repair.kind == FaultKind::CheckpointUncertain;
        // A place that takes two rounds is one repair.
        if self.muted || self.repairs.len() < self.limit && !self.seen.insert((repair.kind, repair.place)) {
            return;
        }
        self.count += 1;
        if self.repairs.len() < self.limit {
            self.repairs.push(repair);
        }
    }
}
