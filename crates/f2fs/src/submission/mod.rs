//! Writes that are decided under the volume's lock, and handed to the device without it.
//!
//! 1. *Decide*: under the lock, the volume writes to a [`Staged`] device. The bytes are copied to a queue; no request is made.
//! 2. *Submit*: whoever decided gives the lock back and calls [`Submission::submit`], which hands the queue to the device, oldest first.
//!    So only they wait for their requests.
//! 3. *Complete*: a write leaves the queue once the device has it. Until then, reads take its bytes from the queue.
//!
//! What is decided may need blocks of the device. Whoever knows which reads them ahead, before the lock is taken: [`Submission::read_ahead`].
//!
//! A flush submits everything first, so what was decided before it is durable after it. A failed write stays in the queue and ends all
//! submission: nothing behind it may reach the device.
//!
//! Both locks here are leaves: no lock of the volume is taken while one is held.

mod ahead;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use basalt_device::{BlockDevice, DeviceError};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use self::ahead::ReadAhead;
use crate::error;
use crate::layout::BLOCK_SIZE;
use crate::lock::{F2fs, note_failure};
use crate::mutant::{self, Mutant};
use crate::sync::Mutex;
use crate::volume::Volume;

type Result<T> = basalt_device::Result<T>;

/// Bytes that may wait. Whoever decides on more submits them at once, under whatever lock is held.
const WAITING_MAX: usize = 64 << 20;
/// So many make others wait before they take the volume's lock.
const CROWD: usize = 8 << 20;
/// Buffers that are kept for the next writes, and blocks in the largest of them.
const SPARE_BUFFERS: usize = 8;
const SPARE_BLOCKS: usize = 256;

/// A device with the writes that wait for it. Writes, flushes and discards that are made here come after those.
pub(crate) struct Submission {
    device: Arc<dyn BlockDevice>,
    queue: Mutex<Queue>,
    /// Held by the one who submits, so that the order stays.
    turn: Mutex<()>,
    /// Writes in the queue: whether there are any shows without its lock.
    waiting: AtomicUsize,
    /// Writes that were ever added to the queue: the number that the next one gets. Changed with the queue locked.
    staged: AtomicU64,
    /// Whether blocks were read ahead.
    has_ahead: AtomicBool,
}

#[derive(Default)]
struct Queue {
    writes: VecDeque<Write>,
    bytes: usize,
    spare: Vec<Vec<AlignedBlock>>,
    failed: Option<Failure>,
    ahead: ReadAhead,
}

struct Write {
    number: u64,
    offset: u64,
    blocks: Arc<Vec<AlignedBlock>>,
}

impl Write {
    fn end(&self) -> u64 {
        self.offset + (self.blocks.len() * BLOCK_SIZE) as u64
    }
}

/// A block that direct I/O can write as it is.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct AlignedBlock([u8; BLOCK_SIZE]);

/// Where a waiting write goes, and what it writes.
type Waiting = (u64, Arc<Vec<AlignedBlock>>);

/// Blocks that are about to be read ahead.
pub(crate) struct Ahead {
    parts: Vec<(u64, Range<u64>)>,
}

/// A write that the device is making. One that a panic ends has failed.
struct UnderWay<'a> {
    submission: &'a Submission,
    offset: u64,
    length: u64,
    is_over: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let reason = "a panic ended a write half-way".to_owned();
            let (offset, length, kind) = (self.offset, self.length, io::ErrorKind::Other);
            self.submission.queue.lock().failed = Some(Failure { offset, length, kind, code: None, reason });
        }
    }
}

/// Why nothing is submitted any more.
struct Failure {
    offset: u64,
    length: u64,
    kind: io::ErrorKind,
    code: Option<i32>,
    reason: String,
}

impl Submission {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Submission {
        Submission {
            device,
            queue: Mutex::default(),
            turn: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            staged: AtomicU64::new(0),
            has_ahead: AtomicBool::new(false),
        }
    }

