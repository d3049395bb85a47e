//! From a volume to the host.
//!
//! The volume is not trusted: its names are checked, every file is made anew, and no symbolic link that came out of it is ever followed.
//! Others who may write to the destination are not trusted either: names are looked up in open directories only, and what was
//! made is changed through its descriptor.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use basalt_vfs::path::{Entries, PathError, data_range, resolve, split};
use basalt_vfs::{Attributes, FileKind, FileSystem, InodeNumber};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::MAX_DEPTH;
use super::beneath;
use super::host::{self, Place};
use super::keep::{Keep, Made};
use super::make::{self, Directory};
use super::replace::Spot;
use super::report::{Error, Observer, Report, join};
use super::sparse::CHUNK;
use super::trail::Trail;
use crate::failure::printable;
use crate::volume::Reference;

/// How to copy out of a volume.
#[derive(Debug, Clone, Default)]
pub struct GetOptions {
    /// Copy directories recursively.
    pub recursive: bool,
    /// The destination is what the source becomes, never a directory to put it into.
    pub exact_destination: bool,
    /// Keep nothing that gives rights: no owners, no set-uid and the like, no devices, and of attributes only those of users.
    /// For users other than root it is always so.
    pub safe: bool,
    /// The destination is an empty directory that was made for this copy: a source that is copied without its name gives it its
    /// attributes.
    pub new_destination: bool,
}

/// A volume of which parts are gone, and that knows which.
pub trait Salvage {
    /// Where the part of a file ends that begins at byte `offset` and is known to be lost; `None` where a read may succeed.
    fn missing_until(&self, ino: InodeNumber, offset: u64) -> Option<u64>;
}

/// The most bytes of a file that are read by themselves around what is lost: a block of F2FS.
const PIECE: u64 = 4096;

/// A directory that is being copied to: the one that the copy goes into, and the way from there.
#[derive(Clone)]
struct Base {
    directory: Rc<OwnedFd>,
    below: Trail,
}

/// Where a file with several names was copied to.
struct FirstName {
    base: Base,
    name: Vec<u8>,
    /// Device and inode number on the host.
    identity: (u64, u64),
}

/// Copies from a volume to the host.
pub struct Get<'a> {
    fs: &'a dyn FileSystem,
    observer: &'a mut dyn Observer,
    options: GetOptions,
    /// Leave holes where a file cannot be read, and go on.
    salvage: Option<&'a dyn Salvage>,
    report: Report,
    keep: Keep,
    /// Files with further names to come: where the first one went.
    links: HashMap<InodeNumber, FirstName>,
    /// The directories seen below one source. One with two names is damage, and may have no end.
    seen: HashSet<InodeNumber>,
    buffer: Vec<u8>,
}

