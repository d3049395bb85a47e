//! The client's side: a document from the socket of a path's mount.

use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Uid;

use super::document::Document;
use super::place;
use crate::mounts::{self, Mount};

/// How long the server may take. It answers at once unless it was stopped, or its machine is very busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the longest answer that is read.
const LONGEST: u64 = 1 << 20;

/// Why a mount's counters could not be had.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The path cannot be looked at.
    #[error("{path}: {errno}")]
    Path {
        /// The path.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// Another file system is there.
    #[error("{0} is not on a mount of Basalt")]
    NotBasalt(PathBuf),
    /// The mount is dead: its serving process is gone.
    #[error("{0}: the process that served this mount is gone")]
    Gone(PathBuf),
    /// The mount has no socket.
    #[error("{0}: no process serves counters of this mount")]
    NoSocket(PathBuf),
    /// The counters are another user's.
    #[error("{path}: only {owner} may see the counters of this mount")]
    Denied {
        /// The path.
        path: PathBuf,
        /// The user whose process serves the mount.
        owner: String,
    },
    /// The server takes too long.
    #[error("{path}: the process that serves this mount has not answered for {} s", PATIENCE.as_secs())]
    Silent {
        /// The path.
        path: PathBuf,
    },
    /// The answer makes no sense, or asking failed.
    #[error("{path}: {reason}")]
    Answer {
        /// The path.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl AskError {
    /// Whether there is no process (any more) that could answer.
    pub fn is_gone(&self) -> bool {
        matches!(self, AskError::Gone(_) | AskError::NoSocket(_))
    }
}

/// Where a mount's counters come from.
#[derive(Debug, Clone)]
pub struct Source {
    /// What the user named.
    path: PathBuf,
    /// Who serves the mount.
    owner: Uid,
    directories: Vec<PathBuf>,
    name: String,
}

impl Source {
    /// The source for the mount that `path` is on. The server is not asked: this works with one that hangs or is gone as well.
    ///
    /// # Errors
    /// When there is nothing at the path, or another file system.
    pub fn of(path: &Path) -> Result<Source, AskError> {
        let number = device_number(path)?;
        let mount = mounts::with_device(&number);
        if mount.as_ref().is_some_and(|mount| !mount.is_basalt()) {
            return Err(AskError::NotBasalt(path.to_path_buf()));
        }
        let source = Source::named(path, mount.as_ref(), place::name(&number));
        // Seen from another mount namespace, as below /proc/PID/root, a mount is in no table here, but its socket may be.
        if mount.is_none() && matches!(source.connect(), Err(AskError::NoSocket(_))) {
            return Err(AskError::NotBasalt(path.to_path_buf()));
        }
        Ok(source)
    }

    /// The source with this name of a mount.
    pub(super) fn of_mount(mount: &Mount, name: String) -> Source {
        Source::named(&mount.point, Some(mount), name)
    }

    fn named(path: &Path, mount: Option<&Mount>, name: String) -> Source {
        let me = rustix::process::geteuid();
        let owner = mount.and_then(|mount| mount.owner).map_or(me, Uid::from_raw);
        let directories = if owner == me { place::own_directories() } else { place::directories(owner, None) };
        Source { path: path.to_path_buf(), owner, directories, name }
    }

    /// The mount's counters as of now.
    ///
    /// # Errors
    /// When no process serves the counters, this user may not see them, or there is no valid answer in time.
    pub fn document(&self) -> Result<Document, AskError> {
        let stream = self.connect()?;
        let answer = self.read(stream)?;
        Document::read(&answer).map_err(|reason| self.failed(reason))
    }

    pub(super) fn connect(&self) -> Result<UnixStream, AskError> {
        for directory in &self.directories {
            let opened = match place::open(directory, self.owner) {
                Ok(opened) => opened,
                // In the way of a search: what is there cannot be seen.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::ACCESS) => return Err(self.denied()),
                // Not there, or of another user: the server does not use it.
                Err(_) => continue,
            };
            if let Some(stream) = self.connect_in(&opened)? {
                return Ok(stream);
            }
        }
        Err(AskError::NoSocket(self.path.clone()))
    }

    /// `None` where there is no socket.
    fn connect_in(&self, directory: &OwnedFd) -> Result<Option<UnixStream>, AskError> {
        let failed = |errno: Errno| self.failed(format!("asking for its counters: {errno}"));
        let address = place::address(directory, &self.name).map_err(|error| self.failed(error.to_string()))?;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(failed)?;
        // Also limits connecting, while others wait to be served.
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE)).map_err(failed)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::CONNREFUSED) => return Err(AskError::Gone(self.path.clone())),
            Err(Errno::ACCESS | Errno::PERM) => return Err(self.denied()),
            Err(Errno::AGAIN) => return Err(AskError::Silent { path: self.path.clone() }),
            Err(errno) => return Err(failed(errno)),
        }
        let server = sockopt::socket_peercred(&socket).map_err(failed)?.uid;
        if server != self.owner {
            return Err(self.failed(format!(
                "user {} answers in place of user {}",
                server.as_raw(),
                self.owner.as_raw()
            )));
        }
        Ok(Some(socket.into()))
    }

    /// Everything that the server sends, within limits of time and size.
    fn read(&self, mut stream: UnixStream) -> Result<Vec<u8>, AskError> {
        let silent = || AskError::Silent { path: self.path.clone() };
        let deadline = Instant::now() + PATIENCE;
        let mut answer = Vec::new();
        let mut buffer = [0; 1 << 13];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(silent());
            }
            stream.set_read_timeout(Some(left)).map_err(|error| self.failed(error.to_string()))?;
            match stream.read(&mut buffer) {
                // It ended while this waited for its turn.
                Ok(0) if answer.is_empty() => return Err(AskError::Gone(self.path.clone())),
                Ok(0) => return Ok(answer),
                Ok(length) if (answer.len() + length) as u64 > LONGEST => {
                    return Err(self.failed("its answer is too long".to_owned()));
                }
                Ok(length) => answer.extend_from_slice(&buffer[..length]),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(silent()),
                    ErrorKind::ConnectionReset if answer.is_empty() => return Err(AskError::Gone(self.path.clone())),
                    _ => return Err(self.failed(error.to_string())),
                },
            }
        }
    }

    fn denied(&self) -> AskError {
        let owner =
            if self.owner.is_root() { "root".to_owned() } else { format!("user {} and root", self.owner.as_raw()) };
        AskError::Denied { path: self.path.clone(), owner }
    }

    fn failed(&self, reason: String) -> AskError {
        AskError::Answer { path: self.path.clone(), reason }
    }
}

/// The device number of the file system that a path is on.
fn device_number(path: &Path) -> Result<String, AskError> {
    // Nothing but the number: the kernel knows it itself, and tells it also to those whom the mount does not let in.
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    match rustix::fs::statx(CWD, path, flags, StatxFlags::empty()) {
        Ok(facts) => Ok(format!("{}:{}", facts.stx_dev_major, facts.stx_dev_minor)),
        Err(Errno::NOTCONN) => Err(AskError::Gone(path.to_path_buf())),
        Err(errno) => Err(AskError::Path { path: path.to_path_buf(), errno }),
    }
}
