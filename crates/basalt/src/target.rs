//! Opens the target of a command, an image file or a block device. Waits for a process that is about to release it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use basalt_device::file::mounted_over;
use basalt_device::{DeviceError, FileDevice, Lock, OpenOptions};

use crate::failure::Failure;
use crate::mounts;
use crate::output::tell;

/// How often to try a locked target again.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// A target that is released within this time is waited for without a message.
const SILENT: Duration = Duration::from_millis(500);

/// The image or device, and how long to wait for it.
#[derive(Debug, Clone, clap::Args)]
pub struct Target {
    /// Image file or block device
    #[arg(value_name = "TARGET", value_hint = clap::ValueHint::FilePath)]
    pub path: PathBuf,

    /// How long to wait for it.
    #[command(flatten)]
    pub patience: Patience,
}

/// How long to wait for a target that is in use.
#[derive(Debug, Clone, clap::Args)]
pub struct Patience {
    /// Maximum time to wait for a target that another program has locked
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = crate::size::seconds, display_order = 900)]
    pub wait: Duration,
}

impl Target {
    /// Opens the target to read. Other processes may read it too, and none may write.
    ///
    /// # Errors
    /// When it is no device, or still in use after the wait.
    pub fn open_shared(&self) -> Result<FileDevice, Failure> {
        let options = OpenOptions { read_only: true, lock: Lock::Shared, ..OpenOptions::default() };
        open(&self.path, &options, self.patience.wait)
    }

    /// Opens the target to write, for this process alone.
    ///
    /// # Errors
    /// As [`open_shared`](Self::open_shared).
    pub fn open_exclusive(&self) -> Result<FileDevice, Failure> {
        open(&self.path, &OpenOptions::default(), self.patience.wait)
    }
}

/// What is said of a mount that this mount namespace does not show. It may be in none that anybody can enter any more.
fn served_elsewhere(process: u32) -> String {
    format!("process {process} serves it in another mount namespace, and `kill {process}` (SIGTERM) unmounts it")
}

/// Opens a device. What is mounted, also by another loop device or as a part of something larger, is refused at once; for what is merely
/// locked (a volume being closed, a check that ends) this waits, and says so.
///
/// # Errors
/// When it is no device, or still in use after the wait.
pub fn open(path: &Path, options: &OpenOptions, wait: Duration) -> Result<FileDevice, Failure> {
    let start = Instant::now();
    let mut said = false;
    loop {
        let reason = match FileDevice::open(path, options) {
            Err(DeviceError::InUse { reason, .. }) => reason,
            opened => return opened.map_err(|error| Failure::device(&error)),
        };
        let mount_point = mounts::of(path).map(|mount| mount.point).or_else(|| mounted_over(path));
        let is_time_to_speak = !said && start.elapsed() >= SILENT.min(wait / 2);
        let elsewhere = || mounts::server_elsewhere(path).map(served_elsewhere);
        let mounted = mount_point
            .map(|point| format!("mounted on {}", point.display()))
            .or_else(|| is_time_to_speak.then(elsewhere).flatten());
        if mounted.is_some() || start.elapsed() >= wait {
            let error = DeviceError::InUse { name: path.display().to_string(), reason: mounted.unwrap_or(reason) };
            return Err(Failure::device(&error));
        }
        if is_time_to_speak {
            let limit = wait.as_secs_f64();
            let line = format!("waiting up to {limit} s for {}, which is in use: {reason}", path.display());
            tell(format_args!("basalt: {line}"));
            said = true;
        }
        std::thread::sleep(RETRY_INTERVAL.min(wait));
    }
}
