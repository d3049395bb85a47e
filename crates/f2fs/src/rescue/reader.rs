//! Reading a device that fails here and there: large requests, and around what cannot be read.

use std::ops::Range;

use basalt_device::BlockDevice;

use crate::layout::{Address, BLOCK_BITS, BLOCK_SIZE};

/// Most blocks in a request.
const REQUEST_BLOCKS: u32 = 256;
/// Ranges of bad blocks that are remembered one by one; what comes later is only counted.
const RANGES_MAX: usize = 4096;

/// Reads a device, and remembers which blocks could not be read.
pub(super) struct Reader<'a> {
    device: &'a dyn BlockDevice,
    /// Blocks of the device, a last part of one left out.
    pub(super) blocks: u32,
    /// Blocks that could not be read, neighbours joined, in the order they were met.
    pub(super) bad: Vec<Range<Address>>,
    /// How many they are, listed or not.
    pub(super) bad_blocks: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(device: &'a dyn BlockDevice) -> Reader<'a> {
        // Addresses have 32 bits: what lies behind cannot be named.
        let blocks = (device.size() >> BLOCK_BITS).min(u64::from(u32::MAX) - 1) as u32;
        Reader { device, blocks, bad: Vec::new(), bad_blocks: 0 }
    }

    /// One block; `None` if it cannot be read, or is not there.
    pub(super) fn block(&mut self, address: Address) -> Option<Vec<u8>> {
        let mut found = None;
        self.each(address..address.saturating_add(1), &mut |_, block| found = Some(block.to_vec()));
        found
    }

    /// Hands over every block of a range that can be read, in order.
    pub(super) fn each(&mut self, range: Range<Address>, handle: &mut dyn FnMut(Address, &[u8])) {
        let mut buffer =
            vec![0; REQUEST_BLOCKS.min(range.end.blocks_behind(range.start).unwrap_or(0)) as usize * BLOCK_SIZE];
        let end = range.end.min(Address::new(self.blocks));
        let mut at = range.start;
        while at < end {
            let count = REQUEST_BLOCKS.min(end - at);
            self.piece(at, count, &mut buffer, handle);
            at = at + count;
        }
    }

    /// Reads a piece; where that fails, its halves, down to single blocks.
    fn piece(&mut self, start: Address, count: u32, buffer: &mut [u8], handle: &mut dyn FnMut(Address, &[u8])) {
        let bytes = &mut buffer[..count as usize * BLOCK_SIZE];
        if self.device.read_at(u64::from(start) << BLOCK_BITS, bytes).is_ok() {
            for (address, block) in start.onward().zip(bytes.chunks_exact(BLOCK_SIZE)) {
                handle(address, block);
            }
        } else if count == 1 {
            self.note_bad(start);
        } else {
            let half = count / 2;
            self.piece(start, half, buffer, handle);
            self.piece(start + half, count - half, buffer, handle);
        }
    }

    fn note_bad(&mut self, address: Address) {
        if self.bad.iter().rev().take(2).any(|range| range.contains(&address)) {
            return;
        }
        self.bad_blocks += 1;
        let has_room = self.bad.len() < RANGES_MAX;
        match self.bad.last_mut() {
            Some(last) if last.end == address => last.end = address + 1,
            _ if has_room => self.bad.push(address..address + 1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_device::{FaultyDevice, MemoryDevice, RequestKind};

    #[test]
    fn bad_blocks_cost_only_themselves() {
        let device = FaultyDevice::new(MemoryDevice::new(1000 << BLOCK_BITS, 512));
        let bad = [5u64, 6, 300, 999];
        device.fail_when(move |request| {
            let hit = |block: &u64| request.offset < (block + 1) << BLOCK_BITS && request.end() > block << BLOCK_BITS;
            (request.kind == RequestKind::Read && bad.iter().any(hit)).then_some(std::io::ErrorKind::Other)
        });
        let mut reader = Reader::new(&device);
        let mut seen = Vec::new();
        reader.each(Address::NULL..Address::new(2000), &mut |address, _| seen.push(address.get()));
        let expected: Vec<u32> = (0..1000).filter(|block| !bad.contains(&u64::from(*block))).collect();
        assert_eq!(seen, expected);
        assert_eq!(reader.bad, [5..7, 300..301, 999..1000].map(|bad| Address::new(bad.start)..Address::new(bad.end)));
        assert_eq!(reader.bad_blocks, 4);
        assert!(reader.block(Address::new(999)).is_none() && reader.block(Address::new(1_000)).is_none());
    }
}
