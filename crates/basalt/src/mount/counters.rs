//! Serves the live counters of a mount on a Unix socket, and the news of its end on another; see `statistics` for the protocols, and
//! for where the sockets are.
//!
//! One thread serves one client after the other. An answer fits the socket's buffer, so clients that do not read cost nothing; others
//! wait in the kernel's queue, which is short. The thread holds no file system: it never keeps a volume open.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use basalt_vfs::Engine;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;

use super::Profile;
use crate::statistics::farewell::{self, End};
use crate::statistics::{Document, MountFacts, VolumeFacts, place};

/// Clients that wait for their turn; more have to wait outside.
const QUEUE: i32 = 16;
/// From so many clients on that wait for the end, those that have gone are looked for.
const CROWD: usize = 16;
/// How long a client may take to make room for its answer, if it does not fit at once.
const CLIENT_PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait for another process that changes the directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// How long the thread may take to end. Beyond that it ends with the process.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Pause when no client can be accepted, as when there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The counters of a mount, served until [`stop`](Self::stop).
pub(crate) struct Counters {
    served: std::sync::Mutex<Option<Served>>,
}

/// What goes when serving ends.
struct Served {
    /// For the counters, and for the news of the end.
    sockets: [SocketFile; 2],
    /// The thread ends when this is closed.
    stop: OwnedFd,
    /// Clients that wait for the end.
    ended: Receiver<Vec<OwnedFd>>,
}

/// Clients that wait for the end of the mount. A client that gets no line assumes a failure.
#[derive(Default)]
pub(crate) struct Waiting(Vec<OwnedFd>);

impl Waiting {
    /// Tells them. The process has to end soon: they wait for that, too.
    pub(crate) fn tell(self, end: &End) {
        let Some(line) = farewell::line(end) else { return };
        for client in self.0 {
            // The line fits an empty buffer. A client that has gone needs no line.
            let _ = rustix::net::send(&client, line.as_bytes(), SendFlags::NOSIGNAL);
        }
    }
}

impl Counters {
    /// Serves the counters of `engine` in a thread of their own. `mount` says what is mounted where, `profile`
    /// what the device is like, if plans go by that.
    ///
    /// # Errors
    /// Where no directory can be used, with the reason for each.
    pub(crate) fn serve(engine: &Arc<dyn Engine>, mount: MountFacts, profile: Option<Profile>) -> io::Result<Counters> {
        // First, because it may fail: then no socket is left without a server.
        let (stopped, stop) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (socket, listener) = SocketFile::make(&place::name(&mount.device_number))?;
        let farewell = SocketFile::make(&place::farewell_name(&mount.device_number));
        let (farewell, waiting) = farewell.inspect_err(|_| socket.remove())?;
        let sockets = [socket, farewell];
        let volume = engine.identity().into();
        let teller = Teller { engine: Arc::downgrade(engine), mount, profile, volume, start: Instant::now() };
        let (end, ended) = mpsc::channel();
        let thread = std::thread::Builder::new().name("counters".into()).spawn(move || {
            let end: Sender<Vec<OwnedFd>> = end;
            let clients = answer_all(&listener, &waiting, &stopped, &teller);
            // If this took too long, no client listens any more.
            let _ = end.send(clients);
        });
        if let Err(error) = thread {
            sockets.iter().for_each(SocketFile::remove);
            return Err(error);
        }
        Ok(Counters { served: Some(Served { sockets, stop, ended }).into() })
    }

    /// Counters that are not served.
    pub(crate) fn none() -> Counters {
        Counters { served: None.into() }
    }

    /// Removes the sockets and ends the thread; returns the clients that wait for the end. Does nothing when called again.
    pub(crate) fn stop(&self) -> Waiting {
        let served = self.served.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(Served { sockets, stop, ended }) = served else { return Waiting::default() };
        sockets.iter().for_each(SocketFile::remove);
        drop(stop);
        Waiting(ended.recv_timeout(END_PATIENCE).unwrap_or_default())
    }
}

/// A socket in the file system.
struct SocketFile {
    directory: OwnedFd,
    name: String,
    /// By which it is recognised: another mount may have taken its place.
    inode: u64,
}

impl SocketFile {
    /// Makes a socket that listens, in the first directory that can be used. What a killed process left there is replaced.
    fn make(name: &str) -> io::Result<(SocketFile, OwnedFd)> {
        let mut reasons = Vec::new();
        for path in place::own_directories() {
            match place::make(&path).and_then(|directory| SocketFile::make_in(directory, name)) {
                Ok(made) => return Ok(made),
                Err(error) => reasons.push(format!("{}: {error}", path.display())),
            }
        }
        Err(io::Error::other(reasons.join("; ")))
    }

    fn make_in(directory: OwnedFd, name: &str) -> io::Result<(SocketFile, OwnedFd)> {
        let locked = DirectoryLock::take(&directory)?;
        remove_dead(&directory)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The socket listens and has its permissions before it gets its name, so that no client meets an unfinished one.
        let draft = format!("{name}.{}", std::process::id());
        rustix::net::bind(&listener, &place::address(&directory, &draft)?)?;
        let named = Self::publish(&directory, &draft, name, &listener);
        if named.is_err() {
            let _ = rustix::fs::unlinkat(&directory, &draft, AtFlags::empty());
        }
        let inode = named?;
        drop(locked);
        Ok((SocketFile { directory, name: name.to_owned(), inode }, listener))
    }

