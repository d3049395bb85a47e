//! Doing one step on a file system that is open.

use std::collections::HashMap;

use basalt_vfs::acl::{Acl, Entry, Who};
use basalt_vfs::{
    Caller, Error, FallocateMode, FileKind, FileSystem, InodeFlags, InodeNumber, NewNode, RenameFlags, SetAttributes,
    SetTime, Time, XattrFlags,
};

use crate::found::find_tree;
use crate::meta::Meta;
use crate::script::Step;
use crate::tree::{bytes, symlink_target, xattr_name};

/// The inode that a step has made, 0 for none; or why it was refused.
pub type Answer = Result<InodeNumber, Error>;

/// The attribute that holds what chmod and ACLs share.
const ACCESS_ACL: &str = "system.posix_acl_access";
/// The ACL that what is made in a directory begins with.
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// References that steps hold.
#[derive(Debug, Default)]
pub struct Held {
    names: Vec<InodeNumber>,
    handles: HashMap<String, InodeNumber>,
}

impl Held {
    /// What is held is there, whether or not it has a name.
    fn expect(&self, fs: &dyn FileSystem) -> Result<(), Error> {
        for &ino in self.names.iter().chain(self.handles.values()) {
            let gone = |error| Error::Corrupted(format!("inode {ino} is held, and {error}"));
            let kind = fs.attributes(ino).map_err(gone)?.kind;
            if kind == FileKind::Regular {
                fs.read(ino, 0, &mut [0; 1]).map_err(gone)?;
            }
        }
        Ok(())
    }

    /// Gives all back.
    pub fn release(&mut self, fs: &dyn FileSystem) {
        for ino in self.names.drain(..).chain(self.handles.drain().map(|(_, ino)| ino)) {
            fs.forget(ino, 1);
        }
    }
}

/// The times that [`Step::Utimes`] sets: of access, of modification.
fn times(seconds: i64, nanoseconds: u32) -> (Time, Time) {
    let nanoseconds = nanoseconds.min(999_999_999);
    (Time { seconds, nanoseconds }, Time { seconds: seconds.saturating_add(1), nanoseconds })
}

/// The ACL of a number: what one more user may.
fn acl(number: u32) -> Result<Vec<u8>, Error> {
    let entry = |who, permissions| Entry { who, permissions };
    let entries = vec![
        entry(Who::Owner, 7),
        entry(Who::User(1000 + number), (number % 8) as u16),
        entry(Who::OwningGroup, 5),
        entry(Who::Mask, 7),
        entry(Who::Other, (number % 5) as u16),
    ];
    Ok(Acl::new(entries)?.to_xattr())
}

/// What a step that set attributes must have left; the error says what is different.
pub fn expect_set(step: &Step, meta: &Meta) -> Result<(), String> {
    let mut wanted = *meta;
    match *step {
        Step::Chmod(_, permissions) => wanted.permissions = permissions,
        Step::Chown(_, uid, gid) => (wanted.uid, wanted.gid) = (uid, gid),
        Step::Flags(_, flags) => wanted.flags |= flags,
        Step::Special(_, kind, rdev) if matches!(kind.kind(), FileKind::CharDevice | FileKind::BlockDevice) => {
            wanted.rdev = rdev;
        }
        Step::Utimes(_, seconds, nanoseconds) => {
            (wanted.times.access, wanted.times.modify) = times(seconds, nanoseconds);
        }
        _ => {}
    }
    let difference = wanted.difference(meta).or_else(|| wanted.times.difference(&meta.times));
    difference.map_or(Ok(()), |difference| Err(format!("`{step}` left {difference}")))
}

/// Writes; half of what is written may be kept by the file system.
pub fn write<F: FileSystem + ?Sized>(
    fs: &F,
    ino: InodeNumber,
    offset: u64,
    data: Vec<u8>,
    seed: u64,
) -> Result<usize, Error> {
    if seed.is_multiple_of(2) {
        fs.write_shared(ino, offset, data.into(), false)
    } else {
        fs.write(ino, offset, &data, false)
    }
}

