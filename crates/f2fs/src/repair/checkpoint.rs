//! The checkpoint: finds one to start from, however bad, and brings its fields, logs, orphans and journals into bounds.

use std::rc::Rc;
use std::sync::Arc;

use basalt_segments::{Segment, SegmentKind};
use rustc_hash::{FxHashMap, FxHashSet};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use basalt_device::BlockDevice;

use super::kept::Kept;
use super::lost_logs::NOWHERE;
use super::report::{Log, Repair};
use super::staged::Staged;
use super::state::State;
use crate::blocks::read_blocks;
use crate::check::names::LISTED_AGAIN;
use crate::check::{Fault, FaultKind, Place};
use crate::checkpoint::block::expected_checksum;
use crate::checkpoint::choose::{choose, choose_pack_to_read};
use crate::checkpoint::fields::{bitmap_places, log_position};
use crate::checkpoint::half::{self, STALE_MAX};
use crate::checkpoint::load::{Loaded, LoadedLog, load_pack};
use crate::checkpoint::pack::Pack;
use crate::error::{Error, Result};
use crate::format::plan::reserve;
use crate::geometry::Geometry;
use crate::layout::checkpoint::{
    BITMAP_OFFSET, CHECKSUM_OFFSET, CheckpointFlags, ORPHANS_PER_BLOCK, RawCheckpoint, RawOrphanBlock,
};
use crate::layout::nat::RawNatEntry;
use crate::layout::sit::RawSitEntry;
use crate::layout::summary::{
    ENTRIES_SIZE, JOURNAL_SIZE, NAT_JOURNAL_ENTRIES, RawNatJournalEntry, RawSummaryBlock, SIT_JOURNAL_ENTRIES,
    TYPE_DATA, TYPE_NODE, compact_blocks, encode_journal,
};
use crate::layout::superblock::Features;
use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid, SEGMENT_BITS, set_bit_msb};

/// Kinds that are repaired here, before anything behind the checkpoint is looked at.
pub(super) const KINDS: &[FaultKind] = &[
    FaultKind::CheckpointPack,
    FaultKind::CheckpointEnd,
    FaultKind::CheckpointUncertain,
    FaultKind::CheckpointLost,
    FaultKind::CheckpointUnreadable,
    FaultKind::CheckpointFields,
    FaultKind::CheckpointFlags,
    FaultKind::CheckpointParity,
    FaultKind::LogPosition,
    FaultKind::LogMode,
    FaultKind::NatJournal,
    FaultKind::SitJournal,
    FaultKind::OrphanBlock,
    FaultKind::NextFreeNid,
];

