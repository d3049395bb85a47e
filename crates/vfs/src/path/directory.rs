//! Directories: listing them; making and removing whole trees.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{PathError, Result};

use super::resolve::expect_directory;
use super::{Entries, Entry, Files, Reference, SharedFs};
use crate::error::Error;
use crate::fs::FileSystem;
use crate::types::{Attributes, FileKind, InodeNumber};

/// A directory that is being listed.
#[derive(Debug)]
struct Listed<F: SharedFs> {
    inode: Reference<F>,
    path: PathBuf,
}

/// The entries of a directory but `.` and `..`, in the directory's order; from [`Files::read_dir`].
#[derive(Debug)]
pub struct ReadDir<F: SharedFs> {
    directory: Arc<Listed<F>>,
    entries: Entries<F>,
}

/// One name in a directory.
#[derive(Debug)]
pub struct DirEntry<F: SharedFs> {
    directory: Arc<Listed<F>>,
    name: OsString,
    ino: InodeNumber,
    kind: FileKind,
}

impl<F: SharedFs> Iterator for ReadDir<F> {
    type Item = Result<DirEntry<F>>;

    fn next(&mut self) -> Option<Result<DirEntry<F>>> {
        let entry = self.entries.next()?;
        Some(match entry {
            Ok(entry) => Ok(DirEntry {
                directory: Arc::clone(&self.directory),
                name: OsString::from_vec(entry.name),
                ino: entry.ino,
                kind: entry.kind,
            }),
            Err(reason) => Err(PathError { path: self.directory.path.clone(), reason }),
        })
    }
}

impl<F: SharedFs> DirEntry<F> {
    /// The name.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The directory's path as it was given, with the name behind it.
    pub fn path(&self) -> PathBuf {
        self.directory.path.join(&self.name)
    }

    /// What it is, as the directory says; symbolic links are not followed.
    pub fn file_type(&self) -> FileKind {
        self.kind
    }

    /// The inode number.
    pub fn ino(&self) -> InodeNumber {
        self.ino
    }

    /// The attributes of what has the name now; symbolic links are not followed.
    ///
    /// # Errors
    /// Those of [`FileSystem::lookup`].
    pub fn metadata(&self) -> Result<Attributes> {
        let found = self.directory.inode.lookup(self.name.as_bytes());
        found.map(|found| found.attributes).map_err(|reason| PathError { path: self.path(), reason })
    }
}

/// A directory whose entries are being removed.
struct Level<F: SharedFs> {
    inode: Reference<F>,
    /// Its name in the level above.
    name: Vec<u8>,
    entries: Entries<F>,
}

impl<F: SharedFs> Level<F> {
    fn new(inode: Reference<F>, name: Vec<u8>) -> Level<F> {
        let entries = Entries::new(inode.fs(), inode.ino());
        Level { inode, name, entries }
    }
}

impl<F: SharedFs> Files<F> {
    /// The entries of a directory.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], and those of [`resolve`](super::resolve).
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir<F>> {
        let path = path.as_ref().to_owned();
        let inode = self.lookup(&path, true)?;
        if let Err(reason) = expect_directory(&inode) {
            return Err(PathError { path, reason });
        }
        let entries = Entries::new(self.file_system(), inode.ino());
        Ok(ReadDir { directory: Arc::new(Listed { inode, path }), entries })
    }

