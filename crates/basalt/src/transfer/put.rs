//! From the host into a volume.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use basalt_f2fs::{Clock, SystemClock};
use basalt_vfs::path::{resolve, resolve_parent, split};
use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, SetAttributes, SetTime, XattrFlags};
use rustix::fs::Stat;

use super::MAX_DEPTH;
use super::host::{self, Place};
use super::replace::Slot;
use super::report::{Error, Observer, Report, join};
use super::sparse::{self, CHUNK};
use super::xattrs::Carrier;
use crate::volume::Reference;

/// How to copy into a volume.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    /// Copy directories recursively.
    pub recursive: bool,
    /// The destination is what the source becomes, never a directory to put it into.
    pub exact_destination: bool,
    /// Stay on the file system that a source is on.
    pub one_file_system: bool,
    /// Give everything to this user and group.
    pub owner: Option<(u32, u32)>,
    /// A file that is never copied, by device and inode number: the image that is being filled.
    pub exclude: Option<(u64, u64)>,
}

/// Copies from the host into a volume.
pub struct Put<'a> {
    fs: &'a dyn FileSystem,
    observer: &'a mut dyn Observer,
    options: PutOptions,
    report: Report,
    /// Files with further names to come, by device and inode number on the host: their inodes, and how many names are to come.
    links: HashMap<(u64, u64), (Reference<'a>, u64)>,
    /// The device number of the source, where that matters.
    device: Option<u64>,
    buffer: Vec<u8>,
    xattr_space: Vec<u8>,
    /// When the volume wants its background work done.
    next_tick: Instant,
}

