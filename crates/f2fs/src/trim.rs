//! FITRIM: discards free segments on request.

use std::ops::Range;

use basalt_device::BlockDevice;
use basalt_segments::SegmentState;
use basalt_segments::cleaning::Pressure;

use crate::discard::{PIECE, SEGMENT_BYTES};
use crate::error::Result;
use crate::layout::BLOCK_SIZE;
use crate::lock::F2fs;
use crate::statistics::CheckpointCause;
use crate::volume::Volume;

/// What is to be discarded, and how far that is done.
struct Trim {
    /// The byte range.
    range: Range<u64>,
    /// The shortest run of free segments that counts, in bytes.
    minimum: u64,
    /// The next segment to look at.
    segment: u32,
    /// The end of a run that is long enough. Below it, what is left of the run may be shorter.
    run_end: u32,
}

impl F2fs {
    /// Discards free segments that lie within the byte range, in runs of at least `minimum` bytes. Returns bytes discarded.
    ///
    /// A checkpoint first frees what can be freed. While a piece of a few segments is discarded, no log can take these segments, and
    /// nothing else waits but commits.
    ///
    /// Errors: `Invalid` for a range that begins behind the volume's end or is shorter than a block, as everywhere.
    pub(crate) fn trim_free(&self, offset: u64, length: u64, minimum: u64) -> Result<u64> {
        // The superblock's number, which need not be that of the device.
        let size = self.with_volume(|volume| volume.geometry.block_count).saturating_mul(BLOCK_SIZE as u64);
        if offset >= size || length < BLOCK_SIZE as u64 {
            return Err(basalt_vfs::Error::Invalid("range to trim").into());
        }
        self.sync_all(CheckpointCause::Trim)?;
        let mut trim = Trim { range: offset..offset.saturating_add(length), minimum, segment: 0, run_end: 0 };
        let mut discarded = 0;
        while let Some(bytes) = self.trim_piece(&mut trim)? {
            discarded += bytes;
        }
        Ok(discarded)
    }

    /// Discards the next piece; its bytes, or `None` at the end of the volume.
    fn trim_piece(&self, trim: &mut Trim) -> Result<Option<u64>> {
        let turn = self.take_turn();
        let mut volume = self.volume.lock();
        volume.expect_writable()?;
        let Some(segments) = trim.next_piece(&volume) else { return Ok(None) };
        let Some(bytes) = trim.bytes_of(&volume, &segments).filter(|bytes| !bytes.is_empty()) else {
            return Ok(Some(0));
        };
        let length = bytes.end - bytes.start;
        if volume.pressure() == Pressure::Low {
            // Writers want every free segment: they wait for the lock instead of running out.
            volume.device.discard(bytes.start, length)?;
            return Ok(Some(length));
        }
        let held: Vec<u32> = segments.collect();
        held.iter().for_each(|segment| volume.table.hold(*segment));
        drop(volume);
        self.discard_held(&turn, &held, [bytes])?;
        Ok(Some(length))
    }
}

impl Trim {
    /// The next few free segments of a run that is long enough, or of none. They are looked at only once.
    fn next_piece(&mut self, volume: &Volume) -> Option<Range<u32>> {
        let total = volume.table.segments();
        let is_free = |segment: &u32| volume.table.state(*segment) == SegmentState::Free;
        let first = (self.segment..total).find(is_free)?;
        let run = first..(first..total).find(|segment| !is_free(segment)).unwrap_or(total);
        if first >= self.run_end {
            let bytes = self.bytes_of(volume, &run).map_or(0, |bytes| bytes.end - bytes.start);
            if bytes == 0 || bytes < self.minimum {
                self.segment = run.end;
                return Some(first..first);
            }
            self.run_end = run.end;
        }
        let last = run.end.min(self.run_end).min(first + PIECE as u32);
        self.segment = last;
        Some(first..last)
    }

    /// The whole blocks of these segments that lie in the range, in bytes.
    fn bytes_of(&self, volume: &Volume, segments: &Range<u32>) -> Option<Range<u64>> {
        let main = u64::from(volume.geometry.main) * BLOCK_SIZE as u64;
        let from = (main + u64::from(segments.start) * SEGMENT_BYTES).max(self.range.start);
        // Past the last block of all there is nothing to round up to.
        let from = from.checked_next_multiple_of(BLOCK_SIZE as u64)?;
        let to = (main + u64::from(segments.end) * SEGMENT_BYTES).min(self.range.end);
        let length = to.saturating_sub(from) / BLOCK_SIZE as u64 * BLOCK_SIZE as u64;
        Some(from..from + length)
    }
}
