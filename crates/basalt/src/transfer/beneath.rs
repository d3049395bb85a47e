//! Opens names in a directory of the host. A user who may change that directory cannot lead the caller elsewhere.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};

/// Opens `name` in `directory`: that very thing, never what a symbolic link there leads to. `flags` may have `O_PATH`, which
/// opens links themselves.
///
/// openat2(2) makes the kernel hold this for whatever the name looks like; kernels before 5.6, and sandboxes, do not have it.
///
/// # Errors
/// `ELOOP` or `ENOTDIR` where a symbolic link is, `EXDEV` or `EINVAL` for what is no plain name.
pub(super) fn open(directory: impl AsFd, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let directory = directory.as_fd();
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
        return Err(Errno::INVAL);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(directory, name, flags, mode, resolve) {
            // Something was renamed meanwhile.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Some sandboxes answer a call that they do not know with EPERM. Where that is the answer for this file, openat says so too.
            Err(Errno::NOSYS | Errno::PERM) => return open_plain(directory, name, flags, mode),
            opened => return opened,
        }
    }
}

/// The same without openat2(2): a name without slashes that is not followed leads nowhere else.
fn open_plain(directory: BorrowedFd<'_>, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    rustix::fs::openat(directory, name, flags, mode)
}

/// Opens what is at `names` below `directory`, each in the one before, and the last one only to refer to it.
///
/// # Errors
/// As [`open`].
pub(super) fn open_path<'a>(directory: &OwnedFd, names: impl Iterator<Item = &'a [u8]>) -> Result<OwnedFd> {
    let mut at = None;
    for name in names {
        let parent = at.as_ref().unwrap_or(directory);
        at = Some(open(parent, name, OFlags::PATH, Mode::empty())?);
    }
    at.ok_or(Errno::INVAL)
}

/// Gives what `file` refers to, whatever it is, one more name.
///
/// # Errors
/// As linkat(2).
pub(super) fn link(file: &OwnedFd, directory: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    // Before Linux 6.10, a descriptor alone is enough only for a user who may search every directory.
    match rustix::fs::linkat(file, c"", directory, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT | Errno::PERM) => {
            rustix::fs::linkat(CWD, proc_path(file), directory, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

/// A path that leads to what a descriptor refers to and nothing else, for calls that take no such descriptor. The calls have to
/// follow it, and stop there, even at a symbolic link.
pub(super) fn proc_path(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// By what one file is told from another.
pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    #[allow(clippy::useless_conversion, reason = "not 64 bits wide on every machine")]
    (u64::from(stat.st_dev), u64::from(stat.st_ino))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    const NEVER_FOLLOW: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

    #[test]
    fn links_are_not_followed_and_paths_are_no_names() {
        let scratch = tempfile::tempdir().unwrap();
        let inside = scratch.path().join("inside");
        fs::create_dir_all(inside.join("dir")).unwrap();
        fs::write(scratch.path().join("outside"), "").unwrap();
        symlink("../outside", inside.join("link")).unwrap();
        symlink("dir", inside.join("near")).unwrap();
        let directory = File::open(&inside).unwrap();
        for name in ["..", ".", "", "../outside", "dir/..", "/etc"] {
            let opened = open(&directory, name.as_bytes(), OFlags::PATH, Mode::empty());
            assert_eq!(opened.unwrap_err(), Errno::INVAL, "{name}");
        }
        for name in [&b"link"[..], b"near"] {
            let mode = Mode::RUSR;
            assert_eq!(open(&directory, name, OFlags::RDONLY, Mode::empty()).unwrap_err(), Errno::LOOP);
            assert!(open(&directory, name, OFlags::WRONLY | OFlags::CREATE, mode).is_err());
            let plain = open_plain(directory.as_fd(), name, OFlags::RDONLY | NEVER_FOLLOW, Mode::empty());
            assert_eq!(plain.unwrap_err(), Errno::LOOP);
        }
        let link = open(&directory, b"link", OFlags::PATH, Mode::empty()).unwrap();
        assert_eq!(rustix::fs::readlinkat(&link, c"", Vec::new()).unwrap().to_bytes(), b"../outside");
        let names = |path: &'static str| path.split('/').map(str::as_bytes);
        let inside = OwnedFd::from(directory);
        open_path(&inside, names("dir")).unwrap();
        assert!(open_path(&inside, names("near/x")).is_err());
        assert!(open_path(&inside, names("dir/../link")).is_err());
    }
}
