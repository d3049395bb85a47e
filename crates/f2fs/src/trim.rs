//! FITRIM: discards free segments on request.

use std::ops::Range;

use basalt_device::BlockDevice;
use basalt_segments::{Segment, SegmentState, Segments};

use crate::discard::{SEGMENT_BYTES, bytes_of};
use crate::error::Result;
use crate::layout::BLOCK_SIZE;
use crate::lock::F2fs;
use crate::statistics::CheckpointCause;
use crate::volume::Volume;

/// Bytes that are discarded in one go, at most.
const PIECE: u64 = 256 << 20;

/// What is to be discarded, and how far that is done.
struct Trim {
    /// The byte range.
    range: Range<u64>,
    /// The shortest run of free segments that counts, in bytes.
    minimum: u64,
    /// The next segment to look at.
    next: Segment,
    /// The end of a run that is long enough: what is left of it need not be.
    run_end: Segment,
}

impl F2fs {
    /// Discards free segments that lie within the byte range, in runs of at least `minimum` bytes. Returns bytes discarded.
    ///
    /// A checkpoint first frees what can be freed. While a piece is discarded, no log can take its segments, and nobody waits but
    /// commits. On a volume that may soon need them all, the lock is held instead: writers wait rather than run out of space.
    ///
    /// Errors: `Invalid` for a range that begins behind the volume's end or is shorter than a block, as everywhere.
    pub(crate) fn trim_free(&self, offset: u64, length: u64, minimum: u64) -> Result<u64> {
        // The superblock's number, which need not be that of the device.
        let size = self.with_volume(|volume| volume.geometry.block_count).saturating_mul(BLOCK_SIZE as u64);
        if offset >= size || length < BLOCK_SIZE as u64 {
            return Err(basalt_vfs::Error::Invalid("range to trim").into());
        }
        self.sync_all(CheckpointCause::Trim)?;
        let range = offset..offset.saturating_add(length);
        let mut trim = Trim { range, minimum, next: Segment::default(), run_end: Segment::default() };
        let mut discarded = 0;
        while let Some(bytes) = self.trim_piece(&mut trim)? {
            discarded += bytes;
        }
        Ok(discarded)
    }

    /// Discards the next piece; its bytes, or `None` where there is no more.
    fn trim_piece(&self, trim: &mut Trim) -> Result<Option<u64>> {
        let turn = self.take_turn();
        let mut volume = self.volume.lock();
        volume.expect_writable()?;
        // The other half is for whoever writes meanwhile.
        let spare =
            volume.cleaner.spare_sections(&volume.table, &volume.load()) / 2 * volume.table.segments_per_section();
        let Some(segments) = trim.next_piece(&volume, spare) else { return Ok(None) };
        let Some(bytes) = trim.bytes_of(&volume, &segments) else { return Ok(Some(0)) };
        let length = bytes.end - bytes.start;
        if spare == 0 || !volume.are_free_sections(&segments) {
            volume.device.discard(bytes.start, length)?;
            return Ok(Some(length));
        }
        let held = segments.filter_map(|segment| volume.table.take_out(segment)).collect();
        drop(volume);
        self.discard_held(&turn, held, [bytes])?;
        Ok(Some(length))
    }
}

impl Volume {
    /// Whether these segments are of free sections: no log goes on in one of them.
    fn are_free_sections(&self, segments: &Segments) -> bool {
        self.table.sections_with(segments).all(|section| self.table.is_free_section(section))
    }
}

impl Trim {
    /// The next piece of a run of free segments that is long enough: of `spare` segments at most, unless that is 0. Each segment is
    /// looked at twice, at most.
    fn next_piece(&mut self, volume: &Volume, spare: u32) -> Option<Segments> {
        if self.next >= self.run_end && !self.find_run(volume) {
            return None;
        }
        let is_free = |segment: &Segment| volume.table.state(*segment) == SegmentState::Free;
        // Pieces end at multiples of a power of two, so that few units of a device are cut in two.
        let most = (PIECE / SEGMENT_BYTES).min(if spare == 0 { u64::MAX } else { spare.into() }).max(1);
        let unit = 1 << most.ilog2();
        let start = bytes_of(&volume.geometry, self.next, 0).start / SEGMENT_BYTES;
        let most = (unit - start % unit) as usize;
        let left = Segments::new(self.next, self.run_end.get() - self.next.get());
        let first = self.next;
        // Others may have taken some since the run was found.
        let count = left.take(most).take_while(is_free).count() as u32;
        self.next = Segment::new(first.get() + count.max(1));
        Some(Segments::new(first, count))
    }

    /// Goes on to the next run of free segments that is long enough; false if there is none.
    fn find_run(&mut self, volume: &Volume) -> bool {
        let is_free = |segment: &Segment| volume.table.state(*segment) == SegmentState::Free;
        let total = volume.table.segments();
        let mut next = self.next.get();
        while let Some(first) = Segments::new(Segment::new(next), total - next).find(is_free) {
            let count = Segments::new(first, total - first.get()).take_while(is_free).count() as u32;
            next = first.get() + count;
            let run = Segments::new(first, count);
            let bytes = self.bytes_of(volume, &run).map_or(0, |bytes| bytes.end - bytes.start);
            if bytes > 0 && bytes >= self.minimum {
                (self.next, self.run_end) = (first, run.end());
                return true;
            }
        }
        self.next = Segment::new(total);
        false
    }

    /// The whole blocks of these segments that lie in the range, in bytes; `None` if there is none.
    fn bytes_of(&self, volume: &Volume, segments: &Segments) -> Option<Range<u64>> {
        let all = bytes_of(&volume.geometry, segments.start(), segments.len() as u32);
        // Past the last block of all there is nothing to round up to.
        let from = all.start.max(self.range.start).checked_next_multiple_of(BLOCK_SIZE as u64)?;
        let to = all.end.min(self.range.end);
        let length = to.saturating_sub(from) / BLOCK_SIZE as u64 * BLOCK_SIZE as u64;
        (length > 0).then_some(from..from + length)
    }
}
