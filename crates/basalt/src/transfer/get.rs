//! From a volume to the host.
//!
//! The volume is not trusted: its names are checked, every file is made anew, and no symbolic link that came out of it is ever followed.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use basalt_vfs::{Attributes, FileKind, FileSystem, InodeNumber};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Uid};
use rustix::io::Errno;

use super::MAX_DEPTH;
use super::host::{self, Place};
use super::report::{Error, Observer, Report, join};
use super::sparse::{self, CHUNK};
use super::xattrs::{self, Carrier};
use crate::failure::printable;
use crate::volume::Reference;
use crate::volume::list::Entries;
use crate::volume::path::{resolve, split};

/// Permission bits that lend a file's owner to whoever runs it.
const SUID_SGID: u32 = 0o6000;

/// How to copy out of a volume.
#[derive(Debug, Clone, Default)]
pub struct GetOptions {
    /// Copy directories with everything in them.
    pub recursive: bool,
    /// The destination is what the source becomes, never a directory to put it into.
    pub exact_destination: bool,
}

/// A volume of which parts are gone, and that knows which.
pub trait Salvage {
    /// Where the part of a file ends that begins at byte `offset` and is known to be lost; `None` where a read may succeed.
    fn missing_until(&self, ino: InodeNumber, offset: u64) -> Option<u64>;
}

/// The smallest piece of a file that can be read by itself.
const PIECE: u64 = 4096;

/// Copies from a volume to the host.
pub struct Get<'a> {
    fs: &'a dyn FileSystem,
    observer: &'a mut dyn Observer,
    options: GetOptions,
    /// Leave holes where a file cannot be read, and go on.
    salvage: Option<&'a dyn Salvage>,
    report: Report,
    /// Only root can give files away.
    is_root: bool,
    /// Files with further names to come: where the first one went.
    links: HashMap<InodeNumber, PathBuf>,
    /// The directories seen below one source. One with two names is damage, and may have no end.
    seen: HashSet<InodeNumber>,
    buffer: Vec<u8>,
}

impl<'a> Get<'a> {
    /// A copy out of `fs` that tells `observer` how it goes.
    pub fn new(fs: &'a dyn FileSystem, options: GetOptions, observer: &'a mut dyn Observer) -> Get<'a> {
        Get {
            fs,
            observer,
            options,
            salvage: None,
            report: Report::default(),
            is_root: rustix::process::geteuid().is_root(),
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
        let found = resolve(self.fs, source, !self.options.recursive)?;
        let is_directory = found.attributes.kind == FileKind::Directory;
        if is_directory && !self.options.recursive {
            return Err(Error::refused(source, "is a directory; add -r to copy it with everything in it"));
        }
        let (_, name) = split(source);
        let whole = self.options.exact_destination || matches!(name, b"" | b"." | b"..");
        let place = Place::top(destination, true);
        if !destination.is_dir() {
            let place = Place { follow: false, ..place };
            return self.get(&found, &place, destination, 0);
        }
        if whole && !is_directory {
            return Err(Error::refused(place.path, "is a directory, and would be replaced by a file"));
        }
        let directory = place.open_directory()?;
        if whole {
            return self.get_contents(&found, directory, place.path, destination, 0);
        }
        let path = join(place.path, name);
        let inside = Place { directory: directory.as_fd(), name, path: &path, follow: false };
        self.get(&found, &inside, &destination.join(std::ffi::OsStr::from_bytes(name)), 0)
    }

    /// What was copied so far.
    pub fn report(&self) -> Report {
        self.report
    }

    /// Copies an inode to `place`, which is `full` for those calls that need a path.
    fn get(&mut self, from: &Reference<'a>, place: &Place<'_>, full: &Path, depth: usize) -> Result<(), Error> {
        let attributes = &from.attributes;
        if attributes.kind == FileKind::Directory {
            let directory = self.make_directory(place)?;
            return self.get_contents(from, directory, place.path, full, depth);
        }
        place.make_room(attributes.kind)?;
        if attributes.links > 1 && self.get_link(attributes.ino, place)? {
            return Ok(());
        }
        match attributes.kind {
            FileKind::Regular => self.get_file(attributes, place)?,
            FileKind::Symlink => {
                let target = self.fs.read_link(attributes.ino).map_err(|error| Error::volume(place.path, error))?;
                rustix::fs::symlinkat(target.as_slice(), place.directory, place.name)
                    .map_err(|errno| place.error("cannot be made", errno))?;
                self.report.symlinks += 1;
                self.finish_special(attributes, place)?;
            }
            _ => {
                self.make_special(attributes, place)?;
                self.report.special += 1;
                self.finish_special(attributes, place)?;
            }
        }
        if attributes.links > 1 {
            self.links.insert(attributes.ino, full.to_path_buf());
        }
        self.observer.progress(&self.report);
        Ok(())
    }

