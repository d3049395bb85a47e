//! `mount`, `umount` and `sync`, with the kernel.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use basalt_testkit::loopdev::LoopDevice;
use basalt_testkit::{limit, namespace, skip};
use rustix::fs::FlockOperation;
use rustix::process::{Signal, kill_process};
use support::{
    Mounted, Scratch, basalt, can_mount, loop_devices_of, mount_line, program, server_of, umount, wait_until,
};

#[test]
fn an_image_is_mounted_through_a_loop_device_and_comes_back_clean() {
    if !can_mount() || !skip::tools_or_skip(&["losetup"]) {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let mounted = Mounted::new(&scratch, "");
    let line = mount_line(&mounted.point).expect("mounted");
    assert!(line.contains(" - fuseblk.basalt /dev/loop"), "{line}");
    assert!(loop_devices_of(&image).contains(&image));
    fs::write(mounted.path("file"), "content").unwrap();
    basalt(["sync".as_ref(), mounted.point.as_os_str()]).ok();
    mounted.unmount();
    assert_eq!(mount_line(&mounted.point), None);
    assert_eq!(loop_devices_of(&image), "");
    wait_until("the server has ended", || server_of(&image).is_none());
    scratch.expect_clean();
    assert_eq!(basalt(["cat", &image, "file"]).ok(), "content");
    let info = basalt(["info", "--json", &image]).json();
    assert_eq!(info["checkpoint"]["clean"], true);
}

#[test]
fn without_loop_device_the_image_itself_is_the_source() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let mounted = Mounted::new(&scratch, "noloop,noatime");
    let line = mount_line(&mounted.point).expect("mounted");
    assert!(line.contains(&format!(" - fuse.basalt {} ", scratch.text("image"))), "{line}");
    fs::write(mounted.path("file"), "content").unwrap();
    mounted.unmount();
    scratch.expect_clean();
    assert_eq!(basalt(["cat", &scratch.text("image"), "file"]).ok(), "content");
}

#[test]
fn block_devices_are_mounted_as_such() {
    if !can_mount() || !skip::tools_or_skip(&["losetup"]) {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let device = LoopDevice::attach(&scratch.path("image")).expect("a loop device");
    let name = device.path().to_str().unwrap();
    let point = scratch.directory("mnt");
    basalt(["mount", name, point.to_str().unwrap()]).ok();
    let mounted = Mounted { point };
    let line = mount_line(&mounted.point).expect("mounted");
    assert!(line.contains(&format!(" - fuseblk.basalt {name} ")), "{line}");
    fs::write(mounted.path("file"), "content").unwrap();
    basalt(["fsck", name]).fails(8, &[name, "in use", "mounted on"]);
    mounted.unmount();
    basalt(["fsck", name]).ok();
    assert_eq!(basalt(["cat", name, "file"]).ok(), "content");
}

/// Kills the server at once after `durable` has returned, and expects what was written before to be there.
fn survives_a_kill(options: &str, durable: impl Fn(&Mounted)) {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let mounted = Mounted::new(&scratch, options);
    fs::write(mounted.path("before"), vec![7; 3 << 20]).unwrap();
    durable(&mounted);
    let server = server_of(&image).expect("a server");
    kill_process(server, Signal::KILL).unwrap();
    wait_until("the server has ended", || server_of(&image).is_none());
    // What is left is a dead mount; it can be taken away, though the volume was not closed.
    let unmounted = umount(&mounted.point);
    assert_eq!(unmounted.code(), 1, "{}", unmounted.err());
    assert!(unmounted.err().contains("not closed cleanly"), "{}", unmounted.err());
    assert_eq!(mount_line(&mounted.point), None);
    assert_eq!(basalt(["fsck", &image]).code(), 0);
    let copy = scratch.path("copy");
    assert_eq!(basalt(["get", &image, "before", copy.to_str().unwrap()]).code(), 0);
    assert!(fs::read(copy).unwrap() == vec![7; 3 << 20]);
}

#[test]
fn what_basalt_sync_has_written_survives_a_kill() {
    if !can_mount() {
        return;
    }
    for options in ["noloop", "loop"] {
        survives_a_kill(options, |mounted| {
            basalt(["sync".as_ref(), mounted.point.as_os_str()]).ok();
        });
    }
}

/// Whether the kernel sends SYNCFS to `fuseblk` mounts.
fn kernel_waits_for_sync() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let known = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 18);
    if !known {
        skip::skip(format_args!("Linux {} does not wait in sync(2)", release.trim()));
    }
    known
}

