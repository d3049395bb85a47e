//! Reading a checkpoint: everything in the pack that holds.

use zerocopy::FromBytes;

use basalt_device::BlockDevice;
use basalt_segments::SegmentKind;

use super::block::bad;
use super::choose::{choose_either, choose_pack};
use super::journals;
use super::pack::Pack;
use super::summaries::{read_data_summaries, read_node_summaries};
use crate::blocks::read_blocks;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::checkpoint::{BITMAP_OFFSET, CHECKSUM_OFFSET, CheckpointFlags, ORPHANS_PER_BLOCK, RawOrphanBlock};
use crate::layout::summary::{RawNatJournalEntry, RawSitJournalEntry, RawSummaryBlock, nat_journal, sit_journal};
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};

/// A checkpoint, read whole.
pub struct Loaded {
    /// The pack it came from.
    pub pack: Pack,
    /// Which copy of each SIT block is current.
    pub sit_bitmap: Vec<u8>,
    /// Which copy of each NAT block is current.
    pub nat_bitmap: Vec<u8>,
    /// Inodes without links that were open.
    pub orphans: Vec<u32>,
    /// Where each of the six logs is, by [`SegmentKind`] index.
    pub logs: [LoadedLog; 6],
    /// NAT entries newer than the NAT.
    pub nat_journal: Vec<RawNatJournalEntry>,
    /// SIT entries newer than the SIT.
    pub sit_journal: Vec<RawSitJournalEntry>,
    /// Why the journals may not be what the checkpoint wrote, if they may not: then entries may be missing.
    pub doubt: Option<String>,
}

/// The position of an active log.
pub struct LoadedLog {
    /// Its segment.
    pub segment: u32,
    /// The next block it writes within the segment.
    pub offset: u32,
    /// Whether it was filling holes (SSR) rather than appending.
    pub in_slack: bool,
    /// Owners of the blocks already written.
    pub summary: Box<RawSummaryBlock>,
}

/// Reads the newest sound checkpoint. The second value says what was wrong with the other pack, if anything was.
///
/// # Errors
/// When none can be read, it may not be the newest, or part of it may be gone.
pub fn load(device: &dyn BlockDevice, geometry: &Geometry) -> Result<(Loaded, Option<Error>)> {
    let (loaded, other) = load_chosen(device, geometry, choose_pack(device, geometry)?)?;
    match &loaded.doubt {
        Some(doubt) => Err(bad(loaded.pack.index, doubt)),
        None => Ok((loaded, other)),
    }
}

/// What a volume is opened from.
pub(crate) struct ToOpen {
    pub(crate) loaded: Loaded,
    /// What is wrong with the other pack, if it was ever written.
    pub(crate) other: Option<Error>,
    /// Why there may have been more than what is opened: then nothing may be written.
    pub(crate) unknown: Option<String>,
}

/// As [`load`], also where it cannot be told which pack is the newer one. What cannot be read is asked for twice.
pub(crate) fn load_to_open(device: &dyn BlockDevice, geometry: &Geometry) -> Result<ToOpen> {
    let attempt = || {
        let mut chosen = choose_either(device, geometry)?;
        let unknown = chosen.unknown.take().map(|error| format!("{error}; the checkpoint there may be the newer one"));
        let (loaded, other) = load_chosen(device, geometry, chosen.told(device, geometry))?;
        let doubt = loaded.doubt.as_ref().map(|doubt| bad(loaded.pack.index, doubt).to_string());
        Ok(ToOpen { loaded, other, unknown: unknown.or(doubt) })
    };
    match attempt() {
        Err(Error::Device(_)) | Ok(ToOpen { unknown: Some(_), .. }) => attempt(),
        found => found,
    }
}

fn load_chosen(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    (pack, warning): (Pack, Option<Error>),
) -> Result<(Loaded, Option<Error>)> {
    check_fields(&pack, geometry)?;
    Ok((load_pack(device, geometry, pack)?, warning))
}

