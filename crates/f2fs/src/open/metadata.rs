//! Reading a volume's metadata: what a [`Volume`] is put together from.

use std::collections::BTreeMap;
use std::sync::Arc;

use zerocopy::FromBytes;

use basalt_device::BlockDevice;
use basalt_segments::slack::FlashPage;
use basalt_segments::{Segment, SegmentKind, SegmentTable};

use crate::blocks::read_blocks;
use crate::checkpoint::half;
use crate::checkpoint::load::{Loaded, LoadedLog, ToOpen, load_to_open};
use crate::checkpoint::state::CheckpointState;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::features;
use crate::geometry::Geometry;
use crate::journal::area::Area;
use crate::journal::guard;
use crate::journal::state::FoundAtOpen;
use crate::layout::sit::{ENTRIES_PER_BLOCK, RawSitEntry};
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, bit_msb};
use crate::log::active::ActiveLog;
use crate::mutant::{self, Mutant};
use crate::node::nat::Nat;
use crate::options::{OpenOptions, Recovery};
use crate::volume::{Parts, Volume};

/// SIT blocks read in one request.
const SIT_READ_BLOCKS: u32 = 256;

impl Volume {
    /// Reads a volume's metadata, through a cleaning journal that is live. Writes nothing, but for writing mends a checkpoint with a broken
    /// end.
    pub(crate) fn open(
        device: Arc<dyn BlockDevice>,
        mut options: OpenOptions,
        clock: Arc<dyn Clock>,
        recovery: Recovery,
    ) -> Result<(Volume, FoundAtOpen)> {
        if options.rescue {
            let volume = crate::rescue::open_damaged(device, options, clock)?;
            return Ok((volume, FoundAtOpen::default()));
        }
        let guard = guard::read(&*device)?;
        let geometry = guard.geometry;
        let mut warnings: Vec<String> =
            guard.first_bad.into_iter().map(|e| format!("{e}; the second copy is used")).collect();
        features::expect_served(&geometry, &*device)?;
        let ToOpen { loaded, other: other_bad, unknown } = load_to_open(&*device, &geometry)?;
        if let Some(reason) = unknown.filter(|_| !options.read_only) {
            warnings.push(format!("mounted read-only: {reason}"));
            options.read_only = true;
        }
        warnings.extend(
            other_bad.map(|e| format!("{e}; the other pack, version {}, is used", loaded.pack.raw.checkpoint_ver)),
        );
        if !options.read_only
            && let Some(reason) = features::read_only_reason(&geometry, loaded.pack.raw.flags(), &*device)
        {
            warnings.push(format!("mounted read-only: {reason}"));
            options.read_only = true;
        }
        let LoadedTable { table, wrong } = load_table(&*device, &geometry, &loaded)?;
        let live = table.live_data_blocks() + table.live_node_blocks();
        let contradiction = wrong.or_else(|| check_counts(&loaded, &table).err());
        let finds_live = recovery.is_repair
            && guard.is_set
            && (contradiction.is_some() || live < loaded.pack.raw.valid_block_count.get());
        if let Some(error) = contradiction.filter(|_| !finds_live) {
            return Err(error);
        }
        let journal: BTreeMap<_, _> = loaded.nat_journal.iter().map(|e| (e.nid(), e.entry)).collect();
        if let Some((nid, _)) = journal.iter().next_back().filter(|(nid, _)| **nid >= geometry.node_ids()) {
            return Err(Error::damaged(
                "NAT",
                "journal",
                format!("entry of node {nid}, ids end at {}", geometry.node_ids()),
            ));
        }
        if let Some(warning) = loaded.pack.tell_broken_end() {
            warnings.push(warning);
            // Before anything else is written, and not before all of it could be read: to Linux, the older checkpoint counts as long as this end is damaged.
            if !options.read_only
                && let Err(error) = half::mend(&*device, &loaded.pack)
            {
                warnings.push(format!("mounted read-only: the checkpoint cannot be mended: {error}"));
                options.read_only = true;
            }
        }
        let raw = loaded.pack.raw;
        let nat = Nat::new(&geometry, loaded.nat_bitmap.clone(), journal, raw.next_free_nid.into());
        let mut kinds = SegmentKind::ALL.into_iter();
        let goes_on = options.read_only || mutant::active(Mutant::GoesOnWithinPage);
        let page = if goes_on { FlashPage::BLOCK } else { options.flash_page };
        let logs = loaded.logs.map(|log| open_log(kinds.next().unwrap_or(SegmentKind::WarmNode), log, &table, page));
        let checkpoint = CheckpointState::new(loaded.pack, loaded.sit_bitmap, &loaded.sit_journal);
        let orphans = loaded.orphans.into_iter().collect();
        let parts = Parts { checkpoint, table, logs, nat, orphans, warnings };
        let mut volume = Volume::assemble(device, geometry, options, clock, parts)?;
        volume.journal.note_guard_found(guard.is_set, guard.is_torn);
        let mut found = FoundAtOpen::default();
        if guard.is_set {
            let area = Area::find_live(&*volume.device, &volume.geometry)?;
            found = volume.recover_journal(area, recovery.extent, finds_live)?;
        }
        found.superblock_unreadable = guard.unreadable;
        volume.expect_all_entries(recovery);
        Ok((volume, found))
    }
}

