//! Phases in which the threads of a workload overlap in time.

use std::collections::VecDeque;

use super::counts::Counts;
use super::{Phase, Runner};
use crate::error::Result;
use crate::operation::Operation;
use crate::report::PhaseReport;
use crate::settings::Limit;

/// A logical thread.
#[derive(Debug, Default)]
struct Thread {
    /// When it can go on, by its own time in nanoseconds.
    ready: u64,
    /// When it asked for the operation that is next.
    asked: u64,
    /// Who asked before whom.
    turn: u64,
    /// What it still has to do.
    operations: VecDeque<Operation>,
    /// The workload has nothing for it, until another thread has done something.
    is_idle: bool,
}

/// The thread whose time is the least; of several, the one that asked first.
fn next(threads: &[Thread]) -> Option<usize> {
    let busy = threads.iter().enumerate().filter(|(_, thread)| !thread.is_idle);
    busy.min_by_key(|(_, thread)| (thread.ready, thread.turn)).map(|(index, _)| index)
}

impl Runner<'_> {
    /// Runs a phase up to its limit. Operations are carried out one by one, each at the time of its thread. A thread that is in the middle of a
    /// step at the limit completes it; the phase ends when the last thread has.
    pub(super) fn overlapping(&mut self, phase: Phase, limit: Limit) -> Result<PhaseReport> {
        let started = self.start(phase);
        let mut counts = Counts::new(phase, started);
        let count = self.workload.threads().max(1) as u64;
        let new = |turn| Thread { ready: started, asked: started, turn, ..Thread::default() };
        let mut threads: Vec<Thread> = (0..count).map(new).collect();
        let (mut turn, mut latest) = (count, started);
        while let Some(index) = next(&threads) {
            let now = threads[index].ready;
            self.observer.resume(now);
            if threads[index].operations.is_empty() && !self.plan(&mut threads[index], index, limit, &mut counts) {
                continue;
            }
            let Some(operation) = threads[index].operations.front() else { continue };
            let held = if operation.kind().changes() { self.observer.held_until() } else { 0 };
            if held > now {
                threads[index].ready = held;
                continue;
            }
            if let Some(operation) = threads[index].operations.pop_front() {
                self.one_since(operation, threads[index].asked, &mut counts)?;
                self.check_writes(limit, &counts)?;
            }
            let now = self.observer.now();
            latest = latest.max(now);
            (threads[index].ready, threads[index].asked, threads[index].turn) = (now, now, turn);
            turn += 1;
            for thread in threads.iter_mut().filter(|thread| thread.is_idle) {
                thread.is_idle = false;
                (thread.ready, thread.asked) = (thread.ready.max(now), thread.asked.max(now));
            }
        }
        self.observer.join(latest);
        self.end(counts)
    }

    /// Asks the workload for the next step of a thread. False if there is none, and the thread idle.
    fn plan(&mut self, thread: &mut Thread, index: usize, limit: Limit, counts: &mut Counts) -> bool {
        let phase = counts.report.phase;
        let (done, total) = counts.progress(limit, thread.ready);
        self.observer.progress(phase, done, total);
        let mut operations = Vec::new();
        if done >= total || !self.workload.step_thread(phase, index, &mut operations) {
            thread.is_idle = true;
            return false;
        }
        counts.report.steps += 1;
        thread.operations.extend(operations);
        true
    }
}
