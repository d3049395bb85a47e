//! Runs a workload on a target: prepare, fill up with dummy data, age, measure.

use std::time::Instant;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::files::{Files, Handle};
use crate::operation::{File, Kind, MAX_REQUEST, Operation, OperationHash};
use crate::report::{KindReport, Latencies, PhaseReport, WorkloadReport};
use crate::settings::{BLOCK, Limit, Settings};
use crate::shadow::Shadow;
use crate::workload::{Phase, Workload};

/// Files open at once at most; a workload that wants more is defective.
const OPEN_FILES: usize = 65_536;
/// Size of one file of dummy data.
const DUMMY_FILE: u64 = 64 << 20;
/// Dummy data is written until the space in use is this near to what is wanted, or so many times.
const DUMMY_TOLERANCE: u64 = 1 << 20;
const DUMMY_ROUNDS: u32 = 4;

/// One operation that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The phase.
    pub phase: Phase,
    /// What it was.
    pub kind: Kind,
    /// Bytes read or written.
    pub bytes: u64,
    /// When it began, by the observer's clock.
    pub start_ns: u64,
    /// When it was done.
    pub end_ns: u64,
}

/// Has the clock of a run, and is told of everything that happens.
pub trait Observer {
    /// The time in nanoseconds since some moment. Never goes back.
    fn now(&mut self) -> u64;

