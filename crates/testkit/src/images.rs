//! The F2FS tools on image files.

use std::fmt;
use std::fs::File;
use std::path::Path;

use crate::command::{Finished, run};
use crate::error::{Context, Result};

/// What a test that uses this module needs installed.
pub const TOOLS: &[&str] = &["mkfs.f2fs", "fsck.f2fs", "dump.f2fs", "resize.f2fs"];

/// Makes a sparse image of `size` bytes, replacing what was there, and formats it with these additional arguments.
///
/// # Errors
/// When the file cannot be made, or `mkfs.f2fs` fails.
pub fn mkfs_f2fs(path: &Path, size: u64, arguments: &[&str]) -> Result<()> {
    let file = File::create(path).doing("create", path)?;
    file.set_len(size).doing("set the size of", path)?;
    drop(file);
    let path = path.as_os_str();
    let all = ["-q", "-f"].iter().chain(arguments).map(|word| (*word).as_ref()).chain([path]);
    run("mkfs.f2fs", all)?.success()?;
    Ok(())
}

/// What `fsck.f2fs` has to say about a volume.
#[derive(Clone, Debug)]
pub struct FsckReport {
    /// Its exit status; `None` when a signal ended it, which damaged volumes achieve.
    pub exit: Option<i32>,
    /// The lines that name a fault.
    pub faults: Vec<String>,
    /// All it printed.
    pub output: String,
}

impl FsckReport {
    /// Whether nothing at all was found.
    pub fn is_clean(&self) -> bool {
        self.exit == Some(0) && self.faults.is_empty()
    }

    /// Whether it gave up before it looked. On a volume that was not unmounted, f2fs-tools 1.15 holds the addresses in fsynced
    /// nodes against a limit that is too low by the segments before the main area, and refuses those in the last segments;
    /// later versions compare with the right one.
    pub fn gave_up(&self) -> bool {
        self.exit == Some(255) && self.faults.is_empty() && self.output.contains("record_fsync_data failed")
    }

    /// Does nothing for a clean volume.
    ///
    /// # Panics
    /// When it is not clean, showing the faults.
    pub fn expect_clean(&self) {
        assert!(self.is_clean(), "{self}");
    }
}

impl fmt::Display for FsckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exit {
            Some(exit) => writeln!(f, "fsck.f2fs exited with {exit}, {} faults", self.faults.len())?,
            None => writeln!(f, "fsck.f2fs crashed, {} faults", self.faults.len())?,
        }
        for fault in self.faults.iter().take(50) {
            writeln!(f, "  {fault}")?;
        }
        if self.faults.is_empty() && !self.is_clean() {
            writeln!(f, "{}", self.output)?;
        }
        Ok(())
    }
}

/// Checks a volume completely and changes nothing.
///
/// `--dry-run` alone is what f2fs-tools 1.15 can be trusted with: it checks everything and exits with 4 when something is
/// wrong; with `-f` added the exit status is 1 ("errors corrected") though nothing was. What is printed counts as well,
/// because some faults change only that.
///
/// # Errors
/// When `fsck.f2fs` cannot be started.
pub fn fsck_f2fs(path: &Path) -> Result<FsckReport> {
    Ok(report(run("fsck.f2fs", ["--dry-run".as_ref(), path.as_os_str()])?))
}

/// As [`fsck_f2fs`], for volumes that may keep it busy for hours: it is stopped after `seconds`, which counts as a crash.
///
/// # Errors
/// When it cannot be started.
pub fn fsck_f2fs_within(path: &Path, seconds: u32) -> Result<FsckReport> {
    let (limit, program) = (seconds.to_string(), "fsck.f2fs".as_ref());
    let arguments = ["--signal=KILL".as_ref(), limit.as_ref(), program, "--dry-run".as_ref(), path.as_os_str()];
    Ok(report(run("timeout", arguments)?))
}

/// What a check that has ended says.
fn report(finished: Finished) -> FsckReport {
    let exit = finished.status.code();
    let rebuilds_quota = exit == Some(0) && finished.output.contains("quota_need_fsck");
    let lines = finished.output.lines();
    let faults = lines.filter(|line| is_fault(line) && !(rebuilds_quota && is_quota_noise(line)));
    let faults = faults.map(|line| line.trim().to_owned()).collect();
    FsckReport { exit, faults, output: finished.output }
}

/// What `dump.f2fs` prints with these arguments, for example `["-i", "3"]` for the root directory's inode.
///
/// # Errors
/// When it fails.
pub fn dump_f2fs(path: &Path, arguments: &[&str]) -> Result<String> {
    Ok(on_image("dump.f2fs", path, arguments)?.success()?.output)
}

/// Grows the image file to `size` bytes, then the volume in it, with `resize.f2fs`.
///
/// # Errors
/// When the file cannot be grown, or `resize.f2fs` fails.
pub fn grow_f2fs(path: &Path, size: u64) -> Result<()> {
    let file = File::options().write(true).open(path).doing("open", path)?;
    file.set_len(size).doing("set the size of", path)?;
    drop(file);
    on_image("resize.f2fs", path, &[])?.success()?;
    Ok(())
}

/// Shrinks the volume to `sectors` of 512 bytes with `resize.f2fs -s` (safe: nothing is moved in place); the file stays.
///
/// # Errors
/// When `resize.f2fs` fails.
pub fn shrink_f2fs(path: &Path, sectors: u64) -> Result<()> {
    on_image("resize.f2fs", path, &["-s", "-t", &sectors.to_string()])?.success()?;
    Ok(())
}

fn on_image(program: &str, path: &Path, arguments: &[&str]) -> Result<Finished> {
    run(program, arguments.iter().map(|word| (*word).as_ref()).chain([path.as_os_str()]))
}

/// Whether a line of `fsck.f2fs` reports a fault: `[ASSERT] (where)  --> what`, `[FIX] …`, a check that ends in `[Fail]`.
fn is_fault(line: &str) -> bool {
    // A checkpoint pack of zeroes is one that was never written: mkfs and resize write only one of the two.
    const UNUSED_PACK: &str = "Invalid CP CRC offset: 0";
    let signs = ["[ASSERT]", "[FIX]", "[Fail]", "[ERROR]", "Mismatch", "Invalid"];
    signs.iter().any(|sign| line.contains(sign)) && line.trim() != UNUSED_PACK
}

/// On a volume whose quota files nobody kept, fsck rebuilds them in memory even in a dry run, stumbles over the old ones,
/// and then finds fault with the segment that its own new blocks would be in.
fn is_quota_noise(line: &str) -> bool {
    line.contains("quotaio_tree.c") || line.contains("Wrong segment type")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_from_progress() {
        assert!(is_fault("[ASSERT] (sanity_check_nid: 511)  --> nid[0x4] ino is 0"));
        assert!(is_fault("[FSCK] SIT valid block bitmap checking                [Fail]"));
        assert!(is_fault("[FSCK] other corrupted bugs                           [Fail]"));
        assert!(!is_fault("[FSCK] other corrupted bugs                           [Ok..]"));
        assert!(!is_fault("	Invalid CP CRC offset: 0"));
        assert!(!is_fault("[FSCK] fixing SIT types"));
        assert!(!is_fault("Info: checkpoint state = 1c5 :  trimmed nat_bits crc compacted_summary unmount"));
    }
}
