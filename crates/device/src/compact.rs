//! A device in memory on which a block whose bytes are all alike takes hardly any.

use parking_lot::RwLock;

use crate::block::{BlockDevice, Result};
use crate::range::{self, total_length};

/// Bytes of a block, the unit that is kept as one byte or as all of them.
const BLOCK: usize = 4096;
/// Blocks whose table is allocated together.
const TABLE: usize = 512;
/// Bytes that a table covers.
const REACH: u64 = (TABLE * BLOCK) as u64;

/// A block of 4 KiB, kept as one byte where its bytes are all alike: if it was never written, or last as a whole.
#[derive(Debug, Clone)]
pub struct CompactBlock(Kept);

#[derive(Debug, Clone)]
enum Kept {
    /// This byte throughout.
    Alike(u8),
    /// These bytes, [`BLOCK`] of them.
    Bytes(Box<[u8]>),
}

impl Default for CompactBlock {
    /// Zeros.
    fn default() -> CompactBlock {
        CompactBlock(Kept::Alike(0))
    }
}

impl CompactBlock {
    /// A block that holds these bytes, 4 KiB.
    ///
    /// # Panics
    /// If there are more.
    pub fn from_bytes(bytes: &[u8]) -> CompactBlock {
        let mut block = CompactBlock::default();
        block.write(0, bytes);
        block
    }

    /// Whether it takes 4 KiB of memory.
    pub fn is_allocated(&self) -> bool {
        matches!(self.0, Kept::Bytes(_))
    }

    /// Reads from byte `start` on.
    ///
    /// # Panics
    /// If the buffer reaches past the block's end.
    pub fn read(&self, start: usize, buf: &mut [u8]) {
        assert!(start + buf.len() <= BLOCK, "{} bytes at {start} of a block", buf.len());
        match &self.0 {
            Kept::Alike(byte) => buf.fill(*byte),
            Kept::Bytes(bytes) => buf.copy_from_slice(&bytes[start..start + buf.len()]),
        }
    }

    /// Puts the whole block behind the bytes of a buffer.
    pub fn append_to(&self, buf: &mut Vec<u8>) {
        match &self.0 {
            Kept::Alike(byte) => buf.resize(buf.len() + BLOCK, *byte),
            Kept::Bytes(bytes) => buf.extend_from_slice(bytes),
        }
    }

    /// Writes from byte `start` on.
    ///
    /// # Panics
    /// If the bytes reach past the block's end.
    pub fn write(&mut self, start: usize, buf: &[u8]) {
        assert!(start + buf.len() <= BLOCK, "{} bytes at {start} of a block", buf.len());
        match (&mut self.0, alike(buf)) {
            (kept, Some(byte)) if buf.len() == BLOCK => *kept = Kept::Alike(byte),
            (Kept::Alike(byte), new) if buf.is_empty() || new == Some(*byte) => {}
            (Kept::Alike(byte), _) => {
                let mut bytes = vec![*byte; BLOCK].into_boxed_slice();
                bytes[start..start + buf.len()].copy_from_slice(buf);
                self.0 = Kept::Bytes(bytes);
            }
            (Kept::Bytes(bytes), _) => bytes[start..start + buf.len()].copy_from_slice(buf),
        }
    }
}

/// The byte that all bytes are, if they are alike. Unlike ones are told apart by the first few.
fn alike(bytes: &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    (*rest == bytes[..rest.len()]).then_some(*first)
}

/// A device in memory for volumes whose files hold one byte throughout: 16 bytes for a block of 4 KiB whose bytes are all alike (written as
/// a whole, or never), 4 KiB for any other. [`MemoryDevice`](crate::MemoryDevice) has snapshots and digests, and serves threads side by side;
/// this one lets one writer in at a time.
///
/// ```
/// use basalt_device::{BlockDevice, CompactDevice};
///
/// let device = CompactDevice::new(1 << 30, 512);
/// device.write_at(1 << 20, &[7; 1 << 20])?;
/// device.write_at(4096, b"block")?;
/// assert_eq!(device.allocated(), 4096);
///
/// let mut bytes = [0; 5];
/// device.read_at(1 << 20, &mut bytes)?;
/// assert_eq!(bytes, [7; 5]);
/// # Ok::<(), basalt_device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct CompactDevice {
    size: u64,
    sector_size: u32,
    /// Tables in the order of their blocks; without one, all its blocks are zeros.
    tables: RwLock<Vec<Option<Box<[CompactBlock]>>>>,
}

impl CompactDevice {
    const NAME: &str = "memory";

    /// A device of `size` bytes that reads as zeros. `sector_size` is what [`BlockDevice::sector_size`] reports, rounded up to a power of
    /// two of at least 512; requests need no alignment.
    pub fn new(size: u64, sector_size: u32) -> CompactDevice {
        CompactDevice {
            size,
            sector_size: sector_size.clamp(512, 1 << 16).next_power_of_two(),
            tables: RwLock::default(),
        }
    }

    /// Bytes of the blocks that are kept as they are.
    pub fn allocated(&self) -> u64 {
        let tables = self.tables.read();
        let blocks = tables.iter().flatten().flat_map(|table| table.iter());
        blocks.filter(|block| block.is_allocated()).count() as u64 * BLOCK as u64
    }
}

/// Cuts a byte range into (table, block in it, first byte within the block, length).
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let end = offset + length;
    let mut at = offset;
    std::iter::from_fn(move || {
        let start = (at % BLOCK as u64) as usize;
        let length = (BLOCK - start).min(usize::try_from(end - at).unwrap_or(usize::MAX));
        // A device whose tables exceed the address space cannot have been written to.
        let table = usize::try_from(at / REACH).unwrap_or(usize::MAX);
        let block = (at % REACH) as usize / BLOCK;
        at += length as u64;
        (length > 0).then_some((table, block, start, length))
    })
}

