//! Who may open what while somebody else has it.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use basalt_device::{BlockDevice, FileDevice, Lock, OpenOptions};
use common::{LoopDevice, refusal};

/// The tests of this file run one at a time: a child that one of them starts has the descriptors of all, and so their
/// locks, until it executes its program.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with(lock: Lock) -> OpenOptions {
    OpenOptions { read_only: lock == Lock::Shared, lock, ..OpenOptions::default() }
}

fn exclusive(wait: u64) -> OpenOptions {
    with(Lock::Exclusive { wait: Duration::from_millis(wait) })
}

fn image(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("image");
    File::create_new(&path).unwrap().set_len(16 << 20).unwrap();
    path
}

#[test]
fn one_writer_or_many_readers() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let writer = FileDevice::open(&path, &exclusive(0)).unwrap();
    for second in [exclusive(0), with(Lock::Shared)] {
        let message = refusal(FileDevice::open(&path, &second));
        let expected = format!("{} is in use: locked by process {} (", path.display(), std::process::id());
        assert!(message.starts_with(&expected), "{message}");
    }
    FileDevice::open(&path, &with(Lock::None)).unwrap();
    drop(writer);
    let reader = FileDevice::open(&path, &with(Lock::Shared)).unwrap();
    let second = FileDevice::open(&path, &with(Lock::Shared)).unwrap();
    assert!(refusal(FileDevice::open(&path, &exclusive(0))).contains("in use"));
    drop((reader, second));
    FileDevice::open(&path, &exclusive(0)).unwrap();
}

#[test]
fn resizing_waits_for_the_lock() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let writer = FileDevice::open(&path, &exclusive(0)).unwrap();
    refusal(FileDevice::open(&path, &OpenOptions { resize: Some(512), ..exclusive(0) }));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), writer.size());
}

#[test]
fn waiting_for_the_other_to_finish() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let first = FileDevice::open(&path, &exclusive(0)).unwrap();
    let start = Instant::now();
    refusal(FileDevice::open(&path, &exclusive(150)));
    assert!(start.elapsed() >= Duration::from_millis(150));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(first);
        });
        FileDevice::open(&path, &exclusive(60_000)).unwrap();
    });
}

#[test]
fn another_process_is_named() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    // flock(1) takes the lock and becomes cat; once cat answers, the lock is held.
    let mut child = Command::new("flock")
        .arg("--no-fork")
        .arg(&path)
        .arg("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let message = refusal(FileDevice::open(&path, &exclusive(0)));
    assert!(message.ends_with(&format!("locked by process {} (cat)", child.id())), "{message}");
    drop(child.stdin.take());
    child.wait().unwrap();
    FileDevice::open(&path, &exclusive(1000)).unwrap();
}

#[test]
fn an_image_behind_a_loop_device() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let Some(attached) = LoopDevice::attach(&path, 512) else {
        return;
    };
    let message = refusal(FileDevice::open(&path, &exclusive(0)));
    assert!(message.ends_with(&format!("in use: it backs {}", attached.path.display())), "{message}");
    refusal(FileDevice::open(&path, &with(Lock::Shared)));
    FileDevice::open(&path, &with(Lock::None)).unwrap();
    let ours = OpenOptions { allow_loop: Some(attached.path.clone()), ..exclusive(0) };
    FileDevice::open(&path, &ours).unwrap();
    let Some(second) = LoopDevice::attach(&path, 512) else {
        return;
    };
    assert!(refusal(FileDevice::open(&path, &ours)).contains(&*second.path.to_string_lossy()));
    drop(second);
    drop(attached);
    FileDevice::open(&path, &exclusive(5000)).unwrap();
}