/// The log goes on where the checkpoint left it. Of the warm node log, from which the chain begins, it is known later whether it may.
fn open_log(kind: SegmentKind, log: LoadedLog, table: &SegmentTable, page: FlashPage) -> ActiveLog {
    // A log that fills slack may be recorded there again as long as it writes nothing. The chain's begins where it stands, so it goes on in
    // another segment, as one does that has live blocks ahead of it.
    let rests = log.in_slack && kind != SegmentKind::WarmNode;
    let is_blocked = log.in_slack || table.live_blocks(log.segment).any(|offset| offset >= log.offset);
    let offset = if is_blocked && !rests { BLOCKS_PER_SEGMENT } else { log.offset };
    let within_page = !rests && kind != SegmentKind::WarmNode && !offset.is_multiple_of(page.blocks());
    let slack = rests.then(|| table.dead_places(log.segment));
    ActiveLog {
        segment: log.segment,
        offset,
        slack,
        summary: log.summary,
        is_summary_written: false,
        rests,
        within_page,
        left: false,
    }
}

/// The table of segments.
struct LoadedTable {
    table: SegmentTable,
    /// What is wrong with an entry, or with reading it. What can be had of it is in the table.
    wrong: Option<Error>,
}

fn load_table(device: &dyn BlockDevice, geometry: &Geometry, loaded: &Loaded) -> Result<LoadedTable> {
    let mut table = SegmentTable::new(geometry.main_segments, geometry.segments_per_section);
    let journal: BTreeMap<Segment, RawSitEntry> =
        loaded.sit_journal.iter().map(|e| (Segment::new(e.segno.get()), e.entry)).collect();
    if let Some((segment, _)) = journal.iter().next_back().filter(|(segment, _)| !geometry.has_segment(**segment)) {
        return Err(Error::damaged(
            "SIT",
            "journal",
            format!("entry of segment {segment} of {}", geometry.main_segments),
        ));
    }
    let blocks = geometry.sit_blocks_used();
    let (mut first, mut wrong) = (0, None);
    while first < blocks {
        let second_copy = bit_msb(&loaded.sit_bitmap, first as usize);
        let count = (first..blocks)
            .take(SIT_READ_BLOCKS as usize)
            .take_while(|&block| bit_msb(&loaded.sit_bitmap, block as usize) == second_copy)
            .count() as u32;
        match read_blocks(device, geometry.sit_block(first, second_copy), count as usize) {
            Ok(bytes) => {
                for (step, block) in bytes.chunks_exact(BLOCK_SIZE).enumerate() {
                    let bad = load_sit_block(&mut table, geometry, first + step as u32, block, &journal);
                    wrong = wrong.or(bad);
                }
            }
            Err(error) => wrong = wrong.or(Some(error)),
        }
        first += count;
    }
    for kind in SegmentKind::ALL {
        table.set_active(loaded.logs[kind.index()].segment);
    }
    table.finish_load();
    Ok(LoadedTable { table, wrong })
}

/// Loads the entries of a block, and returns what is wrong with the first that is.
fn load_sit_block(
    table: &mut SegmentTable,
    geometry: &Geometry,
    index: u32,
    block: &[u8],
    journal: &BTreeMap<Segment, RawSitEntry>,
) -> Option<Error> {
    let segments = geometry.segments_of_sit_block(index);
    let Ok((entries, _)) = <[RawSitEntry]>::ref_from_prefix_with_elems(block, ENTRIES_PER_BLOCK as usize) else {
        return Some(Error::damaged("SIT", format!("segment {}", segments.start()), "short block"));
    };
    let mut wrong = None;
    for (segment, entry) in segments.zip(entries) {
        let entry = journal.get(&segment).unwrap_or(entry);
        let mut tell = |found: String| {
            wrong.get_or_insert_with(|| Error::damaged("SIT", format!("segment {segment}"), found));
        };
        let Some(kind) = SegmentKind::from_u8(entry.kind()) else {
            tell(format!("type {}, at most 5", entry.kind()));
            continue;
        };
        if entry.live() == 0 && entry.valid_map == [0; 64] && entry.mtime.get() == 0 && entry.kind() == 0 {
            continue;
        }
        let live = table.load(segment, kind, &entry.valid_map, entry.mtime.get());
        if live != entry.live() {
            tell(format!("{} live blocks counted, {live} in the bitmap", entry.live()));
        }
    }
    wrong
}

fn check_counts(loaded: &Loaded, table: &SegmentTable) -> Result<()> {
    let raw = &loaded.pack.raw;
    let (data, nodes) = (table.live_data_blocks(), table.live_node_blocks());
    if u64::from(raw.valid_node_count.get()) != nodes || data + nodes > raw.valid_block_count.get() {
        return Err(Error::damaged(
            "checkpoint",
            format!("pack {}", loaded.pack.index + 1),
            format!(
                "counts {} nodes of {} blocks, the SIT has {nodes} and {data} data blocks",
                raw.valid_node_count, raw.valid_block_count
            ),
        ));
    }
    if raw.valid_inode_count.get() > raw.valid_node_count.get() {
        return Err(Error::damaged(
            "checkpoint",
            format!("pack {}", loaded.pack.index + 1),
            format!("{} inodes of {} nodes", raw.valid_inode_count, raw.valid_node_count),
        ));
    }
    Ok(())
}
