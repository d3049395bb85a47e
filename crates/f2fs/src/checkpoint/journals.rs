//! The journals of NAT and SIT in a pack. They have no checksum: what is beside them in their block shows whether it is what the checkpoint
//! wrote there.
//!
//! | what is there | the journal |
//! |---|---|
//! | too many entries, or one of a node or a segment that does not exist | is gone |
//! | beside it a log of which many blocks have owners that cannot be | is gone |
//! | only zeros, where a log beside it has written something | is gone: it only looks empty |
//! | what the pack before contradicts ([`previous`](super::previous)) | is gone, and the other one with it if that is in the same block |
//! | anything else | is believed |

use basalt_device::BlockDevice;
use basalt_segments::SegmentKind;

use super::block::bad;
use super::pack::Pack;
use super::previous::{Contradicted, Previous};
use super::summaries::{JournalBlock, Journals, is_compact, read_nat_block, read_sit_block};
use super::whole::owners;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::summary::{
    ENTRIES, RawNatJournalEntry, RawSitJournalEntry, RawSummary, RawSummaryBlock, nat_journal, sit_journal,
};

const NAT_DAMAGED: &str = "the journal of the NAT is damaged";
const SIT_DAMAGED: &str = "the journal of the SIT is damaged";
/// Owners that a few damaged bytes can change.
pub(super) const FEW: usize = 2;

/// The NAT entries in a pack's journal.
///
/// # Errors
/// When they cannot be read, or are gone.
pub(crate) fn read_nat(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Result<Vec<RawNatJournalEntry>> {
    let entries = read_nat_alone(device, geometry, pack)?;
    let sit = read_sit_alone(device, geometry, pack).ok();
    match contradicted(device, geometry, pack, Some(&entries), sit.as_deref()) {
        Some(which) if which == Contradicted::Nat || is_compact(pack) => Err(bad(pack.index, NAT_DAMAGED)),
        _ => Ok(entries),
    }
}

/// As [`read_nat`], by what is in its block alone.
pub(super) fn read_nat_alone(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    pack: &Pack,
) -> Result<Vec<RawNatJournalEntry>> {
    let block = read_nat_block(device, pack)?;
    let entries = nat_entries(geometry, &block.0).filter(|_| !is_damaged(geometry, pack, &block));
    Ok(entries.ok_or_else(|| bad(pack.index, NAT_DAMAGED))?.to_vec())
}

/// The SIT entries in a pack's journal.
///
/// # Errors
/// When they cannot be read, or are gone.
pub(crate) fn read_sit(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Result<Vec<RawSitJournalEntry>> {
    let entries = read_sit_alone(device, geometry, pack)?;
    let nat = read_nat_alone(device, geometry, pack).ok();
    match contradicted(device, geometry, pack, nat.as_deref(), Some(&entries)) {
        Some(which) if which == Contradicted::Sit || is_compact(pack) => Err(bad(pack.index, SIT_DAMAGED)),
        _ => Ok(entries),
    }
}

fn read_sit_alone(device: &dyn BlockDevice, geometry: &Geometry, pack: &Pack) -> Result<Vec<RawSitJournalEntry>> {
    let block = read_sit_block(device, pack)?;
    let entries = sit_entries(geometry, &block.0).filter(|_| !is_damaged(geometry, pack, &block));
    Ok(entries.ok_or_else(|| bad(pack.index, SIT_DAMAGED))?.to_vec())
}

/// The entries of a journal of the NAT, if they can be such.
pub(super) fn nat_entries<'a>(geometry: &Geometry, journal: &'a [u8]) -> Option<&'a [RawNatJournalEntry]> {
    nat_journal(journal).filter(|all| all.iter().all(|one| one.nid() < geometry.node_ids()))
}

/// The entries of a journal of the SIT, if they can be such.
pub(super) fn sit_entries<'a>(geometry: &Geometry, journal: &'a [u8]) -> Option<&'a [RawSitJournalEntry]> {
    sit_journal(journal).filter(|all| all.iter().all(|one| one.segno.get() < geometry.main_segments))
}

fn contradicted(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    pack: &Pack,
    nat: Option<&[RawNatJournalEntry]>,
    sit: Option<&[RawSitJournalEntry]>,
) -> Option<Contradicted> {
    Previous::of(device, geometry, pack)?.contradicts(device, geometry, pack, nat, sit)
}

fn is_damaged(geometry: &Geometry, pack: &Pack, (journal, beside): &JournalBlock) -> bool {
    let beside: Vec<_> = beside.iter().map(|(kind, summary, count)| (*kind, &**summary, *count)).collect();
    is_gone(geometry, pack, journal, &beside)
}