#[test]
fn block_devices_are_claimed_until_released() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let Some(attached) = LoopDevice::attach(&path, 512) else {
        return;
    };
    let device = FileDevice::open(&attached.path, &exclusive(5000)).unwrap();
    let message = refusal(FileDevice::open(&attached.path, &exclusive(0)));
    assert!(message.contains("locked by process"), "{message}");
    // Another program's claim: what mkfs and mount do.
    let claim = || {
        use std::os::unix::fs::OpenOptionsExt;
        File::options().read(true).custom_flags(rustix::fs::OFlags::EXCL.bits() as i32).open(&attached.path)
    };
    assert!(claim().is_err());
    device.release_exclusive();
    device.release_exclusive();
    let claimed = claim().unwrap();
    // The flock stays.
    assert!(refusal(FileDevice::open(&attached.path, &exclusive(0))).contains("locked by process"));
    drop(device);
    let message = refusal(FileDevice::open(&attached.path, &exclusive(50)));
    assert!(message.contains("claimed by"), "{message}");
    drop(claimed);
    let reader = FileDevice::open(&attached.path, &with(Lock::Shared)).unwrap();
    FileDevice::open(&attached.path, &with(Lock::Shared)).unwrap();
    assert_eq!(reader.size(), 16 << 20);
}

#[test]
fn mounted_block_devices_are_refused_with_their_mount_point() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let Some(attached) = LoopDevice::attach(&path, 512) else {
        return;
    };
    let mount_point = directory.path().join("mounted here");
    std::fs::create_dir(&mount_point).unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&attached.path).status();
    let mounted = Command::new("mount").arg(&attached.path).arg(&mount_point).status();
    if !(made.is_ok_and(|status| status.success()) && mounted.is_ok_and(|status| status.success())) {
        println!("skipped: cannot make and mount an ext4 volume");
        return;
    }
    let messages =
        [exclusive(0), with(Lock::Shared)].map(|options| refusal(FileDevice::open(&attached.path, &options)));
    FileDevice::open(&attached.path, &OpenOptions { read_only: true, ..with(Lock::None) }).unwrap();
    assert!(Command::new("umount").arg(&mount_point).status().unwrap().success());
    for message in messages {
        assert!(message.ends_with(&format!("in use: mounted on {}", mount_point.display())), "{message}");
    }
    FileDevice::open(&attached.path, &exclusive(5000)).unwrap();
}

/// What must be refused while `path` cannot be had, with words that the message has.
#[track_caller]
fn expect_refused(path: &Path, words: &str) {
    for options in [exclusive(0), with(Lock::Shared)] {
        let message = refusal(FileDevice::open(path, &options));
        let expected = format!("{} is in use: ", path.display());
        assert!(message.starts_with(&expected) && message.contains(words), "{message}");
    }
}

#[test]
fn one_image_behind_two_loop_devices() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let (Some(first), Some(second)) = (LoopDevice::attach(&path, 512), LoopDevice::attach(&path, 512)) else { return };
    let writer = FileDevice::open(&first.path, &exclusive(5000)).unwrap();
    expect_refused(&second.path, &format!("{}, which is behind it, is locked by process", path.display()));
    expect_refused(&path, "locked by process");
    // The mount will have the claim; the locks stay.
    writer.release_exclusive();
    expect_refused(&second.path, "locked by process");
    drop(writer);
    let readers = [&first, &second].map(|device| FileDevice::open(&device.path, &with(Lock::Shared)).unwrap());
    assert!(refusal(FileDevice::open(&second.path, &exclusive(0))).contains("locked by process"));
    drop(readers);
    FileDevice::open(&second.path, &exclusive(5000)).unwrap();
}

#[test]
fn an_image_in_use_and_a_loop_device_over_it() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let writer = FileDevice::open(&path, &exclusive(0)).unwrap();
    let Some(attached) = LoopDevice::attach(&path, 512) else { return };
    expect_refused(&attached.path, "which is behind it, is locked by process");
    // By any other name.
    let (link, hard) = (directory.path().join("link"), directory.path().join("hard"));
    std::os::unix::fs::symlink(&attached.path, &link).unwrap();
    expect_refused(&link, "which is behind it, is locked by process");
    std::fs::hard_link(&path, &hard).unwrap();
    let Some(other) = LoopDevice::attach(&hard, 512) else { return };
    expect_refused(&other.path, "which is behind it, is locked by process");
    drop(other);
    drop(writer);
    let reader = FileDevice::open(&link, &with(Lock::Shared)).unwrap();
    drop(reader);
    FileDevice::open(&link, &exclusive(5000)).unwrap();
}

