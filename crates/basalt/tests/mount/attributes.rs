//! Times, modes, ACLs, flags, and special files that work.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use basalt_testkit::{Manifest, limit, skip};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::fixture::{Volume, sh, try_sh, try_sh_as_nobody};

const OLD: Timespec = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };

fn set_old_times(path: &Path) {
    let times = Timestamps { last_access: OLD, last_modification: OLD };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn mtime(path: &Path) -> (i64, i64) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.mtime(), metadata.mtime_nsec())
}

#[test]
fn times_stay_as_set_until_the_next_change() {
    let Some(volume) = Volume::new("128M") else { return };
    let old = (OLD.tv_sec, OLD.tv_nsec);
    let create = |name: &str| {
        let mut file = File::create(volume.path(name)).unwrap();
        file.write_all(&[1; 100_000]).unwrap();
        file
    };
    // Set while the kernel still holds dirty pages: what it writes back later is no change.
    let open = create("open");
    set_old_times(&volume.path("open"));
    let synced = create("synced");
    set_old_times(&volume.path("synced"));
    synced.sync_all().unwrap();
    drop(synced);
    drop(create("closed"));
    set_old_times(&volume.path("closed"));
    let mut written = create("written after");
    set_old_times(&volume.path("written after"));
    written.write_all(b"more").unwrap();
    drop((open, written));
    fs::create_dir(volume.path("directory")).unwrap();
    set_old_times(&volume.path("directory"));
    std::os::unix::fs::symlink("nowhere", volume.path("link")).unwrap();
    set_old_times(&volume.path("link"));
    fs::create_dir(volume.path("changed directory")).unwrap();
    set_old_times(&volume.path("changed directory"));
    fs::write(volume.path("changed directory/new"), b"x").unwrap();
    for _ in 0..2 {
        for name in ["open", "synced", "closed", "directory", "link"] {
            assert_eq!(mtime(&volume.path(name)), old, "{name}");
        }
        for name in ["written after", "changed directory"] {
            assert_ne!(mtime(&volume.path(name)), old, "{name}");
        }
        volume.remount();
    }
}

#[test]
fn times_shown_are_the_times_stored() {
    let Some(volume) = Volume::new("64M") else { return };
    // Several changes within one tick of the kernel's clock.
    for number in 0..30 {
        let path = volume.path(format!("file{number}"));
        for len in [5_000, 0, 0, 3_000, number] {
            fs::write(&path, vec![1; len]).unwrap();
        }
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(10_000).unwrap();
        file.set_len(10_000).unwrap();
        fs::hard_link(&path, volume.path(format!("link{number}"))).unwrap();
        fs::rename(&path, volume.path(format!("renamed{number}"))).unwrap();
    }
    let before = Manifest::of(volume.root()).unwrap();
    volume.remount();
    before.expect_same(&Manifest::of(volume.root()).unwrap(), "after mounting again");
}

#[test]
fn times_reach_from_1901_to_2446_with_nanoseconds() {
    let Some(volume) = Volume::new("64M") else { return };
    let times = [i64::from(i32::MIN), -1, 0, i64::from(u32::MAX) + 7, 15_032_385_535];
    for seconds in times {
        let path = volume.path(seconds.to_string());
        fs::write(&path, b"x").unwrap();
        let time = Timespec { tv_sec: seconds, tv_nsec: 999_999_999 };
        utimensat(CWD, &path, &Timestamps { last_access: time, last_modification: time }, AtFlags::empty()).unwrap();
    }
    volume.remount();
    for seconds in times {
        assert_eq!(mtime(&volume.path(seconds.to_string())), (seconds, 999_999_999));
    }
}

#[test]
fn creation_times_stay() {
    let Some(volume) = Volume::new("64M") else { return };
    let start = SystemTime::now() - Duration::from_secs(1);
    fs::write(volume.path("file"), b"x").unwrap();
    let created = fs::metadata(volume.path("file")).unwrap().created().unwrap();
    assert!(created >= start && created <= SystemTime::now());
    set_old_times(&volume.path("file"));
    fs::write(volume.path("file"), b"again").unwrap();
    volume.remount();
    assert_eq!(fs::metadata(volume.path("file")).unwrap().created().unwrap(), created);
}

