//! How a mount ended: sent by the serving process to programs that unmount it.
//!
//! Beside the socket for counters there is one whose clients wait: when the file system is closed, each is sent one line, `closed`,
//! `lost: ` and what, or `failed: ` and the reason, and hung up on. A server that ends without a word has not closed its file system.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;
use rustix::process::PidfdFlags;

use super::ask::{AskError, Source};
use super::place;
use crate::mounts::Mount;

/// What a server says that could close its file system.
const CLOSED: &str = "closed";
/// What precedes what was lost, of one that could.
const LOST: &str = "lost: ";
/// What precedes the reason of one that could not.
const FAILED: &str = "failed: ";
/// Bytes of the longest line that is read.
const LONGEST: u64 = 1 << 16;

/// How a mount ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The file system was closed; everything is on the device.
    Closed,
    /// It was closed, but the kernel had taken what cannot be there.
    Lost(String),
    /// It was not, for this reason.
    Failed(String),
    /// The serving process ended without a line.
    Silent,
    /// It has not ended in time.
    Late,
}

/// The line that is sent for an end; `None` if none is sent.
pub(crate) fn line(end: &End) -> Option<String> {
    let with = |start: &str, what: &str| Some(format!("{start}{}", crate::failure::one_line(what)));
    match end {
        End::Closed => Some(CLOSED.to_owned()),
        End::Lost(what) => with(LOST, what),
        End::Failed(reason) => with(FAILED, reason),
        End::Silent | End::Late => None,
    }
}

/// What such a line says.
fn parse(line: &str) -> End {
    if line == CLOSED {
        End::Closed
    } else if let Some(what) = line.strip_prefix(LOST) {
        End::Lost(what.to_owned())
    } else {
        line.strip_prefix(FAILED).map_or(End::Silent, |reason| End::Failed(reason.to_owned()))
    }
}

/// How long to wait without a word.
const SILENCE: Duration = Duration::from_secs(2);

/// A client that waits for the end of a mount.
#[derive(Debug)]
pub struct Farewell {
    stream: UnixStream,
}

impl Farewell {
    /// Begins to wait, before the mount is taken away.
    ///
    /// # Errors
    /// When the serving process is gone, the mount is another user's, or its server has no such socket.
    pub fn of(mount: &Mount) -> Result<Farewell, AskError> {
        let stream = Source::of_mount(mount, place::farewell_name(&mount.device)).connect()?;
        Ok(Farewell { stream })
    }

    /// The process that serves the mount, if that can be told.
    #[must_use]
    pub fn server(&self) -> Option<u32> {
        let peer = sockopt::socket_peercred(&self.stream).ok()?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
    }

    /// Waits until the mount has ended, and its server, too: then nothing is locked any more. `tell` is called once if that takes long.
    #[must_use]
    pub fn wait(mut self, limit: Duration, tell: impl FnOnce()) -> End {
        let server = sockopt::socket_peercred(&self.stream).map(|peer| peer.pid);
        let server = server.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
        let mut end = self.read(limit.min(SILENCE));
        if matches!(end, End::Late) && limit > SILENCE {
            tell();
            end = self.read(limit - SILENCE);
        }
        if let (Ok(server), End::Closed | End::Lost(_) | End::Failed(_)) = (server, &end) {
            // A descriptor of a process is readable once that has ended. It has nothing left to do but that.
            let limit = Timespec::try_from(limit).ok();
            let _ = rustix::event::poll(&mut [PollFd::new(&server, PollFlags::IN)], limit.as_ref());
        }
        end
    }

    fn read(&mut self, limit: Duration) -> End {
        let limited = self.stream.set_read_timeout(Some(limit.max(Duration::from_millis(1))));
        let mut text = String::new();
        match limited.and_then(|()| (&self.stream).take(LONGEST).read_to_string(&mut text)) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => End::Late,
            Err(_) => End::Silent,
            Ok(_) => parse(&text),
        }
    }
}
