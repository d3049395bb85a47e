//! Mounts whose server has ended while the kernel still waits for it: see `mount/watcher.rs`, which prevents that where it can.

use std::path::Path;
use std::time::{Duration, Instant};

use basalt_device::file::left_behind_by;
use basalt_fuse::Connection;

use crate::failure::{Failure, Word};
use crate::mounts::{self, Mount};

/// How long what is left of the server may take to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look.
const LOOK: Duration = Duration::from_millis(5);

/// Aborts the connection of a mount of Basalt's whose server was killed and cannot end, so that it is like any mount whose server was
/// killed; whether it was such a one. The mount is not looked at.
///
/// # Errors
/// When it is such a one, and this user may not abort it.
pub fn release(mount: &Mount) -> Result<bool, Failure> {
    let target = mount.target();
    let Some(process) = left_behind_by(&target).filter(|_| mount.is_basalt()) else { return Ok(false) };
    let aborted = Connection::of(&mount.device).map_err(std::io::Error::from).and_then(|found| found.abort());
    aborted.map_err(|error| {
        let point = mount.point.display();
        let what = format_args!("its serving process ({process}) was killed, but hangs in the kernel: {error}");
        Failure::at(&point, what).hint(format_args!("run `basalt umount {}` as root", Word(&mount.point)))
    })?;
    let start = Instant::now();
    while left_behind_by(&target).is_some() && start.elapsed() < PATIENCE {
        std::thread::sleep(LOOK);
    }
    Ok(true)
}

/// The same of what is mounted on `directory`, a canonical path, and of all mounts of `target`.
///
/// # Errors
/// As [`release`].
pub fn release_all(target: &Path, directory: &Path) -> Result<(), Failure> {
    mounts::at(directory).into_iter().chain(mounts::of(target)).try_for_each(|mount| release(&mount).map(drop))
}