#[test]
fn what_sync_has_written_survives_a_kill() {
    if can_mount() && kernel_waits_for_sync() {
        survives_a_kill("", |_| rustix::fs::sync());
    }
}

#[test]
fn umount_returns_when_everything_is_durable() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let mounted = Mounted::new(&scratch, "");
    fs::write(mounted.path("file"), vec![7; 3 << 20]).unwrap();
    let server = server_of(&image).expect("a server");
    let alone = namespace::unmounting();
    // Not Basalt's umount, which waits by itself. Programs that other tests start may hold the file for a moment, from fork to exec.
    wait_until("it is unmounted", || {
        match rustix::mount::unmount(&mounted.point, rustix::mount::UnmountFlags::empty()) {
            Err(rustix::io::Errno::BUSY) => false,
            unmounted => unmounted.map(|()| true).unwrap(),
        }
    });
    drop(alone);
    let _ = kill_process(server, Signal::KILL);
    wait_until("the server has ended", || server_of(&image).is_none());
    wait_until("the loop device is gone", || loop_devices_of(&image).is_empty());
    scratch.expect_clean();
    assert_eq!(basalt(["info", "--json", &image]).json()["checkpoint"]["clean"], true);
    assert_eq!(basalt(["stat", "--json", &image, "file"]).json()[0]["size"], 3 << 20);
}

#[test]
fn umount_tells_who_still_has_the_mount() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let mounted = Mounted::new(&scratch, "");
    let _copy = namespace::of_its_own();
    // It is made before the script says so.
    let script = "echo there; exec sleep 60";
    let other = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn();
    let mut other = other.unwrap();
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let umount = Command::new(program()).arg("umount").arg(&mounted.point).stderr(Stdio::piped()).spawn();
    let mut umount = umount.unwrap();
    let mut told = String::new();
    BufReader::new(umount.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert!(told.contains(&format!("waiting for process {},", other.id())), "{told}");
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(limit::wait(&mut umount, limit::SHORT).unwrap().code(), Some(0));
    scratch.expect_clean();
}

#[test]
fn a_mounted_volume_is_refused_at_once() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let mounted = Mounted::new(&scratch, "");
    let other = scratch.directory("other");
    let start = Instant::now();
    basalt(["mount", &image, other.to_str().unwrap()]).fails(32, &["in use", "mounted on"]);
    basalt(["fsck", &image]).fails(8, &["in use", "mounted on"]);
    basalt(["mkfs", "--force", &image]).fails(1, &["in use", "mounted on"]);
    basalt(["put", &image, "/etc/passwd"]).fails(1, &["in use", "mounted on"]);
    assert!(start.elapsed() < Duration::from_secs(10));
    let info = basalt(["info", "--json", &image]);
    assert_eq!(info.code(), 0);
    assert!(info.err().contains("last checkpoint"), "{}", info.err());
    // The image may also be named to unmount it.
    umount(image.as_ref()).ok();
    assert_eq!(mount_line(&mounted.point), None);
}

