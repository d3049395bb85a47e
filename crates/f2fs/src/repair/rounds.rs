//! Rounds of check and repair, until nothing is left or nothing gets better.

use std::hash::{DefaultHasher, Hash, Hasher};

use rustc_hash::FxHashSet;

use super::finds::{Finds, Loss};
use super::report::{Repair, RepairOptions, RepairReport};
use super::state::State;
use super::work::Work;
use super::{Plan, checkpoint, superblock};
use crate::check::{CheckReport, Fault, FaultKind, Place, Severity, Survey};
use crate::error::Result;

/// Most rounds; each repairs a layer, and few volumes need more than ten.
const ROUNDS_MAX: u32 = 100;

/// The layer that a kind of fault belongs to: a layer is repaired when those before it are sound.
fn layer(kind: FaultKind) -> u32 {
    use FaultKind::*;
    match kind {
        NatMissing => 0,
        // Where an inode's addresses are depends on these: before that is known, all of them look wrong.
        InodeMode | InodeExtraAttributes | InodeInlineXattrSize | InodeInlineFlags | InodeFlags => 1,
        NatReserved
        | NatAddress
        | NatDuplicateAddress
        | NatIno
        | NodeFooterNid
        | NodeFooterIno
        | NodeFooterOffset
        | NodeReference
        | NodeDuplicateReference
        | NodeUnreachable
        | InodeXattrNid
        | BlockAddress
        | BlockDuplicate
        | RootDirectory
        | InodeChecksum => POINTERS,
        InodeInlineReserved | InodeInlineData | InodeSize | InodeDepth | InodeExtent | InodeTimes | InodeNameLength
        | XattrList | DentryNameLength | DentryName | DentryHash | DentryBucket | DentryType | DentryIno
        | DentryDuplicate | OrphanInode | QuotaInode => 3,
        // A wrong name may be the second one of a directory.
        DirectoryParents => 4,
        InodeUnreachable | DirectoryCycle | DentryDots | InodeParent => 5,
        InodeLinks | InodeBlockCount => 6,
        _ => DERIVED,
    }
}

/// The layer of pointers and addresses.
const POINTERS: u32 = 2;
/// The layer that follows from all others.
const DERIVED: u32 = 7;

