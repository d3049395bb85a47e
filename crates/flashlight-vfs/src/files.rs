//! Files and directories: one lock around the volume, references of inodes, `.` and `..`.

use std::sync::atomic::Ordering::Relaxed;

use basalt_flashlight::{Attributes as Inode, Change, InodeNumber as Number, NewInode};
use basalt_nand::NandDevice;
use basalt_vfs::{
    Attributes, Background, Caller, DirectoryEntry, Emptied, Error, FallocateMode, FileKind, FileSystem, InodeFlags,
    InodeNumber, NewNode, RenameFlags, Result, Seek, SetAttributes, SetTime, StatFs, Time, XattrFlags,
};

use crate::content::write_some;
use crate::{FlashFs, Inner, error};

/// Set-uid, set-gid.
const SUID: u32 = 0o4000;
const SGID: u32 = 0o2000;
/// What of a file's permissions lets its group execute it: with it, set-gid is no mark of locks.
const GROUP_EXECUTES: u32 = 0o010;
/// Bytes of a path that Linux takes.
const LONGEST_TARGET: u64 = 4096;
/// Places of a listing: `.`, `..`, then the entries in the order of their keys.
const FIRST_ENTRY: u64 = 2;
const NO_XATTRS: Error = Error::NotSupported("extended attributes on FlashLight");

/// The number of an inode in the volume.
pub(crate) fn number(ino: InodeNumber) -> Result<Number> {
    let number = ino.checked_sub(1).and_then(|number| u32::try_from(number).ok());
    number.map(Number).ok_or(Error::Stale)
}

/// The number of an inode that callers see.
pub(crate) fn ino(number: Number) -> InodeNumber {
    u64::from(number.0) + 1
}

fn outside(time: basalt_flashlight::Time) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds.min(999_999_999) }
}

pub(crate) fn inside(time: Time) -> basalt_flashlight::Time {
    basalt_flashlight::Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// What callers see of an inode. Errors: its type is none.
pub(crate) fn described(found: &Inode) -> Result<Attributes> {
    let kind = FileKind::from_mode(found.mode);
    let kind = kind.ok_or_else(|| Error::Corrupted(format!("inode {}: type {:o}", found.number.0, found.mode)))?;
    let size = if kind == FileKind::Directory { 2048 } else { found.size };
    Ok(Attributes {
        ino: ino(found.number),
        generation: 0,
        kind,
        permissions: found.mode & 0o7777,
        links: found.links,
        uid: found.uid,
        gid: found.gid,
        rdev: found.rdev,
        size,
        sectors: found.stored / 512,
        atime: outside(found.accessed),
        mtime: outside(found.modified),
        ctime: outside(found.changed),
        crtime: None,
        flags: InodeFlags::empty(),
        project_id: 0,
    })
}

impl<D: NandDevice + Send> Inner<D> {
    pub(crate) fn attributes(&mut self, number: Number) -> Result<Attributes> {
        // A number that nobody has any more is stale, not a name that is missing.
        let found = self.volume.attributes(number).map_err(|failed| match error(failed) {
            Error::NotFound => Error::Stale,
            other => other,
        })?;
        described(&found)
    }

    /// The attributes for a caller who holds the inode from now on.
    fn hold(&mut self, number: Number) -> Result<Attributes> {
        let attributes = self.attributes(number)?;
        *self.references.entry(number.0).or_insert(0) += 1;
        Ok(attributes)
    }

    /// Everything outlasts a power cut.
    fn sync(&mut self) -> Result<()> {
        self.volume.sync().map_err(error)?;
        self.flush()?;
        self.changed = false;
        Ok(())
    }

    /// What was written outlasts a power cut, also where the chip is a file.
    fn flush(&mut self) -> Result<()> {
        let flushed = self.volume.device().flush();
        if flushed.is_err() {
            // The system tells of it once: whoever asks later must not hear that all is well.
            self.volume.fail();
        }
        flushed.map_err(|failed| error(failed.into()))
    }

    fn is_held(&self, number: Number) -> bool {
        self.references.contains_key(&number.0)
    }

    fn directory(&mut self, at: InodeNumber) -> Result<Number> {
        let number = number(at)?;
        if self.attributes(number)?.is_dir() { Ok(number) } else { Err(Error::NotDirectory) }
    }

    fn find(&mut self, parent: InodeNumber, name: &[u8]) -> Result<Number> {
        let parent = self.directory(parent)?;
        match name {
            b"." => Ok(parent),
            b".." => self.volume.parent(parent).map_err(error),
            name => self.volume.lookup(parent, name).map_err(error),
        }
    }

    /// Bits that a write or a change of owner takes away.
    fn without_set_ids(permissions: u32) -> u32 {
        let group = if permissions & GROUP_EXECUTES != 0 { SGID } else { 0 };
        permissions & !(SUID | group)
    }

    fn clear_set_ids(&mut self, number: Number, now: Time) -> Result<()> {
        let permissions = self.attributes(number)?.permissions;
        let cleared = Self::without_set_ids(permissions);
        if cleared == permissions {
            return Ok(());
        }
        let change = Change { permissions: Some(cleared), ..Change::default() };
        self.volume.change(number, &change, inside(now)).map_err(error)
    }
}

impl<D: NandDevice + Send> FlashFs<D> {
    fn now(&self) -> Time {
        (self.clock)()
    }

    /// Asks something under the lock.
    fn look<R>(&self, ask: impl FnOnce(&mut Inner<D>) -> Result<R>) -> Result<R> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Error::Io("the volume is closed".to_owned()));
        }
        ask(&mut inner)
    }

    /// Changes something under the lock.
    fn change<R>(&self, change: impl FnOnce(&mut Inner<D>, Time) -> Result<R>) -> Result<R> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let now = self.now();
        self.look(|inner| {
            inner.changed = true;
            change(inner, now)
        })
    }
}

