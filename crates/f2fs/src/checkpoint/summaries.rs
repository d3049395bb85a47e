//! The summaries in a pack: owners of the blocks that each log has written, and the journals of NAT and SIT behind them.

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentKind};
use zerocopy::FromBytes;

use super::block::bad;
use super::fields::log_position;
use super::pack::Pack;
use crate::blocks::read_blocks;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::node::RawNode;
use crate::layout::summary::{
    COMPACT_FIRST, ENTRIES, FOOTER_SIZE, JOURNAL_SIZE, RawSummary, RawSummaryBlock, TYPE_DATA, TYPE_NODE,
    compact_blocks,
};
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT};

/// The journals of NAT and SIT.
pub(crate) type Journals = ([u8; JOURNAL_SIZE], [u8; JOURNAL_SIZE]);

/// The three data summaries in order, and the journals.
pub(crate) type DataSummaries = (Vec<Box<RawSummaryBlock>>, Journals);

/// A journal, and the summaries of logs that are in the same block: of each so many owners from the first on.
pub(super) type JournalBlock = ([u8; JOURNAL_SIZE], Vec<(SegmentKind, Box<RawSummaryBlock>, usize)>);

/// Reads the summaries of the data logs, and the journals behind them.
pub(crate) fn read_data_summaries(device: &dyn BlockDevice, pack: &Pack) -> Result<DataSummaries> {
    if !is_compact(pack) {
        let bytes = read_blocks(device, data_summary_place(pack)?, 3)?;
        let blocks: Vec<_> = bytes.chunks_exact(BLOCK_SIZE).map(summary_from).collect();
        let journals = (blocks[0].journal, blocks[2].journal);
        return Ok((blocks, journals));
    }
    let counts = compact_counts(pack);
    let bytes = read_compact(device, pack, compact_blocks(counts.iter().sum()))?;
    let (summaries, journals, is_whole) = parse_compact(&bytes, counts);
    if is_whole { Ok((summaries, journals)) } else { Err(bad(pack.index, "compact summaries reach past the pack")) }
}

/// Reads the block with the journal of the NAT, and no other.
pub(super) fn read_nat_block(device: &dyn BlockDevice, pack: &Pack) -> Result<JournalBlock> {
    read_journal_block(device, pack, SegmentKind::HotData)
}

/// Reads the block with the journal of the SIT, and no other.
pub(super) fn read_sit_block(device: &dyn BlockDevice, pack: &Pack) -> Result<JournalBlock> {
    read_journal_block(device, pack, SegmentKind::ColdData)
}

fn read_journal_block(device: &dyn BlockDevice, pack: &Pack, kind: SegmentKind) -> Result<JournalBlock> {
    if !is_compact(pack) {
        let summary = summary_from(&read_blocks(device, data_summary_place(pack)? + kind.index() as u32, 1)?);
        return Ok((summary.journal, vec![(kind, summary, ENTRIES)]));
    }
    let mut left = COMPACT_FIRST;
    let counts = compact_counts(pack).map(|count| {
        let here = count.min(left);
        left -= here;
        here
    });
    let (summaries, journals, is_whole) = parse_compact(&read_compact(device, pack, 1)?, counts);
    if !is_whole {
        return Err(bad(pack.index, "compact summaries reach past the pack"));
    }
    let journal = if kind == SegmentKind::HotData { journals.0 } else { journals.1 };
    let beside = SegmentKind::ALL.into_iter().zip(summaries).zip(counts);
    Ok((journal, beside.map(|((kind, summary), count)| (kind, summary, count)).collect()))
}

pub(super) fn is_compact(pack: &Pack) -> bool {
    pack.raw.flags().contains(CheckpointFlags::COMPACT_SUMMARY)
}

/// Where the first of three data summaries is that are not compact.
fn data_summary_place(pack: &Pack) -> Result<Address> {
    let after = if has_node_summaries(pack) { 6 } else { 3 };
    let total = pack.raw.cp_pack_total_block_count.get();
    if total < after + 2 {
        return Err(bad(pack.index, format!("{total} blocks do not hold {after} summaries")));
    }
    Ok(pack.start + total - (after + 1))
}

/// How many owners of each data log compact summaries have.
fn compact_counts(pack: &Pack) -> [usize; 3] {
    std::array::from_fn(|log| {
        let (_, offset, in_slack) = log_position(pack, SegmentKind::ALL[log]);
        if in_slack { ENTRIES } else { ENTRIES.min(offset as usize) }
    })
}

