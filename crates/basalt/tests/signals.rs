//! Signals that end a mount: the volume is closed, with everything in it, wherever the mount is.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use basalt_testkit::{limit, namespace, skip};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use support::{Mounted, Scratch, basalt, can_mount, loop_devices_of, mount_line, program, wait_until};

/// Starts a mount in the foreground; returns when it serves.
fn in_foreground(scratch: &Scratch, options: &str) -> (Child, Mounted) {
    let point = scratch.directory("mnt");
    let child = Command::new(program())
        .args(["mount", "--foreground", "-o", options, &scratch.text("image"), point.to_str().unwrap()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it is mounted", || mount_line(&point).is_some());
    (child, Mounted { point })
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn signals_unmount_and_leave_a_clean_volume() {
    if !can_mount() {
        return;
    }
    for (options, number) in [("log=info", Signal::TERM), ("noloop", Signal::INT), ("log=off", Signal::HUP)] {
        let scratch = Scratch::with_volume("64M");
        let _alone = namespace::unmounting();
        let (child, mounted) = in_foreground(&scratch, options);
        fs::write(mounted.path("file"), "content").unwrap();
        signal(&child, number);
        let ended = limit::finish(child, limit::SHORT).unwrap();
        assert_eq!((ended.status.code(), ended.status.signal()), (Some(0), None), "{ended:?}");
        assert_eq!(mount_line(&mounted.point), None);
        scratch.expect_clean();
        assert_eq!(basalt(["cat", &scratch.text("image"), "file"]).ok(), "content");
        assert_eq!(basalt(["info", "--json", &scratch.text("image")]).json()["checkpoint"]["clean"], true);
    }
}

#[test]
fn a_busy_mount_ends_clean_too() {
    if !can_mount() {
        return;
    }
    for options in ["", "noloop"] {
        let scratch = Scratch::with_volume("64M");
        let _alone = namespace::unmounting();
        let (child, mounted) = in_foreground(&scratch, options);
        let mut open = File::create(mounted.path("file")).unwrap();
        open.write_all(b"content").unwrap();
        basalt(["umount".as_ref(), mounted.point.as_os_str()]).fails(1, &["in use", "fuser"]);
        signal(&child, Signal::TERM);
        // The second one ends the patience.
        std::thread::sleep(Duration::from_millis(500));
        signal(&child, Signal::TERM);
        let ended = limit::finish(child, limit::SHORT).unwrap();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert_eq!(mount_line(&mounted.point), None);
        assert!(open.write_all(b"too late").and_then(|()| open.sync_all()).is_err());
        drop(open);
        wait_until("the loop device is gone", || loop_devices_of(&scratch.text("image")).is_empty());
        scratch.expect_clean();
        assert_eq!(basalt(["cat", &scratch.text("image"), "file"]).ok(), "content");
    }
}

/// The serving process has ended well, and `file` has this content once everybody has let go of the mount.
#[track_caller]
fn expect_ended_well(child: Child, scratch: &Scratch, content: &str, let_go: impl FnOnce()) {
    let ended = limit::finish(child, limit::SHORT).unwrap();
    assert_eq!((ended.status.code(), ended.status.signal()), (Some(0), None), "{ended:?}");
    let_go();
    wait_until("the loop device is gone", || loop_devices_of(&scratch.text("image")).is_empty());
    scratch.expect_clean();
    assert_eq!(basalt(["info", "--json", &scratch.text("image")]).json()["checkpoint"]["clean"], true);
    assert_eq!(basalt(["cat", &scratch.text("image"), "file"]).ok(), content);
}

#[test]
fn a_detached_mount_ends_clean_too() {
    if !can_mount() {
        return;
    }
    // The grace time, or a second signal, ends the patience.
    for (options, signals) in [("", 1), ("noloop", 2)] {
        let scratch = Scratch::with_volume("64M");
        let alone = namespace::unmounting();
        let (child, mounted) = in_foreground(&scratch, options);
        let mut open = File::create(mounted.path("file")).unwrap();
        unmount(&mounted.point, UnmountFlags::DETACH).unwrap();
        open.write_all(b"content").unwrap();
        for _ in 0..signals {
            signal(&child, Signal::TERM);
            std::thread::sleep(Duration::from_millis(500));
        }
        expect_ended_well(child, &scratch, "content", || {
            assert!(open.write_all(b"too late").and_then(|()| open.sync_all()).is_err());
            drop(open);
        });
        drop(alone);
    }
}

#[test]
fn what_is_mounted_over_a_busy_mount_stays() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let alone = namespace::unmounting();
    let (child, mounted) = in_foreground(&scratch, "");
    let mut open = File::create(mounted.path("file")).unwrap();
    unmount(&mounted.point, UnmountFlags::DETACH).unwrap();
    rustix::mount::mount("none", &mounted.point, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    open.write_all(b"content").unwrap();
    for _ in 0..2 {
        signal(&child, Signal::TERM);
        std::thread::sleep(Duration::from_millis(500));
    }
    expect_ended_well(child, &scratch, "content", || drop(open));
    drop(alone);
    assert!(mount_line(&mounted.point).unwrap().contains("tmpfs"));
    unmount(&mounted.point, UnmountFlags::empty()).unwrap();
}

#[test]
fn a_mount_in_another_namespace_ends_clean_too() {
    if !can_mount() || !skip::tools_or_skip(&["unshare"]) {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let copy = namespace::of_its_own();
    let (child, mounted) = in_foreground(&scratch, "");
    let script = "exec 3> \"$1\"; printf content >&3; echo there; read end";
    let other = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(mounted.path("file"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut other = other.unwrap();
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "there\n");
    signal(&child, Signal::TERM);
    wait_until("it is unmounted here", || mount_line(&mounted.point).is_none());
    signal(&child, Signal::TERM);
    expect_ended_well(child, &scratch, "content", || {
        drop(other.stdin.take());
        limit::finish(other, limit::SHORT).unwrap();
    });
    drop(copy);
}