#[test]
fn a_loop_device_over_a_loop_device() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let Some(lower) = LoopDevice::attach(&path, 512) else { return };
    let Some(upper) = LoopDevice::attach(&lower.path, 512) else { return };
    let writer = FileDevice::open(&upper.path, &exclusive(5000)).unwrap();
    expect_refused(&lower.path, "locked by process");
    expect_refused(&path, "locked by process");
    drop(writer);
    let writer = FileDevice::open(&lower.path, &exclusive(5000)).unwrap();
    expect_refused(&upper.path, "is locked by process");
    drop(writer);
    FileDevice::open(&upper.path, &exclusive(5000)).unwrap();
}

#[test]
fn parts_of_one_image_are_separate_and_what_overlaps_is_not() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let part = |offset: &str, size: &str| LoopDevice::attach_with(&path, &["--offset", offset, "--sizelimit", size]);
    let (Some(first), Some(second), Some(across)) = (part("0", "8M"), part("8M", "8M"), part("4M", "8M")) else {
        return;
    };
    let one = FileDevice::open(&first.path, &exclusive(5000)).unwrap();
    let two = FileDevice::open(&second.path, &exclusive(5000)).unwrap();
    expect_refused(&across.path, "which is behind it, is locked by process");
    expect_refused(&path, "locked by process");
    drop(one);
    expect_refused(&across.path, "which is behind it, is locked by process");
    drop(two);
    FileDevice::open(&across.path, &exclusive(5000)).unwrap();
}

#[test]
fn partitions_of_an_image() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let attach = || LoopDevice::attach_with(&path, &["--partscan"]);
    let (Some(disk), Some(again)) = (attach(), attach()) else { return };
    let part = |disk: &LoopDevice, number: u32| std::path::PathBuf::from(format!("{}p{number}", disk.path.display()));
    // In sectors; addpart(8) tells the kernel without a table on the disk, for which it may know no format.
    for (device, number, start, length) in
        [&disk, &again].into_iter().flat_map(|disk| [(disk, "1", "2048", "14336"), (disk, "2", "16384", "16384")])
    {
        let made = Command::new("addpart").arg(&device.path).args([number, start, length]).status();
        if !made.is_ok_and(|status| status.success()) {
            println!("skipped: cannot make partitions on loop devices");
            return;
        }
    }
    // Both partitions at once, also through different loop devices.
    let first = FileDevice::open(part(&disk, 1), &exclusive(5000)).unwrap();
    let second = FileDevice::open(part(&again, 2), &exclusive(5000)).unwrap();
    for path in [part(&again, 1), part(&disk, 2), again.path.clone(), path.clone()] {
        let message = refusal(FileDevice::open(&path, &exclusive(0)));
        assert!(message.contains("in use: "), "{message}");
        refusal(FileDevice::open(&path, &with(Lock::Shared)));
    }
    drop(first);
    let first = FileDevice::open(part(&again, 1), &exclusive(5000)).unwrap();
    drop((first, second));
    // A reader of the whole disk keeps writers off its partitions.
    let reader = FileDevice::open(&disk.path, &with(Lock::Shared)).unwrap();
    for path in [part(&disk, 1), part(&again, 2)] {
        assert!(refusal(FileDevice::open(&path, &exclusive(0))).contains("locked by process"));
        FileDevice::open(&path, &with(Lock::Shared)).unwrap();
    }
    drop(reader);
    FileDevice::open(part(&disk, 1), &exclusive(5000)).unwrap();
}

#[test]
fn an_image_without_a_name() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let writer = FileDevice::open(&path, &exclusive(0)).unwrap();
    let (Some(first), Some(second)) = (LoopDevice::attach(&path, 512), LoopDevice::attach(&path, 512)) else { return };
    std::fs::remove_file(&path).unwrap();
    // Another image where it was.
    drop(image(directory.path()));
    expect_refused(&first.path, "locked by another program");
    drop(writer);
    let writer = FileDevice::open(&first.path, &exclusive(5000)).unwrap();
    expect_refused(&second.path, &format!("is also {}, ", first.path.display()));
    drop(writer);
    FileDevice::open(&second.path, &exclusive(5000)).unwrap();
}

