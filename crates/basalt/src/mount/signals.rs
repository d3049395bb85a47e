//! Ending a mount on SIGTERM, SIGINT and SIGHUP, with a clean volume in every case.

use std::sync::Arc;
use std::time::{Duration, Instant};

use basalt_fuse::{UnmountError, Unmounter, sync_mounted};
use basalt_vfs::FileSystem;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// How long programs may take to let go of their files before they lose them.
const GRACE: Duration = Duration::from_secs(10);
/// How often to try to unmount meanwhile.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Exit code when the volume could not be closed cleanly.
const CLOSING_FAILED: i32 = 1;

/// What is left to do once a file system is closed.
pub(crate) type Finish = Box<dyn Fn() -> Result<(), Failure> + Send>;

/// Waits for signals in a thread of its own. The first one unmounts; the session then ends by itself. Where programs still use the mount
/// after the grace time, or when a second signal comes, everything is written, the volume closed, and the process ends:
/// what the programs do after that fails.
/// `finish` runs behind the closing then: what the caller does itself when the session ends.
pub(crate) fn watch(fs: Arc<dyn FileSystem>, unmounter: Unmounter, finish: Finish) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        tracing::info!(signal, "unmounting {}", unmounter.mount_point().display());
        if !unmount_in_time(&unmounter, &mut signals) {
            end(&*fs, &finish, &unmounter);
        }
    })?;
    Ok(())
}

/// Whether the mount is gone, or going.
fn unmount_in_time(unmounter: &Unmounter, signals: &mut Signals) -> bool {
    let start = Instant::now();
    let mut said = false;
    loop {
        match unmounter.unmount() {
            Ok(()) | Err(UnmountError::NotMounted(_)) => return true,
            Err(error) if !said => {
                tracing::warn!("{error}; closing the volume in {} s anyway", GRACE.as_secs());
                said = true;
            }
            Err(_) => {}
        }
        if start.elapsed() >= GRACE || signals.pending().next().is_some() {
            return false;
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Makes everything durable, closes the volume, and ends the process, which ends the mount.
#[expect(clippy::exit, reason = "the thread that serves the mount may wait for the kernel for ever")]
fn end(fs: &dyn FileSystem, finish: &Finish, unmounter: &Unmounter) -> ! {
    // The kernel hands its dirty pages over.
    if let Err(error) = sync_mounted(unmounter.mount_point()) {
        tracing::error!("{error}");
    }
    tracing::warn!(
        "{} is still in use; closing it anyway: data that programs write from now on is lost, even if write(2) succeeds",
        unmounter.mount_point().display()
    );
    // Nothing new begins there.
    unmounter.detach();
    let closed = fs.close().map_err(|error| tracing::error!("closing the volume: {error}"));
    let finished = finish().map_err(|failure| tracing::error!("{}", failure.line()));
    let code = if closed.is_ok() && finished.is_ok() { 0 } else { CLOSING_FAILED };
    std::process::exit(code)
}