    /// After each operation: here a lab lets its engine do background work for the time that has passed.
    ///
    /// # Errors
    /// What it returns ends the run: [`Error::Stopped`] for whatever the observer does not want to go on with.
    fn operation(&mut self, event: &Event) -> Result<()> {
        let _ = event;
        Ok(())
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

/// A file the workload has open.
#[derive(Debug)]
struct OpenFile {
    handle: Handle,
    path: String,
    /// Its number in the shadow, if there is one.
    shadow: Option<u64>,
}

/// Counts of a running phase.
struct Counts {
    report: PhaseReport,
    hash: OperationHash,
    bytes: [u64; Kind::COUNT],
    latencies: Vec<Option<Latencies>>,
    started: u64,
}

impl Counts {
    fn new(phase: Phase, started: u64) -> Counts {
        let report = PhaseReport {
            phase,
            operations: 0,
            steps: 0,
            written_bytes: 0,
            read_bytes: 0,
            fsyncs: 0,
            elapsed_ns: 0,
            operation_hash: 0,
            kinds: Vec::new(),
        };
        let latencies = (0..Kind::COUNT).map(|_| None).collect();
        Counts { report, hash: OperationHash::default(), bytes: [0; Kind::COUNT], latencies, started }
    }

    fn add(&mut self, event: &Event) {
        let report = &mut self.report;
        report.operations += 1;
        match event.kind {
            Kind::Write => report.written_bytes += event.bytes,
            Kind::Read => report.read_bytes += event.bytes,
            Kind::Fsync | Kind::Fdatasync => report.fsyncs += 1,
            _ => {}
        }
        let kind = event.kind as usize;
        self.bytes[kind] += event.bytes;
        let latency = event.end_ns.saturating_sub(event.start_ns);
        self.latencies[kind].get_or_insert_default().record(latency);
    }

    fn finish(mut self, now: u64) -> PhaseReport {
        self.report.elapsed_ns = now.saturating_sub(self.started);
        self.report.operation_hash = self.hash.value();
        for kind in Kind::ALL {
            if let Some(latencies) = self.latencies[kind as usize].take() {
                let latency = latencies.summary();
                self.report.kinds.push(KindReport { kind, bytes: self.bytes[kind as usize], latency, latencies });
            }
        }
        self.report
    }

    /// How much of a limit is reached, and the limit.
    fn progress(&self, limit: Limit, now: u64) -> (u64, u64) {
        match limit {
            Limit::Bytes(bytes) => (self.report.written_bytes, bytes),
            Limit::Operations(operations) => (self.report.operations, operations),
            Limit::Nanoseconds(time) => (now.saturating_sub(self.started), time),
        }
    }
}

/// A run whose phases are called one by one, for those who look at the engine in between.
pub struct Runner<'r> {
    workload: &'r mut dyn Workload,
    settings: &'r Settings,
    files: &'r mut dyn Files,
    observer: &'r mut dyn Observer,
    content: Content,
    open: Vec<Option<OpenFile>>,
    shadow: Option<Shadow>,
    buffer: Vec<u8>,
    writes: u64,
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
            files,
            observer,
            content: Content::new(settings.seed),
            open: Vec::new(),
            shadow: settings.verify.then(Shadow::default),
            buffer: Vec::new(),
            writes: 0,
            dummy_bytes: 0,
            utilization_percent: 0.0,
        }
    }

    /// The observer, between phases.
    pub fn observer(&mut self) -> &mut dyn Observer {
        self.observer
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
    /// [`Error::DoesNotFit`] before anything is written, or as [`run`].
    pub fn prepare(&mut self) -> Result<PhaseReport> {
        let space = self.files.space()?;
        let plan = self.workload.plan();
        let needed = plan.peak_with_metadata();
        let available = match self.settings.dummy_bytes {
            Some(dummy) => space.free.saturating_sub(dummy),
            None => self.target_bytes(space.total).min(space.total).saturating_sub(space.used()),
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
        let plan = self.workload.plan();
        let growth = plan.growth().saturating_add(plan.growth() / 500);
        if let Some(bytes) = self.settings.dummy_bytes {
            self.write_dummy(bytes / BLOCK * BLOCK, &mut counts)?;
        } else {
            for _ in 0..DUMMY_ROUNDS {
                let space = self.files.space()?;
                let missing = self.target_bytes(space.total).saturating_sub(space.used().saturating_add(growth));
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
        let space = self.files.space()?;
        self.utilization_percent =
            space.used().saturating_add(growth).min(space.total) as f64 * 100.0 / space.total.max(1) as f64;
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
        let Some(shadow) = &self.shadow else { return Ok(0) };
        self.buffer.resize(MAX_REQUEST as usize, 0);
        let mut total = 0;
        for (path, file, size) in shadow.files() {
            let handle = self.files.open(&path)?;
            let mut offset = 0;
            // One read at the end as well: it must find nothing.
            while offset <= size {
                let count = self.files.read(handle, offset, &mut self.buffer)?;
                shadow.check(file, &path, offset, &self.buffer[..count], self.buffer.len(), &self.content)?;
                if count == 0 {
                    break;
                }
                offset += count as u64;
                total += count as u64;
            }
            self.files.close(handle);
        }
        Ok(total)
    }

    /// Bytes in use at the utilization that is wanted.
    fn target_bytes(&self, total: u64) -> u64 {
        (u128::from(total) * u128::from(self.settings.utilization_percent) / 100) as u64
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
        }
    }

    fn step(&mut self, operations: &mut Vec<Operation>, counts: &mut Counts) -> Result<()> {
        counts.report.steps += 1;
        for operation in operations.drain(..) {
            self.one(operation, counts)?;
        }
        Ok(())
    }

    fn write_dummy(&mut self, bytes: u64, counts: &mut Counts) -> Result<()> {
        // The number a workload is least likely to have open.
        let file = File(OPEN_FILES as u32 - 1);
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
        counts.hash.add(&operation);
        let kind = operation.kind();
        let phase = counts.report.phase;
        let start_ns = self.observer.now();
        let bytes = self.perform(&operation).map_err(|error| self.explain(error, phase))?;
        let end_ns = self.observer.now();
        self.remember(operation, bytes)?;
        let event = Event { phase, kind, bytes, start_ns, end_ns };
        counts.add(&event);
        self.observer.operation(&event)
    }

    /// Says of a full volume whose workload filled it.
    fn explain(&self, error: Error, phase: Phase) -> Error {
        match error {
            Error::Target { operation, path, errno, reason } => {
                let error = Error::Target { operation, path: path.clone(), errno, reason };
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

    /// Hands an operation to the target; returns how many bytes were read or written.
    fn perform(&mut self, operation: &Operation) -> Result<u64> {
        match operation {
            Operation::MakeDirectory(path) => self.files.make_directory(path)?,
            Operation::RemoveDirectory(path) => self.files.remove_directory(path)?,
            Operation::Create(file, path) => {
                let handle = self.files.create(path)?;
                let shadow = self.shadow.as_mut().map(|shadow| shadow.create(path));
                self.opened(*file, OpenFile { handle, path: path.clone(), shadow })?;
            }
            Operation::Open(file, path) => {
                let handle = self.files.open(path)?;
                let shadow = self.shadow.as_ref().and_then(|shadow| shadow.open(path));
                self.opened(*file, OpenFile { handle, path: path.clone(), shadow })?;
            }
            Operation::Close(file) => {
                let handle = self.file(*file)?.handle;
                self.open[file.0 as usize] = None;
                self.files.close(handle);
            }
            Operation::Read { file, offset, length } => {
                let handle = self.file(*file)?.handle;
                let length = self.length(*length)?;
                if self.buffer.len() < length {
                    self.buffer.resize(length, 0);
                }
                return Ok(self.files.read(handle, *offset, &mut self.buffer[..length])? as u64);
            }
            Operation::Write { file, offset, length } => {
                let handle = self.file(*file)?.handle;
                let length = self.length(*length)?;
                self.files.write(handle, *offset, self.content.of(self.writes, length))?;
                return Ok(length as u64);
            }
            Operation::Truncate(file, size) => {
                let handle = self.file(*file)?.handle;
                self.files.truncate(handle, *size)?;
            }
            Operation::Sync(file) => {
                let handle = self.file(*file)?.handle;
                self.files.sync(handle, false)?;
            }
            Operation::SyncData(file) => {
                let handle = self.file(*file)?.handle;
                self.files.sync(handle, true)?;
            }
            Operation::Stat(path) => {
                self.files.stat(path)?;
            }
            Operation::List(path) => {
                self.files.list(path)?;
            }
            Operation::Unlink(path) => self.files.unlink(path)?,
            Operation::Rename(from, to) => self.files.rename(from, to)?,
            Operation::SyncAll => self.files.sync_all()?,
        }
        Ok(0)
    }

    /// Keeps the shadow in step with the target, and compares what was read with it.
    fn remember(&mut self, operation: Operation, bytes: u64) -> Result<()> {
        let write = self.writes;
        if matches!(operation, Operation::Write { .. }) {
            self.writes += 1;
        }
        let Some(shadow) = &mut self.shadow else { return Ok(()) };
        let shadow_of = |file: File| {
            let open = self.open.get(file.0 as usize)?.as_ref()?;
            Some((open.shadow?, &open.path))
        };
        match operation {
            Operation::Write { file, offset, .. } => {
                if let Some((number, _)) = shadow_of(file) {
                    shadow.write(number, offset, bytes, write);
                }
            }
            Operation::Read { file, offset, length } => {
                if let Some((number, path)) = shadow_of(file) {
                    let found = &self.buffer[..bytes as usize];
                    shadow.check(number, path, offset, found, length as usize, &self.content)?;
                }
            }
            Operation::Truncate(file, size) => {
                if let Some((number, _)) = shadow_of(file) {
                    shadow.truncate(number, size);
                }
            }
            Operation::Unlink(path) => shadow.unlink(&path),
            Operation::Rename(from, to) => shadow.rename(&from, &to),
            _ => {}
        }
        Ok(())
    }

    fn opened(&mut self, file: File, open: OpenFile) -> Result<()> {
        let index = file.0 as usize;
        if index >= OPEN_FILES || self.open.get(index).is_some_and(Option::is_some) {
            return Err(self.defect(format!("file number {index} is in use or too high")));
        }
        if self.open.len() <= index {
            self.open.resize_with(index + 1, || None);
        }
        self.open[index] = Some(open);
        Ok(())
    }

    fn file(&self, file: File) -> Result<&OpenFile> {
        let open = self.open.get(file.0 as usize).and_then(Option::as_ref);
        open.ok_or_else(|| self.defect(format!("file number {} is not open", file.0)))
    }

    fn length(&self, length: u32) -> Result<usize> {
        if length > MAX_REQUEST {
            return Err(self.defect(format!("a request of {length} bytes is over {MAX_REQUEST}")));
        }
        Ok(length as usize)
    }

    fn defect(&self, reason: String) -> Error {
        Error::Defect { workload: self.workload.name(), reason }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        for open in self.open.drain(..).flatten() {
            self.files.close(open.handle);
        }
    }
}