#[test]
fn what_linux_has_mounted_by_another_loop_device() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let (Some(first), Some(second)) = (LoopDevice::attach(&path, 512), LoopDevice::attach(&path, 512)) else { return };
    let mount_point = directory.path().join("mounted");
    std::fs::create_dir(&mount_point).unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&first.path).status();
    let mounted = Command::new("mount").arg(&first.path).arg(&mount_point).status();
    if !(made.is_ok_and(|status| status.success()) && mounted.is_ok_and(|status| status.success())) {
        println!("skipped: cannot make and mount an ext4 volume");
        return;
    }
    let opened = [exclusive(0), with(Lock::Shared)].map(|options| FileDevice::open(&second.path, &options));
    let over = [&path, &first.path, &second.path].map(|path| basalt_device::file::mounted_over(path));
    assert!(Command::new("umount").arg(&mount_point).status().unwrap().success());
    for message in opened.map(refusal) {
        let by = format!("{} is also {}, mounted on {}", path.display(), first.path.display(), mount_point.display());
        assert!(message.ends_with(&by), "{message}");
    }
    assert_eq!(over, [(); 3].map(|()| Some(mount_point.clone())));
    assert_eq!(basalt_device::file::mounted_over(&second.path), None);
    FileDevice::open(&second.path, &exclusive(5000)).unwrap();
}

#[test]
fn locks_of_bytes_that_others_have() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    // As qemu does with the images of its machines: one byte, shared.
    let script = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_SH, 1, 100); print(1, flush=True); sys.stdin.read()";
    let child =
        Command::new("python3").args(["-c", script]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        println!("skipped: no python3");
        return;
    };
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let message = refusal(FileDevice::open(&path, &exclusive(0)));
    assert!(message.ends_with(&format!("locked by process {} (python3)", child.id())), "{message}");
    FileDevice::open(&path, &with(Lock::Shared)).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    FileDevice::open(&path, &exclusive(0)).unwrap();
}

/// A process that waits in the kernel, as one does for a slow disk, has not ended: it goes on.
#[test]
fn a_process_that_waits_in_the_kernel_is_not_left_behind() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let (path, fifo) = (image(directory.path()), directory.path().join("fifo"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    // Whoever starts a program by posix_spawn waits, without a signal that could wake him, until that has opened its input.
    let script = "import fcntl, os, sys\n\
        image = open(sys.argv[1]); fcntl.flock(image, fcntl.LOCK_EX); print(flush=True)\n\
        os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[2], os.O_RDONLY, 0)])";
    let mut command = Command::new("python3");
    command.args(["-c", script]).args([&path, &fifo]).stdout(Stdio::piped());
    let Ok(mut waiting) = command.spawn() else {
        println!("skipped: no python3");
        return;
    };
    waiting.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let stat = format!("/proc/{}/stat", waiting.id());
    let start = Instant::now();
    while !std::fs::read_to_string(&stat).unwrap().contains(") D ") && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let found = basalt_device::file::left_behind_by(&path);
    drop(File::options().write(true).open(&fifo).unwrap());
    waiting.wait().unwrap();
    assert_eq!(found, None);
}

/// The main thread of a process has ended and another goes on, as one that hangs in the kernel would: its lock stays. Beside a process that
/// lives and has the same, nothing is left behind: it may be the one that serves.
#[test]
fn a_lock_is_left_behind_only_where_all_who_have_it_have_ended() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let locked = "import ctypes, fcntl, sys, threading
f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_SH); print(flush=True)";
    let start = |then: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{locked}\n{then}")]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    };
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: no python3");
        return;
    }
    let mut ended = start("threading.Thread(target=sys.stdin.read).start(); ctypes.CDLL(None).pthread_exit(None)");
    let left_behind = || basalt_device::file::left_behind_by(&path);
    let begin = Instant::now();
    while left_behind().is_none() && begin.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(left_behind(), Some(ended.id()));
    let mut alive = start("sys.stdin.read()");
    assert_eq!(left_behind(), None);
    for child in [&mut alive, &mut ended] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(left_behind(), None);
}
