//! A mount whose server was killed while the kernel still waits for it: nobody else is held up, and it can be ended.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use basalt_device::LoopDevice;
use basalt_device::file::left_behind_by;
use basalt_fuse::Connection;
use basalt_testkit::{limit, skip};
use rustix::fs::{Advice, FlockOperation, SeekFrom};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal};
use tempfile::TempDir;

use crate::fixture::{Volume, try_sh_as_nobody, wait_for};
use crate::support::{Finished, basalt, can_mount, mount_line, program, umount};

/// Far beyond what any command here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the program; it must end in time.
#[track_caller]
fn run(arguments: &[&str]) -> Finished {
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null());
    Finished(limit::output(&mut command, PATIENCE).expect("a command that is held up"))
}

/// Aborts the connection of a mount when dropped, whatever happened.
struct Guard(Connection);

impl Guard {
    fn of(point: &Path) -> Guard {
        let line = mount_line(point).expect("a mount");
        Guard(Connection::of(line.split(' ').nth(2).unwrap()).expect("its connection"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.abort();
    }
}

/// A mount that hangs. Its server is killed and not waited for, like one with a thread that cannot end; what that thread would keep
/// open is kept open here.
struct Hung {
    directory: TempDir,
    server: Child,
    /// The connection, and the lock of the image.
    kept: Vec<OwnedFd>,
    /// Has a file open there.
    user: Child,
    /// Over a file there.
    device: Option<LoopDevice>,
    guard: Option<Guard>,
}

impl Hung {
    /// `None`, and said so, where nothing can be mounted.
    fn new() -> Option<Hung> {
        if !can_mount() {
            return None;
        }
        let directory = basalt_testkit::scratch::directory().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (image, point) = (directory.path().join("image"), directory.path().join("mnt"));
        fs::create_dir(&point).unwrap();
        basalt(["mkfs", "-q", "--size", "64M", image.to_str().unwrap()]).ok();
        let mut serve = Command::new(program());
        serve.args(["mount", "--foreground"]).args([&image, &point]).stderr(Stdio::null());
        let server = serve.spawn().expect("starting the server");
        wait_for("the mount", || mount_line(&point).is_some() && watcher_of(&point).is_some());
        let guard = Guard::of(&point);
        fs::write(point.join("file"), vec![1; 1 << 20]).unwrap();
        rustix::fs::syncfs(File::open(&point).unwrap()).unwrap();
        let device = LoopDevice::attach(&point.join("file"), true).ok();
        let open = File::open(point.join("file")).unwrap();
        // Read from the server: the kernel then does not know the time of the last access, and whoever asks for that waits.
        rustix::fs::fadvise(&open, 0, None, Advice::DontNeed).unwrap();
        assert_eq!(std::io::copy(&mut &open, &mut std::io::sink()).unwrap(), 1 << 20);
        let user = Command::new("sleep").arg("1000").stdin(open).spawn().expect("sleep");
        let kept = descriptors(Pid::from_child(&server), &image);
        let hung = Hung { directory, server, kept, user, device, guard: Some(guard) };
        kill_process(watcher_of(&point).unwrap());
        wait_for("the end of the watcher", || watcher_of(&point).is_none());
        kill_process(Pid::from_child(&hung.server));
        wait_for("the end of the server", || left_behind_by(&hung.image()).is_some());
        Some(hung)
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    fn point(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    /// Who uses the mount lets go of it, as it can once the mount is dead.
    fn let_go(&mut self) {
        let _ = self.user.kill();
        let _ = self.user.wait();
    }

    /// The mount's files and what is left of the server go when the connection does. Here that is only what stands for the latter.
    fn end_once_aborted(&mut self) -> std::thread::JoinHandle<()> {
        let kept = std::mem::take(&mut self.kept);
        let root = self.point();
        std::thread::spawn(move || {
            // Answered from then on, with an error.
            let _ = fs::metadata(root.join("nothing"));
            drop(kept);
        })
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        drop(self.guard.take());
        self.kept.clear();
        self.let_go();
        self.device = None;
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = rustix::mount::unmount(self.point(), UnmountFlags::DETACH);
    }
}

fn kill_process(process: Pid) {
    rustix::process::kill_process(process, Signal::KILL).unwrap();
}

/// The process that watches over the server of a mount.
fn watcher_of(point: &Path) -> Option<Pid> {
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        let is_it = words[0] == b"basalt-watcher" && words.get(1) == Some(&point.as_os_str().as_encoded_bytes());
        if is_it { Pid::from_raw(number) } else { None }
    })
}

/// What a server has open of its image and of its connection.
fn descriptors(server: Pid, image: &Path) -> Vec<OwnedFd> {
    let process = rustix::process::pidfd_open(server, PidfdFlags::empty()).unwrap();
    let open = fs::read_dir(format!("/proc/{}/fd", server.as_raw_nonzero())).unwrap().flatten();
    let wanted = open
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|path| path == Path::new("/dev/fuse") || path == image));
    let numbers = wanted.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap());
    numbers.map(|fd| rustix::process::pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()).unwrap()).collect()
}