impl<D: NandDevice + Send> FileSystem for FlashFs<D> {
    fn root(&self) -> InodeNumber {
        1
    }

    fn lookup(&self, parent: InodeNumber, name: &[u8]) -> Result<Attributes> {
        self.look(|inner| {
            let found = inner.find(parent, name)?;
            inner.hold(found)
        })
    }

    fn forget(&self, ino: InodeNumber, count: u64) {
        let Ok(number) = number(ino) else { return };
        // An error here is told by whoever comes next: the volume takes no more changes.
        let _ = self.look(|inner| {
            let Some(held) = inner.references.get_mut(&number.0) else { return Ok(()) };
            *held = held.saturating_sub(count);
            if *held > 0 {
                return Ok(());
            }
            inner.references.remove(&number.0);
            match inner.volume.attributes(number) {
                Ok(found) if found.links == 0 => inner.volume.forget(number).map_err(error),
                _ => Ok(()),
            }
        });
    }

    fn attributes(&self, ino: InodeNumber) -> Result<Attributes> {
        self.look(|inner| inner.attributes(number(ino)?))
    }

    fn set_attributes(&self, ino: InodeNumber, changes: &SetAttributes) -> Result<Attributes> {
        self.change(|inner, now| {
            let number = number(ino)?;
            let before = inner.attributes(number)?;
            if let Some(size) = changes.size {
                if !before.is_file() {
                    return Err(if before.is_dir() { Error::IsDirectory } else { Error::Invalid("no regular file") });
                }
                inner.volume.set_length(number, size, inside(now)).map_err(error)?;
            }
            let time = |set: Option<SetTime>| {
                set.map(|set| match set {
                    SetTime::Now => now,
                    SetTime::To(time) => time,
                })
            };
            let mut permissions = changes.permissions;
            if changes.clear_suid_sgid {
                permissions = Some(Inner::<D>::without_set_ids(permissions.unwrap_or(before.permissions)));
            }
            let (mut modified, changed) = (time(changes.mtime), time(changes.ctime));
            if changes.size.is_some() && self.times_are_callers.load(Relaxed) {
                modified = modified.or(Some(before.mtime));
            }
            let change = Change {
                permissions,
                uid: changes.uid,
                gid: changes.gid,
                accessed: time(changes.atime).map(inside),
                modified: modified.map(inside),
            };
            inner.volume.change(number, &change, inside(changed.unwrap_or(now))).map_err(error)?;
            inner.attributes(number)
        })
    }

    fn read_link(&self, ino: InodeNumber) -> Result<Vec<u8>> {
        self.look(|inner| {
            let number = number(ino)?;
            let size = inner.attributes(number)?.size;
            if size > LONGEST_TARGET {
                return Err(Error::Corrupted(format!("inode {}: a link to {size} bytes", number.0)));
            }
            let mut target = vec![0; size as usize];
            inner.volume.read_link(number, &mut target).map_err(error)?;
            Ok(target)
        })
    }

