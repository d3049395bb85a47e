//! A volume in an image file, mounted by the real program; checked by both checkers when its test ends.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use basalt_device::{FileDevice, OpenOptions as DeviceOptions};
use basalt_f2fs::journal::guard;
use basalt_testkit::{images, limit, namespace, scratch, skip};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::support::{basalt, can_mount, mount_line, umount};

/// How long a killed process may take to let go of everything.
const PATIENCE: Duration = Duration::from_secs(20);

/// A volume, usually mounted. Dropping it unmounts it and expects it to be clean.
pub struct Volume {
    directory: TempDir,
    image: PathBuf,
    options: String,
    /// Whether the volume may not have been closed cleanly since it was mounted last.
    cut_short: AtomicBool,
}

/// What mounting such a volume says.
const NOT_CLEAN: &str = "not unmounted cleanly";

impl Volume {
    /// A new volume, mounted. `None`, and said so, where nothing can be mounted.
    pub fn new(size: &str) -> Option<Volume> {
        Self::with_options(size, "")
    }

    /// The same with mount options.
    pub fn with_options(size: &str, options: &str) -> Option<Volume> {
        let volume = Self::in_image(None, size, options)?;
        volume.mount();
        Some(volume)
    }

    /// Formats this image or device, or one of the volume's own; does not mount it.
    pub fn in_image(image: Option<PathBuf>, size: &str, options: &str) -> Option<Volume> {
        if !can_mount() || !skip::tools_or_skip(&["fsck.f2fs"]) {
            return None;
        }
        let directory = scratch::directory().expect("a temporary directory");
        // Other users get through to the mount.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(directory.path().join("mnt")).unwrap();
        let image = image.unwrap_or_else(|| directory.path().join("image"));
        let mut arguments = vec!["mkfs", "-q"];
        if !size.is_empty() {
            arguments.extend(["--size", size]);
        }
        arguments.push(image.to_str().unwrap());
        basalt(arguments).ok();
        Some(Volume { directory, image, options: options.to_owned(), cut_short: AtomicBool::new(false) })
    }

    /// The image or device.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The mount point.
    pub fn root(&self) -> PathBuf {
        self.outside("mnt")
    }

    /// Something on the volume.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// Something beside it, on the host's file system.
    pub fn outside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    #[track_caller]
    pub fn mount(&self) {
        self.mount_with(&self.options);
    }

    #[track_caller]
    pub fn mount_with(&self, options: &str) {
        let root = self.root();
        let mut arguments = vec!["mount".as_ref(), self.image.as_os_str(), root.as_os_str()];
        if !options.is_empty() {
            arguments.extend([OsStr::new("-o"), OsStr::new(options)]);
        }
        let mounted = basalt(arguments);
        // A torn checkpoint may be mentioned as well.
        let is_expected = self.cut_short.swap(false, SeqCst) && mounted.err().contains(NOT_CLEAN);
        if !is_expected || mounted.code() != 0 {
            mounted.ok();
        }
    }

    #[track_caller]
    pub fn unmount(&self) {
        let unmounted = umount(&self.root());
        // On a busy machine it says that it waits.
        let is_slow = unmounted.err().ends_with(": waiting for it to be written and closed\n");
        if !is_slow || unmounted.code() != 0 || unmounted.err().lines().count() > 1 {
            unmounted.ok();
        }
    }

    /// Unmounts and mounts again: nothing is cached any more.
    #[track_caller]
    pub fn remount(&self) {
        self.unmount();
        self.mount();
    }

    pub fn is_mounted(&self) -> bool {
        mount_line(&self.root()).is_some()
    }

    /// The process that serves the mount, while it lives.
    pub fn server(&self) -> Option<Pid> {
        server_of(&self.image)
    }

    /// Kills the server and detaches the mount after `limit`, unless the result is dropped before: whoever uses the mount then gets
    /// errors, and no thread of a test waits for ever.
    #[must_use]
    pub fn end_after(&self, limit: Duration) -> limit::Watchdog {
        let (image, root) = (self.image.clone(), self.root());
        limit::Watchdog::new(format!("work on {}", root.display()), limit, move || {
            if let Some(server) = server_of(&image) {
                let _ = rustix::process::kill_process(server, Signal::KILL);
            }
            let _ = rustix::mount::unmount(&root, UnmountFlags::DETACH);
        })
    }

    /// The next mount may say that the volume was not closed cleanly.
    pub fn expect_cut_short(&self) {
        self.cut_short.store(true, SeqCst);
    }

    /// Kills the server as a power cut would, and takes away what is left of the mount.
    #[track_caller]
    pub fn kill(&self) {
        self.kill_server();
        self.clean_up();
    }