/// Reads the rest of a pack, of which nothing is taken for granted. Where its logs are is handed over as found (see
/// [`log_position`]); `check_logs` tells whether that is in the main area.
pub fn load_pack(device: &dyn BlockDevice, geometry: &Geometry, pack: Pack) -> Result<Loaded> {
    let (sit_bitmap, nat_bitmap) = version_bitmaps(&pack, geometry)?;
    let orphans = read_orphans(device, &pack, geometry)?;
    let (data, journals) = read_data_summaries(device, &pack)?;
    let doubt = journals::doubt(device, geometry, &pack, &data, &journals);
    let nodes = read_node_summaries(device, &pack, geometry)?;
    let mut summaries = data.into_iter().chain(nodes);
    let mut logs = Vec::with_capacity(6);
    for kind in SegmentKind::ALL {
        let (segment, offset, in_slack) = log_position(&pack, kind);
        let summary = summaries.next().ok_or_else(|| bad(pack.index, "summary missing"))?;
        logs.push(LoadedLog { segment, offset, in_slack, summary });
    }
    let logs = <[LoadedLog; 6]>::try_from(logs).map_err(|_| bad(pack.index, "not six logs"))?;
    let nats = nat_journal(&journals.0).ok_or_else(|| bad(pack.index, "NAT journal holds more than 38 entries"))?;
    let sits = sit_journal(&journals.1).ok_or_else(|| bad(pack.index, "SIT journal holds more than 6 entries"))?;
    let (nat_journal, sit_journal) = (nats.to_vec(), sits.to_vec());
    Ok(Loaded { pack, sit_bitmap, nat_bitmap, orphans, logs, nat_journal, sit_journal, doubt })
}

/// The segment, next block and mode of a log as the checkpoint has them.
pub fn log_position(pack: &Pack, kind: SegmentKind) -> (u32, u32, bool) {
    let (raw, index) = (&pack.raw, kind.index());
    let (segment, offset) = if kind.is_node() {
        (raw.cur_node_segno[index - 3].get(), raw.cur_node_blkoff[index - 3].get())
    } else {
        (raw.cur_data_segno[index].get(), raw.cur_data_blkoff[index].get())
    };
    (segment, u32::from(offset), raw.alloc_type[index] == 1)
}

fn check_fields(pack: &Pack, geometry: &Geometry) -> Result<()> {
    let (raw, index) = (&pack.raw, pack.index);
    let main_blocks = u64::from(geometry.main_blocks());
    let meta = geometry.checkpoint_segments
        + geometry.ssa_segments
        + (geometry.sit_blocks + geometry.nat_blocks) / BLOCKS_PER_SEGMENT * 2;
    let user = raw.user_block_count.get();
    let reserved = raw.rsvd_segment_count.get();
    let read_only = geometry.features.contains(crate::layout::superblock::Features::READ_ONLY);
    // A volume made to be read only keeps nothing back.
    if user == 0 || user > main_blocks || user == main_blocks && !read_only {
        return Err(bad(index, format!("user_block_count {user}, main area has {main_blocks} blocks")));
    }
    if raw.valid_block_count.get() > user {
        return Err(bad(index, format!("{} live blocks of {user} for users", raw.valid_block_count)));
    }
    if (reserved == 0 || raw.overprov_segment_count.get() == 0) && !read_only
        || u64::from(meta) + u64::from(reserved) >= u64::from(geometry.segment_count)
    {
        return Err(bad(
            index,
            format!("{reserved} reserved, {} over-provisioned segments", raw.overprov_segment_count),
        ));
    }
    check_logs(pack, geometry)
}

fn check_logs(pack: &Pack, geometry: &Geometry) -> Result<()> {
    let mut seen = Vec::with_capacity(6);
    for kind in SegmentKind::ALL {
        let (segment, offset, _) = log_position(pack, kind);
        if segment >= geometry.main_segments || offset >= BLOCKS_PER_SEGMENT {
            return Err(bad(
                pack.index,
                format!("{kind:?} log at segment {segment} block {offset}, outside the main area"),
            ));
        }
        let mode = pack.raw.alloc_type[kind.index()];
        if mode > 1 {
            return Err(bad(pack.index, format!("{kind:?} log in mode {mode}, expected 0 (append) or 1 (fill slack)")));
        }
        if seen.contains(&segment) && !geometry.features.contains(crate::layout::superblock::Features::READ_ONLY) {
            return Err(bad(pack.index, format!("two logs write to segment {segment}")));
        }
        seen.push(segment);
    }
    Ok(())
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

pub(super) fn read_orphans(device: &dyn BlockDevice, pack: &Pack, geometry: &Geometry) -> Result<Vec<u32>> {
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
        orphans.extend(block.ino[..count].iter().map(|ino| ino.get()));
    }
    Ok(orphans)
}
