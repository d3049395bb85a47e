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
//! | `control` | what other threads may ask of a session, and know of it |
//! | `losses` | what the kernel handed over when it was too late |
//! | `notify` | telling the kernel that what it has cached is out of date |
//! | `privacy` | who may see `trusted.` attributes |
//! | `privileges` | set-uid and set-gid bits go when content changes |
//! | `programs` | who has files open to write to them, and who to execute them |
//! | `caller` | what a program that waits is about to write |
//! | `onlooker` | looking at a program without waiting for it |
//! | `shortage` | telling who writes into the kernel's cache that the volume is full |
//! | `overwritten` | direct writes to files that the kernel has cached |
//! | `cache_thread` | answers that need the kernel's dirty pages first |
//! | `ticker` | background work |
//! | `wakeful` | idle processors that wake quickly during bursts |

mod answer;
mod buffer;
mod cache_thread;
mod caller;
mod control;
mod convert;
mod handshake;
mod locks;
mod losses;
mod nodes;
mod notify;
mod onlooker;
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

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use basalt_vfs::FileSystem;
use rustix::io::Errno;

use crate::mount::{self, DirtyLimit, Mount, MountError, MountOptions, Unmounter};
use crate::transport::{FuseDevice, Transport};
pub(crate) use control::Control;
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
    /// The way to the kernel, such as `/dev/fuse`, failed; the volume was closed.
    #[error("reading {name}: {errno}")]
    Transport {
        /// What it is called.
        name: &'static str,
        /// Why.
        errno: Errno,
    },
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
    /// `None` once `run` took it.
    serving: Option<Serving<FuseDevice>>,
    losses: Losses,
    control: Arc<Control>,
    mount: Mount,
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
        let limit = DirtyLimit::of(mount.backing_device(options));
        // An error has closed the connection by now.
        let serving = Serving::agree(fs, device, options, limit).inspect_err(|_| mount.remove_dead())?;
        mount.tune(options);
        let control = Arc::clone(&serving.server.control);
        Ok(Session { losses: serving.losses(), control, serving: Some(serving), mount })
    }

    /// Serves the mount until it is gone, then closes the file system (exactly once, before this returns; on a `fuseblk`
    /// mount before umount(2) returns).
    ///
    /// # Errors
    /// See [`SessionError`]; the file system was closed in every case.
    pub fn run(mut self) -> Result<(), SessionError> {
        let Some(serving) = self.serving.take() else { return Ok(()) };
        // After an unmount this finds nothing; after an abort it takes the dead mount away.
        serving.run_and_then(|| self.mount.remove_dead())
    }

    /// What programs have written and nobody keeps any more, as long as this is served and afterwards.
    pub fn losses(&self) -> Losses {
        self.losses.clone()
    }

    /// A handle by which another thread, such as a signal handler's, ends [`run`](Self::run).
    pub fn unmounter(&self) -> Unmounter {
        self.mount.unmounter(Arc::clone(&self.control))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The connection goes first: umount(2) on fuseblk would wait for an answer that nobody gives.
        if let Some(serving) = self.serving.take() {
            drop(serving);
            self.mount.remove_dead();
        }
    }
}

/// A file system and the kernel that have agreed, over some transport, on how to talk. It mounts nothing: see [`Session`].
#[derive(Debug)]
pub struct Serving<T> {
    server: Server,
    transport: T,
    threads: usize,
    /// Whether bursts of requests keep processors from sleeping deeply.
    wakeful: bool,
}

impl<T: Transport> Serving<T> {
    /// Waits for the kernel's INIT and answers it. Of the options, those count that say how to serve, not where to mount.
    ///
    /// # Errors
    /// When the transport fails, or what comes is no handshake of a kernel that is new enough. `fs` is not closed then.
    pub fn connect(fs: Arc<dyn FileSystem>, transport: T, options: &MountOptions) -> Result<Serving<T>, MountError> {
        Serving::agree(fs, transport, options, DirtyLimit::of(None))
    }

    /// As [`connect`](Self::connect), with a limit of what the kernel may hold back.
    fn agree(
        fs: Arc<dyn FileSystem>,
        transport: T,
        options: &MountOptions,
        limit: DirtyLimit,
    ) -> Result<Serving<T>, MountError> {
        let mut server = Server::unconnected(fs, options, limit);
        server.agreed = handshake::perform(&transport, options)?;
        tracing::debug!(agreed = ?server.agreed, "handshake");
        if server.kernel_keeps_dirty_pages() {
            server.file_system().leave_times_to_caller();
        }
        server.tune();
        Ok(Serving { server, transport, threads: options.threads.max(1), wakeful: options.wakeful })
    }

    /// Serves until the kernel hangs up, then closes the file system, exactly once.
    ///
    /// # Errors
    /// See [`SessionError`]; the file system was closed in every case.
    pub fn run(self) -> Result<(), SessionError> {
        self.run_and_then(|| ())
    }

    /// As [`run`](Self::run); calls `hung_up` between the end of the connection and the closing.
    fn run_and_then(self, hung_up: impl FnOnce()) -> Result<(), SessionError> {
        let Serving { server, transport, threads, wakeful } = self;
        // A panic that no request answers for must not keep the volume from being closed.
        let serve = AssertUnwindSafe(|| worker::serve_all(&server, transport, threads, Wakeful::new(wakeful)));
        let served = catch_unwind(serve).unwrap_or_else(|_| {
            tracing::error!("serving panicked");
            Err(SessionError::Transport { name: T::NAME, errno: Errno::IO })
        });
        hung_up();
        if let Err(error) = server.close() {
            return Err(SessionError::Close(error.to_string()));
        }
        served
    }

    /// What programs have written and nobody keeps any more, as long as this is served and afterwards.
    pub fn losses(&self) -> Losses {
        self.server.losses.clone()
    }
}
