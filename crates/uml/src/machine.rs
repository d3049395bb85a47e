//! A machine to be started, and running it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::process::Recording;
use crate::{UmlResult, guest, process};

/// The kernel's file name.
pub(crate) const KERNEL: &str = "linux.uml";
/// Where Debian keeps the kernel's modules: one directory a version.
pub(crate) const MODULES: &str = "/usr/lib/uml/modules";
/// What to do when either is not there.
const REMEDY: &str = "install the Debian package user-mode-linux";

/// A machine to be started; every `run_…` starts a fresh one with the same settings.
#[derive(Clone, Debug)]
pub struct Uml {
    disks: Vec<Disk>,
    memory_mib: u32,
    timeout: Duration,
    modules: Vec<String>,
    environment: Vec<(String, String)>,
    place: PathBuf,
    recording: Option<PathBuf>,
    recorded_data: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct Disk {
    path: PathBuf,
    read_only: bool,
}

impl Default for Uml {
    fn default() -> Uml {
        Uml::new()
    }
}

impl Uml {
    /// A machine with 256 MiB of memory, no disk, no module and one minute to live.
    pub fn new() -> Uml {
        Uml {
            disks: Vec::new(),
            memory_mib: 256,
            timeout: Duration::from_secs(60),
            modules: Vec::new(),
            environment: Vec::new(),
            place: std::env::temp_dir(),
            recording: None,
            recorded_data: None,
        }
    }

    /// Says whether User-Mode Linux is on this computer.
    ///
    /// # Errors
    /// [`Error::NotInstalled`] when it is not.
    pub fn installed() -> Result<()> {
        process::find_kernel()?;
        if Path::new(MODULES).is_dir() {
            return Ok(());
        }
        Err(Error::NotInstalled { missing: MODULES, remedy: REMEDY })
    }

    pub(crate) fn kernel_missing() -> Error {
        Error::NotInstalled { missing: KERNEL, remedy: REMEDY }
    }

    /// Adds an image as the next disk: the first is `/dev/ubda`, the second `/dev/ubdb`, and so on.
    pub fn image(mut self, path: impl Into<PathBuf>) -> Uml {
        self.disks.push(Disk { path: path.into(), read_only: false });
        self
    }

    /// Adds an image as the next disk, which the guest cannot write.
    pub fn read_only_image(mut self, path: impl Into<PathBuf>) -> Uml {
        self.disks.push(Disk { path: path.into(), read_only: true });
        self
    }

    /// Writes the requests made to the first disk to a file: see [`crate::Requests`]. The file is made anew at every run.
    pub fn record(mut self, path: impl Into<PathBuf>) -> Uml {
        self.recording = Some(path.into());
        self
    }

    /// With [`Uml::record`]: writes the bytes of all writes to another file, one behind the other. They are in the order of the requests.
    pub fn record_data(mut self, path: impl Into<PathBuf>) -> Uml {
        self.recorded_data = Some(path.into());
        self
    }

    /// Sets the guest's memory; F2FS wants 64 MiB at the very least.
    pub fn memory_mib(mut self, memory_mib: u32) -> Uml {
        self.memory_mib = memory_mib;
        self
    }

    /// Sets how long the machine may run, boot included, before it is killed.
    pub fn timeout(mut self, timeout: Duration) -> Uml {
        self.timeout = timeout;
        self
    }

    /// Loads one more kernel module, named as below the modules' `kernel/` directory: `fs/fuse/fuse`, `fs/nilfs2/nilfs2`.
    /// A module it needs must be named before it.
    pub fn module(mut self, name: &str) -> Uml {
        self.modules.push(name.to_owned());
        self
    }

    /// Sets an environment variable of the script.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Uml {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Sets where the files of a run are kept while it lasts; otherwise where temporary files go.
    pub fn place(mut self, directory: impl Into<PathBuf>) -> Uml {
        self.place = directory.into();
        self
    }

    /// Boots, runs a shell script as root, powers off. In the script, `$RUN` is a directory shared with the host, empty
    /// at first, gone afterwards.
    ///
    /// # Errors
    /// When the machine cannot be started. What happens inside is in the result: see [`crate::Status`].
    pub fn run_script(&self, script: &str) -> Result<UmlResult> {
        self.run_watched(script, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`Uml::run_script`], and calls `watch` fifty times a second with the directory that is `$RUN` inside. The
    /// machine is killed when it breaks off.
    ///
    /// # Errors
    /// As [`Uml::run_script`].
    pub fn run_watched(&self, script: &str, watch: &mut dyn FnMut(&Path) -> ControlFlow<()>) -> Result<UmlResult> {
        std::fs::create_dir_all(&self.place).doing("create", &self.place)?;
        let directory = tempfile::Builder::new().prefix("basalt-uml-").tempdir_in(&self.place);
        let directory = directory.doing("create a temporary directory in", &self.place)?;
        let place = &directory.path().canonicalize().doing("find", directory.path())?;
        let write = |name: &str, text: &str| {
            let path = place.join(name);
            std::fs::write(&path, text).doing("write", &path)
        };
        write("script", script)?;
        write("init", &guest::init_script(place, &self.modules, &self.environment))?;
        let shared = place.join("run");
        std::fs::create_dir(&shared).doing("create", &shared)?;
        make_executable(&place.join("init"))?;
        let recording = self.start_recording()?;
        let start =
            process::Start { arguments: self.kernel_arguments(place)?, recording, place, timeout: self.timeout };
        process::run(&start, &mut || watch(&shared))
    }

    /// The files of requests and data, empty, and the image they are made to.
    fn start_recording(&self) -> Result<Option<Recording>> {
        let Some(requests) = &self.recording else { return Ok(None) };
        let Some(disk) = self.disks.first() else { return Ok(None) };
        for path in [requests].into_iter().chain(&self.recorded_data) {
            std::fs::File::create(path).doing("create", path)?;
        }
        let (image, data) = (disk.path.clone(), self.recorded_data.clone());
        Ok(Some(Recording { image, requests: requests.clone(), data }))
    }

    fn kernel_arguments(&self, place: &Path) -> Result<Vec<String>> {
        let mut arguments: Vec<String> = [
            "rootfstype=hostfs",
            "rootflags=/",
            "rw",
            "con=null",
            "con0=null,fd:1",
            "quiet",
            "selinux=0",
            "audit=0",
            "panic=-1",
            "umid=machine",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.push(format!("mem={}M", self.memory_mib));
        arguments.push(format!("init={}/init", kernel_word(place)?));
        arguments.push(format!("uml_dir={}/", kernel_word(place)?));
        for (number, disk) in self.disks.iter().enumerate() {
            let path = disk.path.canonicalize().doing("find", &disk.path)?;
            let flags = if disk.read_only { "r" } else { "" };
            arguments.push(format!("ubd{number}{flags}={}", kernel_word(&path)?));
        }
        Ok(arguments)
    }
}

/// A path as it can stand in a kernel argument, where blanks, commas and colons have meanings.
fn kernel_word(path: &Path) -> Result<&str> {
    path.to_str()
        .filter(|text| !text.contains([' ', ',', ':', '"', '\'']))
        .ok_or_else(|| Error::Unnameable(path.display().to_string()))
}

fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).doing("make executable", path)
}