impl<'a> Put<'a> {
    /// A copy into `fs` that tells `observer` how it goes.
    pub fn new(fs: &'a dyn FileSystem, options: PutOptions, observer: &'a mut dyn Observer) -> Put<'a> {
        Put {
            fs,
            observer,
            options,
            report: Report::default(),
            links: HashMap::new(),
            device: None,
            buffer: vec![0; CHUNK],
            xattr_space: Vec::new(),
            next_tick: Instant::now(),
        }
    }

    /// Copies `source` as `cp` does: into `destination` if that is a directory, else as `destination`. A source that ends with `.` or
    /// `..` is copied without its own name.
    ///
    /// # Errors
    /// When the source cannot be read at all, or the volume refuses. What cannot be read further down is left out with a warning.
    pub fn copy(&mut self, source: &Path, destination: &[u8]) -> Result<(), Error> {
        let place = Place::top(source, !self.options.recursive);
        let stat = place.stat()?;
        self.check_source(&place, &stat)?;
        let found = match resolve(&self.fs, destination, true) {
            Ok(found) => Some(found),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(directory) = found.filter(|found| found.attributes.kind == FileKind::Directory) {
            let whole = self.options.exact_destination || last_name(source).is_none();
            let is_directory = host::kind(&stat) == Some(FileKind::Directory);
            if let (false, Some(name)) = (whole, last_name(source)) {
                return self.put(&place, &stat, &directory, name, 0);
            }
            if is_directory {
                return self.put_contents(&place, &stat, &directory, 0);
            }
            return Err(Error::refused(destination, "is a directory, and a file cannot replace it"));
        }
        if destination.ends_with(b"/") && host::kind(&stat) != Some(FileKind::Directory) {
            return Err(Error::refused(&[b"volume:", destination].concat(), "no such directory"));
        }
        match resolve_parent(&self.fs, destination)? {
            Some((parent, name)) => self.put(&place, &stat, &parent, name, 0),
            None => Err(Error::volume(destination, basalt_vfs::Error::NotFound)),
        }
    }

    /// Makes sure that several files have a directory to go into.
    ///
    /// # Errors
    /// When `destination` is none, or does not exist.
    pub fn expect_directory(&self, destination: &[u8]) -> Result<(), Error> {
        let found = resolve(&self.fs, destination, true)?;
        if found.attributes.kind == FileKind::Directory {
            return Ok(());
        }
        let path = [b"volume:", destination].concat();
        Err(Error::refused(&path, "not a directory; several sources need an existing directory"))
    }

    /// Whether no other source can be copied either: the volume takes nothing more.
    pub fn is_last(error: &Error) -> bool {
        matches!(error.cause(), Error::Volume { .. })
    }

    /// What was copied so far.
    pub fn report(&self) -> Report {
        self.report
    }

    fn check_source(&mut self, place: &Place<'_>, stat: &Stat) -> Result<(), Error> {
        if host::kind(stat) == Some(FileKind::Directory) && !self.options.recursive {
            return Err(Error::refused(place.path, "is a directory; use -r to copy it"));
        }
        if host::kind(stat) == Some(FileKind::Regular) && self.options.exclude == Some((stat.st_dev, stat.st_ino)) {
            return Err(Error::refused(place.path, "is the image that is being written"));
        }
        self.device = self.options.one_file_system.then_some(stat.st_dev);
        Ok(())
    }

    /// Copies what is at `place` as `name` in `parent`.
    fn put(
        &mut self,
        place: &Place<'_>,
        stat: &Stat,
        parent: &Reference<'a>,
        name: &[u8],
        depth: usize,
    ) -> Result<(), Error> {
        let failed = |error| Error::volume(place.path, error);
        let existing = match parent.lookup(name) {
            Ok(existing) => Some(existing),
            Err(basalt_vfs::Error::NotFound) => None,
            Err(error) => return Err(failed(error)),
        };
        let existing_kind = existing.as_ref().map(|existing| existing.attributes.kind);
        let is_directory = host::kind(stat) == Some(FileKind::Directory);
        match (existing, existing_kind == Some(FileKind::Directory), is_directory) {
            (Some(existing), true, true) => self.put_contents(place, stat, &existing, depth),
            (Some(_), true, false) => Err(Error::refused(place.path, "would replace a directory of the volume")),
            (Some(_), false, true) => {
                Err(Error::refused(place.path, "would replace a file of the volume by a directory"))
            }
            (None, _, true) => {
                let made = self.create(place, stat, parent, name, FileKind::Directory, 0, b"")?;
                self.report.directories += 1;
                self.observer.copied(place.path);
                self.put_contents(place, stat, &made, depth)
            }
            (existing, _, false) => {
                let old = existing.map(|existing| existing.ino());
                self.put_leaf(place, stat, &Slot { fs: self.fs, parent, name, old })
            }
        }
    }

    /// Copies the entries of a directory, then its attributes, which copying the entries has changed.
    fn put_contents(
        &mut self,
        place: &Place<'_>,
        stat: &Stat,
        into: &Reference<'a>,
        depth: usize,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::refused(place.path, format!("nested deeper than {MAX_DEPTH} directories")));
        }
        let directory = place.open_directory()?;
        for name in host::names(&directory, place.path)? {
            let path = join(place.path, &name);
            let child = Place { directory: directory.as_fd(), name: &name, path: &path, follow: false };
            let copied = match child.stat() {
                Ok(stat) if self.is_left_out(&stat) => Ok(()),
                Ok(stat) => self.put(&child, &stat, into, &name, depth + 1),
                Err(error) => Err(error),
            };
            match copied {
                Ok(()) => {}
                Err(error) if matches!(error.cause(), Error::Host { .. } | Error::Refused { .. }) => {
                    self.leave_out(&error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        let directory = File::from(directory);
        self.set_attributes(place, stat, into)?;
        self.set_xattrs(place, &Carrier::Open(&directory), into)
    }

    fn is_left_out(&self, stat: &Stat) -> bool {
        self.device.is_some_and(|device| device != stat.st_dev)
            || self.options.exclude == Some((stat.st_dev, stat.st_ino))
    }

    /// Copies what is no directory.
    fn put_leaf(&mut self, place: &Place<'_>, stat: &Stat, slot: &Slot<'_, 'a>) -> Result<(), Error> {
        let Some(kind) = host::kind(stat) else {
            return Err(Error::refused(place.path, "is of a kind that a volume cannot hold"));
        };
        if host::links(stat) > 1 && self.put_link(place, stat, slot)? {
            self.observer.copied(place.path);
            self.pace();
            return Ok(());
        }
        let name = slot.working_name().map_err(|error| Error::volume(place.path, error))?;
        let made = match kind {
            FileKind::Regular => self.put_file(place, stat, slot.parent, &name),
            _ => self.put_special(place, stat, slot.parent, &name, kind),
        };
        let made = slot.settle(&name, made, place.path)?;
        match kind {
            FileKind::Regular => self.report.files += 1,
            FileKind::Symlink => self.report.symlinks += 1,
            _ => self.report.special += 1,
        }
        if host::links(stat) > 1 {
            self.links.insert((stat.st_dev, stat.st_ino), (made, host::links(stat) - 1));
        }
        self.observer.copied(place.path);
        self.pace();
        Ok(())
    }

    /// Gives a file that was copied already one more name, if this is one of its names. `false`: it is to be copied, also where the volume has no
    /// hard links.
    fn put_link(&mut self, place: &Place<'_>, stat: &Stat, slot: &Slot<'_, 'a>) -> Result<bool, Error> {
        let failed = |error| Error::volume(place.path, error);
        let key = (stat.st_dev, stat.st_ino);
        let Some((first, names_left)) = self.links.get_mut(&key) else { return Ok(false) };
        // A name that was copied twice is there already.
        if slot.old != Some(first.ino()) {
            let name = slot.working_name().map_err(failed)?;
            let linked = self.fs.link(first.ino(), slot.parent.ino(), &name);
            if matches!(linked, Err(basalt_vfs::Error::NotPermitted(_))) {
                self.leave_out(&format!(
                    "{}: hard link: the file is copied once more",
                    crate::failure::printable(place.path)
                ));
                return Ok(false);
            }
            let linked = linked.map_err(failed).map(|linked| Reference::new(&self.fs, linked));
            drop(slot.settle(&name, linked, place.path)?);
        }
        self.report.hard_links += 1;
        *names_left -= 1;
        if *names_left == 0 {
            self.links.remove(&key);
        }
        Ok(true)
    }

    /// Makes a symbolic link, device node, FIFO or socket.
    fn put_special(
        &mut self,
        place: &Place<'_>,
        stat: &Stat,
        parent: &Reference<'a>,
        name: &[u8],
        kind: FileKind,
    ) -> Result<Reference<'a>, Error> {
        let made = if kind == FileKind::Symlink {
            let target = rustix::fs::readlinkat(place.directory, place.name, Vec::new())
                .map_err(|errno| place.error("cannot be read", errno))?;
            self.create(place, stat, parent, name, kind, 0, target.as_bytes())?
        } else {
            let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharDevice);
            let rdev = if is_device { host::encode_device(stat.st_rdev) } else { 0 };
            self.create(place, stat, parent, name, kind, rdev, b"")?
        };
        self.set_attributes(place, stat, &made)?;
        self.set_xattrs(place, &Carrier::Path(&place.proc_path()), &made)?;
        Ok(made)
    }

    fn put_file(
        &mut self,
        place: &Place<'_>,
        stat: &Stat,
        parent: &Reference<'a>,
        name: &[u8],
    ) -> Result<Reference<'a>, Error> {
        // Opened first: nothing is made for what cannot be read.
        let file = place.open_file(stat)?;
        let made = self.create(place, stat, parent, name, FileKind::Regular, 0, b"")?;
        self.put_content(place, &file, &made)?;
        self.set_attributes(place, stat, &made)?;
        self.set_xattrs(place, &Carrier::Open(&file), &made)?;
        Ok(made)
    }

    /// Copies a file's data up to where reading ends. What the file is said to hold does not count: files of /proc and /sys say
    /// something else, and others change meanwhile.
    fn put_content(&mut self, place: &Place<'_>, file: &File, to: &Reference<'a>) -> Result<(), Error> {
        let read_error = |error: std::io::Error| place.error("cannot be read", error);
        let mut end = 0;
        loop {
            let piece = sparse::host_data(file, end).map_err(|errno| read_error(errno.into()))?;
            let is_hole = piece.is_none();
            let (from, data_end) = match piece {
                Some(piece) => piece,
                // A hole, and nothing behind it; unless more can be read than there is said to be.
                None => (end.max(file.metadata().map_err(read_error)?.len()), u64::MAX),
            };
            let copied = self.put_range(place, file, to, from, data_end)?;
            if copied < data_end {
                // The file ends there; with a hole, if nothing was read behind it.
                let size = if is_hole || copied > from { copied } else { end };
                return self.extend(place, to, size);
            }
            end = copied;
        }
    }

    /// Copies bytes from `at` up to `data_end`, or to the end of the file; returns where that was.
    fn put_range(
        &mut self,
        place: &Place<'_>,
        file: &File,
        to: &Reference<'a>,
        mut at: u64,
        data_end: u64,
    ) -> Result<u64, Error> {
        while at < data_end {
            // At most CHUNK, the buffer's length.
            let wanted = (data_end - at).min(CHUNK as u64) as usize;
            let read = file.read_at(&mut self.buffer[..wanted], at);
            let length = read.map_err(|error| place.error("cannot be read", error))?;
            if length == 0 {
                break;
            }
            // Where space runs out, the rest meets the error next time.
            let written = self.fs.write(to.ino(), at, &self.buffer[..length], false);
            let written = written.map_err(|error| Error::volume(place.path, error))?;
            at += written as u64;
            self.report.bytes += written as u64;
            self.pace();
        }
        Ok(at)
    }

    /// Gives a file its size, if a hole comes last.
    fn extend(&self, place: &Place<'_>, to: &Reference<'a>, size: u64) -> Result<(), Error> {
        let failed = |error| Error::volume(place.path, error);
        if self.fs.attributes(to.ino()).map_err(failed)?.size < size {
            let grow = SetAttributes { size: Some(size), ..SetAttributes::default() };
            self.fs.set_attributes(to.ino(), &grow).map_err(failed)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "what an inode is made of")]
    fn create(
        &self,
        place: &Place<'_>,
        stat: &Stat,
        parent: &Reference<'a>,
        name: &[u8],
        kind: FileKind,
        rdev: u32,
        target: &[u8],
    ) -> Result<Reference<'a>, Error> {
        let (uid, gid) = self.owner(stat);
        let node = NewNode { kind, permissions: stat.st_mode & 0o7777, rdev, target };
        let made = self.fs.create(parent.ino(), name, &node, &Caller { uid, gid, umask: 0 });
        made.map(|attributes| Reference::new(&self.fs, attributes)).map_err(|error| Error::volume(place.path, error))
    }

    fn owner(&self, stat: &Stat) -> (u32, u32) {
        self.options.owner.unwrap_or((stat.st_uid, stat.st_gid))
    }

    fn set_attributes(&self, place: &Place<'_>, stat: &Stat, to: &Reference<'a>) -> Result<(), Error> {
        let (uid, gid) = self.owner(stat);
        let (atime, mtime) = host::times(stat);
        let is_symlink = host::kind(stat) == Some(FileKind::Symlink);
        let changes = SetAttributes {
            permissions: (!is_symlink).then_some(stat.st_mode & 0o7777),
            uid: Some(uid),
            gid: Some(gid),
            atime: Some(SetTime::To(atime)),
            mtime: Some(SetTime::To(mtime)),
            ..SetAttributes::default()
        };
        self.fs.set_attributes(to.ino(), &changes).map(|_| ()).map_err(|error| Error::volume(place.path, error))
    }

    fn set_xattrs(&mut self, place: &Place<'_>, from: &Carrier<'_>, to: &Reference<'a>) -> Result<(), Error> {
        let found = from.read(&mut self.xattr_space);
        for (name, value) in found.map_err(|errno| place.error("attributes cannot be read", errno))? {
            use basalt_vfs::Error as Vfs;
            match self.fs.set_xattr(to.ino(), &name, &value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(error @ (Vfs::NotSupported(_) | Vfs::TooBig | Vfs::Range | Vfs::Invalid(_) | Vfs::NoSpace)) => {
                    // A full volume says so again at the next block; attributes have a limit of their own.
                    let name = crate::failure::printable(&name);
                    self.leave_out(&format!("{}: attribute {name}: {error}", crate::failure::printable(place.path)));
                }
                Err(error) => return Err(Error::volume(place.path, error)),
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, message: &str) {
        self.report.left_out += 1;
        self.observer.warning(message);
    }

    /// Reports progress, and does the volume's background work when it is due.
    fn pace(&mut self) {
        self.observer.progress(&self.report);
        let now = Instant::now();
        if now >= self.next_tick {
            self.next_tick = now + self.fs.tick(SystemClock.now()).next;
        }
    }
}

/// The name that a source has in its directory; none if it ends with `.`, `..` or is the root.
fn last_name(source: &Path) -> Option<&[u8]> {
    let (_, name) = split(source.as_os_str().as_bytes());
    (!matches!(name, b"" | b"." | b"..")).then_some(name)
}