/// Opens the volume at its best checkpoint; the journals are merged into the tables on the staged device. `found_ahead`: how many versions
/// ahead of the checkpoint nodes were found.
pub(super) fn open(
    device: &Arc<Staged>,
    geometry: Geometry,
    faults: &[Fault],
    found_ahead: u64,
    log: &mut Log,
) -> Result<State> {
    let mut mended = None;
    // What came since is what the search finds, if a pack that cannot be read was the newer one.
    let (mut pack, how) = match choose_pack_to_read(&**device, &geometry) {
        Ok((mut pack, _)) => {
            half::mend(&**device, &pack)?;
            mended = pack.broken_end.take().map(|_| Place::Checkpoint(pack.index));
            (pack, "the other pack is used, and a new one written here".to_owned())
        }
        Err(Error::Device(error)) => return Err(error.into()),
        Err(_) => match revive(device, &geometry)? {
            Some(found) => found,
            None => (invent(device, &geometry)?, "made anew from the tables".to_owned()),
        },
    };
    let invented = pack.raw.cp_pack_total_block_count.get() == 0;
    mend_fields(&mut pack, &geometry);
    let lost = mend_logs(&mut pack, &geometry);
    let mut loaded = if invented {
        from_nothing(pack, &geometry)
    } else {
        mend_pack(device, &mut pack, &geometry)?;
        load_pack(&**device, &geometry, pack)?
    };
    loaded.logs.iter_mut().zip(&lost).filter(|(_, lost)| **lost).for_each(|(log, _)| log.segment = NOWHERE);
    let mut state = into_state(device, geometry, loaded, found_ahead)?;
    state.is_invented = invented;
    state.merge_journals()?;
    state.place_lost_logs()?;
    state.fill_owners();
    state.loaded.orphans.sort_unstable();
    state.loaded.orphans.dedup();
    let ids = Nid::FIRST..state.geometry.node_ids();
    state.loaded.orphans.retain(|ino| ids.contains(&ino.nid()));
    state.loaded.orphans.truncate(super::pack::orphans_max(&state.geometry));
    if !ids.contains(&state.loaded.pack.raw.next_free_nid.into()) {
        state.loaded.pack.raw.next_free_nid.set(ids.start.get());
    }
    for fault in faults {
        match (fault.kind, fault.place) {
            (FaultKind::OrphanInode, _) if fault.found == LISTED_AGAIN => log.add(Repair::of(fault, "listed once")),
            (FaultKind::NatBits, _) => log.add(Repair::of(fault, "dropped: Linux does without")),
            (FaultKind::SummaryType, Place::Log(_)) => log.add(Repair::of(fault, "set as the log is")),
            _ => {}
        }
    }
    for fault in faults.iter().filter(|fault| KINDS.contains(&fault.kind)) {
        let is_mended = Some(fault.place) == mended && fault.kind == FaultKind::CheckpointPack;
        let action = if is_mended { "its last block is written".into() } else { action(fault.kind, &how) };
        log.add(Repair::of(fault, action));
    }
    Ok(state)
}

fn action(kind: FaultKind, how: &str) -> String {
    match kind {
        FaultKind::CheckpointPack
        | FaultKind::CheckpointUncertain
        | FaultKind::CheckpointLost
        | FaultKind::CheckpointUnreadable => how.into(),
        FaultKind::CheckpointEnd => "written anew from the other end".into(),
        FaultKind::CheckpointFields => "computed anew from the superblock and the tables".into(),
        FaultKind::CheckpointFlags => "flag cleared".into(),
        FaultKind::CheckpointParity => "the next checkpoint has a version that belongs into its pack".into(),
        FaultKind::LogPosition => "the log goes on in a free segment".into(),
        FaultKind::LogMode => "set to appending".into(),
        FaultKind::NatJournal | FaultKind::SitJournal => {
            "entries that can be told to be right merged into the table, the others dropped".into()
        }
        FaultKind::OrphanBlock => "entries that name inodes kept".into(),
        _ => "set to the first node id that can be".into(),
    }
}

