//! Both checkpoint packs, and the fields of the one that counts.

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentKind};

use super::fault::{Findings, Place};
use super::kind::FaultKind;
use crate::blocks::read_blocks;
use crate::checkpoint::fields::log_position;
use crate::checkpoint::load::{Loaded, load_pack};
use crate::checkpoint::pack::Pack;
use crate::checkpoint::{choose, mark};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::checkpoint::{CheckpointFlags, ORPHANS_PER_BLOCK, RawOrphanBlock};
use crate::layout::summary::{NAT_JOURNAL_ENTRIES, SIT_JOURNAL_ENTRIES};
use crate::layout::superblock::Features;
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid};
use zerocopy::FromBytes;

/// What an error of reading says, without the place that the fault names itself.
fn words(error: &Error) -> String {
    match error {
        Error::Damaged { found, .. } => found.clone(),
        other => other.to_string(),
    }
}

/// Reads and checks both packs; the one that counts, whole, or `None` if nothing behind it can be checked.
pub(super) fn check(device: &dyn BlockDevice, geometry: &Geometry, findings: &mut Findings) -> Result<Option<Loaded>> {
    let Some(pack) = choose(device, geometry, findings)? else { return Ok(None) };
    check_fields(&pack, geometry, findings);
    check_flags(&pack, findings);
    check_logs(&pack, geometry, findings);
    check_orphan_blocks(device, &pack, geometry, findings)?;
    if findings.is_fatal() {
        return Ok(None);
    }
    let index = pack.index;
    match load_pack(device, geometry, pack) {
        Ok(loaded) => Ok(check_journals(&loaded, geometry, findings).then_some(loaded)),
        Err(Error::Device(error)) => Err(error.into()),
        Err(error) => {
            // The journals are the only thing that cannot be told apart before they are read.
            let found = words(&error);
            let kind = match &found {
                found if found.starts_with("NAT journal") => FaultKind::NatJournal,
                found if found.starts_with("SIT journal") => FaultKind::SitJournal,
                _ => FaultKind::CheckpointFields,
            };
            findings.add(
                kind,
                Place::Checkpoint(index),
                found,
                format_args!(
                    "at most {NAT_JOURNAL_ENTRIES} NAT and {SIT_JOURNAL_ENTRIES} SIT entries, inside the pack"
                ),
            );
            Ok(None)
        }
    }
}

/// The newest pack that is complete. One that is not is no fault as long as the other one is, and may not be the newer.
fn choose(device: &dyn BlockDevice, geometry: &Geometry, findings: &mut Findings) -> Result<Option<Pack>> {
    let chosen = match choose::choose(device, geometry) {
        Ok(chosen) => chosen,
        Err(errors) => {
            for (index, error) in (0..).zip(*errors) {
                if matches!(error, Error::Device(_)) {
                    return Err(error);
                }
                let place = Place::Checkpoint(index);
                findings.add(FaultKind::CheckpointUnreadable, place, words(&error), "a complete pack");
            }
            return Ok(None);
        }
    };
    let other = Place::Checkpoint(1 - chosen.pack.index);
    if let Some(unknown) = &chosen.unknown {
        let (kind, expected) = match unknown {
            Error::Damaged { .. } => (FaultKind::CheckpointLost, "a complete pack, or what a power cut leaves"),
            _ => (FaultKind::CheckpointUncertain, "a pack that can be read"),
        };
        findings.add(kind, other, words(unknown), expected);
    } else if let Some(error) = &chosen.other {
        findings.add(FaultKind::CheckpointPack, other, words(error), "a complete pack");
    } else if let Some(version) = mark::older_that_counts(device, geometry, &chosen.pack) {
        // If the newer one is damaged before the next is written, all that comes behind it looks like what was lost before the repair.
        let found = format_args!("version {version}, which a repair that was cut off has not replaced");
        findings.add(
            FaultKind::CheckpointPack,
            other,
            found,
            format_args!("version {}", chosen.pack.raw.checkpoint_ver.get().wrapping_sub(1)),
        );
    }
    check_chosen(&chosen.pack, findings);
    Ok(Some(chosen.pack))
}

