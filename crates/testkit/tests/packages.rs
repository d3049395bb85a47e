//! The library crates can be published: `cargo package` takes them, with their licences, and with versions of what they lean on.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Each after those that it leans on.
const LIBRARIES: [&str; 8] = [
    "basalt-random",
    "basalt-nand",
    "basalt-flashlight",
    "basalt-device",
    "basalt-segments",
    "basalt-vfs",
    "basalt-fuse",
    "basalt-f2fs",
];

fn cargo(arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root).env("CARGO_TARGET_DIR", target());
    let output = command.output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A folder of its own: the one that this test was built in is locked.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages")
}

#[test]
fn the_libraries_can_be_packaged() {
    let mut arguments = vec!["package", "--offline", "--no-verify", "--allow-dirty", "--quiet"];
    arguments.extend(LIBRARIES.iter().flat_map(|name| ["-p", name]));
    cargo(&arguments);
    for name in LIBRARIES {
        let files = cargo(&["package", "--offline", "--allow-dirty", "--list", "-p", name]);
        for wanted in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "src/lib.rs"] {
            assert!(files.lines().any(|file| file == wanted), "{name} lacks {wanted}: {files}");
        }
        let archive = target().join(format!("package/{name}-{}.crate", env!("CARGO_PKG_VERSION")));
        let length = std::fs::metadata(&archive).unwrap_or_else(|error| panic!("{}: {error}", archive.display())).len();
        // What a registry takes.
        assert!(length < 10 << 20, "{name} takes {length} bytes");
    }
}
