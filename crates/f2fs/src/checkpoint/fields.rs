//! What the fields of a pack say: where the logs are, the version bitmaps, and the orphans.

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentKind};
use zerocopy::FromBytes;

use super::block::bad;
use super::pack::Pack;
use crate::blocks::read_blocks;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::checkpoint::{BITMAP_OFFSET, CHECKSUM_OFFSET, CheckpointFlags, ORPHANS_PER_BLOCK, RawOrphanBlock};
use crate::layout::{BLOCK_SIZE, Ino};

/// The segment, next block and mode of a log as the checkpoint has them.
pub fn log_position(pack: &Pack, kind: SegmentKind) -> (Segment, u32, bool) {
    let (raw, index) = (&pack.raw, kind.index());
    let (segment, offset) = if kind.is_node() {
        (raw.cur_node_segno[index - 3].get(), raw.cur_node_blkoff[index - 3].get())
    } else {
        (raw.cur_data_segno[index].get(), raw.cur_data_blkoff[index].get())
    };
    (Segment::new(segment), u32::from(offset), raw.alloc_type[index] == 1)
}

/// The version bitmaps of SIT and NAT.
pub(crate) fn version_bitmaps(pack: &Pack, geometry: &Geometry) -> Result<(Vec<u8>, Vec<u8>)> {
    let raw = &pack.raw;
    let (sit, nat) = (geometry.sit_bitmap_size(), geometry.nat_bitmap_size());
    if raw.sit_ver_bitmap_bytesize.get() as usize != sit || raw.nat_ver_bitmap_bytesize.get() as usize != nat {
        return Err(bad(
            pack.index,
            format!(
                "version bitmaps of {} and {} bytes, expected {sit} (SIT) and {nat} (NAT)",
                raw.sit_ver_bitmap_bytesize, raw.nat_ver_bitmap_bytesize
            ),
        ));
    }
    let (sit_at, nat_at) = bitmap_places(raw.flags(), geometry);
    let large = raw.flags().contains(CheckpointFlags::LARGE_NAT_BITMAP);
    if large && raw.checksum_offset.get() as usize != BITMAP_OFFSET {
        return Err(bad(pack.index, format!("large NAT bitmap with the checksum at {}", raw.checksum_offset)));
    }
    // What is written back must not run into one another.
    let last_in_head = if geometry.payload == 0 { (nat_at + nat).max(sit_at + sit) } else { nat_at + nat };
    if !large && last_in_head > CHECKSUM_OFFSET || large && geometry.payload == 0 && last_in_head > BLOCK_SIZE {
        return Err(bad(pack.index, format!("version bitmaps of {sit} (SIT) and {nat} (NAT) bytes reach too far")));
    }
    let cut = |at: usize, length: usize| {
        pack.bytes.get(at..at + length).map(<[u8]>::to_vec).ok_or_else(|| {
            bad(pack.index, format!("a version bitmap of {length} bytes does not fit the checkpoint and its payload"))
        })
    };
    Ok((cut(sit_at, sit)?, cut(nat_at, nat)?))
}

/// Byte offsets of the SIT and the NAT version bitmap from the start of the pack.
pub fn bitmap_places(flags: CheckpointFlags, geometry: &Geometry) -> (usize, usize) {
    if flags.contains(CheckpointFlags::LARGE_NAT_BITMAP) {
        // The checksum comes first, so that it guards the rest of the block too.
        (BITMAP_OFFSET + 4 + geometry.nat_bitmap_size(), BITMAP_OFFSET + 4)
    } else if geometry.payload > 0 {
        (BLOCK_SIZE, BITMAP_OFFSET)
    } else {
        (BITMAP_OFFSET, BITMAP_OFFSET + geometry.sit_bitmap_size())
    }
}

pub(super) fn read_orphans(device: &dyn BlockDevice, pack: &Pack, geometry: &Geometry) -> Result<Vec<Ino>> {
    let first = 1 + geometry.payload;
    let start_sum = pack.raw.cp_pack_start_sum.get();
    let total = pack.raw.cp_pack_total_block_count.get();
    if start_sum < first || start_sum >= total {
        return Err(bad(pack.index, format!("summaries start at block {start_sum} of {total}")));
    }
    if !pack.raw.flags().contains(CheckpointFlags::ORPHAN) {
        return Ok(Vec::new());
    }
    let bytes = read_blocks(device, pack.start + first, (start_sum - first) as usize)?;
    let mut orphans = Vec::new();
    for block in bytes.chunks_exact(BLOCK_SIZE) {
        let block = RawOrphanBlock::ref_from_bytes(block).map_err(|_| bad(pack.index, "short orphan block"))?;
        let count = block.entry_count.get() as usize;
        if count > ORPHANS_PER_BLOCK {
            return Err(bad(pack.index, format!("{count} orphans in a block, at most {ORPHANS_PER_BLOCK} fit")));
        }
        orphans.extend(block.ino[..count].iter().map(|ino| Ino::from(*ino)));
    }
    Ok(orphans)
}