impl BlockDevice for CompactDevice {
    fn name(&self) -> &str {
        CompactDevice::NAME
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        range::check(CompactDevice::NAME, "read", offset, buf.len() as u64, self.size)?;
        let tables = self.tables.read();
        let mut rest = buf;
        for (table, block, start, length) in pieces(offset, rest.len() as u64) {
            let (now, later) = rest.split_at_mut(length);
            match tables.get(table).and_then(Option::as_ref) {
                Some(table) => table[block].read(start, now),
                None => now.fill(0),
            }
            rest = later;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.write_vectored_at(offset, &[buf])
    }

    fn write_vectored_at(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        range::check(CompactDevice::NAME, "write", offset, total_length(slices), self.size)?;
        let mut tables = self.tables.write();
        let mut at = offset;
        for slice in slices {
            let mut rest = *slice;
            for (table, block, start, length) in pieces(at, slice.len() as u64) {
                let (now, later) = rest.split_at(length);
                if tables.len() <= table {
                    tables.resize(table + 1, None);
                }
                let table = tables[table].get_or_insert_with(|| vec![CompactBlock::default(); TABLE].into());
                table[block].write(start, now);
                rest = later;
            }
            at += slice.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        range::check(CompactDevice::NAME, "discard", offset, length, self.size)?;
        let end = offset + length;
        let mut tables = self.tables.write();
        for (first, table) in (0_u64..).map(|number| number * REACH).zip(tables.iter_mut()) {
            let (from, to) = (first.max(offset), (first + REACH).min(end));
            if from >= to {
                continue;
            }
            if to - from == REACH {
                *table = None;
            }
            let Some(table) = table else { continue };
            for (_, block, start, length) in pieces(from, to - from) {
                table[block].write(start, &[0; BLOCK][..length]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceError;

    #[test]
    fn agrees_with_a_plain_vector() {
        // Around the edges of blocks and tables, alike and not, whole blocks and parts; a device that ends within a block.
        let size = 2 * REACH + 700;
        let device = CompactDevice::new(size, 512);
        let mut model = vec![0_u8; usize::try_from(size).unwrap()];
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..6_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let unit = if round % 5 < 3 { BLOCK as u64 } else { 1 };
            let near = [0, REACH, size][(random >> 8) as usize % 3];
            let offset = (near.saturating_sub(5 * BLOCK as u64) + (random >> 16) % (10 * BLOCK as u64)).min(size);
            let offset = offset / unit * unit;
            let length = ((random >> 40) % (3 * BLOCK as u64) / unit * unit).min(size - offset);
            let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
            let mut bytes = vec![(round % 3) as u8; range.len()];
            match random >> 60 {
                0..4 => {
                    device.discard(offset, length).unwrap();
                    model[range].fill(0);
                }
                kind @ 4..12 => {
                    if kind < 7 {
                        bytes.iter_mut().zip(0_u64..).for_each(|(byte, at)| *byte = (at % 251) as u8);
                    }
                    let (front, back) = bytes.split_at(bytes.len() / 3);
                    device.write_vectored_at(offset, &[front, &[], back]).unwrap();
                    model[range].copy_from_slice(&bytes);
                }
                _ => {
                    device.read_at(offset, &mut bytes).unwrap();
                    assert_eq!(bytes, model[range], "{offset}, {length}");
                }
            }
        }
        let mut all = vec![0xff; model.len()];
        device.read_at(0, &mut all).unwrap();
        assert!(all == model);
        // Of the last block only a part can be discarded, and it is in use.
        device.discard(0, size).unwrap();
        assert_eq!(device.allocated(), 4096);
    }

    #[test]
    fn only_blocks_with_unlike_bytes_take_memory() {
        let device = CompactDevice::new(1 << 40, 512);
        device.write_at(0, &vec![3; 1 << 20]).unwrap();
        assert_eq!(device.allocated(), 0);
        // What a part is written with makes no difference if it is what was there.
        device.write_at(100, &[3; 8000]).unwrap();
        assert_eq!(device.allocated(), 0);
        device.write_at(8191, &[1, 2]).unwrap();
        assert_eq!(device.allocated(), 2 * 4096);
        device.write_at(4096, &[9; 4096]).unwrap();
        assert_eq!(device.allocated(), 4096);
        device.discard(0, 1 << 39).unwrap();
        assert_eq!(device.allocated(), 0);
        let outside = device.write_at((1 << 40) - 1, &[0; 2]);
        assert!(matches!(outside, Err(DeviceError::OutOfRange { .. })));
    }

    #[test]
    fn a_discard_of_nearly_a_table_leaves_the_bytes_around_it() {
        let device = CompactDevice::new(3 * REACH, 512);
        for (cut_front, cut_back) in [(1, 0), (0, 1), (100, 100), (BLOCK as u64, 0), (0, 0)] {
            device.write_at(0, &vec![7; 3 * REACH as usize]).unwrap();
            device.discard(REACH + cut_front, REACH - cut_front - cut_back).unwrap();
            let mut all = vec![0; 3 * REACH as usize];
            device.read_at(0, &mut all).unwrap();
            let kept = all.iter().filter(|byte| **byte == 7).count() as u64;
            assert_eq!(kept, 2 * REACH + cut_front + cut_back, "{cut_front} {cut_back}");
            assert!(all[(REACH + cut_front) as usize..(2 * REACH - cut_back) as usize].iter().all(|byte| *byte == 0));
        }
    }
}
