//! The operations of `std::fs`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::error::{PathError, Result};
use super::resolve::{Place, check, resolve};
use super::{File, FileOptions, Reference, SharedFs};
use crate::error::Error;
use crate::fs::FileSystem;
use crate::types::{Attributes, Caller, FileKind, NewNode, RenameFlags, SetAttributes};

/// Most bytes read at a time.
const CHUNK: usize = 1 << 20;
/// What new files lack by default, as for most users of Linux.
const UMASK: u32 = 0o022;

/// The files of a file system by path: see the [module](super).
///
/// Every method names the path in its [`PathError`]; errors without a list of their own are those of the system call behind the
/// function of `std::fs` of the same name.
#[derive(Debug, Clone)]
pub struct Files<F> {
    fs: F,
    caller: Caller,
}

impl<F: SharedFs> Files<F> {
    /// The files of `fs`: a `&dyn FileSystem`, a `&F2fs`, an `Arc<F2fs>`. New files belong to user and group 0; the umask is 0o022.
    pub fn new(fs: F) -> Files<F> {
        Files { fs, caller: Caller { uid: 0, gid: 0, umask: UMASK } }
    }

    /// Makes new files as this caller: its user, group and umask. What it may do is not checked.
    #[must_use]
    pub fn with_caller(self, caller: Caller) -> Files<F> {
        Files { caller, ..self }
    }

    /// The file system.
    pub fn file_system(&self) -> &F {
        &self.fs
    }

    /// Finds what `path` names. `follow` says whether a symbolic link at its very end is followed too.
    ///
    /// # Errors
    /// See [`resolve`](super::resolve).
    pub fn lookup(&self, path: impl AsRef<Path>, follow: bool) -> Result<Reference<F>> {
        resolve(&self.fs, bytes(path.as_ref()), follow)
    }

    /// The attributes of what `path` names, symbolic links followed.
    ///
    /// # Errors
    /// See [`resolve`](super::resolve).
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Attributes> {
        Ok(self.lookup(path, true)?.attributes)
    }

