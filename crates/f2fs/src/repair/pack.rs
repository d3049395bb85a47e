//! The checkpoint pack of a repaired volume: one of a clean unmount, with full summaries and empty journals.

use basalt_device::BlockDevice;
use basalt_segments::SegmentKind;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use super::state::State;
use crate::blocks::read_blocks;
use crate::check::Survey;
use crate::checkpoint::block::expected_checksum;
use crate::checkpoint::choose::choose_pack_to_read;
use crate::checkpoint::fields::bitmap_places;
use crate::checkpoint::write::orphan_blocks;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::checkpoint::{BITMAP_OFFSET, CHECKSUM_OFFSET, CheckpointFlags, RawCheckpoint};
use crate::layout::summary::{TYPE_DATA, TYPE_NODE};
use crate::layout::{BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT};

/// Blocks of summaries: one for each log.
const SUMMARIES: u32 = 6;

/// How far the staged pack is ahead of what it becomes: versions belong to a pack by parity.
const STAGED_AHEAD: u64 = 2;

/// Flags that say what no longer holds, or would be wrong of this pack.
const DROPPED: CheckpointFlags = CheckpointFlags::COMPACT_SUMMARY
    .union(CheckpointFlags::ERROR)
    .union(CheckpointFlags::FSCK)
    .union(CheckpointFlags::FASTBOOT)
    .union(CheckpointFlags::NAT_BITS)
    .union(CheckpointFlags::TRIMMED)
    .union(CheckpointFlags::NO_CRC_RECOVERY)
    .union(CheckpointFlags::DISABLED)
    .union(CheckpointFlags::DISABLED_QUICK)
    .union(CheckpointFlags::RESIZE);

/// Most orphans that a pack has room for.
pub(super) fn orphans_max(geometry: &Geometry) -> usize {
    let blocks = BLOCKS_PER_SEGMENT - 2 - geometry.payload.min(BLOCKS_PER_SEGMENT - 2 - SUMMARIES) - SUMMARIES;
    blocks as usize * crate::layout::checkpoint::ORPHANS_PER_BLOCK
}

/// Where the other pack is damaged and may have been the newer one, nothing is written to a volume. Once it is known that it was not, the
/// one that counts stands in its place too, as a version before.
pub(super) fn stand_in(device: &dyn BlockDevice, geometry: &Geometry) -> Result<()> {
    let chosen = choose_pack_to_read(device, geometry)?.0;
    let raw = &chosen.raw;
    let mut pack = read_blocks(device, chosen.start, raw.cp_pack_total_block_count.get() as usize)?;
    let mut head = chosen.bytes[..BLOCK_SIZE].to_vec();
    head[..8].copy_from_slice(&raw.checkpoint_ver.get().wrapping_sub(1).to_le_bytes());
    let offset = raw.checksum_offset.get() as usize;
    let checksum = expected_checksum(&head, offset);
    head[offset..offset + 4].copy_from_slice(&checksum.to_le_bytes());
    let last = pack.len() - BLOCK_SIZE;
    pack[..BLOCK_SIZE].copy_from_slice(&head);
    pack[last..].copy_from_slice(&head);
    let start = geometry.checkpoint + (1 - chosen.index) * BLOCKS_PER_SEGMENT;
    Ok(device.write_at(u64::from(start) << BLOCK_BITS, &pack)?)
}

impl State {
    /// Writes the pack to its place. Logs that are full move on first, which takes a survey; without one no log may be full.
    pub(super) fn write_pack(&mut self, survey: Option<&Survey>) -> Result<()> {
        if let Some(survey) = survey {
            for kind in SegmentKind::ALL {
                let log = &self.loaded.logs[kind.index()];
                if log.offset >= BLOCKS_PER_SEGMENT && !self.move_log(survey, kind)? {
                    return Err(basalt_vfs::Error::NoSpace.into());
                }
            }
        }
        let pack = self.compose_pack();
        let start = self.geometry.checkpoint + self.target * BLOCKS_PER_SEGMENT;
        for (address, block) in start.onward().zip(pack.chunks_exact(BLOCK_SIZE)) {
            self.put(address, block)?;
        }
        Ok(())
    }

    /// The bytes of the whole pack.
    fn compose_pack(&mut self) -> Vec<u8> {
        let orphans = orphan_blocks(&self.loaded.orphans);
        let start_sum = 1 + self.geometry.payload + (orphans.len() / BLOCK_SIZE) as u32;
        let raw = self.fields(start_sum, start_sum + SUMMARIES + 1, !orphans.is_empty());
        let head = self.head(&raw);
        let mut pack = head.clone();
        pack.extend_from_slice(&orphans);
        for (index, log) in self.loaded.logs.iter().enumerate() {
            let mut summary = *log.summary;
            summary.entry_type = if index < 3 { TYPE_DATA } else { TYPE_NODE };
            summary.journal.fill(0);
            pack.extend_from_slice(summary.as_bytes());
        }
        pack.extend_from_slice(&head[..BLOCK_SIZE]);
        self.loaded.pack.raw = raw;
        pack
    }

    fn fields(&self, start_sum: u32, total: u32, orphans: bool) -> RawCheckpoint {
        let mut raw = self.loaded.pack.raw;
        raw.checkpoint_ver.set(if self.is_staged { self.version.wrapping_add(STAGED_AHEAD) } else { self.version });
        raw.cp_pack_start_sum.set(start_sum);
        raw.cp_pack_total_block_count.set(total);
        for (index, log) in self.loaded.logs.iter().enumerate() {
            let (segment, offset) = (U32::new(log.segment.get()), U16::new(log.offset as u16));
            if let Some(node) = index.checked_sub(3) {
                (raw.cur_node_segno[node], raw.cur_node_blkoff[node]) = (segment, offset);
            } else {
                (raw.cur_data_segno[index], raw.cur_data_blkoff[index]) = (segment, offset);
            }
            raw.alloc_type[index] = log.in_slack.into();
        }
        let mut flags = raw.flags().difference(DROPPED);
        flags.insert(CheckpointFlags::UMOUNT | CheckpointFlags::CRC_RECOVERY);
        flags.set(CheckpointFlags::ORPHAN, orphans);
        raw.ckpt_flags.set(flags.bits());
        let large = flags.contains(CheckpointFlags::LARGE_NAT_BITMAP);
        raw.checksum_offset.set(if large { BITMAP_OFFSET as u32 } else { CHECKSUM_OFFSET as u32 });
        raw
    }

    /// The first block with bitmaps and checksum, and the payload blocks.
    fn head(&self, raw: &RawCheckpoint) -> Vec<u8> {
        let mut head = vec![0; BLOCK_SIZE * (1 + self.geometry.payload as usize)];
        head[..BITMAP_OFFSET].copy_from_slice(raw.as_bytes());
        // The bitmaps were read from the same places, or made for them.
        let (sit_at, nat_at) = bitmap_places(raw.flags(), &self.geometry);
        let (sit, nat) = (&self.loaded.sit_bitmap, &self.loaded.nat_bitmap);
        head[sit_at..sit_at + sit.len()].copy_from_slice(sit);
        head[nat_at..nat_at + nat.len()].copy_from_slice(nat);
        let offset = raw.checksum_offset.get() as usize;
        let checksum = expected_checksum(&head[..BLOCK_SIZE], offset);
        head[offset..offset + 4].copy_from_slice(&checksum.to_le_bytes());
        head
    }
}
