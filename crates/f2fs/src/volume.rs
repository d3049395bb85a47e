//! A volume in memory: who owns what, opening and closing.
//!
//! One lock guards all of it (see `ops.rs`). Nothing here waits for the device's cache: flushes happen outside the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use zerocopy::FromBytes;

use basalt_device::BlockDevice;
use basalt_segments::cleaning::Cleaner;
use basalt_segments::{Placement, SegmentKind, SegmentTable};

use crate::blocks::read_blocks;
use crate::checkpoint::load::{Loaded, ToOpen, load_to_open};
use crate::checkpoint::{CheckpointState, half};
use crate::clock::Clock;
use crate::counts::Counts;
use crate::error::{Error, Result};
use crate::features;
use crate::file::pages::{CleanPages, InodeState};
use crate::geometry::Geometry;
use crate::journal::{Journal, area::Area, guard};
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::sit::{ENTRIES_PER_BLOCK, RawSitEntry};
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, bit_msb};
use crate::log::{ActiveLog, BlockWriter};
use crate::node::cache::NodeCache;
use crate::node::nat::Nat;
use crate::options::OpenOptions;
use crate::recovery::Recovery;
use crate::rescue::Behind;
use crate::since::SinceCheckpoint;
use crate::statistics::{CheckpointStatistics, CleaningStatistics, Counters, Statistics};

/// SIT blocks read in one request.
const SIT_READ_BLOCKS: u32 = 256;

/// Everything the engine knows about an open volume.
pub(crate) struct Volume {
    pub device: Arc<dyn BlockDevice>,
    pub geometry: Geometry,
    pub clock: Arc<dyn Clock>,
    pub options: OpenOptions,
    pub placement: Box<dyn Placement>,
    pub checkpoint: CheckpointState,
    pub table: SegmentTable,
    pub logs: [ActiveLog; 6],
    pub writer: BlockWriter,
    pub nat: Nat,
    pub nodes: NodeCache,
    pub inodes: FxHashMap<u32, InodeState>,
    pub clean_pages: CleanPages,
    pub dirty_inodes: BTreeSet<u32>,
    /// Of dirty inodes: those whose pages, from this one on, no checkpoint may leave in memory.
    pub ordered: BTreeMap<u32, u32>,
    pub dirty_file_pages: usize,
    pub dirty_directory_pages: usize,
    /// Where writeback goes on when it does not write everything: inode and page.
    pub written_to: (u32, u32),
    pub orphans: BTreeSet<u32>,
    pub counts: Counts,
    /// What fsync has to know.
    pub since: SinceCheckpoint,
    /// A checkpoint was prepared, but does not hold yet.
    pub checkpoint_under_way: bool,
    /// Something differs from the last checkpoint.
    pub changed: bool,
    /// The volume is being closed, or is: access times stay as they are.
    pub closing: bool,
    /// Why the volume takes no more changes: an error that left memory and device apart.
    pub failed: Option<String>,
    pub cleaner: Cleaner,
    /// Segments that were freed, and the device was not told so.
    pub undiscarded: BTreeSet<u32>,
    /// What commits cleaning without a checkpoint.
    pub journal: Journal,
    /// For rescue: what cleaning and fsync left behind the checkpoint.
    pub behind: Option<Behind>,
    /// What cleaning cost.
    pub cleaning: CleaningStatistics,
    pub counters: Counters,
    pub checkpoints: CheckpointStatistics,
    /// When an operation last came, by the clock's uptime.
    pub last_used: Duration,
    /// Whether whoever changes content keeps its times, and sets them.
    pub times_are_set: bool,
    pub warnings: Vec<String>,
    opened_at: i64,
    generation: u32,
}

/// What [`Volume::assemble`] starts from.
pub(crate) struct Parts {
    pub checkpoint: CheckpointState,
    pub table: SegmentTable,
    pub logs: [ActiveLog; 6],
    pub nat: Nat,
    pub orphans: BTreeSet<u32>,
    pub warnings: Vec<String>,
}

