//! Limits of time for whatever a test waits for: no test may hang, however broken what it tests is.
//!
//! | what is waited for | with |
//! |---|---|
//! | a program that is run to its end | [`output`] |
//! | a program that was started | [`wait`], [`finish`] |
//! | a thread | [`join`] |
//! | work on a mount that may be dead | a [`Watchdog`] that ends the mount, and with it the work |

use std::io::{self, ErrorKind, Read};
use std::panic;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// For what takes a second or two: enough on the busiest machine.
pub const SHORT: Duration = Duration::from_secs(120);
/// For what takes minutes.
pub const LONG: Duration = Duration::from_secs(900);

/// How often to look whether something has ended.
const LOOK: Duration = Duration::from_millis(2);
/// How long to wait for what programs left behind say when the program itself has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs a program to its end and returns what it said, as `Command::output` does.
///
/// When the time is up, it is killed with all that it has started. Programs that it leaves in the background and that keep its output
/// open are waited for only two seconds.
///
/// # Errors
/// When it cannot be started, and [`ErrorKind::TimedOut`] with the command line and what it had said when the time is up.
pub fn output(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    finish(child, limit).map_err(|error| io::Error::new(error.kind(), format!("{command:?}: {error}")))
}

/// Waits for a program that was started with pipes, as `Child::wait_with_output` does; its end is as with [`output`].
///
/// # Errors
/// [`ErrorKind::TimedOut`] with what it had said when the time is up.
pub fn finish(mut child: Child, limit: Duration) -> io::Result<Output> {
    drop(child.stdin.take());
    let out = Said::by(child.stdout.take());
    let err = Said::by(child.stderr.take());
    let ended = wait(&mut child, limit);
    let patience = Instant::now() + LAST_WORDS;
    let (stdout, stderr) = (out.all(patience), err.all(patience));
    match ended {
        Ok(status) => Ok(Output { status, stdout, stderr }),
        Err(error) => {
            let said = [stdout, stderr].concat();
            Err(io::Error::new(error.kind(), format!("{error}\n{}", String::from_utf8_lossy(&said))))
        }
    }
}

/// Waits for a program to end, and kills it with all that it has started when the time is up.
///
/// # Errors
/// [`ErrorKind::TimedOut`] when the time was up; it may go on then only if not even the kernel can end it.
pub fn wait(child: &mut Child, limit: Duration) -> io::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() >= limit {
            break;
        }
        std::thread::sleep(LOOK);
    }
    kill_descendants(child.id());
    child.kill()?;
    let gone = Instant::now();
    while child.try_wait()?.is_none() && gone.elapsed() < LAST_WORDS {
        std::thread::sleep(LOOK);
    }
    Err(io::Error::new(ErrorKind::TimedOut, format!("not finished after {} s", limit.as_secs())))
}

/// Kills what a process has started, and what that has. What has lost its parent already is not found.
fn kill_descendants(pid: u32) {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pairs: Vec<(u32, u32)> = processes
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // After the name, which is in brackets: state and parent.
            Some((number, stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for &(child, _) in pairs.iter().filter(|(_, its_parent)| *its_parent == parent) {
            parents.push(child);
            if let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) {
                // It may have ended meanwhile.
                let _ = rustix::process::kill_process(child, Signal::KILL);
            }
        }
    }
}

/// The result of a thread; panics as the thread did, or when it has not ended in time.
#[track_caller]
pub fn join<T>(thread: JoinHandle<T>, limit: Duration) -> T {
    let start = Instant::now();
    while !thread.is_finished() {
        assert!(start.elapsed() < limit, "a thread has not ended after {} s", limit.as_secs());
        std::thread::sleep(LOOK);
    }
    thread.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

/// Does something unless it is dropped in time.
#[derive(Debug)]
pub struct Watchdog {
    /// Closed when this is dropped.
    _alive: Sender<()>,
}

impl Watchdog {
    /// Does `bite` after `limit`, and says so: whatever ends the work that `what` names.
    pub fn new(what: impl Into<String>, limit: Duration, bite: impl FnOnce() + Send + 'static) -> Watchdog {
        let (alive, hear): (Sender<()>, Receiver<()>) = mpsc::channel();
        let what = what.into();
        std::thread::spawn(move || {
            if hear.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: not finished after {} s, ended by force", limit.as_secs());
                bite();
            }
        });
        Watchdog { _alive: alive }
    }
}

/// What a program says, read by a thread of its own.
struct Said {
    text: Arc<Mutex<Vec<u8>>>,
    end: Receiver<()>,
}

impl Said {
    fn by(pipe: Option<impl Read + Send + 'static>) -> Said {
        let text = Arc::new(Mutex::new(Vec::new()));
        let (ended, end) = mpsc::channel();
        let heard = Arc::clone(&text);
        std::thread::spawn(move || {
            // Closed when the thread ends.
            let _ended: Sender<()> = ended;
            let mut buffer = vec![0; 1 << 16];
            let Some(mut pipe) = pipe else { return };
            while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
            }
        });
        Said { text, end }
    }

    /// Everything, or what there is at `deadline`.
    fn all(&self, deadline: Instant) -> Vec<u8> {
        let _ = self.end.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        std::mem::take(&mut *self.text.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_ends_in_time_says_all_it_has_to_say() {
        let ended = output(&mut shell("echo out; echo err >&2; exit 3"), SHORT).unwrap();
        assert_eq!(
            (ended.status.code(), &ended.stdout[..], &ended.stderr[..]),
            (Some(3), &b"out\n"[..], &b"err\n"[..])
        );
        let large = output(&mut shell("head -c 3000000 /dev/zero"), SHORT).unwrap();
        assert_eq!(large.stdout.len(), 3_000_000);
    }

    #[test]
    fn what_does_not_end_is_killed_with_all_its_children() {
        let start = Instant::now();
        let error = output(&mut shell("echo begun; sleep 1000 & sleep 1000"), Duration::from_millis(300)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("begun"), "{error}");
        // The pipe is closed by the children's end.
        assert!(start.elapsed() < LAST_WORDS, "{:?}", start.elapsed());
    }

    #[test]
    fn what_stays_in_the_background_is_not_waited_for() {
        let start = Instant::now();
        let ended = output(&mut shell("sleep 100 & echo $!"), SHORT).unwrap();
        assert!(ended.status.success() && start.elapsed() < SHORT / 4);
        let left = String::from_utf8(ended.stdout).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn threads_are_joined_in_time_or_not_at_all() {
        assert_eq!(join(std::thread::spawn(|| 5), SHORT), 5);
        let (release, wait) = mpsc::channel::<()>();
        let held = std::thread::spawn(move || wait.recv().is_err());
        assert!(panic::catch_unwind(panic::AssertUnwindSafe(|| join(held, Duration::from_millis(20)))).is_err());
        drop(release);
    }

    #[test]
    fn a_watchdog_bites_only_who_is_late() {
        static BITTEN: AtomicBool = AtomicBool::new(false);
        drop(Watchdog::new("in time", Duration::from_millis(100), || BITTEN.store(true, SeqCst)));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!BITTEN.load(SeqCst));
        let (bite, bitten) = mpsc::channel();
        let _late = Watchdog::new("late (on purpose)", Duration::from_millis(10), move || bite.send(()).unwrap());
        bitten.recv_timeout(SHORT).unwrap();
    }
}