    fn create(&self, parent: InodeNumber, name: &[u8], node: &NewNode<'_>, caller: &Caller) -> Result<Attributes> {
        self.change(|inner, now| {
            let at = inner.directory(parent)?;
            let above = inner.attributes(at)?;
            let mut permissions = node.permissions & !caller.umask & 0o7777;
            let mut gid = caller.gid;
            if above.permissions & SGID != 0 {
                // A directory whose group is everybody's below it.
                gid = above.gid;
                permissions |= if node.kind == FileKind::Directory { SGID } else { 0 };
            }
            let mode = node.kind.mode_bits() | permissions;
            let new = NewInode { mode, uid: caller.uid, gid, rdev: node.rdev, now: inside(now) };
            let made = match node.kind {
                FileKind::Directory => inner.volume.make_directory(at, name, &new),
                FileKind::Symlink => inner.volume.link(at, name, node.target, &NewInode { mode: 0o777, ..new }),
                _ => inner.volume.create(at, name, &new),
            };
            inner.hold(made.map_err(error)?)
        })
    }

    fn create_unnamed(&self, _: InodeNumber, _: u32, _: &Caller) -> Result<Attributes> {
        Err(Error::NotSupported("files without a name on FlashLight"))
    }

    fn link(&self, _: InodeNumber, _: InodeNumber, _: &[u8]) -> Result<Attributes> {
        Err(Error::NotPermitted("FlashLight has no hard links"))
    }

    fn unlink(&self, parent: InodeNumber, name: &[u8]) -> Result<()> {
        self.change(|inner, now| {
            let found = inner.find(parent, name)?;
            let held = inner.is_held(found);
            inner.volume.unlink(number(parent)?, name, held, inside(now)).map_err(error)
        })
    }

    fn remove_directory(&self, parent: InodeNumber, name: &[u8]) -> Result<()> {
        self.change(|inner, now| {
            match name {
                b"." => return Err(Error::Invalid("`.` cannot be removed")),
                b".." => return Err(Error::NotEmpty),
                _ => {}
            }
            let at = inner.directory(parent)?;
            inner.volume.remove_directory(at, name, inside(now)).map_err(error)
        })
    }

    fn rename(
        &self,
        parent: InodeNumber,
        name: &[u8],
        new_parent: InodeNumber,
        new_name: &[u8],
        flags: RenameFlags,
        _: &Caller,
    ) -> Result<()> {
        if flags.intersects(RenameFlags::EXCHANGE | RenameFlags::WHITEOUT) {
            return Err(Error::Invalid("FlashLight neither exchanges two names nor leaves whiteouts"));
        }
        self.change(|inner, now| {
            let (from, to) = (inner.directory(parent)?, inner.directory(new_parent)?);
            let replaced = match inner.volume.lookup(to, new_name) {
                Ok(_) if flags.contains(RenameFlags::NO_REPLACE) => return Err(Error::Exists),
                Ok(found) => Some(found),
                Err(basalt_flashlight::Error::NotFound) => None,
                Err(failed) => return Err(error(failed)),
            };
            let held = replaced.is_some_and(|found| inner.is_held(found));
            inner.volume.rename((from, name), (to, new_name), held, inside(now)).map_err(error)
        })
    }

    fn leave_times_to_caller(&self) {
        self.times_are_callers.store(true, Relaxed);
    }

    fn read(&self, ino: InodeNumber, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.look(|inner| inner.volume.read(number(ino)?, offset, buf).map_err(error))
    }

    fn write(&self, ino: InodeNumber, offset: u64, data: &[u8], clear_suid_sgid: bool) -> Result<usize> {
        self.change(|inner, now| {
            let at = number(ino)?;
            let kept = if self.times_are_callers.load(Relaxed) { Some(inner.attributes(at)?) } else { None };
            let written = write_some(&mut inner.volume, (at, offset), data, kept.map_or(now, |kept| kept.mtime))?;
            if let Some(kept) = kept {
                inner.keep_times(at, &kept)?;
            }
            if clear_suid_sgid {
                inner.clear_set_ids(at, now)?;
            }
            Ok(written)
        })
    }

    fn fallocate(&self, ino: InodeNumber, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        self.change(|inner, now| {
            let at = number(ino)?;
            let kept = if self.times_are_callers.load(Relaxed) { Some(inner.attributes(at)?) } else { None };
            inner.fallocate(at, mode, (offset, length), now)?;
            kept.map_or(Ok(()), |kept| inner.keep_times(at, &kept))
        })
    }

