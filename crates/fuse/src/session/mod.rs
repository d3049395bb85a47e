//! Serving a mount.
//!
//! | file | what |
//! |---|---|
//! | `handshake` | INIT: what kernel and server agree on |
//! | `worker` | an event loop: receive, answer, reply; one a thread |
//! | `token` | which event loop receives |
//! | `locks` | what `token` locks with; tests put others in their place |
//! | `server` | from an operation to the method that answers it |
//! | `answer/` | those methods, by subject |
//! | `buffer`, `reply` | page-aligned memory; what goes back |
//! | `convert`, `nodes` | attributes and inode numbers as the protocol has them |
//! | `losses` | what the kernel handed over when it was too late |
//! | `notify` | telling the kernel that what it has cached is out of date |
//! | `privacy` | who may see `trusted.` attributes |
//! | `privileges` | set-uid and set-gid bits go when content changes |
//! | `programs` | who has files open to write to them, and who to execute them |
//! | `caller` | what a program that waits is about to write |
//! | `shortage` | telling who writes into the kernel's cache that the volume is full |
//! | `overwritten` | direct writes to files that the kernel has cached |
//! | `cache_thread` | answers that need the kernel's dirty pages first |
//! | `ticker` | background work |
//! | `wakeful` | idle processors that wake quickly during bursts |

mod answer;
mod buffer;
mod cache_thread;
mod caller;
mod convert;
mod handshake;
mod locks;
mod losses;
mod nodes;
mod notify;
mod overwritten;
mod privacy;
mod privileges;
mod programs;
mod reply;
mod server;
mod shortage;
#[cfg(test)]
mod shortage_tests;
mod ticker;
mod token;
#[cfg(test)]
mod token_tests;
mod wakeful;
mod worker;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use basalt_vfs::FileSystem;
use rustix::io::Errno;

use crate::mount::{self, DirtyLimit, Mount, MountError, MountOptions, Unmounter};
pub use losses::Losses;
use server::Server;
use wakeful::Wakeful;

/// How serving a mount went wrong.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The last writeback or checkpoint failed; the volume is as its last checkpoint left it.
    #[error("closing the volume: {0}")]
    Close(String),
    /// The connection was aborted (`umount -f`, or through `/sys/fs/fuse/connections`); the volume was closed.
    #[error("the FUSE connection was aborted")]
    Aborted,
    /// `/dev/fuse` failed; the volume was closed.
    #[error("reading /dev/fuse: {0}")]
    Device(Errno),
}

/// A mounted file system, ready to be served by [`run`](Self::run).
///
/// Dropping a session without running it closes the connection and takes the mount away; the file system is not closed then.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use basalt_fuse::{MountOptions, Session};
/// use basalt_vfs::FileSystem;
///
/// fn serve(fs: Arc<dyn FileSystem>) -> Result<(), Box<dyn std::error::Error>> {
///     let session = Session::mount(fs, &MountOptions::new("/mnt", "card.img"))?;
///     // For another thread, or a signal handler: ends `run`.
///     let unmounter = session.unmounter();
///     # let _ = unmounter;
///     Ok(session.run()?)
/// }
/// ```
#[derive(Debug)]
pub struct Session {
    server: Arc<Server>,
    mount: Mount,
    /// The connection; `None` once `run` took it.
    device: Option<OwnedFd>,
    threads: usize,
    /// Whether bursts of requests keep processors from sleeping deeply.
    wakeful: bool,
}

impl Session {
    /// Mounts `fs` and agrees with the kernel on how to talk: when this returns, the mount is there, and programs that use
    /// it wait for [`run`](Self::run).
    ///
    /// # Errors
    /// Says what was wrong with the mount point, `/dev/fuse`, the rights or the kernel. Nothing stays mounted, and `fs` is
    /// not closed.
    pub fn mount(fs: Arc<dyn FileSystem>, options: &MountOptions) -> Result<Session, MountError> {
        let (device, mount) = mount::mount(options)?;
        let mut session = Session {
            server: Server::unconnected(fs, options, DirtyLimit::of(mount.backing_device(options))),
            mount,
            device: Some(device),
            threads: options.threads.max(1),
            wakeful: options.wakeful,
        };
        // An error from here on drops the session, and with it the mount.
        let device = session.device.as_ref().ok_or(MountError::NoHandshake)?;
        let agreed = handshake::perform(device, options)?;
        tracing::debug!(?agreed, "handshake");
        // No loop has it yet.
        if let Some(server) = Arc::get_mut(&mut session.server) {
            server.agreed = agreed;
        }
        if session.server.kernel_keeps_dirty_pages() {
            session.server.file_system().leave_times_to_caller();
        }
        session.mount.tune(options);
        session.server.tune();
        Ok(session)
    }

    /// Serves the mount until it is gone, then closes the file system (exactly once, before this returns; on a `fuseblk`
    /// mount before umount(2) returns).
    ///
    /// # Errors
    /// See [`SessionError`]; the file system was closed in every case.
    pub fn run(mut self) -> Result<(), SessionError> {
        let Some(device) = self.device.take() else { return Ok(()) };
        let served = worker::serve_all(&self.server, device, self.threads, Wakeful::new(self.wakeful));
        // After an unmount this finds nothing; after an abort it takes the dead mount away.
        self.mount.remove_dead();
        let closed = self.server.close();
        if let Err(error) = closed {
            return Err(SessionError::Close(error.to_string()));
        }
        served
    }

    /// What programs have written and nobody keeps any more, as long as this is served and afterwards.
    pub fn losses(&self) -> Losses {
        self.server.losses.clone()
    }

    /// A handle by which another thread, such as a signal handler's, ends [`run`](Self::run).
    pub fn unmounter(&self) -> Unmounter {
        self.mount.unmounter()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The connection goes first: umount(2) on fuseblk would wait for an answer that nobody gives.
        if self.device.take().is_some() {
            self.mount.remove_dead();
        }
    }
}