fn into_state(device: &Arc<Staged>, geometry: Geometry, loaded: Loaded, found_ahead: u64) -> Result<State> {
    // Without it nothing on the device is kept: what cannot be read now is no reason for that.
    let chosen = match choose(device.base(), &geometry) {
        Ok(chosen) => Some(chosen),
        Err(errors) => match errors.into_iter().find(|error| matches!(error, Error::Device(_))) {
            Some(error) => return Err(error),
            None => None,
        },
    };
    let unknown = chosen.as_ref().and_then(|chosen| chosen.unknown.as_ref());
    let is_lost = matches!(unknown, Some(Error::Damaged { .. }));
    // What cannot be read was perhaps the newer one.
    let lost_beside = chosen.as_ref().filter(|_| unknown.is_some()).map(|chosen| chosen.pack.raw.checkpoint_ver.get());
    let base = chosen.map(|chosen| chosen.pack);
    if let Some(base) = &base {
        // The checkpoints that recovery wrote on the staged device are none: the one that counts on the device stays.
        device.forget(base.start..base.start + BLOCKS_PER_SEGMENT);
        half::mend(&**device, base)?;
    }
    let last = base.as_ref().unwrap_or(&loaded.pack);
    let target = 1 - last.index;
    let last_version = last.raw.checkpoint_ver.get();
    // One more, so that the other pack, of the version before, is newer than the last as well.
    let ahead = if is_lost { claimed_ahead(device.base(), &geometry, last_version).max(found_ahead) + 1 } else { 0 };
    let mut version = last_version.wrapping_add(ahead + 1);
    // Odd versions belong into the first pack.
    if version % 2 == u64::from(target) {
        version = version.wrapping_add(1);
    }
    let base = match base.map(|pack| load_base(device, &geometry, pack)) {
        Some(Err(error @ Error::Device(_))) => return Err(error),
        loaded => loaded.and_then(Result::ok).map(Rc::new),
    };
    let kept = base.as_deref().map_or_else(Kept::default, |base| Kept::of(device.base(), &geometry, base));
    // What shows that a newer one was lost, or may have been, stays until the next one is durable: neither end is mended before.
    let writes_both = base.is_none() || is_lost;
    Ok(State {
        device: Arc::clone(device),
        geometry,
        base,
        kept,
        may_overwrite: true,
        writes_both,
        lost_beside,
        loaded,
        target,
        version,
        taken: FxHashSet::default(),
        by_offset: None,
        waiting: None,
        strays: None,
        nameless: None,
        remembered: FxHashSet::default(),
        left: None,
        tops: FxHashMap::default(),
        levels: FxHashMap::default(),
        free_from: Nid::FIRST_FREE,
        names: FxHashMap::default(),
        is_invented: false,
        given_up: FxHashMap::default(),
        entered: FxHashMap::default(),
        is_staged: true,
        put_back: FxHashSet::default(),
        outdated: FxHashSet::default(),
        homeless: FxHashSet::default(),
        made: FxHashSet::default(),
        lost_found: None,
        is_lost_found_last: false,
    })
}

/// The checkpoint on the device that counts until there is another. Where what is between its ends is damaged, as far as it goes: its tables
/// are kept all the same.
fn load_base(device: &Arc<Staged>, geometry: &Geometry, mut pack: Pack) -> Result<Loaded> {
    match load_pack(device.base(), geometry, pack.clone()) {
        Err(Error::Damaged { .. }) => {
            let scratch = Arc::new(Staged::new(device.base_device()));
            mend_pack(&scratch, &mut pack, geometry)?;
            load_pack(&*scratch, geometry, pack)
        }
        loaded => loaded,
    }
}

/// How far damaged packs claim to be ahead of the one that is used, as far as that can be believed: what was written behind them must not
/// look newer than the next checkpoint.
fn claimed_ahead(device: &dyn BlockDevice, geometry: &Geometry, last: u64) -> u64 {
    let claims = [0, 1].into_iter().flat_map(|index| half::claimed_versions(device, geometry, index));
    claims
        .map(|version| version.wrapping_sub(last))
        .filter(|ahead| *ahead <= STALE_MAX.into())
        .max()
        .unwrap_or_default()
}

/// The fields of a checkpoint block and its checksum, if the checksum is right.
fn sound_block(block: &[u8]) -> Option<(RawCheckpoint, u32)> {
    let (raw, _) = RawCheckpoint::read_from_prefix(block).ok()?;
    let offset = raw.checksum_offset.get() as usize;
    if !(BITMAP_OFFSET..=CHECKSUM_OFFSET).contains(&offset) {
        return None;
    }
    let found = u32::from_le_bytes(block[offset..offset + 4].try_into().ok()?);
    (found == expected_checksum(block, offset)).then_some((raw, found))
}

