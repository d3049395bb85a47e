//! How much the kernel may hold back of what was written to a mount.
//!
//! The pages that a mount may have dirty are limited per backing device (`/sys/class/bdi`): for FUSE by a share of what all may have,
//! one percent, and strictly. How much that is depends on the memory that is free, so it is read again and again.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// For how long what was read counts.
const AGE: Duration = Duration::from_secs(5);
/// The kernel looks at the limit only after so many bytes; also what one more write(2) may bring. In bytes.
const MARGIN: u64 = 4 << 20;
/// Where nothing can be read: a percent of the dirty pages of a machine with 128 GiB, in bytes.
const UNKNOWN: u64 = 256 << 20;
/// No volume gets a smaller limit from here: the kernel would make writers wait for each other. In bytes.
const SMALLEST: u64 = 8 << 20;
/// The part of a volume that may be dirty, so that a small one is not near its end all the time.
const PART: u64 = 16;

/// The limit of one mount.
#[derive(Debug)]
pub(crate) struct DirtyLimit {
    /// The backing device's directory, if it is known.
    directory: Option<PathBuf>,
    read: Mutex<Option<(Instant, u64)>>,
}

impl DirtyLimit {
    /// The limit of the backing device with this directory.
    pub(crate) fn of(directory: Option<PathBuf>) -> Self {
        DirtyLimit { directory, read: Mutex::new(None) }
    }

    /// Makes the limit strict, and small enough for a volume of `size` bytes, where the rights allow that (root's do).
    pub(crate) fn tune(&self, size: u64) {
        let wanted = (size / PART).max(SMALLEST);
        if self.number("strict_limit") == Some(0) {
            self.set("strict_limit", 1);
        }
        if self.number("max_bytes").is_some_and(|now| now > wanted) {
            self.set("max_bytes", wanted);
        }
    }

    /// What the kernel may hold back, in bytes, generously.
    pub(crate) fn bytes(&self) -> u64 {
        let mut read = self.read.lock();
        match *read {
            Some((when, bytes)) if when.elapsed() < AGE => bytes,
            _ => {
                let limit = self.limit().unwrap_or(UNKNOWN);
                let bytes = limit.saturating_add(limit / 4).saturating_add(MARGIN);
                *read = Some((Instant::now(), bytes));
                bytes
            }
        }
    }

    fn limit(&self) -> Option<u64> {
        match (self.number("strict_limit"), self.number("max_bytes")) {
            (Some(1), Some(bytes)) => Some(bytes),
            // Before Linux 6.3: always strict.
            (None, None) => Some(all_dirty()? / 100 * self.number("max_ratio")?),
            _ => all_dirty(),
        }
    }

    fn number(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.directory.as_ref()?.join(name)).ok()?.trim().parse().ok()
    }

    fn set(&self, name: &str, value: u64) {
        let Some(directory) = &self.directory else { return };
        if let Err(error) = fs::write(directory.join(name), value.to_string()) {
            tracing::debug!(directory = %directory.display(), name, %error, "left as it is");
        }
    }
}

/// What all mounts together may have dirty, in bytes.
fn all_dirty() -> Option<u64> {
    let all = fs::read_to_string("/proc/vmstat").ok()?;
    let pages: u64 = all.lines().find_map(|line| line.strip_prefix("nr_dirty_threshold "))?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_and_set() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, value: &str| fs::write(directory.path().join(name), value).unwrap();
        let limit = || DirtyLimit::of(Some(directory.path().to_owned()));
        file("strict_limit", "1\n");
        file("max_bytes", "40000000\n");
        assert_eq!(limit().bytes(), 50_000_000 + MARGIN);
        limit().tune(256 << 20);
        assert_eq!(limit().bytes(), (20 << 20) + MARGIN);
        // Larger volumes leave it alone, and so does one that is larger later.
        limit().tune(1 << 40);
        assert_eq!(limit().bytes(), (20 << 20) + MARGIN);
        file("strict_limit", "0\n");
        assert!(limit().bytes() >= all_dirty().unwrap());
        limit().tune(1 << 40);
        assert_eq!(limit().bytes(), (20 << 20) + MARGIN);
        assert!(DirtyLimit::of(None).bytes() > UNKNOWN);
    }
}
