//! DAC: regions that blocks rise and fall between.

use std::sync::{Mutex, MutexGuard, PoisonError};

use basalt_segments::placement::Policy;
use basalt_segments::{BlockTraits, CostBenefit, LogId, MainBlock, Placement, Reason, SegmentKind, StaticPlacement};

use crate::blocks::Blocks;
use crate::groups::{Groups, is_grouped};

/// [`Dac`] as options name it, with as many regions as in the comparisons of SepBIT's authors.
pub(crate) const POLICY: Policy =
    Policy::new("dac", "up one of six regions with each overwrite, down with each copy (DAC, 1999)", |options| {
        options.expect_six_logs()?;
        Ok(Box::new(Dac::new(options.groups_or(6))))
    })
    .with_groups(8)
    .with_victim(&CostBenefit);

/// Regions from cold to hot. A block begins in the coldest one. When a user overwrites it, it goes to the next hotter region; when
/// cleaning copies it, to the next colder one.
///
/// Source: M.-L. Chiang, P. C. H. Lee and R.-C. Chang, "Using Data Clustering to Improve Cleaning Performance for Flash Memory",
/// Software: Practice and Experience 29(3), 1999, section 3. Their promotion asks besides whether the block is young. It is left out
/// here, as in the comparison of SepBIT (FAST 2022, section 4.1).
pub struct Dac {
    groups: Groups,
    /// The region of each block, the coldest being 1; 0: never written.
    regions: Mutex<Blocks<u8>>,
}

impl Dac {
    /// With so many regions, from 1 to [`GROUPS_MAX`](crate::GROUPS_MAX).
    #[must_use]
    pub fn new(regions: usize) -> Dac {
        Dac { groups: Groups::new(regions), regions: Mutex::default() }
    }

    fn regions(&self) -> MutexGuard<'_, Blocks<u8>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The region of a block that is written now, which was in region `before`.
    fn next(&self, before: u8, reason: Reason) -> u8 {
        match reason {
            Reason::Cleaning => before.saturating_sub(1).max(1),
            Reason::Writeback | Reason::Fsync => (before + 1).min(self.groups.count() as u8),
        }
    }
}

impl Placement for Dac {
    fn more_logs(&self) -> &[SegmentKind] {
        self.groups.more_logs()
    }

    fn limit_memory(&self, bytes: usize) {
        self.regions().limit(bytes);
    }

    fn log(&self, block: &BlockTraits) -> LogId {
        if !is_grouped(block) {
            return StaticPlacement::default().log(block);
        }
        let region = self.next(self.regions().get(block), block.reason);
        self.groups.log(self.groups.count() - usize::from(region))
    }

    fn note_written(&self, block: &BlockTraits, _place: MainBlock) {
        if is_grouped(block) {
            let mut regions = self.regions();
            let region = regions.get_mut(block);
            *region = self.next(*region, block.reason);
        }
    }
}