impl Work<'_> {
    /// Repairs on the staged device, and plans what is to be written.
    pub(super) fn run(mut self, options: &RepairOptions, first: CheckReport) -> Result<Plan> {
        let before = match self.found.take() {
            None if self.has_given_up || needs_search(&first) => self.search(options),
            found => found,
        };
        let Some(geometry) = superblock::repair(&self.staged, &first.faults, &mut self.log)? else {
            return Ok(self.give_up(first, options));
        };
        // Without another fault than those of superblocks, the checkpoint stays as it is.
        let elsewhere = |fault: &Fault| !superblock::KINDS.contains(&fault.kind);
        let (again, _) = self.examine(FxHashSet::default())?;
        if !again.faults.iter().chain(&first.faults).any(elsewhere) && self.log_is_of_superblocks() {
            let writes = super::commit::Writes::of_superblocks(&self.staged)?;
            return Ok(self.finish(again, writes, options));
        }
        let root = geometry.root_ino;
        let found_ahead = before.as_ref().map_or(0, Finds::newest_ahead);
        let mut state = checkpoint::open(&self.staged, geometry, &again.faults, found_ahead, &mut self.log)?;
        if state.writes_both {
            // Else the other place would look like a pack that was lost.
            state.write_other_pack()?;
        }
        state.write_pack(None)?;
        // Entries of the table that the journal's were just written over are right with that, and no round comes to them.
        for fault in again.faults.iter().filter(|fault| fault.kind == FaultKind::SitCount) {
            self.log.add(Repair::of(fault, "computed anew from what is in use"));
        }
        if let Some(before) = &before {
            state.restore_nodes(before, &again.faults, &mut self.log)?;
        }
        let mut report = self.rounds(&mut state)?;
        let after = if before.is_some() { self.search(options) } else { None };
        let mut losses = match (&before, &after) {
            (Some(before), Some(after)) => before.losses(after, &state.given_up),
            (Some(_), None) => vec![Loss::of_all(root)],
            (None, _) => Vec::new(),
        };
        if let Some(before) = &before {
            losses.extend(before.doubtful());
        }
        if report.is_clean() && state.relocate_all(&mut self)? {
            self.log.muted = true;
            report = self.rounds(&mut state)?;
        }
        let writes = state.plan_writes(&mut self)?;
        // Worse than before: what was damaged could be mounted, what is repaired could not.
        if first.complete && !report.complete {
            losses.insert(0, Loss::of_all(root));
        }
        losses.truncate(options.max_listed);
        let mut plan = self.finish(report, writes, options);
        plan.report.losses = losses;
        Ok(plan)
    }

    fn log_is_of_superblocks(&self) -> bool {
        self.log.repairs.iter().all(|repair| superblock::KINDS.contains(&repair.kind))
    }

    fn give_up(self, report: CheckReport, options: &RepairOptions) -> Plan {
        let writes = super::commit::Writes::default();
        self.finish(report, writes, options)
    }

    fn finish(self, report: CheckReport, writes: super::commit::Writes, options: &RepairOptions) -> Plan {
        let clean = report.is_clean() && report.complete;
        let left = report.faults.into_iter().filter(|fault| fault.severity > Severity::Note);
        let report = RepairReport {
            repairs: self.log.repairs,
            repaired: self.log.count,
            left: left.take(options.max_listed).collect(),
            clean,
            blocks: writes.len(),
            rounds: self.round,
            counts: report.counts,
            losses: Vec::new(),
            restored_nodes: self.log.has_restored_nodes,
            uncertain_checkpoint: self.log.has_uncertain_checkpoint,
        };
        Plan { staged: self.staged, report, writes, journal: None }
    }

    /// Checks and repairs until the volume is clean or a round changes nothing; what the last check said.
    fn rounds(&mut self, state: &mut State) -> Result<CheckReport> {
        let mut seen = FxHashSet::default();
        loop {
            let (report, survey) = self.examine(FxHashSet::default())?;
            let Some(survey) = survey.filter(|_| !report.is_clean() && self.round < ROUNDS_MAX) else {
                return Ok(report);
            };
            // A volume that looks as it did before is going round in circles, unless more is known of it.
            let known = (state.put_back.len(), state.outdated.len(), state.homeless.len());
            if !seen.insert((signature(&report), known)) {
                return Ok(report);
            }
            state.begin_round();
            let mut layers: Vec<u32> = faults(&report).map(|fault| layer(fault.kind)).collect();
            layers.sort_unstable();
            layers.dedup();
            // Where addresses are is only known then, and which names are right depends on it.
            let knows_addresses = layers.first().is_none_or(|&first| first >= POINTERS);
            if knows_addresses
                && (state.mend_extra_sizes(&report, &mut self.log)?
                    || state.take_back_first_blocks(&survey, &report, &mut self.log)?)
            {
                state.write_pack(Some(&survey))?;
                continue;
            }
            for layer in layers {
                if self.repair_layer(state, &survey, &report, layer)? {
                    break;
                }
            }
            // Without a free segment for a full log there is no next checkpoint, and no repair.
            state.write_pack(Some(&survey))?;
        }
    }

    /// Repairs the faults of a layer; whether anything was done.
    fn repair_layer(&mut self, state: &mut State, survey: &Survey, report: &CheckReport, wanted: u32) -> Result<bool> {
        let faults: Vec<&Fault> = faults(report).filter(|fault| layer(fault.kind) == wanted).collect();
        if wanted == DERIVED {
            state.derive(survey, report)?;
            faults.iter().for_each(|fault| self.log.add(Repair::of(fault, "computed anew from what is in use")));
            return Ok(true);
        }
        let mut done = self.settle_duplicates(state, survey, &faults)?;
        for fault in faults {
            if let Some(action) = repair(state, survey, fault)? {
                self.log.add(Repair::of(fault, action));
                done = true;
            }
        }
        Ok(done)
    }

    /// Blocks with several owners: a second check tells all of them.
    fn settle_duplicates(&mut self, state: &mut State, survey: &Survey, faults: &[&Fault]) -> Result<bool> {
        let mut watched = FxHashSet::default();
        let duplicates: Vec<&&Fault> = faults.iter().filter(|fault| fault.kind == FaultKind::BlockDuplicate).collect();
        for fault in &duplicates {
            let address = match fault.place {
                Place::Slot { nid, slot } => state.address(survey, nid, slot)?,
                Place::Node(nid) => state.nat(nid)?.address(),
                _ => continue,
            };
            watched.insert(address);
        }
        if watched.is_empty() {
            return Ok(false);
        }
        let (_, watching) = self.examine(watched)?;
        let Some(watching) = watching else { return Ok(false) };
        let settled = state.settle_duplicates(&watching)?;
        let Some(first) = duplicates.first() else { return Ok(false) };
        for (place, action) in &settled {
            // Not always the owner that the check came to last is the wrong one.
            let fault = duplicates.iter().find(|fault| fault.place == *place).unwrap_or(first);
            self.log.add(Repair { place: *place, ..Repair::of(fault, action.clone()) });
        }
        Ok(!settled.is_empty())
    }
}

/// Whether a check found what a file, a name or a node may be lost by: more than superblocks, and what is computed anew.
fn needs_search(report: &CheckReport) -> bool {
    use FaultKind::*;
    let is_harmless = |kind: FaultKind| {
        superblock::KINDS.contains(&kind)
            || matches!(
                kind,
                CheckpointFlags
                    | CheckpointParity
                    | LogMode
                    | LogType
                    | SummaryType
                    | SummaryOwner
                    | SitCount
                    | SitType
                    | FreeSegmentCount
                    | NextFreeNid
            )
    };
    !report.complete || faults(report).any(|fault| !is_harmless(fault.kind))
}

/// Faults that are none but notes are left out.
fn faults(report: &CheckReport) -> impl Iterator<Item = &Fault> {
    report.faults.iter().filter(|fault| fault.severity > Severity::Note)
}

fn signature(report: &CheckReport) -> u64 {
    let mut hasher = DefaultHasher::new();
    for fault in faults(report) {
        (fault.kind, fault.place, &fault.found).hash(&mut hasher);
    }
    hasher.finish()
}

fn repair(state: &mut State, survey: &Survey, fault: &Fault) -> Result<Option<String>> {
    use FaultKind::*;
    match fault.kind {
        NatMissing | NatReserved | NatAddress | NatDuplicateAddress | NatIno | NodeFooterNid | NodeFooterIno
        | NodeFooterOffset => state.repair_nat(survey, fault),
        NodeReference | NodeDuplicateReference | NodeUnreachable | InodeXattrNid | BlockAddress => {
            state.repair_pointer(survey, fault)
        }
        // All of them were settled together.
        BlockDuplicate => Ok(None),
        QuotaInode => state.forget_quota(fault),
        RootDirectory | InodeUnreachable => state.repair_unreachable(survey, fault),
        DentryNameLength | DentryName | DentryHash | DentryBucket | DentryType | DentryIno | DentryDots
        | DentryDuplicate | DirectoryParents | DirectoryCycle => state.repair_entry(survey, fault),
        _ => state.repair_inode(survey, fault),
    }
}
