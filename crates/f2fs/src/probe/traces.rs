//! What some reads of a device show of F2FS, and whether they show anything.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use basalt_device::BlockDevice;
use zerocopy::FromBytes;

use crate::checkpoint::block::check_block;
use crate::format::areas::possible_logs;
use crate::layout::node::RawNode;
use crate::layout::{BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid};
use crate::node::path::is_node_offset;

/// Blocks from the start, holes left out, that are looked at one by one: 32 MiB. What every volume has is there, and most packs of
/// checkpoints. A device that has no more is looked at as a whole.
const DENSE_BLOCKS: u32 = 16 * BLOCKS_PER_SEGMENT;
/// Blocks that one request reads.
const REQUEST_BLOCKS: u32 = 64;
/// Pieces of the rest that are looked at, spread evenly, and blocks in each.
const SAMPLES: u64 = 256;
const SAMPLE_BLOCKS: u32 = 16;
/// Packs of checkpoints are searched for in this many blocks from the start: 256 MiB.
const PACK_BLOCKS: u32 = 1 << 16;
/// Segments in a section for which it is looked where mkfs puts the logs: up to 256 MiB, a zone of many disks, and those of allocation units of 24 MiB.
const SECTIONS: [u32; 11] = [1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128];
/// Where partitions begin, beside multiples of a section, for sections of up to 24 MiB: as partitioning programs have it, and as cards are formatted.
const OFFSETS: [u64; 3] = [0, 1 << 20, 4 << 20];
/// Once so many blocks could not be read, those of a failed request are not tried one by one any more: each may take seconds.
const UNREADABLE_MOST: u32 = 1024;

const ZEROS: [u8; BLOCK_SIZE] = [0; BLOCK_SIZE];

/// What was seen of F2FS in some blocks of a device.
pub(super) struct Traces {
    /// Blocks that are the end of a checkpoint.
    pub checkpoints: u32,
    /// Nodes, by how far they are behind where they say they are.
    nodes: BTreeMap<i64, BTreeSet<u32>>,
    /// Whether everything that was looked at was zero.
    pub is_zero: bool,
    /// Whether the rest is known to be zeros.
    pub is_whole: bool,
    /// Blocks that could not be read.
    unreadable: u32,
}

impl Traces {
    /// Looks at the start of a device, and, if that is not all, at its end, where checkpoints are, where logs begin, and at samples of the
    /// rest.
    pub fn gather(device: &dyn BlockDevice) -> Traces {
        let mut traces =
            Traces { checkpoints: 0, nodes: BTreeMap::new(), is_zero: true, is_whole: false, unreadable: 0 };
        let blocks = (device.size() >> BLOCK_BITS).min(u64::from(u32::MAX) - 1) as u32;
        let dense = traces.look_at_start(device, blocks);
        let end = traces.look_at_end(device);
        traces.is_whole = device.next_data(u64::from(dense) << BLOCK_BITS).is_none_or(|at| at >= end);
        if !traces.is_whole {
            traces.look_within(device, blocks.saturating_sub(SAMPLE_BLOCKS)..blocks);
            traces.look_at_packs(device, dense..PACK_BLOCKS.min(blocks));
            traces.look_at_logs(device, blocks);
            traces.sample(device, dense..blocks);
        }
        traces
    }

    /// How far most nodes are behind where they say they are; `None` without nodes.
    pub fn shift(&self) -> Option<i64> {
        let (shift, found) = self.nodes.iter().max_by_key(|(_, found)| found.len())?;
        // A single block can look like a node by chance.
        (found.len() >= 2).then_some(*shift)
    }

    /// Looks at the first [`DENSE_BLOCKS`] that are no holes; returns the block behind them.
    fn look_at_start(&mut self, device: &dyn BlockDevice, blocks: u32) -> u32 {
        let (mut at, mut left) = (0, DENSE_BLOCKS);
        while let Some(first) = next_block(device, at..blocks).filter(|_| left > 0) {
            let count = REQUEST_BLOCKS.min(left).min(blocks - first);
            self.read(device, first, count);
            (at, left) = (first + count, left - count);
        }
        at
    }

    /// Looks at what is behind the last whole block; returns the byte where that begins.
    fn look_at_end(&mut self, device: &dyn BlockDevice) -> u64 {
        let mut bytes = ZEROS;
        // The rest is shorter than a block.
        let rest = &mut bytes[..(device.size() % BLOCK_SIZE as u64) as usize];
        let end = device.size() - rest.len() as u64;
        self.is_zero &= device.read_at(end, rest).is_ok() && rest.iter().all(|&byte| byte == 0);
        end
    }

