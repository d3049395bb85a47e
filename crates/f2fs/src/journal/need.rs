//! When only a checkpoint helps, and from when on there is a journal.

use basalt_segments::LogId;
use basalt_segments::cleaning::Rule;

use super::area::Area;
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::mutant::{self, Mutant};
use crate::options::Deltas;
use crate::volume::Volume;

/// Pre-invalid blocks of a large volume from which on a checkpoint is taken: 128 MiB, the best of the paper's sweep (figure 5).
const PRE_INVALID_MAX: u64 = (128 << 20) / BLOCK_SIZE as u64;
/// The same as a share of the main area, for small volumes: one in this many blocks.
const PRE_INVALID_SHARE: u64 = 8;

/// What a changed entry of the NAT takes in memory, in bytes, with its share of the tree it is in.
const NAT_ENTRY_BYTES: usize = 32;
/// So many changed entries may wait in any case: a checkpoint's own journal holds some without writing them to the NAT.
const NAT_ENTRIES_MIN: usize = 4096;

impl Volume {
    /// Whether what can be written back and forgotten by a checkpoint alone takes more than an eighth of the memory for caches. Dirty pages and
    /// nodes can go to their logs instead; changed entries of the NAT cannot.
    pub(crate) fn holds_too_much_for_checkpoint(&self) -> bool {
        let entries = self.nat.dirty.len() + self.journal.notes();
        entries > (self.options.cache_bytes / 8 / NAT_ENTRY_BYTES).max(NAT_ENTRIES_MIN)
    }

    /// Whether recovery would hardly find room any more: for the segments that its logs go on in, which are not those that they are in
    /// now, and for the nodes that point to moved blocks. Only a checkpoint helps. Without a commit since the last one there is room, because
    /// what was free then is free after a power cut.
    pub(crate) fn is_recovery_cramped(&self) -> bool {
        self.would_cramp_recovery(0)
    }

    /// As [`is_recovery_cramped`](Self::is_recovery_cramped), once so many more blocks are in the chain.
    pub(crate) fn would_cramp_recovery(&self, more: u32) -> bool {
        let free = self.table.free_segments().saturating_sub(more.div_ceil(BLOCKS_PER_SEGMENT));
        // What is in the chain is written once more by recovery.
        self.journal.has_commits() && free < self.recovery_segments(self.journal.pointing() + more as usize)
    }

    /// Segments that recovery may need where so many nodes point to moved blocks.
    pub(super) fn recovery_segments(&self, pointing: usize) -> u32 {
        let since = self.checkpoint.since();
        let nodes = pointing as u32 + since.chained() + since.told_nodes_with(&[]) as u32;
        LogId::RECORDED as u32 + nodes.div_ceil(BLOCKS_PER_SEGMENT)
    }

    /// Whether the options allow a journal.
    pub(crate) fn wants_journal(&self) -> bool {
        self.options.journal && self.options.logs == 6
    }

    /// From now on commits cleaning by the journal, if the volume has one and may be changed; and knows what a power cut would bring back, where
    /// that or slack has to be known. Called when nothing is left to recover.
    pub(crate) fn start_journal(&mut self, area: Option<Area>) {
        let area = area.filter(|_| self.wants_journal() && self.is_writable());
        if area.is_some() || self.fills_slack() {
            self.table.track_durability(area.is_some());
            if !mutant::active(Mutant::PagesUnaligned) {
                self.table.align_slack(self.options.flash_page);
            }
            self.pin_chain();
        }
        let Some(area) = area else { return };
        let scaled = (u64::from(self.geometry.main_blocks()) / PRE_INVALID_SHARE).min(PRE_INVALID_MAX);
        let rule = match self.options.pre_invalid_bytes {
            Some(bytes) => Rule::Threshold(bytes / BLOCK_SIZE as u64),
            None => Rule::Adaptive(scaled),
        };
        self.journal.start(area, rule);
        if self.options.delta != Deltas::Off {
            self.nodes.note_untold(self.geometry.flexible_inline_xattr());
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use crate::options::OpenOptions;
    use crate::testing::open_new;

    /// Each of the six logs goes on in another segment; what recovery writes takes more.
    #[test]
    fn recovery_needs_a_segment_for_each_log_and_those_of_its_nodes() {
        let (_, fs) = open_new(64, 64 << 10, OpenOptions::default());
        let volume = fs.volume.lock();
        let nodes = |pointing| volume.recovery_segments(pointing);
        assert_eq!([0, 1, 512, 513].map(nodes), [6, 7, 7, 8]);
    }
}
