//! A sparse device in memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::block::{BlockDevice, Result};
use crate::range::{self, total_length};

/// Bytes of a chunk, the unit of allocation.
const CHUNK: usize = 64 << 10;
const CHUNK_BYTES: u64 = CHUNK as u64;

/// Bytes that a digest takes together.
const DIGEST_SECTOR: u64 = 512;

/// Chunks are spread over this many maps so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// A chunk is shared between a device and its snapshots until one of them writes to it.
type Shard = HashMap<u64, Arc<[u8]>>;

/// How many requests a [`MemoryDevice`] has served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Write requests; a vectored write is one.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes discarded.
    pub bytes_discarded: u64,
}

#[derive(Default)]
struct AtomicCounters {
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    bytes_discarded: AtomicU64,
}

impl AtomicCounters {
    fn count(requests: &AtomicU64, bytes: &AtomicU64, length: u64) {
        requests.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(length, Ordering::Relaxed);
    }
}

/// A device in memory. What was never written, or was discarded, reads as zeros and takes no memory (in units of 64
/// KiB).
///
/// Every write is durable at once; [`RecordingDevice`](crate::RecordingDevice) tells what a power cut could have lost.
///
/// ```
/// use basalt_device::{BlockDevice, MemoryDevice};
///
/// let device = MemoryDevice::new(1 << 30, 512);
/// device.write_at(1 << 20, b"block")?;
/// let before = device.snapshot();
/// device.discard(1 << 20, 4096)?;
///
/// let mut bytes = [0; 5];
/// device.read_at(1 << 20, &mut bytes)?;
/// assert_eq!(&bytes, &[0; 5]);
/// before.read_at(1 << 20, &mut bytes)?;
/// assert_eq!(&bytes, b"block");
/// # Ok::<(), basalt_device::DeviceError>(())
/// ```
pub struct MemoryDevice {
    name: String,
    size: u64,
    sector_size: u32,
    shards: [RwLock<Shard>; SHARDS],
    /// Sectors of [`DIGEST_SECTOR`] bytes that cannot be read until they are written.
    unreadable: RwLock<BTreeSet<u64>>,
    counters: AtomicCounters,
}

impl MemoryDevice {
    /// A device of `size` bytes that reads as zeros. `sector_size` is what [`BlockDevice::sector_size`] reports,
    /// rounded up to a power of two of at least 512; requests need no alignment.
    pub fn new(size: u64, sector_size: u32) -> Self {
        MemoryDevice::named("memory", size, sector_size)
    }

    /// As [`new`](Self::new), with a name for messages.
    pub fn named(name: impl Into<String>, size: u64, sector_size: u32) -> Self {
        MemoryDevice {
            name: name.into(),
            size,
            sector_size: sector_size.clamp(512, 1 << 16).next_power_of_two(),
            shards: std::array::from_fn(|_| RwLock::default()),
            unreadable: RwLock::default(),
            counters: AtomicCounters::default(),
        }
    }

    /// A device with this content, as long as `bytes`.
    pub fn from_bytes(bytes: &[u8], sector_size: u32) -> Self {
        let device = MemoryDevice::new(bytes.len() as u64, sector_size);
        for (index, chunk) in (0..).zip(bytes.chunks(CHUNK)) {
            if chunk.iter().any(|&byte| byte != 0) {
                device.modify(index, 0, chunk.len(), |stored| stored.copy_from_slice(chunk));
            }
        }
        device
    }

    /// A second device with the same content, and counters at 0. Costs a pointer for each chunk: the chunks are
    /// copied when one of the two writes to them. A write that runs at the same time may be in it in part.
    pub fn snapshot(&self) -> MemoryDevice {
        MemoryDevice {
            name: self.name.clone(),
            size: self.size,
            sector_size: self.sector_size,
            shards: std::array::from_fn(|index| RwLock::new(self.shards[index].read().clone())),
            unreadable: RwLock::new(self.unreadable.read().clone()),
            counters: AtomicCounters::default(),
        }
    }

