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