impl<'a> Get<'a> {
    /// A copy out of `fs` that tells `observer` how it goes.
    pub fn new(fs: &'a dyn FileSystem, options: GetOptions, observer: &'a mut dyn Observer) -> Get<'a> {
        let keep = Keep::new(options.safe);
        Get {
            fs,
            observer,
            options,
            salvage: None,
            report: Report::default(),
            keep,
            links: HashMap::new(),
            seen: HashSet::new(),
            buffer: vec![0; CHUNK],
        }
    }

    /// Leaves a hole wherever a file cannot be read, tells the observer, and goes on, instead of leaving the file out.
    #[must_use]
    pub fn salvaging(mut self, salvage: &'a dyn Salvage) -> Get<'a> {
        self.salvage = Some(salvage);
        self
    }

    /// Copies `source` as `cp` does: into `destination` if that is a directory, else as `destination`. The root, and a source that ends
    /// with `.` or `..`, are copied without a name of their own.
    ///
    /// # Errors
    /// When the source cannot be read at all, or the host has no room. What cannot be copied further down is left out with a warning.
    pub fn copy(&mut self, source: &[u8], destination: &Path) -> Result<(), Error> {
        self.seen.clear();
        let found = self.find(source)?;
        let is_directory = found.attributes.kind == FileKind::Directory;
        if is_directory && !self.options.recursive {
            return Err(Error::refused(source, "is a directory; use -r to copy it"));
        }
        let (_, name) = split(source);
        let whole = self.options.exact_destination || matches!(name, b"" | b"." | b"..");
        let path = destination.as_os_str().as_bytes();
        let Some(directory) = make::open_destination(destination)? else {
            return self.copy_as(&found, destination);
        };
        if whole && !is_directory {
            return Err(Error::refused(path, "is a directory, and a file cannot replace it"));
        }
        if whole {
            let directory = match self.options.new_destination {
                true => Directory::New(make::open_new_destination(destination)?),
                false => Directory::Old(directory),
            };
            let base = Base::new(directory.as_fd(), path)?;
            return self.get_contents(&found, directory, &base, path, 0);
        }
        let base = Base::new(directory.as_fd(), path)?;
        let place = Place { directory: directory.as_fd(), name, path: &join(path, name), follow: false };
        self.get(&found, &place, &base, 0)
    }

    /// What a source names; symbolic links are followed unless they are copied themselves.
    fn find(&self, source: &[u8]) -> Result<Reference<'a>, Error> {
        let follow = !self.options.recursive;
        let found = resolve(&self.fs, source, follow);
        let is_dangling = follow && found.as_ref().is_err_and(PathError::is_not_found);
        if is_dangling && resolve(&self.fs, source, false).is_ok() {
            return Err(Error::refused(&[b"volume:", source].concat(), host::DANGLING));
        }
        Ok(found?)
    }

    /// Copies an inode as `destination`, which is no directory.
    fn copy_as(&mut self, from: &Reference<'a>, destination: &Path) -> Result<(), Error> {
        let path = destination.as_os_str().as_bytes();
        if path.ends_with(b"/") && from.attributes.kind != FileKind::Directory {
            return Err(Error::refused(path, "no such directory"));
        }
        let (parent, name) = match make::follow_destination(destination, from.attributes.kind)? {
            Some(followed) => followed,
            None => make::open_parent(destination).map(|(parent, name)| (parent, name.to_owned()))?,
        };
        let parent_path = destination.parent().map(|parent| parent.as_os_str().as_bytes()).unwrap_or_default();
        let base = Base::new(parent.as_fd(), parent_path)?;
        let place = Place { directory: parent.as_fd(), name: name.as_bytes(), path, follow: false };
        self.get(from, &place, &base, 0)
    }

    /// Whether there is no point in going on with the next file: the host takes nothing more.
    pub fn is_last(error: &Error) -> bool {
        use std::io::ErrorKind;
        match error.cause() {
            Error::Host { source, .. } | Error::Attribute { source, .. } => {
                let kind = source.kind();
                matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem)
                    || Errno::from_io_error(source) == Some(Errno::IO)
            }
            _ => false,
        }
    }

    /// What was copied so far.
    pub fn report(&self) -> Report {
        self.report
    }

    /// Copies an inode to `place`.
    fn get(&mut self, from: &Reference<'a>, place: &Place<'_>, base: &Base, depth: usize) -> Result<(), Error> {
        let attributes = &from.attributes;
        if attributes.kind == FileKind::Directory {
            let directory = place.make_directory()?;
            if matches!(directory, Directory::New(_)) {
                self.report.directories += 1;
                self.observer.copied(place.path);
            }
            return self.get_contents(from, directory, &base.below(place.name), place.path, depth);
        }
        self.keep.check(attributes.kind, place)?;
        let old = place.replaceable(attributes.kind)?;
        let spot = Spot::new(*place, old.as_ref())?;
        let copied = self.get_leaf(attributes, &spot, base);
        self.observer.progress(&self.report);
        if copied.is_ok() {
            self.observer.copied(place.path);
        }
        copied.map_err(|error| spot.failed(error))
    }

    /// Copies what is no directory.
    fn get_leaf(&mut self, attributes: &Attributes, spot: &Spot<'_>, base: &Base) -> Result<(), Error> {
        if attributes.links > 1 && self.get_link(attributes.ino, spot)? {
            return Ok(());
        }
        let place = spot.working();
        let made = match attributes.kind {
            FileKind::Regular => Made::Open(place.create_file()?),
            FileKind::Symlink => {
                let target = self.fs.read_link(attributes.ino).map_err(|error| Error::volume(place.path, error))?;
                Made::Special(place.make_symlink(&target)?)
            }
            kind => {
                let device = host::decode_device(attributes.rdev);
                Made::Special(place.make_special(FileType::from_raw_mode(kind.mode_bits()), device)?)
            }
        };
        let filled = match &made {
            Made::Open(file) => self.get_content(attributes, file, &place),
            Made::Special(_) => Ok(()),
        };
        let finished = filled.and_then(|()| self.finish(attributes, &made, place.path));
        // What the host does not take of owner, permissions and times is told, and the content kept. A rescue keeps what it has.
        if finished.as_ref().is_err_and(|error| !matches!(error, Error::Attribute { .. })) && self.salvage.is_none() {
            spot.discard(made.identity().ok());
            return finished;
        }
        if let Err(error) = spot.settle() {
            spot.discard(made.identity().ok());
            return Err(error);
        }
        self.count(attributes.kind);
        if attributes.links > 1 {
            let identity = made.identity().map_err(|errno| place.error("cannot be examined", errno))?;
            let (_, name) = split(place.path);
            let first = FirstName { base: base.clone(), name: name.to_vec(), identity };
            self.links.insert(attributes.ino, first);
        }
        finished
    }

    fn count(&mut self, kind: FileKind) {
        match kind {
            FileKind::Regular => self.report.files += 1,
            FileKind::Symlink => self.report.symlinks += 1,
            _ => self.report.special += 1,
        }
    }

    /// Copies what is in a directory. One that was there keeps its owner, its permissions and its attributes.
    fn get_contents(
        &mut self,
        from: &Reference<'a>,
        directory: Directory,
        base: &Base,
        path: &[u8],
        depth: usize,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::refused(path, format!("nested deeper than {MAX_DEPTH} directories")));
        }
        if !self.seen.insert(from.ino()) {
            return Err(Error::refused(path, "is a directory with a second name; run `basalt fsck`"));
        }
        self.get_entries(from, &directory, base, path, depth)?;
        match directory {
            Directory::New(directory) => self.finish(&from.attributes, &Made::Open(directory.into()), path),
            Directory::Old(_) => Ok(()),
        }
    }

    fn get_entries(
        &mut self,
        from: &Reference<'a>,
        directory: &Directory,
        base: &Base,
        path: &[u8],
        depth: usize,
    ) -> Result<(), Error> {
        for entry in Entries::new(&self.fs, from.ino()) {
            let copied = entry.map_err(|error| Error::volume(path, error)).and_then(|entry| {
                let name = entry.name.as_slice();
                let path = join(path, name);
                if name.is_empty() || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
                    return Err(Error::refused(&path, "has an invalid name; run `basalt fsck`"));
                }
                let place = Place { directory: directory.as_fd(), name, path: &path, follow: false };
                let child = from.lookup(name).map_err(|error| Error::volume(&path, error))?;
                self.get(&child, &place, base, depth + 1)
            });
            match copied {
                Err(error) if !Self::is_last(&error) => self.leave_out(&error.to_string()),
                copied => copied?,
            }
        }
        Ok(())
    }

    /// Gives a file that was copied already one more name.
    fn get_link(&mut self, ino: InodeNumber, spot: &Spot<'_>) -> Result<bool, Error> {
        let Some(first) = self.links.get(&ino).and_then(FirstName::find) else { return Ok(false) };
        let identity = rustix::fs::fstat(&first).ok().map(|stat| beneath::identity(&stat));
        if identity.is_some_and(|identity| spot.is_taken_by(identity)) {
            // A name that was copied twice is there already.
            self.report.hard_links += 1;
            return Ok(true);
        }
        let place = spot.working();
        match beneath::link(&first, place.directory, place.name) {
            Ok(()) => {
                let settled = spot.settle();
                if settled.is_err() {
                    spot.discard(identity);
                }
                self.report.hard_links += u64::from(settled.is_ok());
                settled.map(|()| true)
            }
            // The host has a limit of its own, or the first one is gone: then this is a file by itself.
            Err(Errno::MLINK | Errno::PERM | Errno::NOENT | Errno::XDEV) => Ok(false),
            Err(errno) => Err(place.error("cannot be linked", errno)),
        }
    }

    fn get_content(&mut self, attributes: &Attributes, file: &File, place: &Place<'_>) -> Result<(), Error> {
        let volume_error = |error| Error::volume(place.path, error);
        let host_error = |error: std::io::Error| place.error("cannot be written", error);
        let (ino, size) = (attributes.ino, attributes.size);
        let mut end = 0;
        while let Some(data) = data_range(self.fs, ino, end, size).map_err(volume_error)? {
            let (mut at, data_end) = (data.start, data.end);
            while at < data_end {
                // At most CHUNK, the buffer's length.
                let wanted = (data_end - at).min(CHUNK as u64) as usize;
                let length = match (self.fs.read(ino, at, &mut self.buffer[..wanted]), self.salvage) {
                    (Err(_), Some(salvage)) => {
                        at = self.get_pieces(salvage, ino, at..at + wanted as u64, file, place)?;
                        continue;
                    }
                    (read, _) => read.map_err(volume_error)?,
                };
                if length == 0 {
                    break;
                }
                file.write_all_at(&self.buffer[..length], at).map_err(host_error)?;
                at += length as u64;
                self.report.bytes += length as u64;
                self.observer.progress(&self.report);
            }
            end = data_end;
        }
        file.set_len(size).map_err(host_error)
    }

    /// Copies what can be read of a range, in small pieces; where the next read has to begin.
    fn get_pieces(
        &mut self,
        salvage: &dyn Salvage,
        ino: InodeNumber,
        range: Range<u64>,
        file: &File,
        place: &Place<'_>,
    ) -> Result<u64, Error> {
        let mut at = range.start;
        let block = self.fs.stat_fs().map_or(PIECE, |found| u64::from(found.block_size).clamp(512, PIECE));
        while at < range.end {
            if let Some(end) = salvage.missing_until(ino, at).filter(|&end| end > at) {
                self.observer.hole(place.path, at..end);
                at = end;
                continue;
            }
            let end = ((at / block + 1) * block).min(range.end);
            let piece = &mut self.buffer[..(end - at) as usize];
            match self.fs.read(ino, at, piece) {
                Ok(length) => {
                    let written = file.write_all_at(&piece[..length], at);
                    written.map_err(|error| place.error("cannot be written", error))?;
                    self.report.bytes += length as u64;
                }
                Err(_) => self.observer.hole(place.path, at..end),
            }
            at = end;
        }
        Ok(at)
    }

    /// Owner, attributes, permissions and times: in this order, because each one changes those behind it.
    fn finish(&mut self, attributes: &Attributes, made: &Made, path: &[u8]) -> Result<(), Error> {
        let failed = |what| move |errno: Errno| Error::attribute(path, what, errno);
        made.set_owner(self.keep, attributes).map_err(failed("owner"))?;
        self.set_xattrs(attributes.ino, made, path)?;
        made.set_permissions(self.keep, attributes).map_err(failed("permissions"))?;
        made.set_times(attributes).map_err(failed("times"))
    }

    fn set_xattrs(&mut self, ino: InodeNumber, to: &Made, path: &[u8]) -> Result<(), Error> {
        let failed = |error| Error::volume(path, error);
        let list = match self.fs.list_xattrs(ino) {
            Ok(list) => list,
            Err(basalt_vfs::Error::NotSupported(_)) => return Ok(()),
            Err(error) if self.salvage.is_some() => {
                self.leave_out(&format!("{}: attributes: {error}", printable(path)));
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        let keep = self.keep;
        for name in list.split(|&byte| byte == 0).filter(|name| keep.keeps_xattr(name)) {
            let value = self.fs.get_xattr(ino, name).map_err(failed)?;
            if let Err(errno) = to.set_xattr(name, &value) {
                self.leave_out(&format!("{}: attribute {}: {errno}", printable(path), printable(name)));
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, message: &str) {
        self.report.left_out += 1;
        self.observer.warning(message);
    }
}

impl Base {
    /// The directory `path`, which is open.
    fn new(directory: BorrowedFd<'_>, path: &[u8]) -> Result<Base, Error> {
        let directory = directory.try_clone_to_owned().map_err(|error| Error::host(path, "cannot be used", error))?;
        Ok(Base { directory: Rc::new(directory), below: Trail::start() })
    }

    /// The directory `name` in this one.
    fn below(&self, name: &[u8]) -> Base {
        Base { directory: self.directory.clone(), below: self.below.below(name) }
    }
}

impl FirstName {
    /// The file as long as it is the one that has this name, by a descriptor that refers to it.
    fn find(&self) -> Option<OwnedFd> {
        let names = self.base.below.names().into_iter().chain([self.name.as_slice()]);
        let found = beneath::open_path(&self.base.directory, names).ok()?;
        let stat = rustix::fs::fstat(&found).ok()?;
        (beneath::identity(&stat) == self.identity).then_some(found)
    }
}
