//! From a path to an inode.
//!
//! Source: path_resolution(7), and the kernel's `fs/namei.c` where that leaves a case open.

use std::collections::HashSet;

use super::error::{PathError, Result};
use super::{Reference, SharedFs};
use crate::error::Error;
use crate::fs::FileSystem;
use crate::types::FileKind;

/// Symbolic links followed on one path before giving up, as Linux does (`MAXSYMLINKS`).
pub(super) const MAX_LINKS: u32 = 40;
/// Longest path in bytes: Linux's `PATH_MAX` without the zero byte at its end.
const PATH_MAX: usize = 4095;

/// Finds what `path` names. `follow` says whether a symbolic link at its very end is followed too; with a slash behind it, it always is.
///
/// # Errors
/// Those of stat(2): [`Error::NotFound`], also for an empty path, [`Error::NotDirectory`], [`Error::TooManySymlinks`] after 40 links,
/// [`Error::PathTooLong`] over 4095 bytes, [`Error::Invalid`] for a zero byte, and those of [`FileSystem::lookup`].
pub fn resolve<F: SharedFs>(fs: &F, path: &[u8], follow: bool) -> Result<Reference<F>> {
    let found = Place::of(fs, path).and_then(|place| place.find(follow));
    found.map_err(|reason| PathError::new(path, reason))
}

/// Finds the directory of what `path` names, which need not exist, and its name there. `None` for the root, and for a path that
/// ends with `.` or `..`. A symbolic link at the very end is not followed.
///
/// # Errors
/// Those of [`resolve`], for the directory.
pub fn resolve_parent<'p, F: SharedFs>(fs: &F, path: &'p [u8]) -> Result<Option<(Reference<F>, &'p [u8])>> {
    let (_, name) = split(path);
    let place = Place::of(fs, path).map_err(|reason| PathError::new(path, reason))?;
    Ok(place.is_normal().then_some((place.directory, name)))
}

/// A path's directory and its last name; slashes at the end do not count. The name is empty for the root.
///
/// ```
/// use basalt_vfs::path::split;
///
/// assert_eq!(split(b"/etc/hostname"), (&b"/etc/"[..], &b"hostname"[..]));
/// assert_eq!(split(b"a//"), (&b"/"[..], &b"a"[..]));
/// assert_eq!(split(b"/"), (&b"/"[..], &b""[..]));
/// ```
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let path = &path[..end];
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..=slash], &path[slash + 1..]),
        None => (b"/", path),
    }
}

/// Where a path leads, up to its last name: nothing need be there.
pub(super) struct Place<F: SharedFs> {
    /// The directory of the last name.
    pub(super) directory: Reference<F>,
    /// The last name; empty for the root.
    pub(super) name: Vec<u8>,
    /// Whether a slash follows the last name: only a directory can be meant.
    pub(super) slash: bool,
    /// Symbolic links followed so far.
    links: u32,
}

impl<F: SharedFs> Place<F> {
    /// The place of `path`; symbolic links are followed everywhere but at its end.
    pub(super) fn of(fs: &F, path: &[u8]) -> crate::Result<Place<F>> {
        check(path)?;
        Place::walk(Reference::root(fs)?, path, false, 0)
    }

    /// Walks from `at` along `path`, all names but the last.
    fn walk(mut at: Reference<F>, path: &[u8], slash: bool, mut links: u32) -> crate::Result<Place<F>> {
        // The names still to go, the next one last.
        let mut pending = names(path);
        let slash = slash || path.ends_with(b"/");
        while let Some(name) = pending.pop() {
            expect_directory(&at)?;
            if pending.is_empty() {
                return Ok(Place { directory: at, name, slash, links });
            }
            let next = step(&at, &name)?;
            if next.kind() != FileKind::Symlink {
                at = next;
                continue;
            }
            let target = target_of(&next, &mut links)?;
            if target.starts_with(b"/") {
                at = Reference::root(at.fs())?;
            }
            pending.extend(names(&target));
        }
        // A path of slashes only, or a link to one.
        Ok(Place { directory: at, name: Vec::new(), slash, links })
    }

