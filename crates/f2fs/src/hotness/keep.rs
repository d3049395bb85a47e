//! When hotness records are read and written: at opening, in the background once in a while, and at closing.

use basalt_device::BlockDevice;
use basalt_segments::Segment;
use basalt_segments::placement::{Hints, Recalled, SegmentHints};

use super::area::Room;
use super::codec::{Found, Heading, encode};
use crate::journal::area::Area;
use crate::layout::BLOCK_SIZE;
use crate::layout::hotness::RawHotness;
use crate::lock::F2fs;
use crate::volume::Volume;

/// What an open volume knows of its hotness records.
#[derive(Debug, Default)]
pub(crate) struct HotnessRecords {
    /// `None` where they are not kept.
    room: Option<Room>,
    /// Of the last ones.
    sequence: u64,
    /// Blocks that the last ones took.
    blocks: u64,
    /// What users had written by then, in blocks.
    written: u64,
}

/// How much users have to write before records are written, in blocks for each block that the last records took.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Due {
    /// A power cut takes what was learned since: 64, so that they are 1.6 percent of what is written at most.
    Periodic,
    /// Whoever mounts a volume for a minute writes records for little: 8.
    Closing,
}

impl Due {
    fn times(self) -> u64 {
        match self {
            Due::Periodic => 64,
            Due::Closing => 8,
        }
    }
}

/// Records count as so many blocks at least.
const BLOCKS_MIN: u64 = 8;

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
        let Some(found) = room.read(&*self.device, &self.geometry, self.options.placement.name) else { return };
        self.hotness.sequence = found.sequence;
        self.hotness.blocks = found.bytes.div_ceil(BLOCK_SIZE) as u64;
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

    /// The live blocks of a segment, if all of them were live before.
    fn live_of_before(&self, segment: Segment, before: &[u8; 64]) -> Option<[u8; 64]> {
        if segment.get() >= self.table.segments() {
            return None;
        }
        let now = self.table.bitmap(segment);
        let is_subset = now.iter().zip(before).all(|(now, before)| now & !before == 0);
        (is_subset && self.table.live(segment) > 0).then_some(now)
    }

    /// New records, where they go, and what they say, if it is time for some.
    fn take_hotness(&mut self, due: Due) -> Option<(Room, Heading, Hints, Vec<[u8; 64]>)> {
        if !self.is_writable() {
            return None;
        }
        let room = self.hotness.room?;
        let written = self.load().written;
        let since = written.saturating_sub(self.hotness.written);
        if since < due.times() * self.hotness.blocks.max(BLOCKS_MIN) {
            return None;
        }
        let hints = self.placement.hints(room.bytes() - size_of::<RawHotness>())?;
        let is_sound = |one: &SegmentHints| {
            one.bytes.len() <= SegmentHints::BYTES_MAX && one.segment.get() < self.table.segments()
        };
        if !hints.segments.iter().all(is_sound) {
            return None;
        }
        let live = hints.segments.iter().map(|one| self.table.bitmap(one.segment)).collect();
        self.hotness.sequence += 1;
        self.hotness.written = written;
        let heading = Heading {
            uuid: self.geometry.uuid,
            seed: self.geometry.checksum_seed,
            policy: self.options.placement.name,
            sequence: self.hotness.sequence,
            checkpoint_version: self.checkpoint.raw().checkpoint_ver.get(),
        };
        Some((room, heading, hints, live))
    }
}

impl F2fs {
    /// Writes new hotness records if it is time for some. A failure costs the records only, and so does a power cut: nothing is flushed.
    pub(crate) fn keep_hotness(&self, due: Due) {
        let Some((room, heading, hints, live)) = self.volume.lock().take_hotness(due) else { return };
        let mut bytes = encode(&heading, &hints, &live);
        if bytes.len() > room.bytes() {
            return;
        }
        bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
        if let Err(error) = self.device.write_at(room.at(heading.sequence), &bytes) {
            tracing::debug!(%error, "hotness records are not kept");
            return;
        }
        let blocks = (bytes.len() / BLOCK_SIZE) as u64;
        let mut volume = self.volume.lock();
        volume.hotness.blocks = blocks;
        volume.record.kept_hotness(blocks);
    }
}
