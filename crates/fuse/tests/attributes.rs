//! Attributes through the mount: times, modes, extended attributes, ACLs, flags.

mod support;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, IFlags, StatxFlags, Timespec, Timestamps, XattrFlags, getxattr, ioctl_getflags, ioctl_setflags,
    listxattr, removexattr, setxattr, statx, utimensat,
};
use rustix::io::Errno;
use rustix::process::umask;
use support::Mounted;

const OLD: Timespec = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };

fn set_old_times(path: &std::path::Path) {
    let times = Timestamps { last_access: OLD, last_modification: OLD };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

#[test]
fn times_that_were_set_stay_over_writeback_and_remount() {
    for writeback_cache in [true, false] {
        let Some(mount) = Mounted::new(|options| options.writeback_cache = writeback_cache) else { return };
        // Dirty pages first, times then; and the descriptor still open.
        let mut file = fs::File::create(mount.path("before")).unwrap();
        file.write_all(&[1; 100_000]).unwrap();
        set_old_times(&mount.path("before"));
        drop(file);
        // As rsync and tar do: written, closed, times set, synced.
        fs::write(mount.path("closed"), [2; 100_000]).unwrap();
        set_old_times(&mount.path("closed"));
        rustix::fs::syncfs(fs::File::open(mount.root()).unwrap()).unwrap();
        let mount = mount.remount(|_| {});
        for name in ["before", "closed"] {
            let metadata = fs::metadata(mount.path(name)).unwrap();
            assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (OLD.tv_sec, OLD.tv_nsec), "{name}");
            assert_eq!((metadata.atime(), metadata.len()), (OLD.tv_sec, 100_000), "{name}");
        }
    }
}

#[test]
fn a_write_changes_mtime_once_and_writeback_does_not() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let path = mount.path("file");
    fs::write(&path, b"first").unwrap();
    set_old_times(&path);
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    let start = SystemTime::now() - Duration::from_millis(20);
    (&file).write_all(b"second").unwrap();
    let written = file.metadata().unwrap().modified().unwrap();
    assert!(written >= start);
    std::thread::sleep(Duration::from_millis(30));
    file.sync_all().unwrap();
    drop(file);
    let mount = mount.remount(|_| {});
    assert_eq!(fs::metadata(mount.path("file")).unwrap().modified().unwrap(), written);
}

#[test]
fn modes_and_owners() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let path = mount.path("file");
    fs::write(&path, b"x").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o666 & !current_umask());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    chown(&path, Some(1000), Some(1001)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1000, 1001));
    assert_eq!(metadata.mode() & 0o7777, 0o755, "chown clears set-uid and set-gid");
}

fn current_umask() -> u32 {
    let mask = umask(rustix::fs::Mode::from(0o022));
    umask(mask);
    mask.as_raw_mode()
}

/// Runs a shell as an unprivileged user.
fn as_nobody(mount: &Mounted, script: &str) -> bool {
    let script = format!("cd '{}' && {script}", mount.root().display());
    Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script])
        .status()
        .unwrap()
        .success()
}