/// A pack of which only the first or only the last block is sound; the newest there is.
fn revive(device: &Arc<Staged>, geometry: &Geometry) -> Result<Option<(Pack, String)>> {
    let mut best: Option<(Pack, String)> = None;
    for index in 0..2 {
        let start = geometry.checkpoint + index * BLOCKS_PER_SEGMENT;
        let bytes = read_blocks(&**device, start, BLOCKS_PER_SEGMENT as usize)?;
        for (at, block) in bytes.chunks_exact(BLOCK_SIZE).enumerate() {
            let Some((raw, checksum)) = sound_block(block) else { continue };
            let total = raw.cp_pack_total_block_count.get() as usize;
            if at != 0 && at + 1 != total {
                continue;
            }
            let version = raw.checkpoint_ver.get();
            if best.as_ref().is_some_and(|(pack, _)| pack.raw.checkpoint_ver.get() >= version) {
                continue;
            }
            let mut head = bytes[..BLOCK_SIZE * (1 + geometry.payload as usize)].to_vec();
            head[..BLOCK_SIZE].copy_from_slice(block);
            let end = if at == 0 { "first" } else { "last" };
            let how = format!("version {version} revived from the {end} block of pack {}", index + 1);
            best = Some((Pack { index, start, raw, bytes: head, checksum, broken_end: None }, how));
        }
    }
    Ok(best)
}

/// A checkpoint for a volume that has none. Which copy of a NAT block is current is told by the nodes it leads to.
fn invent(device: &Arc<Staged>, geometry: &Geometry) -> Result<Pack> {
    let mut raw = RawCheckpoint::new_zeroed();
    raw.checkpoint_ver.set(u64::from(crate::layout::crc::crc(&geometry.superblock.uuid) | 1));
    raw.checksum_offset.set(CHECKSUM_OFFSET as u32);
    raw.next_free_nid = Nid::FIRST.into();
    let mut bytes = vec![0; BLOCK_SIZE * (1 + geometry.payload as usize)];
    let flags = CheckpointFlags::empty();
    let (_, nat_at) = bitmap_places(flags, geometry);
    for index in 0..geometry.nat_blocks {
        let scores = [score(device, geometry, index, false)?, score(device, geometry, index, true)?];
        if scores[1] > scores[0]
            && let Some(map) = bytes.get_mut(nat_at..nat_at + geometry.nat_bitmap_size())
        {
            set_bit_msb(map, index as usize, true);
        }
    }
    Ok(Pack { index: 1, start: geometry.checkpoint + BLOCKS_PER_SEGMENT, raw, bytes, checksum: 0, broken_end: None })
}

/// How many entries of a NAT block lead to the node they are for.
fn score(device: &Arc<Staged>, geometry: &Geometry, index: u32, second: bool) -> Result<u32> {
    let block = read_blocks(&**device, geometry.nat_block(index, second), 1)?;
    let mut right = 0;
    for (nid, bytes) in Nid::in_nat_block(index, 0).onward().zip(block.chunks_exact(size_of::<RawNatEntry>())) {
        let Ok(entry) = RawNatEntry::read_from_bytes(bytes) else { continue };
        if geometry.in_main(entry.address()) {
            let node = read_blocks(&**device, entry.address(), 1)?;
            right += u32::from(State::footer(&node).is_some_and(|footer| footer.nid() == nid));
        }
    }
    Ok(right)
}

/// What is loaded of a checkpoint that was made up: no orphans, no journals, no logs yet.
fn from_nothing(pack: Pack, geometry: &Geometry) -> Loaded {
    let (sit_at, nat_at) = bitmap_places(pack.raw.flags(), geometry);
    let cut = |at: usize, size: usize| {
        let mut map = pack.bytes.get(at..at + size).unwrap_or_default().to_vec();
        map.resize(size, 0);
        map
    };
    Loaded {
        sit_bitmap: cut(sit_at, geometry.sit_bitmap_size()),
        nat_bitmap: cut(nat_at, geometry.nat_bitmap_size()),
        orphans: Vec::new(),
        logs: SegmentKind::ALL.map(|kind| LoadedLog {
            segment: NOWHERE,
            offset: 0,
            in_slack: false,
            summary: RawSummaryBlock::empty(if kind.is_node() { TYPE_NODE } else { TYPE_DATA }),
        }),
        nat_journal: Vec::new(),
        sit_journal: Vec::new(),
        doubt: None,
        pack,
    }
}

