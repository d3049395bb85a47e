//! Keeping others off.
//!
//! Five things guard a device, taken in this order:
//! 1. a flock on the file or device node, which other Basalts respect, and udev's probing of a disk;
//! 2. a lock of its range of bytes (`F_OFD_SETLK`), which emulators of machines respect as well;
//! 3. behind a partition its disk's range of bytes, behind a loop device its file's, and so on down; files with a shared flock, too.
//!    One image with two partitions can be used twice, the same bytes cannot, whatever they are called;
//! 4. on a block device an exclusive claim (`O_EXCL`), which the kernel refuses while it is mounted, swap, or part of
//!    another device, and which keeps mount(2) off;
//! 5. a look at the loop devices: a loop device reads and writes its file without any lock. An image file must have none; behind a
//!    loop device, others with the same bytes must not be in use.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::behind::{self, Ask, Identity, Layer, Via};
use super::{Kind, in_use};
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

/// What is held as long as a device is open.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The exclusive claim on a block device.
    pub(super) claim: Option<OwnedFd>,
    /// What lies behind the device, locked.
    pub(super) behind: Vec<File>,
}

/// Takes `lock` on what `file` opened at `path`.
pub(super) fn take(file: &File, path: &Path, kind: Kind, lock: Lock, allow_loop: Option<&Path>) -> Result<Held> {
    let (operation, wait) = match lock {
        Lock::None => return Ok(Held::default()),
        Lock::Shared => (FlockOperation::NonBlockingLockShared, Duration::ZERO),
        Lock::Exclusive { wait } => (FlockOperation::NonBlockingLockExclusive, wait),
    };
    let patience = Patience::new(wait);
    let grace = Patience::new(wait.max(FORK_GRACE));
    if grace.retry(|| try_flock(file, path, operation))?.is_none() {
        return Err(in_use_error(path, in_use::lock_holder(file)));
    }
    if grace.retry(|| try_range(file, path, &(0..u64::MAX), lock))?.is_none() {
        return Err(in_use_error(path, in_use::lock_holder(file)));
    }
    let metadata = file.metadata().map_err(|error| open_error(path, "cannot be looked at", error))?;
    let layers = behind::layers(Identity::of(&metadata), path, Ask::Always);
    let behind = layers[1..].iter().map(|layer| take_layer(layer, path, lock, &grace)).collect::<Result<Vec<_>>>()?;
    let behind = behind.into_iter().flatten().collect();
    let claim = match (kind, lock) {
        (Kind::Image, _) => {
            check_loop_devices(file, path, allow_loop, &patience)?;
            None
        }
        (Kind::BlockDevice, Lock::Exclusive { .. }) => Some(claim(file, path, &patience)?),
        (Kind::BlockDevice, _) => {
            // A claim that is kept would keep other readers off.
            claim(file, path, &Patience::new(PROBE_WAIT))?;
            None
        }
    };
    for layer in &layers[1..] {
        check_other_users(layer, path, &Patience::new(wait.max(PROBE_WAIT)))?;
    }
    Ok(Held { claim, behind })
}

/// Locks what lies behind a device; `None` where it cannot be opened, but nobody seems to have it.
fn take_layer(layer: &Layer, path: &Path, lock: Lock, patience: &Patience) -> Result<Option<File>> {
    let in_use = |who: String| in_use_error(path, format!("{}, which is behind it, is {who}", layer.path.display()));
    let Some(file) = open_layer(layer, lock) else {
        let unseen = || in_use::is_locked_unseen(layer.identity, lock == Lock::Shared);
        let free = patience.retry(|| Ok((!unseen()).then_some(())))?;
        return if free.is_some() { Ok(None) } else { Err(in_use("locked by another program".to_owned())) };
    };
    // A disk's flock is for those who use all of it, and the kernel refuses the disk to others while a partition is claimed.
    let is_file = layer.via != Via::Partition;
    let flock = || try_flock(&file, &layer.path, FlockOperation::NonBlockingLockShared);
    if is_file && patience.retry(flock)?.is_none() {
        return Err(in_use(in_use::lock_holder(&file)));
    }
    if patience.retry(|| try_range(&file, &layer.path, &layer.range, lock))?.is_none() {
        return Err(in_use(in_use::lock_holder(&file)));
    }
    Ok(Some(file))
}

