//! Mounting an [`ImageFile`], and serving it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use basalt_device::BlockDevice;
use basalt_fuse::{MountError, MountOptions, Session, SessionError, UnmountError, Unmounter};
use rustix::mm::MlockAllFlags;

use super::image::{IMAGE_NAME, ImageFile};

/// How often to try again to unmount what is still in use.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Mounts a device's file at `directory`; [`Session::run`] serves it until it is unmounted.
///
/// # Errors
/// Those of [`Session::mount`]; nothing stays mounted.
pub fn mount(file: Arc<ImageFile>, directory: &Path) -> Result<Session, MountError> {
    let defaults = MountOptions::new(directory, file.device().name());
    let options = MountOptions {
        read_only: file.device().is_read_only(),
        // Each request is to arrive as it was made.
        writeback_cache: false,
        direct_io: true,
        read_ahead: 0,
        noatime: true,
        ..defaults
    };
    Session::mount(file, &options)
}

/// Tells the kernel that this thread, and those it starts from now on, serve storage: its own allocations then never wait for
/// writeback, which may wait for this thread, and its own writing is throttled only by the disk it writes to. Needs
/// the capability `CAP_SYS_RESOURCE`; returns whether it worked.
pub fn do_not_wait_for_writeback() -> bool {
    rustix::process::configure_io_flusher_behavior(true).is_ok()
}

/// Keeps all memory of this process from being swapped out, perhaps to what it serves. Only root can be sure not to run into a
/// limit later, so for others nothing happens; returns whether it worked.
pub fn keep_in_memory() -> bool {
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    rustix::process::geteuid().is_root() && rustix::mm::mlockall(all).is_ok()
}

/// How serving a device as a file ended badly.
#[derive(Debug, thiserror::Error)]
pub enum ExposeError {
    /// It could not be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// It could not be unmounted.
    #[error(transparent)]
    Unmount(#[from] UnmountError),
    /// Serving it failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// It is unmounted, but the kernel has not let go of it.
    #[error("{}: still served {seconds} s after it was to be unmounted", directory.display())]
    Late {
        /// The mount point.
        directory: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// No thread could be started.
    #[error("starting a thread: {0}")]
    Thread(std::io::Error),
}

/// A device shown as a file and served by threads of this process. Dropping it detaches the mount: whoever still uses the
/// file gets errors once the process ends.
pub struct Exposed {
    unmounter: Unmounter,
    ended: Receiver<Result<(), SessionError>>,
    is_over: bool,
}

impl Exposed {
    /// Mounts `device` at `directory`, and serves it.
    ///
    /// # Errors
    /// When it cannot be mounted; nothing stays mounted.
    pub fn start(device: Arc<dyn BlockDevice>, directory: &Path) -> Result<Exposed, ExposeError> {
        let session = mount(Arc::new(ImageFile::new(device)), directory)?;
        let unmounter = session.unmounter();
        let (send, ended) = channel();
        let serve = move || {
            do_not_wait_for_writeback();
            // Nobody listens any more if the receiver was dropped.
            let _ = send.send(session.run());
        };
        std::thread::Builder::new().name("exposed image".into()).spawn(serve).map_err(ExposeError::Thread)?;
        Ok(Exposed { unmounter, ended, is_over: false })
    }

    /// The file.
    pub fn image(&self) -> PathBuf {
        self.unmounter.mount_point().join(IMAGE_NAME)
    }

    /// Unmounts, and waits until the last request has been served; tries for as long as `limit` while the file is in use.
    ///
    /// # Errors
    /// When it stays in use, or serving it failed.
    pub fn end(mut self, limit: Duration) -> Result<(), ExposeError> {
        let deadline = Instant::now() + limit;
        loop {
            match self.unmounter.unmount() {
                Ok(()) | Err(UnmountError::NotMounted(_)) => break,
                Err(UnmountError::Busy(_)) if Instant::now() < deadline => std::thread::sleep(RETRY_INTERVAL),
                Err(error) => return Err(error.into()),
            }
        }
        match self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1))) {
            Ok(ended) => {
                self.is_over = true;
                Ok(ended?)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(ExposeError::Late { directory: self.unmounter.mount_point().to_owned(), seconds: limit.as_secs() })
            }
        }
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        if self.is_over || self.unmounter.unmount().is_ok() {
            return;
        }
        let place = self.unmounter.mount_point();
        // In use: taken out of the tree, so that nothing new begins there.
        let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW;
        if let Err(errno) = rustix::mount::unmount(place, flags) {
            tracing::warn!(%errno, "{} stays mounted", place.display());
        }
    }
}
