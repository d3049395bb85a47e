//! Runs a workload on a target: prepare, fill up with dummy data, age, measure.

mod counts;
mod overlap;
mod target;

use std::time::Instant;

use counts::Counts;
use target::{OWN_FILE, Target};

use crate::error::{Error, Result};
use crate::files::{Files, PageCacheStatistics};
use crate::operation::{Kind, MAX_REQUEST, Operation};
use crate::report::{PhaseReport, WorkloadReport};
use crate::settings::{BLOCK, Contents, Limit, Settings};
use crate::workload::{Phase, Workload};

/// Size of one file of dummy data.
const DUMMY_FILE: u64 = 64 << 20;
/// Dummy data is written until the space in use is this near to what is wanted, or so many times.
const DUMMY_TOLERANCE: u64 = 1 << 20;
const DUMMY_ROUNDS: u32 = 4;
/// Operations without a write after which a phase that ends after bytes written is given up.
const MOST_WITHOUT_WRITES: u64 = 4_000_000;

/// One operation that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The phase.
    pub phase: Phase,
    /// What it was.
    pub kind: Kind,
    /// Bytes read or written.
    pub bytes: u64,
    /// When it was asked for, by the observer's clock.
    pub start_ns: u64,
    /// When it was done.
    pub end_ns: u64,
}

/// Has the clock of a run, and is told of everything that happens.
///
/// Where threads [overlap](Runner::overlap), the clock is simulated, and shows the time of the thread whose operation is next.
pub trait Observer {
    /// The time in nanoseconds since some moment. Goes back only where [`resume`](Self::resume) says so.
    fn now(&mut self) -> u64;

    /// After each operation: here a lab lets its engine do background work for the time that has passed.
    ///
    /// # Errors
    /// What it returns ends the run: [`Error::Stopped`] for whatever the observer does not want to go on with.
    fn operation(&mut self, event: &Event) -> Result<()> {
        let _ = event;
        Ok(())
    }

    /// The next operation is that of a thread whose time is this: sets the clock. Times never descend from one call to the next, and no
    /// thread has an earlier one. Only where threads overlap.
    fn resume(&mut self, time: u64) {
        let _ = time;
    }

    /// All threads have come together at this time: sets the clock. Only where threads overlap.
    fn join(&mut self, time: u64) {
        let _ = time;
    }

    /// Until when operations that [change](Kind::changes) something have to wait for one that keeps them out. Only where threads overlap.
    fn held_until(&mut self) -> u64 {
        0
    }

    /// Before the first operation of a phase.
    fn phase_started(&mut self, phase: Phase) {
        let _ = phase;
    }

    /// Behind the last operation of a phase, its final sync included.
    fn phase_finished(&mut self, report: &PhaseReport) {
        let _ = report;
    }

    /// After each step: how much of the phase is done, in units of its limit; a `total` of 0 means that nobody knows.
    fn progress(&mut self, phase: Phase, done: u64, total: u64) {
        let _ = (phase, done, total);
    }
}

/// Runs whose times do not matter: the clock stands still.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn now(&mut self) -> u64 {
        0
    }
}

/// The machine's clock, for targets that are real.
#[derive(Debug, Clone, Copy)]
pub struct WallClock(Instant);

impl Default for WallClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one clock that is not simulated: it is given to a run as an `Observer`"
    )]
    fn default() -> WallClock {
        WallClock(Instant::now())
    }
}

impl Observer for WallClock {
    fn now(&mut self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Runs all phases of a workload and reports.
///
/// # Errors
/// When the workload does not fit, the target fails or runs full, or what is read is wrong.
pub fn run(
    workload: &mut dyn Workload,
    settings: &Settings,
    files: &mut dyn Files,
    observer: &mut dyn Observer,
) -> Result<WorkloadReport> {
    let mut runner = Runner::new(workload, settings, files, observer);
    let mut before = vec![runner.prepare()?, runner.fill()?];
    before.extend(runner.age()?);
    let measure = runner.measure()?;
    let verified_bytes = if settings.verify { runner.verify()? } else { 0 };
    Ok(WorkloadReport {
        workload: runner.workload.name(),
        settings: settings.clone(),
        dummy_bytes: runner.dummy_bytes,
        utilization_percent: runner.utilization_percent,
        verified_bytes,
        measure,
        before,
    })
}

/// A run whose phases are called one by one, for those who look at the engine in between.
pub struct Runner<'r> {
    workload: &'r mut dyn Workload,
    settings: &'r Settings,
    target: Target<'r>,
    observer: &'r mut dyn Observer,
    overlap: bool,
    /// Bytes that were free when the run began.
    capacity: u64,
    dummy_bytes: u64,
    utilization_percent: f64,
}

impl<'r> Runner<'r> {
    /// A run that has not begun.
    pub fn new(
        workload: &'r mut dyn Workload,
        settings: &'r Settings,
        files: &'r mut dyn Files,
        observer: &'r mut dyn Observer,
    ) -> Runner<'r> {
        Runner {
            workload,
            settings,
            target: Target::new(files, settings),
            observer,
            overlap: false,
            capacity: 0,
            dummy_bytes: 0,
            utilization_percent: 0.0,
        }
    }

