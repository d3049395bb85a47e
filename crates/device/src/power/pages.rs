//! Flash pages of several blocks, which a power cut tears as one.

use std::collections::HashMap;

use crate::MemoryDevice;
use crate::block::BlockDevice;

/// Bytes of a block: what is programmed, or not, as one.
const BLOCK: u64 = 4096;

/// A part of a device whose flash pages are known.
///
/// Blocks that are written to a page in sequence, each behind the one before, are programmed beside those that are there, and keep them. For anything else
/// the device reads the page, changes it, and writes it back: a power cut that meets such a write may lose all that the page holds, also what was durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashPages {
    /// Bytes of a page.
    pub bytes: u64,
    /// Where the first one begins, in bytes; pages follow up to the end of the device.
    pub from: u64,
}

/// Where the last write to each page ended, in bytes from its beginning.
#[derive(Debug, Clone, Default)]
pub(super) struct Ends(HashMap<u64, u64>);

impl FlashPages {
    /// Pages of one block.
    pub const BLOCKS: FlashPages = FlashPages { bytes: BLOCK, from: 0 };

    /// The range of bytes of all pages that the range from `offset` to `end` touches.
    #[must_use]
    pub const fn around(self, offset: u64, end: u64) -> (u64, u64) {
        let begin =
            if offset < self.from { offset } else { self.from + (offset - self.from) / self.bytes * self.bytes };
        let stop = if end < self.from { end } else { self.from + (end - self.from).div_ceil(self.bytes) * self.bytes };
        (begin, stop)
    }

    /// The parts of a range that lie in pages: where a page begins, and the range within it.
    fn parts(self, offset: u64, length: u64) -> impl Iterator<Item = (u64, u64, u64)> {
        let end = offset + length;
        let mut at = offset.max(self.from);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let page = self.from + (at - self.from) / self.bytes * self.bytes;
            let (begin, stop) = (at - page, (end - page).min(self.bytes));
            at = page + stop;
            Some((page, begin, stop))
        })
    }
}

impl Ends {
    /// A write reaches a device. Returns what is lost if it is torn: ranges of bytes, all of a page or what is written there.
    pub(super) fn note(
        &mut self,
        pages: FlashPages,
        device: &MemoryDevice,
        offset: u64,
        length: u64,
    ) -> Vec<(u64, u64)> {
        let torn = pages.parts(offset, length).map(|(page, begin, stop)| {
            let end = self.0.entry(page).or_insert_with(|| end_of_content(device, page, pages.bytes));
            let is_behind = begin >= *end;
            *end = stop;
            if is_behind { (page + begin, page + stop) } else { (page, page + pages.bytes) }
        });
        torn.collect()
    }
}

/// Where the content of a page ends of which nothing is known: behind its last block that holds something.
fn end_of_content(device: &MemoryDevice, page: u64, bytes: u64) -> u64 {
    let mut content = vec![0; bytes.min(device.size().saturating_sub(page)) as usize];
    if device.read_at(page, &mut content).is_err() {
        return bytes;
    }
    content.iter().rposition(|byte| *byte != 0).map_or(0, |last| (last as u64 / BLOCK + 1) * BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: FlashPages = FlashPages { bytes: 4 * BLOCK, from: 8 * BLOCK };

    fn blocks(ends: &mut Ends, device: &MemoryDevice, block: u64, count: u64) -> Vec<(u64, u64)> {
        let torn = ends.note(PAGES, device, block * BLOCK, count * BLOCK);
        torn.into_iter().map(|(from, to)| (from / BLOCK, to / BLOCK)).collect()
    }

    #[test]
    fn what_is_written_behind_the_rest_of_a_page_is_torn_alone() {
        let device = MemoryDevice::new(64 * BLOCK, 512);
        let mut ends = Ends::default();
        assert_eq!(blocks(&mut ends, &device, 4, 2), [], "no pages are there");
        assert_eq!(blocks(&mut ends, &device, 7, 2), [(8, 9)]);
        assert_eq!(blocks(&mut ends, &device, 9, 1), [(9, 10)]);
        assert_eq!(blocks(&mut ends, &device, 11, 3), [(11, 12), (12, 14)]);
        // In front of what is there, or over it: the device writes the whole page again.
        assert_eq!(blocks(&mut ends, &device, 10, 1), [(8, 12)]);
        assert_eq!(blocks(&mut ends, &device, 12, 1), [(12, 16)]);
        assert_eq!(blocks(&mut ends, &device, 13, 1), [(13, 14)]);
    }

    #[test]
    fn what_a_device_held_before_counts() {
        let device = MemoryDevice::new(64 * BLOCK, 512);
        device.write_at(17 * BLOCK, &[1]).unwrap();
        let mut ends = Ends::default();
        assert_eq!(blocks(&mut ends, &device, 17, 1), [(16, 20)]);
        assert_eq!(blocks(&mut Ends::default(), &device, 18, 1), [(18, 19)]);
    }
}
