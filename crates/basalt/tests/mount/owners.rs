//! `basalt stats`: who may ask a mount of whom, and where the socket is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use basalt_testkit::{limit, namespace, skip};

use crate::counters::{socket, stats};
use crate::fixture::{Volume, try_sh_as_nobody, wait_for};
use crate::support::{can_mount, program};

#[test]
fn only_the_owner_may_ask() {
    let Some(volume) = Volume::new("64M") else { return };
    let socket = socket(&volume);
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(socket.parent().unwrap()), mode(&socket)), (0o700, 0o600));
    if skip::tools_or_skip(&["setpriv"]) {
        // The mount itself is open to them.
        let script = format!("ls '{root}' && exec '{}' stats '{root}'", program(), root = volume.root().display());
        let (ok, text) = try_sh_as_nobody(Path::new("/"), &script);
        let last = text.lines().last().unwrap_or_default();
        assert!(!ok && last.starts_with("basalt: stats: ") && last.contains("only root"), "{text}");
    }
    volume.unmount();
    assert!(!socket.exists(), "{} is left behind", socket.display());
}

/// Runs a script as root in a mount namespace of its own, where `/dev/fuse` is open to everybody. `$1` is the program, `$2` a directory,
/// `as_user` runs something as nobody.
fn in_namespace(volume: &Volume, script: &str) -> String {
    let prelude = r#"
        set -e
        exec 2>&1
        mknod "$2/fuse" c 10 229 && chmod 666 "$2/fuse" && mount --bind "$2/fuse" /dev/fuse
        as_user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
    "#;
    let directory = volume.outside("");
    let script = format!("{prelude}{script}");
    let arguments = ["-m", "sh", "-c", &script, "sh", program(), directory.to_str().unwrap()];
    let _copy = namespace::of_its_own();
    let done = limit::output(Command::new("unshare").args(arguments), limit::SHORT).unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}");
    said
}

#[test]
fn ordinary_users_have_sockets_of_their_own() {
    if !skip::tools_or_skip(&["fusermount3", "unshare", "setpriv"]) {
        return;
    }
    let Some(volume) = Volume::in_image(None, "64M", "") else { return };
    fs::set_permissions(volume.image(), fs::Permissions::from_mode(0o666)).unwrap();
    for name in ["runtime", "mnt"] {
        let _ = fs::create_dir(volume.outside(name));
        std::os::unix::fs::chown(volume.outside(name), Some(65534), Some(65534)).unwrap();
    }
    let said = in_namespace(
        &volume,
        r#"
        export XDG_RUNTIME_DIR="$2/runtime"
        as_user "$1" mount "$2/image" "$2/mnt"
        stat -c 'mode %a' "$2"/runtime/basalt "$2"/runtime/basalt/*:*.socket
        as_user "$1" stats "$2/mnt" | grep -c '^mount'
        unset XDG_RUNTIME_DIR
        as_user "$1" umount "$2/mnt"
        ls "$2/runtime/basalt" | wc -l

        # Without that directory, and with one that is somebody else's: root finds it there as well.
        export XDG_RUNTIME_DIR=/root
        as_user "$1" mount "$2/image" "$2/mnt"
        unset XDG_RUNTIME_DIR
        stat -c 'mode %a' /tmp/basalt-65534
        as_user "$1" stats "$2/mnt" | grep -c '^mount'
        "$1" stats "$2/mnt" | grep -c '^mount'
        setpriv --reuid 65533 --regid 65533 --clear-groups "$1" stats "$2/mnt" || echo "code $?"
        as_user "$1" umount "$2/mnt"
    "#,
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..8], ["mode 700", "mode 600", "mode 600", "1", "0", "mode 700", "1", "1"], "{said}");
    assert!(lines[8].contains("only user 65534 and root") && lines[9] == "code 1", "{said}");
}

#[test]
fn a_directory_of_somebody_else_is_not_used() {
    if !skip::tools_or_skip(&["unshare"]) {
        return;
    }
    let Some(volume) = Volume::in_image(None, "64M", "") else { return };
    let said = in_namespace(
        &volume,
        r#"
        mount -t tmpfs tmpfs /run
        mkdir /run/basalt && chown 65534 /run/basalt
        "$1" mount "$2/image" "$2/mnt"
        touch "$2/mnt/file"
        "$1" stats "$2/mnt" || echo "code $?"
        ls -A /run/basalt
        "$1" umount "$2/mnt"
    "#,
    );
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("no live counters") && lines[0].contains("belongs to user 65534"), "{said}");
    assert!(lines[1].contains("no process serves counters") && lines[2] == "code 1" && lines.len() == 3, "{said}");
}

#[test]
fn a_mount_of_another_namespace_is_seen_through_its_process() {
    if !can_mount() || !skip::tools_or_skip(&["unshare"]) {
        return;
    }
    let Some(volume) = Volume::in_image(None, "64M", "") else { return };
    // Until its standard input ends.
    let script = r#"set -e; "$1" mount "$2" "$3"; touch "$4"; cat > /dev/null; "$1" umount "$3""#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", program()]);
    command.arg(volume.image()).arg(volume.root()).arg(volume.outside("mounted"));
    let _copy = namespace::of_its_own();
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the mount", || volume.outside("mounted").exists());
    assert!(!volume.is_mounted());
    stats(volume.root(), "--json").fails(1, &["is not on a mount of Basalt"]);
    let through = format!("/proc/{}/root{}", child.id(), volume.root().display());
    let told = stats(through, "--json");
    let ended = limit::finish(child, limit::SHORT).unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(told.json()["mount"]["mount_point"], volume.root().to_str().unwrap());
}