/// The first blocks of compact summaries, as far as they are in front of the pack's last block.
fn read_compact(device: &dyn BlockDevice, pack: &Pack, blocks: u32) -> Result<Vec<u8>> {
    let start = pack.raw.cp_pack_start_sum.get();
    let total = pack.raw.cp_pack_total_block_count.get();
    // Rescue comes here without having read what lies before.
    let count = total.checked_sub(start).filter(|count| *count > 0 && total <= BLOCKS_PER_SEGMENT);
    let count = count.ok_or_else(|| bad(pack.index, format!("summaries start at block {start} of {total}")))?;
    read_blocks(device, pack.start + start, (count - 1).min(blocks) as usize)
}

/// The summaries and journals in `bytes`, and whether all of them are in there.
fn parse_compact(bytes: &[u8], counts: [usize; 3]) -> (Vec<Box<RawSummaryBlock>>, Journals, bool) {
    let mut journals = ([0; JOURNAL_SIZE], [0; JOURNAL_SIZE]);
    let mut is_whole = bytes.len() >= 2 * JOURNAL_SIZE;
    if is_whole {
        journals.0.copy_from_slice(&bytes[..JOURNAL_SIZE]);
        journals.1.copy_from_slice(&bytes[JOURNAL_SIZE..2 * JOURNAL_SIZE]);
    }
    let mut at = 2 * JOURNAL_SIZE;
    let summaries = counts.map(|count| {
        let mut block = RawSummaryBlock::empty(TYPE_DATA);
        for entry in block.entries.iter_mut().take(count) {
            if at % BLOCK_SIZE + size_of::<RawSummary>() > BLOCK_SIZE - FOOTER_SIZE {
                at = at.next_multiple_of(BLOCK_SIZE);
            }
            match bytes.get(at..).map(RawSummary::read_from_prefix) {
                Some(Ok((read, _))) => *entry = read,
                _ => is_whole = false,
            }
            at += size_of::<RawSummary>();
        }
        block
    });
    (summaries.into(), journals, is_whole)
}

pub(super) fn has_node_summaries(pack: &Pack) -> bool {
    pack.raw.flags().intersects(CheckpointFlags::UMOUNT | CheckpointFlags::FASTBOOT)
}

fn summary_from(bytes: &[u8]) -> Box<RawSummaryBlock> {
    let mut block = RawSummaryBlock::empty(TYPE_DATA);
    // Callers pass whole blocks, which is the size of the structure.
    if let Ok(read) = RawSummaryBlock::ref_from_bytes(bytes) {
        *block = *read;
    }
    block
}

pub(super) fn read_node_summaries(
    device: &dyn BlockDevice,
    pack: &Pack,
    geometry: &Geometry,
) -> Result<Vec<Box<RawSummaryBlock>>> {
    if has_node_summaries(pack) {
        let total = pack.raw.cp_pack_total_block_count.get();
        if total < 5 {
            return Err(bad(pack.index, format!("{total} blocks do not hold node summaries")));
        }
        let bytes = read_blocks(device, pack.start + total - 4, 3)?;
        return Ok(bytes.chunks_exact(BLOCK_SIZE).map(summary_from).collect());
    }
    // Not unmounted: every node says in its footer whose it is.
    let mut summaries = Vec::with_capacity(3);
    for kind in &SegmentKind::ALL[3..] {
        let (segment, offset, in_slack) = log_position(pack, *kind);
        if !geometry.has_segment(segment) || offset > BLOCKS_PER_SEGMENT {
            return Err(bad(
                pack.index,
                format!("{kind:?} log at segment {segment} block {offset}, outside the main area"),
            ));
        }
        let count = if in_slack { ENTRIES } else { offset as usize };
        let mut block = RawSummaryBlock::empty(TYPE_NODE);
        let bytes = match read_blocks(device, geometry.in_segment(segment, 0), count) {
            // A place that the log was writing when the power went may be unreadable: nobody needs it.
            Err(Error::Device(_)) if in_slack => {
                if let Ok(bytes) = read_blocks(device, geometry.summary_block(segment), 1) {
                    *block = *summary_from(&bytes);
                }
                read_one_by_one(device, geometry, segment, &mut block);
                summaries.push(block);
                continue;
            }
            read => read?,
        };
        for (entry, node) in block.entries.iter_mut().zip(bytes.chunks_exact(BLOCK_SIZE)) {
            let node = RawNode::ref_from_bytes(node).map_err(|_| bad(pack.index, "short node"))?;
            entry.nid = node.footer.nid;
        }
        summaries.push(block);
    }
    Ok(summaries)
}

