//! What the tests of the command line share.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use basalt_testkit::{limit, namespace, scratch, skip};
use rustix::process::Pid;
use tempfile::TempDir;

/// Runs the program; standard input is empty.
pub fn basalt<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Finished {
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null());
    Finished(limit::output(&mut command, limit::LONG).expect("running basalt"))
}

/// Runs `basalt umount`, again while the mount is in use: a program that another test's thread is starting holds files that are open
/// here from fork to exec.
pub fn umount(place: &Path) -> Finished {
    let _alone = namespace::unmounting();
    let start = Instant::now();
    loop {
        let finished = basalt(["umount".as_ref(), place.as_os_str()]);
        if start.elapsed() > limit::SHORT || !finished.err().contains(": in use;") {
            return finished;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs the program with arguments separated by blanks.
pub fn run(line: &str) -> Finished {
    basalt(line.split_whitespace())
}

pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_basalt")
}

/// A program that has ended.
pub struct Finished(pub Output);

impl Finished {
    pub fn code(&self) -> i32 {
        self.0.status.code().expect("ended by a signal")
    }

    pub fn out(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).expect("UTF-8")
    }

    pub fn err(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).expect("UTF-8")
    }

    /// Expects success and silence on standard error; returns standard output.
    #[track_caller]
    pub fn ok(&self) -> String {
        assert_eq!((self.code(), self.err().as_str()), (0, ""), "{}", self.out());
        self.out()
    }

    /// Expects this exit code and exactly one line on standard error, which contains all of `parts`.
    #[track_caller]
    pub fn fails(&self, code: i32, parts: &[&str]) {
        let err = self.err();
        assert_eq!(self.code(), code, "{err}");
        assert_eq!(err.lines().count(), 1, "not one line: {err}");
        assert!(err.starts_with("basalt: "), "{err}");
        for part in parts {
            assert!(err.contains(part), "`{part}` is missing in: {err}");
        }
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).expect("JSON")
    }
}

/// A directory with an image in it.
pub struct Scratch {
    pub dir: TempDir,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch { dir: scratch::directory().expect("a temporary directory") }
    }

    /// With a fresh volume, `image`.
    pub fn with_volume(size: &str) -> Scratch {
        let scratch = Scratch::new();
        basalt(["mkfs", "-q", "--size", size, scratch.path("image").to_str().unwrap()]).ok();
        scratch
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    /// Writes a file; returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).expect("writing a file");
        self.text(name)
    }

    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("making a directory");
        path
    }

    /// Expects that Basalt's check and, where it is installed, `fsck.f2fs` find nothing.
    #[track_caller]
    pub fn expect_clean(&self) {
        basalt(["fsck", &self.text("image")]).ok();
        if skip::find_program("fsck.f2fs").is_some() {
            basalt_testkit::images::fsck_f2fs(&self.path("image")).expect("fsck.f2fs").expect_clean();
        }
    }
}

/// Whether mounting as root can be tested here; else says why not.
pub fn can_mount() -> bool {
    skip::root_or_skip() && skip::fuse_or_skip()
}

/// A mount, taken away when dropped.
pub struct Mounted {
    pub point: PathBuf,
}

impl Mounted {
    /// Mounts `image` in the background on `mnt`, with options.
    #[track_caller]
    pub fn new(scratch: &Scratch, options: &str) -> Mounted {
        let point = scratch.directory("mnt");
        let image = scratch.text("image");
        let mut arguments = vec!["mount", &image, point.to_str().unwrap()];
        if !options.is_empty() {
            arguments.extend(["-o", options]);
        }
        basalt(arguments).ok();
        Mounted { point }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    #[track_caller]
    pub fn unmount(&self) {
        umount(&self.point).ok();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if mount_line(&self.point).is_some() {
            // A test has failed; whatever is open there is lost.
            let _ = limit::output(Command::new("umount").arg("-l").arg(&self.point), limit::SHORT);
        }
    }
}

/// The line of mountinfo about a mount point.
pub fn mount_line(point: &Path) -> Option<String> {
    let table = fs::read("/proc/self/mountinfo").expect("mountinfo");
    let table = String::from_utf8_lossy(&table);
    let point = format!(" {} ", point.display());
    table.lines().find(|line| line.contains(&point)).map(str::to_owned)
}

/// Waits until something is so, up to 20 seconds.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What `losetup` tells of an image.
pub fn loop_devices_of(image: &str) -> String {
    let listed = limit::output(Command::new("losetup").args(["-j", image]), limit::SHORT);
    String::from_utf8(listed.unwrap().stdout).unwrap()
}

/// The background process that serves an image.
pub fn server_of(image: &str) -> Option<Pid> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.find_map(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let mut words = words.split(|&byte| byte == 0);
        let serves = words.clone().any(|word| word == b"--background-process");
        (serves && words.any(|word| word == image.as_bytes())).then(|| Pid::from_raw(pid)).flatten()
    })
}
