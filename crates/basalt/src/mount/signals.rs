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
/// How long it usually takes a session, at most, to hear that its mount has gone.
const HEARING: Duration = Duration::from_secs(1);
/// How often to try to unmount meanwhile.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Exit code when the volume could not be closed cleanly.
const CLOSING_FAILED: i32 = 1;

/// What is left to do once a file system is closed.
pub(crate) type Finish = Box<dyn Fn() -> Result<(), Failure> + Send>;

/// How long the kernel may take to hand over what it holds of a mount that has no path.
const WRITEBACK: Duration = Duration::from_secs(60);

/// Waits for signals in a thread of its own. The first one unmounts; the session then ends by itself. Where programs still use the mount
/// after the grace time (at its place, detached, or in another mount namespace), or when a second signal comes, everything is written, the
/// volume closed, and the process ends: what the programs do after that fails.
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

/// Whether the session ends by itself. A mount that is out of this process's sight need not be gone: it lives as long as a program has a file
/// open there, or another mount namespace has it.
fn unmount_in_time(unmounter: &Unmounter, signals: &mut Signals) -> bool {
    let start = Instant::now();
    let mut said = false;
    loop {
        let unmounted = unmounter.unmount();
        if unmounter.is_over() {
            return true;
        }
        if !said {
            let why = match unmounted {
                // The session hears of it in a moment, where that was all.
                Ok(()) | Err(UnmountError::NotMounted(_)) if start.elapsed() < HEARING => None,
                Ok(()) | Err(UnmountError::NotMounted(_)) => {
                    let path = unmounter.mount_point().display();
                    Some(format!("{path} is still in use, detached or in another mount namespace"))
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = &why {
                tracing::warn!("{why}; closing the volume in {} s anyway", GRACE.as_secs());
            }
            said = why.is_some();
        }
        if start.elapsed() >= GRACE || signals.pending().next().is_some() {
            return false;
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Makes everything durable, closes the volume, and ends the process, which ends the mount. Returns where the session ends by itself after all.
#[expect(clippy::exit, reason = "the thread that serves the mount may wait for the kernel for ever")]
fn end(fs: &dyn FileSystem, finish: &Finish, unmounter: &Unmounter) {
    // The kernel hands its dirty pages over.
    if unmounter.is_mounted() {
        if let Err(error) = sync_mounted(unmounter.mount_point()) {
            tracing::error!("{error}");
        }
    } else if !unmounter.write_back(WRITEBACK) {
        tracing::error!("{}: the kernel has not handed everything over", unmounter.mount_point().display());
    }
    // The last program has let go meanwhile.
    if unmounter.is_over() {
        return;
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
