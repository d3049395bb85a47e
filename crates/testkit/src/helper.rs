//! Where the program `basalt-testkit` is, so that scripts inside User-Mode Linux can call it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::error::{Error, Result};

/// The environment variable that names the program instead of building it.
pub const PROGRAM: &str = "BASALT_TESTKIT";

/// The absolute path of `basalt-testkit`.
///
/// Cargo builds a package's programs only for that package's own tests, so the program is built here, once a process,
/// into the same target directory as the running test: a few seconds the first time, a tenth of a second afterwards.
///
/// # Errors
/// When the build fails.
pub fn path() -> Result<&'static Path> {
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    match BUILT.get_or_init(|| find().map_err(|error| error.to_string())) {
        Ok(path) => Ok(path),
        Err(message) => Err(Error::Invalid(message.clone())),
    }
}

/// The workspace's root directory.
pub fn workspace() -> PathBuf {
    // The crate is at crates/testkit, so there are always two parents.
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("/")).to_owned()
}

fn find() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os(PROGRAM) {
        return Ok(program.into());
    }
    let own =
        std::env::current_exe().map_err(|source| Error::Io { doing: "find the running program".to_owned(), source })?;
    // A test runs from <target>/<profile>/deps/, other programs from <target>/<profile>/.
    let directory = own.ancestors().skip(1).find(|directory| !directory.ends_with("deps"));
    let (Some(directory), Some(target)) = (directory, directory.and_then(Path::parent)) else {
        return Err(Error::Invalid(format!("{} is not in a target directory", own.display())));
    };
    build(target, directory.ends_with("release"))?;
    Ok(directory.join("basalt-testkit"))
}

fn build(target: &Path, release: bool) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "basalt-testkit", "--bin", "basalt-testkit"]);
    // The profile that `cargo test` builds with, so that nothing is compiled a second time.
    command.args(["--profile", if release { "release" } else { "test" }]);
    command.arg("--target-dir").arg(target);
    command.current_dir(workspace()).stdin(Stdio::null());
    let output = crate::limit::output(&mut command, crate::limit::LONG)
        .map_err(|source| Error::Io { doing: "run cargo to build basalt-testkit".to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Tool {
        command: "cargo build --package basalt-testkit".to_owned(),
        ended: crate::command::describe(output.status),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
