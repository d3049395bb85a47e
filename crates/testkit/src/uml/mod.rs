//! Linux in a process: User-Mode Linux (UML), run as an ordinary program.
//!
//! The guest's root directory is the host's (hostfs), so every program and file of the host is there under the same
//! name. Image files appear as `/dev/ubda`, `/dev/ubdb`…; the first process runs a shell script as root; then the
//! machine powers off and the script's exit status, its output and the kernel's log come back. Booting takes about two
//! seconds and needs no privilege.
//!
//! ```no_run
//! use basalt_testkit::{Uml, images};
//! # fn main() -> basalt_testkit::Result<()> {
//! let directory = basalt_testkit::scratch::directory()?;
//! let image = directory.path().join("volume.img");
//! images::mkfs_f2fs(&image, 100 << 20, &[])?;
//! Uml::new().image(&image).with_f2fs("", "echo hello > $MNT/greeting")?.expect_success();
//! # Ok(())
//! # }
//! ```
//!
//! Powering off is not unmounting: what a script leaves mounted is cut off as if by a power failure.

mod guest;
mod process;
mod result;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::skip::{find_program, skip};
use crate::{helper, scratch};

pub use result::{Status, UmlResult};

/// The kernel's file name.
const KERNEL: &str = "linux.uml";
/// Where Debian keeps the kernel's modules: one directory a version.
const MODULES: &str = "/usr/lib/uml/modules";
/// The exit status of [`Uml::with_f2fs`] when the volume could not be mounted.
pub const MOUNT_FAILED: i32 = 125;
/// The exit status of [`Uml::with_f2fs`] when the script succeeded but unmounting failed.
pub const UNMOUNT_FAILED: i32 = 126;

/// A machine to be started; every `run_…` starts a fresh one with the same settings.
#[derive(Clone, Debug)]
pub struct Uml {
    disks: Vec<Disk>,
    memory_mib: u32,
    timeout: Duration,
    modules: Vec<String>,
    environment: Vec<(String, String)>,
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
    /// A machine with 256 MiB of memory, no disk, one minute to live, and F2FS loaded.
    pub fn new() -> Uml {
        Uml {
            disks: Vec::new(),
            memory_mib: 256,
            timeout: Duration::from_secs(60),
            modules: vec!["crypto/crc32_generic".to_owned(), "fs/f2fs/f2fs".to_owned()],
            environment: Vec::new(),
        }
    }

    /// [`Uml::new`], or `None` after saying that the test is skipped, where UML is not installed.
    pub fn new_or_skip() -> Option<Uml> {
        let missing = if find_program(KERNEL).is_none() {
            KERNEL
        } else if !Path::new(MODULES).is_dir() {
            MODULES
        } else {
            return Some(Uml::new());
        };
        skip(format_args!("no User-Mode Linux here: {missing} is missing (Debian package user-mode-linux)"));
        None
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

    /// Loads one more kernel module, named as below the modules' `kernel/` directory: `fs/fuse/fuse`, `fs/quota/quota_v2`.
    /// A module it needs must be named before it.
    pub fn module(mut self, name: &str) -> Uml {
        self.modules.push(name.to_owned());
        self
    }

    /// Loads what keeps the quota files of volumes that have them (Android's). Without it Linux mounts such a volume all
    /// the same, leaves its quota files alone and marks them as needing a check.
    pub fn quota(self) -> Uml {
        self.module("fs/quota/quota_tree").module("fs/quota/quota_v2")
    }

    /// Sets an environment variable of the script.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Uml {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Boots, runs a shell script as root, powers off. In the script, `$TESTKIT` is the program `basalt-testkit`
    /// and `$RUN` a directory shared with the host, empty at first, gone afterwards.
    ///
    /// # Errors
    /// When the machine cannot be started. What happens inside is in the result: see [`UmlResult::status`].
    pub fn run_script(&self, script: &str) -> Result<UmlResult> {
        let run = scratch::directory()?;
        let place = run.path();
        let write = |name: &str, text: &str| {
            let path = place.join(name);
            std::fs::write(&path, text).doing("write", &path)
        };
        write("script", script)?;
        write("init", &guest::init_script(place, &self.modules, &self.all_environment()?))?;
        std::fs::create_dir(place.join("run")).doing("create a directory in", place)?;
        make_executable(&place.join("init"))?;
        process::run(&self.kernel_arguments(place)?, place, self.timeout)
    }

    /// Mounts `/dev/ubda` as F2FS with the mount options (none if empty), runs the script with the mount point in `$MNT`,
    /// unmounts. The status is the script's, [`MOUNT_FAILED`] or [`UNMOUNT_FAILED`];
    /// [`UmlResult::complaints`] has what the kernel's F2FS found wrong.
    ///
    /// # Errors
    /// As [`Uml::run_script`].
    pub fn with_f2fs(&self, mount_options: &str, script: &str) -> Result<UmlResult> {
        self.run_script(&guest::mounting_script(mount_options, script, true))
    }

    /// As [`Uml::with_f2fs`], but the power fails when the script ends: nothing is unmounted, and only what the script
    /// has made durable is sure to be on the image.
    ///
    /// # Errors
    /// As [`Uml::run_script`].
    pub fn with_f2fs_then_power_cut(&self, mount_options: &str, script: &str) -> Result<UmlResult> {
        self.run_script(&guest::mounting_script(mount_options, script, false))
    }

    fn all_environment(&self) -> Result<Vec<(String, String)>> {
        let mut all = vec![("TESTKIT".to_owned(), helper::path()?.display().to_string())];
        all.extend(self.environment.iter().cloned());
        Ok(all)
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
        .ok_or_else(|| Error::Invalid(format!("{} cannot be named on a kernel command line", path.display())))
}

fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).doing("make executable", path)
}
