//! What the rest of the system sees of a mount.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use basalt_testkit::hash::Hasher;
use basalt_testkit::loopdev::LoopDevice;
use basalt_testkit::{limit, namespace, skip};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::fixture::{Volume, sh, try_sh, unmount_by_call, wait_for};
use crate::support::{basalt, can_mount, program, umount};

#[test]
fn an_image_has_a_device_by_name() {
    let Some(volume) = Volume::new("64M") else { return };
    let devices = volume.loop_devices();
    let [device] = devices.as_slice() else { panic!("{devices:?}") };
    let root = volume.root();
    let findmnt = sh(&root, "findmnt -no SOURCE,FSTYPE --target .");
    assert_eq!(findmnt.split_whitespace().collect::<Vec<_>>(), [device, "fuseblk.basalt"]);
    let df = sh(&root, "df --output=source,fstype . | tail -1");
    assert_eq!(df.split_whitespace().next(), Some(device.as_str()));
    volume.unmount();
    assert!(volume.loop_devices().is_empty());
    volume.mount_with("noloop");
    let findmnt = sh(&root, "findmnt -no SOURCE,FSTYPE --target .");
    let image = volume.image().to_str().unwrap();
    assert_eq!(findmnt.split_whitespace().collect::<Vec<_>>(), [image, "fuse.basalt"]);
}

#[test]
fn block_devices_of_both_sector_sizes() {
    if !can_mount() {
        return;
    }
    for sector in ["512", "4096"] {
        let file = tempfile::NamedTempFile::new_in(basalt_testkit::scratch::place()).unwrap();
        file.as_file().set_len(128 << 20).unwrap();
        let device = LoopDevice::attach_with(file.path(), &["--sector-size", sector]).unwrap();
        let Some(volume) = Volume::in_image(Some(device.path().to_owned()), "", "") else { return };
        volume.mount();
        fs::write(volume.path("file"), vec![3; 10 << 20]).unwrap();
        let findmnt = sh(&volume.root(), "findmnt -no SOURCE,FSTYPE --target .");
        assert_eq!(findmnt.split_whitespace().collect::<Vec<_>>(), [device.path().to_str().unwrap(), "fuseblk.basalt"]);
        volume.remount();
        assert!(fs::read(volume.path("file")).unwrap() == vec![3; 10 << 20]);
        drop(volume);
    }
}

#[test]
fn df_tells_what_is_used() {
    let Some(volume) = Volume::new("256M") else { return };
    let used = || sh(&volume.root(), "df --output=used,itotal,iused -B1 . | tail -1");
    let numbers = |line: String| line.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<u64>>();
    let before = numbers(used());
    sh(&volume.root(), "dd if=/dev/zero of=file bs=1M count=50 conv=fsync status=none; touch a b c");
    let after = numbers(used());
    let grown = after[0] - before[0];
    assert!((50 << 20..52 << 20).contains(&grown), "{grown} bytes more for 50 MiB");
    // As on Linux's F2FS, an inode is a block like every other: data take inodes away as well.
    assert!(after[2] - before[2] >= 4 && after[1] == before[1], "{before:?} {after:?}");
    sh(&volume.root(), "rm file a b c");
    let removed = numbers(used());
    assert!(removed[0] < before[0] + (1 << 20) && removed[2] == before[2], "{before:?} {removed:?}");
}

fn digest(path: &Path) -> u64 {
    let mut hasher = Hasher::new();
    hasher.update(&fs::read(path).unwrap());
    hasher.finish()
}