impl Volume {
    /// Reads a volume's metadata, through a cleaning journal that is live. Writes nothing, but for writing mends a checkpoint with a broken
    /// end.
    pub(crate) fn open(
        device: Arc<dyn BlockDevice>,
        mut options: OpenOptions,
        clock: Arc<dyn Clock>,
        recovery: Recovery,
    ) -> Result<Volume> {
        if options.rescue {
            return crate::rescue::open_damaged(device, options, clock);
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
        let journal: BTreeMap<_, _> = loaded.nat_journal.iter().map(|e| (e.nid.get(), e.entry)).collect();
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
        let nat = Nat::new(&geometry, loaded.nat_bitmap.clone(), journal, raw.next_free_nid.get());
        let logs = loaded.logs.map(|log| open_log(log, &table));
        let checkpoint = CheckpointState::new(loaded.pack, loaded.sit_bitmap, &loaded.sit_journal);
        let orphans = loaded.orphans.into_iter().collect();
        let parts = Parts { checkpoint, table, logs, nat, orphans, warnings };
        let mut volume = Volume::assemble(device, geometry, options, clock, parts)?;
        volume.journal.guarded = guard.is_set;
        volume.journal.guard_is_torn = guard.is_torn;
        volume.journal.superblock_unreadable = guard.unreadable;
        if guard.is_set {
            let area = Area::find_live(&*volume.device, &volume.geometry)?;
            volume.journal.owners = volume.recover_journal(area, recovery.extent, finds_live)?;
        }
        volume.expect_all_entries(recovery);
        Ok(volume)
    }

    /// Puts a volume together from what was read of it.
    pub(crate) fn assemble(
        device: Arc<dyn BlockDevice>,
        geometry: Geometry,
        options: OpenOptions,
        clock: Arc<dyn Clock>,
        parts: Parts,
    ) -> Result<Volume> {
        let Parts { checkpoint, table, logs, nat, orphans, warnings } = parts;
        let placement = (options.placement.make)(options.logs)
            .ok_or(basalt_vfs::Error::Invalid("the placement does not work with this number of logs"))?;
        let now = clock.now();
        let raw = checkpoint.raw;
        Ok(Volume {
            checkpoint,
            placement,
            nat,
            nodes: NodeCache::default(),
            inodes: FxHashMap::default(),
            clean_pages: CleanPages::default(),
            dirty_inodes: BTreeSet::new(),
            ordered: BTreeMap::new(),
            dirty_file_pages: 0,
            dirty_directory_pages: 0,
            written_to: (0, 0),
            orphans,
            counts: Counts::of(&raw),
            since: SinceCheckpoint::default(),
            checkpoint_under_way: false,
            changed: false,
            closing: false,
            failed: None,
            cleaner: Cleaner::default(),
            undiscarded: BTreeSet::new(),
            journal: Journal::default(),
            behind: None,
            cleaning: CleaningStatistics::default(),
            counters: Counters::default(),
            checkpoints: CheckpointStatistics::default(),
            last_used: clock.uptime(),
            times_are_set: false,
            warnings,
            opened_at: now.seconds,
            // Distinct from one mount to the next: the version rises with every checkpoint.
            generation: (raw.checkpoint_ver.get() as u32).wrapping_mul(0x9E37_79B9) ^ now.nanoseconds,
            writer: BlockWriter::new(6),
            table,
            logs,
            geometry,
            clock,
            options,
            device,
        })
    }

    /// What was written, cleaned and committed since it was opened.
    pub(crate) fn statistics(&self) -> Statistics {
        Statistics { written: self.counters, cleaning: self.cleaning, checkpoints: self.checkpoints }
    }

    /// Whether changes are possible.
    pub(crate) fn is_writable(&self) -> bool {
        !self.options.read_only && self.failed.is_none()
    }

    /// Fails if changes are impossible.
    pub(crate) fn expect_writable(&self) -> Result<()> {
        if self.is_writable() { Ok(()) } else { Err(basalt_vfs::Error::ReadOnly.into()) }
    }

    /// Takes no more changes from now on: memory and device have parted, only the last checkpoint counts.
    pub(crate) fn fail(&mut self, reason: &str) {
        if self.failed.is_none() {
            tracing::error!(device = self.device.name(), reason, "volume turned read-only");
            self.failed = Some(reason.to_owned());
        }
    }

    /// Carries a change out. A failed write turns the volume read-only, and so does any failure once something has changed. What was
    /// met before that, while looking, concerns only whoever asked: the volume is as it was.
    pub(crate) fn attempt<T>(&mut self, change: impl FnOnce(&mut Volume) -> Result<T>) -> Result<T> {
        let changed_before = std::mem::replace(&mut self.changed, false);
        let result = change(self);
        let has_begun = self.changed;
        self.changed |= changed_before;
        if let Err(error) = &result
            && error.is_failure()
            && (has_begun || !error.is_from_reading())
        {
            self.fail(&error.to_string());
        }
        result
    }

    /// Seconds that the volume has ever been mounted: the time of the SIT.
    pub(crate) fn mounted_seconds(&self) -> u64 {
        let here = self.clock.now().seconds.saturating_sub(self.opened_at).max(0) as u64;
        self.checkpoint.raw.elapsed_time.get().saturating_add(here).saturating_sub(self.checkpoint.seconds_counted)
    }

    /// Seconds since the volume was opened.
    pub(crate) fn seconds_open(&self) -> u64 {
        self.clock.now().seconds.saturating_sub(self.opened_at).max(0) as u64
    }

    /// A generation for a new inode.
    pub(crate) fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    /// Whether the last shutdown was not clean.
    pub(crate) fn was_unclean(&self) -> bool {
        self.journal.guarded || !self.checkpoint.raw.flags().contains(CheckpointFlags::UMOUNT)
    }
}

fn open_log(log: crate::checkpoint::load::LoadedLog, table: &SegmentTable) -> ActiveLog {
    // A log that filled holes, or has live blocks ahead of it, cannot append: it goes on in another segment.
    let blocked = log.in_slack || table.live_blocks(log.segment).any(|offset| offset >= log.offset);
    let offset = if blocked { BLOCKS_PER_SEGMENT } else { log.offset };
    ActiveLog { segment: log.segment, offset, summary: log.summary, left: false }
}

/// The table of segments.
struct LoadedTable {
    table: SegmentTable,
    /// What is wrong with an entry, or with reading it. What can be had of it is in the table.
    wrong: Option<Error>,
}

fn load_table(device: &dyn BlockDevice, geometry: &Geometry, loaded: &Loaded) -> Result<LoadedTable> {
    let mut table = SegmentTable::new(geometry.main_segments, geometry.segments_per_section);
    let journal: BTreeMap<u32, RawSitEntry> = loaded.sit_journal.iter().map(|e| (e.segno.get(), e.entry)).collect();
    if let Some((segment, _)) = journal.iter().next_back().filter(|(segment, _)| **segment >= geometry.main_segments) {
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
                    let segment = (first + step as u32) * ENTRIES_PER_BLOCK;
                    let bad = load_sit_block(&mut table, geometry, segment, block, &journal);
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
    first: u32,
    block: &[u8],
    journal: &BTreeMap<u32, RawSitEntry>,
) -> Option<Error> {
    let Ok((entries, _)) = <[RawSitEntry]>::ref_from_prefix_with_elems(block, ENTRIES_PER_BLOCK as usize) else {
        return Some(Error::damaged("SIT", format!("segment {first}"), "short block"));
    };
    let mut wrong = None;
    for (segment, entry) in (first..geometry.main_segments).zip(entries) {
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
