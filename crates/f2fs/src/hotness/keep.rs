//! When hotness records are read and written: at opening, in the background once in a while, and at closing.

use basalt_device::BlockDevice;
use basalt_segments::Segment;
use basalt_segments::placement::{Hints, Recalled, SegmentHints};

use super::area::Room;
use super::codec::{self, Before, Found, Owner};
use crate::journal::area::Area;
use crate::layout::BLOCK_SIZE;
use crate::layout::hotness::RawHotness;
use crate::lock::F2fs;
use crate::volume::Volume;

/// New records, which become blocks without the volume's lock.
struct New {
    room: Room,
    /// It was looked whether the room is free.
    is_free: bool,
    owner: Owner,
    sequence: u64,
    checkpoint_version: u64,
    hints: Hints,
    /// What each of their segments is like.
    segments: Vec<Before>,
}

/// How much users have to write before records are written, in blocks for each block that the last records took.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Due {
    /// A power cut takes what was learned since: 256, so that they are 0.4 percent of what is written, once they have their size.
    Periodic,
    /// Whoever mounts a volume for a minute writes records for little: 8.
    Closing,
}

impl Due {
    fn times(self) -> u64 {
        match self {
            Due::Periodic => 256,
            Due::Closing => 8,
        }
    }
}

/// Records count as so many blocks at least.
const BLOCKS_MIN: u64 = 8;
/// Fewer dead blocks than these do not tell a segment from one that is full: anything that is there now is among its live blocks.
const DEAD_MIN: u32 = 8;

impl Volume {
    /// Tells the placement what it knew when the volume was open before, of segments to which nothing was written since. Read errors and
    /// damage cost what was known.
    pub(crate) fn recall_hotness(&mut self) {
        // Those that learn nothing have no records, and no block is read for them.
        if self.placement.is_by_type_alone() {
            return;
        }
        let Ok(journal) = Area::find(&*self.device, &self.geometry) else { return };
        let Some(room) = Room::of(&self.geometry, journal) else { return };
        self.hotness.room = Some(room);
        let Some(found) = room.read(&*self.device, &self.hotness_owner()) else { return };
        self.hotness.sequence = found.sequence;
        if !found.is_of_owner {
            return;
        }
        self.hotness.blocks = found.blocks as u64;
        let recalled = self.recall(&found);
        tracing::debug!(recalled, kept = found.segments.len(), "segments with hotness records");
        self.record.recalled_hotness(recalled as u64);
    }

    fn recall(&self, found: &Found) -> usize {
        let now: Vec<Option<[u8; 64]>> =
            found.segments.iter().map(|(segment, before, _)| self.live_of_before(*segment, before)).collect();
        let unchanged = found.segments.iter().zip(&now).filter_map(|((segment, _, bytes), live)| {
            live.as_ref().map(|live| Recalled { segment: *segment, bytes, live })
        });
        let unchanged: Vec<Recalled<'_>> = unchanged.collect();
        self.placement.recall(&found.general, &unchanged);
        unchanged.len()
    }

    /// The live blocks of a segment, if they are of before: it was not modified since, or all of them are among the live ones of then, and
    /// that says something.
    fn live_of_before(&self, segment: Segment, before: &Before) -> Option<[u8; 64]> {
        let is_other =
            segment.get() >= self.table.segments() || self.table.kind(segment).is_node() != before.holds_nodes;
        if is_other || self.table.live(segment) == 0 {
            return None;
        }
        let now = self.table.bitmap(segment);
        let is_unmodified = self.table.modified(segment) == before.modified;
        let is_subset = now.iter().zip(&before.live).all(|(now, before)| now & !before == 0);
        let dead: u32 = before.live.iter().map(|byte| byte.count_zeros()).sum();
        (is_subset && (is_unmodified || dead >= DEAD_MIN)).then_some(now)
    }

    fn hotness_owner(&self) -> Owner {
        Owner {
            uuid: self.geometry.uuid,
            seed: self.geometry.checksum_seed,
            main: self.geometry.superblock.main_blkaddr.get(),
            policy: self.options.placement.name,
        }
    }

    /// New records, if it is time for some. Nobody else gets any before they are [done](Self::end_hotness).
    fn begin_hotness(&mut self, due: Due) -> Option<New> {
        let room = self.hotness.room?;
        let written = self.load().written;
        let since = written.saturating_sub(self.hotness.written);
        let is_due = since >= due.times() * self.hotness.blocks.max(BLOCKS_MIN);
        if !is_due || self.hotness.is_busy || !self.is_writable() {
            return None;
        }
        let hints = self.placement.hints(codec::capacity(room.blocks()) - size_of::<RawHotness>())?;
        let is_sound = |one: &SegmentHints| {
            one.bytes.len() <= SegmentHints::BYTES_MAX && one.segment.get() < self.table.segments()
        };
        if !hints.segments.iter().all(is_sound) {
            return None;
        }
        let now = |one: &SegmentHints| Before {
            holds_nodes: self.table.kind(one.segment).is_node(),
            modified: self.table.modified(one.segment),
            live: self.table.bitmap(one.segment),
        };
        let segments = hints.segments.iter().map(now).collect();
        let sequence = codec::next(self.hotness.sequence);
        (self.hotness.sequence, self.hotness.written, self.hotness.is_busy) = (sequence, written, true);
        Some(New {
            room,
            is_free: self.hotness.is_free,
            owner: self.hotness_owner(),
            sequence,
            checkpoint_version: self.checkpoint.raw().checkpoint_ver.get(),
            hints,
            segments,
        })
    }

    /// New records were written, in so many blocks; `None`: they are not kept from now on.
    fn end_hotness(&mut self, blocks: Option<u64>) {
        self.hotness.is_busy = false;
        match blocks {
            Some(blocks) => {
                (self.hotness.is_free, self.hotness.blocks) = (true, blocks);
                self.record.kept_hotness(blocks);
            }
            None => self.hotness.room = None,
        }
    }
}

impl F2fs {
    /// Writes new hotness records if it is time for some. A failure costs the records only, and so does a power cut: nothing is flushed.
    pub(crate) fn keep_hotness(&self, due: Due) {
        let Some(new) = self.volume.lock().begin_hotness(due) else { return };
        let blocks = self.write_hotness(&new);
        self.volume.lock().end_hotness(blocks);
    }

    /// How many blocks were written; `None` if they cannot be.
    fn write_hotness(&self, new: &New) -> Option<u64> {
        let New { room, owner, sequence, .. } = new;
        let bytes = codec::encode(owner, *sequence, new.checkpoint_version, &new.hints, &new.segments);
        if bytes.len() > room.blocks() * BLOCK_SIZE {
            return None;
        }
        if !new.is_free
            && let Some(found) = room.find_foreign(&*self.device)
        {
            tracing::warn!(
                device = self.device.name(),
                "hotness records are not kept: block {found} in front of segment 0 holds something that is not Basalt's, or cannot be read"
            );
            return None;
        }
        match self.device.write_at(u64::from(room.start(*sequence)) * BLOCK_SIZE as u64, &bytes) {
            Ok(()) => Some((bytes.len() / BLOCK_SIZE) as u64),
            Err(error) => {
                tracing::warn!(%error, "hotness records are not kept");
                None
            }
        }
    }
}
