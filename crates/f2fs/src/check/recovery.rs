//! What was fsynced after the checkpoint: the chain of nodes in the warm node log.

use basalt_segments::SegmentKind;
use rustc_hash::FxHashSet;
use zerocopy::FromBytes;

use super::Checker;
use super::fault::Place;
use super::kind::FaultKind;
use crate::checkpoint::load::{log_position, read_blocks};
use crate::error::Result;
use crate::layout::SEGMENT_BITS;
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::node::{NodeFlags, RawNode};

/// Nodes that are followed; a longer chain is told as "at least".
const CHAIN_MAX: usize = 1 << 16;

impl Checker<'_> {
    /// Follows the chain of a volume that was not unmounted, and tells how many nodes mounting would recover.
    pub(super) fn look_for_roll_forward(&mut self) -> Result<()> {
        let pack = &self.loaded.pack;
        if pack.raw.flags().contains(CheckpointFlags::UMOUNT) {
            return Ok(());
        }
        let version = pack.raw.checkpoint_ver.get();
        let expected = if pack.raw.flags().contains(CheckpointFlags::CRC_RECOVERY) {
            version | u64::from(pack.checksum) << 32
        } else {
            version
        };
        let (segment, offset, _) = log_position(pack, SegmentKind::WarmNode);
        let mut at = self.geometry.main + (segment << SEGMENT_BITS) + offset;
        let mut seen = FxHashSet::default();
        let mut synced = 0;
        while self.geometry.in_main(at) && seen.len() < CHAIN_MAX && seen.insert(at) {
            let block = read_blocks(self.device, at, 1)?;
            let Ok(node) = RawNode::ref_from_bytes(&block) else { break };
            if node.footer.cp_ver.get() != expected {
                break;
            }
            synced += u32::from(node.footer.flags().contains(NodeFlags::FSYNC));
            at = node.footer.next_blkaddr.get();
        }
        if synced > 0 {
            let found = format_args!("{synced} fsynced nodes behind the checkpoint");
            self.findings.add(FaultKind::RollForward, Place::Volume, found, "none, after a clean unmount");
        }
        Ok(())
    }
}
