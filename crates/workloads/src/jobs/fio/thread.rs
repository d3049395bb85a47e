//! A thread of a job: one I/O or one fsync after the other, in passes over its files.
//!
//! When passes, syncs and jobs end is what fio 3.33 does (its `do_io` and `keep_running`): a pass ends when no block of its files is
//! left, or all bytes are done; fsync is due before the next I/O behind every n-th write, and takes the file whose turn it is.

use basalt_random::Rng;

use super::cursor::Cursor;
use super::options::{Job, Service};
use crate::fileset::{read_range, write_range};
use crate::operation::{MAX_REQUEST, Operation};

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Opens this file.
    Open(usize),
    /// In a pass.
    Pass,
    /// Behind a pass: makes this file durable.
    Sync(usize),
    /// Closes this file.
    Close(usize),
    Done,
}

/// A thread.
#[derive(Debug, Clone)]
pub(super) struct Thread {
    job: Job,
    rng: Rng,
    files: Vec<Cursor>,
    stage: Stage,
    /// The file whose turn it is.
    turn: usize,
    /// Bytes, I/Os and writes so far.
    bytes: u64,
    ios: u64,
    writes: u64,
    /// The last operation was a sync.
    synced: bool,
    loops_left: u64,
}

impl Thread {
    pub(super) fn new(job: Job, files: Vec<Cursor>, seed: u64) -> Thread {
        let loops_left = job.loops - 1;
        Thread {
            job,
            rng: Rng::new(seed),
            files,
            stage: Stage::Open(0),
            turn: 0,
            bytes: 0,
            ios: 0,
            writes: 0,
            synced: false,
            loops_left,
        }
    }

    /// Appends the next operation; an I/O above [`MAX_REQUEST`] is several. False when the job is done.
    pub(super) fn step(&mut self, operations: &mut Vec<Operation>) -> bool {
        loop {
            match self.stage {
                Stage::Open(index) => {
                    let cursor = &self.files[index];
                    operations.push(Operation::Open(cursor.file, cursor.path.clone()));
                    self.stage = if index + 1 < self.files.len() { Stage::Open(index + 1) } else { Stage::Pass };
                    return true;
                }
                Stage::Pass => {
                    if self.io(operations) {
                        return true;
                    }
                    let sync = self.job.end_sync && self.job.writes;
                    self.stage = if sync { Stage::Sync(0) } else { self.behind_pass() };
                }
                Stage::Sync(index) => {
                    operations.push(Operation::Sync(self.files[index].file));
                    self.synced = true;
                    self.stage = if index + 1 < self.files.len() { Stage::Sync(index + 1) } else { self.behind_pass() };
                    return true;
                }
                Stage::Close(index) => {
                    operations.push(Operation::Close(self.files[index].file));
                    self.stage = if index + 1 < self.files.len() { Stage::Close(index + 1) } else { Stage::Done };
                    return true;
                }
                Stage::Done => return false,
            }
        }
    }

    /// Bytes of all passes: what `io_size` says, or `size`.
    fn limit(&self) -> u64 {
        self.job.io_size.unwrap_or(self.job.size)
    }

    /// Whether nothing more may be done, in whatever pass.
    fn is_exhausted(&self) -> bool {
        let loops = self.job.loops;
        let ios = self.job.ios.is_some_and(|ios| self.ios >= ios.saturating_mul(loops));
        ios || (!self.job.endless && self.bytes >= self.limit().saturating_mul(loops))
    }

    /// What follows a pass: another one, or the end.
    fn behind_pass(&mut self) -> Stage {
        let largest = self.job.request[0].max(self.job.request[1]);
        let again = if self.job.endless {
            !self.is_exhausted()
        } else if self.loops_left > 0 {
            self.loops_left -= 1;
            !self.is_exhausted()
        } else {
            // Less than a request is not worth a pass.
            let left = self.limit().saturating_sub(self.bytes);
            self.job.io_size.is_some() && left >= largest && !self.is_exhausted()
        };
        if !again {
            return Stage::Close(0);
        }
        // fio forgets that its last operation was a sync.
        self.synced = false;
        self.turn = 0;
        for cursor in &mut self.files {
            cursor.restart(&mut self.rng);
        }
        Stage::Pass
    }

    /// The next I/O of a pass, or the fsync that is due; false behind the last.
    fn io(&mut self, operations: &mut Vec<Operation>) -> bool {
        if self.is_exhausted() {
            return false;
        }
        let before = operations.len();
        let Some(index) = self.next_file(operations) else { return false };
        if operations.len() > before {
            return true;
        }
        let reads = match (self.job.reads, self.job.writes) {
            (true, true) => self.rng.below(100) < self.job.read_percent,
            (reads, _) => reads,
        };
        let direction = usize::from(!reads);
        let request = self.job.request[direction];
        let cursor = &mut self.files[index];
        let offset = cursor.offset(direction, request, &mut self.rng);
        let range = if reads { read_range } else { write_range };
        range(cursor.file, offset, request, MAX_REQUEST, operations);
        self.bytes += request;
        self.ios += 1;
        self.writes += u64::from(!reads);
        self.synced = false;
        true
    }

    /// Which sync the writes so far make necessary: 0 fsync, 1 fdatasync. fio asks how many writes there were, not whether there was one since:
    /// after a read behind the n-th write it syncs again.
    fn sync_due(&self) -> Option<usize> {
        let due = |every: u64| every > 0 && self.writes.is_multiple_of(every);
        (0..2).find(|kind| !self.synced && self.writes > 0 && due(self.job.sync_every[*kind]))
    }

    /// The file that the next I/O is for; none if all are done. Or a sync is due: that is appended, for the file whose turn it is, which
    /// may turn out to be done only afterwards.
    fn next_file(&mut self, operations: &mut Vec<Operation>) -> Option<usize> {
        let count = self.files.len();
        // A direction that does not happen sets no bounds.
        let request = self.job.request;
        let requests = [if self.job.reads { request[0] } else { 0 }, if self.job.writes { request[1] } else { 0 }];
        loop {
            let start = match self.job.service {
                Service::Random => self.rng.index(count),
                Service::RoundRobin | Service::Sequential => self.turn,
            };
            let index = (0..count).map(|step| (start + step) % count).find(|index| !self.files[*index].found_done)?;
            if self.job.service == Service::RoundRobin {
                self.turn = (index + 1) % count;
            }
            if let Some(sync) = self.sync_due() {
                self.synced = true;
                let file = self.files[index].file;
                operations.push(if sync == 0 { Operation::Sync(file) } else { Operation::SyncData(file) });
                return Some(index);
            }
            if !self.files[index].is_done(requests) {
                return Some(index);
            }
            self.files[index].found_done = true;
        }
    }
}