fn check_chosen(pack: &Pack, findings: &mut Findings) {
    let place = Place::Checkpoint(pack.index);
    if let Some(end) = &pack.broken_end {
        let kind = if end.may_be_cut { FaultKind::CheckpointPack } else { FaultKind::CheckpointEnd };
        let which = if end.address == pack.start { "first" } else { "last" };
        let found =
            format_args!("{which} block: {}; all else of version {} is there", end.found, pack.raw.checkpoint_ver);
        findings.add(kind, place, found, "two ends that are the same");
    }
    if pack.raw.checkpoint_ver.get() % 2 == u64::from(pack.index) {
        findings.add(
            FaultKind::CheckpointParity,
            place,
            format_args!("version {}", pack.raw.checkpoint_ver),
            if pack.index == 0 { "an odd version" } else { "an even version" },
        );
    }
}

fn check_fields(pack: &Pack, geometry: &Geometry, findings: &mut Findings) {
    let raw = &pack.raw;
    let mut check = |holds: bool, field: &str, found: u64, expected: String| {
        if !holds {
            let found = format!("{field} {found}");
            findings.add(FaultKind::CheckpointFields, Place::Checkpoint(pack.index), found, expected);
        }
    };
    let (user, valid) = (raw.user_block_count.get(), raw.valid_block_count.get());
    let read_only = geometry.features.contains(Features::READ_ONLY);
    // A volume made to be only read keeps nothing back for cleaning.
    let most = u64::from(geometry.main_blocks()) - u64::from(!read_only);
    check((1..=most).contains(&user), "user_block_count", user, format!("1 to {most}"));
    check(valid <= user, "valid_block_count", valid, format!("at most user_block_count, {user}"));
    let (reserved, kept_back) = (raw.rsvd_segment_count.get(), raw.overprov_segment_count.get());
    let metadata = geometry.segment_count.saturating_sub(geometry.main_segments);
    let most = geometry.segment_count.saturating_sub(metadata + 1);
    check(
        (reserved > 0 || read_only) && reserved <= most,
        "rsvd_segment_count",
        reserved.into(),
        format!("1 to {most}"),
    );
    check(kept_back > 0 || read_only, "overprov_segment_count", kept_back.into(), "more than 0".into());
    let (sit, nat) = (geometry.sit_bitmap_size() as u32, geometry.nat_bitmap_size() as u32);
    let (sit_found, nat_found) = (raw.sit_ver_bitmap_bytesize.get(), raw.nat_ver_bitmap_bytesize.get());
    check(sit_found == sit, "sit_ver_bitmap_bytesize", sit_found.into(), sit.to_string());
    check(nat_found == nat, "nat_ver_bitmap_bytesize", nat_found.into(), nat.to_string());
    let total = raw.cp_pack_total_block_count.get();
    let start = raw.cp_pack_start_sum.get();
    let summaries = if raw.flags().intersects(CheckpointFlags::UMOUNT | CheckpointFlags::FASTBOOT) { 4 } else { 1 };
    let (first, last) = (geometry.payload + 1, total.saturating_sub(summaries + 1));
    check((first..=last).contains(&start), "cp_pack_start_sum", start.into(), format!("{first} to {last}"));
    if Nid::from(raw.next_free_nid) >= geometry.node_ids() {
        findings.add(
            FaultKind::NextFreeNid,
            Place::Checkpoint(pack.index),
            raw.next_free_nid.get(),
            format_args!("less than {}", geometry.node_ids()),
        );
    }
}