    /// Whether writes wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Whether so much waits that nobody should add to it.
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_waiting() && self.queue.lock().bytes > CROWD
    }

    /// Hands all writes that wait now to the device; those that others hand over are waited for.
    ///
    /// Errors: the device's; after a first one, the same for everybody.
    pub(crate) fn submit(&self) -> Result<()> {
        if !self.is_waiting() {
            return Ok(());
        }
        let end = self.staged();
        let _turn = self.turn.lock();
        loop {
            let (offset, blocks) = {
                let queue = self.queue.lock();
                if let Some(failure) = &queue.failed {
                    return Err(self.error(failure));
                }
                match queue.writes.front() {
                    Some(write) if write.number < end => (write.offset, write.blocks.clone()),
                    _ => return Ok(()),
                }
            };
            let length = blocks.len() * BLOCK_SIZE;
            let mut under_way = UnderWay { submission: self, offset, length: length as u64, is_over: false };
            let result = self.device.write_at(offset, blocks.as_bytes());
            under_way.is_over = true;
            let mut queue = self.queue.lock();
            if let Err(error) = result {
                queue.failed = Some(Failure::of(offset, length as u64, &error));
                return Err(error);
            }
            queue.writes.pop_front();
            queue.bytes -= length;
            if queue.spare.len() < SPARE_BUFFERS
                && blocks.capacity() <= SPARE_BLOCKS
                && let Some(buffer) = Arc::into_inner(blocks)
            {
                queue.spare.push(buffer);
            }
            self.waiting.store(queue.writes.len(), SeqCst);
        }
    }

    /// How many writes were ever added to the queue. It only grows, under the volume's lock.
    fn staged(&self) -> u64 {
        self.staged.load(SeqCst)
    }

    /// Adds a write to the queue; false where too much waits already, and for parts of blocks.
    fn stage(&self, offset: u64, slices: &[&[u8]]) -> Result<bool> {
        let mut queue = self.queue.lock();
        if let Some(failure) = &queue.failed {
            return Err(self.error(failure));
        }
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let is_whole = offset.is_multiple_of(BLOCK_SIZE as u64) && length.is_multiple_of(BLOCK_SIZE);
        if !is_whole || queue.bytes + length > WAITING_MAX {
            return Ok(false);
        }
        queue.ahead.drop_written(&(offset..offset + length as u64));
        let mut blocks = queue.spare.pop().unwrap_or_default();
        blocks.resize(length / BLOCK_SIZE, AlignedBlock::new_zeroed());
        let mut left = blocks.as_mut_bytes();
        for slice in slices {
            let (here, behind) = left.split_at_mut(slice.len());
            here.copy_from_slice(slice);
            left = behind;
        }
        let number = self.staged.fetch_add(1, SeqCst);
        queue.bytes += length;
        queue.writes.push_back(Write { number, offset, blocks: Arc::new(blocks) });
        self.waiting.store(queue.writes.len(), SeqCst);
        Ok(true)
    }

    /// Replaces the blocks that are read ahead. The caller holds the volume's lock: from here on, writes to the
    /// new ones are noticed. The answer is for [`read_ahead`](Self::read_ahead).
    pub(crate) fn begin_reading(&self, ranges: Vec<Range<u64>>) -> Ahead {
        let mut queue = self.queue.lock();
        let parts = queue.ahead.begin(ranges);
        self.has_ahead.store(!queue.ahead.is_empty(), SeqCst);
        Ahead { parts }
    }

    /// Forgets what was read ahead: it was used.
    pub(crate) fn end_reading(&self) {
        self.begin_reading(Vec::new());
    }

    /// Reads blocks ahead. The caller has given the volume's lock back. Nothing of these ranges may be discarded
    /// meanwhile. What cannot be read is left to whoever wants it.
    pub(crate) fn read_ahead(&self, ahead: Ahead) {
        for (number, range) in ahead.parts {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            if self.read_at(range.start, &mut bytes).is_ok() {
                self.queue.lock().ahead.put(number, bytes);
            }
        }
    }

    /// The writes that wait for a part of this range, oldest first.
    fn waiting_in(&self, offset: u64, length: usize) -> Vec<Waiting> {
        if !self.is_waiting() {
            return Vec::new();
        }
        let end = offset + length as u64;
        let queue = self.queue.lock();
        let overlapping = queue.writes.iter().filter(|write| write.offset < end && write.end() > offset);
        overlapping.map(|write| (write.offset, write.blocks.clone())).collect()
    }

    /// Reads from the newest of these writes what it has, and what none has from the device.
    fn read_through(&self, writes: &[Waiting], offset: u64, buf: &mut [u8]) -> Result<()> {
        // Parts of the buffer that no write had so far.
        let mut missing: Vec<Range<usize>> = std::iter::once(0..buf.len()).collect();
        for (start, blocks) in writes.iter().rev() {
            let bytes = blocks.as_bytes();
            let mut left = Vec::with_capacity(missing.len() + 1);
            for part in missing {
                let (first, last) = (offset + part.start as u64, offset + part.end as u64);
                let (from, to) = (first.max(*start), last.min(start + bytes.len() as u64));
                if from >= to {
                    left.push(part);
                    continue;
                }
                let here = (from - offset) as usize..(to - offset) as usize;
                buf[here.clone()].copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
                left.extend([part.start..here.start, here.end..part.end].into_iter().filter(|part| !part.is_empty()));
            }
            missing = left;
        }
        missing.into_iter().try_for_each(|part| self.device.read_at(offset + part.start as u64, &mut buf[part]))
    }

    fn error(&self, failure: &Failure) -> DeviceError {
        DeviceError::Io {
            name: self.device.name().to_owned(),
            operation: "write",
            offset: failure.offset,
            length: failure.length,
            source: match failure.code {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(failure.kind, failure.reason.clone()),
            },
        }
    }
}

