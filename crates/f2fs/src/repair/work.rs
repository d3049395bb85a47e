//! A repair under way.

use std::sync::Arc;

use basalt_device::BlockDevice;
use rustc_hash::FxHashSet;

use super::finds::Finds;
use super::report::{Log, RepairOptions, RepairProgress};
use super::staged::Staged;
use crate::check::{CheckOptions, CheckReport, Survey, examine};
use crate::error::Result;
use crate::layout::Address;

/// Most faults that one round takes on; a volume with more takes more rounds.
const FAULTS_PER_ROUND: usize = 100_000;

/// A repair under way.
pub(super) struct Work<'a> {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) staged: Arc<Staged>,
    pub(super) log: Log,
    pub(super) round: u32,
    /// Whether something was fsynced that the engine cannot recover: what is left of it has to be searched for.
    pub(super) has_given_up: bool,
    /// What rescue finds, where that was asked before the first repair.
    pub(super) found: Option<Finds>,
    pub(super) progress: &'a mut dyn FnMut(RepairProgress),
}

impl Work<'_> {
    /// Checks what the repair has made so far.
    pub(super) fn examine(&mut self, watched: FxHashSet<Address>) -> Result<(CheckReport, Option<Survey>)> {
        self.round += 1;
        let (round, progress) = (self.round, &mut self.progress);
        let options = CheckOptions { max_faults: FAULTS_PER_ROUND };
        examine(&*self.staged, &options, Some(watched), &mut |check| progress(RepairProgress { round, check }))
    }

    /// What rescue finds on the volume as it is now.
    pub(super) fn search(&mut self, options: &RepairOptions) -> Option<Finds> {
        let staged: Arc<dyn BlockDevice> = Arc::clone(&self.staged) as Arc<dyn BlockDevice>;
        let (round, progress) = (self.round + 1, &mut self.progress);
        Finds::search(&staged, &options.clock, &mut |check| progress(RepairProgress { round, check }))
    }
}