/// Brings the counts that loading and mounting depend on into bounds.
fn mend_fields(pack: &mut Pack, geometry: &Geometry) {
    let raw = &mut pack.raw;
    let read_only = geometry.features.contains(Features::READ_ONLY);
    let main_blocks = u64::from(geometry.main_blocks());
    let metadata = geometry.segment_count.saturating_sub(geometry.main_segments);
    let most = geometry.segment_count.saturating_sub(metadata + 1);
    let (reserved, kept_back) = (raw.rsvd_segment_count.get(), raw.overprov_segment_count.get());
    if !read_only && (!(1..=most).contains(&reserved) || !(1..=most).contains(&kept_back)) {
        let found = reserve(geometry.main_segments, geometry.segments_per_section, None);
        let (reserved, kept_back) = found.map_or((1, 1), |found| (found.reserved, found.overprovision));
        raw.rsvd_segment_count.set(reserved.clamp(1, most.max(1)));
        raw.overprov_segment_count.set(kept_back.clamp(1, most.max(1)));
    }
    let kept_back = u64::from(raw.overprov_segment_count.get()) << SEGMENT_BITS;
    let user = raw.user_block_count.get();
    if user == 0 || user > main_blocks || user == main_blocks && !read_only {
        raw.user_block_count.set(main_blocks.saturating_sub(kept_back).max(1));
    }
    // The count itself is computed when the rest is sound.
    let valid = raw.valid_block_count.get().min(raw.user_block_count.get());
    raw.valid_block_count.set(valid);
    raw.sit_ver_bitmap_bytesize.set(geometry.sit_bitmap_size() as u32);
    raw.nat_ver_bitmap_bytesize.set(geometry.nat_bitmap_size() as u32);
}

/// Which logs have no segment of their own in the main area; they are pointed to its first until they get one.
fn mend_logs(pack: &mut Pack, geometry: &Geometry) -> [bool; 6] {
    let mut seen = Vec::with_capacity(6);
    let mut lost = [false; 6];
    for kind in SegmentKind::ALL {
        let (segment, offset, _) = log_position(pack, kind);
        let index = kind.index();
        if pack.raw.alloc_type[index] > 1 {
            pack.raw.alloc_type[index] = 0;
        }
        let outside = !geometry.has_segment(segment) || offset >= BLOCKS_PER_SEGMENT;
        let shared = seen.contains(&segment) && !geometry.features.contains(Features::READ_ONLY);
        seen.push(segment);
        lost[index] = outside || shared;
        // The offset stays: it says how many summary entries the log has in a compact pack.
        if outside && kind.is_node() {
            pack.raw.cur_node_segno[index - 3].set(0);
            pack.raw.cur_node_blkoff[index - 3].set(offset.min(BLOCKS_PER_SEGMENT - 1) as u16);
        } else if outside {
            pack.raw.cur_data_segno[index].set(0);
            pack.raw.cur_data_blkoff[index].set(offset.min(BLOCKS_PER_SEGMENT - 1) as u16);
        }
    }
    lost
}

