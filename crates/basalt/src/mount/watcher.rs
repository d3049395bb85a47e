//! A second process of a mount, which aborts the FUSE connection when the serving process is killed.
//!
//! A thread of the server may tell the kernel to drop pages of a file. The kernel first waits until the server has written back the dirty
//! ones. If the server is killed during that wait, the thread waits for an answer that never comes. It cannot be killed, and it has
//! `/dev/fuse` open, so the kernel does not notice that the server is gone, and every program that uses the mount waits too. FUSE has no
//! notification without that wait, and no thread of a killed process can end it.
//!
//! The watcher has the control file of the connection as its standard input. It writes there when the thread that has
//! started it ends, which is the server's first one. The file is that of this very connection: of another one with the same number
//! nothing can be aborted.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use basalt_fuse::Connection;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::daemon;

/// The name by which this program is called to be the watcher.
pub const NAME: &str = "basalt-watcher";
/// What the watcher says when it watches.
const READY: u8 = b'w';

/// The watcher of a mount; ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watcher(Child);

impl Watcher {
    /// Starts it for what is mounted with this device number at `place`, which is only shown. The thread that calls this must be one
    /// that lives as long as the process.
    ///
    /// # Errors
    /// When there is no control file that this user may use, or no process can be started.
    pub(super) fn start(device_number: &str, place: &Path) -> std::io::Result<Watcher> {
        let control = File::from(Connection::of(device_number)?);
        let child = Command::new(daemon::program())
            .arg0(NAME)
            .arg(place)
            .arg(std::process::id().to_string())
            .current_dir("/")
            // Of its own, so that the terminal's signals do not reach it.
            .process_group(0)
            .stdin(control)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut watcher = Watcher(child);
        let mut word = [0];
        let mut pipe = watcher.0.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        pipe.read_exact(&mut word)?;
        Ok(watcher)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // It has ended already, at worst.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Is the watcher.
pub fn run() -> ExitCode {
    match watch() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn watch() -> std::io::Result<()> {
    let connection = Connection::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    // A signal to all processes of a service or a system must let the server end first.
    let mut signals = Signals::new([SIGUSR1, SIGTERM, SIGINT, SIGHUP])?;
    rustix::process::set_parent_process_death_signal(Some(Signal::USR1))?;
    // A server that was killed before that sends no signal. The parent is another process then, or the message below cannot be sent.
    let server = std::env::args_os().nth(2).and_then(|pid| pid.to_str()?.parse().ok());
    let is_orphan = server.is_some_and(|server: u32| std::os::unix::process::parent_id() != server);
    if is_orphan || say_ready().is_err() {
        return connection.abort();
    }
    signals.forever().find(|&signal| signal == SIGUSR1);
    connection.abort()
}

/// Says so, and closes the pipe.
fn say_ready() -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&[READY])?;
    stdout.flush()?;
    let null = File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}
