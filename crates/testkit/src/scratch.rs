//! Temporary directories on a real disk.
//!
//! Image files want holes, direct I/O and more room than memory has, so a tmpfs is avoided.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Context, Result};

/// The environment variable that names another place for temporary directories.
pub const PLACE: &str = "BASALT_TEST_DIR";

/// What `statfs` says of a tmpfs (`TMPFS_MAGIC` in linux/magic.h).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A new temporary directory, removed with everything in it when dropped.
///
/// # Errors
/// When it cannot be created.
pub fn directory() -> Result<TempDir> {
    let place = place();
    std::fs::create_dir_all(&place).doing("create", &place)?;
    tempfile::Builder::new().prefix("basalt-").tempdir_in(&place).doing("create a temporary directory in", &place)
}

/// Where temporary directories go: [`PLACE`], else /var/tmp, else the workspace's `target/tmp` if /var/tmp is a tmpfs.
pub fn place() -> PathBuf {
    if let Some(place) = std::env::var_os(PLACE) {
        return place.into();
    }
    let usual = Path::new("/var/tmp");
    match rustix::fs::statfs(usual) {
        Ok(status) if u64::try_from(status.f_type).is_ok_and(|kind| kind != TMPFS_MAGIC) => usual.to_owned(),
        _ => crate::helper::workspace().join("target/tmp"),
    }
}