/// Every command that would change a volume or has to rely on nobody's doing so refuses `target`, at once, because of the mount.
#[track_caller]
fn expect_all_refused(scratch: &Scratch, target: &str, point: &Path) {
    let words = [target, "in use", &format!("mounted on {}", point.display())];
    let other = scratch.directory("other");
    let start = Instant::now();
    basalt(["mount", target, other.to_str().unwrap()]).fails(32, &words);
    basalt(["mount", "-o", "ro", target, other.to_str().unwrap()]).fails(32, &words);
    basalt(["fsck", target]).fails(8, &words);
    basalt(["fsck", "--repair", target]).fails(8, &words);
    basalt(["mkfs", "--force", target]).fails(1, &words);
    basalt(["resize", target, "128M"]).fails(1, &words);
    basalt(["tune", "--journal", "off", target]).fails(1, &words);
    basalt(["put", target, "/etc/passwd"]).fails(1, &words);
    basalt(["rescue", "--list", target]).fails(1, &words);
    // Without the thirty seconds that each would wait for a lock.
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_mounted_image_is_refused_behind_a_loop_device() {
    if !can_mount() || !skip::tools_or_skip(&["losetup"]) {
        return;
    }
    for options in ["", "noloop"] {
        let scratch = Scratch::with_volume("64M");
        let mounted = Mounted::new(&scratch, options);
        fs::write(mounted.path("file"), "content").unwrap();
        let device = LoopDevice::attach(&scratch.path("image")).expect("a loop device");
        expect_all_refused(&scratch, device.path().to_str().unwrap(), &mounted.point);
        let link = scratch.path("link");
        symlink(device.path(), &link).unwrap();
        basalt(["mkfs", "--force", link.to_str().unwrap()]).fails(1, &["in use", "mounted on"]);
        mounted.unmount();
        drop(device);
        scratch.expect_clean();
        assert_eq!(basalt(["cat", &scratch.text("image"), "file"]).ok(), "content");
    }
}

#[test]
fn an_image_is_refused_while_a_loop_device_over_it_is_mounted() {
    if !can_mount() || !skip::tools_or_skip(&["losetup"]) {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let image = scratch.path("image");
    let device = LoopDevice::attach(&image).expect("a loop device");
    let point = scratch.directory("mnt");
    basalt(["mount".as_ref(), device.path().as_os_str(), point.as_os_str()]).ok();
    let mounted = Mounted { point };
    fs::write(mounted.path("file"), "content").unwrap();
    let again = LoopDevice::attach(&image).expect("another loop device");
    for target in [&image, again.path()] {
        expect_all_refused(&scratch, target.to_str().unwrap(), &mounted.point);
    }
    drop(again);
    mounted.unmount();
    basalt(["fsck".as_ref(), device.path().as_os_str()]).ok();
    assert_eq!(basalt(["cat".as_ref(), device.path().as_os_str(), "file".as_ref()]).ok(), "content");
}

#[test]
fn a_lock_is_waited_for() {
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let held = File::open(&image).unwrap();
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    let start = Instant::now();
    let waited = basalt(["fsck", "--wait", "1", &image]);
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(waited.code(), 8);
    let (waiting, failed) = waited.err().split_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert!(waiting.contains("waiting up to 1 s for") && waiting.contains("process"), "{waiting}");
    assert!(failed.contains("in use"), "{failed}");

    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        drop(held);
    });
    let checked = basalt(["fsck", &image]);
    limit::join(release, limit::SHORT);
    assert_eq!(checked.code(), 0, "{}", checked.err());
    assert!(checked.err().contains("waiting up to 30 s"), "{}", checked.err());
}

#[test]
fn mount_points_that_are_none() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    let file = scratch.file("file", "");
    basalt(["mount", &image, &scratch.text("missing")]).fails(32, &["missing", "does not exist", "mkdir"]);
    basalt(["mount", &image, &file]).fails(32, &[&file, "not a directory"]);
    basalt(["mount", &scratch.text("no-image"), "/"]).fails(32, &["no-image", "no such file or device"]);
    let mounted = Mounted::new(&scratch, "");
    let second = Scratch::with_volume("64M");
    let point = mounted.point.to_str().unwrap();
    basalt(["mount", &second.text("image"), point]).fails(32, &[point, "already"]);
    mounted.unmount();
    second.expect_clean();
}

