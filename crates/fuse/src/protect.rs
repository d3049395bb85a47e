//! Protecting a process that serves a file system from what the kernel does when memory is short.
//!
//! Its own allocations must not wait for writeback, which may wait for this very process; and it must not be the one that is
//! killed: that frees little, and loses what programs have written. As iscsid, multipathd and other servers of storage have it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};

/// Where a process says how willingly it is killed.
const SCORE: &str = "/proc/self/oom_score_adj";
/// Never.
const NEVER: &[u8] = b"-1000\n";

/// How willingly this process was killed before it was protected.
static BEFORE: OnceLock<Vec<u8>> = OnceLock::new();

/// Protects this process: marks this thread, and those that it starts from now on, as serving storage (`PR_SET_IO_FLUSHER`: their
/// allocations wait for no writeback, and their writing is throttled only by the disk they write to), and takes the process out of
/// the choice of the kernel's out-of-memory killer. To be called before any other thread starts. Each needs a capability
/// (`CAP_SYS_RESOURCE`), as root has it; without it, the process stays as it is.
pub fn protect_server() {
    if let Err(errno) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!(%errno, "not marked as serving storage");
    }
    let before = fs::read(SCORE).unwrap_or_default();
    match fs::write(SCORE, NEVER) {
        Ok(()) => drop(BEFORE.set(before)),
        Err(error) => tracing::debug!(%error, "not protected from the out-of-memory killer"),
    }
}

/// Starts `command` without that protection, which children inherit otherwise: they serve nothing.
#[allow(unsafe_code)]
pub fn unprotected(command: &mut Command) -> &mut Command {
    let before = BEFORE.get().cloned();
    let renounce = move || {
        // Without the right to set it, it was never set.
        let _ = rustix::process::configure_io_flusher_behavior(false);
        if let Some(before) = &before {
            let score = rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(&score, before)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made: nothing is allocated or freed, and no lock taken.
    unsafe { command.pre_exec(renounce) }
}
