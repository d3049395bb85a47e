//! Reading a checkpoint: everything in the pack that holds.

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentKind};

use super::block::bad;
use super::choose::{choose_either, choose_pack};
use super::fields::{log_position, read_orphans, version_bitmaps};
use super::journals;
use super::pack::Pack;
use super::summaries::{read_data_summaries, read_node_summaries};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::summary::{RawNatJournalEntry, RawSitJournalEntry, RawSummaryBlock, nat_journal, sit_journal};
use crate::layout::{BLOCKS_PER_SEGMENT, Ino};

/// A checkpoint, read whole.
pub struct Loaded {
    /// The pack it came from.
    pub pack: Pack,
    /// Which copy of each SIT block is current.
    pub sit_bitmap: Vec<u8>,
    /// Which copy of each NAT block is current.
    pub nat_bitmap: Vec<u8>,
    /// Inodes without links that were open.
    pub orphans: Vec<Ino>,
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
    pub segment: Segment,
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
        if !geometry.has_segment(segment) || offset >= BLOCKS_PER_SEGMENT {
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
