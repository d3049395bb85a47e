//! The system log: datagrams to `/dev/log`, which syslog daemons and journald read.

use std::fmt::Write as _;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::failure::printable;

/// Where log daemons listen.
pub(super) const SOCKET: &str = "/dev/log";
/// Facility "system daemons" in the upper bits of a priority.
const DAEMON: u8 = 3 << 3;

/// Writes each message as a datagram. If no process listens, messages are lost.
#[derive(Debug)]
pub(super) struct Syslog {
    path: PathBuf,
    socket: Mutex<Option<UnixDatagram>>,
}

impl Syslog {
    /// A log that listens at `path`, now or later.
    pub(super) fn new(path: impl Into<PathBuf>) -> Syslog {
        Syslog { path: path.into(), socket: Mutex::new(None) }
    }

    fn send(&self, severity: u8, message: &[u8]) {
        let message = message.strip_suffix(b"\n").unwrap_or(message);
        let mut line = format!("<{}>basalt[{}]: ", DAEMON | severity, std::process::id());
        // Writing to a String cannot fail.
        let _ = write!(line, "{}", printable(message));
        let mut socket = self.socket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let sent = socket.as_ref().is_some_and(|socket| socket.send(line.as_bytes()).is_ok());
        if !sent {
            // Not connected yet, or the log daemon was started anew.
            *socket = connect(&self.path).ok();
            if let Some(socket) = socket.as_ref() {
                let _ = socket.send(line.as_bytes());
            }
        }
    }
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    // A log daemon that hangs, perhaps because it logs to this very volume, must not stop the volume.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// One message, sent when it is complete.
pub(super) struct Line<'a> {
    log: &'a Syslog,
    severity: u8,
    text: Vec<u8>,
}

impl io::Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if !self.text.is_empty() {
            self.log.send(self.severity, &self.text);
        }
    }
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { log: self, severity: severity(Level::INFO), text: Vec::new() }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        Line { log: self, severity: severity(*metadata.level()), text: Vec::new() }
    }
}

/// Severities of syslog(3).
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_with_priority_and_on_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let subscriber = tracing_subscriber::fmt().with_target(false).without_time().with_level(false).with_ansi(false);
        let subscriber = subscriber.with_writer(Syslog::new(&path)).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!("lost: nobody listens");
            for round in 0..2 {
                // The log daemon is started, and later started anew.
                let _ = std::fs::remove_file(&path);
                let listener = UnixDatagram::bind(&path).unwrap();
                tracing::error!("bad\nname {round}");
                let mut buffer = [0; 200];
                let length = listener.recv(&mut buffer).unwrap();
                let expected = format!("<27>basalt[{}]: bad\\nname {round}", std::process::id());
                assert_eq!(String::from_utf8_lossy(&buffer[..length]), expected);
            }
        });
    }
}
