//! A file system in memory: what the mount is tested against. Complete in what programs see, simple inside: one lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use basalt_vfs::*;

#[path = "memory/inode.rs"]
mod inode;

use inode::{Inode, now};
use parking_lot::{Condvar, Mutex, MutexGuard};

pub const ROOT: InodeNumber = 3;
const PAGE: u64 = 4096;

/// What the mount has asked for, to be looked at by tests.
#[derive(Default)]
pub struct Calls {
    pub syncs: AtomicU64,
    pub closes: AtomicU64,
    pub ticks: AtomicU64,
    /// Threads that have begun to write behind, and those that have ended.
    pub behind: (AtomicU64, AtomicU64),
    /// Writing behind panics.
    pub behind_panics: AtomicBool,
    /// Every call of `stat_fs` panics.
    pub stat_panics: AtomicBool,
    /// From now on, this call of `stat_fs` panics: 1 is the next one, 0 none.
    pub stat_panics_in: AtomicU64,
    /// `stat_fs` takes so many milliseconds.
    pub stat_slow: AtomicU64,
    /// Fewer blocks are free by so many.
    pub taken: AtomicU64,
    /// Bytes of content.
    pub written: AtomicU64,
    pub synced_files: Mutex<Vec<(InodeNumber, bool)>>,
    /// Bytes of writes that may be kept, and whether the kernel's page cache held them.
    pub kept: Mutex<Vec<(Bytes, bool)>>,
}

pub struct MemoryFs {
    state: Mutex<State>,
    pub calls: Calls,
    /// How long `close` takes.
    pub close_delay: Duration,
    /// Refuses what the kernel's page cache hands over, as a volume that a failure has made read-only.
    pub refuses_pages: AtomicBool,
    /// Whether writing behind has ended, and who waits for that.
    behind: (Mutex<bool>, Condvar),
}

struct State {
    inodes: HashMap<InodeNumber, Inode>,
    next: InodeNumber,
    generation: u32,
}

impl State {
    fn get(&mut self, ino: InodeNumber) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Error::Stale)
    }

    fn directory(&mut self, ino: InodeNumber) -> Result<&mut Inode> {
        let inode = self.get(ino)?;
        if inode.attributes.kind == FileKind::Directory { Ok(inode) } else { Err(Error::NotDirectory) }
    }

    fn find(&mut self, parent: InodeNumber, name: &[u8]) -> Result<InodeNumber> {
        let directory = self.directory(parent)?;
        match name {
            b"." => return Ok(parent),
            b".." => return Ok(directory.parent),
            _ if name.len() > 255 => return Err(Error::NameTooLong),
            _ => {}
        }
        let cursor = directory.names.get(name).ok_or(Error::NotFound)?;
        Ok(directory.entries[cursor].1)
    }

    fn absent(&mut self, parent: InodeNumber, name: &[u8]) -> Result<()> {
        match self.find(parent, name) {
            Err(Error::NotFound) => Ok(()),
            Ok(_) => Err(Error::Exists),
            Err(error) => Err(error),
        }
    }

    fn reap(&mut self, ino: InodeNumber) {
        if self.inodes.get(&ino).is_some_and(|inode| inode.attributes.links == 0 && inode.references == 0) {
            self.inodes.remove(&ino);
        }
    }

    fn unlinked(&mut self, ino: InodeNumber) -> Result<()> {
        let inode = self.get(ino)?;
        inode.attributes.links =
            if inode.attributes.kind == FileKind::Directory { 0 } else { inode.attributes.links - 1 };
        inode.attributes.ctime = now();
        self.reap(ino);
        Ok(())
    }

    fn refer(&mut self, ino: InodeNumber) -> Result<Attributes> {
        let inode = self.get(ino)?;
        inode.references += 1;
        Ok(inode.attributes())
    }

    fn make(&mut self, parent: InodeNumber, node: &NewNode<'_>, caller: &Caller) -> InodeNumber {
        let ino = self.next;
        self.next += 1;
        self.generation += 1;
        self.inodes.insert(ino, Inode::new(ino, self.generation, node, parent, caller));
        ino
    }

    fn is_directory(&mut self, ino: InodeNumber) -> bool {
        self.directory(ino).is_ok()
    }

    fn adopt(&mut self, ino: InodeNumber, from: InodeNumber, to: InodeNumber) -> Result<()> {
        if self.is_directory(ino) {
            self.get(ino)?.parent = to;
            self.get(from)?.attributes.links -= 1;
            self.get(to)?.attributes.links += 1;
        }
        Ok(())
    }
}

impl MemoryFs {
    pub fn new() -> Self {
        Self::with_close_delay(Duration::ZERO)
    }

