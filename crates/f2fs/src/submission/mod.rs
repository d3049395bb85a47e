//! Writes that are decided under the volume's lock, and handed to the device without it.
//!
//! 1. *Decide*: under the lock, the volume writes to a [`Staged`] device. The bytes are given or copied to a queue; no request is made.
//! 2. *Submit*: whoever decided gives the lock back and calls [`Submission::submit`], which hands the queue to the device. Writes begin oldest
//!    first, one for each thread that submits: the device has several at a time. Two that overlap never are.
//! 3. *Complete*: a write leaves the queue once the device has it. Until then, reads take its bytes from the queue.
//!
//! Whoever has much to write can leave it to the threads that [write behind](behind), and go on.
//!
//! What is decided may need blocks of the device. Whoever knows which reads them ahead, before the lock is taken: [`Submission::read_ahead`].
//!
//! A flush submits everything first and waits for it, so what was decided before it is durable after it. A failed write stays in the queue
//! and ends all submission: nothing begins behind it.
//!
//! Both locks here are leaves: no lock of the volume is taken while one is held.

mod ahead;
mod behind;
mod blocks;
mod queue;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use basalt_device::{BlockDevice, DeviceError, DeviceLayer, FlashPages};
use basalt_vfs::Bytes;

use self::blocks::Source;
use self::queue::{Failure, Next, Place, Queue, UnderWay, Waiting};
use crate::error;
use crate::layout::{BLOCK_SIZE, RawBlock};
use crate::lock::{F2fs, note_failure};
use crate::log::writer::TakeBlocks;
use crate::mutant::{self, Mutant};
use crate::sync::{Condvar, Mutex};
use crate::volume::Volume;

type Result<T> = basalt_device::Result<T>;

/// Bytes that may wait. Whoever decides on more submits them at once, under whatever lock is held.
const WAITING_MAX: usize = 64 << 20;
/// So many make others wait before they take the volume's lock, and those who leave writes to others help them.
const CROWD: usize = 8 << 20;

/// A device with the writes that wait for it. Writes, flushes and discards that are made here come after those.
pub(crate) struct Submission {
    device: Arc<dyn BlockDevice>,
    queue: Mutex<Queue>,
    /// A write is over, or has failed.
    over: Condvar,
    /// Writes were left to those who write behind, or there is nothing more for them.
    left: Condvar,
    /// Threads that write behind.
    behind: AtomicUsize,
    /// Writes in the queue: whether there are any shows without its lock.
    waiting: AtomicUsize,
    /// Writes that were ever added to the queue: the number that the next one gets. Changed with the queue locked.
    staged: AtomicU64,
    /// Whether blocks were read ahead.
    has_ahead: AtomicBool,
}

/// Blocks that are about to be read ahead.
pub(crate) struct Ahead {
    parts: Vec<(u64, Range<u64>)>,
}

/// Ends a write that a panic ended: it has failed.
struct MustEnd<'a> {
    submission: &'a Submission,
    offset: u64,
    length: u64,
    is_over: bool,
}

impl Drop for MustEnd<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let reason = "a panic ended a write half-way".to_owned();
            let (offset, length, kind) = (self.offset, self.length, io::ErrorKind::Other);
            self.submission.fail(Failure { offset, length, kind, code: None, reason });
        }
    }
}

impl Submission {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, pages: FlashPages) -> Submission {
        Submission {
            device,
            queue: Mutex::new(Queue::of(pages)),
            over: Condvar::new(),
            left: Condvar::new(),
            behind: AtomicUsize::new(0),
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
        self.submit_while(end, |_| true)
    }

    /// Submits writes before number `end`, as long as the queue is as `goes_on` says.
    fn submit_while(&self, end: u64, goes_on: impl Fn(&Queue) -> bool) -> Result<()> {
        let mut queue = self.queue.lock();
        while goes_on(&queue) {
            if let Some(failure) = &queue.failed {
                return Err(self.error(failure));
            }
            match queue.next(end) {
                Next::Nothing => break,
                Next::Wait if mutant::active(Mutant::UnderWayNotAwaited) => break,
                Next::Wait => self.over.wait(&mut queue),
                Next::Make(write) => {
                    drop(queue);
                    self.make(write)?;
                    queue = self.queue.lock();
                }
            }
        }
        Ok(())
    }

    /// Makes a write that has begun.
    fn make(&self, write: UnderWay) -> Result<()> {
        let (offset, length) = (write.offset, write.length() as u64);
        let mut must_end = MustEnd { submission: self, offset, length, is_over: false };
        let result = match &*write.blocks.slices() {
            [only] => self.device.write_at(offset, only),
            slices => self.device.write_vectored_at(offset, slices),
        };
        must_end.is_over = true;
        if let Err(error) = result {
            self.fail(Failure::of(offset, length, &error));
            return Err(error);
        }
        let mut queue = self.queue.lock();
        let unneeded = queue.complete(write);
        self.waiting.store(queue.writes.len(), SeqCst);
        drop(queue);
        self.over.notify_all();
        drop(unneeded);
        Ok(())
    }