#[test]
fn a_read_only_mount_changes_no_bit() {
    let Some(volume) = Volume::new("64M") else { return };
    sh(&volume.root(), "mkdir d; echo text > d/file; ln -s d/file link");
    volume.unmount();
    let before = digest(volume.image());
    volume.mount_with("ro");
    let root = volume.root();
    assert_eq!(sh(&root, "cat link; ls d"), "text\nfile\n");
    for script in [
        "echo x > new",
        "echo x >> d/file",
        "rm d/file",
        "mkdir e",
        "rmdir d",
        "chmod 700 d",
        "touch d/file",
        "mv d e",
        "ln d/file e",
        "ln -s a b",
        "truncate -s 0 d/file",
        "setfattr -n user.a -v b d",
    ] {
        let (ok, text) = try_sh(&root, script);
        assert!(!ok && text.contains("Read-only file system"), "{script}: {text}");
    }
    sh(&root, "findmnt -no OPTIONS --target . | grep -qw ro; sync .");
    volume.unmount();
    assert_eq!(digest(volume.image()), before);
}

#[test]
fn fstrim_gives_room_back_to_the_image() {
    let Some(volume) = Volume::with_options("256M", "nodiscard") else { return };
    let allocated = || fs::metadata(volume.image()).unwrap().blocks() * 512;
    sh(&volume.root(), "dd if=/dev/urandom of=file bs=1M count=100 conv=fsync status=none; rm file; sync .");
    assert!(allocated() > 90 << 20);
    let text = sh(&volume.root(), "fstrim -v .");
    assert!(allocated() < 30 << 20, "{} bytes still allocated; {text}", allocated());
    volume.unmount();
    volume.expect_clean();
    // And by itself, where that is wanted.
    volume.mount_with("discard");
    sh(&volume.root(), "dd if=/dev/urandom of=file bs=1M count=100 conv=fsync status=none; rm file; sync .");
    volume.unmount();
    assert!(allocated() < 30 << 20, "{} bytes still allocated", allocated());
}

#[test]
fn fstrim_refuses_ranges_that_make_no_sense() {
    let Some(volume) = Volume::new("64M") else { return };
    for range in ["-o 64M", "-o 1T", "-l 0", "-l 4095", "-o 1T -l 0"] {
        let (ok, text) = try_sh(&volume.root(), &format!("fstrim {range} ."));
        assert!(!ok && text.contains("Invalid argument"), "fstrim {range}: {text}");
    }
    sh(&volume.root(), "fstrim -l 4096 .; fstrim -o 60M .; fstrim .");
}

#[test]
fn locks_keep_others_out() {
    let Some(volume) = Volume::new("64M") else { return };
    let path = volume.path("file");
    fs::write(&path, b"x").unwrap();
    let (first, second) = (File::open(&path).unwrap(), File::open(&path).unwrap());
    rustix::fs::flock(&first, FlockOperation::LockExclusive).unwrap();
    assert_eq!(rustix::fs::flock(&second, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
    drop(first);
    rustix::fs::flock(&second, FlockOperation::NonBlockingLockShared).unwrap();
    if skip::tools_or_skip(&["sqlite3"]) {
        // SQLite locks pieces of its file, for the whole process.
        let script = "sqlite3 db 'CREATE TABLE t(v)'
            (echo 'BEGIN EXCLUSIVE;'; echo '.shell touch locked'; echo '.shell sleep 0.5'; echo 'COMMIT;') | sqlite3 db & holder=$!
            until test -e locked; do sleep 0.01; done
            ! sqlite3 db 'INSERT INTO t VALUES(1)' || exit 1
            wait $holder; sqlite3 db 'INSERT INTO t VALUES(2)'";
        let text = sh(&volume.root(), script);
        assert!(text.contains("database is locked"), "{text}");
    }
}

#[test]
fn what_is_mounted_is_left_alone() {
    let Some(volume) = Volume::new("64M") else { return };
    let image = volume.image().to_str().unwrap();
    let root = volume.root();
    let here = root.to_str().unwrap();
    let other = volume.outside("other");
    fs::create_dir(&other).unwrap();
    basalt(["mkfs", "--force", image]).fails(1, &["mounted on", here]);
    basalt(["fsck", image]).fails(8, &["mounted on", here]);
    basalt(["mount", image, other.to_str().unwrap()]).fails(32, &["mounted on", here]);
    let file = File::create(volume.path("open")).unwrap();
    basalt(["umount", here]).fails(1, &["in use", here]);
    drop(file);
    umount(image.as_ref()).ok();
    volume.mount();
    // And the system's own umount.
    sh(Path::new("/"), &format!("umount '{here}'"));
    assert!(!volume.is_mounted());
}

/// `PF_MEMALLOC_NOIO` and `PF_LOCAL_THROTTLE` of `linux/sched.h`: what `PR_SET_IO_FLUSHER` sets in a thread.
const IO_FLUSHER: u64 = 0x0018_0000;

/// Whether this process has `CAP_SYS_RESOURCE`, which not every root has.
fn may_protect() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() & (1 << 24) != 0
}

#[test]
fn the_server_is_spared_when_memory_is_short() {
    if !can_mount() {
        return;
    }
    let Some(volume) = Volume::in_image(None, "128M", "") else { return };
    let (root, messages) = (volume.root(), volume.outside("messages"));
    let mut server = Command::new(program())
        .args(["mount".as_ref(), "--foreground".as_ref(), volume.image().as_os_str(), root.as_os_str()])
        .args(["-o", "log=debug"])
        .stdin(Stdio::null())
        .stderr(File::create(&messages).unwrap())
        .spawn()
        .unwrap();
    wait_for("the mount", || volume.is_mounted());
    // So that event loops are hired.
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let path = volume.path(format!("file{thread}"));
            scope.spawn(move || {
                for round in 0..20_u8 {
                    fs::write(&path, [round; 100]).unwrap();
                    File::open(&path).unwrap().sync_all().unwrap();
                }
            });
        }
    });
    if may_protect() {
        expect_protected(server.id());
    }
    unmount_by_call(&root);
    assert!(limit::wait(&mut server, limit::SHORT).unwrap().success());
    let messages = fs::read_to_string(&messages).unwrap();
    for complaint in ["not marked as serving storage", "not protected from the out-of-memory killer"] {
        assert_eq!(messages.contains(complaint), !may_protect(), "{messages}");
    }
}

