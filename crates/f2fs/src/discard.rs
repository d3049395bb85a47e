//! Telling the device which segments are free: once a commit has freed them, in pieces, while nobody waits.
//!
//! A discard may take as long as a write (an image file gives its blocks back, an SD card erases), and under constant cleaning what was
//! freed is soon in use again: so freed segments are only noted, and those that are still free are discarded in the background, and at closing.

use std::ops::Range;
use std::time::Duration;

use basalt_device::BlockDevice;
use basalt_segments::cleaning::Pressure;
use basalt_segments::{Held, Segment};

use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::lock::{F2fs, Turn};
use crate::mutant::{self, Mutant};
use crate::volume::Volume;

/// Segments that are discarded in one go: so many cannot be taken meanwhile, and commits wait.
const PIECE: usize = 4;
/// Pause between two of them.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);
/// Bytes in a segment.
pub(crate) const SEGMENT_BYTES: u64 = BLOCKS_PER_SEGMENT as u64 * BLOCK_SIZE as u64;

impl Volume {
    /// Takes up to `most` segments off the list that are still free, and keeps everybody from using them.
    fn hold_undiscarded(&mut self, most: usize) -> Vec<Held> {
        let mut held = Vec::new();
        while held.len() < most
            && let Some(segment) = self.undiscarded.pop_first()
        {
            held.extend(self.table.take_out(segment));
        }
        held
    }

    fn give_back(&mut self, held: Vec<Held>) {
        held.into_iter().for_each(|held| self.table.give_back(held));
    }
}

impl F2fs {
    /// Discards a few of the segments that were freed and still are free; whether there are more.
    pub(crate) fn discard_some(&self) -> bool {
        self.discard_freed(PIECE)
    }

    /// Discards all segments that were freed and still are free. For closing.
    pub(crate) fn discard_all(&self) {
        self.discard_freed(usize::MAX);
    }

    fn discard_freed(&self, most: usize) -> bool {
        // Whoever has the turn may free more, so there is no point in waiting for it.
        let Some(turn) = self.try_turn() else { return true };
        let (held, ranges) = {
            let mut volume = self.volume.lock();
            if !volume.is_writable() {
                return false;
            }
            if most != usize::MAX && volume.pressure() == Pressure::Low {
                // Writers want every free segment. There is time when they have room again.
                return false;
            }
            let held = volume.hold_undiscarded(most);
            let segments: Vec<Segment> = held.iter().map(Held::segment).collect();
            let ranges: Vec<Range<u64>> =
                runs(&segments).into_iter().map(|(first, count)| bytes_of(&volume.geometry, first, count)).collect();
            (held, ranges)
        };
        if let Err(error) = self.discard_held(&turn, held, ranges) {
            // Only a hint.
            tracing::warn!(%error, "discard failed");
        }
        self.with_volume(|volume| !volume.undiscarded.is_empty())
    }

    /// Discards byte ranges within segments that were taken out, and gives the segments back. The volume's lock is free meanwhile.
    /// `_turn` keeps commits from releasing them too early: they count as prefree.
    ///
    /// Errors: the first one of the device. The other ranges are discarded all the same.
    pub(crate) fn discard_held(
        &self,
        _turn: &Turn<'_>,
        mut held: Vec<Held>,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<()> {
        if mutant::active(Mutant::DiscardedInUse) {
            self.volume.lock().give_back(std::mem::take(&mut held));
        }
        let mut result = Ok(());
        for range in ranges {
            result = result.and(self.device.discard(range.start, range.end - range.start));
        }
        self.volume.lock().give_back(held);
        Ok(result?)
    }
}

/// Where neighbouring segments are on the device, in bytes.
pub(crate) fn bytes_of(geometry: &Geometry, first: Segment, count: u32) -> Range<u64> {
    let start = u64::from(geometry.in_segment(first, 0)) * BLOCK_SIZE as u64;
    start..start + u64::from(count) * SEGMENT_BYTES
}

/// Neighbouring numbers of a sorted list, as first and count.
fn runs(sorted: &[Segment]) -> Vec<(Segment, u32)> {
    let mut runs: Vec<(Segment, u32)> = Vec::new();
    for &number in sorted {
        match runs.last_mut() {
            Some((first, count)) if first.get() + *count == number.get() => *count += 1,
            _ => runs.push((number, 1)),
        }
    }
    runs
}
