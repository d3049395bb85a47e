//! Repair: makes a volume sound again, and says what it did.
//!
//! Everything happens on a `staged` device first: the volume below is not touched until [`Plan::commit`]. So a dry run is a plan
//! without a commit, what is overwritten can be saved before, and a power cut leaves the volume as it was or as it will be.
//!
//! 0. A live cleaning journal is recovered, in place: that is safe by itself, and changes what is free.
//! 1. Superblock and checkpoint are brought to where the volume can be checked; what was fsynced is recovered.
//! 2. Rescue's search: nodes that the NAT does not lead to, or a pointer not any more, are put back where it found them.
//! 3. Rounds of check and repair, each on the lowest layer with faults: nodes, then entries and fields, names, counts of inodes.
//!    What follows from the rest (segment information, summaries, the checkpoint's counts) is derived last.
//! 4. Blocks that the last checkpoint can reach move to free places, table blocks to their other copy.
//! 5. On commit: blocks, flush, checkpoint but for its last block, flush, last block, flush; superblocks at the end.
//!
//! | module | what |
//! |---|---|
//! | `journal` | a live cleaning journal, first of all |
//! | `superblock`, `checkpoint`, `pack` | where things are; the checkpoint to start from, and the next |
//! | `finds`, `restore`, `identity` | what rescue finds, and what the repair would lose of it; putting it back; nodes with another's id |
//! | `nat`, `node` | node addresses and footers; pointers to nodes and blocks |
//! | `inode`, `xattr`, `directory`, `names`, `home`, `lost_found`, `remake` | fields, attributes, entries, names, directories made anew |
//! | `kept` | what of the device may not be written over before the new checkpoint is durable |
//! | `segments` | segment information, summaries, logs, counts |
//! | `rounds`, `commit`, `backup` | the order of things; writing; what was there before |
//! | `advice` | what is done for each kind of fault, in words |

mod address;
mod advice;
mod backup;
mod checkpoint;
mod commit;
mod directory;
mod entry;
mod finds;
mod first_block;
mod home;
mod identity;
mod inode;
mod journal;
mod kept;
mod known_names;
mod level;
mod lost_found;
mod lost_logs;
mod names;
mod nat;
mod node;
mod pack;
mod remake;
mod report;
mod restore;
mod rounds;
mod segments;
mod staged;
mod state;
mod superblock;
mod work;
mod xattr;

use std::sync::Arc;

use basalt_device::BlockDevice;
use rustc_hash::FxHashSet;

pub use advice::advice;
pub use backup::{RestoreError, restore};
pub use finds::Loss;
pub use report::{Repair, RepairOptions, RepairProgress, RepairReport};

use crate::check::{CheckOptions, CheckProgress, CheckReport, Fault, FaultKind, Place, Severity};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::lock::F2fs;
use crate::options::Extent;
use report::Log;
use staged::Staged;
use work::Work;

/// Blocks of a pack that are zero if it was never written: more than the least pack has.
const UNUSED_BLOCKS: usize = 8;
/// What recovery must not start from: it would write where something is, or delete it.
const NOT_RECOVERABLE: &[FaultKind] = &[
    FaultKind::OrphanInode,
    FaultKind::SitMissing,
    FaultKind::SitClass,
    FaultKind::LogNextBlock,
    FaultKind::LogType,
    FaultKind::BlockDuplicate,
    FaultKind::NatDuplicateAddress,
    FaultKind::NatMissing,
    FaultKind::NodeDuplicateReference,
];

/// A repair that is ready to be written.
pub struct Plan {
    staged: Arc<Staged>,
    report: RepairReport,
    writes: commit::Writes,
    journal: Option<BehindJournal>,
}

/// A journal has to be recovered in place first; the plan is what comes then, as far as that can be told.
struct BehindJournal {
    options: RepairOptions,
    /// How much of it can be recovered.
    extent: Option<Extent>,
    /// Blocks that the recovery changed on the copy.
    blocks: u64,
}

impl Plan {
    /// What it does.
    pub fn report(&self) -> &RepairReport {
        &self.report
    }

    /// Writes it. A power cut leaves the volume as it was or repaired; where there was no room to keep both, it can be repaired again.
    ///
    /// # Errors
    /// When the device cannot be written, or a live journal not be recovered as was planned: nothing is given up that the report does
    /// not tell.
    pub fn commit(self) -> Result<RepairReport> {
        if let Some(BehindJournal { options, extent, blocks }) = self.journal {
            let device = self.staged.base_device();
            let recovered = journal::recover_as(&device, &options.clock, extent)?;
            let behind = plan(device, &options, &mut |_| {})?;
            if behind.report.asks_for_more_than(&self.report) {
                let found =
                    "the cleaning journal is recovered; what comes then loses more than was planned: repair again";
                return Err(Error::damaged("volume", "repair", found));
            }
            let mut report = behind.commit()?;
            report.repaired += recovered.len() as u64;
            report.repairs.splice(0..0, recovered);
            report.blocks += blocks;
            return Ok(report);
        }
        self.writes.write(self.staged.base())?;
        Ok(self.report)
    }