#[test]
fn the_kernel_checks_permissions_and_writes_clear_set_uid() {
    for writeback_cache in [true, false] {
        let Some(mount) = Mounted::new(|options| options.writeback_cache = writeback_cache) else { return };
        // The directory above is private: the test's own way in, not the mount's.
        let above = mount.root().parent().unwrap();
        assert!(fs::metadata(above).unwrap().mode() & 0o001 != 0, "{} is closed to others", above.display());
        fs::write(mount.path("secret"), b"x").unwrap();
        fs::set_permissions(mount.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(mount.path("program"), b"x").unwrap();
        fs::set_permissions(mount.path("program"), fs::Permissions::from_mode(0o6777)).unwrap();
        assert!(!as_nobody(&mount, "cat secret 2>/dev/null"));
        assert!(as_nobody(&mount, "echo more >> program"));
        let mount = mount.remount(|_| {});
        assert_eq!(fs::metadata(mount.path("program")).unwrap().mode() & 0o7777, 0o777);
    }
}

#[test]
fn extended_attributes() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let path = mount.path("file");
    fs::write(&path, b"x").unwrap();
    setxattr(&path, "user.a", b"value", XattrFlags::CREATE).unwrap();
    assert_eq!(setxattr(&path, "user.a", b"v", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(&path, "user.b", b"v", XattrFlags::REPLACE), Err(Errno::NODATA));
    setxattr(&path, "trusted.b", &[5; 3000], XattrFlags::empty()).unwrap();
    let mut buf = [0; 4000];
    assert_eq!(getxattr(&path, "user.a", &mut buf[..]).unwrap(), 5);
    assert_eq!(&buf[..5], b"value");
    assert_eq!(getxattr(&path, "trusted.b", &mut buf[..]).unwrap(), 3000);
    assert_eq!(rustix::fs::getxattr_query(&path, "trusted.b").unwrap(), 3000);
    assert_eq!(getxattr(&path, "trusted.b", &mut buf[..10]), Err(Errno::RANGE));
    let len = listxattr(&path, &mut buf[..]).unwrap();
    assert_eq!(&buf[..len], b"trusted.b\0user.a\0");
    removexattr(&path, "user.a").unwrap();
    assert_eq!(getxattr(&path, "user.a", &mut buf[..]), Err(Errno::NODATA));
}

#[test]
fn file_capabilities_do_not_survive_a_write() {
    for writeback_cache in [true, false] {
        let Some(mount) = Mounted::new(|options| options.writeback_cache = writeback_cache) else { return };
        let path = mount.path("program");
        fs::write(&path, b"x").unwrap();
        // Version 2, cap_net_raw permitted.
        let capability = [0, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        setxattr(&path, "security.capability", &capability, XattrFlags::empty()).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"y").unwrap();
        let mut buf = [0; 64];
        assert_eq!(getxattr(&path, "security.capability", &mut buf[..]), Err(Errno::NODATA));
    }
}

#[test]
fn access_control_lists_let_people_in() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    fs::write(mount.path("shared"), b"x").unwrap();
    fs::set_permissions(mount.path("shared"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!as_nobody(&mount, "cat shared >/dev/null 2>&1"));
    let set = Command::new("setfacl").args(["-m", "u:65534:r"]).arg(mount.path("shared")).status();
    match set {
        Err(_) => return println!("skipped: setfacl is not installed"),
        Ok(status) => assert!(status.success()),
    }
    assert!(as_nobody(&mount, "cat shared >/dev/null"));
    let shown = Command::new("getfacl").args(["-nc"]).arg(mount.path("shared")).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("user:65534:r--") && shown.contains("mask::r--"), "{shown}");
    assert_eq!(fs::metadata(mount.path("shared")).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn creation_time_is_told() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let before = SystemTime::now() - Duration::from_secs(1);
    fs::write(mount.path("file"), b"x").unwrap();
    set_old_times(&mount.path("file"));
    let stat = statx(CWD, mount.path("file"), AtFlags::empty(), StatxFlags::ALL).unwrap();
    if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return println!("skipped: this kernel's FUSE has no STATX");
    }
    let created = SystemTime::UNIX_EPOCH + Duration::from_secs(stat.stx_btime.tv_sec as u64);
    assert!(created >= before - Duration::from_secs(1));
    assert_eq!(stat.stx_mtime.tv_sec, OLD.tv_sec);
}

#[test]
fn chattr_flags_are_kept_and_forbid_opening() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let path = mount.path("file");
    fs::write(&path, b"x").unwrap();
    let file = fs::File::open(&path).unwrap();
    assert_eq!(ioctl_getflags(&file).unwrap(), IFlags::empty());
    ioctl_setflags(&file, IFlags::NODUMP | IFlags::IMMUTABLE).unwrap();
    assert_eq!(ioctl_getflags(&file).unwrap(), IFlags::NODUMP | IFlags::IMMUTABLE);
    let open = |append: bool| OpenOptions::new().append(append).write(true).open(&path).map(|_| ());
    let permission = Some(Errno::PERM.raw_os_error());
    assert_eq!(open(true).unwrap_err().raw_os_error(), permission);
    ioctl_setflags(&file, IFlags::APPEND).unwrap();
    open(true).unwrap();
    assert_eq!(open(false).unwrap_err().raw_os_error(), permission);
    ioctl_setflags(&file, IFlags::empty()).unwrap();
    open(false).unwrap();
    // Directories too.
    let directory = fs::File::open(mount.root()).unwrap();
    ioctl_setflags(&directory, IFlags::DIRSYNC).unwrap();
    assert_eq!(ioctl_getflags(&directory).unwrap(), IFlags::DIRSYNC);
}

#[test]
#[allow(unsafe_code)]
fn project_ids_and_trimming() {
    use rustix::ioctl::{Getter, Setter, Updater, ioctl, opcode};
    type FsXattr = [u32; 7];
    const GET: rustix::ioctl::Opcode = opcode::read::<FsXattr>(b'X', 31);
    const SET: rustix::ioctl::Opcode = opcode::write::<FsXattr>(b'X', 32);
    const TRIM: rustix::ioctl::Opcode = opcode::read_write::<[u64; 3]>(b'X', 121);
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let file = fs::File::create(mount.path("file")).unwrap();
    let mut range = [0, u64::MAX, 4096];
    // SAFETY: each ioctl reads or writes exactly the structure given, as linux/fs.h declares it.
    let attributes = unsafe {
        ioctl(&file, Setter::<SET, FsXattr>::new([0x80, 0, 0, 77, 0, 0, 0])).unwrap();
        ioctl(&file, Updater::<TRIM, [u64; 3]>::new(&mut range)).unwrap();
        ioctl(&file, Getter::<GET, FsXattr>::new()).unwrap()
    };
    assert_eq!((attributes[0], attributes[3]), (0x80, 77));
    assert_eq!(ioctl_getflags(&file).unwrap(), IFlags::NODUMP);
    assert_eq!(range[1], (1 << 30) + 4096);
}

#[test]
fn statfs_tells_space() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let stat = rustix::fs::statvfs(mount.root()).unwrap();
    assert_eq!((stat.f_blocks, stat.f_bfree, stat.f_frsize, stat.f_namemax), (1 << 20, 1 << 19, 4096, 255));
}