    pub fn with_close_delay(close_delay: Duration) -> Self {
        let node = NewNode { kind: FileKind::Directory, permissions: 0o755, rdev: 0, target: &[] };
        let root = Inode::new(ROOT, 0, &node, ROOT, &Caller::default());
        let state = State { inodes: HashMap::from([(ROOT, root)]), next: ROOT + 1, generation: 0 };
        MemoryFs {
            state: Mutex::new(state),
            calls: Calls::default(),
            close_delay,
            refuses_pages: AtomicBool::new(false),
            behind: (Mutex::new(false), Condvar::new()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Inodes that exist, the root included.
    pub fn inode_count(&self) -> usize {
        self.state().inodes.len()
    }

    fn put(&self, ino: InodeNumber, offset: u64, data: &[u8], times: bool, clear: bool) -> Result<()> {
        let mut state = self.state();
        let inode = state.get(ino)?;
        if inode.attributes.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted("immutable"));
        }
        if clear {
            inode.clear_suid_sgid();
        }
        inode.write(offset, data);
        self.calls.written.fetch_add(data.len() as u64, SeqCst);
        if times {
            inode.changed();
        }
        Ok(())
    }
}

impl FileSystem for MemoryFs {
    fn root(&self) -> InodeNumber {
        ROOT
    }

    fn lookup(&self, parent: InodeNumber, name: &[u8]) -> Result<Attributes> {
        let mut state = self.state();
        let ino = state.find(parent, name)?;
        state.refer(ino)
    }

    fn forget(&self, ino: InodeNumber, count: u64) {
        let mut state = self.state();
        if let Ok(inode) = state.get(ino) {
            inode.references = inode.references.checked_sub(count).expect("more references given back than taken");
        }
        state.reap(ino);
    }

    fn attributes(&self, ino: InodeNumber) -> Result<Attributes> {
        Ok(self.state().get(ino)?.attributes())
    }

    fn set_attributes(&self, ino: InodeNumber, changes: &SetAttributes) -> Result<Attributes> {
        let mut state = self.state();
        let inode = state.get(ino)?;
        if let Some(size) = changes.size {
            inode.resize(size);
            inode.changed();
        }
        if changes.clear_suid_sgid {
            inode.clear_suid_sgid();
        }
        let attributes = &mut inode.attributes;
        attributes.permissions = changes.permissions.unwrap_or(attributes.permissions);
        attributes.uid = changes.uid.unwrap_or(attributes.uid);
        attributes.gid = changes.gid.unwrap_or(attributes.gid);
        attributes.ctime = now();
        let set = |time: &mut Time, to| match to {
            Some(SetTime::Now) => *time = now(),
            Some(SetTime::To(to)) => *time = to,
            None => {}
        };
        set(&mut attributes.atime, changes.atime);
        set(&mut attributes.mtime, changes.mtime);
        set(&mut attributes.ctime, changes.ctime);
        Ok(inode.attributes())
    }

    fn read_link(&self, ino: InodeNumber) -> Result<Vec<u8>> {
        Ok(self.state().get(ino)?.target.clone())
    }

    fn create(&self, parent: InodeNumber, name: &[u8], node: &NewNode<'_>, caller: &Caller) -> Result<Attributes> {
        let mut state = self.state();
        state.absent(parent, name)?;
        let ino = state.make(parent, node, caller);
        let directory = state.get(parent)?;
        directory.insert(name, ino);
        directory.attributes.links += u32::from(node.kind == FileKind::Directory);
        state.refer(ino)
    }

    fn create_unnamed(&self, parent: InodeNumber, permissions: u32, caller: &Caller) -> Result<Attributes> {
        let mut state = self.state();
        let node = NewNode { kind: FileKind::Regular, permissions, rdev: 0, target: &[] };
        let ino = state.make(parent, &node, caller);
        state.get(ino)?.attributes.links = 0;
        state.refer(ino)
    }

    fn link(&self, ino: InodeNumber, parent: InodeNumber, name: &[u8]) -> Result<Attributes> {
        let mut state = self.state();
        state.absent(parent, name)?;
        state.directory(parent)?.insert(name, ino);
        let inode = state.get(ino)?;
        inode.attributes.links += 1;
        inode.attributes.ctime = now();
        state.refer(ino)
    }

    fn unlink(&self, parent: InodeNumber, name: &[u8]) -> Result<()> {
        let mut state = self.state();
        let ino = state.find(parent, name)?;
        if state.is_directory(ino) {
            return Err(Error::IsDirectory);
        }
        state.get(parent)?.remove(name);
        state.unlinked(ino)
    }

    fn remove_directory(&self, parent: InodeNumber, name: &[u8]) -> Result<()> {
        let mut state = self.state();
        let ino = state.find(parent, name)?;
        if !state.directory(ino)?.entries.is_empty() {
            return Err(Error::NotEmpty);
        }
        let directory = state.get(parent)?;
        directory.remove(name);
        directory.attributes.links -= 1;
        state.unlinked(ino)
    }