impl Failure {
    fn of(offset: u64, length: u64, error: &DeviceError) -> Failure {
        let source = match error {
            DeviceError::Io { source, .. } => Some(source),
            _ => None,
        };
        Failure {
            offset,
            length,
            kind: source.map_or(io::ErrorKind::Other, io::Error::kind),
            code: source.and_then(io::Error::raw_os_error),
            reason: source.map_or_else(|| error.to_string(), ToString::to_string),
        }
    }
}

impl BlockDevice for Submission {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn size(&self) -> u64 {
        self.device.size()
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.has_ahead.load(SeqCst) && self.queue.lock().ahead.copy(offset, buf) {
            return Ok(());
        }
        // Found before the device is read: a write that completes in between is on the device by then.
        let writes = self.waiting_in(offset, buf.len());
        if writes.is_empty() { self.device.read_at(offset, buf) } else { self.read_through(&writes, offset, buf) }
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.device.prefetch(offset, length);
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        if self.is_waiting() { (offset < self.size()).then_some(offset) } else { self.device.next_data(offset) }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.write_vectored_at(offset, &[buf])
    }

    fn write_vectored_at(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        self.queue.lock().ahead.drop_written(&(offset..offset + length as u64));
        self.submit()?;
        self.device.write_vectored_at(offset, slices)
    }

    fn flush(&self) -> Result<()> {
        if !mutant::active(Mutant::FlushNumberedEarly) {
            self.submit()?;
        }
        self.device.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.submit()?;
        self.device.discard(offset, length)
    }
}

/// The device as the volume has it under its lock: writes of whole blocks wait in the queue.
pub(crate) struct Staged(pub Arc<Submission>);

impl BlockDevice for Staged {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn sector_size(&self) -> u32 {
        self.0.sector_size()
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.0.prefetch(offset, length);
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.0.next_data(offset)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.write_vectored_at(offset, &[buf])
    }

    fn write_vectored_at(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        if self.0.stage(offset, slices)? { Ok(()) } else { self.0.write_vectored_at(offset, slices) }
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.0.discard(offset, length)
    }
}

impl F2fs {
    /// Lets `decide` change the volume under its lock, and then hands to the device what it wrote.
    ///
    /// Errors: those of `decide`, and those of the device; both turn the volume read-only, but for refusals.
    pub(crate) fn decide<T>(&self, decide: impl FnOnce(&mut Volume) -> error::Result<T>) -> error::Result<T> {
        self.locked(|volume| {
            let result = decide(volume);
            note_failure(volume, &result);
            result
        })
    }

