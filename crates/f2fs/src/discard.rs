//! Telling the device which segments are free: once a commit has freed them, in pieces, while nobody waits.
//!
//! A discard may take as long as a write (an image file gives its blocks back, an SD card erases), and under constant cleaning what was
//! freed is soon in use again: so freed segments are only noted, and those that are still free are discarded in the background, and at closing.

use std::time::Duration;

use basalt_device::BlockDevice;
use basalt_segments::cleaning::Pressure;
use basalt_segments::{Segment, SegmentState};

use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::lock::F2fs;
use crate::mutant::{self, Mutant};
use crate::volume::Volume;

/// Segments that are discarded in one go: so many cannot be taken meanwhile, and commits wait.
const PIECE: usize = 4;
/// Pause between two of them.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

impl Volume {
    /// Takes up to `most` segments off the list that are still free, and keeps everybody from using them.
    fn hold_undiscarded(&mut self, most: usize) -> Vec<Segment> {
        let mut held = Vec::new();
        while held.len() < most
            && let Some(segment) = self.undiscarded.pop_first()
        {
            if self.table.state(segment) == SegmentState::Free {
                if !mutant::active(Mutant::DiscardedInUse) {
                    self.table.hold(segment);
                }
                held.push(segment);
            }
        }
        held
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
        // Nothing is released by others meanwhile. Whoever has the turn may free more.
        let Some(_turn) = self.try_turn() else { return true };
        let (held, main) = {
            let mut volume = self.volume.lock();
            if !volume.is_writable() {
                return false;
            }
            if most != usize::MAX && volume.pressure() == Pressure::Low {
                // All that is free is wanted.
                return !volume.undiscarded.is_empty();
            }
            (volume.hold_undiscarded(most), volume.geometry.main)
        };
        for (segment, count) in runs(&held) {
            let block = u64::from(main) + u64::from(segment.get()) * u64::from(BLOCKS_PER_SEGMENT);
            let length = u64::from(count) * u64::from(BLOCKS_PER_SEGMENT) * BLOCK_SIZE as u64;
            if let Err(error) = self.device.discard(block * BLOCK_SIZE as u64, length) {
                // Only a hint.
                tracing::warn!(%error, "discard failed");
            }
        }
        let mut volume = self.volume.lock();
        if !mutant::active(Mutant::DiscardedInUse) {
            volume.table.release(&held);
        }
        !volume.undiscarded.is_empty()
    }
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
