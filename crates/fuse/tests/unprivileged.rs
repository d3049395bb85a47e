//! Mounting without root, by `fusermount3`. Root runs the test again as an unprivileged user.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use basalt_fuse::{MountError, MountOptions, Session, UnmountError};
use basalt_testkit::limit;
use basalt_vfs::{FileSystem, SetAttributes};
use support::memory::{MemoryFs, ROOT};

/// Set in the run without root.
const INNER: &str = "BASALT_TEST_UNPRIVILEGED_DIR";

/// Whether an unprivileged user may mount here.
fn obstacle() -> Option<String> {
    let Ok(device) = fs::metadata("/dev/fuse") else { return Some("/dev/fuse is missing".to_owned()) };
    if device.permissions().mode() & 0o006 != 0o006 {
        return Some("/dev/fuse is closed to others".to_owned());
    }
    let helper = ["/usr/bin/fusermount3", "/bin/fusermount3"].into_iter().find_map(|path| fs::metadata(path).ok());
    match helper {
        None => Some("fusermount3 is not installed".to_owned()),
        Some(helper) if helper.permissions().mode() & 0o4000 == 0 => Some("fusermount3 is not set-uid".to_owned()),
        Some(_) => None,
    }
}

#[test]
fn an_unprivileged_user_mounts_and_unmounts() {
    if let Ok(dir) = std::env::var(INNER) {
        return inner(Path::new(&dir));
    }
    if let Some(why) = obstacle() {
        return println!("skipped: {why}");
    }
    if !rustix::process::geteuid().is_root() {
        return inner(tempfile::tempdir().unwrap().path());
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    // Where this binary is, the user may not look: a copy goes beside the mount point.
    let program = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempfile().unwrap();
    let program = program.into_temp_path();
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let status = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["--exact", "an_unprivileged_user_mounts_and_unmounts", "--nocapture"])
        .env(INNER, dir.path())
        .status();
    match status {
        Err(error) => println!("skipped: setpriv: {error}"),
        Ok(status) => assert!(status.success()),
    }
}

fn inner(dir: &Path) {
    let fs = Arc::new(MemoryFs::new());
    let owner = SetAttributes {
        uid: Some(rustix::process::geteuid().as_raw()),
        gid: Some(rustix::process::getegid().as_raw()),
        ..Default::default()
    };
    fs.set_attributes(ROOT, &owner).unwrap();
    let options = MountOptions { block_device: Some("/dev/loop0".into()), ..MountOptions::new(dir, "x") };
    assert!(matches!(Session::mount(fs.clone(), &options), Err(MountError::NeedsRoot(_))));
    let session = Session::mount(fs.clone(), &MountOptions::new(dir, "a,b")).unwrap();
    let unmounter = session.unmounter();
    let server = std::thread::spawn(move || session.run());
    fs::write(dir.join("file"), b"content").unwrap();
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"content");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(table.lines().any(|line| line.contains("fuse.basalt a,b ")), "{table}");
    let open = fs::File::open(dir.join("file")).unwrap();
    assert!(matches!(unmounter.unmount(), Err(UnmountError::Busy(_))));
    drop(open);
    unmounter.unmount().unwrap();
    limit::join(server, limit::SHORT).unwrap();
    assert_eq!(fs.calls.closes.load(SeqCst), 1);
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
}
