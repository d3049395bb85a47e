//! Whether what lies between the ends of a pack can be that pack's: a newer, shorter pack, or damage, leaves something else there.

use basalt_device::BlockDevice;
use basalt_segments::SegmentKind;

use super::load::{has_node_summaries, log_position, read_data_summaries, read_node_summaries, read_orphans};
use super::pack::Pack;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::summary::{ENTRIES, RawSummaryBlock, TYPE_DATA, TYPE_NODE, nat_journal, sit_journal};

/// Whether orphans, journals and summaries of a pack are possible ones. mkfs.f2fs puts nothing between the ends of its second pack, which
/// has version 0.
pub(super) fn is_whole(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> bool {
    pack.raw.checkpoint_ver.get() == 0 || is_possible(device, geometry, pack).unwrap_or(false)
}

fn is_possible(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Result<bool> {
    let orphans = read_orphans(device, pack, geometry)?;
    if orphans.is_empty() && pack.raw.flags().contains(CheckpointFlags::ORPHAN) {
        return Ok(false);
    }
    let (data, journals) = read_data_summaries(device, pack)?;
    let nats = nat_journal(&journals.0).is_some_and(|all| all.iter().all(|one| one.nid.get() < geometry.node_ids()));
    let sits =
        sit_journal(&journals.1).is_some_and(|all| all.iter().all(|one| one.segno.get() < geometry.main_segments));
    if !nats || !sits || !are_owners(geometry, pack, &SegmentKind::ALL[..3], &data) {
        return Ok(false);
    }
    let is_compact = pack.raw.flags().contains(CheckpointFlags::COMPACT_SUMMARY);
    if !is_compact && !data.iter().all(|summary| summary.entry_type == TYPE_DATA) {
        return Ok(false);
    }
    // Else they are not in the pack.
    if !has_node_summaries(pack) {
        return Ok(true);
    }
    let nodes = read_node_summaries(device, pack, geometry)?;
    let is_typed = nodes.iter().all(|summary| summary.entry_type == TYPE_NODE);
    Ok(is_typed && are_owners(geometry, pack, &SegmentKind::ALL[3..], &nodes))
}

/// Whether every block that a log has written has an owner that can be. In logs of nodes a seal has none.
fn are_owners(geometry: &Geometry, pack: &Pack, logs: &[SegmentKind], summaries: &[Box<RawSummaryBlock>]) -> bool {
    logs.iter().zip(summaries).all(|(&kind, summary)| {
        let (_, offset, _) = log_position(pack, kind);
        let mut written = summary.entries[..ENTRIES.min(offset as usize)].iter();
        written.all(|entry| (u32::from(!kind.is_node())..geometry.node_ids()).contains(&entry.nid.get()))
    })
}