    /// As [`decide`](Self::decide), but what is met before anything has changed is only the caller's error.
    pub(crate) fn attempt<T>(&self, work: impl FnOnce(&mut Volume) -> error::Result<T>) -> error::Result<T> {
        self.locked(|volume| volume.attempt(work))
    }

    /// Does `work` under the volume's lock, and then hands to the device what it wrote. Who wrote nothing waits for no request.
    ///
    /// Errors: those of `work`, and those of the device, which turn the volume read-only.
    pub(crate) fn locked<T>(&self, work: impl FnOnce(&mut Volume) -> error::Result<T>) -> error::Result<T> {
        let (result, has_written) = {
            let mut volume = self.volume.lock();
            let before = self.device.staged();
            (work(&mut volume), self.device.staged() != before)
        };
        if has_written {
            self.submit()?;
        }
        result
    }

    /// Hands to the device what was written under the volume's lock. The caller has given that back. A failure turns the volume read-only.
    pub(crate) fn submit(&self) -> error::Result<()> {
        let _must_end = self.must_end();
        let result = self.device.submit();
        if let Err(error) = &result {
            self.volume.lock().fail(&error.to_string());
        }
        Ok(result?)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use basalt_device::{FaultyDevice, MemoryDevice, RequestKind};

    use super::*;

    const BLOCK: u64 = BLOCK_SIZE as u64;

    /// A device whose block N is full of N, and the queue in front of it.
    fn numbered(blocks: u64) -> (Arc<FaultyDevice<MemoryDevice>>, Submission) {
        let memory = MemoryDevice::new(blocks * BLOCK, 512);
        (0..blocks).for_each(|block| memory.write_at(block * BLOCK, &[block as u8; BLOCK_SIZE]).unwrap());
        let device = Arc::new(FaultyDevice::new(memory));
        (device.clone(), Submission::new(device))
    }

    fn stage(submission: &Submission, first: u64, bytes: &[u8]) {
        let blocks: Vec<[u8; BLOCK_SIZE]> = bytes.iter().map(|&byte| [byte; BLOCK_SIZE]).collect();
        assert!(submission.stage(first * BLOCK, &[blocks.as_flattened()]).unwrap());
    }

    fn read(device: &dyn BlockDevice, first: u64, blocks: usize) -> Vec<u8> {
        let mut bytes = vec![0; blocks * BLOCK_SIZE];
        device.read_at(first * BLOCK, &mut bytes).unwrap();
        bytes.chunks(BLOCK_SIZE).for_each(|block| assert!(block.iter().all(|byte| *byte == block[0])));
        bytes.chunks(BLOCK_SIZE).map(|block| block[0]).collect()
    }

    #[test]
    fn reads_see_the_newest_of_what_waits_wherever_it_begins() {
        let (device, queue) = numbered(8);
        stage(&queue, 2, &[102, 103, 104]);
        stage(&queue, 3, &[203]);
        stage(&queue, 6, &[106]);
        let all = [0, 1, 102, 203, 104, 5, 106, 7];
        for first in 0..8 {
            for end in first + 1..=8 {
                assert_eq!(read(&queue, first as u64, end - first), all[first..end], "{first} to {end}");
            }
        }
        assert_eq!(read(&*device, 0, 8), [0, 1, 2, 3, 4, 5, 6, 7], "no request was made");
        queue.submit().unwrap();
        assert_eq!((read(&*device, 0, 8), queue.is_waiting()), (all.to_vec(), false));
    }

    #[test]
    fn a_write_overtakes_what_was_read_ahead_and_what_is_being_read() {
        let (_, queue) = numbered(8);
        let ahead = queue.begin_reading(vec![0..4 * BLOCK, 4 * BLOCK..8 * BLOCK]);
        queue.read_ahead(ahead);
        stage(&queue, 3, &[103]);
        assert_eq!(read(&queue, 0, 4), [0, 1, 2, 103]);
        queue.submit().unwrap();
        assert_eq!(read(&queue, 0, 4), [0, 1, 2, 103]);
        assert_eq!(read(&queue, 4, 4), [4, 5, 6, 7]);
        // Written between the lock and the read, and while that was under way.
        queue.end_reading();
        let ahead = queue.begin_reading(vec![0..4 * BLOCK, 6 * BLOCK..7 * BLOCK]);
        stage(&queue, 0, &[100]);
        queue.read_ahead(ahead);
        assert_eq!(read(&queue, 0, 4), [100, 1, 2, 103]);
        let ahead = queue.begin_reading(vec![0..BLOCK, 4 * BLOCK..8 * BLOCK]);
        queue.write_at(5 * BLOCK, &[105; BLOCK_SIZE]).unwrap();
        queue.read_ahead(ahead);
        assert_eq!(read(&queue, 4, 4), [4, 105, 6, 7]);
    }

    #[test]
    fn no_more_waits_than_there_may() {
        let (device, queue) = numbered(1);
        let bytes = vec![1; 1 << 20];
        for megabyte in 0..64 {
            assert!(queue.stage(megabyte << 20, &[&bytes]).unwrap(), "{megabyte}");
        }
        assert!(!queue.stage(64 << 20, &[&bytes]).unwrap());
        assert!(queue.is_crowded());
        assert_eq!(read(&*device, 0, 1), [0]);
    }

    /// What the device has takes no room any more, however much there was.
    #[test]
    fn what_was_submitted_makes_room() {
        let (device, queue) = numbered(256);
        for round in 0..70 {
            stage(&queue, 0, &[round; 256]);
            assert!(!queue.is_crowded(), "round {round}");
            queue.submit().unwrap();
        }
        assert_eq!(read(&*device, 255, 1), [69]);
    }

    /// Nothing behind a write that failed reaches the device, and whoever reads sees what was written all the same.
    #[test]
    fn a_write_that_failed_stops_all_behind_it() {
        let (device, queue) = numbered(8);
        device.fail_when(|request| {
            (request.kind == RequestKind::Write && request.offset == 2 * BLOCK).then_some(io::ErrorKind::StorageFull)
        });
        stage(&queue, 1, &[101]);
        stage(&queue, 2, &[102]);
        stage(&queue, 3, &[103]);
        for _ in 0..2 {
            let error = queue.submit().unwrap_err();
            assert!(matches!(error, DeviceError::Io { operation: "write", offset: 8192, .. }), "{error}");
        }
        assert!(queue.flush().is_err() && queue.stage(4 * BLOCK, &[&[4; BLOCK_SIZE]]).is_err());
        assert_eq!(read(&*device, 0, 8), [0, 101, 2, 3, 4, 5, 6, 7]);
        assert_eq!(read(&queue, 0, 8), [0, 101, 102, 103, 4, 5, 6, 7]);
    }

    /// Knows where its zeros are.
    struct Sparse(MemoryDevice);

    impl basalt_device::DeviceLayer for Sparse {
        type Below = MemoryDevice;
        fn below(&self) -> &MemoryDevice {
            &self.0
        }
        fn on_next_data(&self, offset: u64) -> Option<u64> {
            let is_data = |block: &u64| read(&self.0, *block, 1) != [0];
            (offset / BLOCK..self.0.size() / BLOCK).find(is_data).map(|block| offset.max(block * BLOCK))
        }
    }

    #[test]
    fn what_waits_is_no_hole() {
        let queue = Submission::new(Arc::new(Sparse(MemoryDevice::new(8 * BLOCK, 512))));
        assert_eq!(queue.next_data(0), None);
        stage(&queue, 5, &[105]);
        for offset in [0, 4 * BLOCK + 1, 5 * BLOCK, 6 * BLOCK - 1] {
            let found = queue.next_data(offset).expect("a write waits behind it");
            assert!((offset..=offset.max(5 * BLOCK)).contains(&found), "{found} from {offset} on");
        }
        assert_eq!(queue.next_data(8 * BLOCK), None);
        queue.submit().unwrap();
        assert_eq!((queue.next_data(0), queue.next_data(6 * BLOCK)), (Some(5 * BLOCK), None));
    }
}