#[test]
fn access_control_lists_are_obeyed_and_inherited() {
    let Some(volume) = Volume::new("64M") else { return };
    if !skip::tools_or_skip(&["setfacl", "getfacl", "setpriv"]) {
        return;
    }
    let root = volume.root();
    let script = "echo secret > file; chmod 600 file; mkdir shared; setfacl -d -m u:65534:rwx,g::rx,o::- shared
        setfacl -m u:65534:rwx shared; mkdir plain";
    sh(&root, script);
    assert!(!try_sh_as_nobody(&root, "cat file").0);
    sh(&root, "setfacl -m u:65534:r file");
    assert!(try_sh_as_nobody(&root, "cat file").0);
    assert!(!try_sh_as_nobody(&root, "echo more >> file").0);
    // The default ACL takes the place of the umask; directories hand it on.
    sh(&root, "umask 077; echo x > shared/file; mkdir shared/inner; echo x > plain/file");
    for _ in 0..2 {
        let acl = |path: &str| sh(&root, &format!("getfacl -cEn {path}"));
        assert_eq!(acl("shared/file"), "user::rw-\nuser:65534:rwx\ngroup::r-x\nmask::rw-\nother::---\n\n");
        let inner = acl("shared/inner");
        assert!(inner.contains("\nuser:65534:rwx\n") && inner.contains("\ndefault:user:65534:rwx\n"), "{inner}");
        assert_eq!(fs::metadata(volume.path("plain/file")).unwrap().mode() & 0o777, 0o600);
        assert!(try_sh_as_nobody(&root, "echo more >> shared/file; touch shared/inner/new; rm shared/inner/new").0);
        assert!(!try_sh_as_nobody(&root, "cat plain/file").0);
        volume.remount();
    }
    // chmod changes the mask, and so what the named user may do.
    sh(&root, "chmod 600 shared/file");
    assert!(!try_sh_as_nobody(&root, "cat shared/file").0);
    sh(&root, "setfacl -b shared/file; test \"$(getfacl -cEn shared/file | grep -c 65534)\" = 0");
}

#[test]
fn times_that_the_kernel_still_held_outlive_new_flags() {
    let Some(volume) = Volume::new("128M") else { return };
    if !skip::tools_or_skip(&["chattr"]) {
        return;
    }
    let files = ["fixed", "log"].map(|name| volume.path(name));
    files.iter().for_each(|file| fs::write(file, "first").unwrap());
    volume.remount();
    std::thread::sleep(Duration::from_millis(20));
    // Data and times of these stay in the kernel's memory until after chattr.
    sh(&volume.root(), "echo more >> fixed; echo more >> log; chattr +i fixed; chattr +a log; sync .");
    let before = files.each_ref().map(|file| mtime(file));
    volume.remount();
    assert_eq!(files.each_ref().map(|file| mtime(file)), before);
    assert!(files.iter().all(|file| fs::read(file).unwrap() == b"firstmore\n"));
    sh(&volume.root(), "! touch fixed 2> /dev/null; ! truncate -s 0 log 2> /dev/null; chattr -i fixed; chattr -a log");
}

#[test]
fn flags_of_chattr_are_enforced() {
    let Some(volume) = Volume::new("64M") else { return };
    if !skip::tools_or_skip(&["chattr", "lsattr"]) {
        return;
    }
    let root = volume.root();
    sh(
        &root,
        "echo one > fixed; echo one > log; mkdir sealed; echo x > sealed/in; chattr +i fixed sealed; chattr +a log",
    );
    for remounted in [false, true] {
        for script in [
            "echo two > fixed",
            "echo two >> fixed",
            "rm fixed",
            "mv fixed other",
            "ln fixed other",
            "chmod 600 fixed",
            "truncate -s 0 fixed",
            "touch sealed/new",
            "rm sealed/in",
            "setfattr -n user.a -v b fixed",
            "echo two > log",
            "rm log",
            "mv log other",
            "truncate -s 1 log",
            "ln log other",
        ] {
            let (ok, text) = try_sh(&root, script);
            assert!(!ok && text.contains("Operation not permitted"), "{script} (remounted: {remounted}): {text}");
        }
        sh(&root, "echo more >> log; echo changed > sealed/in; test \"$(cat fixed)\" = one");
        volume.remount();
    }
    // Directories are also shown as indexed, as on Linux's F2FS.
    let flags = sh(&root, "lsattr -d fixed log sealed | cut -d' ' -f1 | tr -d 'I-' | tr '\\n' ' '");
    assert_eq!(flags.trim(), "i a i");
    sh(&root, "chattr -i fixed sealed; chattr -a log; test $(wc -l < log) = 3; rm -r fixed log sealed");
}

#[test]
fn set_user_id_is_honoured_unless_told_otherwise() {
    let Some(volume) = Volume::new("64M") else { return };
    if !skip::tools_or_skip(&["setpriv"]) {
        return;
    }
    let root = volume.root();
    sh(&root, "cp \"$(command -v id)\" id; chmod 4755 id");
    assert_eq!(try_sh_as_nobody(&root, "./id -u").1, "0\n");
    volume.unmount();
    volume.mount_with("nosuid");
    assert_eq!(try_sh_as_nobody(&root, "./id -u").1, "65534\n");
    volume.unmount();
    volume.mount_with("noexec");
    assert!(!try_sh(&root, "./id -u").0);
    volume.remount();
    // Whoever writes to it takes the privilege away; whoever may not, changes nothing.
    assert!(!try_sh_as_nobody(&root, "echo >> id").0);
    sh(&root, "chmod 4777 id");
    assert!(try_sh_as_nobody(&root, "echo >> id").0);
    assert_eq!(fs::metadata(volume.path("id")).unwrap().mode() & 0o7777, 0o777);
}

