//! The first checkpoint of a new volume.

use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

use super::areas::{HOT_DATA, HOT_NODE};
use super::plan::Plan;
use super::root::Tree;
use crate::layout::checkpoint::{CHECKSUM_OFFSET, CheckpointFlags, LOG_SLOTS, RawCheckpoint};
use crate::layout::crc::crc;
use crate::layout::sit::{RawSitEntry, VALID_MAP_SIZE};
use crate::layout::summary::{
    JOURNAL_SIZE, RawSitJournalEntry, RawSummary, RawSummaryBlock, TYPE_NODE, encode_journal,
};
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, set_bit_msb};

/// Blocks of the pack without payload: head, compact data summaries, three node summaries, tail.
const PACK_BLOCKS: u32 = 6;
/// A log slot that is not in use.
const NO_SEGMENT: u32 = u32::MAX;

/// The whole pack, block after block.
pub fn build(plan: &Plan, tree: &Tree, version: u64) -> Vec<u8> {
    let head = checkpoint_block(plan, tree, version);
    let mut pack = head.clone();
    // The payload's bitmaps: all current copies are the first.
    pack.resize(BLOCK_SIZE * (1 + plan.superblock.cp_payload.get() as usize), 0);
    pack.extend(compact_summaries(plan, tree));
    let mut hot = RawSummaryBlock::empty(TYPE_NODE);
    for (entry, &(ino, _)) in hot.entries.iter_mut().zip(&tree.inodes) {
        entry.nid.set(ino.get());
    }
    pack.extend_from_slice(hot.as_bytes());
    let empty = RawSummaryBlock::empty(TYPE_NODE);
    pack.extend_from_slice(empty.as_bytes());
    pack.extend_from_slice(empty.as_bytes());
    pack.extend(head);
    pack
}

fn checkpoint_block(plan: &Plan, tree: &Tree, version: u64) -> Vec<u8> {
    let sb = &plan.superblock;
    let inodes = tree.inodes.len() as u32;
    let mut raw = RawCheckpoint::new_zeroed();
    raw.checkpoint_ver.set(version);
    raw.user_block_count.set(plan.user_blocks());
    // Each directory has an inode and a block of entries.
    raw.valid_block_count.set(2 * u64::from(inodes));
    raw.rsvd_segment_count.set(plan.reserved_segments);
    raw.overprov_segment_count.set(plan.overprovision_segments);
    raw.free_segment_count.set(sb.segment_count_main.get() - plan.logs.len() as u32);
    raw.cur_node_segno = [U32::new(NO_SEGMENT); LOG_SLOTS];
    raw.cur_data_segno = [U32::new(NO_SEGMENT); LOG_SLOTS];
    for index in 0..3 {
        raw.cur_data_segno[index].set(plan.logs[HOT_DATA + index]);
        raw.cur_node_segno[index].set(plan.logs[HOT_NODE + index]);
    }
    raw.cur_data_blkoff[0].set(inodes as u16);
    raw.cur_node_blkoff[0].set(inodes as u16);
    raw.ckpt_flags.set((CheckpointFlags::UMOUNT | CheckpointFlags::COMPACT_SUMMARY).bits());
    raw.cp_pack_total_block_count.set(PACK_BLOCKS + sb.cp_payload.get());
    raw.cp_pack_start_sum.set(1 + sb.cp_payload.get());
    raw.valid_node_count.set(inodes);
    raw.valid_inode_count.set(inodes);
    raw.next_free_nid.set(plan.next_free_nid.get());
    raw.sit_ver_bitmap_bytesize.set(sb.segment_count_sit.get() / 2 * BLOCKS_PER_SEGMENT / 8);
    raw.nat_ver_bitmap_bytesize.set(sb.segment_count_nat.get() / 2 * BLOCKS_PER_SEGMENT / 8);
    raw.checksum_offset.set(CHECKSUM_OFFSET as u32);
    let mut block = raw.as_bytes().to_vec();
    block.resize(CHECKSUM_OFFSET, 0);
    let checksum = crc(&block);
    block.extend(checksum.to_le_bytes());
    block
}

/// The NAT journal (empty), the SIT journal with the six logs' segments, and the owners of the hot data log's blocks.
fn compact_summaries(plan: &Plan, tree: &Tree) -> Vec<u8> {
    let mut block = vec![0; JOURNAL_SIZE];
    let used = tree.inodes.len() as u16;
    let segments: Vec<RawSitJournalEntry> = (0..plan.logs.len())
        .map(|log| {
            let live = if log == HOT_DATA || log == HOT_NODE { used } else { 0 };
            let mut map = [0; VALID_MAP_SIZE];
            (0..usize::from(live)).for_each(|index| set_bit_msb(&mut map, index, true));
            // Six logs: the number fits.
            RawSitJournalEntry { segno: U32::new(plan.logs[log]), entry: RawSitEntry::new(log as u8, live, map, 0) }
        })
        .collect();
    block.extend(encode_journal(&segments));
    for &(ino, _) in &tree.inodes {
        let owner = RawSummary { nid: U32::new(ino.get()), ..RawSummary::default() };
        block.extend_from_slice(owner.as_bytes());
    }
    block.resize(BLOCK_SIZE, 0);
    block
}