    /// Requests served since the device was made.
    pub fn counters(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            reads: get(&self.counters.reads),
            writes: get(&self.counters.writes),
            flushes: get(&self.counters.flushes),
            discards: get(&self.counters.discards),
            bytes_read: get(&self.counters.bytes_read),
            bytes_written: get(&self.counters.bytes_written),
            bytes_discarded: get(&self.counters.bytes_discarded),
        }
    }

    /// Bytes of memory that the content takes, those shared with snapshots included.
    pub fn allocated(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().len() as u64 * CHUNK_BYTES).sum()
    }

    /// A number that tells contents apart: equal contents have equal ones, others hardly ever (it has 64 bits). It is the sum of one for
    /// each sector of 512 bytes, zeros counting nothing, so that it can be kept up to date.
    pub fn digest(&self) -> u64 {
        let of = |(chunk, stored): (&u64, &Arc<[u8]>)| digest_of(chunk * CHUNK_BYTES, stored);
        let sums = self.shards.iter().map(|shard| shard.read().iter().map(of).fold(0, u64::wrapping_add));
        sums.fold(0, u64::wrapping_add)
            .wrapping_add(self.unreadable.read().iter().copied().map(digest_of_unreadable).fold(0, u64::wrapping_add))
    }

    /// What the sectors that a range touches add to the [digest](Self::digest).
    pub(crate) fn digest_of(&self, from: u64, to: u64) -> u64 {
        let (from, to) = (from / DIGEST_SECTOR * DIGEST_SECTOR, to.next_multiple_of(DIGEST_SECTOR));
        let of = |(chunk, start, end): (u64, usize, usize)| match self.shard(chunk).read().get(&chunk) {
            Some(stored) => digest_of(chunk * CHUNK_BYTES + start as u64, &stored[start..end]),
            None => 0,
        };
        let readable = pieces(from, to - from).map(of).fold(0, u64::wrapping_add);
        let unreadable = self.unreadable.read();
        let bad = unreadable.range(from / DIGEST_SECTOR..to / DIGEST_SECTOR).copied();
        bad.map(digest_of_unreadable).fold(readable, u64::wrapping_add)
    }

    /// Makes the sectors of 512 bytes that a range touches unreadable: reading them is an error until they are written or discarded.
    /// What they held is gone.
    ///
    /// # Errors
    /// When the range is not within the device.
    pub fn spoil(&self, offset: u64, length: u64) -> Result<()> {
        let (from, to) = (offset / DIGEST_SECTOR * DIGEST_SECTOR, (offset + length).next_multiple_of(DIGEST_SECTOR));
        self.discard(from, to - from)?;
        self.unreadable.write().extend(from / DIGEST_SECTOR..to / DIGEST_SECTOR);
        Ok(())
    }

    /// How many sectors of 512 bytes cannot be read.
    pub fn unreadable_sectors(&self) -> u64 {
        self.unreadable.read().len() as u64
    }

    /// What lies within a range of changed bytes can be read again.
    fn heal(&self, offset: u64, length: u64) {
        if !self.unreadable.read().is_empty() {
            let sectors = offset / DIGEST_SECTOR..(offset + length).div_ceil(DIGEST_SECTOR);
            self.unreadable.write().retain(|sector| !sectors.contains(sector));
        }
    }

    /// Fails if a range cannot be read.
    fn expect_readable(&self, offset: u64, length: u64) -> Result<()> {
        let unreadable = self.unreadable.read();
        let sectors = offset / DIGEST_SECTOR..(offset + length).div_ceil(DIGEST_SECTOR);
        if unreadable.is_empty() || unreadable.range(sectors).next().is_none() {
            return Ok(());
        }
        let source = std::io::Error::other("a sector cannot be read");
        Err(range::io_error(&self.name, "read", offset, length, source))
    }

    fn shard(&self, chunk: u64) -> &RwLock<Shard> {
        // The remainder is below SHARDS.
        &self.shards[(chunk % SHARDS as u64) as usize]
    }

    /// Changes bytes `start..end` of a chunk, which is made or unshared first.
    fn modify(&self, chunk: u64, start: usize, end: usize, change: impl FnOnce(&mut [u8])) {
        let mut shard = self.shard(chunk).write();
        let stored = shard.entry(chunk).or_insert_with(|| Arc::from(vec![0; CHUNK]));
        change(&mut Arc::make_mut(stored)[start..end]);
    }

    fn write_slice(&self, offset: u64, buf: &[u8]) {
        let mut rest = buf;
        for (chunk, start, end) in pieces(offset, buf.len() as u64) {
            let (now, later) = rest.split_at(end - start);
            self.modify(chunk, start, end, |stored| stored.copy_from_slice(now));
            rest = later;
        }
    }
}