    /// Lets the threads of the workload overlap while it ages and is measured: each has a time of its own, and the next operation is that of
    /// the thread whose time is the least ([`Workload::step_thread`]). Otherwise operations follow one after the other, in the order of
    /// [`Workload::step`]. The observer's clock must be one that can be set.
    #[must_use]
    pub fn overlap(mut self, overlap: bool) -> Runner<'r> {
        self.overlap = overlap;
        self
    }

    /// The observer, between phases.
    pub fn observer(&mut self) -> &mut dyn Observer {
        self.observer
    }

    /// What the page cache in front of the target did so far, as [`Files::page_cache_statistics`].
    pub fn page_cache_statistics(&self) -> Option<PageCacheStatistics> {
        self.target.files.page_cache_statistics()
    }

    /// Bytes of dummy data written by [`fill`](Self::fill).
    pub fn dummy_bytes(&self) -> u64 {
        self.dummy_bytes
    }

    /// Utilization behind [`fill`](Self::fill), in percent, what the workload's files will still grow by included.
    pub fn utilization_percent(&self) -> f64 {
        self.utilization_percent
    }

    /// Makes the workload's own files, after checking that they fit.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] before anything is written; plain contents that are to be verified; or as [`run`].
    pub fn prepare(&mut self) -> Result<PhaseReport> {
        if self.settings.verify && self.settings.contents == Some(Contents::Plain) {
            let reason = "plain contents cannot be verified: a block from the wrong place looks like the right one";
            return Err(Error::Specification(reason.to_owned()));
        }
        let space = self.target.files.space()?;
        self.capacity = space.free;
        let plan = self.workload.plan();
        let needed = plan.peak_with_metadata();
        let available = match self.settings.dummy_bytes {
            Some(dummy) => space.free.saturating_sub(dummy),
            None => self.wanted_bytes(),
        };
        if needed > available {
            return Err(Error::DoesNotFit {
                workload: self.workload.name(),
                needed,
                available,
                utilization: self.settings.utilization_percent,
            });
        }
        let started = self.start(Phase::Prepare);
        let mut counts = Counts::new(Phase::Prepare, started);
        let mut operations = Vec::new();
        while self.workload.step(Phase::Prepare, &mut operations) {
            self.step(&mut operations, &mut counts)?;
            self.observer.progress(Phase::Prepare, counts.report.written_bytes, plan.initial_bytes);
        }
        self.end(counts)
    }

    /// Writes dummy data until the volume is as full as the settings say, what the workload's files will still grow by left out.
    ///
    /// # Errors
    /// As [`run`].
    pub fn fill(&mut self) -> Result<PhaseReport> {
        let started = self.start(Phase::Dummy);
        let mut counts = Counts::new(Phase::Dummy, started);
        let growth = self.workload.plan().growth();
        if let Some(bytes) = self.settings.dummy_bytes {
            self.write_dummy(bytes / BLOCK * BLOCK, &mut counts)?;
        } else {
            for _ in 0..DUMMY_ROUNDS {
                let used = self.used_bytes()?.saturating_add(growth);
                let missing = self.wanted_bytes().saturating_sub(used);
                if missing < DUMMY_TOLERANCE {
                    break;
                }
                // Index blocks take about one in 500.
                self.write_dummy((missing - missing / 250) / BLOCK * BLOCK, &mut counts)?;
                // Space that is promised but not yet given out does not show before.
                self.one(Operation::SyncAll, &mut counts)?;
            }
        }
        let report = self.end(counts)?;
        let used = self.used_bytes()?.saturating_add(growth).min(self.capacity);
        self.utilization_percent = used as f64 * 100.0 / self.capacity.max(1) as f64;
        Ok(report)
    }

    /// Runs the ageing phase, if there is one.
    ///
    /// # Errors
    /// As [`run`].
    pub fn age(&mut self) -> Result<Option<PhaseReport>> {
        match self.settings.age.unwrap_or(self.workload.plan().age) {
            Limit::Bytes(0) | Limit::Operations(0) | Limit::Nanoseconds(0) => Ok(None),
            limit => self.limited(Phase::Age, limit).map(Some),
        }
    }

    /// Runs the measured phase.
    ///
    /// # Errors
    /// As [`run`].
    pub fn measure(&mut self) -> Result<PhaseReport> {
        let limit = self.settings.measure.unwrap_or(self.workload.plan().measure);
        self.limited(Phase::Measure, limit)
    }

    /// Reads every file and compares it with what was written to it; returns how many bytes. Without
    /// [`verify`](Settings::verify) in the settings nothing is known, and nothing is compared.
    ///
    /// # Errors
    /// [`Error::Mismatch`], or what the target says.
    pub fn verify(&mut self) -> Result<u64> {
        self.target.verify()
    }

    /// Bytes to be in use, of those that were free at first.
    fn wanted_bytes(&self) -> u64 {
        (u128::from(self.capacity) * u128::from(self.settings.utilization_percent) / 100) as u64
    }

    /// Bytes in use now, of those that were free at first.
    fn used_bytes(&mut self) -> Result<u64> {
        Ok(self.capacity.saturating_sub(self.target.files.free_bytes()?))
    }

    fn start(&mut self, phase: Phase) -> u64 {
        self.observer.phase_started(phase);
        self.observer.now()
    }

    /// The final sync of a phase, and its report.
    fn end(&mut self, mut counts: Counts) -> Result<PhaseReport> {
        self.one(Operation::SyncAll, &mut counts)?;
        let now = self.observer.now();
        let report = counts.finish(now);
        self.observer.phase_finished(&report);
        Ok(report)
    }

    fn limited(&mut self, phase: Phase, limit: Limit) -> Result<PhaseReport> {
        if self.overlap {
            return self.overlapping(phase, limit);
        }
        let started = self.start(phase);
        let mut counts = Counts::new(phase, started);
        let mut operations = Vec::new();
        loop {
            let now = if matches!(limit, Limit::Nanoseconds(_)) { self.observer.now() } else { started };
            let (done, total) = counts.progress(limit, now);
            self.observer.progress(phase, done, total);
            if done >= total || !self.workload.step(phase, &mut operations) {
                return self.end(counts);
            }
            self.step(&mut operations, &mut counts)?;
            self.check_writes(limit, &counts)?;
        }
    }

    /// A phase of so many bytes comes to no end if the workload does not write any more.
    ///
    /// # Errors
    /// When that is so.
    fn check_writes(&self, limit: Limit, counts: &Counts) -> Result<()> {
        if matches!(limit, Limit::Bytes(_)) && counts.without_write > MOST_WITHOUT_WRITES {
            let (name, phase) = (self.workload.name(), counts.report.phase.name());
            return Err(Error::Specification(format!(
                "{name}: the {phase} phase ends after bytes written, and the last {MOST_WITHOUT_WRITES} operations wrote none; \
                 limit it by operations or time"
            )));
        }
        Ok(())
    }

    fn step(&mut self, operations: &mut Vec<Operation>, counts: &mut Counts) -> Result<()> {
        counts.report.steps += 1;
        for operation in operations.drain(..) {
            self.one(operation, counts)?;
        }
        Ok(())
    }

    fn write_dummy(&mut self, bytes: u64, counts: &mut Counts) -> Result<()> {
        let file = OWN_FILE;
        if bytes > 0 && self.dummy_bytes == 0 {
            self.one(Operation::MakeDirectory("dummy".to_owned()), counts)?;
        }
        let mut left = bytes;
        while left > 0 {
            let size = left.min(DUMMY_FILE);
            // Named by where it begins: unique over all rounds.
            let path = format!("dummy/{:08x}", self.dummy_bytes / BLOCK);
            self.one(Operation::Create(file, path), counts)?;
            let mut offset = 0;
            while offset < size {
                let length = (size - offset).min(u64::from(MAX_REQUEST)) as u32;
                self.one(Operation::Write { file, offset, length }, counts)?;
                offset += u64::from(length);
            }
            self.one(Operation::Close(file), counts)?;
            self.dummy_bytes += size;
            left -= size;
            self.observer.progress(Phase::Dummy, bytes - left, bytes);
        }
        Ok(())
    }

    /// Does one operation, and counts it.
    fn one(&mut self, operation: Operation, counts: &mut Counts) -> Result<()> {
        let start_ns = self.observer.now();
        self.one_since(operation, start_ns, counts)
    }

    /// Does one operation that was asked for at `start_ns`, and counts it.
    fn one_since(&mut self, operation: Operation, start_ns: u64, counts: &mut Counts) -> Result<()> {
        counts.hash.add(&operation);
        let kind = operation.kind();
        let phase = counts.report.phase;
        let bytes = self.target.perform(&operation).map_err(|error| self.explain(error, phase))?;
        let end_ns = self.observer.now();
        self.target.remember(operation, bytes)?;
        let event = Event { phase, kind, bytes, start_ns, end_ns };
        counts.add(&event);
        self.observer.operation(&event)
    }

    /// Says of a full volume whose workload filled it.
    fn explain(&self, error: Error, phase: Phase) -> Error {
        match error {
            Error::Target { operation, path, is_full, reason } => {
                let error = Error::Target { operation, path: path.clone(), is_full, reason };
                if !error.is_no_space() {
                    return error;
                }
                Error::NoSpace {
                    workload: self.workload.name(),
                    phase: phase.name(),
                    utilization: self.settings.utilization_percent,
                    operation,
                    path,
                }
            }
            error => error,
        }
    }
}