#[test]
fn others_are_not_held_up() {
    let Some(hung) = Hung::new() else { return };
    let other = hung.directory.path().join("other");
    let mnt = hung.directory.path().join("other-mnt");
    fs::create_dir(&mnt).unwrap();
    let (other, mnt) = (other.to_str().unwrap(), mnt.to_str().unwrap());
    run(&["mkfs", "-q", "--size", "64M", other]).ok();
    run(&["lab", "profile", "-q", "--seconds", "1", other]).ok();
    run(&["fsck", other]).ok();
    run(&["mount", other, mnt]).ok();
    run(&["fsck", other]).fails(8, &["in use", mnt]);
    run(&["umount", mnt]).ok();
    // Whoever has it is looked for among all that all processes have open.
    let held = File::open(other).unwrap();
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    run(&["lab", "profile", "-q", "--seconds", "1", "--wait", "0", other]).fails(1, &["in use", "process"]);
    run(&["mkfs", "-q", "--force", "--wait", "0", other]).fails(1, &["in use", "process"]);
    assert!(left_behind_by(&hung.image()).is_some(), "the mount has ended by itself");
}

#[test]
fn umount_ends_it() {
    let Some(mut hung) = Hung::new() else { return };
    let (image, point) = (hung.image(), hung.point());
    hung.device = None;
    hung.let_go();
    let ending = hung.end_once_aborted();
    run(&["umount", point.to_str().unwrap()]).fails(1, &["unmounted", "not closed cleanly", "ended without"]);
    limit::join(ending, PATIENCE);
    assert_eq!(mount_line(&point), None);
    hung.server.wait().unwrap();
    let mounted = run(&["mount", image.to_str().unwrap(), point.to_str().unwrap()]);
    assert!(mounted.code() == 0 && mounted.err().contains("not unmounted cleanly"), "{}", mounted.err());
    assert_eq!(fs::read(point.join("file")).unwrap(), vec![1; 1 << 20]);
    run(&["umount", point.to_str().unwrap()]).ok();
}

#[test]
fn mount_makes_it_an_ordinary_dead_mount() {
    for on_same_point in [true, false] {
        let Some(mut hung) = Hung::new() else { return };
        let (image, point) = (hung.image(), hung.point());
        let ending = hung.end_once_aborted();
        if on_same_point {
            let other = hung.directory.path().join("other");
            let other = other.to_str().unwrap();
            basalt(["mkfs", "-q", "--size", "64M", other]).ok();
            run(&["mount", other, point.to_str().unwrap()]).fails(32, &[point.to_str().unwrap(), "already"]);
        } else {
            let elsewhere = hung.directory.path().join("elsewhere");
            fs::create_dir(&elsewhere).unwrap();
            let words = ["in use", "mounted on", point.to_str().unwrap()];
            run(&["mount", image.to_str().unwrap(), elsewhere.to_str().unwrap()]).fails(32, &words);
        }
        limit::join(ending, PATIENCE);
        let answer = fs::metadata(point.join("file")).unwrap_err();
        assert_eq!(answer.raw_os_error(), Some(rustix::io::Errno::NOTCONN.raw_os_error()));
    }
}

