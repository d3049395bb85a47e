//! Keeping others off.
//!
//! Three things guard a device, taken in this order:
//! 1. a flock on the file or device node, which other Basalts respect, and udev's probing of a disk;
//! 2. on a block device an exclusive claim (`O_EXCL`), which the kernel refuses while it is mounted, swap, or part of
//!    another device, and which keeps mount(2) off;
//! 3. for an image file, a look at the loop devices: a loop device reads and writes its file without any lock.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::Kind;
use super::in_use;
use crate::block::{DeviceError, Result};

/// How long to wait before asking again for a lock that somebody has.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A shared opener claims a block device for a moment; one that meets another's moment waits it out.
const PROBE_WAIT: Duration = Duration::from_millis(100);

/// A lock is waited for at least so long: who has just closed a device may have a child between fork and exec, which still
/// has the lock for a moment.
const FORK_GRACE: Duration = Duration::from_millis(500);

/// How far to keep others off while a device is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Not at all: look at a device that somebody else may be writing to.
    None,
    /// Others may read, nobody may write. What is mounted is refused.
    Shared,
    /// Nobody else. What is mounted, or open with any lock, is refused.
    Exclusive {
        /// How long to wait for others to finish.
        wait: Duration,
    },
}

impl Default for Lock {
    /// Exclusive, without waiting for anybody who really has it.
    fn default() -> Self {
        Lock::Exclusive { wait: Duration::ZERO }
    }
}

/// Takes `lock` on what `file` opened at `path`; returns the claim on a block device, where one is to be kept.
pub(super) fn take(
    file: &File,
    path: &Path,
    kind: Kind,
    lock: Lock,
    allow_loop: Option<&Path>,
) -> Result<Option<OwnedFd>> {
    let (operation, wait) = match lock {
        Lock::None => return Ok(None),
        Lock::Shared => (FlockOperation::NonBlockingLockShared, Duration::ZERO),
        Lock::Exclusive { wait } => (FlockOperation::NonBlockingLockExclusive, wait),
    };
    let patience = Patience::new(wait);
    if Patience::new(wait.max(FORK_GRACE)).retry(|| try_flock(file, path, operation))?.is_none() {
        return Err(in_use_error(path, in_use::lock_holder(file)));
    }
    match (kind, lock) {
        (Kind::Image, _) => check_loop_devices(file, path, allow_loop, &patience).map(|()| None),
        (Kind::BlockDevice, Lock::Exclusive { .. }) => claim(file, path, &patience).map(Some),
        // A claim that is kept would keep other readers off.
        (Kind::BlockDevice, _) => claim(file, path, &Patience::new(PROBE_WAIT)).map(|_| None),
    }
}

fn try_flock(file: &File, path: &Path, operation: FlockOperation) -> Result<Option<()>> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation)) {
        Ok(()) => Ok(Some(())),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(DeviceError::Open {
            name: path.display().to_string(),
            reason: format!("cannot be locked: {error}"),
            source: Some(error.into()),
        }),
    }
}

fn claim(file: &File, path: &Path, patience: &Patience) -> Result<OwnedFd> {
    let claimed = patience.retry(|| {
        match rustix::fs::open(path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
            Ok(claim) => Ok(Some(claim)),
            Err(Errno::BUSY | Errno::INTR) => Ok(None),
            Err(error) => Err(DeviceError::Open {
                name: path.display().to_string(),
                reason: format!("cannot be claimed: {error}"),
                source: Some(error.into()),
            }),
        }
    })?;
    claimed.ok_or_else(|| in_use_error(path, in_use::block_device_user(file)))
}

fn check_loop_devices(file: &File, path: &Path, allowed: Option<&Path>, patience: &Patience) -> Result<()> {
    let mut found = None;
    patience.retry(|| {
        found = in_use::loop_device_over(file, allowed);
        Ok(found.is_none().then_some(()))
    })?;
    match found {
        None => Ok(()),
        Some(device) => Err(in_use_error(path, format!("it backs {}", device.display()))),
    }
}

fn in_use_error(path: &Path, reason: String) -> DeviceError {
    DeviceError::InUse { name: path.display().to_string(), reason }
}

/// A time until which to try again.
struct Patience {
    /// None: for ever (the wait is too long for the clock to express).
    end: Option<Instant>,
}

impl Patience {
    fn new(wait: Duration) -> Self {
        Patience { end: Instant::now().checked_add(wait) }
    }

    /// Repeats `attempt` until it gives something, fails, or the time is over (`Ok(None)`). Tries at least once.
    fn retry<T>(&self, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
        loop {
            if let Some(gained) = attempt()? {
                return Ok(Some(gained));
            }
            let left = self.end.map_or(RETRY_INTERVAL, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(left.min(RETRY_INTERVAL));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_tries_at_least_once_and_stops_in_time() {
        let mut tries = 0;
        let none = Patience::new(Duration::ZERO).retry(|| {
            tries += 1;
            Ok(None::<()>)
        });
        assert!(matches!(none, Ok(None)));
        assert_eq!(tries, 1);

        let start = Instant::now();
        let none = Patience::new(Duration::from_millis(50)).retry(|| Ok(None::<()>));
        assert!(matches!(none, Ok(None)));
        assert!(start.elapsed() >= Duration::from_millis(50));

        let mut tries = 0;
        let third = Patience::new(Duration::MAX).retry(|| {
            tries += 1;
            Ok((tries == 3).then_some(tries))
        });
        assert!(matches!(third, Ok(Some(3))));
    }
}
