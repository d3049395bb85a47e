//! Saying that a test cannot run on this machine.
//!
//! A skipped test returns early after one line on standard error. Where nothing may be skipped
//! (`BASALT_NO_SKIP=1`, which continuous integration sets) the same call panics instead.

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;

/// The environment variable that turns every skip into a failure.
pub const NO_SKIP: &str = "BASALT_NO_SKIP";

/// Prints `skipped: why`; the caller returns next.
///
/// # Panics
/// When [`NO_SKIP`] is `1`.
pub fn skip(why: impl Display) {
    assert!(
        std::env::var_os(NO_SKIP).is_none_or(|value| value != "1"),
        "skipped, though {NO_SKIP}=1 forbids it: {why}"
    );
    // Not eprintln!, which the test runner swallows when the test passes. A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// True when running as root; else skips.
pub fn root_or_skip() -> bool {
    let root = is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// True when every program is installed; else skips, naming the missing ones.
pub fn tools_or_skip(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| find_program(program).is_none()).collect();
    if !missing.is_empty() {
        skip(format_args!("{} not installed (scripts/install-dependencies)", missing.join(", ")));
    }
    missing.is_empty()
}

/// True when this process can mount FUSE file systems; else skips.
pub fn fuse_or_skip() -> bool {
    let usable = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !usable {
        skip("/dev/fuse cannot be opened");
    }
    usable
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where a program is, looking through PATH and then the directories of system programs, which users often lack.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].into_iter().map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|directory| directory.join(program)).find(|file| file.is_file())
}
