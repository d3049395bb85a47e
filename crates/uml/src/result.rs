//! What a machine left behind.

use std::fmt;
use std::time::Duration;

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The script ended with this exit status and the machine powered off.
    Exited(i32),
    /// The machine was killed because its time was up.
    TimedOut,
    /// The machine was killed because whoever watched it broke off.
    Stopped,
    /// The machine ended without the script's exit status: the kernel panicked or did not boot.
    Died,
}

/// Everything a run gives back.
#[derive(Clone, Debug)]
pub struct UmlResult {
    /// How it ended.
    pub status: Status,
    /// What the script printed, standard output and standard error as they came.
    pub output: String,
    /// The kernel's log with levels, `<3>[    1.20] text`; empty unless the script ended.
    pub kernel_log: String,
    /// What the kernel printed on its console: little, but panics are here.
    pub console: String,
    /// From start to end.
    pub elapsed: Duration,
}

impl UmlResult {
    /// The kernel's lines of level warning or worse that speak of F2FS, and everything that speaks of a bug, a panic,
    /// a stall or an I/O error. What Linux says of quota files that nobody kept is left out.
    pub fn complaints(&self) -> Vec<&str> {
        let log = complaints(&self.kernel_log);
        let console = self.console.lines().filter(|line| line.contains("Kernel panic"));
        log.chain(console).collect()
    }

    /// Itself when the script ended with 0 and the kernel had nothing to complain about.
    ///
    /// # Panics
    /// Otherwise, showing everything that is known.
    pub fn expect_success(self) -> UmlResult {
        assert!(self.status == Status::Exited(0) && self.complaints().is_empty(), "{self}");
        self
    }
}

impl fmt::Display for UmlResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "User-Mode Linux: {:?} after {:.1} s", self.status, self.elapsed.as_secs_f64())?;
        for complaint in self.complaints() {
            writeln!(f, "kernel: {complaint}")?;
        }
        writeln!(f, "--- the script's output ---\n{}", self.output)?;
        if !matches!(self.status, Status::Exited(_)) {
            writeln!(f, "--- the console ---\n{}", self.console)?;
        }
        Ok(())
    }
}

/// As [`UmlResult::complaints`], of a part of a kernel's log.
pub fn complaints(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter(|line| is_complaint(line))
}

/// What Linux says when it mounts a volume whose quota files nobody keeps.
const QUOTA: [&str; 3] =
    ["Failed to enable quota tracking", "Cannot turn on quotas", "quota file may be corrupted, skip loading it"];

fn is_complaint(line: &str) -> bool {
    let level = line.strip_prefix('<').and_then(|rest| rest.split_once('>')).and_then(|(level, _)| level.parse().ok());
    let serious = level.is_some_and(|level: u32| level & 7 <= 4);
    let alarms = ["BUG:", "WARNING:", "Oops", "Kernel panic", "I/O error", "blocked for more than", "refcount_t"];
    let about_quota = QUOTA.iter().any(|words| line.contains(words));
    (serious && line.contains("F2FS-fs") && !about_quota) || alarms.iter().any(|alarm| line.contains(alarm))
}

#[cfg(test)]
mod tests {
    use super::is_complaint;

    #[test]
    fn complaints_are_told_from_chatter() {
        assert!(is_complaint("<3>[    1.70] F2FS-fs (ubda): Magic Mismatch, valid(0xf2f52010) - read(0x0)"));
        assert!(is_complaint("<4>[    1.70] F2FS-fs (ubda): sanity_check_inode: inode (ino=4) is with extra_attr"));
        assert!(is_complaint("<3>[    1.70] blk_update_request: I/O error, dev ubda, sector 8"));
        assert!(!is_complaint("<5>[    1.63] F2FS-fs (ubda): Mounted with checkpoint version = 1a665e5a"));
        assert!(!is_complaint("<4>[    0.10] mmapper_init - find_iomem failed"));
    }
}
