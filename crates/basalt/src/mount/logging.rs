//! Where messages go: standard error in the foreground, the system log in the background.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;

use super::syslog::{SOCKET, Syslog};

/// Sends messages up to `level` to standard error.
pub fn to_stderr(level: LevelFilter) {
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_target(false).without_time();
    let subscriber = subscriber.with_ansi(std::io::stderr().is_terminal());
    // Fails only if another one was set before, which then stays.
    let _ = subscriber.with_writer(std::io::stderr).try_init();
}

/// Sends messages up to `level` to the system log, which adds the time.
pub fn to_syslog(level: LevelFilter) {
    let subscriber =
        tracing_subscriber::fmt().with_max_level(level).with_target(false).without_time().with_level(false);
    let _ = subscriber.with_ansi(false).with_writer(Syslog::new(SOCKET)).try_init();
}