/// What a sector that cannot be read adds to a digest.
fn digest_of_unreadable(sector: u64) -> u64 {
    (sector ^ 0xBAD).wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(32).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// What whole sectors from `offset` on add to a digest.
fn digest_of(offset: u64, bytes: &[u8]) -> u64 {
    /// An odd constant whose multiples spread over all bits: 2⁶⁴ divided by the golden ratio.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let sector = |(number, sector): (u64, &[u8])| {
        let words = sector.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let (mut any, mut sum) = (0, number.wrapping_mul(SPREAD) ^ SPREAD.rotate_left(32));
        for word in words {
            any |= word;
            sum = (sum ^ word).wrapping_mul(SPREAD);
            sum ^= sum >> 29;
        }
        sum = (sum ^ sum >> 32).wrapping_mul(SPREAD);
        if any == 0 { 0 } else { sum ^ sum >> 28 }
    };
    let sectors = (offset / DIGEST_SECTOR..).zip(bytes.chunks(DIGEST_SECTOR as usize));
    sectors.map(sector).fold(0, u64::wrapping_add)
}

/// Cuts a byte range into (chunk, first byte within it, one past the last byte within it).
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + length;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let chunk = at / CHUNK_BYTES;
        let start = at % CHUNK_BYTES;
        let length = (CHUNK_BYTES - start).min(end - at);
        at += length;
        // Both are at most CHUNK.
        Some((chunk, start as usize, (start + length) as usize))
    })
}

