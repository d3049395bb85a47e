//! Running the points of an experiment, several at a time.

use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::directory::{DirectoryError, ResultsDirectory};
use super::point::Point;
use super::result::Record;

/// How often a running point is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The longest output read from a point.
const LONGEST_OUTPUT: u64 = 1 << 20;

/// What became of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Points with a result, earlier runs included.
    pub done: usize,
    /// Points that had one before this run.
    pub before: usize,
    /// Points that failed.
    pub failed: usize,
    /// Points that were not run, since the run was stopped.
    pub left: usize,
}

/// How the points of a run are run.
pub trait Runner: Sync {
    /// Runs a point; `None` if it was stopped.
    fn run(&self, point: &Point) -> Option<Record>;
}

/// Runs every point in this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

impl Runner for InProcess {
    fn run(&self, point: &Point) -> Option<Record> {
        Some(Record::of(point.clone()))
    }
}

/// Runs every point as the command that [`Point::command`] shows: what one does, memory that it takes, a defect that ends it, stay
/// its own.
#[derive(Debug)]
pub struct Children<'a> {
    /// The program `basalt`.
    pub program: PathBuf,
    /// The longest a point may take. It is killed then, and counts as failed.
    pub limit: Duration,
    /// Becomes true when everything has to stop.
    pub stop: &'a AtomicBool,
}

impl Runner for Children<'_> {
    fn run(&self, point: &Point) -> Option<Record> {
        let failed = |why: String| Some(Record::failed(point.clone(), why));
        let (mut output, mut errors) = match (tempfile::tempfile(), tempfile::tempfile()) {
            (Ok(output), Ok(errors)) => (output, errors),
            (Err(error), _) | (_, Err(error)) => return failed(format!("no temporary file for its output: {error}")),
        };
        let started = self.start(point, &output, &errors);
        let ended = match started {
            Ok(mut child) => self.wait(&mut child),
            Err(why) => return failed(why),
        };
        match ended {
            Ended::Stopped => None,
            Ended::Late => failed(format!("not finished after {} s", self.limit.as_secs_f64())),
            Ended::Lost(why) => failed(why),
            Ended::By(status) => {
                let line = read_all(&mut output);
                match Record::from_line(line.trim_end()) {
                    Ok(record) if record.point == *point => Some(record),
                    // Whoever stops a run from its terminal stops its children too.
                    _ if self.stop.load(Ordering::Relaxed) => None,
                    _ => failed(why_without_result(status, &read_all(&mut errors))),
                }
            }
        }
    }
}

/// How a child ended.
enum Ended {
    By(ExitStatus),
    Late,
    Stopped,
    Lost(String),
}

impl Children<'_> {
    fn start(&self, point: &Point, output: &std::fs::File, errors: &std::fs::File) -> Result<Child, String> {
        let start = || -> std::io::Result<Child> {
            Command::new(&self.program)
                .args(["lab", "point"])
                .args(point.arguments())
                .arg("--json")
                // Nobody would take the result of a point that outlives its run.
                .args(["--parent", &std::process::id().to_string()])
                .stdin(Stdio::null())
                .stdout(output.try_clone()?)
                .stderr(errors.try_clone()?)
                .spawn()
        };
        start().map_err(|error| format!("{} cannot be started: {error}", self.program.display()))
    }

    fn wait(&self, child: &mut Child) -> Ended {
        let deadline = Instant::now() + self.limit;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ended::By(status),
                Ok(None) => {}
                Err(error) => {
                    end(child);
                    return Ended::Lost(format!("cannot be waited for: {error}"));
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                end(child);
                return Ended::Stopped;
            }
            if Instant::now() >= deadline {
                end(child);
                return Ended::Late;
            }
            thread::sleep(LOOK);
        }
    }
}

/// Kills a child and takes its exit status; a killed process that does not wait for a device ends at once.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn read_all(file: &mut std::fs::File) -> String {
    let mut bytes = Vec::new();
    // What cannot be read is no result, which is said then.
    let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(LONGEST_OUTPUT).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn why_without_result(status: ExitStatus, errors: &str) -> String {
    let said = errors.lines().last().unwrap_or_default().trim();
    if said.is_empty() {
        format!("ended without a result: {status}")
    } else {
        format!("ended without a result: {status}: {said}")
    }
}

/// Runs all points that have no result yet, `jobs` at a time, and keeps each result as soon as it is there. Progress is told how many
/// of how many points are done.
///
/// # Errors
/// When a result cannot be kept; what runs is finished first, and what was kept stays.
pub fn run(
    directory: &mut ResultsDirectory,
    jobs: usize,
    runner: &dyn Runner,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Summary, DirectoryError> {
    let points = directory.missing();
    let all = directory.experiment().points().len();
    let mut summary = Summary { before: all - points.len(), ..Summary::default() };
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    let kept = thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, points.len().max(1)) {
            let (sender, points, next) = (sender.clone(), &points, &next);
            scope.spawn(move || {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let Some(record) = runner.run(point) else { break };
                    if sender.send(record).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut done = summary.before;
        progress(done, all);
        // The receiver goes with this loop: workers end after their point when a result could not be kept.
        for record in results {
            summary.failed += usize::from(record.outcome.is_err());
            directory.add(record)?;
            done += 1;
            progress(done, all);
        }
        summary.done = done - summary.failed;
        summary.left = all - done;
        Ok(())
    });
    kept.map(|()| summary)
}