    /// Only kills it: nothing else happens before.
    pub fn kill_server(&self) {
        self.expect_cut_short();
        if let Some(server) = self.server() {
            // It may just have ended.
            let _ = rustix::process::kill_process(server, Signal::KILL);
        } else if !std::thread::panicking() {
            assert!(!self.is_mounted(), "{} is mounted, but nobody serves it", self.root().display());
        }
    }

    /// After a kill: detaches the dead mount; its loop device and lock go by themselves, once no file is open there any more.
    #[track_caller]
    pub fn clean_up(&self) {
        match rustix::mount::unmount(self.root(), UnmountFlags::DETACH) {
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => panic!("detaching {}: {errno}", self.root().display()),
        }
        self.wait_for_release();
    }

    /// Waits until the server has let go of the image.
    #[track_caller]
    pub fn wait_for_release(&self) {
        wait_for("the lock", || {
            let file = File::open(&self.image).unwrap();
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        wait_for("the loop device", || self.loop_devices().is_empty());
    }

    /// The loop devices over the image.
    pub fn loop_devices(&self) -> Vec<String> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--noheadings", "--output", "NAME", "-j"]).arg(&self.image);
        let names = String::from_utf8(limit::output(&mut losetup, limit::SHORT).unwrap().stdout).unwrap();
        names.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// What `fsck.f2fs` says of the volume, which is not mounted. Of one whose cleaning journal is live it says nothing: a copy is shown
    /// to it that `basalt fsck --repair` has recovered.
    pub fn fsck_f2fs(&self) -> images::FsckReport {
        let device =
            FileDevice::open(&self.image, &DeviceOptions { read_only: true, ..DeviceOptions::default() }).unwrap();
        if !guard::read(&device).unwrap().is_set {
            drop(device);
            return images::fsck_f2fs(&self.image).expect("fsck.f2fs");
        }
        let copy = self.image.with_extension("recovered");
        fs::copy(&self.image, &copy).unwrap();
        let repaired = basalt(["fsck".as_ref(), "--repair".as_ref(), copy.as_os_str()]);
        assert_eq!(repaired.code(), 1, "{}", repaired.err());
        let report = images::fsck_f2fs(&copy).expect("fsck.f2fs");
        fs::remove_file(copy).unwrap();
        report
    }

    /// Expects that neither checker finds anything; the volume is not mounted.
    #[track_caller]
    pub fn expect_clean(&self) {
        basalt(["fsck".as_ref(), self.image.as_os_str()]).ok();
        let mut report = self.fsck_f2fs();
        if self.cut_short.load(SeqCst) {
            // A checkpoint pack that was being written is passed over, and that is said.
            report.faults.retain(|fault| !fault.starts_with("Invalid CP CRC"));
            if report.gave_up() {
                return;
            }
        }
        report.expect_clean();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // One failure is enough to report; what it leaves behind goes.
            self.kill_server();
            let _ = rustix::mount::unmount(self.root(), UnmountFlags::DETACH);
            return;
        }
        if self.is_mounted() {
            self.unmount();
        }
        self.expect_clean();
    }
}

/// The process that serves an image in the background.
fn server_of(image: &Path) -> Option<Pid> {
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = line.split(|&byte| byte == 0);
        let is_server = words.any(|word| word == b"--background-process")
            && words.any(|word| word == image.as_os_str().as_encoded_bytes());
        if is_server { Pid::from_raw(number) } else { None }
    })
}

/// umount(2), and not Basalt's command, which waits by itself. Programs that other tests start may hold a file for a moment, from fork to
/// exec.
pub fn unmount_by_call(root: &Path) {
    let _alone = namespace::unmounting();
    wait_for("it is unmounted", || match rustix::mount::unmount(root, UnmountFlags::empty()) {
        Err(Errno::BUSY) => false,
        unmounted => unmounted.map(|()| true).unwrap(),
    });
}

/// Waits until something is so.
#[track_caller]
pub fn wait_for(what: &str, so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not after {} s", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a shell script in a directory; expects success, returns what it printed.
#[track_caller]
pub fn sh(directory: &Path, script: &str) -> String {
    let (ok, text) = try_sh(directory, script);
    assert!(ok, "{script}\n{text}");
    text
}

/// Runs a shell script in a directory: whether it succeeded, and what it printed, errors included.
pub fn try_sh(directory: &Path, script: &str) -> (bool, String) {
    let mut shell = Command::new("sh");
    shell.args(["-ec", &format!("exec 2>&1\n{script}")]).current_dir(directory).env("LC_ALL", "C");
    let output = limit::output(&mut shell, limit::LONG).expect("sh");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The same as an unprivileged user.
pub fn try_sh_as_nobody(directory: &Path, script: &str) -> (bool, String) {
    let quoted = script.replace('\'', r"'\''");
    try_sh(directory, &format!("exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '{quoted}'"))
}