    fn look_at_packs(&mut self, device: &dyn BlockDevice, range: Range<u32>) {
        let first = range.start.next_multiple_of(BLOCKS_PER_SEGMENT / 2);
        let packs = (first..range.end).step_by(BLOCKS_PER_SEGMENT as usize / 2);
        packs.for_each(|address| self.look_within(device, address..address + 1));
    }

    /// Looks where mkfs puts the logs of a volume of this size: who loses all in front of the main area has them still.
    fn look_at_logs(&mut self, device: &dyn BlockDevice, blocks: u32) {
        let mut places = BTreeSet::new();
        for segments in SECTIONS {
            // Sections of one segment are the usual ones, and these pieces are long enough for all offsets.
            let length = if segments == 1 { BLOCKS_PER_SEGMENT } else { SAMPLE_BLOCKS };
            let offsets = if (2..=12).contains(&segments) { &OFFSETS[..] } else { &OFFSETS[..1] };
            let starts = offsets.iter().flat_map(|&offset| possible_logs(device.size(), offset, segments));
            places.extend(starts.map(|start| (start, length)));
        }
        for (start, length) in places {
            self.look_within(device, start..start.saturating_add(length).min(blocks));
        }
    }

    fn sample(&mut self, device: &dyn BlockDevice, range: Range<u32>) {
        let length = u64::from(range.end - range.start);
        let mut behind = range.start;
        for sample in 0..SAMPLES {
            // Below the end of the range, which fits.
            let wanted = range.start + (length * sample / SAMPLES) as u32;
            // From a hole on to what is behind it.
            let Some(first) = next_block(device, wanted.max(behind)..range.end) else { return };
            behind = first + SAMPLE_BLOCKS.min(range.end - first);
            self.read(device, first, behind - first);
        }
    }

    /// Looks at all blocks of a range that are no holes.
    fn look_within(&mut self, device: &dyn BlockDevice, range: Range<u32>) {
        let mut at = range.start;
        while let Some(first) = next_block(device, at..range.end) {
            at = first + REQUEST_BLOCKS.min(range.end - first);
            self.read(device, first, at - first);
        }
    }

    fn read(&mut self, device: &dyn BlockDevice, first: u32, count: u32) {
        let mut bytes = vec![0; count as usize * BLOCK_SIZE];
        if device.read_at(u64::from(first) << BLOCK_BITS, &mut bytes).is_ok() {
            (first..).zip(bytes.chunks_exact(BLOCK_SIZE)).for_each(|(address, block)| self.look(address, block));
            return;
        }
        self.is_zero = false;
        if count == 1 {
            self.unreadable += 1;
        } else if self.unreadable < UNREADABLE_MOST {
            (first..first + count).for_each(|address| self.read(device, address, 1));
        }
    }

    fn look(&mut self, address: u32, block: &[u8]) {
        if block == ZEROS {
            return;
        }
        self.is_zero = false;
        if block[..8] != [0; 8] && check_block(0, "block", block).is_ok() {
            self.checkpoints += 1;
        }
        let Ok(node) = RawNode::ref_from_bytes(block) else { return };
        let footer = &node.footer;
        let (nid, ino, next) = (footer.nid(), footer.ino(), footer.next_blkaddr.get());
        let is_likely = nid >= Nid::FIRST
            && ino.nid() >= Nid::FIRST
            && (nid == ino.nid()) == (footer.offset() == 0)
            && is_node_offset(footer.offset())
            && footer.cp_ver.get() != 0
            // A list of numbers that follow one another: the addresses of a file of ext2.
            && !(ino.get().wrapping_sub(nid.get()) == 1 && footer.flag.get().wrapping_sub(ino.get()) == 1);
        // A log mostly goes on in the next block.
        if is_likely && next > 1 && next != u32::MAX {
            self.nodes.entry(i64::from(next) - 1 - i64::from(address)).or_default().insert(address);
        }
    }
}

/// The first block of a range that may hold something else than zeros.
fn next_block(device: &dyn BlockDevice, range: Range<u32>) -> Option<u32> {
    if range.is_empty() {
        return None;
    }
    let found = device.next_data(u64::from(range.start) << BLOCK_BITS)? >> BLOCK_BITS;
    u32::try_from(found).ok().filter(|block| range.contains(block))
}