#[test]
fn only_basalt_mounts_are_unmounted_and_synced() {
    let scratch = Scratch::new();
    let plain = scratch.directory("plain");
    basalt(["umount".as_ref(), plain.as_os_str()]).fails(1, &["not mounted"]);
    basalt(["umount", &scratch.text("missing")]).fails(1, &["missing"]);
    basalt(["umount", "/proc"]).fails(1, &["proc", "not one of Basalt"]);
    basalt(["sync".as_ref(), plain.as_os_str()]).fails(1, &["not on a mounted Basalt volume"]);
    basalt(["sync", &scratch.text("missing")]).fails(1, &["missing"]);
}

#[test]
fn read_only_mounts_change_nothing() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let image = scratch.text("image");
    basalt(["put", &image, "/etc/passwd"]).ok();
    let before = fs::read(&image).unwrap();
    let mounted = Mounted::new(&scratch, "ro");
    assert_eq!(fs::read(mounted.path("passwd")).unwrap(), fs::read("/etc/passwd").unwrap());
    assert_eq!(fs::write(mounted.path("new"), "x").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    mounted.unmount();
    assert!(fs::read(&image).unwrap() == before, "the image was changed");
}

#[test]
fn a_full_volume_still_deletes() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let mounted = Mounted::new(&scratch, "");
    let fill = |name: &str| -> std::io::Result<()> {
        let mut file = File::create(mounted.path(name))?;
        loop {
            file.write_all(&vec![7; 1 << 20])?;
            file.sync_data()?;
        }
    };
    assert_eq!(fill("big").unwrap_err().kind(), ErrorKind::StorageFull);
    fs::remove_file(mounted.path("big")).unwrap();
    fs::write(mounted.path("small"), vec![1; 8 << 20]).unwrap();
    mounted.unmount();
    scratch.expect_clean();
}

