//! The one path of a file without links, dots and needless slashes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::files::bytes;
use super::resolve::names;
use super::{Files, PathError, Reference, Result, SharedFs};
use crate::error::Error;
use crate::fs::FileSystem;
use crate::types::FileKind;

impl<F: SharedFs> Files<F> {
    /// The path of what `path` names from the volume's root: absolute, with no symbolic links, no `.` and no `..`.
    ///
    /// # Errors
    /// Those of [`metadata`](Self::metadata).
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        // Whatever is wrong with the path is told by the only resolver; it also bounds the links below.
        let found = self.lookup(path, true)?;
        let walked = self.walk(bytes(path)).and_then(|(way, end)| match end == found.ino() {
            true => Ok(way),
            // Another thread has renamed something on the way.
            false => Err(Error::NotFound),
        });
        walked.map_err(|reason| PathError { path: path.into(), reason })
    }

    /// Walks along a path that leads somewhere; the names on the way there from the root, and the inode at its end.
    fn walk(&self, path: &[u8]) -> crate::Result<(PathBuf, u64)> {
        let root = Reference::root(self.file_system())?;
        let mut way: Vec<(Vec<u8>, Reference<F>)> = Vec::new();
        let mut pending = names(path);
        // Another thread may make a circle of links meanwhile.
        let mut links = 0;
        while let Some(name) = pending.pop() {
            let at = way.last().map_or(&root, |(_, at)| at);
            match name.as_slice() {
                b"." => continue,
                b".." => {
                    way.pop();
                    continue;
                }
                _ => {}
            }
            let next = at.lookup(&name)?;
            if next.kind() != FileKind::Symlink {
                way.push((name, next));
                continue;
            }
            links += 1;
            if links > super::resolve::MAX_LINKS {
                return Err(Error::TooManySymlinks);
            }
            let target = self.file_system().read_link(next.ino())?;
            if target.starts_with(b"/") {
                way.clear();
            }
            pending.extend(names(&target));
        }
        let end = way.last().map_or(root.ino(), |(_, at)| at.ino());
        let mut path = PathBuf::from("/");
        path.extend(way.iter().map(|(name, _)| OsStr::from_bytes(name)));
        Ok((path, end))
    }
}
