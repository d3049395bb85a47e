//! `basalt sync`: makes everything durable that was written to a mounted volume.

use std::path::PathBuf;

use basalt_fuse::{NotMounted, SyncError, sync_mounted};
use rustix::io::Errno;

use crate::failure::{DONE, Failure, Outcome};

/// Write everything to the device of a mounted volume
///
/// Returns when everything is durable, on every kind of mount and every kernel; sync(1) does so only on root's mounts, and on Linux 6.18
/// and newer.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory on the mounted volume
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath, required = true)]
    directories: Vec<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When a directory is not on a mount of Basalt's, or its device fails.
pub fn run(args: &Args) -> Outcome {
    for directory in &args.directories {
        sync_mounted(directory).map_err(|error| {
            let failure = Failure::new(&error);
            match error {
                SyncError::Failed { errno: Errno::FBIG, .. } => {
                    failure.hint("data beyond the largest file size (3.94 TiB) is lost")
                }
                SyncError::Failed { errno: Errno::NOSPC, .. } => {
                    failure.hint("data for which there was no space is lost")
                }
                SyncError::Failed { .. } => failure.hint("see the system log for the error of the device"),
                SyncError::NotMounted(NotMounted::Other(_)) => failure.hint("use sync(1)"),
                SyncError::NotMounted(NotMounted::Open { .. }) => failure,
            }
        })?;
    }
    Ok(DONE)
}
