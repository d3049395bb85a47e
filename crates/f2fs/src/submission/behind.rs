//! Writing behind: threads that hand writes to the device for callers who go on meanwhile.
//!
//! They are the owner's of the volume, as all threads are. Without one, every caller submits what it has written. Nobody who needs a write
//! to be on the device relies on them: a flush submits everything itself, or waits for it.

use std::sync::atomic::Ordering::SeqCst;

use super::queue::{Next, Queue};
use super::{CROWD, Result, Submission};

/// Waiting bytes from which on a caller leaves them to others. Less is written sooner than another thread wakes up.
const BEHIND_MIN: usize = if cfg!(feature = "shuttle") { 8 << 10 } else { 64 << 10 };
/// So many make a caller help. Tests of interleavings write little.
const BEHIND_MAX: usize = if cfg!(feature = "shuttle") { 64 << 10 } else { CROWD };

/// A thread that writes behind, until this is dropped.
struct Behind<'a>(&'a Submission);

impl Drop for Behind<'_> {
    fn drop(&mut self) {
        self.0.behind.fetch_sub(1, SeqCst);
    }
}

impl Submission {
    /// Hands all writes that wait to the device, or leaves them to those who write behind: where there are many, but not too many.
    ///
    /// Errors: as [`submit`](Self::submit).
    pub(crate) fn submit_or_leave(&self) -> Result<()> {
        let is_left = |queue: &Queue| queue.bytes >= BEHIND_MIN && self.has_help(queue);
        if !is_left(&self.queue.lock()) {
            return self.submit();
        }
        self.left.notify_one();
        self.submit_while(self.staged(), |queue| queue.bytes > BEHIND_MAX || !self.has_help(queue))
    }

    /// Whether somebody writes behind, and goes on to.
    pub(super) fn has_help(&self, queue: &Queue) -> bool {
        self.behind.load(SeqCst) > 0 && !queue.ends
    }

    /// Hands writes to the device that others leave, until [`end_behind`](Self::end_behind).
    ///
    /// Errors: as [`submit`](Self::submit).
    pub(crate) fn write_behind(&self) -> Result<()> {
        self.behind.fetch_add(1, SeqCst);
        let _behind = Behind(self);
        let mut queue = self.queue.lock();
        while !queue.ends {
            if let Some(failure) = &queue.failed {
                return Err(self.error(failure));
            }
            match queue.next(u64::MAX) {
                Next::Nothing => self.left.wait(&mut queue),
                // Woken by what is over, or by what is left: whichever comes, there may be something to do.
                Next::Wait if queue.all_have_begun() => self.left.wait(&mut queue),
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

    /// Ends writing behind, now and for good.
    pub(crate) fn end_behind(&self) {
        self.queue.lock().ends = true;
        self.left.notify_all();
        self.over.notify_all();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;

    use basalt_device::{BlockDevice, FaultyDevice, FlashPages, MemoryDevice, RequestKind};

    use super::*;
    use crate::layout::{BLOCK_SIZE, RawBlock};
    use crate::log::writer::TakeBlocks;
    use crate::submission::blocks::Source;

    const MIB: usize = 1 << 20;

    /// A device whose writes begin when the gate opens.
    fn gated() -> (Arc<FaultyDevice<MemoryDevice>>, Submission, Arc<std::sync::RwLock<()>>) {
        let device = Arc::new(FaultyDevice::new(MemoryDevice::new(64 << 20, 512)));
        let gate = Arc::new(std::sync::RwLock::new(()));
        let entrance = gate.clone();
        device.fail_when(move |request| {
            if request.kind == RequestKind::Write {
                drop(entrance.read());
            }
            None
        });
        (device.clone(), Submission::new(device, FlashPages::BLOCKS), gate)
    }

    fn stage(queue: &Submission, at: usize, length: usize) {
        assert!(queue.stage(at as u64, Source::Slices(&[&vec![7; length]])).unwrap());
    }

    fn give(queue: &Submission, at: usize, length: usize) {
        let mut blocks: Vec<_> = (0..length / BLOCK_SIZE).map(|_| Box::new(RawBlock([7; BLOCK_SIZE]))).collect();
        assert!(queue.take(at as u64, &mut blocks).unwrap());
    }

    fn until(mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            std::thread::yield_now();
        }
    }

    /// Ends writing behind, however a test ends.
    struct End<'a>(&'a Submission);

    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.end_behind();
        }
    }