/// Opens a layer, if it is what its path leads to here and this user may. To lock bytes against readers, a file has to be open to
/// write.
fn open_layer(layer: &Layer, lock: Lock) -> Option<File> {
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32;
    let open = |write| File::options().read(true).write(write).custom_flags(flags).open(&layer.path).ok();
    let file = open(lock != Lock::Shared).or_else(|| open(false))?;
    (Identity::of(&file.metadata().ok()?) == layer.identity).then_some(file)
}

/// Locks a range of bytes; `None` where somebody else has a part of it.
#[allow(unsafe_code)]
fn try_range(file: &File, path: &Path, range: &Range<u64>, lock: Lock) -> Result<Option<()>> {
    let is_writable = rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::RDWR));
    let kind = if lock != Lock::Shared && is_writable { libc::F_WRLCK } else { libc::F_RDLCK };
    // SAFETY: all zeros is a valid value of this C structure of integers.
    let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
    // Small constants, which every system's short holds.
    (wanted.l_type, wanted.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    let Ok(start) = libc::off_t::try_from(range.start) else { return Ok(Some(())) };
    wanted.l_start = start;
    // 0: to the end, wherever it is.
    wanted.l_len = libc::off_t::try_from(range.end).map_or(0, |end| end - start);
    if range.is_empty() {
        return Ok(Some(()));
    }
    loop {
        // SAFETY: F_OFD_SETLK reads one `struct flock` behind its argument, and touches no other memory of this process.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) };
        if done == 0 {
            return Ok(Some(()));
        }
        let error = std::io::Error::last_os_error();
        return match Errno::from_io_error(&error) {
            Some(Errno::INTR) => continue,
            Some(Errno::AGAIN | Errno::ACCESS) => Ok(None),
            // This file system, or kernel, has no such locks; the flock is there.
            Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Some(())),
            _ => Err(open_error(path, "cannot be locked", error)),
        };
    }
}

fn try_flock(file: &File, path: &Path, operation: FlockOperation) -> Result<Option<()>> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation)) {
        Ok(()) => Ok(Some(())),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(open_error(path, "cannot be locked", error)),
    }
}

fn claim(file: &File, path: &Path, patience: &Patience) -> Result<OwnedFd> {
    let claimed = patience.retry(|| {
        match rustix::fs::open(path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
            Ok(claim) => Ok(Some(claim)),
            Err(Errno::BUSY | Errno::INTR) => Ok(None),
            Err(error) => Err(open_error(path, "cannot be claimed", error)),
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

fn check_other_users(layer: &Layer, path: &Path, patience: &Patience) -> Result<()> {
    let mut found = None;
    patience.retry(|| {
        found = in_use::other_user(layer);
        Ok(found.is_none().then_some(()))
    })?;
    found.map_or(Ok(()), |user| Err(in_use_error(path, user)))
}

fn open_error(path: &Path, doing: &str, error: impl Into<std::io::Error>) -> DeviceError {
    let error = error.into();
    DeviceError::Open { name: path.display().to_string(), reason: format!("{doing}: {error}"), source: Some(error) }
}

fn in_use_error(path: &Path, reason: String) -> DeviceError {
    DeviceError::InUse { name: path.display().to_string(), reason }
}

/// A time until which to try again.
struct Patience {
    /// None: for ever (the wait is too long for the clock to express).
    end: Option<Instant>,
}

#[expect(clippy::disallowed_methods, reason = "it waits for other processes, which no injected clock makes faster")]
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