fn check_flags(pack: &Pack, findings: &mut Findings) {
    let flags = pack.raw.flags();
    for (flag, name) in [
        (CheckpointFlags::ERROR, "an error stopped the volume (0x8)"),
        (CheckpointFlags::FSCK, "a check is wanted (0x10)"),
        (CheckpointFlags::DISABLED, "checkpoints are disabled (0x1000)"),
        (CheckpointFlags::RESIZE, "a resize was cut short (0x4000)"),
    ] {
        if flags.contains(flag) {
            findings.add(FaultKind::CheckpointFlags, Place::Checkpoint(pack.index), name, "the flag clear");
        }
    }
    if !flags.contains(CheckpointFlags::UMOUNT) {
        findings.add(FaultKind::NotUnmounted, Place::Checkpoint(pack.index), "no unmount flag", "a clean unmount");
    }
}

fn check_logs(pack: &Pack, geometry: &Geometry, findings: &mut Findings) {
    let mut seen: Vec<Segment> = Vec::with_capacity(6);
    for kind in SegmentKind::ALL {
        let place = Place::Log(kind.index());
        let (segment, offset, _) = log_position(pack, kind);
        if !geometry.has_segment(segment) || offset >= BLOCKS_PER_SEGMENT {
            findings.add(
                FaultKind::LogPosition,
                place,
                format_args!("segment {segment}, block {offset}"),
                format_args!("a segment below {}, a block below 512", geometry.main_segments),
            );
        } else if seen.contains(&segment) && !geometry.features.contains(Features::READ_ONLY) {
            findings.add(FaultKind::LogPosition, place, format_args!("segment {segment}, as another log"), "its own");
        }
        seen.push(segment);
        let mode = pack.raw.alloc_type[kind.index()];
        if mode > 1 {
            findings.add(FaultKind::LogMode, place, format_args!("mode {mode}"), "0 (append) or 1 (fill slack)");
        }
    }
}

fn check_orphan_blocks(
    device: &dyn BlockDevice,
    pack: &Pack,
    geometry: &Geometry,
    findings: &mut Findings,
) -> Result<()> {
    let (first, start_sum) = (1 + geometry.payload, pack.raw.cp_pack_start_sum.get());
    // A wrong start has been reported; what lies there is no orphan list.
    let in_pack = start_sum >= first && start_sum < pack.raw.cp_pack_total_block_count.get();
    if !pack.raw.flags().contains(CheckpointFlags::ORPHAN) || !in_pack {
        return Ok(());
    }
    let bytes = read_blocks(device, pack.start + first, (start_sum - first) as usize)?;
    for block in bytes.chunks_exact(BLOCK_SIZE) {
        let Ok(block) = RawOrphanBlock::ref_from_bytes(block) else { continue };
        let count = block.entry_count.get();
        if count as usize > ORPHANS_PER_BLOCK {
            findings.add(
                FaultKind::OrphanBlock,
                Place::Checkpoint(pack.index),
                format_args!("{count} orphans in a block"),
                format_args!("at most {ORPHANS_PER_BLOCK}"),
            );
        }
    }
    Ok(())
}

/// Checks what the journals speak of; false if the SIT journal makes no sense.
fn check_journals(loaded: &Loaded, geometry: &Geometry, findings: &mut Findings) -> bool {
    let place = Place::Checkpoint(loaded.pack.index);
    if let Some(doubt) = &loaded.doubt {
        let kind = if doubt.starts_with("NAT journal") { FaultKind::NatJournal } else { FaultKind::SitJournal };
        findings.add(kind, place, doubt, "owners of the blocks of each log, which exist");
    }
    for entry in &loaded.nat_journal {
        let nid = entry.nid();
        if nid == Nid::NONE || nid >= geometry.node_ids() {
            let expected = format_args!("1 to {}", geometry.node_ids().get() - 1);
            findings.add(FaultKind::NatJournal, place, format_args!("an entry for node {nid}"), expected);
        }
    }
    let mut sound = true;
    for entry in &loaded.sit_journal {
        if entry.segno.get() >= geometry.main_segments {
            sound = false;
            findings.add(
                FaultKind::SitJournal,
                place,
                format_args!("an entry for segment {}", entry.segno),
                format_args!("less than {}", geometry.main_segments),
            );
        }
    }
    sound
}
