//! When hotness records are read and written: at opening, in the background once in a while, and at closing.

use basalt_device::BlockDevice;
use basalt_segments::Segment;
use basalt_segments::placement::{Recalled, SegmentHints};

use super::area::Room;
use super::codec::{Found, Owner, encode};
use crate::journal::area::Area;
use crate::layout::BLOCK_SIZE;
use crate::layout::hotness::RawHotness;
use crate::lock::F2fs;
use crate::volume::Volume;

/// New records, as bytes.
struct New {
    room: Room,
    sequence: u64,
    bytes: Vec<u8>,
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
        let Some(found) = room.read(&*self.device, &self.hotness_owner()) else { return };
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

    fn hotness_owner(&self) -> Owner {
        Owner {
            uuid: self.geometry.uuid,
            seed: self.geometry.checksum_seed,
            main: self.geometry.superblock.main_blkaddr.get(),
            policy: self.options.placement.name,
        }
    }

    /// New records, if it is time for some.
    fn take_hotness(&mut self, due: Due) -> Option<New> {
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
        let live: Vec<[u8; 64]> = hints.segments.iter().map(|one| self.table.bitmap(one.segment)).collect();
        self.hotness.sequence += 1;
        self.hotness.written = written;
        let version = self.checkpoint.raw().checkpoint_ver.get();
        let bytes = encode(&self.hotness_owner(), self.hotness.sequence, version, &hints, &live);
        Some(New { room, sequence: self.hotness.sequence, bytes })
    }
}

impl F2fs {
    /// Writes new hotness records if it is time for some. A failure costs the records only, and so does a power cut: nothing is flushed.
    pub(crate) fn keep_hotness(&self, due: Due) {
        let Some(New { room, sequence, mut bytes }) = self.volume.lock().take_hotness(due) else { return };
        bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
        if bytes.len() > room.bytes() {
            return;
        }
        let uuid = self.with_volume(|volume| volume.geometry.uuid);
        if !room.is_free(&*self.device, sequence, uuid) {
            tracing::info!(block = %room.start(sequence), "hotness records are not kept: something else is in their blocks");
            self.volume.lock().hotness.room = None;
            return;
        }
        if let Err(error) = self.device.write_at(u64::from(room.start(sequence)) * BLOCK_SIZE as u64, &bytes) {
            tracing::debug!(%error, "hotness records are not kept");
            return;
        }
        let blocks = (bytes.len() / BLOCK_SIZE) as u64;
        let mut volume = self.volume.lock();
        volume.hotness.blocks = blocks;
        volume.record.kept_hotness(blocks);
    }
}
