//! A copy of this program in the background.
//!
//! A process with threads cannot fork safely, so the parent starts the program anew, with the same work and a pipe as its
//! standard output. The child writes one word there when the mount serves, and lets go of the terminal; until then its complaints go
//! to the parent's standard error. If the pipe closes without the word, the child has failed, and the parent fails the same way.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use crate::failure::Failure;

/// What the child writes when the mount serves.
const READY: &[u8] = b"ready\n";

/// Runs this program with `arguments` in the background; returns when the mount serves, or with the exit code with which it failed.
///
/// # Errors
/// When no process can be started, or it ends without a word.
pub fn start(arguments: &[OsString]) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| Failure::at("starting the background process", error);
    let child = Command::new(program()).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(failed)?;
    let mut word = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipe.take(READY.len() as u64).read_to_end(&mut word).map_err(failed)?;
    }
    if word == READY {
        return Ok(0);
    }
    let status = child.wait().map_err(failed)?;
    code(status)
}

fn code(status: ExitStatus) -> Result<u8, Failure> {
    match status.code().map(u8::try_from) {
        Some(Ok(code)) if code != 0 => Ok(code),
        // It has not said why.
        _ => Err(Failure::new(format_args!("the background process ended early ({status})"))),
    }
}

/// This program. A link in /proc works even if the file is gone, but gives the process a strange name.
pub(super) fn program() -> PathBuf {
    std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into())
}

/// In the child, first thing: leaves the terminal's session, so that closing the terminal does not end it.
pub fn detach() {
    // Fails only for a process that leads a group, which a child that was just started does not.
    if let Err(errno) = rustix::process::setsid() {
        tracing::debug!(%errno, "stays in its session");
    }
}

/// In the child, once the mount serves: lets the parent return, and goes on without terminal and working directory.
pub fn ready() {
    if let Err(error) = let_go() {
        tracing::warn!(%error, "the background process keeps its terminal or directory");
    }
}

fn let_go() -> std::io::Result<()> {
    // A directory in use cannot be unmounted.
    std::env::set_current_dir("/")?;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(READY)?;
    stdout.flush()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