/// Expects the score of a process, and the flags of each of its threads.
fn expect_protected(process: u32) {
    let server = format!("/proc/{process}");
    assert_eq!(fs::read_to_string(format!("{server}/oom_score_adj")).unwrap().trim(), "-1000");
    let mut threads = 0;
    for task in fs::read_dir(format!("{server}/task")).unwrap().flatten() {
        // One that ends meanwhile says nothing.
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        // The ninth field, seven behind the name in parentheses.
        let flags: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(6).unwrap().parse().unwrap();
        assert_eq!(flags & IO_FLUSHER, IO_FLUSHER, "{stat}");
        threads += 1;
    }
    assert!(threads > 4, "{threads} threads");
}

#[test]
fn one_that_cannot_be_unmounted_keeps_no_other_mounted() {
    let (Some(first), Some(second)) = (Volume::new("64M"), Volume::new("64M")) else { return };
    let (one, other, missing) = (first.root(), second.root(), first.outside("missing"));
    let _alone = namespace::unmounting();
    basalt(["umount".as_ref(), one.as_os_str(), missing.as_os_str(), other.as_os_str()]).fails(1, &["missing"]);
    assert!(!first.is_mounted() && !second.is_mounted());
    let said = basalt(["umount".as_ref(), missing.as_os_str(), one.as_os_str()]);
    assert_eq!((said.code(), said.err().lines().count()), (1, 2), "{}", said.err());
}

/// What the kernel keeps of a mount can be changed, and the volume is closed as ever.
#[test]
fn a_mount_turns_read_only_and_back() {
    let Some(volume) = Volume::new("64M") else { return };
    sh(&volume.root(), "echo 1 > before; mount -o remount,ro .");
    assert!(fs::write(volume.path("refused"), b"x").is_err());
    sh(&volume.root(), "test $(cat before) = 1; mount -o remount,rw .; echo 2 > after; mount -o remount,ro .");
    volume.remount();
    assert_eq!(fs::read(volume.path("after")).unwrap(), b"2\n");
    assert!(!volume.path("refused").exists());
}