    /// The attributes of what `path` names; of a symbolic link at its end those of the link.
    ///
    /// # Errors
    /// See [`resolve`](super::resolve).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Attributes> {
        Ok(self.lookup(path, false)?.attributes)
    }

    /// Whether `path` names something, symbolic links followed.
    ///
    /// # Errors
    /// Those of [`metadata`](Self::metadata) but [`Error::NotFound`].
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a file to read it.
    ///
    /// # Errors
    /// See [`open_with`](Self::open_with).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File<F>> {
        self.open_with(path, &FileOptions::new().read(true))
    }

    /// Opens a file to write it; makes it if it does not exist, else empties it.
    ///
    /// # Errors
    /// See [`open_with`](Self::open_with).
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File<F>> {
        self.open_with(path, &FileOptions::new().write(true).create(true).truncate(true))
    }

    /// Makes a file, which must not exist, and opens it to read and write.
    ///
    /// # Errors
    /// [`Error::Exists`], and those of [`open_with`](Self::open_with).
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File<F>> {
        self.open_with(path, &FileOptions::new().read(true).write(true).create_new(true))
    }

    /// Opens a file as `options` say. A directory can be opened too, to be made durable.
    ///
    /// # Errors
    /// Those of open(2); [`Error::Invalid`] for options that contradict each other, [`Error::NotSupported`] for a device, FIFO or socket.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &FileOptions) -> Result<File<F>> {
        let path = path.as_ref();
        let opened = self.find_to_open(path, options).and_then(|(inode, is_new)| {
            // An empty file needs no truncation; flags that a directory hands down may forbid it.
            let options = FileOptions { truncate: options.truncate && !is_new, ..*options };
            File::new(inode, path, options, self.caller.uid != 0)
        });
        opened.map_err(named(path))
    }

    /// The inode to open, and whether it was made.
    fn find_to_open(&self, path: &Path, options: &FileOptions) -> crate::Result<(Reference<F>, bool)> {
        options.check()?;
        let mut place = Place::of(&self.fs, bytes(path))?;
        let found = loop {
            if options.creates() && place.slash && place.is_normal() {
                return Err(Error::IsDirectory);
            }
            let found = match place.lookup() {
                Err(Error::NotFound) if options.creates() && place.is_normal() => {
                    match self.make(&place, FileKind::Regular, options.mode, b"") {
                        Ok(made) => return Ok((made, true)),
                        // Another thread was faster.
                        Err(Error::Exists) if !options.create_new => continue,
                        Err(error) => return Err(error),
                    }
                }
                found => found?,
            };
            if options.create_new {
                return Err(Error::Exists);
            }
            if found.kind() != FileKind::Symlink {
                break found;
            }
            place = place.follow(&found)?;
        };
        match found.kind() {
            FileKind::Directory if options.writes() => Err(Error::IsDirectory),
            FileKind::Directory => Ok((found, false)),
            _ if place.slash => Err(Error::NotDirectory),
            FileKind::Regular => Ok((found, false)),
            _ => Err(Error::NotSupported("opening a device, FIFO or socket by path")),
        }
    }

    /// The whole content of a file. Holes are read as zeros and take memory like data, and a file's size says nothing about the space that it
    /// has on the volume: one that somebody else has made can be larger than all memory. To take less, [`open`](Self::open) such a file,
    /// look at its [`metadata`](File::metadata), and read it in pieces; [`FileSystem::seek`] finds what is no hole.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where there is not enough memory; else see [`open_with`](Self::open_with).
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open(path)?;
        let size = usize::try_from(file.metadata()?.size).unwrap_or(usize::MAX);
        let mut content = Vec::new();
        let too_large = |_| file.error(Error::OutOfMemory);
        // At first, so that what does not fit is refused before it is read.
        content.try_reserve_exact(size.saturating_add(1)).map_err(too_large)?;
        loop {
            let done = content.len();
            // One byte more than the size says: a read that comes back short is the last one.
            let length = size.saturating_sub(done).saturating_add(1).min(CHUNK);
            // The file may grow meanwhile.
            content.try_reserve(length).map_err(too_large)?;
            content.resize(done + length, 0);
            let read = file.read_at(&mut content[done..], done as u64)?;
            content.truncate(done + read);
            if read < length {
                return Ok(content);
            }
        }
    }

    /// The whole content of a file that is UTF-8 text. As [`read`](Self::read), it takes as much memory as the file has bytes, holes included.
    ///
    /// # Errors
    /// [`Error::NotText`] for other bytes; else those of [`read`](Self::read).
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        let text = String::from_utf8(self.read(path)?);
        text.map_err(|_| named(path)(Error::NotText))
    }

    /// Makes `content` the whole content of a file, which is made if it does not exist.
    ///
    /// # Errors
    /// See [`open_with`](Self::open_with).
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let file = self.create(path)?;
        let mut rest = content.as_ref();
        while !rest.is_empty() {
            let written = file.write_some(rest)?;
            rest = &rest[written..];
        }
        Ok(())
    }

    /// Makes an empty directory.
    ///
    /// # Errors
    /// Those of mkdir(2); [`Error::Exists`] whatever has the name.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), |place| {
            expect_new(&place, true)?;
            self.make(&place, FileKind::Directory, 0o777, b"").map(|_| ())
        })
    }

    /// Makes a symbolic link at `link` that holds `target`, which need not exist.
    ///
    /// # Errors
    /// Those of symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (target, link) = (bytes(target.as_ref()), link.as_ref());
        // As the kernel: before it looks at the link's path.
        check(target).map_err(named(link))?;
        self.at(link, |place| {
            expect_new(&place, false)?;
            self.make(&place, FileKind::Symlink, 0o777, target).map(|_| ())
        })
    }

    /// Gives the file `original` one more name, `link`. A symbolic link at the end of `original` is not followed.
    ///
    /// # Errors
    /// Those of link(2); [`Error::NotPermitted`] for a directory.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let inode = self.lookup(original, false)?;
        self.at(link.as_ref(), |place| {
            expect_new(&place, false)?;
            if place.is_taken()? {
                return Err(Error::Exists);
            }
            if inode.kind() == FileKind::Directory {
                return Err(Error::NotPermitted("a directory has one name only"));
            }
            let linked = self.fs.link(inode.ino(), place.directory.ino(), &place.name)?;
            drop(Reference::new(&self.fs, linked));
            Ok(())
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Those of readlink(2); [`Error::Invalid`] for anything else than a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let link = self.lookup(path, false)?;
        let target = match link.kind() {
            FileKind::Symlink => self.fs.read_link(link.ino()),
            _ => Err(Error::Invalid("not a symbolic link")),
        };
        let target = target.map_err(named(path))?;
        Ok(OsString::from_vec(target).into())
    }

    /// Renames atomically; replaces a file at `to`, or an empty directory by a directory.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let old = Place::of(&self.fs, bytes(from)).map_err(named(from))?;
        let new = Place::of(&self.fs, bytes(to)).map_err(named(to))?;
        for (place, path) in [(&old, from), (&new, to)] {
            if !place.is_normal() {
                return Err(named(path)(Error::Busy));
            }
        }
        let is_directory = old.lookup().map_err(named(from))?.kind() == FileKind::Directory;
        new.is_taken().map_err(named(to))?;
        for (place, path) in [(&old, from), (&new, to)] {
            if place.slash && !is_directory {
                return Err(named(path)(Error::NotDirectory));
            }
        }
        let (parent, new_parent) = (old.directory.ino(), new.directory.ino());
        let renamed = self.fs.rename(parent, &old.name, new_parent, &new.name, RenameFlags::empty(), &self.caller);
        renamed.map_err(|error| match error {
            // The kernel looks at this before it looks at what the two are.
            Error::IsDirectory if new.is_above(&old) => named(to)(Error::NotEmpty),
            error => named(to)(error),
        })
    }

    /// Removes a name that is no directory's.
    ///
    /// # Errors
    /// Those of unlink(2); [`Error::IsDirectory`] for a directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), |place| {
            if !place.is_normal() {
                return Err(Error::IsDirectory);
            }
            if place.slash {
                let is_directory = place.lookup()?.kind() == FileKind::Directory;
                return Err(if is_directory { Error::IsDirectory } else { Error::NotDirectory });
            }
            self.fs.unlink(place.directory.ino(), &place.name)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of rmdir(2).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at(path.as_ref(), |place| {
            place.expect_removable()?;
            self.fs.remove_directory(place.directory.ino(), &place.name)
        })
    }

    /// Sets the permission bits (`0o7777`) of what `path` names, symbolic links followed.
    ///
    /// # Errors
    /// Those of chmod(2).
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u32) -> Result<()> {
        let changes = SetAttributes { permissions: Some(permissions & 0o7777), ..SetAttributes::default() };
        self.change(path.as_ref(), true, |_| changes)
    }

    /// Sets the owner and the group of what `path` names, symbolic links followed; `None` leaves them alone. As the kernel, it takes
    /// set-uid and set-gid from files.
    ///
    /// # Errors
    /// Those of chown(2).
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.change(path.as_ref(), true, |found| owner(found, uid, gid))
    }

    /// As [`chown`](Self::chown); of a symbolic link at the end of `path` the owner and group of the link.
    ///
    /// # Errors
    /// Those of lchown(2).
    pub fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.change(path.as_ref(), false, |found| owner(found, uid, gid))
    }

    fn change(&self, path: &Path, follow: bool, to: impl FnOnce(&Attributes) -> SetAttributes) -> Result<()> {
        let found = self.lookup(path, follow)?;
        let changed = self.fs.set_attributes(found.ino(), &to(&found.attributes)).map(|_| ());
        changed.map_err(named(path))
    }

    /// Does something at the place of `path`, and names the path if it fails.
    pub(super) fn at<T>(&self, path: &Path, work: impl FnOnce(Place<F>) -> crate::Result<T>) -> Result<T> {
        let done = Place::of(&self.fs, bytes(path)).and_then(work);
        done.map_err(named(path))
    }

    fn make(&self, place: &Place<F>, kind: FileKind, mode: u32, target: &[u8]) -> crate::Result<Reference<F>> {
        let node = NewNode { kind, permissions: mode & 0o7777, rdev: 0, target };
        let made = self.fs.create(place.directory.ino(), &place.name, &node, &self.caller)?;
        Ok(Reference::new(&self.fs, made))
    }
}

pub(super) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn named(path: &Path) -> impl Fn(Error) -> PathError {
    move |reason| PathError { path: path.into(), reason }
}

fn owner(found: &Attributes, uid: Option<u32>, gid: Option<u32>) -> SetAttributes {
    SetAttributes { uid, gid, clear_suid_sgid: !found.is_dir(), ..SetAttributes::default() }
}

/// Whether something can be made there, as far as the path alone says: the rest is the file system's to refuse.
fn expect_new<F: SharedFs>(place: &Place<F>, is_directory: bool) -> crate::Result<()> {
    if !place.is_normal() {
        return Err(Error::Exists);
    }
    if place.slash && !is_directory {
        place.lookup()?;
        return Err(Error::Exists);
    }
    Ok(())
}