    /// A directory to copy into: a new one, or one that is there.
    fn make_directory(&mut self, place: &Place<'_>) -> Result<OwnedFd, Error> {
        match rustix::fs::mkdirat(place.directory, place.name, Mode::RWXU) {
            Ok(()) => self.report.directories += 1,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(place.error("cannot be made", errno)),
        }
        place.open_directory()
    }

    fn get_contents(
        &mut self,
        from: &Reference<'a>,
        directory: OwnedFd,
        path: &[u8],
        full: &Path,
        depth: usize,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::refused(path, format!("nested deeper than {MAX_DEPTH} directories")));
        }
        if !self.seen.insert(from.ino()) {
            return Err(Error::refused(path, "is a directory that has another name too; run `basalt fsck`"));
        }
        self.get_entries(from, &directory, path, full, depth)?;
        let directory = File::from(directory);
        self.finish_open(&from.attributes, &directory, path)
    }

    fn get_entries(
        &mut self,
        from: &Reference<'a>,
        directory: &OwnedFd,
        path: &[u8],
        full: &Path,
        depth: usize,
    ) -> Result<(), Error> {
        for entry in Entries::new(self.fs, from.ino()) {
            let copied = entry.map_err(|error| Error::volume(path, error)).and_then(|entry| {
                let name = entry.name.as_slice();
                let path = join(path, name);
                if name.is_empty() || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
                    return Err(Error::refused(&path, "has a name that no file can have; run `basalt fsck`"));
                }
                let place = Place { directory: directory.as_fd(), name, path: &path, follow: false };
                let child = from.lookup(name).map_err(|error| Error::volume(&path, error))?;
                self.get(&child, &place, &full.join(std::ffi::OsStr::from_bytes(name)), depth + 1)
            });
            match copied {
                Err(error) if !is_fatal(&error) => self.leave_out(&error.to_string()),
                copied => copied?,
            }
        }
        Ok(())
    }

    /// Gives a file that was copied already one more name.
    fn get_link(&mut self, ino: InodeNumber, place: &Place<'_>) -> Result<bool, Error> {
        let Some(first) = self.links.get(&ino) else { return Ok(false) };
        match rustix::fs::linkat(CWD, first.as_path(), place.directory, place.name, AtFlags::empty()) {
            Ok(()) => {
                self.report.hard_links += 1;
                Ok(true)
            }
            // The host has a limit of its own, or the first one was replaced by a later name: then this is a file by itself.
            Err(Errno::MLINK | Errno::PERM | Errno::NOENT | Errno::NAMETOOLONG | Errno::XDEV) => Ok(false),
            Err(errno) => Err(place.error("cannot be linked", errno)),
        }
    }

    fn get_file(&mut self, attributes: &Attributes, place: &Place<'_>) -> Result<(), Error> {
        let file = place.create_file()?;
        self.report.files += 1;
        let volume_error = |error| Error::volume(place.path, error);
        let host_error = |error: std::io::Error| place.error("cannot be written", error);
        let (ino, size) = (attributes.ino, attributes.size);
        let mut end = 0;
        while let Some((mut at, data_end)) = sparse::volume_data(self.fs, ino, end, size).map_err(volume_error)? {
            while at < data_end {
                // At most CHUNK, the buffer's length.
                let wanted = (data_end - at).min(CHUNK as u64) as usize;
                let length = match (self.fs.read(ino, at, &mut self.buffer[..wanted]), self.salvage) {
                    (Err(_), Some(salvage)) => {
                        at = self.get_pieces(salvage, ino, at..at + wanted as u64, &file, place)?;
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
        file.set_len(size).map_err(host_error)?;
        self.finish_open(attributes, &file, place.path)
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
        while at < range.end {
            if let Some(end) = salvage.missing_until(ino, at).filter(|&end| end > at) {
                self.observer.hole(place.path, at..end);
                at = end;
                continue;
            }
            let end = ((at / PIECE + 1) * PIECE).min(range.end);
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

    fn make_special(&self, attributes: &Attributes, place: &Place<'_>) -> Result<(), Error> {
        let kind = FileType::from_raw_mode(attributes.kind.mode_bits());
        let device = host::decode_device(attributes.rdev);
        let mode = Mode::from_raw_mode(attributes.permissions & !SUID_SGID);
        rustix::fs::mknodat(place.directory, place.name, kind, mode, device).map_err(|errno| match errno {
            Errno::PERM => Error::refused(place.path, "is a device node, which only root can make"),
            errno => place.error("cannot be made", errno),
        })
    }

    /// Owner, attributes, permissions and times of what is open: in this order, because each one changes those behind it.
    fn finish_open(&mut self, attributes: &Attributes, file: &File, path: &[u8]) -> Result<(), Error> {
        let failed = |doing| move |errno: Errno| Error::host(path, doing, errno);
        if self.is_root {
            let (uid, gid) = owner(attributes);
            rustix::fs::fchown(file, uid, gid).map_err(failed("its owner cannot be set"))?;
        }
        self.set_xattrs(attributes.ino, &Carrier::Open(file), path)?;
        let mode = Mode::from_raw_mode(self.permissions(attributes));
        rustix::fs::fchmod(file, mode).map_err(failed("its permissions cannot be set"))?;
        rustix::fs::futimens(file, &host::timestamps(attributes.atime, attributes.mtime))
            .map_err(failed("its times cannot be set"))
    }

    /// The same for what cannot be opened.
    fn finish_special(&mut self, attributes: &Attributes, place: &Place<'_>) -> Result<(), Error> {
        if self.is_root {
            let (uid, gid) = owner(attributes);
            rustix::fs::chownat(place.directory, place.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| place.error("its owner cannot be set", errno))?;
        }
        self.set_xattrs(attributes.ino, &Carrier::Path(&place.proc_path()), place.path)?;
        if attributes.kind != FileKind::Symlink {
            // It was made a moment ago, and is no symbolic link.
            let mode = Mode::from_raw_mode(self.permissions(attributes));
            rustix::fs::chmodat(place.directory, place.name, mode, AtFlags::empty())
                .map_err(|errno| place.error("its permissions cannot be set", errno))?;
        }
        let times = host::timestamps(attributes.atime, attributes.mtime);
        rustix::fs::utimensat(place.directory, place.name, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| place.error("its times cannot be set", errno))
    }

    /// Permission bits on the host: without its owner, a file must not lend the copying user's rights.
    fn permissions(&self, attributes: &Attributes) -> u32 {
        if self.is_root || attributes.kind == FileKind::Directory {
            attributes.permissions
        } else {
            attributes.permissions & !SUID_SGID
        }
    }

    fn set_xattrs(&mut self, ino: InodeNumber, to: &Carrier<'_>, path: &[u8]) -> Result<(), Error> {
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
        for name in list.split(|&byte| byte == 0).filter(|name| xattrs::is_portable(name)) {
            // Only root may set these; that they are not kept was said with the owners.
            if !self.is_root && (name.starts_with(b"trusted.") || name.starts_with(b"security.")) {
                continue;
            }
            let value = self.fs.get_xattr(ino, name).map_err(failed)?;
            if let Err(errno) = to.set(name, &value) {
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

fn owner(attributes: &Attributes) -> (Option<Uid>, Option<Gid>) {
    // All ones means "leave it alone" to the system call, and nobody on a volume.
    let known = |id: u32| (id != u32::MAX).then_some(id);
    (known(attributes.uid).map(Uid::from_raw), known(attributes.gid).map(Gid::from_raw))
}

/// Whether there is no point in going on with the next file: the host takes nothing more.
fn is_fatal(error: &Error) -> bool {
    use std::io::ErrorKind;
    match error {
        Error::Host { source, .. } => {
            matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem)
                || Errno::from_io_error(source) == Some(Errno::IO)
        }
        _ => false,
    }
}