#[test]
fn special_files_work() {
    let Some(volume) = Volume::new("64M") else { return };
    let root = volume.root();
    sh(&root, "mknod zero c 1 5; mknod null c 1 3; mkfifo pipe; mknod block b 7 0; mknod large c 300 70000");
    let listener = UnixListener::bind(volume.path("socket")).unwrap();
    let mut client = UnixStream::connect(volume.path("socket")).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    let mut hello = [0; 5];
    server.read_exact(&mut hello).unwrap();
    assert_eq!(&hello, b"hello");
    drop((listener, client, server));
    let zeros = "test \"$(head -c 1000 zero | tr -d '\\0' | wc -c)\" = 0; echo x > null; test ! -s null";
    sh(&root, zeros);
    assert_eq!(sh(&root, "(sleep 0.1; echo through > pipe) & cat pipe; wait"), "through\n");
    volume.remount();
    sh(&root, "test -S socket; test -p pipe; test -c zero; test -b block");
    assert_eq!(sh(&root, "stat -c %t:%T block large"), "7:0\n12c:11170\n");
    sh(&root, zeros);
    volume.unmount();
    volume.mount_with("nodev");
    assert!(!try_sh(&root, "head -c 10 zero").0);
}

#[test]
fn modes_follow_umask_and_set_group_id() {
    let Some(volume) = Volume::new("64M") else { return };
    let root = volume.root();
    sh(
        &root,
        "umask 027; echo x > file; mkdir directory; mkdir group; chgrp 1234 group; chmod 2775 group; touch group/f; mkdir group/d",
    );
    volume.remount();
    let modes = sh(&root, "stat -c '%a %g' file directory group/f group/d");
    assert_eq!(modes, "640 0\n750 0\n640 1234\n2750 1234\n");
    fs::set_permissions(volume.path("file"), fs::Permissions::from_mode(0o7777)).unwrap();
    assert_eq!(fs::metadata(volume.path("file")).unwrap().mode() & 0o7777, 0o7777);
    let appended = OpenOptions::new().append(true).open(volume.path("file")).unwrap();
    (&appended).write_all(b"root may").unwrap();
}

#[test]
fn trusted_attributes_are_the_administrators() {
    let Some(volume) = Volume::new("128M") else { return };
    if !skip::tools_or_skip(&["setpriv", "getfattr", "setfattr"]) {
        return;
    }
    let file = volume.path("file");
    fs::write(&file, "content").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    for (name, value) in [("trusted.secret", "t"), ("user.open", "u"), ("trusted.other", "o"), ("user.more", "m")] {
        rustix::fs::setxattr(&file, name, value.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
    }
    let run = |how: &[&str], words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(how).args(words).arg(&file);
        let output = limit::output(&mut command, limit::SHORT).unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let list = ["getfattr", "--absolute-names", "-m", "-"];
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let powerless = ["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"];
    for who in [&user[..], &powerless] {
        let (_, listed) = run(who, &list);
        assert!(listed.contains("user.open") && listed.contains("user.more"), "{who:?}: {listed}");
        assert!(!listed.contains("trusted"), "{who:?}: {listed}");
        assert!(!run(who, &["getfattr", "-n", "trusted.secret"]).0, "{who:?} may read it");
        assert!(!run(who, &["setfattr", "-n", "trusted.secret", "-v", "x"]).0, "{who:?} may change it");
        assert!(!run(who, &["setfattr", "-n", "trusted.new", "-v", "x"]).0, "{who:?} may make one");
        assert!(!run(who, &["setfattr", "-x", "trusted.secret"]).0, "{who:?} may remove it");
    }
    // Another user with the capability may.
    let able = ["--reuid", "65534", "--clear-groups", "--inh-caps", "+sys_admin", "--ambient-caps", "+sys_admin"];
    for who in [&["--no-new-privs"][..], &able] {
        let (_, listed) = run(who, &list);
        assert!(listed.contains("trusted.secret") && listed.contains("trusted.other"), "{who:?}: {listed}");
        assert!(run(who, &["getfattr", "-n", "trusted.secret"]).0, "{who:?}");
    }
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(&file, "trusted.secret", &mut value[..]).unwrap(), 1);
    assert_eq!(value[0], b't');
}
