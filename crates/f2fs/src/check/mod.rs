//! fsck: finds everything that is wrong with a volume. It writes nothing.
//!
//! The passes, in order; each reads what it needs in the order it lies on the device, with large requests:
//!
//! | module | pass |
//! |---|---|
//! | `superblock` | both copies of the superblock |
//! | `checkpoint`, `recovery` | both checkpoint packs, their fields, logs, orphans and journals; what was fsynced since |
//! | `nat`, `nat_bits` | the node address table, into memory; what Linux keeps of its free ids |
//! | `nodes`, `inode` | every node; the inodes' fields and addresses |
//! | `tree`, `file` | the nodes below the inodes, level by level, and the addresses in them; nodes that nobody points to |
//! | `directory` | every directory entry |
//! | `names` | link counts, parents, inodes without a name, circles |
//! | `segments`, `stray` | the segment information table against what is in use; nodes that the NAT has lost; the checkpoint's counts |
//!
//! Every block address passes `blocks`, which gives each block one owner and compares it with the segment's summary.
//!
//! Nothing read is trusted before it is checked, nothing recurses, and memory is bounded: a bit for each block in use, and
//! some tens of bytes for each inode, tree node and name.

mod batch;
pub(crate) mod blocks;
mod checker;
mod checkpoint;
pub(crate) mod directory;
mod fault;
pub(crate) mod file;
pub(crate) mod inode;
mod kind;
pub(crate) mod names;
pub(crate) mod nat;
mod nat_bits;
pub(crate) mod nodes;
pub(crate) mod records;
mod recovery;
mod report;
mod segments;
mod stray;
mod superblock;
pub(crate) mod tree;
mod xattr;

use basalt_device::BlockDevice;
use rustc_hash::FxHashSet;

pub use fault::{Fault, Place};
pub use kind::{FaultKind, Severity};
pub use report::{CheckProgress, CheckReport, CheckpointUsed, Counts, Stage};

use crate::error::Result;
use crate::layout::Address;
use checker::Checker;
pub(crate) use checker::Survey;
use fault::Findings;
use nat::NatTable;

/// How to check.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Most faults to list; the check ends early where only more of the same would follow.
    pub max_faults: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions { max_faults: 10_000 }
    }
}

/// Checks a volume. `progress` is told now and then how far it has come.
///
/// # Errors
/// Only if nothing can be said about a volume: [`Error::Device`](crate::Error::Device) if the device cannot be read,
/// [`Error::NotF2fs`](crate::Error::NotF2fs), and [`Error::Unsupported`](crate::Error::Unsupported) for a layout that is not known or a
/// volume that must be recovered first.
pub fn check(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    Ok(examine(device, options, None, progress)?.0)
}

/// As [`check`], and hands over what it went by if it came to its end. With `watched`, for a repair: collects what the summaries should
/// say, and everybody who owns one of these blocks.
pub(crate) fn examine(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    watched: Option<FxHashSet<Address>>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<(CheckReport, Option<Survey>)> {
    let mut findings = Findings::new(options.max_faults.max(1));
    let Some(geometry) = superblock::check(device, &mut findings)? else {
        return Ok((stopped(findings), None));
    };
    let Some(loaded) = checkpoint::check(device, &geometry, &mut findings)? else {
        return Ok((stopped(findings), None));
    };
    let mut tell = |done, total| progress(CheckProgress { stage: Stage::Tables, done, total });
    let nat = NatTable::load(device, &geometry, &loaded, &mut tell)?;
    let mut checker = Checker::new(device, &geometry, loaded, nat, findings, progress);
    if let Some(watched) = watched {
        checker.ownership.watched = watched;
        checker.ownership.wrong = Some(Vec::new());
    }
    checker.run()?;
    Ok(checker.into_report())
}

fn stopped(findings: Findings) -> CheckReport {
    let Findings { faults, truncated, worst, .. } = findings;
    CheckReport { faults, truncated, worst, complete: false, counts: Counts::default(), checkpoint: None }
}

impl Checker<'_> {
    fn run(&mut self) -> Result<()> {
        self.nat.check_reserved(&mut self.findings);
        self.check_nat_bits()?;
        self.scan_nodes()?;
        self.scan_trees()?;
        self.scan_unreachable()?;
        self.scan_directories()?;
        self.check_names();
        self.check_segments()?;
        self.look_for_roll_forward()
    }
}
