//! Linux in a process, for tests: [`basalt_uml`] with F2FS loaded and with what scripts of tests need.
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

use std::path::PathBuf;
use std::time::Duration;

use basalt_uml::quoted;

use crate::error::Result;
use crate::skip::skip;
use crate::{helper, scratch};

pub use basalt_uml::{Status, UmlResult};

/// The exit status of [`Uml::with_f2fs`] when the volume could not be mounted.
pub const MOUNT_FAILED: i32 = 125;
/// The exit status of [`Uml::with_f2fs`] when the script succeeded but unmounting failed.
pub const UNMOUNT_FAILED: i32 = 126;

/// A machine with F2FS to be started; every `run_…` starts a fresh one with the same settings.
#[derive(Clone, Debug)]
pub struct Uml(basalt_uml::Uml);

impl Default for Uml {
    fn default() -> Uml {
        Uml::new()
    }
}

impl Uml {
    /// A machine with 256 MiB of memory, no disk, one minute to live, and F2FS loaded.
    pub fn new() -> Uml {
        let machine = basalt_uml::Uml::new().place(scratch::place());
        Uml(machine.module("crypto/crc32_generic").module("fs/f2fs/f2fs"))
    }

    /// [`Uml::new`], or `None` after saying that the test is skipped, where UML is not installed.
    pub fn new_or_skip() -> Option<Uml> {
        basalt_uml::Uml::installed().map(|()| Uml::new()).map_err(skip).ok()
    }

    /// As [`basalt_uml::Uml::image`].
    pub fn image(self, path: impl Into<PathBuf>) -> Uml {
        Uml(self.0.image(path))
    }

    /// As [`basalt_uml::Uml::read_only_image`].
    pub fn read_only_image(self, path: impl Into<PathBuf>) -> Uml {
        Uml(self.0.read_only_image(path))
    }

    /// As [`basalt_uml::Uml::memory_mib`].
    pub fn memory_mib(self, memory_mib: u32) -> Uml {
        Uml(self.0.memory_mib(memory_mib))
    }

    /// As [`basalt_uml::Uml::timeout`].
    pub fn timeout(self, timeout: Duration) -> Uml {
        Uml(self.0.timeout(timeout))
    }

    /// As [`basalt_uml::Uml::module`].
    pub fn module(self, name: &str) -> Uml {
        Uml(self.0.module(name))
    }

    /// Loads what keeps the quota files of volumes that have them (Android's). Without it Linux mounts such a volume all
    /// the same, leaves its quota files alone and marks them as needing a check.
    pub fn quota(self) -> Uml {
        self.module("fs/quota/quota_tree").module("fs/quota/quota_v2")
    }

    /// As [`basalt_uml::Uml::env`].
    pub fn env(self, name: &str, value: impl Into<String>) -> Uml {
        Uml(self.0.env(name, value))
    }

    /// As [`basalt_uml::Uml::run_script`]; besides, `$TESTKIT` is the program `basalt-testkit`.
    ///
    /// # Errors
    /// When the machine cannot be started. What happens inside is in the result: see [`Status`].
    pub fn run_script(&self, script: &str) -> Result<UmlResult> {
        let machine = self.0.clone().env("TESTKIT", helper::path()?.display().to_string());
        Ok(machine.run_script(script)?)
    }

    /// Mounts `/dev/ubda` as F2FS with the mount options (none if empty), runs the script with the mount point in `$MNT`,
    /// unmounts. The status is the script's, [`MOUNT_FAILED`] or [`UNMOUNT_FAILED`];
    /// [`UmlResult::complaints`] has what the kernel's F2FS found wrong.
    ///
    /// # Errors
    /// As [`Uml::run_script`].
    pub fn with_f2fs(&self, mount_options: &str, script: &str) -> Result<UmlResult> {
        self.run_script(&mounting_script(mount_options, script, true))
    }

    /// As [`Uml::with_f2fs`], but the power fails when the script ends: nothing is unmounted, and only what the script
    /// has made durable is sure to be on the image.
    ///
    /// # Errors
    /// As [`Uml::run_script`].
    pub fn with_f2fs_then_power_cut(&self, mount_options: &str, script: &str) -> Result<UmlResult> {
        self.run_script(&mounting_script(mount_options, script, false))
    }
}

/// A script that mounts the first disk, runs `script` in a shell of its own, and unmounts if asked to.
fn mounting_script(mount_options: &str, script: &str, unmount: bool) -> String {
    let options = if mount_options.is_empty() { String::new() } else { format!("-o {} ", quoted(mount_options)) };
    let unmount = if unmount {
        format!("umount \"$MNT\" || {{ echo 'cannot unmount'; [ $status -ne 0 ] || status={}; }}", UNMOUNT_FAILED)
    } else {
        String::new()
    };
    format!(
        "export MNT=/run/basalt/mnt\nmkdir -p \"$MNT\"\nmount -t f2fs {options}/dev/ubda \"$MNT\" || exit {MOUNT_FAILED}\n\
         sh -c {script}\nstatus=$?\n{unmount}\nexit $status\n",
        script = quoted(script),
    )
}
