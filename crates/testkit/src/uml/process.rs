//! The machine's process on the host: started, waited for, killed when its time is up or when nobody waits any more.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{KERNEL, Status, UmlResult};
use crate::error::{Context, Error, Result};
use crate::skip::find_program;

/// What the kernel needs on processors with more register state than it knows (`xstate.c`); harmless on others.
const XSTATE_LIBRARY: Option<&str> = option_env!("UML_XSTATE_LIBRARY");

/// Starts the kernel and collects what it leaves in `place`.
pub fn run(arguments: &[String], place: &Path, timeout: Duration) -> Result<UmlResult> {
    let kernel = find_program(KERNEL).ok_or_else(|| Error::Invalid(format!("{KERNEL} is not installed")))?;
    let console_path = place.join("console");
    let console = File::create(&console_path).doing("create", &console_path)?;
    let errors = console.try_clone().doing("share", &console_path)?;
    let started = Instant::now();
    let mut machine = Command::new(&kernel);
    if let Some(library) = XSTATE_LIBRARY {
        machine.env("LD_PRELOAD", library);
    }
    machine.args(arguments).stdin(Stdio::null()).stdout(console).stderr(errors);
    let ended = Machine::start(machine).and_then(|machine| machine.wait(timeout)).doing("run", &kernel)?;
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

/// A running machine. The guest's processes are processes of the host; all of them die with this value, and with the
/// process that owns it, however that ends.
struct Machine {
    kernel: Child,
    /// A shell in the machine's process group that waits for the end of its input, which only we hold open, and then kills the
    /// group. The kernel is the group's leader, or else it would leave for a session of its own.
    guard: Child,
}

impl Machine {
    fn start(mut command: Command) -> std::io::Result<Machine> {
        let mut kernel = command.process_group(0).spawn()?;
        let guard = i32::try_from(kernel.id()).map_err(std::io::Error::other).and_then(|group| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "read line; kill -KILL 0"]).process_group(group);
            shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        });
        match guard {
            Ok(guard) => Ok(Machine { kernel, guard }),
            Err(error) => {
                kernel.kill()?;
                kernel.wait()?;
                Err(error)
            }
        }
    }

    /// Waits for the end; `None` when the machine had to be killed.
    fn wait(mut self, timeout: Duration) -> std::io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + timeout;
        loop {
            let ended = self.kernel.try_wait()?;
            if ended.is_some() || Instant::now() >= deadline {
                return Ok(ended);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // Nothing more can be done about a failure here; there is none for a child of ours that was not waited for.
        let _ = self.guard.wait();
        let _ = self.kernel.wait();
    }
}
