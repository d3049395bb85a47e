//! A machine with a peer in it, and a program on the peer.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use basalt_uml::{Status, Uml, UmlResult};
use basalt_workloads::{Phase, WorkloadReport};

use super::Peer;
use super::guest::{GuestEvent, GuestTask};
use super::script::{self, MOUNT_POINT, NOT_MOUNTED, NOT_UNMOUNTED};

/// Memory of the machine, in MiB. Half a GiB holds the dirty data of every workload, and not the volume.
pub const MEMORY_MIB: u32 = 512;
/// How often the caller is told how far the machine is.
const WATCH_EVERY: Duration = Duration::from_millis(250);

/// What a machine is made of.
#[derive(Debug, Clone)]
pub struct Machine<'a> {
    /// This program, for the machine to run: `PROGRAM lab guest TASK DIRECTORY`.
    pub program: &'a Path,
    /// Where images and recordings go.
    pub place: &'a Path,
    /// How long it may run, boot included.
    pub limit: Duration,
}

/// Why a machine did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The limit was reached, after so long, this far.
    Limit {
        /// The limit.
        limit: Duration,
        /// How far it had come.
        reached: String,
    },
    /// The caller broke off.
    Interrupted,
    /// The workload or the machine failed.
    Failed(String),
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stop::Limit { limit, reached } => write!(f, "not finished after {} s: {reached}", limit.as_secs()),
            Stop::Interrupted => f.write_str("interrupted"),
            Stop::Failed(reason) => f.write_str(reason),
        }
    }
}

/// What a machine left.
#[derive(Debug, Clone)]
pub struct PeerRun {
    /// How many requests had been made when the measured phase began; `None` when it did not.
    pub measured_from: Option<u64>,
    /// What the workload reported, or why it did not come to its end.
    pub report: Result<Box<WorkloadReport>, Stop>,
    /// From start to end.
    pub elapsed: Duration,
}

/// Makes an image, boots, formats, mounts, runs the task's workload, unmounts. Requests are recorded in the file that
/// the task names. `watch` is told how far the machine is, in words, and can break off.
///
/// # Errors
/// When the machine cannot be started, in one line. What happens inside is in the result.
pub fn run(
    peer: Peer,
    machine: &Machine<'_>,
    task: &GuestTask,
    watch: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<PeerRun, String> {
    let image = Image::create(machine.place.join(format!("{peer}.img")), task.settings.size_bytes)?;
    let task_file = machine.place.join(format!("{peer}.task"));
    let json = serde_json::to_vec(task).map_err(|error| error.to_string())?;
    std::fs::write(&task_file, json).map_err(|error| format!("{}: {error}", task_file.display()))?;
    let words = [machine.program, Path::new("lab"), Path::new("guest"), &task_file, Path::new(MOUNT_POINT)];
    let words: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    let words = words.ok_or("the path of this program or of temporary files is no text")?;
    let mut uml = Uml::new().memory_mib(MEMORY_MIB).timeout(machine.limit).place(machine.place);
    for module in peer.modules() {
        uml = uml.module(module);
    }
    let uml = uml.image(&image.0).record(&task.requests);
    let mut asked = Instant::now();
    let mut watch_files = |shared: &Path| {
        if asked.elapsed() < WATCH_EVERY {
            return ControlFlow::Continue(());
        }
        asked = Instant::now();
        let output = shared.parent().map(|place| place.join("output"));
        let output = output.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        watch(&reached(&output))
    };
    let result = uml.run_watched(&script::script(peer, &words), &mut watch_files).map_err(|error| error.to_string())?;
    Ok(outcome(&result, machine.limit))
}

fn outcome(result: &UmlResult, limit: Duration) -> PeerRun {
    let mut measured_from = None;
    let mut report = None;
    for event in result.output.lines().filter_map(GuestEvent::in_line) {
        match event {
            GuestEvent::Begins { phase: Phase::Measure, requests } => measured_from = Some(requests),
            GuestEvent::Finished(finished) => report = Some(Ok(finished)),
            GuestEvent::Failed { reason } => report = Some(Err(Stop::Failed(reason))),
            GuestEvent::Begins { .. } | GuestEvent::Progress { .. } => {}
        }
    }
    let failed = |reason: String| Err(Stop::Failed(reason));
    let report = match (result.status, report) {
        (Status::Stopped, _) => Err(Stop::Interrupted),
        (Status::TimedOut, _) => Err(Stop::Limit { limit, reached: reached(&result.output) }),
        (Status::Died, _) => failed(format!("the machine died: {}", last_line(&result.console))),
        (Status::Exited(NOT_MOUNTED), _) => failed(last_line(&result.output)),
        (Status::Exited(NOT_UNMOUNTED), _) => failed(format!("not unmounted: {}", last_line(&result.output))),
        (Status::Exited(_), Some(report)) => report,
        (Status::Exited(code), None) => {
            failed(format!("the workload ended with {code}: {}", last_line(&result.output)))
        }
    };
    PeerRun { measured_from, report, elapsed: result.elapsed }
}

/// How far a machine has come, in words.
fn reached(output: &str) -> String {
    match output.lines().rev().find_map(GuestEvent::in_line) {
        None => "boot, mkfs and mount".to_owned(),
        Some(GuestEvent::Begins { phase, .. }) => format!("{} phase", phase.name()),
        Some(GuestEvent::Progress { phase, done, total }) => super::guest::share(phase, done, total),
        Some(GuestEvent::Finished(_) | GuestEvent::Failed { .. }) => "unmount".to_owned(),
    }
}

fn last_line(text: &str) -> String {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing").to_owned()
}

/// A sparse image that goes away.
struct Image(PathBuf);

impl Image {
    fn create(path: PathBuf, bytes: u64) -> Result<Image, String> {
        let made = std::fs::File::create(&path).and_then(|file| file.set_len(bytes));
        made.map(|()| Image(path.clone())).map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // It is in a temporary directory, which goes away too.
        let _ = std::fs::remove_file(&self.0);
    }
}
