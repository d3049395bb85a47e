//! How large each area of a new volume is, and where its logs begin. Pure arithmetic, the same as mkfs.f2fs 1.15's, so that every tool
//! finds what it expects.

use crate::layout::checkpoint::{BITMAP_OFFSET, CHECKSUM_OFFSET};
use crate::layout::{BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT, SEGMENT_BITS, nat, sit};

/// Index of each log in [`Plan::logs`](super::plan::Plan::logs): as segment types are numbered on the volume.
pub const HOT_DATA: usize = 0;
/// Log of file data that is neither hot nor cold.
pub const WARM_DATA: usize = 1;
/// Log of cold file data.
pub const COLD_DATA: usize = 2;
/// Log of directories' inodes.
pub const HOT_NODE: usize = 3;
/// Log of files' inodes and direct nodes: the roll-forward chain.
pub const WARM_NODE: usize = 4;
/// Log of indirect nodes.
pub const COLD_NODE: usize = 5;

/// Bytes of a segment.
pub(super) const SEGMENT_SIZE: u64 = 1 << (BLOCK_BITS + SEGMENT_BITS);
/// Bytes for version bitmaps in a checkpoint block.
const BITMAP_BYTES: u32 = (CHECKSUM_OFFSET - BITMAP_OFFSET) as u32;
/// Bytes of a version bitmap for each segment of one copy of SIT or NAT.
const BITMAP_BYTES_PER_SEGMENT: u32 = BLOCKS_PER_SEGMENT / 8;
/// Most segments of a volume (16 TiB).
pub(super) const SEGMENTS_MAX: u64 = 8_388_608;
/// Fewest blocks in front of segment 0.
const FRONT_LEAST: u32 = BLOCKS_PER_SEGMENT;
/// Logs.
pub(super) const LOGS: u32 = 6;

/// Segment counts of the areas.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Areas {
    /// All.
    pub total: u32,
    /// Both copies of the SIT.
    pub sit: u32,
    /// Both copies of the NAT.
    pub nat: u32,
    /// The SSA.
    pub ssa: u32,
    /// The main area.
    pub main: u32,
    /// Extra blocks in a checkpoint pack.
    pub payload: u32,
}

/// Blocks in front of segment 0 of a device that begins so many bytes into its disk. They hold the superblocks, the cleaning journal and the
/// hotness records. Segment 0 begins a section's size, or a multiple of it, into the disk, as mkfs.f2fs has it: what erases flash in
/// units of that size erases whole sections. A device that begins elsewhere than partitions do, at a multiple of 1 MiB, is taken for one that
/// begins where the disk does.
pub(super) fn front_blocks(offset: u64, per_section: u32) -> u32 {
    let section = per_section << SEGMENT_BITS;
    let blocks = if offset.is_multiple_of(1 << 20) { offset >> BLOCK_BITS } else { 0 };
    // Less than a section.
    let front = section - (blocks % u64::from(section)) as u32;
    if front < FRONT_LEAST { front + section } else { front }
}

/// Segments behind these blocks, in whole sections; `None` if there is not even one section.
pub(super) fn segments_of(size: u64, front: u32, per_section: u32) -> Option<u32> {
    let section = u64::from(per_section);
    // Addresses end below those that mean something else.
    let size = size.min((u64::from(u32::MAX) - 1) << BLOCK_BITS);
    let segments = size.checked_sub(u64::from(front) << BLOCK_BITS)? / SEGMENT_SIZE;
    let segments = segments.min(SEGMENTS_MAX) / section * section;
    u32::try_from(segments).ok().filter(|&segments| segments > 0)
}

/// The areas of `total` segments whose main area begins and ends with a section; `None` if there is no room for one.
pub(crate) fn divide(total: u32, per_section: u32) -> Option<Areas> {
    let checkpoint = 2;
    let sit_blocks = total.div_ceil(sit::ENTRIES_PER_BLOCK);
    let sit = sit_blocks.div_ceil(BLOCKS_PER_SEGMENT);
    let behind_sit = u64::from(total.checked_sub(checkpoint + 2 * sit)?);
    let nat_blocks = (behind_sit << SEGMENT_BITS).div_ceil(u64::from(nat::ENTRIES_PER_BLOCK));
    let sit_bitmap = sit * BITMAP_BYTES_PER_SEGMENT;
    // Room for the version bitmap of at least one NAT segment stays; a larger SIT bitmap moves behind the checkpoint block.
    let (payload, nat_bitmap) = if sit_bitmap > BITMAP_BYTES - BITMAP_BYTES_PER_SEGMENT {
        (sit_bitmap.div_ceil(BLOCK_SIZE as u32), BITMAP_BYTES)
    } else {
        (0, BITMAP_BYTES - sit_bitmap)
    };
    let nat_most = nat_bitmap / BITMAP_BYTES_PER_SEGMENT;
    // At most a segment for each 455 blocks of 2^32: fits.
    let nat = (nat_blocks.div_ceil(u64::from(BLOCKS_PER_SEGMENT)) as u32).min(nat_most);
    let behind_nat = total.checked_sub(checkpoint + 2 * sit + 2 * nat)?;
    let ssa = (behind_nat + 1).div_ceil(BLOCKS_PER_SEGMENT);
    let metadata = checkpoint + 2 * sit + 2 * nat + ssa;
    // The main area starts with a section: the SSA takes what is left over.
    let aligned = metadata.next_multiple_of(per_section);
    let main = total.checked_sub(aligned)?;
    Some(Areas { total, sit: 2 * sit, nat: 2 * nat, ssa: ssa + aligned - metadata, main, payload })
}

/// Nodes in the first sections, hot data behind them, cold data a quarter and warm data half of the way in.
pub(super) fn place_logs(sections: u32, per_section: u32) -> [u32; LOGS as usize] {
    let cold = (sections / 4).saturating_sub(1).max(4);
    let warm = (sections / 2).saturating_sub(1).max(cold + 1);
    let mut logs = [0; LOGS as usize];
    for (log, section) in
        [(HOT_NODE, 0), (WARM_NODE, 1), (COLD_NODE, 2), (HOT_DATA, 3), (COLD_DATA, cold), (WARM_DATA, warm)]
    {
        logs[log] = section * per_section;
    }
    logs
}

/// The blocks at which logs of a new volume of `size` bytes, so far into its disk, begin: as `place_logs` has them, and, as mkfs.f2fs does with `-a 1`,
/// in the last four sections. Nothing if there is no such volume.
pub(crate) fn possible_logs(size: u64, offset: u64, per_section: u32) -> Vec<u32> {
    let front = front_blocks(offset, per_section);
    let areas = segments_of(size, front, per_section).and_then(|segments| divide(segments, per_section));
    let Some(areas) = areas.filter(|areas| areas.main / per_section > LOGS) else { return Vec::new() };
    let sections = areas.main / per_section;
    let metadata = areas.total - areas.main;
    let last = (sections - 4..sections).map(|section| section * per_section);
    // The last segments of 16 TiB have no address.
    let address = |segment: u32| u32::try_from(u64::from(front) + (u64::from(metadata + segment) << SEGMENT_BITS)).ok();
    place_logs(sections, per_section).into_iter().chain(last).filter_map(address).collect()
}
