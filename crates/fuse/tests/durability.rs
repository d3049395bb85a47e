//! When the file system hears of fsync, sync and unmounting, and how mounts come and go.

mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use basalt_fuse::{MountError, MountOptions, NotMounted, Session, SyncError, UnmountError, sync_mounted};
use support::Mounted;
use support::memory::{MemoryFs, ROOT};

/// A loop device over a file, detached when dropped.
struct Loop(PathBuf, #[allow(dead_code, reason = "keeps the file")] tempfile::NamedTempFile);

impl Loop {
    fn new() -> Option<Self> {
        if let Some(why) = support::obstacle() {
            println!("skipped: {why}");
            return None;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
        match output {
            Ok(output) if output.status.success() => {
                Some(Loop(String::from_utf8(output.stdout).unwrap().trim().into(), file))
            }
            _ => {
                println!("skipped: no loop device");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn fsync_of_files_and_directories_reaches_the_file_system() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    let file = File::create(mount.path("file")).unwrap();
    let ino = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    File::open(mount.root()).unwrap().sync_all().unwrap();
    assert_eq!(*mount.fs.calls.synced_files.lock(), [(ino, false), (ino, true), (ROOT, false)]);
}

/// Aligned as O_DIRECT wants it.
#[repr(align(4096))]
struct Block([u8; 4096]);

#[test]
fn synchronous_writes_reach_the_file_system_as_fsync() {
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

    use rustix::fs::OFlags;

    let Some(mount) = Mounted::new(|_| {}) else { return };
    for (how, data_only) in [(OFlags::DSYNC, true), (OFlags::SYNC, false)] {
        for direct in [OFlags::empty(), OFlags::DIRECT] {
            let flags = (how | direct).bits() as i32;
            let mut options = File::options();
            options.write(true).create(true).custom_flags(flags);
            let mut file = options.open(mount.path("file")).unwrap();
            mount.fs.calls.synced_files.lock().clear();
            file.write_all(&Block([7; 4096]).0).unwrap();
            let ino = file.metadata().unwrap().ino();
            let synced = mount.fs.calls.synced_files.lock();
            // More than asked for is fine.
            let enough = synced.iter().any(|&(node, only_data)| node == ino && (data_only || !only_data));
            assert!(enough, "{how:?} {direct:?}: {synced:?}");
        }
    }
}

#[test]
fn background_work_is_done_while_mounted_and_closing_happens_once() {
    let begun = Instant::now();
    let Some(mut mount) = Mounted::new(|_| {}) else { return };
    let ticks = || mount.fs.calls.ticks.load(SeqCst);
    while ticks() < 5 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let counted = ticks();
    assert!(counted >= 5, "{counted} ticks");
    // Every 10 ms.
    let most = begun.elapsed().as_millis() as u64 / 10 + 2;
    assert!(counted <= most, "{counted} ticks, at most {most}");
    mount.unmount().unwrap();
    assert_eq!(mount.fs.calls.closes.load(SeqCst), 1);
}

#[test]
fn a_plain_mount_is_synced_by_ioctl() {
    let Some(mount) = Mounted::new(|_| {}) else { return };
    fs::write(mount.path("file"), b"x").unwrap();
    fs::create_dir(mount.path("dir")).unwrap();
    sync_mounted(mount.root()).unwrap();
    sync_mounted(&mount.path("dir")).unwrap();
    assert_eq!(mount.fs.calls.syncs.load(SeqCst), 2);
    assert!(matches!(sync_mounted(Path::new("/proc")), Err(SyncError::NotMounted(NotMounted::Other(_)))));
    assert!(matches!(sync_mounted(&mount.path("absent")), Err(SyncError::NotMounted(NotMounted::Open { .. }))));
}

#[test]
fn on_a_block_device_syncfs_and_umount_wait() {
    let Some(device) = Loop::new() else { return };
    let delay = Duration::from_millis(300);
    let path = device.0.clone();
    let Some(mut mount) = Mounted::with(MemoryFs::with_close_delay(delay), |options| options.block_device = Some(path))
    else {
        return;
    };
    fs::write(mount.path("file"), b"x").unwrap();
    let line = Command::new("findmnt").args(["-no", "SOURCE,FSTYPE"]).arg(mount.root()).output().unwrap();
    let line = String::from_utf8(line.stdout).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), [device.0.to_str().unwrap(), "fuseblk.basalt"]);

    let before = mount.fs.calls.syncs.load(SeqCst);
    rustix::fs::syncfs(File::open(mount.root()).unwrap()).unwrap();
    if mount.fs.calls.syncs.load(SeqCst) == before {
        println!("skipped: this kernel sends no SYNCFS");
    }
    let start = Instant::now();
    mount.unmounter.unmount().unwrap();
    assert_eq!(mount.fs.calls.closes.load(SeqCst), 1, "umount returned before the file system was closed");
    assert!(start.elapsed() >= delay);
    mount.join().unwrap();
    assert_eq!(mount.fs.calls.closes.load(SeqCst), 1);
}

#[test]
fn a_busy_mount_stays_and_says_so() {
    let Some(mut mount) = Mounted::new(|_| {}) else { return };
    let file = File::create(mount.path("open")).unwrap();
    assert!(matches!(mount.unmounter.unmount(), Err(UnmountError::Busy(_))));
    assert!(mount.path("open").exists());
    drop(file);
    mount.unmount().unwrap();
    assert!(matches!(mount.unmounter.unmount(), Err(UnmountError::NotMounted(_))));
}

#[test]
fn umount_from_outside_ends_the_session() {
    let Some(mut mount) = Mounted::new(|_| {}) else { return };
    fs::write(mount.path("file"), b"x").unwrap();
    assert!(Command::new("umount").arg(mount.root()).status().unwrap().success());
    mount.join().unwrap();
    assert_eq!(mount.fs.calls.closes.load(SeqCst), 1);
}

#[test]
fn an_abort_ends_the_session_and_takes_the_mount_away() {
    let Some(mut mount) = Mounted::new(|_| {}) else { return };
    // -f aborts; the mount is kept busy, so that it stays behind dead.
    let _file = File::create(mount.path("open")).unwrap();
    let _ = Command::new("umount").arg("-f").arg(mount.root()).stderr(std::process::Stdio::null()).status();
    let _ = mount.join();
    assert_eq!(mount.fs.calls.closes.load(SeqCst), 1);
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 0, "the empty directory below is seen again");
}

#[test]
fn wrong_mount_points_are_named() {
    if let Some(why) = support::obstacle() {
        return println!("skipped: {why}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"x").unwrap();
    let mount =
        |path: &Path| Session::mount(Arc::new(MemoryFs::new()), &MountOptions::new(path, "memory")).unwrap_err();
    assert!(matches!(mount(&dir.path().join("absent")), MountError::Missing(_)));
    assert!(matches!(mount(&file), MountError::NotDirectory(_)));
    assert!(matches!(mount(&file.join("below")), MountError::NotDirectory(_)));
    let mounted = Mounted::new(|_| {}).unwrap();
    assert!(matches!(mount(mounted.root()), MountError::Occupied { .. }));
    let options = MountOptions { block_device: Some(file), ..MountOptions::new(dir.path(), "x") };
    let refused = Session::mount(Arc::new(MemoryFs::new()), &options).unwrap_err();
    assert!(refused.to_string().contains("Block device required"), "{refused}");
}

#[test]
fn a_session_that_never_ran_leaves_no_mount() {
    if let Some(why) = support::obstacle() {
        return println!("skipped: {why}");
    }
    let dir = tempfile::tempdir().unwrap();
    let fs = Arc::new(MemoryFs::new());
    let session = Session::mount(fs.clone(), &MountOptions::new(dir.path(), "memory")).unwrap();
    drop(session);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(fs.calls.closes.load(SeqCst), 0);
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(mount) = Mounted::new(|options| options.read_only = true) else { return };
    let refused = fs::write(mount.path("file"), b"x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}