    fn publish(directory: &OwnedFd, draft: &str, name: &str, listener: &OwnedFd) -> rustix::io::Result<u64> {
        rustix::fs::chmodat(directory, draft, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
        rustix::net::listen(listener, QUEUE)?;
        let inode = rustix::fs::statat(directory, draft, AtFlags::SYMLINK_NOFOLLOW)?.st_ino;
        rustix::fs::renameat(directory, draft, directory, name)?;
        Ok(inode)
    }

    /// Takes the socket out of its directory, unless it is another mount's by now.
    fn remove(&self) {
        // Without the lock it stays; the next mount removes it.
        let Ok(_locked) = DirectoryLock::take(&self.directory) else { return };
        let found = rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| found.st_ino == self.inode) {
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Keeps others of Basalt's processes from changing a directory.
struct DirectoryLock<'a>(&'a OwnedFd);

impl DirectoryLock<'_> {
    fn take(directory: &OwnedFd) -> io::Result<DirectoryLock<'_>> {
        let start = Instant::now();
        loop {
            match rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(DirectoryLock(directory)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < LOCK_PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(Errno::WOULDBLOCK) => return Err(io::Error::other("locked by another process")),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for DirectoryLock<'_> {
    fn drop(&mut self) {
        // It goes with the descriptor otherwise.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// Removes the sockets of processes that were killed. The directory is locked, so no other process is about to listen.
fn remove_dead(directory: &OwnedFd) -> io::Result<()> {
    for entry in Dir::read_from(directory)?.flatten() {
        let name = entry.file_name().to_string_lossy();
        if !name.contains(".socket") {
            continue;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let Ok(address) = place::address(directory, &name) else { continue };
        if rustix::net::connect(&probe, &address) == Err(Errno::CONNREFUSED) {
            // Where that fails, it stays; a mount with its name replaces it.
            let _ = rustix::fs::unlinkat(directory, &*name, AtFlags::empty());
        }
    }
    Ok(())
}

/// What clients are told.
struct Teller {
    engine: Weak<dyn Engine>,
    mount: MountFacts,
    profile: Option<Profile>,
    volume: VolumeFacts,
    start: Instant,
}

impl Teller {
    /// The document as of now; `None` when the engine is gone.
    fn tell(&self) -> Option<Vec<u8>> {
        let live = self.engine.upgrade()?.live();
        let (uptime_seconds, planned_by) =
            (self.start.elapsed().as_secs_f64(), self.profile.as_ref().map(Profile::planned_by));
        let mount = MountFacts { uptime_seconds, planned_by, ..self.mount.clone() };
        serde_json::to_vec(&Document::new(mount, self.volume.clone(), live)).ok()
    }
}

/// Answers clients until `stopped` is closed at its other end; returns the clients that wait for the end.
fn answer_all(listener: &OwnedFd, farewell: &OwnedFd, stopped: &OwnedFd, teller: &Teller) -> Vec<OwnedFd> {
    let mut waiting = Vec::new();
    loop {
        let waited = wait(&[listener, farewell], PollFlags::IN, stopped, None);
        accept_waiting(farewell, &mut waiting);
        match waited {
            Waited::Stopped => return waiting,
            Waited::TimedOut => continue,
            Waited::Ready => {}
        }
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(client) => {
                if let Some(text) = teller.tell() {
                    send(&client, &text, stopped);
                }
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => {
                tracing::debug!(%errno, "no client can be accepted");
                if matches!(wait(&[], PollFlags::IN, stopped, Some(PAUSE)), Waited::Stopped) {
                    accept_waiting(farewell, &mut waiting);
                    return waiting;
                }
            }
        }
    }
}

/// Accepts all clients that wait for the end.
fn accept_waiting(listener: &OwnedFd, waiting: &mut Vec<OwnedFd>) {
    while let Ok(client) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        if waiting.len() >= CROWD {
            waiting.retain(|client| !has_gone(client));
        }
        waiting.push(client);
    }
}

/// Whether a client has hung up.
fn has_gone(client: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(client, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(PollFlags::HUP)
}

/// Sends an answer. A client that does not take it in time gets a part of it, which is no document.
fn send(client: &OwnedFd, mut text: &[u8], stopped: &OwnedFd) {
    let deadline = Instant::now() + CLIENT_PATIENCE;
    while !text.is_empty() {
        match rustix::net::send(client, text, SendFlags::NOSIGNAL) {
            Ok(sent) => text = text.get(sent..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() || !matches!(wait(&[client], PollFlags::OUT, stopped, Some(left)), Waited::Ready) {
                    return;
                }
            }
            // It has gone.
            Err(_) => return,
        }
    }
}

/// How a wait ended.
enum Waited {
    Ready,
    TimedOut,
    Stopped,
}

/// Waits until one of the descriptors is ready, or this thread is to end.
fn wait(descriptors: &[&OwnedFd], events: PollFlags, stopped: &OwnedFd, limit: Option<Duration>) -> Waited {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let mut polled = vec![PollFd::new(stopped, PollFlags::IN)];
    polled.extend(descriptors.iter().map(|descriptor| PollFd::new(*descriptor, events)));
    match rustix::event::poll(&mut polled, limit.as_ref()) {
        Err(Errno::INTR) => Waited::TimedOut,
        // Nothing to wait with: better no counters than a busy loop.
        Err(_) => Waited::Stopped,
        Ok(_) if !polled[0].revents().is_empty() => Waited::Stopped,
        Ok(0) => Waited::TimedOut,
        Ok(_) => Waited::Ready,
    }
}
