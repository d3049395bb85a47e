//! The system log: datagrams to `/dev/log`, which syslog daemons and journald read.

use std::fmt::Write as _;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::failure::printable;

const SOCKET: &str = "/dev/log";
/// Facility "system daemons" in the upper bits of a priority.
const DAEMON: u8 = 3 << 3;

/// Writes each message as a datagram. Where nobody listens, messages are lost, as everybody's are.
#[derive(Debug, Default)]
pub(super) struct Syslog {
    socket: Mutex<Option<UnixDatagram>>,
}

impl Syslog {
    fn send(&self, severity: u8, message: &[u8]) {
        let message = message.strip_suffix(b"\n").unwrap_or(message);
        let mut line = format!("<{}>basalt[{}]: ", DAEMON | severity, std::process::id());
        // Writing to a String cannot fail.
        let _ = write!(line, "{}", printable(message));
        let mut socket = self.socket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let sent = socket.as_ref().is_some_and(|socket| socket.send(line.as_bytes()).is_ok());
        if !sent {
            // Not connected yet, or the log daemon was started anew.
            *socket = connect().ok();
            if let Some(socket) = socket.as_ref() {
                let _ = socket.send(line.as_bytes());
            }
        }
    }
}

fn connect() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(SOCKET)?;
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
