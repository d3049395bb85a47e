//! Opening a damaged volume to read: from its last checkpoint if that holds, else from nodes that were searched for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentTable};
use zerocopy::FromZeros;

use super::behind::Behind;
use super::geometry::from_superblocks;
use crate::checkpoint::choose::choose_pack_to_read;
use crate::checkpoint::fields::version_bitmaps;
use crate::checkpoint::journals;
use crate::checkpoint::pack::Pack;
use crate::checkpoint::state::CheckpointState;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::features;
use crate::geometry::Geometry;
use crate::layout::checkpoint::RawCheckpoint;
use crate::layout::nat::RawNatEntry;
use crate::layout::summary::{RawSummaryBlock, TYPE_DATA};
use crate::layout::{BLOCKS_PER_SEGMENT, Nid};
use crate::log::active::ActiveLog;
use crate::node::nat::Nat;
use crate::options::OpenOptions;
use crate::volume::{Parts, Volume};

/// Opens a volume whose superblock, one of its checkpoints and its NAT can be read; nothing else is needed to read files. Writes
/// nothing, whatever the options say.
///
/// # Errors
/// When one of these is gone as well: then only a [search](super::Rescued::open) helps.
pub(crate) fn open_damaged(
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
    clock: Arc<dyn Clock>,
) -> Result<Volume> {
    let mut warnings = vec!["rescue: read-only, and what is broken is left out".to_owned()];
    let geometry = from_superblocks(&*device, &mut warnings).map_err(|error| match Geometry::read(&*device) {
        Err(told @ Error::NotF2fs { .. }) => told,
        _ => error,
    })?;
    features::expect_served(&geometry, &*device)?;
    let (pack, other_bad) = choose_pack_to_read(&*device, &geometry)?;
    warnings.extend(other_bad.map(|error| format!("{error}; the other pack is used")));
    warnings.extend(pack.tell_broken_end());
    let (sit_bitmap, nat_bitmap) = version_bitmaps(&pack, &geometry)?;
    let journal = read_nat_journal(&*device, &geometry, &pack, &mut warnings).unwrap_or_default();
    let mut nat = Nat::new(&geometry, nat_bitmap, journal, Nid::NONE);
    let behind = Behind::find(&*device, &geometry, &pack, &mut warnings);
    for node in &behind.moved_nodes {
        // An entry that cannot be read is missed when it is needed.
        if let Ok(entry) = nat.get(&*device, &geometry, node.nid)
            && entry.address() == node.old
        {
            nat.set(node.nid, RawNatEntry { block_addr: node.last.into(), ..entry });
        }
    }
    let parts = Parts {
        checkpoint: CheckpointState::new(pack, sit_bitmap, &[]),
        // Nothing will be allocated: which blocks are free does not matter.
        table: SegmentTable::new(geometry.main_segments, geometry.segments_per_section),
        logs: no_logs(),
        nat,
        orphans: BTreeSet::new(),
        warnings,
    };
    let mut volume = Volume::assemble(device, geometry, to_read(options), clock, parts)?;
    volume.behind = Some(Box::new(behind));
    Ok(volume)
}

/// Whether a volume can be read without a file missing that the last checkpoint has: its newest entries of the NAT are in the checkpoint.
pub(crate) fn knows_every_node(device: &dyn BlockDevice) -> bool {
    let Ok(geometry) = from_superblocks(device, &mut Vec::new()) else { return false };
    let Ok((pack, _)) = choose_pack_to_read(device, &geometry) else { return false };
    journals::read_nat(device, &geometry, &pack).is_ok()
}

/// The volume that nodes which were searched for make.
pub(super) fn open_rebuilt(
    device: Arc<dyn BlockDevice>,
    geometry: Geometry,
    pack: Option<Pack>,
    nat: Nat,
    clock: Arc<dyn Clock>,
) -> Result<Volume> {
    let pack = pack.unwrap_or_else(|| Pack {
        index: 0,
        start: geometry.checkpoint,
        raw: RawCheckpoint::new_zeroed(),
        bytes: Vec::new(),
        checksum: 0,
        broken_end: None,
    });
    let parts = Parts {
        checkpoint: CheckpointState::new(pack, Vec::new(), &[]),
        table: SegmentTable::new(1, 1),
        logs: no_logs(),
        nat,
        orphans: BTreeSet::new(),
        warnings: Vec::new(),
    };
    Volume::assemble(device, geometry, to_read(OpenOptions::default()), clock, parts)
}

fn to_read(options: OpenOptions) -> OpenOptions {
    OpenOptions { read_only: true, rescue: true, ..options }
}

/// Logs that are full: nothing is written.
fn no_logs() -> [ActiveLog; 6] {
    std::array::from_fn(|_| ActiveLog {
        segment: Segment::new(0),
        offset: BLOCKS_PER_SEGMENT,
        slack: None,
        summary: RawSummaryBlock::empty(TYPE_DATA),
        is_summary_written: false,
        rests: false,
        within_page: false,
        left: false,
    })
}

/// The NAT entries in a checkpoint's journal; `None` if they are gone.
pub(super) fn read_nat_journal(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    pack: &Pack,
    warnings: &mut Vec<String>,
) -> Option<BTreeMap<Nid, RawNatEntry>> {
    let entries = journals::read_nat(device, geometry, pack).inspect_err(|error| {
        warnings.push(format!("{error}; the newest entries of the NAT may be missing"));
    });
    let entries = entries.ok()?;
    Some(entries.iter().map(|entry| (entry.nid(), entry.entry)).collect())
}