    fn rename(
        &self,
        parent: InodeNumber,
        name: &[u8],
        new_parent: InodeNumber,
        new_name: &[u8],
        flags: RenameFlags,
        caller: &Caller,
    ) -> Result<()> {
        let mut state = self.state();
        let ino = state.find(parent, name)?;
        let target = match state.find(new_parent, new_name) {
            Err(Error::NotFound) => None,
            found => Some(found?),
        };
        if flags.contains(RenameFlags::NO_REPLACE) && target.is_some() {
            return Err(Error::Exists);
        }
        if flags.contains(RenameFlags::EXCHANGE) {
            let other = target.ok_or(Error::NotFound)?;
            state.get(parent)?.remove(name);
            state.get(new_parent)?.remove(new_name);
            state.get(parent)?.insert(name, other);
            state.get(new_parent)?.insert(new_name, ino);
            state.adopt(ino, parent, new_parent)?;
            return state.adopt(other, new_parent, parent);
        }
        if target == Some(ino) {
            return Ok(());
        }
        if let Some(target) = target {
            if state.is_directory(target) && !state.get(target)?.entries.is_empty() {
                return Err(Error::NotEmpty);
            }
            state.get(new_parent)?.remove(new_name);
            if state.is_directory(target) {
                state.get(new_parent)?.attributes.links -= 1;
            }
            state.unlinked(target)?;
        }
        state.get(parent)?.remove(name);
        state.get(new_parent)?.insert(new_name, ino);
        if flags.contains(RenameFlags::WHITEOUT) {
            let node = NewNode { kind: FileKind::CharDevice, permissions: 0, rdev: 0, target: &[] };
            let whiteout = state.make(parent, &node, caller);
            state.get(parent)?.insert(name, whiteout);
        }
        state.adopt(ino, parent, new_parent)
    }

    fn open(&self, ino: InodeNumber, how: OpenFlags) -> Result<()> {
        let flags = self.state().get(ino)?.attributes.flags;
        let appends = how.contains(OpenFlags::APPEND) && !how.contains(OpenFlags::TRUNCATE);
        let forbidden = flags.contains(InodeFlags::IMMUTABLE) || flags.contains(InodeFlags::APPEND) && !appends;
        if how.contains(OpenFlags::WRITE) && forbidden { Err(Error::NotPermitted("by flag")) } else { Ok(()) }
    }

    fn read(&self, ino: InodeNumber, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.state().get(ino)?.read(offset, buf))
    }

    fn write(&self, ino: InodeNumber, offset: u64, data: &[u8], clear_suid_sgid: bool) -> Result<usize> {
        self.put(ino, offset, data, true, clear_suid_sgid).map(|()| data.len())
    }

    fn write_back(&self, ino: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        if self.refuses_pages.load(SeqCst) {
            return Err(Error::ReadOnly);
        }
        self.put(ino, offset, data, false, false)
    }

    fn write_shared(&self, ino: InodeNumber, offset: u64, data: Bytes, clear_suid_sgid: bool) -> Result<usize> {
        self.calls.kept.lock().push((data.clone(), false));
        self.write(ino, offset, &data, clear_suid_sgid)
    }

    fn write_back_shared(&self, ino: InodeNumber, offset: u64, data: Bytes) -> Result<()> {
        self.calls.kept.lock().push((data.clone(), true));
        self.write_back(ino, offset, &data)
    }

    fn fallocate(&self, ino: InodeNumber, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        let mut state = self.state();
        let inode = state.get(ino)?;
        let end = offset.checked_add(length).ok_or(Error::FileTooLarge)?;
        match mode {
            FallocateMode::KEEP_SIZE => {}
            _ if mode.is_empty() => inode.attributes.size = inode.attributes.size.max(end),
            _ if mode == FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE => inode.punch(offset, end),
            _ => return Err(Error::NotSupported("fallocate mode")),
        }
        inode.changed();
        Ok(())
    }

    fn seek(&self, ino: InodeNumber, offset: u64, whence: Seek) -> Result<u64> {
        let mut state = self.state();
        let inode = state.get(ino)?;
        let size = inode.attributes.size;
        if offset >= size {
            return Err(Error::NoData);
        }
        let last = size.div_ceil(PAGE);
        let is_data = |index: &u64| inode.pages.contains_key(index);
        let found = (offset / PAGE..last).find(|index| is_data(index) == (whence == Seek::Data));
        match (found, whence) {
            (Some(index), _) => Ok(offset.max(index * PAGE)),
            (None, Seek::Hole) => Ok(size),
            (None, Seek::Data) => Err(Error::NoData),
        }
    }

