//! A volume in memory: who owns what.
//!
//! One lock guards all of it (see `ops.rs`). Nothing here waits for the device's cache: flushes happen outside the lock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use basalt_device::BlockDevice;
use basalt_segments::cleaning::{Cleaner, Load};
use basalt_segments::{LogId, Placement, Segment, SegmentTable};

use crate::checkpoint::state::CheckpointState;
use crate::clock::Clock;
use crate::counts::Counts;
use crate::error::Result;
use crate::file::cache::Pages;
use crate::file::page_lists::PageLists;
use crate::geometry::Geometry;
use crate::hotness::state::HotnessRecords;
use crate::journal::state::Journal;
use crate::layout::Ino;
use crate::log::active::ActiveLog;
use crate::log::logs::Logs;
use crate::log::stock::SlackStock;
use crate::log::tallies::Tallies;
use crate::log::writer::BlockWriter;
use crate::node::cache::{LeadPointers, NodeCache};
use crate::node::nat::Nat;
use crate::options::{OpenOptions, Reclaim};
use crate::statistics::Record;

/// What a placement keeps of blocks may take one part in so many of what the cache may, besides.
const PLACEMENT_SHARE: usize = 8;

/// Everything the engine knows about an open volume.
pub(crate) struct Volume {
    pub device: Arc<dyn BlockDevice>,
    pub geometry: Geometry,
    pub clock: Arc<dyn Clock>,
    pub options: OpenOptions,
    pub placement: Box<dyn Placement>,
    /// What became of what each log has written.
    pub tallies: Tallies,
    /// For placements that look at them.
    pub page_lists: Option<PageLists>,
    /// The last checkpoint, and what came since.
    pub checkpoint: CheckpointState,
    pub table: SegmentTable,
    pub logs: Logs,
    pub writer: BlockWriter,
    pub nat: Nat,
    pub nodes: NodeCache,
    pub pages: Pages,
    pub orphans: BTreeSet<Ino>,
    pub counts: Counts,
    /// The volume is being closed, or is: access times stay as they are.
    pub closing: bool,
    /// Why the volume takes no more changes: an error that left memory and device apart.
    pub failed: Option<String>,
    pub cleaner: Cleaner,
    /// Slack that is reserved for the logs.
    pub slack: SlackStock,
    /// Segments that were freed, and the device was not told so.
    pub undiscarded: BTreeSet<Segment>,
    /// What commits cleaning without a checkpoint.
    pub journal: Journal,
    /// What is kept of what the placement knows.
    pub hotness: HotnessRecords,
    /// For rescue: what cleaning and fsync left behind the checkpoint.
    pub behind: Option<Box<dyn LeadPointers>>,
    /// What was written, cleaned and committed since it was opened.
    pub record: Record,
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
    pub logs: [ActiveLog; LogId::RECORDED],
    pub nat: Nat,
    pub orphans: BTreeSet<Ino>,
    pub warnings: Vec<String>,
}

impl Volume {
    /// Puts a volume together from what was read of it.
    pub(crate) fn assemble(
        device: Arc<dyn BlockDevice>,
        geometry: Geometry,
        options: OpenOptions,
        clock: Arc<dyn Clock>,
        parts: Parts,
    ) -> Result<Volume> {
        let Parts { checkpoint, table, logs, nat, orphans, warnings } = parts;
        let placement = options.placement.make(&options.placement_options()).map_err(|_| {
            basalt_vfs::Error::Invalid("the placement does not work with these logs, groups or touches")
        })?;
        placement.limit_memory(options.cache_bytes / PLACEMENT_SHARE);
        let page_lists = placement.touches().map(|touches| PageLists::new(options.cache_bytes, touches));
        let logs = Logs::new(logs, placement.more_logs());
        let now = clock.now();
        let raw = *checkpoint.raw();
        Ok(Volume {
            checkpoint,
            placement,
            page_lists,
            tallies: Tallies::new(&logs),
            nat,
            nodes: NodeCache::default(),
            pages: Pages::new(options.cache_bytes),
            orphans,
            counts: Counts::of(&raw),
            closing: false,
            failed: None,
            cleaner: Cleaner::default(),
            slack: SlackStock::preferring_cleaning(options.reclaim == Reclaim::Partial),
            undiscarded: BTreeSet::new(),
            journal: Journal::default(),
            hotness: HotnessRecords::default(),
            behind: None,
            record: Record::default(),
            last_used: clock.uptime(),
            times_are_set: false,
            warnings,
            opened_at: now.seconds,
            // Distinct from one mount to the next: the version rises with every checkpoint.
            generation: (raw.checkpoint_ver.get() as u32).wrapping_mul(0x9E37_79B9) ^ now.nanoseconds,
            writer: BlockWriter::new(logs.count()),
            table,
            logs,
            geometry,
            clock,
            options,
            device,
        })
    }

    /// What was written and what is dirty.
    pub(crate) fn load(&self) -> Load {
        let counters = self.record.written();
        let written = counters.data_blocks + counters.node_blocks;
        Load {
            reserved_sections: self.sections_reserved(),
            keep_free: self.options.keep_free,
            fills_slack: self.options.reclaim != Reclaim::Clean && !self.slack.prefers_cleaning(),
            dirty_nodes: self.nodes.dirty_count() as u64,
            dirty_pages: self.pages.dirty_pages() as u64,
            nodes_of_pages: self.pages.nodes_of_dirty() as u64,
            written: written.saturating_sub(counters.blocks_moved),
        }
    }

    /// Whether sections' worth of dead blocks wait for a checkpoint: where cleaning finds nothing to gain, that is what to do.
    pub(crate) fn is_held_by_checkpoint(&self) -> bool {
        self.table.pre_invalid_blocks() >= u64::from(self.table.section_blocks())
    }

    /// Sections that the format reserves for cleaning.
    pub(crate) fn sections_reserved(&self) -> u32 {
        self.checkpoint.raw().rsvd_segment_count.get() / self.geometry.segments_per_section
    }

    /// Whether changes are possible.
    pub(crate) fn is_writable(&self) -> bool {
        !self.options.read_only && self.failed.is_none()
    }

    /// Fails if changes are impossible.
    pub(crate) fn expect_writable(&self) -> Result<()> {
        if self.is_writable() { Ok(()) } else { Err(basalt_vfs::Error::ReadOnly.into()) }
    }

    /// Notes segments that were freed, if the device is to be told.
    pub(crate) fn note_freed(&mut self, segments: &[Segment]) {
        if self.options.discard {
            self.undiscarded.extend(segments);
        }
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
        let changed_before = self.checkpoint.since_mut().take_changes();
        let result = change(self);
        let has_begun = self.checkpoint.has_changes();
        if changed_before {
            self.checkpoint.note_change();
        }
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
        self.checkpoint.mounted_seconds(self.seconds_open())
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
        self.journal.is_guarded() || !self.checkpoint.is_of_closed_volume()
    }
}
