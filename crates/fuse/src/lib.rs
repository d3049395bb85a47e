//! The FUSE kernel protocol: mounts any [`basalt_vfs::FileSystem`].
//!
//! ```text
//!  program ── system call ──> kernel ── transport ──> session::worker ──> protocol::Request::parse
//!                                                                                  │ Operation
//!                                          reply <── session::answer::* <── session::Server
//!                                                            │
//!                                                   basalt_vfs::FileSystem
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`protocol`] | bytes only: structures, flags, the table of operations, decoding (total: any bytes give a request or a fault) |
//! | [`transport`] | [`Transport`]: how messages travel; [`FuseDevice`]: on `/dev/fuse` |
//! | [`session`] | [`Session`] and [`Serving`]: handshake, event loops, one short method an operation, replies, background ticks, closing |
//! | [`mount`] | [`MountOptions`], mounting by mount(2) or `fusermount3`, [`Unmounter`], [`Connection`] |
//! | [`protect`] | [`protect_server`]: a process that serves a file system while memory is short |
//! | [`sync`] | [`sync_mounted`]: makes a mounted volume durable, on plain FUSE too |
//! | [`clean`] | [`clean_mounted`]: cleans a mounted volume on request |
//! | [`defragment`] | [`MountedFile`]: how a file of a mounted volume lies on the device, and putting it in sequence |
//! | `mounted` | files and directories of mounted volumes |
//!
//! **Who may cache.** The file system behind a mount has no other writer, so the kernel keeps names, absent names and
//! attributes for long, and (if wanted) dirty pages. With the writeback cache the kernel is the owner of size, mtime
//! and ctime of the files it has in memory; it writes data back first and then sends the times.
//!
//! **When everything is durable.** On `fuseblk` mounts sync(2), syncfs(2) and umount(2) wait for SYNCFS and DESTROY. On plain
//! FUSE mounts the kernel sends neither: [`sync_mounted`] does what they do there, and [`Session::run`] closes the file system
//! when the kernel hangs up.

pub mod clean;
pub mod defragment;
pub mod mount;
mod mounted;
pub mod protect;
pub mod protocol;
pub mod session;
pub mod sync;
pub mod transport;

pub use clean::{CleanError, clean_mounted};
pub use defragment::{DefragmentError, MountedFile, hand_over};
pub use mount::{Connection, MountError, MountOptions, UnmountError, Unmounter};
pub use mounted::NotMounted;
pub use protect::{protect_server, unprotected};
pub use session::{Losses, Serving, Session, SessionError};
pub use sync::{SyncError, sync_mounted};
pub use transport::{FuseDevice, ReceiveError, SendError, Transport};
