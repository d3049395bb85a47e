//! A device that takes no more: an image on a file system that is full, through the image file and through a block device.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use basalt_testkit::loopdev::LoopDevice;
use basalt_testkit::{limit, namespace, scratch};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use tempfile::TempDir;

use crate::fixture::{Volume, sh, unmount_by_call, wait_for};
use crate::support::{basalt, can_mount, program, umount};

/// A small file system in memory, for an image that seems larger.
struct Small(TempDir);

impl Small {
    fn new(megabytes: u32) -> Small {
        let directory = scratch::directory().unwrap();
        sh(directory.path(), &format!("mount -t tmpfs -o size={megabytes}M tmpfs '{}'", directory.path().display()));
        Small(directory)
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("image")
    }

    fn resize(&self, megabytes: u32) {
        sh(Path::new("/"), &format!("mount -o remount,size={megabytes}M '{}'", self.0.path().display()));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

fn write_durably(path: &Path, byte: u8) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&vec![byte; 1 << 20])?;
    file.sync_all()
}

/// Fills until the device fails; then checks what programs see, and what is there when the device is well again.
fn fail_and_recover(volume: &Volume, heal: impl FnOnce()) {
    fs::write(volume.path("first"), vec![1; 100_000]).unwrap();
    basalt(["sync".as_ref(), volume.root().as_os_str()]).ok();
    let mut held = File::create(volume.path("held")).unwrap();
    let (durable, error) = (0_u8..200)
        .find_map(|number| write_durably(&volume.path(format!("n{number}")), number).err().map(|error| (number, error)))
        .expect("more than the device has room for");
    // What is written in the background may have met the end of the room before: then a file cannot even be made.
    assert!(matches!(Errno::from_io_error(&error), Some(Errno::ROFS | Errno::IO)), "{error}");
    assert!(durable > 3);
    // The kernel still takes what goes to its cache.
    let error = held.write_all(&[1; 3 << 20]).and_then(|()| held.sync_all()).unwrap_err();
    drop(held);
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{error}");
    let refused = write_durably(&volume.path("later"), 1).unwrap_err();
    assert!(matches!(Errno::from_io_error(&refused), Some(Errno::ROFS | Errno::IO)), "{refused}");
    let refused = fs::create_dir(volume.path("directory")).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::ROFS), "{refused}");
    assert_eq!(fs::read(volume.path("first")).unwrap(), vec![1; 100_000], "reading goes on");
    let told = basalt(["stats".as_ref(), volume.root().as_os_str(), "--json".as_ref()]).json();
    assert!(told["live"]["failed"].is_string() && told["live"]["read_only"] == true, "{told}");
    let synced = basalt(["sync".as_ref(), volume.root().as_os_str()]);
    synced.fails(1, &[volume.root().to_str().unwrap()]);
    let unmounted = umount(&volume.root());
    unmounted.fails(1, &["not closed cleanly"]);
    assert!(!volume.is_mounted());

    heal();
    volume.expect_cut_short();
    volume.expect_clean();
    volume.mount();
    assert_eq!(fs::read(volume.path("first")).unwrap(), vec![1; 100_000]);
    for number in 0..durable {
        let read = fs::read(volume.path(format!("n{number}"))).unwrap();
        assert!(read == vec![number; 1 << 20], "file {number}, which was durable");
    }
    write_durably(&volume.path("later"), 1).unwrap();
}

#[test]
fn an_image_that_cannot_grow_turns_read_only_and_keeps_what_was_durable() {
    if !can_mount() {
        return;
    }
    let small = Small::new(24);
    let Some(volume) = Volume::in_image(Some(small.image()), "128M", "") else { return };
    volume.mount();
    fail_and_recover(&volume, || small.resize(200));
    drop(volume);
}

#[test]
fn a_block_device_that_fails_turns_read_only_and_keeps_what_was_durable() {
    if !can_mount() {
        return;
    }
    let small = Small::new(24);
    File::create(small.image()).unwrap().set_len(128 << 20).unwrap();
    let device = LoopDevice::attach(&small.image()).unwrap();
    let Some(volume) = Volume::in_image(Some(device.path().to_owned()), "", "") else { return };
    volume.mount();
    fail_and_recover(&volume, || small.resize(200));
    drop(volume);
}

