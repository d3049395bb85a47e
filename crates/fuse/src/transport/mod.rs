//! How messages travel between the kernel and a session: requests one way, replies and notifications the other.
//!
//! | file | what |
//! |---|---|
//! | `device` | [`FuseDevice`]: `/dev/fuse` |
//!
//! A session is built for one transport at compile time, and works in its own buffers: a call costs what the transport's own work costs.

mod device;

use rustix::io::Errno;

pub use device::FuseDevice;

/// One way to talk to the kernel. Several threads receive and send at once, each with its own [channel](Self::channel) where there are more.
pub trait Transport: Send + Sync + Sized {
    /// What messages call it, such as `/dev/fuse`.
    const NAME: &'static str;

    /// Waits for one request and puts it at the start of `buffer`; returns its length in bytes, 0 where the other side has ended as it should,
    /// which is [`ReceiveError::Unmounted`] too. A request that does not fit is refused by the
    /// other side and never comes.
    ///
    /// # Errors
    /// When there will be no further request. Nothing that can be tried again is an error.
    fn receive(&self, buffer: &mut [u8]) -> Result<usize, ReceiveError>;

    /// Sends one message, a reply or a notification: its header, and the payload behind it.
    ///
    /// # Errors
    /// The other side has not taken it; the transport can still be used.
    fn send(&self, header: &[u8], payload: &[u8]) -> Result<(), SendError>;

    /// One more channel of the same connection, so that threads do not contend for this one. A reply takes the channel that its request came
    /// by. `None` where there is none: the threads share this one.
    fn channel(&self) -> Option<Self>;
}

/// Why no further request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The file system was unmounted.
    #[error("unmounted")]
    Unmounted,
    /// The connection was aborted.
    #[error("the FUSE connection was aborted")]
    Aborted,
    /// The transport failed.
    #[error("{0}")]
    Failed(Errno),
}

impl ReceiveError {
    /// The error number that read(2) of `/dev/fuse` has for it.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            ReceiveError::Unmounted => Errno::NODEV,
            ReceiveError::Aborted => Errno::CONNABORTED,
            ReceiveError::Failed(errno) => errno,
        }
    }
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// A reply: its request was interrupted or aborted meanwhile. A notification: the kernel knows nothing of the node.
    #[error("nobody waits for it")]
    NotWanted,
    /// The file system was unmounted.
    #[error("unmounted")]
    Unmounted,
    /// The kernel or the transport refused it.
    #[error("{0}")]
    Failed(Errno),
}

impl SendError {
    /// The error number that write(2) to `/dev/fuse` has for it.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            SendError::NotWanted => Errno::NOENT,
            SendError::Unmounted => Errno::NODEV,
            SendError::Failed(errno) => errno,
        }
    }
}
