//! Whether what lies between the ends of a pack can be that pack's: a newer, shorter pack, or damage, leaves something else there.

use basalt_device::BlockDevice;
use basalt_segments::SegmentKind;

use super::fields::{log_position, read_orphans};
use super::journals::{FEW, is_zero, nat_entries, sit_entries};
use super::pack::Pack;
use super::summaries::{has_node_summaries, is_compact, read_data_summaries, read_node_summaries};
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::Nid;
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::summary::{ENTRIES, RawSummaryBlock, TYPE_DATA, TYPE_NODE};

/// Owners in the summary of a log.
pub(super) struct Owners {
    /// Of how many blocks.
    pub(super) all: usize,
    /// How many of them cannot be.
    pub(super) wrong: usize,
    /// How many of those are none: zeros.
    pub(super) none: usize,
}

impl Owners {
    /// How many of them may be damage, in a summary that is right but for that.
    pub(super) fn tolerated(&self) -> usize {
        self.all / 4
    }
}

/// Whether at most `most` parts of what is between the ends of a pack cannot be that pack's: orphans, journals, the summary of each log.
/// With none, no owner of a block may be wrong.
pub(super) fn has_few_wrong_parts(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack, most: usize) -> bool {
    let is_right = |owners: &Owners| owners.wrong <= if most == 0 { 0 } else { owners.tolerated() };
    let mut wrong = 0;
    // The nodes' may take the most reading.
    [data, orphans, nodes].iter().all(|parts| {
        // What is not even there has more than one.
        let parts = parts(device, geometry, pack, &is_right);
        wrong += parts.map_or(2, |parts| parts.iter().filter(|is_right| !**is_right).count());
        wrong <= most
    })
}

type IsRight<'a> = &'a dyn Fn(&Owners) -> bool;

/// Whether there are orphans, if there should be.
fn orphans(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack, _: IsRight<'_>) -> Result<Vec<bool>> {
    let orphans = read_orphans(device, pack, geometry)?;
    Ok(vec![!orphans.is_empty() || !pack.raw.flags().contains(CheckpointFlags::ORPHAN)])
}

/// Whether each journal is possible, and the summary of each data log. Where more than a few owners of a log are wrong, the journal beside
/// them is none, either: one of zeros looks empty.
fn data(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack, is_right: IsRight<'_>) -> Result<Vec<bool>> {
    let (summaries, journals) = read_data_summaries(device, pack)?;
    let (nats, sits) = (nat_entries(geometry, &journals.0).is_some(), sit_entries(geometry, &journals.1).is_some());
    let is_compact = is_compact(pack);
    let logs: Vec<_> =
        SegmentKind::ALL.into_iter().zip(&summaries).map(|(kind, summary)| (kind, &**summary, ENTRIES)).collect();
    // No checkpoint leaves all of it empty: it has something to write.
    let is_lost = is_compact && is_zero(&journals.0, &[]) && is_zero(&journals.1, &logs);
    let mut parts = vec![nats && !is_lost, sits && !is_lost];
    for (kind, summary, _) in logs {
        let is_typed = is_compact || summary.entry_type == TYPE_DATA;
        let owners = owners(geometry, pack, kind, summary, ENTRIES);
        parts.push(is_typed && is_right(&owners));
        if owners.wrong > owners.tolerated() && owners.wrong > FEW && (is_compact || kind != SegmentKind::WarmData) {
            parts.push(false);
        }
    }
    Ok(parts)
}

/// Whether the summary of each node log is possible, if they are in the pack.
fn nodes(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack, is_right: IsRight<'_>) -> Result<Vec<bool>> {
    if !has_node_summaries(pack) {
        return Ok(Vec::new());
    }
    let summaries = read_node_summaries(device, pack, geometry)?;
    let logs = SegmentKind::ALL[3..].iter().zip(&summaries);
    let logs = logs.map(|(kind, summary)| {
        summary.entry_type == TYPE_NODE && is_right(&owners(geometry, pack, *kind, summary, ENTRIES))
    });
    Ok(logs.collect())
}

/// The owners of the blocks that a log has written, among the first `count` of its summary. In logs of nodes, a seal has none.
pub(super) fn owners(
    geometry: &Geometry,
    pack: &Pack,
    kind: SegmentKind,
    summary: &RawSummaryBlock,
    count: usize,
) -> Owners {
    let (_, offset, _) = log_position(pack, kind);
    let possible = Nid::new(u32::from(!kind.is_node()))..geometry.node_ids();
    let written = &summary.entries[..ENTRIES.min(offset as usize).min(count)];
    let wrong = written.iter().filter(|entry| !possible.contains(&entry.nid())).count();
    let none = if kind.is_node() { 0 } else { written.iter().filter(|entry| entry.nid() == Nid::NONE).count() };
    Owners { all: written.len(), wrong, none }
}