#[test]
fn a_volume_that_turned_read_only_says_so_once_and_still_answers() {
    if !can_mount() {
        return;
    }
    let small = Small::new(24);
    let Some(volume) = Volume::in_image(Some(small.image()), "128M", "") else { return };
    let (root, messages) = (volume.root(), volume.outside("messages"));
    let mut server = Command::new(program())
        .args(["mount".as_ref(), "--foreground".as_ref(), volume.image().as_os_str(), root.as_os_str()])
        .stdin(Stdio::null())
        .stderr(File::create(&messages).unwrap())
        .spawn()
        .unwrap();
    wait_for("the mount", || volume.is_mounted());
    write_durably(&volume.path("first"), 1).unwrap();
    let failed = (0_u8..200).find_map(|number| write_durably(&volume.path(format!("n{number}")), number).err());
    // The first to meet the device may be a checkpoint in the background: between two files that are durable it takes nothing from either.
    let errno = failed.as_ref().and_then(Errno::from_io_error);
    assert!(matches!(errno, Some(Errno::IO | Errno::ROFS)), "{failed:?}");
    for _ in 0..3 {
        assert!(write_durably(&volume.path("later"), 1).is_err());
        // What is known is answered, what is there is read.
        assert!(rustix::fs::statvfs(&root).unwrap().f_blocks > 0);
        sh(&root, "findmnt --target . > /dev/null; df . > /dev/null; ls -l > /dev/null");
        assert!(fs::read(volume.path("first")).unwrap() == vec![1; 1 << 20]);
    }
    unmount_by_call(&root);
    let status = limit::wait(&mut server, limit::SHORT).unwrap();
    assert_eq!(status.code(), Some(32), "as mount(8) fails: the volume was not closed cleanly");
    let messages = fs::read_to_string(&messages).unwrap();
    let lines: Vec<&str> = messages.lines().filter(|line| line.contains("turned read-only")).collect();
    assert!(matches!(lines[..], [line] if line.contains("write of") || line.contains("flush of")), "{messages}");
    small.resize(200);
    volume.expect_cut_short();
    volume.expect_clean();
    drop(volume);
}

#[test]
fn an_image_cut_short_under_the_mount_gives_errors_and_no_hang() {
    let Some(volume) = Volume::new("128M") else { return };
    fs::write(volume.path("large"), vec![1; 40 << 20]).unwrap();
    volume.remount();
    let image = File::options().write(true).open(volume.image()).unwrap();
    image.set_len(8 << 20).unwrap();
    let error = fs::read(volume.path("large")).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{error}");
    // Whatever it says now, it says so soon, and umount comes back.
    let _ = write_durably(&volume.path("more"), 1);
    let _ = umount(&volume.root());
    assert!(!volume.is_mounted());
    let check = basalt(["fsck".as_ref(), volume.image().as_os_str()]);
    assert!(matches!(check.code(), 4 | 8), "{}", check.code());
    // Nothing is left to be checked: a fresh volume for the end.
    basalt(["mkfs", "-q", "--force", "--size", "128M", volume.image().to_str().unwrap()]).ok();
}

/// Writes more than the device takes, without waiting for any of it, and expects that whoever unmounts hears of the loss.
fn lose_and_unmount(volume: &Volume, heal: impl FnOnce()) {
    fs::write(volume.path("lost"), vec![3; 40 << 20]).unwrap();
    // Nothing was ever committed by this mount: the checkpoint on the device is that of a clean volume.
    let unmounted = umount(&volume.root());
    unmounted.fails(1, &["not closed cleanly", "of ", "bytes at offset", "data that was not fsynced", "iB"]);
    assert!(!volume.is_mounted());
    heal();
    volume.expect_cut_short();
    assert_eq!(basalt(["fsck".as_ref(), volume.image().as_os_str()]).code(), 0);
}

#[test]
fn unmounting_tells_of_what_could_not_be_written_back() {
    if !can_mount() {
        return;
    }
    for options in ["", "noloop"] {
        let small = Small::new(24);
        let Some(volume) = Volume::in_image(Some(small.image()), "128M", options) else { return };
        volume.mount();
        lose_and_unmount(&volume, || small.resize(200));
        drop(volume);
    }
    let small = Small::new(24);
    File::create(small.image()).unwrap().set_len(128 << 20).unwrap();
    let device = LoopDevice::attach(&small.image()).unwrap();
    let Some(volume) = Volume::in_image(Some(device.path().to_owned()), "", "") else { return };
    volume.mount();
    lose_and_unmount(&volume, || small.resize(200));
    drop(volume);
}