#[test]
fn other_users_are_told_what_to_do() {
    if !skip::tools_or_skip(&["setpriv"]) {
        return;
    }
    let Some(hung) = Hung::new() else { return };
    let (ok, said) =
        try_sh_as_nobody(hung.directory.path(), &format!("{} umount {}", program(), hung.point().display()));
    assert!(!ok && said.lines().count() == 1, "{said}");
    for part in ["was killed", "basalt umount", "as root"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(mount_line(&hung.point()).is_some());
}

/// The kernel hands a file's pages over, one after the other, before the server says where its holes are; the server waits for that.
#[test]
fn a_server_killed_while_it_waits_for_the_kernel_leaves_no_mount_that_hangs() {
    let Some(volume) = Volume::new("256M") else { return };
    for round in 0..5 {
        // Outlives all that may hang.
        let guard = Guard::of(&volume.root());
        let file = File::create(volume.path("file")).unwrap();
        rustix::io::pwrite(&file, &vec![1; 48 << 20], 0).unwrap();
        let seeking = std::thread::spawn(move || rustix::fs::seek(&file, SeekFrom::Hole(0)));
        std::thread::sleep(Duration::from_millis(3 * round));
        volume.kill_server();
        let root = volume.root();
        let looking = std::thread::spawn(move || drop(fs::metadata(root.join("nothing"))));
        limit::join(looking, PATIENCE);
        // Answered or not.
        let _ = limit::join(seeking, PATIENCE);
        volume.clean_up();
        drop(guard);
        volume.mount();
    }
}

/// Whoever ends all processes of a session or a system does not cut off the server that is about to close the volume.
#[test]
fn a_watcher_that_is_told_to_end_aborts_nothing() {
    let Some(volume) = Volume::new("64M") else { return };
    let watcher = watcher_of(&volume.root()).expect("a watcher");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        rustix::process::kill_process(watcher, signal).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        fs::write(volume.path("file"), b"not lost").unwrap();
        assert_eq!(watcher_of(&volume.root()), Some(watcher), "{signal:?}");
    }
    volume.remount();
    assert_eq!(fs::read(volume.path("file")).unwrap(), b"not lost");
}

/// The watcher reads its arguments, among which the place is.
#[test]
fn a_mount_at_a_place_that_is_not_text_is_watched_too() {
    let Some(volume) = Volume::new("64M") else { return };
    let image = volume.outside("other");
    let point = image.with_file_name(OsStr::from_bytes(b"place-\xff"));
    fs::create_dir(&point).unwrap();
    let run = |word: &str, places: &[&Path]| {
        let mut command = Command::new(program());
        command.arg(word).args(places).stdin(Stdio::null());
        Finished(limit::output(&mut command, PATIENCE).expect("a command that is held up"))
    };
    basalt(["mkfs", "-q", "--size", "64M", image.to_str().unwrap()]).ok();
    run("mount", &[&image, &point]).ok();
    let watcher = watcher_of(&point);
    run("umount", &[&point]).ok();
    assert!(watcher.is_some());
}

/// An image on a FUSE mount that answers is looked for there.
#[test]
fn a_mount_of_an_image_within_a_mount_is_found() {
    let Some(volume) = Volume::new("256M") else { return };
    let (image, point) = (volume.path("inner"), volume.outside("inner-mnt"));
    fs::create_dir(&point).unwrap();
    let (inner, mnt) = (image.to_str().unwrap(), point.to_str().unwrap());
    run(&["mkfs", "-q", "--size", "64M", inner]).ok();
    run(&["mount", inner, mnt]).ok();
    let found = basalt_device::file::mounted_over(&image);
    run(&["umount", mnt]).ok();
    assert_eq!(found, Some(point));
}

/// Unmounting would wait in the kernel until the server goes on, whatever signals come.
#[test]
fn what_a_stopped_process_serves_is_not_unmounted() {
    let Some(volume) = Volume::new("64M") else { return };
    fs::write(volume.path("file"), b"not lost").unwrap();
    let server = volume.server().unwrap();
    rustix::process::kill_process(server, Signal::STOP).unwrap();
    let said = umount(&volume.root());
    rustix::process::kill_process(server, Signal::CONT).unwrap();
    said.fails(1, &["is stopped", "kill -CONT"]);
    assert!(volume.is_mounted());
    volume.remount();
    assert_eq!(fs::read(volume.path("file")).unwrap(), b"not lost");
}