    /// Saves what [`commit`](Self::commit) overwrites, for [`restore`].
    ///
    /// # Errors
    /// When the device cannot be read or the backup not be written.
    pub fn back_up(&self, to: &mut dyn std::io::Write) -> std::result::Result<(), RestoreError> {
        if self.journal.is_some() {
            let what = "a live cleaning journal is recovered first, in place, which no backup undoes: copy the whole image, and repair it without --backup";
            return Err(std::io::Error::other(what).into());
        }
        backup::save(&self.staged, &self.writes, to)
    }
}

/// As [`check`](crate::check::check), but a live cleaning journal, which alone tells where things are, is recovered on a copy in memory
/// first. Writes nothing.
///
/// # Errors
/// As [`check`](crate::check::check).
pub fn check_recovered(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    clock: &Arc<dyn Clock>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    if !journal::is_live(&*device)? {
        return crate::check::check(&*device, options, progress);
    }
    let copy: Arc<dyn BlockDevice> = Arc::new(Staged::new(device));
    let recovered = journal::recover(&copy, clock)?.repairs;
    let mut report = crate::check::check(&*copy, options, progress)?;
    let of_recovery = recovered.into_iter().map(|one| Fault {
        kind: one.kind,
        severity: one.severity,
        place: one.place,
        found: format!("{}, in memory {}", one.found, one.action),
        expected: "none".to_owned(),
        right: None,
    });
    report.faults.splice(0..0, of_recovery);
    report.worst = report.faults.iter().map(|fault| fault.severity).max().max(report.worst);
    Ok(report)
}

/// Finds out how to repair a volume. Writes nothing.
///
/// # Errors
/// As [`check`](crate::check::check): when the device cannot be read, holds no volume, or one of an unknown layout.
pub fn plan(
    device: Arc<dyn BlockDevice>,
    options: &RepairOptions,
    progress: &mut dyn FnMut(RepairProgress),
) -> Result<Plan> {
    if journal::is_live(&*device)? {
        return plan_behind_journal(device, options, progress);
    }
    let log = Log {
        repairs: Vec::new(),
        seen: FxHashSet::default(),
        count: 0,
        limit: options.max_listed.max(1),
        muted: false,
        has_restored_nodes: false,
        has_uncertain_checkpoint: false,
    };
    let staged = Arc::new(Staged::new(Arc::clone(&device)));
    let mut work = Work { device, staged, log, round: 0, has_given_up: false, found: None, progress };
    let (report, _) = work.examine(FxHashSet::default())?;
    if !work.has_work(&report)? {
        return Ok(work.nothing(report));
    }
    let report = work.recover(options, report)?;
    work.run(options, report)
}

/// As [`plan`] for a volume with a live journal: that is recovered on a copy in memory, to see what is left to repair.
fn plan_behind_journal(
    device: Arc<dyn BlockDevice>,
    options: &RepairOptions,
    progress: &mut dyn FnMut(RepairProgress),
) -> Result<Plan> {
    let staged = Arc::new(Staged::new(Arc::clone(&device)));
    let copy: Arc<dyn BlockDevice> = Arc::clone(&staged) as Arc<dyn BlockDevice>;
    let recovered = journal::recover(&copy, &options.clock)?;
    let mut losses = Vec::new();
    if recovered.has_given_up() {
        let mut tell = |check| progress(RepairProgress { round: 0, check });
        losses = finds::Finds::search(&device, &options.clock, &mut tell).map_or(losses, |found| found.fsynced());
    }
    if recovered.extent.is_none() {
        losses.extend(Some(journal::moves(&*device)).filter(|moves| *moves > 0).map(Loss::of_moves));
    }
    let behind = plan(copy, options, progress)?;
    let mut report = behind.report;
    losses.append(&mut report.losses);
    losses.truncate(options.max_listed.max(1));
    report.losses = losses;
    report.repaired += recovered.repairs.len() as u64;
    report.restored_nodes |= recovered.repairs.iter().any(|repair| repair.kind == FaultKind::FsyncLost);
    report.repairs.splice(0..0, recovered.repairs);
    report.repairs.truncate(options.max_listed.max(1));
    let blocks = staged.changes()?.len() as u64;
    report.blocks += blocks;
    let journal = Some(BehindJournal { options: options.clone(), extent: recovered.extent, blocks });
    Ok(Plan { staged, report, writes: commit::Writes::default(), journal })
}