    fn seek(&self, ino: InodeNumber, offset: u64, whence: Seek) -> Result<u64> {
        self.look(|inner| inner.seek(number(ino)?, offset, whence))
    }

    fn read_directory(
        &self,
        ino: InodeNumber,
        from: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        self.look(|inner| {
            let at = inner.directory(ino)?;
            let parent = inner.volume.parent(at).map_err(error)?;
            for (place, name, number) in [(0, &b"."[..], at), (1, b"..", parent)] {
                let entry = DirectoryEntry { ino: self::ino(number), kind: FileKind::Directory, name, next: place + 1 };
                if from <= place && !emit(entry) {
                    return Ok(());
                }
            }
            let mut next = u32::try_from(from.saturating_sub(FIRST_ENTRY)).ok();
            let mut name = [0; 255];
            while let Some(from) = next {
                let Some(listed) = inner.volume.list(at, from, &mut name).map_err(error)? else { break };
                let behind = listed.next.map_or(u64::from(u32::MAX) + 1, u64::from) + FIRST_ENTRY;
                let kind = FileKind::from_mode(listed.mode).unwrap_or(FileKind::Regular);
                let name = &name[..listed.name_length];
                if !emit(DirectoryEntry { ino: self::ino(listed.number), kind, name, next: behind }) {
                    break;
                }
                next = listed.next;
            }
            Ok(())
        })
    }

    fn sync_file(&self, ino: InodeNumber, _: bool) -> Result<()> {
        self.look(|inner| {
            inner.volume.sync_file(number(ino)?).map_err(error)?;
            inner.flush()
        })
    }

    fn sync(&self) -> Result<()> {
        self.look(Inner::sync)
    }

    fn stat_fs(&self) -> Result<StatFs> {
        self.look(|inner| {
            let (usage, page) = (inner.volume.usage(), inner.volume.geometry().page_bytes);
            let free = usage.bytes.saturating_sub(usage.used) / u64::from(page);
            Ok(StatFs {
                block_size: page,
                blocks: usage.bytes / u64::from(page),
                free,
                available: free,
                files: u64::from(usage.inodes) + u64::from(usage.free_inodes),
                files_free: usage.free_inodes.into(),
                name_max: 255,
                id: u64::from_le_bytes(inner.volume.identity().uuid[..8].try_into().unwrap_or_default()),
            })
        })
    }

    fn get_xattr(&self, _: InodeNumber, _: &[u8]) -> Result<Vec<u8>> {
        // The kernel asks for ACLs of each file that is not the caller's, and takes any other answer for a refusal.
        Err(Error::NoAttribute)
    }

    fn set_xattr(&self, _: InodeNumber, _: &[u8], _: &[u8], _: XattrFlags) -> Result<()> {
        Err(NO_XATTRS)
    }

    fn list_xattrs(&self, _: InodeNumber) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn remove_xattr(&self, _: InodeNumber, _: &[u8]) -> Result<()> {
        Err(Error::NoAttribute)
    }

    fn set_flags(&self, _: InodeNumber, _: InodeFlags) -> Result<()> {
        Err(Error::NotSupported("flags of files on FlashLight"))
    }

    fn set_project_id(&self, _: InodeNumber, _: u32) -> Result<()> {
        Err(Error::NotSupported("projects on FlashLight"))
    }

    fn trim(&self, _: u64, _: u64, _: u64) -> Result<u64> {
        Err(Error::NotSupported("discarding on raw flash"))
    }

    fn empty_sections(&self, most: u32) -> Result<Emptied> {
        self.change(|inner, _| {
            let before = inner.volume.counters().moved;
            let sections = inner.volume.clean(most).map_err(error)?;
            let blocks_moved = (inner.volume.counters().moved - before) as u32;
            let geometry = inner.volume.geometry();
            Ok(Emptied {
                sections,
                blocks_moved,
                free_sections: inner.volume.free_blocks(),
                all_sections: geometry.blocks,
            })
        })
    }

    fn tick(&self, _: Time) -> Background {
        let mut inner = self.inner.lock();
        // What fails here is told by the next change: the volume is stopped.
        if inner.changed && !inner.closed {
            let _ = inner.sync();
        }
        Background { next: self.commit_interval }
    }

    fn close(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Ok(());
        }
        inner.closed = true;
        inner.references.clear();
        inner.volume.close().map_err(error)?;
        inner.flush()
    }
}