#[test]
fn unmounting_tells_of_what_was_written_beyond_the_largest_size() {
    let Some(volume) = Volume::new("128M") else { return };
    let file = File::create(volume.path("far")).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    // The kernel knows no limit; past its cache the mount says so.
    file.write_all_at(&[1; 4096], 4 << 40).unwrap();
    let past_the_cache = OFlags::DIRECT.bits() as i32;
    let direct = File::options().write(true).custom_flags(past_the_cache).open(volume.path("far")).unwrap();
    let refused = direct.write_all_at(&[1; 4096], 5 << 40).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::FBIG), "{refused}");
    drop((file, direct));
    let synced = basalt(["sync".as_ref(), volume.root().as_os_str()]);
    if synced.code() != 0 {
        synced.fails(1, &["largest file size"]);
    }
    umount(&volume.root()).fails(1, &["unmounted and clean", "4 KiB", "beyond the largest file size"]);
    volume.mount();
    assert_eq!(&fs::read(volume.path("far")).unwrap()[..4], b"kept");
}

#[test]
fn unmounting_what_was_killed_is_not_clean() {
    let Some(volume) = Volume::new("128M") else { return };
    fs::write(volume.path("lost"), vec![3; 1 << 20]).unwrap();
    // The checkpoint on the device is a clean one: nothing was committed since the volume was mounted.
    volume.kill_server();
    let unmounted = umount(&volume.root());
    unmounted.fails(1, &["not closed cleanly", "its serving process"]);
    volume.wait_for_release();
    assert_eq!(basalt(["fsck".as_ref(), volume.image().as_os_str()]).code(), 0);
}

/// Whoever begins to serve a mount tidies the sockets of those away that were killed.
#[test]
fn unmounting_what_was_killed_is_not_clean_where_others_begin_meanwhile() {
    let Some(volume) = Volume::new("128M") else { return };
    fs::write(volume.path("lost"), vec![3; 1 << 20]).unwrap();
    volume.kill_server();
    wait_for("the end", || fs::read_dir(volume.root()).is_err());
    let Some(other) = Volume::new("64M") else { return };
    umount(&volume.root()).fails(1, &["not closed cleanly", "its serving process"]);
    drop(other);
}

#[test]
fn umount_8_tells_of_what_could_not_be_written_back() {
    if !can_mount() {
        return;
    }
    let small = Small::new(24);
    let Some(volume) = Volume::in_image(Some(small.image()), "128M", "") else { return };
    // In a mount namespace of its own, in which /sbin has the helper.
    let script = r#"
        set -e
        mkdir "$2/upper" "$2/work"
        sed "s|^BASALT=.*|BASALT=$1|" "$3" > "$2/upper/umount.fuseblk.basalt"
        chmod 755 "$2/upper/umount.fuseblk.basalt"
        sbin=$(readlink -f /sbin)
        mount -t overlay -o "lowerdir=$sbin,upperdir=$2/upper,workdir=$2/work" overlay "$sbin"
        "$1" mount "$4" "$5"
        # By a path that is not absolute: of others umount(8) only asks the kernel for the type, which says "fuse" for all of them.
        cd "$(dirname "$5")"
        umount "$(basename "$5")"
        echo "nothing was lost"
        "$1" mount "$4" "$5"
        head -c 41943040 /dev/urandom > "$5/lost" || true
        umount "$(basename "$5")"
    "#;
    let helper = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/umount.fuse.basalt");
    let (outside, root) = (volume.outside("helper"), volume.root());
    fs::create_dir(&outside).unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", script, "sh", program()]);
    unshare.args([outside.as_os_str(), helper.as_ref(), volume.image().as_os_str(), root.as_os_str()]);
    let copy = namespace::of_its_own();
    let done = limit::output(&mut unshare, limit::LONG).unwrap();
    drop(copy);
    let (out, said) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(out.contains("nothing was lost") && said.contains("not closed cleanly"), "{done:?}");
    assert!(!done.status.success());
    small.resize(200);
    volume.expect_cut_short();
    assert_eq!(basalt(["fsck".as_ref(), volume.image().as_os_str()]).code(), 0);
    drop(volume);
}