/// Sets the owners of all blocks of a segment of nodes that can be read; the others stay as they are.
fn read_one_by_one(device: &dyn BlockDevice, geometry: &Geometry, segment: Segment, block: &mut RawSummaryBlock) {
    for (offset, entry) in (0..).zip(&mut block.entries) {
        let read = read_blocks(device, geometry.in_segment(segment, offset), 1);
        if let Some(node) = read.ok().as_deref().and_then(|bytes| RawNode::ref_from_bytes(bytes).ok()) {
            entry.nid = node.footer.nid;
        }
    }
}

#[cfg(test)]
mod tests {
    use basalt_device::{FaultyDevice, MemoryDevice, RequestKind};

    use super::*;
    use crate::checkpoint::choose::choose_pack;
    use crate::format::{FormatOptions, format};

    /// A node log in slack was writing when the power went, and its page cannot be read. Nothing durable is there.
    #[test]
    fn a_node_log_in_slack_is_read_around_what_cannot_be() {
        let device = FaultyDevice::new(MemoryDevice::new(80 << 20, 512));
        format(&device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let geometry = Geometry::read(&device).unwrap().0;
        let mut pack = choose_pack(&device, &geometry).unwrap().0;
        pack.raw.ckpt_flags.set((pack.raw.flags() - CheckpointFlags::UMOUNT).bits());
        let log = SegmentKind::HotNode;
        let (segment, offset, _) = log_position(&pack, log);
        let place = |offset| (u64::from(geometry.in_segment(segment, offset)) * BLOCK_SIZE as u64, BLOCK_SIZE as u64);
        let (bad, length) = place(offset + 3);
        device.fail_when(move |request| {
            let is_met = request.offset < bad + length && request.offset + request.length > bad;
            (request.kind == RequestKind::Read && is_met).then_some(std::io::ErrorKind::InvalidData)
        });
        let read = |pack: &Pack| read_node_summaries(&device, pack, &geometry);
        let before = read(&pack).unwrap();
        pack.raw.alloc_type[log.index()] = 1;
        let summaries = read(&pack).unwrap();
        assert_eq!(summaries.len(), 3);
        let owners = |summaries: &[Box<RawSummaryBlock>]| summaries[0].entries[..offset as usize].to_vec();
        assert!(offset > 0 && owners(&summaries) == owners(&before));
    }

    /// In slack, a log's blocks lie anywhere in its segment, those of other times among them.
    #[test]
    fn a_node_log_in_slack_has_the_owners_of_its_whole_segment() {
        let device = MemoryDevice::new(80 << 20, 512);
        format(&device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let geometry = Geometry::read(&device).unwrap().0;
        let mut pack = choose_pack(&device, &geometry).unwrap().0;
        pack.raw.ckpt_flags.set((pack.raw.flags() - CheckpointFlags::UMOUNT).bits());
        let (segment, ..) = log_position(&pack, SegmentKind::HotNode);
        let mut node = vec![0; BLOCK_SIZE];
        RawNode::mut_from_bytes(&mut node).unwrap().footer.nid = 77.into();
        device.write_at(u64::from(geometry.in_segment(segment, 400)) * BLOCK_SIZE as u64, &node).unwrap();
        let owner = |pack: &Pack| read_node_summaries(&device, pack, &geometry).unwrap()[0].entries[400].nid.get();
        assert_eq!(owner(&pack), 0, "a log that appends has written nothing there");
        pack.raw.alloc_type[SegmentKind::HotNode.index()] = 1;
        assert_eq!(owner(&pack), 77);
    }

    #[test]
    fn journals_are_read_where_compact_summaries_take_two_blocks() {
        let device = MemoryDevice::new(80 << 20, 512);
        format(&device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let geometry = Geometry::read(&device).unwrap().0;
        let mut pack = choose_pack(&device, &geometry).unwrap().0;
        assert!(is_compact(&pack));
        pack.raw.cur_data_blkoff[..3].fill(300.into());
        for read in [read_nat_block(&device, &pack), read_sit_block(&device, &pack)] {
            assert_eq!(read.unwrap().1.len(), 3);
        }
    }
}