#[test]
fn mount_8_finds_its_helper() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let (image, point) = (scratch.text("image"), scratch.directory("mnt"));
    let helper = scratch.path("mount.fuse.basalt");
    symlink(program(), &helper).unwrap();
    let call = |more: &[&str]| {
        let mut command = Command::new(&helper);
        command.args([image.as_str(), point.to_str().unwrap()]).args(more);
        limit::output(&mut command, limit::SHORT).unwrap()
    };
    let wrong = call(&["-o", "rw,frobnicate"]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    let fake = call(&["-f", "-o", "rw"]);
    assert_eq!((fake.status.code(), mount_line(&point)), (Some(0), None));
    let done = call(&["-s", "-o", "rw,nofail,_netdev,x-systemd.automount,frobnicate", "-t", "fuse.basalt"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let mounted = Mounted { point: point.clone() };
    fs::write(mounted.path("file"), "content").unwrap();
    mounted.unmount();
    scratch.expect_clean();
}

#[test]
fn mount_8_and_fstab_work() {
    if !can_mount() || !skip::tools_or_skip(&["unshare", "mount", "umount"]) {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let (image, point) = (scratch.text("image"), scratch.directory("mnt"));
    for name in ["upper", "work"] {
        scratch.directory(name);
    }
    // In a mount namespace of its own, in which /sbin has a helper.
    let script = r#"
        set -e
        ln -s "$1" "$2/upper/mount.fuse.basalt"
        sbin=$(readlink -f /sbin)
        mount -t overlay -o "lowerdir=$sbin,upperdir=$2/upper,workdir=$2/work" overlay "$sbin"
        mount -t fuse.basalt -o noatime,nofail "$3" "$4"
        grep " $4 .* fuseblk.basalt " /proc/self/mountinfo
        echo content > "$4/file"
        umount "$4"
        echo "$3 $4 fuse.basalt defaults,noatime,nofail,x-systemd.device-timeout=10 0 0" > "$2/fstab"
        mount -T "$2/fstab" "$4"
        cat "$4/file"
        mount -o remount,ro "$4"
        ! touch "$4/file" 2>&1
        "$1" umount "$4"
    "#;
    let directory = scratch.dir.path().to_str().unwrap();
    let arguments = ["-m", "sh", "-c", script, "sh", program(), directory, &image, point.to_str().unwrap()];
    let _copy = namespace::of_its_own();
    let done = limit::output(Command::new("unshare").args(arguments), limit::SHORT).unwrap();
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("\ncontent\n") && said.contains("Read-only file system"), "{done:?}");
    scratch.expect_clean();
}

#[test]
fn programs_and_devices_of_a_volume_work_for_root() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::with_volume("64M");
    let mounted = Mounted::new(&scratch, "");
    let null = mounted.path("null");
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(rustix::fs::CWD, &null, rustix::fs::FileType::CharacterDevice, 0o666.into(), device).unwrap();
    fs::write(&null, "gone").unwrap();
    assert_eq!(fs::read(&null).unwrap(), b"");
    mounted.unmount();

    let mounted = Mounted::new(&scratch, "nodev");
    assert_eq!(fs::read(&null).unwrap_err().kind(), ErrorKind::PermissionDenied);
    mounted.unmount();
}

#[test]
fn ordinary_users_mount_their_own_images() {
    if !can_mount() || !skip::tools_or_skip(&["fusermount3", "unshare", "setpriv"]) {
        return;
    }
    let scratch = Scratch::new();
    open_to_all(scratch.dir.path());
    let (image, point) = (scratch.text("image"), scratch.directory("mnt"));
    open_to_all(&point);
    // In a mount namespace of its own, so that /dev/fuse can be one that everybody may open, as on most systems.
    let script = r#"
        set -e
        mknod "$2/fuse" c 10 229 && chmod 666 "$2/fuse" && mount --bind "$2/fuse" /dev/fuse
        as_user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
        as_user "$1" mkfs -q --size 64M "$3"
        as_user "$1" mount "$3" "$4"
        grep " $4 .* fuse.basalt $3 " /proc/self/mountinfo
        as_user touch "$4/file"
        as_user "$1" sync "$4"
        as_user "$1" umount "$4"
        ! grep " $4 " /proc/self/mountinfo
        as_user "$1" ls "$3"
    "#;
    let directory = scratch.dir.path().to_str().unwrap();
    let arguments = ["-m", "sh", "-c", script, "sh", program(), directory, &image, point.to_str().unwrap()];
    let _copy = namespace::of_its_own();
    let done = limit::output(Command::new("unshare").args(arguments), limit::SHORT).unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).ends_with("file\nlost+found\n"), "{done:?}");
    scratch.expect_clean();
}

#[test]
fn a_mount_of_another_namespace_is_told_with_its_process() {
    if !can_mount() || !skip::tools_or_skip(&["unshare"]) {
        return;
    }
    for options in ["", "-onoloop"] {
        let scratch = Scratch::with_volume("64M");
        let (image, point) = (scratch.text("image"), scratch.directory("mnt"));
        // The shell ends: only the serving process keeps the namespace, which nobody can enter by a path any more.
        let script = r#""$0" mount $3 "$1" "$2""#;
        let arguments = ["-m", "sh", "-c", script, program(), &image, point.to_str().unwrap(), options];
        let _copy = namespace::of_its_own();
        let mounted = limit::output(Command::new("unshare").args(arguments), limit::SHORT).unwrap();
        assert!(mounted.status.success(), "{mounted:?}");
        let start = Instant::now();
        let refused = basalt(["ls", &image]);
        refused.fails(1, &["in use", "serves it in another mount namespace", "(SIGTERM) unmounts it"]);
        assert!(start.elapsed() < Duration::from_secs(20));
        let told = refused.err();
        let process = told.split("`kill ").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
        assert!(Command::new("kill").arg(process).status().unwrap().success());
        assert_eq!(basalt(["ls", &image]).out(), "lost+found\n");
        scratch.expect_clean();
    }
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}
