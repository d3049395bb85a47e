//! Blocks that are read before the volume's lock is taken, for whoever will want them under it.

use std::ops::Range;

/// What was read ahead, or is being read. A write to a part of it drops it.
#[derive(Default)]
pub(super) struct ReadAhead {
    parts: Vec<Part>,
    /// The number that the next part gets.
    next: u64,
}

struct Part {
    number: u64,
    range: Range<u64>,
    /// `None` as long as they are being read.
    bytes: Option<Vec<u8>>,
}

impl ReadAhead {
    /// Makes place for these ranges instead of those before; those that are still to be read, with their numbers.
    pub(super) fn begin(&mut self, ranges: Vec<Range<u64>>) -> Vec<(u64, Range<u64>)> {
        self.parts.retain(|part| part.bytes.is_some() && ranges.contains(&part.range));
        let is_new = |range: &Range<u64>| !self.parts.iter().any(|part| part.range == *range);
        let new: Vec<_> = (self.next..).zip(ranges.into_iter().filter(is_new)).collect();
        self.next += new.len() as u64;
        self.parts.extend(new.iter().map(|(number, range)| Part {
            number: *number,
            range: range.clone(),
            bytes: None,
        }));
        new
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Takes what was read for a part, unless that was dropped since.
    pub(super) fn put(&mut self, number: u64, bytes: Vec<u8>) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.number == number) {
            part.bytes = Some(bytes);
        }
    }

    /// Drops what overlaps this range: it is being written.
    pub(super) fn drop_written(&mut self, range: &Range<u64>) {
        self.parts.retain(|part| part.range.end <= range.start || part.range.start >= range.end);
    }

    /// Copies from what was read, if all of the range is there.
    pub(super) fn copy(&self, offset: u64, buf: &mut [u8]) -> bool {
        let end = offset + buf.len() as u64;
        let found = self.parts.iter().find_map(|part| {
            let bytes = part.bytes.as_ref().filter(|_| part.range.start <= offset && end <= part.range.end)?;
            let from = (offset - part.range.start) as usize;
            Some(&bytes[from..from + buf.len()])
        });
        if let Some(bytes) = found {
            buf.copy_from_slice(bytes);
        }
        found.is_some()
    }
}
