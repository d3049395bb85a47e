//! Basalt's F2FS under a workload, in this process, on a device in virtual time that writes its requests down.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use basalt_device::{BlockDevice, FileDevice};
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{Clock, F2fs, OpenOptions};
use basalt_flash::{DeviceModel, TimedDevice, VirtualClock};
use basalt_uml::RequestsWriter;
use basalt_vfs::{FileSystem, Time};
use basalt_workloads::{
    Error, Event, Observer, PageCache, PageCacheSettings, Phase, VfsFiles, WorkloadReport, by_name, run as run_workload,
};

use super::log::LoggedDevice;
use crate::peers::{self, GuestTask, PeerRun, Stop, guest};

/// When the volume's time begins: 2020-09-13, so that it is no date that means something else.
const EPOCH_SECONDS: i64 = 1_600_000_000;
/// How often the real time is looked at, in operations.
const LOOK_EVERY: u64 = 256;

/// Memory that the kernel and the programs of the others' machine take, about, in MiB.
const TAKEN_MIB: u32 = 128;

/// A page cache that, with the engine's own, is as large as that of the others' machine. Linux writes back from a tenth on
/// (`vm.dirty_background_ratio`).
fn page_cache(engine_bytes: usize) -> PageCacheSettings {
    let bytes = u64::from(peers::MEMORY_MIB - TAKEN_MIB) << 20;
    let bytes = bytes.saturating_sub(engine_bytes as u64);
    PageCacheSettings { bytes, dirty_bytes: bytes / 10 }
}

/// The engine's clock: the device's.
struct EngineClock(VirtualClock);

fn time_of(clock: &VirtualClock) -> Time {
    let now = clock.now();
    Time { seconds: EPOCH_SECONDS + (now / 1_000_000_000) as i64, nanoseconds: (now % 1_000_000_000) as u32 }
}

impl Clock for EngineClock {
    fn now(&self) -> Time {
        time_of(&self.0)
    }
}

/// Formats a volume with the defaults of `basalt mkfs`, opens it with these options, runs the task's workload behind a [page cache](page_cache), and
/// closes it. Time passes as the device's requests take it, and never besides: the same task gives the same requests.
///
/// # Errors
/// When the image or the recording cannot be made. What the engine or the workload says is in the result.
pub(super) fn run(
    task: &GuestTask,
    options: OpenOptions,
    model: &Arc<DeviceModel>,
    place: &Path,
    limit: Duration,
    watch: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<PeerRun, String> {
    let path = place.join("basalt.img");
    let image = FileDevice::create(&path, task.settings.size_bytes).map_err(|error| error.to_string())?;
    // The name goes at once: the image lives as long as it is open.
    std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let clock = VirtualClock::new();
    let writer = RequestsWriter::create(&task.requests).map_err(|error| error.to_string())?;
    let log = Arc::new(LoggedDevice::new(image, clock.clone(), writer));
    // What is logged below the device that takes time has the time at which it began.
    let device = Arc::new(TimedDevice::new(Arc::clone(&log), Arc::clone(model), clock.clone()));
    let mut session = Session { clock, log, started: Instant::now(), limit, watch, measured_from: None };
    let report = session.run(task, options, device);
    let Session { log, started, measured_from, .. } = session;
    let log = Arc::into_inner(log).ok_or("the volume's device is still in use")?;
    log.finish()?;
    Ok(PeerRun { measured_from, report: report.map(Box::new), elapsed: started.elapsed() })
}

/// What a run needs from its beginning to its end.
struct Session<'a> {
    clock: VirtualClock,
    log: Arc<LoggedDevice<FileDevice>>,
    started: Instant,
    limit: Duration,
    watch: &'a mut dyn FnMut(&str) -> ControlFlow<()>,
    measured_from: Option<u64>,
}

impl Session<'_> {
    fn run(
        &mut self,
        task: &GuestTask,
        options: OpenOptions,
        device: Arc<dyn BlockDevice>,
    ) -> Result<WorkloadReport, Stop> {
        fn failed(error: impl std::fmt::Display) -> Stop {
            Stop::Failed(error.to_string())
        }
        let time = time_of(&self.clock);
        // As `basalt mkfs` does it. As for the others, a discard of the whole device would make a fresh one of it.
        let journal_bytes = FormatOptions::DEFAULT_JOURNAL_BYTES;
        let how =
            FormatOptions { uuid: Some([7; 16]), discard: false, time, journal_bytes, ..FormatOptions::default() };
        format(&*device, &how, &mut |_, _| ()).map_err(failed)?;
        let clock = Arc::new(EngineClock(self.clock.clone()));
        let cache = page_cache(options.cache_bytes);
        let engine = F2fs::open(device, options, clock).map_err(failed)?;
        let mut workload = by_name(&task.workload, &task.settings).map_err(failed)?;
        let clock = self.clock.clone();
        let mut files = VfsFiles::with_page_cache(&engine, PageCache::new(cache, move || clock.now()));
        let reached = "prepare phase".to_owned();
        let mut watcher = Watcher { session: self, engine: &engine, next_tick: 0, operations: 0, reached, stop: None };
        let outcome = run_workload(&mut *workload, &task.settings, &mut files, &mut watcher);
        let stop = watcher.stop.take();
        drop(files);
        let closed = engine.close();
        stop.map_or(Ok(()), Err)?;
        let report = outcome.map_err(failed)?;
        closed.map_err(failed)?;
        Ok(report)
    }
}

/// Gives the engine its background time, marks where phases begin, and looks at the limit.
struct Watcher<'a, 's> {
    session: &'a mut Session<'s>,
    engine: &'a dyn FileSystem,
    /// When the engine wants to be called again, in virtual nanoseconds.
    next_tick: u64,
    operations: u64,
    reached: String,
    stop: Option<Stop>,
}

impl Observer for Watcher<'_, '_> {
    fn now(&mut self) -> u64 {
        self.session.clock.now()
    }

    fn operation(&mut self, _: &Event) -> Result<(), Error> {
        if self.session.clock.now() >= self.next_tick {
            let background = self.engine.tick(time_of(&self.session.clock));
            let pause = u64::try_from(background.next.as_nanos()).unwrap_or(u64::MAX).max(1_000_000);
            self.next_tick = self.session.clock.now().saturating_add(pause);
        }
        self.operations += 1;
        if self.operations.is_multiple_of(LOOK_EVERY) {
            let limit = self.session.limit;
            if self.session.started.elapsed() >= limit {
                self.stop = Some(Stop::Limit { limit, reached: self.reached.clone() });
            } else if (self.session.watch)(&self.reached).is_break() {
                self.stop = Some(Stop::Interrupted);
            }
        }
        match &self.stop {
            None => Ok(()),
            Some(stop) => Err(Error::Stopped(stop.to_string())),
        }
    }

    fn phase_started(&mut self, phase: Phase) {
        if phase == Phase::Measure {
            self.session.measured_from = Some(self.session.log.count());
        }
    }

    fn progress(&mut self, phase: Phase, done: u64, total: u64) {
        self.reached = guest::share(phase, done, total);
    }
}