/// Why a journal that was read may not be what the checkpoint wrote. `summaries`: those of the data logs.
pub(super) fn doubt(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    pack: &Pack,
    summaries: &[Box<RawSummaryBlock>],
    journals: &Journals,
) -> Option<String> {
    let summaries = summaries.iter().map(|summary| (&**summary, ENTRIES));
    let all: Vec<_> =
        SegmentKind::ALL.into_iter().zip(summaries).map(|(kind, (summary, count))| (kind, summary, count)).collect();
    let of = |kind: SegmentKind| if is_compact(pack) { &all[..] } else { &all[kind.index()..=kind.index()] };
    let tell = |which: &str| Some(format!("{which} journal: what is in its block is not what the checkpoint wrote"));
    if is_gone(geometry, pack, &journals.0, of(SegmentKind::HotData)) {
        return tell("NAT");
    }
    if is_gone(geometry, pack, &journals.1, of(SegmentKind::ColdData)) {
        return tell("SIT");
    }
    let (nat, sit) = (nat_entries(geometry, &journals.0), sit_entries(geometry, &journals.1));
    match contradicted(device, geometry, pack, nat, sit)? {
        Contradicted::Nat => Some("NAT journal: it lacks nodes that were written before the checkpoint".to_owned()),
        Contradicted::Sit => Some("SIT journal: it lacks segments that were written before the checkpoint".to_owned()),
    }
}

/// Whether the logs in the same block show that a journal is not what was written there.
fn is_gone(
    geometry: &Geometry,
    pack: &Pack,
    journal: &[u8],
    beside: &[(SegmentKind, &RawSummaryBlock, usize)],
) -> bool {
    let logs: Vec<_> =
        beside.iter().map(|(kind, summary, count)| owners(geometry, pack, *kind, summary, *count)).collect();
    // Linux leaves holes where it is told to (`mode=fragment:block`): blocks without an owner are no damage yet.
    let has_many_wrong = logs.iter().any(|owners| {
        let wrong = owners.wrong - owners.none;
        wrong > owners.tolerated() && wrong > FEW
    });
    let has_written = logs.iter().any(|owners| owners.all > 0);
    has_many_wrong || has_written && is_zero(journal, beside)
}

/// Whether a block with a journal has nothing but zeros.
pub(super) fn is_zero(journal: &[u8], beside: &[(SegmentKind, &RawSummaryBlock, usize)]) -> bool {
    let is_empty = |summary: &RawSummaryBlock| summary.entries.iter().all(|entry| *entry == RawSummary::default());
    journal.iter().all(|byte| *byte == 0) && beside.iter().all(|(_, summary, _)| is_empty(summary))
}

#[cfg(test)]
mod tests {
    use basalt_device::MemoryDevice;

    use super::*;
    use crate::checkpoint::choose::choose_pack;
    use crate::format::{FormatOptions, format};
    use crate::layout::checkpoint::CheckpointFlags;
    use crate::layout::summary::{JOURNAL_SIZE, TYPE_DATA};

    /// What is said of journals without entries where the data logs have written so many blocks, all of these owners.
    fn said(is_compact: bool, written: [u16; 3], owners: [u32; 3]) -> Option<String> {
        said_in_turns(is_compact, written, owners.map(|owner| [owner; 2]))
    }

    /// The same, of blocks that these own in turns.
    fn said_in_turns(is_compact: bool, written: [u16; 3], owners: [[u32; 2]; 3]) -> Option<String> {
        let device = MemoryDevice::new(80 << 20, 512);
        format(&device, &FormatOptions::default(), &mut |_, _| ()).unwrap();
        let geometry = Geometry::read(&device).unwrap().0;
        let mut pack = choose_pack(&device, &geometry).unwrap().0;
        let mut flags = pack.raw.flags();
        flags.set(CheckpointFlags::COMPACT_SUMMARY, is_compact);
        pack.raw.ckpt_flags.set(flags.bits());
        // Not the one behind the other pack, which says nothing of it then.
        pack.raw.checkpoint_ver.set(9);
        let summaries = [0, 1, 2].map(|log| {
            pack.raw.cur_data_blkoff[log].set(written[log]);
            let mut summary = RawSummaryBlock::empty(TYPE_DATA);
            let blocks = summary.entries.iter_mut().take(written[log].into());
            blocks.zip(owners[log].into_iter().cycle()).for_each(|(entry, owner)| entry.nid.set(owner));
            summary
        });
        doubt(&device, &geometry, &pack, &summaries, &([0; JOURNAL_SIZE], [0; JOURNAL_SIZE]))
    }

    /// Too few owners to tell that they are wrong, and a log without any.
    #[test]
    fn zeros_where_a_log_has_just_begun_are_no_journal() {
        assert_eq!(said(true, [0, 0, 0], [0; 3]), None);
        assert!(said(true, [1, 0, 0], [0; 3]).unwrap().starts_with("NAT"));
        assert!(said(true, [0, 0, 2], [0; 3]).is_some());
    }

    #[test]
    fn each_journal_is_judged_by_the_log_beside_it() {
        assert_eq!(said(false, [100; 3], [4, u32::MAX, 4]), None);
        assert!(said(false, [100; 3], [u32::MAX, 4, 4]).unwrap().starts_with("NAT"));
        assert!(said(false, [100; 3], [4, 4, u32::MAX]).unwrap().starts_with("SIT"));
    }

    /// As Linux leaves with `mode=fragment:block`.
    #[test]
    fn holes_in_a_log_are_no_damage() {
        assert_eq!(said_in_turns(true, [100; 3], [[4, 0]; 3]), None);
        assert!(said_in_turns(true, [100; 3], [[4, u32::MAX]; 3]).is_some());
    }
}
