//! Where the sockets of a mount are.
//!
//! `DIRECTORY/MAJOR:MINOR.socket`, and `MAJOR:MINOR.farewell.socket` for the news of its end, with the device number of the mount. Device
//! numbers are the same in all mount namespaces, and belong to one file system as long as it is mounted anywhere. The directory depends on
//! who serves the mount:
//!
//! | server | directory |
//! |---|---|
//! | root | `/run/basalt` |
//! | others | `$XDG_RUNTIME_DIR/basalt`; where that is not set, `/run/user/UID/basalt`; where that cannot be used, `/tmp/basalt-UID` |
//!
//! The directory has mode 0700 and belongs to the server. Sockets are reached through the directory's descriptor, so that what was checked
//! is what is used, and no path is too long for a socket.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::process::Uid;

/// The directories where `owner`'s sockets can be, the best first. `runtime` is `$XDG_RUNTIME_DIR`, if it is the owner's.
pub(crate) fn directories(owner: Uid, runtime: Option<PathBuf>) -> Vec<PathBuf> {
    if owner.is_root() {
        return vec!["/run/basalt".into()];
    }
    let number = owner.as_raw();
    let standard = PathBuf::from(format!("/run/user/{number}"));
    let mut found = Vec::new();
    if let Some(runtime) = runtime.filter(|path| path.is_absolute() && *path != standard) {
        found.push(runtime.join("basalt"));
    }
    found.push(standard.join("basalt"));
    found.push(format!("/tmp/basalt-{number}").into());
    found
}

/// The directories for sockets of this process's own user.
pub(crate) fn own_directories() -> Vec<PathBuf> {
    directories(rustix::process::geteuid(), std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
}

/// The name of a mount's socket.
pub(crate) fn name(device_number: &str) -> String {
    format!("{device_number}.socket")
}

/// The name of the socket that tells of a mount's end.
pub(crate) fn farewell_name(device_number: &str) -> String {
    format!("{device_number}.farewell.socket")
}

/// Opens a directory only to reach what is in it. It must belong to `owner`, and no other user may write to it.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] where there is none, and `PermissionDenied` if it belongs to another user.
pub(crate) fn open(directory: &Path, owner: Uid) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
    check(&rustix::fs::fstat(&opened)?, owner, Mode::WGRP | Mode::WOTH)?;
    Ok(opened)
}

/// Opens the directory where this process makes a socket, and makes it if need be: for the user of this process alone.
///
/// # Errors
/// When it cannot be made, or belongs to another user.
pub(crate) fn make(directory: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(directory, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, directory, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::LOOP => io::Error::other("not a directory"),
        errno => errno.into(),
    })?;
    let owner = rustix::process::geteuid();
    check(&rustix::fs::fstat(&opened)?, owner, Mode::empty())?;
    // Whoever made it may have left it open to others; it is this user's to close.
    rustix::fs::fchmod(&opened, Mode::RWXU)?;
    Ok(opened)
}

/// Checks the owner, and that none of these rights is set.
fn check(stat: &Stat, owner: Uid, excess: Mode) -> io::Result<()> {
    let denied = |what: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    if stat.st_uid != owner.as_raw() {
        return denied(format!("belongs to user {}, not to user {}", stat.st_uid, owner.as_raw()));
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(excess) {
        return denied("others can write to it".to_owned());
    }
    Ok(())
}

/// The address of a socket in an open directory. It has to stay open as long as the address is used.
///
/// # Errors
/// Where the name is too long, which no device number makes it.
pub(crate) fn address(directory: &OwnedFd, name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn texts(owner: u32, runtime: Option<&str>) -> Vec<String> {
        let found = directories(Uid::from_raw(owner), runtime.map(PathBuf::from));
        found.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn every_user_has_directories_of_their_own() {
        assert_eq!(texts(0, Some("/elsewhere")), ["/run/basalt"]);
        assert_eq!(texts(7, None), ["/run/user/7/basalt", "/tmp/basalt-7"]);
        assert_eq!(texts(7, Some("/run/user/7")), ["/run/user/7/basalt", "/tmp/basalt-7"]);
        assert_eq!(texts(7, Some("/x")), ["/x/basalt", "/run/user/7/basalt", "/tmp/basalt-7"]);
        assert_eq!(texts(7, Some("relative")), ["/run/user/7/basalt", "/tmp/basalt-7"]);
        assert_eq!(name("0:51"), "0:51.socket");
    }

    #[test]
    fn a_directory_is_made_for_its_owner_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("basalt");
        for _ in 0..2 {
            make(&path).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let me = rustix::process::geteuid();
        open(&path, me).unwrap();
        let other = Uid::from_raw(me.as_raw() + 1);
        assert_eq!(open(&path, other).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(open(&path, me).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn what_is_no_directory_of_ours_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().join("real");
        make(&real).unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let file = scratch.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [&link, &file, &scratch.path().join("missing/below")] {
            assert!(make(path).is_err(), "{}", path.display());
        }
        // Nobody's; only root can give it away.
        if std::os::unix::fs::chown(&real, Some(65534), None).is_ok() && rustix::process::geteuid().is_root() {
            let error = make(&real).unwrap_err();
            assert!(error.to_string().contains("user 65534"), "{error}");
        }
    }
}
