//! The machine's process on the host: started, waited for, killed when its time is up or when nobody waits any more.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Context, Result};
use crate::machine::{KERNEL, Uml};
use crate::{Error, Status, UmlResult};

/// What is loaded into the kernel's process, see `src/preload/`; empty where it could not be compiled.
const PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// What is written down of the requests to an image.
pub struct Recording {
    /// The image.
    pub image: PathBuf,
    /// The file of requests.
    pub requests: PathBuf,
    /// The file of what was written, if it is wanted.
    pub data: Option<PathBuf>,
}

/// What a machine is started with.
pub struct Start<'a> {
    /// The kernel's command line.
    pub arguments: Vec<String>,
    /// What is written down.
    pub recording: Option<Recording>,
    /// The directory of the run.
    pub place: &'a Path,
    /// How long it may run.
    pub timeout: Duration,
}

/// Starts the kernel and collects what it leaves in its place.
pub fn run(start: &Start, watch: &mut dyn FnMut() -> ControlFlow<()>) -> Result<UmlResult> {
    let kernel = find_kernel()?;
    let console_path = start.place.join("console");
    let console = File::create(&console_path).doing("create", &console_path)?;
    let errors = console.try_clone().doing("share", &console_path)?;
    let started = Instant::now();
    let mut machine = Command::new(&kernel);
    preload(&mut machine, start)?;
    machine.args(&start.arguments).stdin(Stdio::null()).stdout(console).stderr(errors);
    let ended = Machine::start(machine).and_then(|machine| machine.wait(start.timeout, watch)).doing("run", &kernel)?;
    let read = |name: &str| {
        let bytes = std::fs::read(start.place.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let status = match (ended, read("status").trim().parse()) {
        (Ended::TimedOut, _) => Status::TimedOut,
        (Ended::Stopped, _) => Status::Stopped,
        (Ended::ByItself, Ok(code)) => Status::Exited(code),
        (Ended::ByItself, Err(_)) => Status::Died,
    };
    Ok(UmlResult {
        status,
        output: read("output"),
        kernel_log: read("kernel.log"),
        console: read("console"),
        elapsed: started.elapsed(),
    })
}

/// Where the kernel is, looking through PATH and then the directories of system programs, which users often lack.
pub fn find_kernel() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/bin", "/usr/bin"].into_iter().map(PathBuf::from);
    let places = std::env::split_paths(&path).chain(system);
    places.map(|directory| directory.join(KERNEL)).find(|file| file.is_file()).ok_or_else(Uml::kernel_missing)
}

/// Has the library loaded into the kernel, and tells it what to write down.
fn preload(machine: &mut Command, start: &Start) -> Result<()> {
    if PRELOAD.is_empty() {
        let missing = "the library that records requests (no C compiler when this program was built)";
        let remedy = "build it where there is one";
        return if start.recording.is_some() { Err(Error::NotInstalled { missing, remedy }) } else { Ok(()) };
    }
    let library = start.place.join("preload.so");
    std::fs::write(&library, PRELOAD).doing("write", &library)?;
    machine.env("LD_PRELOAD", &library).env_remove("BASALT_UML_REQUESTS").env_remove("BASALT_UML_DATA");
    if let Some(Recording { image, requests, data }) = &start.recording {
        let requests = requests.canonicalize().doing("find", requests)?;
        let image = image.canonicalize().doing("find", image)?;
        machine.env("BASALT_UML_REQUESTS", requests).env("BASALT_UML_IMAGE", image);
        if let Some(data) = data {
            machine.env("BASALT_UML_DATA", data.canonicalize().doing("find", data)?);
        }
    }
    Ok(())
}

/// Why a machine runs no more.
enum Ended {
    ByItself,
    TimedOut,
    Stopped,
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

    /// Waits for the end, and brings it about when the time is up or `watch` breaks off.
    fn wait(mut self, timeout: Duration, watch: &mut dyn FnMut() -> ControlFlow<()>) -> std::io::Result<Ended> {
        let deadline = Instant::now() + timeout;
        loop {
            if self.kernel.try_wait()?.is_some() {
                return Ok(Ended::ByItself);
            }
            if Instant::now() >= deadline {
                return Ok(Ended::TimedOut);
            }
            if watch().is_break() {
                return Ok(Ended::Stopped);
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