    /// Nothing is submitted any more.
    fn fail(&self, failure: Failure) {
        self.queue.lock().failed.get_or_insert(failure);
        self.over.notify_all();
        self.left.notify_all();
    }

    /// How many writes were ever added to the queue. It only grows, under the volume's lock.
    fn staged(&self) -> u64 {
        self.staged.load(SeqCst)
    }

    /// Adds a write to the queue; false where too much waits already, and for parts of blocks.
    fn stage(&self, offset: u64, source: Source<'_>) -> Result<bool> {
        let mut queue = self.queue.lock();
        if let Some(failure) = &queue.failed {
            return Err(self.error(failure));
        }
        let length = source.length();
        let is_whole = offset.is_multiple_of(BLOCK_SIZE as u64) && length.is_multiple_of(BLOCK_SIZE);
        if !is_whole || queue.bytes + length > WAITING_MAX {
            return Ok(false);
        }
        queue.ahead.drop_written(&(offset..offset + length as u64));
        let number = self.staged.fetch_add(1, SeqCst);
        let may_join = self.has_help(&queue);
        queue.add(Place { number, offset, may_join }, source);
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
            let mut left = Vec::with_capacity(missing.len() + 1);
            for part in missing {
                let (first, last) = (offset + part.start as u64, offset + part.end as u64);
                let (from, to) = (first.max(*start), last.min(start + (blocks.count() * BLOCK_SIZE) as u64));
                if from >= to {
                    left.push(part);
                    continue;
                }
                let here = (from - offset) as usize..(to - offset) as usize;
                blocks.copy_to((from - start) as usize, &mut buf[here.clone()]);
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

impl DeviceLayer for Submission {
    type Below = dyn BlockDevice;

    fn below(&self) -> &Self::Below {
        &*self.device
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.has_ahead.load(SeqCst) && self.queue.lock().ahead.copy(offset, buf) {
            return Ok(());
        }
        // Found before the device is read: a write that completes in between is on the device by then.
        let writes = self.waiting_in(offset, buf.len());
        if writes.is_empty() { self.device.read_at(offset, buf) } else { self.read_through(&writes, offset, buf) }
    }

    fn on_next_data(&self, offset: u64) -> Option<u64> {
        if self.is_waiting() { (offset < self.size()).then_some(offset) } else { self.device.next_data(offset) }
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        self.queue.lock().ahead.drop_written(&(offset..offset + length as u64));
        self.submit()?;
        self.device.write_vectored_at(offset, slices)
    }

    fn on_flush(&self) -> Result<()> {
        if !mutant::active(Mutant::FlushNumberedEarly) {
            self.submit()?;
        }
        self.device.flush()
    }

    fn on_discard(&self, offset: u64, length: u64) -> Result<()> {
        self.submit()?;
        self.device.discard(offset, length)
    }
}

/// The device as the volume has it under its lock: writes of whole blocks wait in the queue.
pub(crate) struct Staged(pub Arc<Submission>);

impl DeviceLayer for Staged {
    type Below = Submission;

    fn below(&self) -> &Submission {
        &self.0
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> Result<()> {
        if self.0.stage(offset, Source::Slices(slices))? { Ok(()) } else { self.0.write_vectored_at(offset, slices) }
    }
}

impl TakeBlocks for Submission {
    fn take(&self, offset: u64, blocks: &mut Vec<Box<RawBlock>>) -> Result<bool> {
        self.stage(offset, Source::Blocks(blocks))
    }

    fn keep(&self, offset: u64, bytes: Bytes) -> Result<bool> {
        self.stage(offset, Source::Shared(bytes))
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

    /// Does `work` under the volume's lock, and then hands to the device what it wrote, or leaves much of it to the threads that write
    /// behind. Who wrote nothing waits for no request.
    ///
    /// Errors: those of `work`, and those of the device, which turn the volume read-only.
    pub(crate) fn locked<T>(&self, work: impl FnOnce(&mut Volume) -> error::Result<T>) -> error::Result<T> {
        let (result, has_written) = {
            let mut volume = self.volume.lock();
            let before = self.device.staged();
            (work(&mut volume), self.device.staged() != before)
        };
        if has_written {
            self.noting_failure(Submission::submit_or_leave)?;
        }
        result
    }

    /// Hands to the device what was written under the volume's lock. The caller has given that back. A failure turns the volume read-only.
    pub(crate) fn submit(&self) -> error::Result<()> {
        self.noting_failure(Submission::submit)
    }

    /// Has `submit` hand writes to the device. A failure turns the volume read-only.
    pub(crate) fn noting_failure(&self, submit: impl FnOnce(&Submission) -> Result<()>) -> error::Result<()> {
        let _must_end = self.must_end();
        let result = submit(&self.device);
        if let Err(error) = &result {
            self.volume.lock().fail(&error.to_string());
        }
        Ok(result?)
    }
}
