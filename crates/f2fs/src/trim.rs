//! FITRIM: discards free segments on request.

use crate::error::Result;
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::lock::F2fs;
use crate::statistics::CheckpointCause;
use basalt_segments::{Segment, SegmentState, Segments};

const SEGMENT_BYTES: u64 = BLOCKS_PER_SEGMENT as u64 * BLOCK_SIZE as u64;

impl F2fs {
    /// Discards free segments that lie within the byte range, in runs of at least `minimum` bytes. Returns bytes discarded.
    ///
    /// A checkpoint first frees what can be freed. The volume is locked for one run at a time, so that no run is allocated
    /// while it is discarded.
    ///
    /// Errors: `Invalid` for a range that begins behind the volume's end or is shorter than a block, as everywhere.
    pub(crate) fn trim_free(&self, offset: u64, length: u64, minimum: u64) -> Result<u64> {
        // The superblock's number, which need not be that of the device.
        let size = self.with_volume(|volume| volume.geometry.block_count).saturating_mul(BLOCK_SIZE as u64);
        if offset >= size || length < BLOCK_SIZE as u64 {
            return Err(basalt_vfs::Error::Invalid("range to trim").into());
        }
        self.sync_all(CheckpointCause::Trim)?;
        let end = offset.saturating_add(length);
        let mut next = Segment::default();
        let mut discarded = 0;
        loop {
            let step = self.with_volume(|volume| -> Result<Option<(Segment, u64)>> {
                volume.expect_writable()?;
                let total = volume.table.segments();
                let is_free = |segment: &Segment| volume.table.state(*segment) == SegmentState::Free;
                let from = |first: Segment| Segments::new(first, total.saturating_sub(first.get()));
                let Some(first) = from(next).find(is_free) else { return Ok(None) };
                let last = from(first).find(|segment| !is_free(segment)).unwrap_or(Segment::new(total));
                let start = u64::from(volume.geometry.main) * BLOCK_SIZE as u64;
                let from = (start + u64::from(first.get()) * SEGMENT_BYTES).max(offset);
                // Past the last block of all there is nothing to round up to.
                let Some(from) = from.checked_next_multiple_of(BLOCK_SIZE as u64) else { return Ok(None) };
                let to = (start + u64::from(last.get()) * SEGMENT_BYTES).min(end);
                let bytes = to.saturating_sub(from) / BLOCK_SIZE as u64 * BLOCK_SIZE as u64;
                if bytes == 0 || bytes < minimum {
                    return Ok(Some((last, 0)));
                }
                volume.device.discard(from, bytes)?;
                Ok(Some((last, bytes)))
            })?;
            let Some((behind, bytes)) = step else { return Ok(discarded) };
            next = behind;
            discarded += bytes;
        }
    }
}