impl BlockDevice for MemoryDevice {
    fn name(&self) -> &str {
        &self.name
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
        let length = buf.len() as u64;
        range::check(&self.name, "read", offset, length, self.size)?;
        AtomicCounters::count(&self.counters.reads, &self.counters.bytes_read, length);
        self.expect_readable(offset, length)?;
        let mut rest = buf;
        for (chunk, start, end) in pieces(offset, length) {
            let (now, later) = rest.split_at_mut(end - start);
            match self.shard(chunk).read().get(&chunk) {
                Some(stored) => now.copy_from_slice(&stored[start..end]),
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
        let length = total_length(slices);
        range::check(&self.name, "write", offset, length, self.size)?;
        AtomicCounters::count(&self.counters.writes, &self.counters.bytes_written, length);
        self.heal(offset, length);
        let mut at = offset;
        for slice in slices {
            self.write_slice(at, slice);
            at += slice.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        range::check(&self.name, "discard", offset, length, self.size)?;
        AtomicCounters::count(&self.counters.discards, &self.counters.bytes_discarded, length);
        self.heal(offset, length);
        let end = offset + length;
        for shard in &self.shards {
            // By what is stored, not by the range: discarding a terabyte of nothing is quick.
            shard.write().retain(|&chunk, stored| {
                let first = (chunk * CHUNK_BYTES).max(offset);
                let last = ((chunk + 1) * CHUNK_BYTES).min(end);
                if first >= last {
                    return true;
                }
                if last - first == CHUNK_BYTES {
                    return false;
                }
                let within = (first - chunk * CHUNK_BYTES) as usize..(last - chunk * CHUNK_BYTES) as usize;
                Arc::make_mut(stored)[within].fill(0);
                true
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceError;

    fn content(device: &MemoryDevice) -> Vec<u8> {
        let mut bytes = vec![0xff; usize::try_from(device.size()).unwrap()];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn agrees_with_a_plain_vector() {
        // Sizes and offsets around the edges of chunks, and a device that ends within one.
        let size = 3 * CHUNK_BYTES + 700;
        let device = MemoryDevice::new(size, 512);
        let mut model = vec![0_u8; usize::try_from(size).unwrap()];
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..2_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (random >> 16) % (size + 1);
            let length = ((random >> 40) % (CHUNK_BYTES * 2)).min(size - offset);
            let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
            match round % 3 {
                0 => {
                    device.discard(offset, length).unwrap();
                    model[range].fill(0);
                }
                1 => {
                    let bytes = vec![(round % 251) as u8; range.len()];
                    let (front, back) = bytes.split_at(bytes.len() / 3);
                    device.write_vectored_at(offset, &[front, &[], back]).unwrap();
                    model[range].copy_from_slice(&bytes);
                }
                _ => {
                    let mut bytes = vec![0xee; range.len()];
                    device.read_at(offset, &mut bytes).unwrap();
                    assert_eq!(bytes, model[range]);
                }
            }
        }
        assert!(content(&device) == model);
    }

    #[test]
    fn what_is_spoilt_cannot_be_read_until_it_is_written() {
        let device = MemoryDevice::from_bytes(&[7; 8192], 512);
        let digest = device.digest();
        device.spoil(700, 600).unwrap();
        assert_eq!(device.unreadable_sectors(), 2);
        assert!(device.digest() != digest);
        for (offset, length, is_readable) in [(0, 512, true), (0, 513, false), (1535, 1, false), (1536, 10, true)] {
            assert_eq!(device.read_at(offset, &mut vec![0; length]).is_ok(), is_readable, "{length} bytes at {offset}");
        }
        let snapshot = device.snapshot();
        device.write_at(512, &[7; 1024]).unwrap();
        assert_eq!(device.digest(), digest);
        device.read_at(0, &mut [0; 8192]).unwrap();
        assert!(snapshot.read_at(0, &mut [0; 8192]).is_err());
    }

    #[test]
    fn a_snapshot_and_its_original_do_not_see_each_other() {
        let device = MemoryDevice::from_bytes(&[7; 4096], 512);
        let snapshot = device.snapshot();
        device.write_at(0, &[1]).unwrap();
        snapshot.write_at(1, &[2]).unwrap();
        assert_eq!(content(&device)[..3], [1, 7, 7]);
        assert_eq!(content(&snapshot)[..3], [7, 2, 7]);
        device.discard(0, 4096).unwrap();
        assert_eq!(content(&device)[..3], [0, 0, 0]);
        assert_eq!(content(&snapshot)[..3], [7, 2, 7]);
    }

    #[test]
    fn memory_follows_content() {
        let device = MemoryDevice::new(1 << 50, 4096);
        assert_eq!(device.allocated(), 0);
        device.write_at((1 << 50) - 1, &[1]).unwrap();
        device.write_at(5 * CHUNK_BYTES, &[1]).unwrap();
        assert_eq!(device.allocated(), 2 * CHUNK_BYTES);
        device.discard(0, 1 << 50).unwrap();
        assert_eq!(device.allocated(), 0);
        assert_eq!(MemoryDevice::from_bytes(&[0; 3 * CHUNK], 512).allocated(), 0);
    }

    #[test]
    fn counts_what_succeeded() {
        let device = MemoryDevice::new(8192, 512);
        device.write_vectored_at(0, &[&[1; 100], &[2; 28]]).unwrap();
        device.write_at(0, &[1; 10]).unwrap();
        device.read_at(0, &mut [0; 5]).unwrap();
        device.flush().unwrap();
        device.discard(4096, 4096).unwrap();
        device.read_at(8192, &mut [0; 1]).unwrap_err();
        let expected = Counters {
            reads: 1,
            writes: 2,
            flushes: 1,
            discards: 1,
            bytes_read: 5,
            bytes_written: 138,
            bytes_discarded: 4096,
        };
        assert_eq!(device.counters(), expected);
        assert_eq!(device.snapshot().counters(), Counters::default());
    }

    #[test]
    fn requests_past_the_end_change_nothing() {
        let device = MemoryDevice::from_bytes(&[3; 1000], 512);
        let error = device.write_vectored_at(990, &[&[9; 5], &[9; 6]]).unwrap_err();
        assert!(matches!(
            error,
            DeviceError::OutOfRange { operation: "write", offset: 990, length: 11, size: 1000, .. }
        ));
        assert!(device.discard(999, 2).is_err());
        assert!(device.discard(u64::MAX, 2).is_err());
        assert!(device.read_at(u64::MAX, &mut [0; 2]).is_err());
        assert_eq!(content(&device), [3; 1000]);
        device.write_at(1000, &[]).unwrap();
    }

    #[test]
    fn sector_sizes_are_made_valid() {
        for (asked, given) in [(0, 512), (1, 512), (512, 512), (513, 1024), (4096, 4096), (u32::MAX, 65536)] {
            assert_eq!(MemoryDevice::new(4096, asked).sector_size(), given);
        }
    }

    #[test]
    fn threads_write_side_by_side() {
        let device = MemoryDevice::new(8 * 4096, 512);
        std::thread::scope(|scope| {
            for thread in 0..8_u8 {
                let device = &device;
                scope.spawn(move || {
                    for _ in 0..1_000 {
                        device.write_at(u64::from(thread) * 4096, &[thread + 1; 4096]).unwrap();
                    }
                });
            }
        });
        let bytes = content(&device);
        assert!((0..8_u8).all(|thread| bytes[usize::from(thread) * 4096..][..4096] == [thread + 1; 4096]));
    }
}