    /// Makes a directory, and those above it that are missing. One that is there already is no error.
    ///
    /// # Errors
    /// Those of [`create_dir`](Self::create_dir), also when something else has one of the names.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut missing = Vec::new();
        // From the longest path up, until one can be made or is there.
        for directory in path.ancestors().take_while(|directory| !directory.as_os_str().is_empty()) {
            match self.create_dir(directory) {
                Err(error) if error.is_not_found() => missing.push(directory),
                made => {
                    self.unless_directory(directory, made)?;
                    break;
                }
            }
        }
        missing.into_iter().rev().try_for_each(|directory| {
            let made = self.create_dir(directory);
            self.unless_directory(directory, made)
        })
    }

    /// Drops the error of a directory that could not be made where there is one.
    fn unless_directory(&self, path: &Path, made: Result<()>) -> Result<()> {
        match made {
            Err(error) if self.metadata(path).is_ok_and(|found| found.kind == FileKind::Directory) => {
                drop(error);
                Ok(())
            }
            made => made,
        }
    }

    /// Removes a directory with everything in it. Symbolic links are removed, never followed; `path` may be one itself. What others remove
    /// meanwhile is no error, as long as `path` is there at first.
    ///
    /// # Errors
    /// [`Error::NotDirectory`] for a file, [`Error::Busy`] for the root, and what stops it on the way, with the path of that; what was
    /// removed until then stays removed. [`Error::Corrupted`] for a directory that contains itself.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (parent, top) = self.at(path, |place| {
            place.expect_removable()?;
            let found = place.lookup()?;
            if found.kind() == FileKind::Symlink && !place.slash {
                self.file_system().unlink(place.directory.ino(), &place.name)?;
                return Ok((place.directory, None));
            }
            expect_directory(&found)?;
            Ok((place.directory, Some(Level::new(found, place.name))))
        })?;
        let Some(top) = top else { return Ok(()) };
        // Directories from the top down to the one that is being emptied: a deep tree needs no deep stack.
        let mut levels = vec![top];
        remove_levels(&parent, &mut levels).map_err(|(name, reason)| {
            let mut path = path.to_owned();
            path.extend(levels.iter().skip(1).map(|level| OsStr::from_bytes(&level.name)));
            path.extend(name.as_deref().map(OsStr::from_bytes));
            PathError { path, reason }
        })
    }
}

/// Empties and removes the last level, then those above it. An error comes with the name in the last level that is left.
fn remove_levels<F: SharedFs>(
    parent: &Reference<F>,
    levels: &mut Vec<Level<F>>,
) -> std::result::Result<(), (Option<Vec<u8>>, Error)> {
    let mut seen: HashSet<InodeNumber> = levels.iter().map(|level| level.inode.ino()).collect();
    while let Some(level) = levels.last_mut() {
        match level.entries.next() {
            Some(Ok(entry)) => match remove_entry(&level.inode, &entry, &seen) {
                Ok(None) => {}
                Ok(Some(below)) => {
                    seen.insert(below.ino());
                    levels.push(Level::new(below, entry.name));
                }
                Err(error) => return Err((Some(entry.name), error)),
            },
            // Another thread has removed it.
            Some(Err(Error::NotFound)) => {}
            Some(Err(error)) => return Err((None, error)),
            None => {
                let above = levels.len().checked_sub(2).map_or(parent, |above| &levels[above].inode);
                let level = &levels[levels.len() - 1];
                match above.fs().remove_directory(above.ino(), &level.name) {
                    // Another thread was faster.
                    Ok(()) | Err(Error::NotFound) => {}
                    Err(error) => return Err((None, error)),
                }
                seen.remove(&level.inode.ino());
                levels.pop();
            }
        }
    }
    Ok(())
}

/// Removes an entry; a directory is returned instead, to be emptied first.
fn remove_entry<F: SharedFs>(
    directory: &Reference<F>,
    entry: &Entry,
    above: &HashSet<InodeNumber>,
) -> crate::Result<Option<Reference<F>>> {
    let removed = match entry.kind {
        FileKind::Directory => directory.lookup(&entry.name).map(Some),
        _ => directory.fs().unlink(directory.ino(), &entry.name).map(|()| None),
    };
    let below = match removed {
        // Another thread has removed it.
        Err(Error::NotFound) => return Ok(None),
        removed => removed?,
    };
    if below.as_ref().is_some_and(|below| above.contains(&below.ino())) {
        return Err(Error::Corrupted("a directory contains itself".to_owned()));
    }
    Ok(below)
}