impl Work<'_> {
    /// Whether anything can be made better.
    fn has_work(&self, report: &CheckReport) -> Result<bool> {
        for fault in &report.faults {
            let wanted = match (fault.kind, fault.place) {
                // resize.f2fs can leave the first pack so. In place of the second one, zeros are what is left of a pack.
                (FaultKind::CheckpointPack, Place::Checkpoint(0)) => !self.is_first_unused()?,
                _ => true,
            };
            if wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_first_unused(&self) -> Result<bool> {
        let (geometry, _) = crate::geometry::Geometry::read(&*self.staged)?;
        // What cannot be read was written.
        let pack = crate::blocks::read_blocks(self.staged.base(), geometry.checkpoint, UNUSED_BLOCKS);
        Ok(pack.is_ok_and(|pack| pack.iter().all(|&byte| byte == 0)))
    }

    fn nothing(self, report: CheckReport) -> Plan {
        let report = RepairReport {
            repairs: Vec::new(),
            repaired: 0,
            clean: report.is_clean(),
            left: Vec::new(),
            blocks: 0,
            rounds: self.round,
            counts: report.counts,
            losses: Vec::new(),
            restored_nodes: false,
            uncertain_checkpoint: false,
        };
        Plan { staged: self.staged, report, writes: commit::Writes::default(), journal: None }
    }

    /// Lets the engine recover what was fsynced, where the volume is sound enough for that.
    fn recover(&mut self, options: &RepairOptions, report: CheckReport) -> Result<CheckReport> {
        let notes: Vec<Fault> = report.faults.iter().filter(|fault| is_of_recovery(fault.kind)).cloned().collect();
        // Also where the checkpoint before is that of an unmounted volume: then nothing else tells that there was more.
        let lacks_checkpoint = self.lacks_checkpoint(options, &report);
        if notes.is_empty() {
            return Ok(report);
        }
        let is_safe = report.complete
            && report.worst != Some(Severity::Fatal)
            && !report.faults.iter().any(|fault| NOT_RECOVERABLE.contains(&fault.kind));
        let mut after = None;
        if is_safe && !lacks_checkpoint && self.roll_forward(options, &report).is_ok() {
            let (new, _) = self.examine(FxHashSet::default())?;
            let is_done = !new.faults.iter().any(|fault| is_of_recovery(fault.kind));
            after = (is_done && new.complete).then_some(new);
        }
        let recovered = after.is_some();
        for fault in &notes {
            let action = match (recovered, fault.kind) {
                (true, FaultKind::RollForward) => "recovered, as mounting does",
                (true, FaultKind::FsyncLost) => {
                    // A user should know.
                    self.log.has_restored_nodes = true;
                    journal::BEHIND_DAMAGE
                }
                (true, _) => "cleanly unmounted",
                _ if lacks_checkpoint => {
                    self.has_given_up = true;
                    "a newer checkpoint is gone: what is found of it comes back"
                }
                (false, FaultKind::RollForward | FaultKind::FsyncLost) => {
                    self.has_given_up = true;
                    "cannot be recovered as mounting does: only what is found of it comes back"
                }
                (false, _) => "back at its last checkpoint",
            };
            self.log.add(Repair::of(fault, action));
        }
        if let Some(after) = after {
            // This is still to be asked for.
            for fault in report.faults.iter().filter(|fault| fault.kind == FaultKind::CheckpointUncertain) {
                self.log.add(Repair::of(fault, "the other pack is used, and a new one written here"));
            }
            return Ok(after);
        }
        self.staged = Arc::new(Staged::new(Arc::clone(&self.device)));
        Ok(report)
    }

    /// Whether a pack is damaged that was the newest checkpoint, and complete: something was written behind it. One of zeros may be what is
    /// left of it.
    fn lacks_checkpoint(&mut self, options: &RepairOptions, report: &CheckReport) -> bool {
        let is_doubtful = |kind| {
            matches!(kind, FaultKind::CheckpointPack | FaultKind::CheckpointUncertain | FaultKind::CheckpointLost)
        };
        if report.faults.iter().any(|fault| is_doubtful(fault.kind)) {
            self.found = self.search(options).filter(finds::Finds::lack_a_checkpoint);
        }
        self.found.is_some()
    }

    fn roll_forward(&self, options: &RepairOptions, report: &CheckReport) -> Result<()> {
        let staged: Arc<dyn BlockDevice> = Arc::clone(&self.staged) as Arc<dyn BlockDevice>;
        let is_doubtful = |kind| matches!(kind, FaultKind::CheckpointLost | FaultKind::CheckpointUncertain);
        if report.faults.iter().any(|fault| is_doubtful(fault.kind)) {
            pack::stand_in(&*staged, &crate::geometry::Geometry::read(&*staged)?.0)?;
        }
        F2fs::recover(staged, Arc::clone(&options.clock), Extent::All)?;
        Ok(())
    }
}

/// Whether a mount is what helps, if it can: something is to be recovered, or the volume to be marked as unmounted.
fn is_of_recovery(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::NotUnmounted | FaultKind::RollForward | FaultKind::FsyncLost)
}
