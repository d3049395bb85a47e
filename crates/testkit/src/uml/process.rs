//! The machine's process on the host: started, waited for, killed when its time is up.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{KERNEL, Status, UmlResult};
use crate::error::{Context, Error, Result};
use crate::skip::find_program;

/// Starts the kernel and collects what it leaves in `place`.
pub fn run(arguments: &[String], place: &Path, timeout: Duration) -> Result<UmlResult> {
    let kernel = find_program(KERNEL).ok_or_else(|| Error::Invalid(format!("{KERNEL} is not installed")))?;
    let console_path = place.join("console");
    let console = File::create(&console_path).doing("create", &console_path)?;
    let errors = console.try_clone().doing("share", &console_path)?;
    // timeout(1) ends the machine even if this process is killed first. It stays behind our own limit.
    let limit = timeout.as_secs().saturating_add(10).to_string();
    let started = Instant::now();
    let child = Command::new("timeout")
        .args(["--signal=KILL", &limit])
        .arg(&kernel)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(console)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .doing("start", &kernel)?;
    let ended = wait(child, timeout).doing("wait for", &kernel)?;
    let read = |name: &str| {
        let bytes = std::fs::read(place.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let status = match (ended, read("status").trim().parse()) {
        (None, _) => Status::TimedOut,
        (Some(_), Ok(code)) => Status::Exited(code),
        (Some(_), Err(_)) => Status::Died,
    };
    Ok(UmlResult {
        status,
        output: read("output"),
        kernel_log: read("kernel.log"),
        console: read("console"),
        elapsed: started.elapsed(),
    })
}

/// Waits for the end; `None` when the machine had to be killed.
fn wait(mut child: Child, timeout: Duration) -> std::io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            kill_all(&child);
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The guest's processes are processes of the host, all in the group that the child leads.
fn kill_all(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The only failure is that nobody is left to kill.
        let _ = kill_process_group(group, Signal::KILL);
    }
}