    fn read_directory(
        &self,
        ino: InodeNumber,
        from: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let mut state = self.state();
        let directory = state.directory(ino)?;
        let dots = [(1, &b"."[..], ino), (2, b"..", directory.parent)];
        for (cursor, name, ino) in dots {
            if cursor > from && !emit(DirectoryEntry { ino, kind: FileKind::Directory, name, next: cursor }) {
                return Ok(());
            }
        }
        let listed: Vec<_> = directory.entries.range(from + 1..).take(4096).map(|(c, e)| (*c, e.clone())).collect();
        for (cursor, (name, ino)) in listed {
            let kind = state.get(ino)?.attributes.kind;
            if !emit(DirectoryEntry { ino, kind, name: &name, next: cursor }) {
                break;
            }
        }
        Ok(())
    }

    fn sync_file(&self, ino: InodeNumber, data_only: bool) -> Result<()> {
        self.calls.synced_files.lock().push((ino, data_only));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.calls.syncs.fetch_add(1, SeqCst);
        Ok(())
    }

    fn stat_fs(&self) -> Result<StatFs> {
        let countdown = |left: u64| left.checked_sub(1);
        let left = self.calls.stat_panics_in.fetch_update(SeqCst, SeqCst, countdown);
        assert!(left != Ok(1) && !self.calls.stat_panics.load(SeqCst), "a planted panic");
        std::thread::sleep(Duration::from_millis(self.calls.stat_slow.load(SeqCst)));
        let blocks = 1 << 20;
        let available = blocks / 2 - self.calls.taken.load(SeqCst);
        let files = self.inode_count() as u64;
        Ok(StatFs { block_size: 4096, blocks, free: available, available, files, name_max: 255, ..Default::default() })
    }

    fn get_xattr(&self, ino: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        self.state().get(ino)?.xattrs.get(name).cloned().ok_or(Error::NoAttribute)
    }

    fn set_xattr(&self, ino: InodeNumber, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        let mut state = self.state();
        let inode = state.get(ino)?;
        let there = inode.xattrs.contains_key(name);
        if flags.contains(XattrFlags::CREATE) && there {
            return Err(Error::Exists);
        }
        if flags.contains(XattrFlags::REPLACE) && !there {
            return Err(Error::NoAttribute);
        }
        if name == b"system.posix_acl_access" {
            for entry in value.get(4..).unwrap_or_default().chunks_exact(8) {
                let shift = match entry[0] {
                    0x01 => 6,
                    0x10 => 3,
                    0x20 => 0,
                    _ => continue,
                };
                let mode = &mut inode.attributes.permissions;
                *mode = *mode & !(7 << shift) | u32::from(entry[2] & 7) << shift;
            }
        }
        inode.xattrs.insert(name.to_vec(), value.to_vec());
        inode.attributes.ctime = now();
        Ok(())
    }

    fn list_xattrs(&self, ino: InodeNumber) -> Result<Vec<u8>> {
        let mut state = self.state();
        Ok(state.get(ino)?.xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect())
    }

    fn remove_xattr(&self, ino: InodeNumber, name: &[u8]) -> Result<()> {
        self.state().get(ino)?.xattrs.remove(name).map(|_| ()).ok_or(Error::NoAttribute)
    }

    fn set_flags(&self, ino: InodeNumber, flags: InodeFlags) -> Result<()> {
        self.state().get(ino)?.attributes.flags = flags;
        Ok(())
    }

    fn set_project_id(&self, ino: InodeNumber, project_id: u32) -> Result<()> {
        self.state().get(ino)?.attributes.project_id = project_id;
        Ok(())
    }

    fn trim(&self, _offset: u64, length: u64, minimum: u64) -> Result<u64> {
        Ok(length.min(1 << 30) + minimum)
    }

    fn tick(&self, _now: Time) -> Background {
        self.calls.ticks.fetch_add(1, SeqCst);
        Background { next: Duration::from_millis(10) }
    }

    /// Lasts until it is ended: a session that does not end it never ends either.
    fn write_behind(&self) {
        self.calls.behind.0.fetch_add(1, SeqCst);
        assert!(!self.calls.behind_panics.load(SeqCst), "a panic that a test wants");
        self.behind.1.wait_while(&mut self.behind.0.lock(), |ended| !*ended);
        self.calls.behind.1.fetch_add(1, SeqCst);
    }

    fn end_write_behind(&self) {
        *self.behind.0.lock() = true;
        self.behind.1.notify_all();
    }

    fn close(&self) -> Result<()> {
        std::thread::sleep(self.close_delay);
        self.calls.closes.fetch_add(1, SeqCst);
        self.state().inodes.retain(|_, inode| {
            inode.references = 0;
            inode.attributes.links > 0
        });
        Ok(())
    }
}
