//! The program in the machine: a workload on the mounted volume, with marks where its phases begin.
//!
//! The machine sees the host's files, and among them the recording of its own requests: how long that is tells at which request a
//! phase begins. Everything is told as lines of JSON on standard output, at once, so that what a machine that had to be stopped has done is known.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use basalt_uml::Requests;
use basalt_workloads::{
    DirectoryFiles, Observer, Phase, Settings, WallClock, WorkloadReport, by_name, run as run_workload,
};
use serde::{Deserialize, Serialize};

/// What the program in the machine is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestTask {
    /// The workload with its options.
    pub workload: String,
    /// Its settings.
    pub settings: Settings,
    /// The recording of the machine's requests.
    pub requests: PathBuf,
}

/// What it tells, one line each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestEvent {
    /// A phase begins, and so many requests have been made.
    Begins {
        /// The phase.
        phase: Phase,
        /// Requests before it.
        requests: u64,
    },
    /// So much of a phase is done.
    Progress {
        /// The phase.
        phase: Phase,
        /// How much is done, in the phase's own unit.
        done: u64,
        /// How much there is to do; 0 if nobody knows.
        total: u64,
    },
    /// The workload is done.
    Finished(Box<WorkloadReport>),
    /// The workload failed.
    Failed {
        /// Why, in one line.
        reason: String,
    },
}

impl GuestEvent {
    /// The event in a line that the machine printed, if there is one.
    pub fn in_line(line: &str) -> Option<GuestEvent> {
        line.starts_with('{').then(|| serde_json::from_str(line).ok()).flatten()
    }
}

/// How far a phase is, in words.
pub(crate) fn share(phase: Phase, done: u64, total: u64) -> String {
    match done.min(total).saturating_mul(100).checked_div(total) {
        Some(percent) => format!("{} phase, {percent} %", phase.name()),
        None => format!("{} phase", phase.name()),
    }
}

/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Runs the task in `task_file` on `directory` and tells `output` about it. Returns whether the workload came to its end.
///
/// # Errors
/// When the task cannot be read or nobody takes the lines. What the workload says is in the lines.
pub fn run_in(task_file: &Path, directory: &Path, output: &mut dyn Write) -> std::io::Result<bool> {
    let task: GuestTask = serde_json::from_slice(&std::fs::read(task_file)?)?;
    let outcome = run_task(&task, directory, output);
    let (event, done) = match outcome {
        Ok(report) => (GuestEvent::Finished(Box::new(report)), true),
        Err(error) => (GuestEvent::Failed { reason: error.to_string() }, false),
    };
    tell(output, &event)?;
    Ok(done)
}

fn run_task(task: &GuestTask, directory: &Path, output: &mut dyn Write) -> basalt_workloads::Result<WorkloadReport> {
    let mut workload = by_name(&task.workload, &task.settings)?;
    let mut files = DirectoryFiles::new(directory)?;
    let mut teller =
        Teller { clock: WallClock::default(), requests: &task.requests, output, failed: None, told: Instant::now() };
    run_workload(&mut *workload, &task.settings, &mut files, &mut teller)
}

fn tell(output: &mut dyn Write, event: &GuestEvent) -> std::io::Result<()> {
    let mut line = serde_json::to_string(event)?;
    line.push('\n');
    output.write_all(line.as_bytes())?;
    output.flush()
}

/// Tells what happens as it happens.
struct Teller<'a> {
    clock: WallClock,
    requests: &'a Path,
    output: &'a mut dyn Write,
    /// Why a mark could not be made: ends the run at the next operation.
    failed: Option<String>,
    told: Instant,
}

impl Teller<'_> {
    fn try_tell(&mut self, event: &GuestEvent) {
        if let Err(error) = tell(self.output, event) {
            self.failed.get_or_insert_with(|| error.to_string());
        }
    }
}

impl Observer for Teller<'_> {
    fn now(&mut self) -> u64 {
        self.clock.now()
    }

    fn operation(&mut self, _: &basalt_workloads::Event) -> basalt_workloads::Result<()> {
        match self.failed.take() {
            None => Ok(()),
            Some(reason) => Err(basalt_workloads::Error::Stopped(reason)),
        }
    }

    fn phase_started(&mut self, phase: Phase) {
        match Requests::count(self.requests) {
            Ok(requests) => self.try_tell(&GuestEvent::Begins { phase, requests }),
            Err(error) => self.failed = Some(error.to_string()),
        }
    }

    fn progress(&mut self, phase: Phase, done: u64, total: u64) {
        if self.told.elapsed() >= PROGRESS_EVERY {
            self.told = Instant::now();
            self.try_tell(&GuestEvent::Progress { phase, done, total });
        }
    }
}
