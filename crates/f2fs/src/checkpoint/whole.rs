//! Whether what lies between the ends of a pack can be that pack's: a newer, shorter pack, or damage, leaves something else there.

use basalt_device::BlockDevice;
use basalt_segments::SegmentKind;

use super::load::{has_node_summaries, log_position, read_data_summaries, read_node_summaries, read_orphans};
use super::pack::Pack;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::summary::{ENTRIES, RawSummaryBlock, TYPE_DATA, TYPE_NODE, nat_journal, sit_journal};

/// Owners that a few damaged bytes can change.
const FEW: usize = 2;

/// Whether at most `most` parts of what is between the ends of a pack cannot be that pack's: orphans, journals, the summary of each log.
/// mkfs.f2fs puts nothing between the ends of its second pack, which has version 0.
pub(super) fn has_few_wrong_parts(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack, most: usize) -> bool {
    if pack.raw.checkpoint_ver.get() == 0 {
        return true;
    }
    let mut wrong = 0;
    // The nodes' may take the most reading.
    [data, orphans, nodes].iter().all(|parts| {
        // What is not even there has more than one.
        wrong += parts(device, geometry, pack).map_or(2, |parts| parts.iter().filter(|is_right| !**is_right).count());
        wrong <= most
    })
}

/// Whether there are orphans, if there should be.
fn orphans(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Result<Vec<bool>> {
    let orphans = read_orphans(device, pack, geometry)?;
    Ok(vec![!orphans.is_empty() || !pack.raw.flags().contains(CheckpointFlags::ORPHAN)])
}

/// Whether each journal is possible, and the summary of each data log. Where more than a few owners of a log are wrong, the journal beside
/// them is none, either: one of zeros looks empty.
fn data(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Result<Vec<bool>> {
    let (summaries, journals) = read_data_summaries(device, pack)?;
    let nats = nat_journal(&journals.0).is_some_and(|all| all.iter().all(|one| one.nid.get() < geometry.node_ids()));
    let sits =
        sit_journal(&journals.1).is_some_and(|all| all.iter().all(|one| one.segno.get() < geometry.main_segments));
    let is_compact = pack.raw.flags().contains(CheckpointFlags::COMPACT_SUMMARY);
    let mut parts = vec![nats, sits];
    for (kind, summary) in SegmentKind::ALL[..3].iter().zip(&summaries) {
        let is_typed = is_compact || summary.entry_type == TYPE_DATA;
        let (wrong, most) = wrong_owners(geometry, pack, *kind, summary);
        parts.push(is_typed && wrong <= most);
        if wrong > most && wrong > FEW && (is_compact || *kind != SegmentKind::WarmData) {
            parts.push(false);
        }
    }
    Ok(parts)
}

/// Whether the summary of each node log is possible, if they are in the pack.
fn nodes(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Result<Vec<bool>> {
    if !has_node_summaries(pack) {
        return Ok(Vec::new());
    }
    let summaries = read_node_summaries(device, pack, geometry)?;
    let logs = SegmentKind::ALL[3..].iter().zip(&summaries);
    let logs = logs.map(|(kind, summary)| {
        let (wrong, most) = wrong_owners(geometry, pack, *kind, summary);
        summary.entry_type == TYPE_NODE && wrong <= most
    });
    Ok(logs.collect())
}

/// How many blocks that a log has written have an owner that cannot be, and how many of them may be damage. In logs of nodes a seal has none.
fn wrong_owners(geometry: &Geometry, pack: &Pack, kind: SegmentKind, summary: &RawSummaryBlock) -> (usize, usize) {
    let (_, offset, _) = log_position(pack, kind);
    let possible = u32::from(!kind.is_node())..geometry.node_ids();
    let written = &summary.entries[..ENTRIES.min(offset as usize)];
    let wrong = written.iter().filter(|entry| !possible.contains(&entry.nid.get())).count();
    (wrong, written.len() / 4)
}