    /// Where the symbolic link `link` leads that is at this place.
    pub(super) fn follow(self, link: &Reference<F>) -> crate::Result<Place<F>> {
        let mut links = self.links;
        let target = target_of(link, &mut links)?;
        let start = if target.starts_with(b"/") { Reference::root(self.directory.fs())? } else { self.directory };
        Place::walk(start, &target, self.slash, links)
    }

    /// Whether the last name is one that can be made and removed: not the root, `.` or `..`.
    pub(super) fn is_normal(&self) -> bool {
        !matches!(self.name.as_slice(), b"" | b"." | b"..")
    }

    /// Whether rmdir(2) takes the last name at all.
    pub(super) fn expect_removable(&self) -> crate::Result<()> {
        match self.name.as_slice() {
            b"" => Err(Error::Busy),
            b"." => Err(Error::Invalid("`.` cannot be removed")),
            b".." => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    /// What is at this place, symbolic links not followed.
    pub(super) fn lookup(&self) -> crate::Result<Reference<F>> {
        match self.name.as_slice() {
            b"" => Reference::root(self.directory.fs()),
            name => step(&self.directory, name),
        }
    }

    /// Whether something is at this place; fails where nothing can be, as with a name that is too long.
    pub(super) fn is_taken(&self) -> crate::Result<bool> {
        match self.lookup() {
            Ok(_) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether what is at this place is a directory that the other place lies in; no if that cannot be told.
    pub(super) fn is_above(&self, other: &Place<F>) -> bool {
        let (Ok(above), Ok(mut at)) = (self.lookup(), other.directory.lookup(b".")) else { return false };
        // A damaged volume may lead up in a circle.
        let mut seen = HashSet::new();
        while at.ino() != above.ino() {
            if at.ino() == at.fs().root() || !seen.insert(at.ino()) {
                return false;
            }
            let Ok(parent) = at.lookup(b"..") else { return false };
            at = parent;
        }
        true
    }

    /// What the whole path names.
    fn find(mut self, follow: bool) -> crate::Result<Reference<F>> {
        loop {
            let found = self.lookup()?;
            if found.kind() == FileKind::Symlink && (follow || self.slash) {
                self = self.follow(&found)?;
                continue;
            }
            if self.slash {
                expect_directory(&found)?;
            }
            return Ok(found);
        }
    }
}

/// Whether a path can name anything.
pub(super) fn check(path: &[u8]) -> crate::Result<()> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    if path.contains(&0) {
        return Err(Error::Invalid("a path has no zero byte"));
    }
    if path.len() > PATH_MAX { Err(Error::PathTooLong) } else { Ok(()) }
}

/// One name further; `..` of the root is the root.
fn step<F: SharedFs>(at: &Reference<F>, name: &[u8]) -> crate::Result<Reference<F>> {
    if name == b".." && at.ino() == at.fs().root() {
        return Reference::root(at.fs());
    }
    at.lookup(name)
}

pub(super) fn expect_directory<F: SharedFs>(found: &Reference<F>) -> crate::Result<()> {
    if found.kind() == FileKind::Directory { Ok(()) } else { Err(Error::NotDirectory) }
}

/// The target of one more symbolic link on a path.
fn target_of<F: SharedFs>(link: &Reference<F>, links: &mut u32) -> crate::Result<Vec<u8>> {
    *links += 1;
    if *links > MAX_LINKS {
        return Err(Error::TooManySymlinks);
    }
    let target = link.fs().read_link(link.ino())?;
    if target.is_empty() { Err(Error::NotFound) } else { Ok(target) }
}

/// The names in a path, the first one last. `.` stays, so that `file/.` is refused.
pub(super) fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting() {
        for (path, directory, name) in [
            ("/a/b", "/a/", "b"),
            ("a", "/", "a"),
            ("/a", "/", "a"),
            ("a/b//", "a/", "b"),
            ("/", "/", ""),
            ("", "/", ""),
            ("a/..", "a/", ".."),
        ] {
            assert_eq!(split(path.as_bytes()), (directory.as_bytes(), name.as_bytes()), "{path}");
        }
    }
}