/// A file system, and what steps hold of it.
pub struct Performer<'a> {
    /// The file system.
    pub fs: &'a dyn FileSystem,
    /// What is held.
    pub held: &'a mut Held,
}

impl Performer<'_> {
    /// The inode of a path, by the file system's own look-up; references are given back at once.
    fn find(&self, path: &str) -> Answer {
        if path.starts_with('@') {
            return self.held.handles.get(path).copied().ok_or(Error::NotFound);
        }
        let mut at = self.fs.root();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let found = self.fs.lookup(at, part.as_bytes())?.ino;
            self.fs.forget(found, 1);
            at = found;
        }
        Ok(at)
    }

    fn place<'p>(&self, path: &'p str) -> Result<(InodeNumber, &'p [u8]), Error> {
        if path.starts_with('@') {
            return Err(Error::Invalid("a handle is no name"));
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(parent)?, name.as_bytes()))
    }

    fn make(&self, path: &str, kind: FileKind, permissions: u32, rdev: u32, target: &[u8]) -> Answer {
        let (parent, name) = self.place(path)?;
        let node = NewNode { kind, permissions, rdev, target };
        let made = self.fs.create(parent, name, &node, &Caller::default())?.ino;
        self.fs.forget(made, 1);
        Ok(made)
    }

    fn set(&self, path: &str, changes: SetAttributes) -> Answer {
        self.fs.set_attributes(self.find(path)?, &changes).map(|_| 0)
    }

    fn range(&self, path: &str, mode: FallocateMode, offset: u64, length: u64) -> Answer {
        self.fs.fallocate(self.find(path)?, mode, offset, length).map(|()| 0)
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Answer {
        let ((parent, name), (new_parent, new_name)) = (self.place(from)?, self.place(to)?);
        self.fs.rename(parent, name, new_parent, new_name, flags, &Caller::default())?;
        if flags == RenameFlags::WHITEOUT { self.find(from) } else { Ok(0) }
    }

    /// Does a step other than waiting and mounting anew, which are the session's.
    pub fn perform(&mut self, step: &Step) -> Answer {
        let fs = self.fs;
        let nothing = |()| 0;
        let keep = FallocateMode::KEEP_SIZE;
        match step {
            Step::Create(path) => self.make(path, FileKind::Regular, 0o644, 0, b""),
            Step::Mkdir(path) => self.make(path, FileKind::Directory, 0o755, 0, b""),
            Step::Symlink(path, length) => self.make(path, FileKind::Symlink, 0o777, 0, &symlink_target(path, *length)),
            Step::Special(path, kind, rdev) => self.make(path, kind.kind(), 0o640, *rdev, b""),
            Step::Unnamed(handle) => self.unnamed(handle),
            Step::Link(from, to) => {
                let (ino, (parent, name)) = (self.find(from)?, self.place(to)?);
                fs.link(ino, parent, name)?;
                fs.forget(ino, 1);
                Ok(0)
            }
            Step::Unlink(path) => self.place(path).and_then(|(parent, name)| fs.unlink(parent, name)).map(nothing),
            Step::Rmdir(path) => {
                self.place(path).and_then(|(parent, name)| fs.remove_directory(parent, name)).map(nothing)
            }
            Step::Rename(from, to) => self.rename(from, to, RenameFlags::empty()),
            Step::RenameNew(from, to) => self.rename(from, to, RenameFlags::NO_REPLACE),
            Step::Whiteout(from, to) => self.rename(from, to, RenameFlags::WHITEOUT),
            Step::Exchange(from, to) => self.rename(from, to, RenameFlags::EXCHANGE),
            Step::Write(path, offset, length, seed) => {
                let data = bytes(*seed, *length);
                let (ino, length) = (self.find(path)?, data.len());
                match write(fs, ino, *offset, data, *seed)? {
                    0 if length > 0 => Err(Error::Corrupted("a write of no bytes is no error".to_owned())),
                    written if written < length => Err(Error::NoSpace),
                    _ => Ok(0),
                }
            }
            Step::WriteBack(path, offset, length, seed) => {
                fs.write_back(self.find(path)?, *offset, &bytes(*seed, *length)).map(nothing)
            }
            Step::Truncate(path, size) => {
                self.set(path, SetAttributes { size: Some(*size), ..SetAttributes::default() })
            }
            Step::Allocate(path, offset, length) => self.range(path, FallocateMode::empty(), *offset, *length),
            Step::Reserve(path, offset, length) => self.range(path, keep, *offset, *length),
            Step::Punch(path, offset, length) => self.range(path, FallocateMode::PUNCH_HOLE | keep, *offset, *length),
            Step::Zero(path, offset, length) => self.range(path, FallocateMode::ZERO_RANGE, *offset, *length),
            Step::ZeroKeep(path, offset, length) => {
                self.range(path, FallocateMode::ZERO_RANGE | keep, *offset, *length)
            }
            Step::SetXattr(path, name, length, seed) => {
                let (name, value) = (xattr_name(*name), bytes(*seed, *length));
                fs.set_xattr(self.find(path)?, name.as_bytes(), &value, XattrFlags::empty()).map(nothing)
            }
            Step::RemoveXattr(path, name) => {
                fs.remove_xattr(self.find(path)?, xattr_name(*name).as_bytes()).map(nothing)
            }
            Step::SetAcl(path, number) => {
                let ino = self.find(path)?;
                let is_directory = fs.attributes(ino)?.kind == FileKind::Directory;
                let name = if is_directory { DEFAULT_ACL } else { ACCESS_ACL };
                fs.set_xattr(ino, name.as_bytes(), &acl(*number)?, XattrFlags::empty()).map(nothing)
            }
            Step::Chmod(path, permissions) => {
                self.set(path, SetAttributes { permissions: Some(*permissions), ..SetAttributes::default() })
            }
            Step::Chown(path, uid, gid) => {
                self.set(path, SetAttributes { uid: Some(*uid), gid: Some(*gid), ..SetAttributes::default() })
            }
            Step::Utimes(path, seconds, nanoseconds) => {
                let (access, modify) = times(*seconds, *nanoseconds);
                let (atime, mtime) = (Some(SetTime::To(access)), Some(SetTime::To(modify)));
                self.set(path, SetAttributes { atime, mtime, ..SetAttributes::default() })
            }
            Step::Flags(path, flags) => {
                fs.set_flags(self.find(path)?, InodeFlags::from_bits_retain(*flags)).map(nothing)
            }
            Step::Hold(path) => {
                let (parent, name) = self.place(path)?;
                self.held.names.push(fs.lookup(parent, name)?.ino);
                Ok(0)
            }
            Step::Release => {
                self.held.expect(fs)?;
                self.held.release(fs);
                Ok(0)
            }
            Step::Fsync(path) => fs.sync_file(self.find(path)?, false).map(nothing),
            Step::Fdatasync(path) => fs.sync_file(self.find(path)?, true).map(nothing),
            Step::Sync => fs.sync().map(nothing),
            Step::Statfs => fs.stat_fs().map(|_| 0),
            Step::Trim => fs.trim(0, u64::MAX, 0).map(|_| 0),
            Step::Defragment(path) => self.defragment(path),
            Step::Walk => find_tree(fs, None).map(|_| 0).map_err(Error::Corrupted),
            Step::Tick(_) | Step::Remount => Ok(0),
        }
    }

    fn defragment(&self, path: &str) -> Answer {
        let ino = self.find(path)?;
        let end = self.fs.attributes(ino)?.size.next_multiple_of(4096);
        let mut next = 0;
        while next < end {
            next = self.fs.defragment(ino, next, end - next)?.next;
        }
        Ok(0)
    }

    fn unnamed(&mut self, handle: &str) -> Answer {
        if !handle.starts_with('@') {
            return Err(Error::Invalid("a handle begins with `@`"));
        }
        let made = self.fs.create_unnamed(self.fs.root(), 0o600, &Caller::default())?.ino;
        if let Some(before) = self.held.handles.insert(handle.to_owned(), made) {
            self.fs.forget(before, 1);
        }
        Ok(made)
    }
}
