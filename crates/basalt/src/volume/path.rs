//! From a path to an inode. Paths begin at the volume's root, with or without a leading slash; symbolic links stay inside the
//! volume.

use basalt_vfs::{Error, FileKind, FileSystem};

use super::Reference;
use crate::failure::printable;

/// Symbolic links followed on one path before giving up, as Linux does.
const MAX_LINKS: u32 = 40;
/// Longest path taken from the volume, symbolic links substituted: Linux's PATH_MAX.
const MAX_PENDING: usize = 4096;

/// Why a path leads nowhere.
#[derive(Debug, thiserror::Error)]
#[error("volume:{}: {reason}", printable(.path))]
pub struct WalkError {
    /// The path as it was given.
    pub path: Vec<u8>,
    /// Why.
    pub reason: Reason,
}

/// What stopped the walk.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The file system's answer.
    #[error(transparent)]
    Refused(#[from] Error),
    /// Links to links, without end.
    #[error("too many levels of symbolic links")]
    TooManyLinks,
    /// The links substituted, the path is too long.
    #[error("path too long")]
    TooLong,
}

impl WalkError {
    /// Whether it is only the last name that is missing, or an earlier one: in both cases nothing is there.
    pub fn is_not_found(&self) -> bool {
        matches!(self.reason, Reason::Refused(Error::NotFound))
    }
}

/// Finds what `path` names. `follow` says whether a symbolic link at its very end is followed too.
///
/// # Errors
/// [`WalkError`] when it leads nowhere.
pub fn resolve<'a>(fs: &'a dyn FileSystem, path: &[u8], follow: bool) -> Result<Reference<'a>, WalkError> {
    walk(fs, path, follow).map_err(|reason| WalkError { path: path.to_vec(), reason })
}

/// Finds the directory of what `path` names, which need not exist, and its name there. `None` for the root, and for a path that
/// ends with `.` or `..`.
///
/// # Errors
/// [`WalkError`] when there is no such directory.
pub fn resolve_parent<'a, 'p>(
    fs: &'a dyn FileSystem,
    path: &'p [u8],
) -> Result<Option<(Reference<'a>, &'p [u8])>, WalkError> {
    let (directory, name) = split(path);
    if matches!(name, b"" | b"." | b"..") {
        return Ok(None);
    }
    Ok(Some((resolve(fs, directory, true)?, name)))
}

/// A path's directory and its last name; slashes at the end do not count.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let path = &path[..end];
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..=slash], &path[slash + 1..]),
        None => (b"/", path),
    }
}

fn walk<'a>(fs: &'a dyn FileSystem, path: &[u8], follow: bool) -> Result<Reference<'a>, Reason> {
    let mut at = Reference::root(fs)?;
    // The names still to go, the next one last.
    let mut pending = names(path);
    let must_be_directory = path.ends_with(b"/") && !pending.is_empty();
    let mut links = 0;
    while let Some(name) = pending.pop() {
        let next = at.lookup(&name)?;
        let last = pending.is_empty() && !follow && !must_be_directory;
        if next.attributes.kind != FileKind::Symlink || last {
            at = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Reason::TooManyLinks);
        }
        let target = fs.read_link(next.ino())?;
        if target.starts_with(b"/") {
            at = Reference::root(fs)?;
        }
        pending.extend(names(&target));
        if pending.iter().map(|name| name.len() + 1).sum::<usize>() > MAX_PENDING {
            return Err(Reason::TooLong);
        }
    }
    if must_be_directory && at.attributes.kind != FileKind::Directory {
        return Err(Error::NotDirectory.into());
    }
    Ok(at)
}

/// The names in a path, the first one last. `.` stays, so that `file/.` is refused.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
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