    #[test]
    fn much_is_left_to_those_who_write_behind() {
        let (device, queue, gate) = gated();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.write_behind().unwrap());
            let _end = End(&queue);
            until(|| queue.behind.load(SeqCst) == 1);
            let closed = gate.write().unwrap();
            stage(&queue, 0, MIB);
            // Returns, though the device makes no write.
            queue.submit_or_leave().unwrap();
            assert!(queue.is_waiting());
            drop(closed);
            until(|| !queue.is_waiting());
            let mut byte = [0; 512];
            device.read_at(0, &mut byte).unwrap();
            assert_eq!(byte, [7; 512]);
        });
    }

    #[test]
    fn little_is_submitted_at_once() {
        let (_, queue, _gate) = gated();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.write_behind().unwrap());
            let _end = End(&queue);
            until(|| queue.behind.load(SeqCst) == 1);
            stage(&queue, 0, 4096);
            queue.submit_or_leave().unwrap();
            assert!(!queue.is_waiting());
        });
    }

    /// Neighbours become one request of up to 1 MiB, but not with one that the device is making.
    #[test]
    fn neighbours_are_made_together() {
        let device = Arc::new(FaultyDevice::new(MemoryDevice::new(64 << 20, 512)));
        let (gate, made) = (Arc::new(std::sync::RwLock::new(())), Arc::new(std::sync::Mutex::new(Vec::new())));
        let (entrance, log) = (gate.clone(), made.clone());
        device.fail_when(move |request| {
            if request.kind == RequestKind::Write {
                log.lock().unwrap().push((request.offset as usize, request.length as usize));
                drop(entrance.read());
            }
            None
        });
        let queue = Submission::new(device, FlashPages::BLOCKS);
        const STEP: usize = 256 << 10;
        std::thread::scope(|scope| {
            scope.spawn(|| queue.write_behind().unwrap());
            let _end = End(&queue);
            until(|| queue.behind.load(SeqCst) == 1);
            let closed = gate.write().unwrap();
            stage(&queue, 0, STEP);
            queue.submit_or_leave().unwrap();
            until(|| !made.lock().unwrap().is_empty());
            (1..8).for_each(|at| stage(&queue, at * STEP, STEP));
            stage(&queue, 9 * STEP, STEP);
            // What is given joins what is given, and nothing else.
            (10..16).for_each(|at| give(&queue, at * STEP, STEP));
            stage(&queue, 16 * STEP, STEP);
            (17..19).for_each(|at| assert!(queue.keep((at * STEP) as u64, vec![7; STEP].into()).unwrap()));
            drop(closed);
            queue.submit().unwrap();
        });
        let mut made = made.lock().unwrap().clone();
        made.sort_unstable();
        assert_eq!(
            made,
            [
                (0, STEP),
                (STEP, 4 * STEP),
                (5 * STEP, 3 * STEP),
                (9 * STEP, STEP),
                (10 * STEP, 4 * STEP),
                (14 * STEP, 2 * STEP),
                (16 * STEP, STEP),
                (17 * STEP, 2 * STEP)
            ]
        );
    }

    #[test]
    fn too_much_is_not_left_to_others() {
        let (_, queue, gate) = gated();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.write_behind().unwrap());
            let _end = End(&queue);
            until(|| queue.behind.load(SeqCst) == 1);
            let closed = gate.write().unwrap();
            (0..12).for_each(|at| stage(&queue, at * MIB, MIB));
            let helper = scope.spawn(|| queue.submit_or_leave().unwrap());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!helper.is_finished());
            drop(closed);
            helper.join().unwrap();
            assert!(queue.queue.lock().bytes <= BEHIND_MAX);
        });
    }

    #[test]
    fn where_nobody_writes_behind_callers_do_it() {
        let (_, queue, _gate) = gated();
        stage(&queue, 0, MIB);
        queue.submit_or_leave().unwrap();
        assert!(!queue.is_waiting());
        queue.end_behind();
        queue.write_behind().unwrap();
        stage(&queue, 0, MIB);
        queue.submit_or_leave().unwrap();
        assert!(!queue.is_waiting());
    }

    /// Whoever writes behind meets the error first; everybody else gets the same.
    #[test]
    fn a_failure_ends_writing_behind_and_is_told_to_all() {
        let (device, queue, _gate) = gated();
        device.fail_when(|request| (request.kind == RequestKind::Write).then_some(std::io::ErrorKind::StorageFull));
        std::thread::scope(|scope| {
            let behind = scope.spawn(|| queue.write_behind());
            until(|| queue.behind.load(SeqCst) == 1);
            stage(&queue, 0, MIB);
            // It is left; whether it has failed by now is not known.
            let _ = queue.submit_or_leave();
            assert!(behind.join().unwrap().is_err());
            assert!(queue.flush().is_err() && queue.submit_or_leave().is_err());
        });
    }
}