/// Bytes of the journals, orphan lists and the start of the summaries: brought into bounds on the staged device.
fn mend_pack(device: &Arc<Staged>, pack: &mut Pack, geometry: &Geometry) -> Result<()> {
    let first = 1 + geometry.payload;
    let flags = pack.raw.flags();
    let nodes = if flags.intersects(CheckpointFlags::UMOUNT | CheckpointFlags::FASTBOOT) { 3 } else { 0 };
    let total = pack.raw.cp_pack_total_block_count.get().clamp(first + nodes + 2, BLOCKS_PER_SEGMENT);
    pack.raw.cp_pack_total_block_count.set(total);
    let start_sum = pack.raw.cp_pack_start_sum.get();
    let compact = flags.contains(CheckpointFlags::COMPACT_SUMMARY);
    let owners = || SegmentKind::ALL[..3].iter().map(|&kind| log_position(pack, kind).1 as usize).sum();
    let data = if compact { compact_blocks(owners()) } else { 3 };
    let computed = total.saturating_sub(1 + nodes + data).max(first);
    // Linux may leave room between orphans and summaries; anything inside the pack is believed.
    if start_sum < first || start_sum > total.saturating_sub(nodes + 2) {
        pack.raw.cp_pack_start_sum.set(computed);
    }
    let start_sum = pack.raw.cp_pack_start_sum.get();
    if flags.contains(CheckpointFlags::ORPHAN) {
        for address in Address::all(pack.start + first..pack.start + start_sum) {
            let mut bytes = read_blocks(&**device, address, 1)?;
            let Ok(block) = RawOrphanBlock::mut_from_bytes(&mut bytes) else { continue };
            if block.entry_count.get() as usize > ORPHANS_PER_BLOCK {
                let count = block.ino.iter().take_while(|ino| ino.get() != 0).count();
                block.entry_count.set(count as u32);
                device.write_at(u64::from(address) << BLOCK_BITS, &bytes)?;
            }
        }
    }
    let places = if compact {
        [(pack.start + start_sum, 0), (pack.start + start_sum, JOURNAL_SIZE)]
    } else {
        let summaries = pack.start + total.saturating_sub(1 + nodes + 3);
        [(summaries, ENTRIES_SIZE), (summaries + 2, ENTRIES_SIZE)]
    };
    mend_nat_journal(device, geometry, places[0])?;
    let mut block = read_blocks(&**device, places[1].0, 1)?;
    let journal = &mut block[places[1].1..places[1].1 + JOURNAL_SIZE];
    if usize::from(u16::from_le_bytes([journal[0], journal[1]])) > SIT_JOURNAL_ENTRIES {
        // The SIT is computed anew from what is in use.
        journal.fill(0);
        device.write_at(u64::from(places[1].0) << BLOCK_BITS, &block)?;
    }
    Ok(())
}

/// A NAT journal with an impossible count: the entries that lead to their node stay.
fn mend_nat_journal(device: &Arc<Staged>, geometry: &Geometry, (address, at): (Address, usize)) -> Result<()> {
    let mut block = read_blocks(&**device, address, 1)?;
    let journal = &block[at..at + JOURNAL_SIZE];
    if usize::from(u16::from_le_bytes([journal[0], journal[1]])) <= NAT_JOURNAL_ENTRIES {
        return Ok(());
    }
    let mut right: Vec<RawNatJournalEntry> = Vec::new();
    for bytes in journal[2..].chunks_exact(size_of::<RawNatJournalEntry>()).take(NAT_JOURNAL_ENTRIES) {
        let Ok(entry) = RawNatJournalEntry::read_from_bytes(bytes) else { continue };
        let at = entry.entry.address();
        if !geometry.in_main(at) || right.iter().any(|other| other.nid == entry.nid) {
            continue;
        }
        let footer = State::footer(&read_blocks(&**device, at, 1)?);
        if footer.is_some_and(|footer| footer.nid == entry.nid && footer.ino == entry.entry.ino) {
            right.push(entry);
        }
    }
    block[at..at + JOURNAL_SIZE].copy_from_slice(&encode_journal(&right));
    device.write_at(u64::from(address) << BLOCK_BITS, &block)?;
    Ok(())
}

impl State {
    /// Writes the journals' entries into the tables; those of ids and segments that do not exist are dropped.
    fn merge_journals(&mut self) -> Result<()> {
        for entry in std::mem::take(&mut self.loaded.nat_journal) {
            if entry.nid() != Nid::NONE {
                self.edit_nat(entry.nid(), |stored| *stored = entry.entry)?;
            }
        }
        for entry in std::mem::take(&mut self.loaded.sit_journal) {
            let segment = Segment::new(entry.segno.get());
            if self.geometry.has_segment(segment) {
                let (address, at) = self.sit_place(segment);
                let mut block = self.block(address)?;
                block[at..at + size_of::<RawSitEntry>()].copy_from_slice(entry.entry.as_bytes());
                self.put(address, &block)?;
            }
        }
        Ok(())
    }
}
