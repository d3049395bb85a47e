//! A file system that counts the references it has given out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use basalt_device::MemoryDevice;
use basalt_f2fs::format::{FormatOptions, format};
use basalt_f2fs::{F2fs, OpenOptions, SystemClock};
use basalt_vfs::{
    Attributes, Background, Caller, DirectoryEntry, FallocateMode, FileSystem, InodeFlags, InodeNumber, NewNode,
    OpenFlags, RenameFlags, Result, Seek, SetAttributes, StatFs, Time, XattrFlags,
};

/// What somebody else does.
type Rival = Box<dyn FnOnce() + Send>;

/// An F2FS volume in memory, with the references that are not given back yet.
pub struct Counting {
    fs: F2fs,
    held: Mutex<BTreeMap<InodeNumber, u64>>,
    /// Comes first when a directory is listed, or removed, the next time.
    rivals: [Mutex<Option<Rival>>; 2],
}

impl Counting {
    /// An empty volume.
    pub fn new() -> Arc<Counting> {
        let device = Arc::new(MemoryDevice::new(64 << 20, 512));
        format(&*device, &FormatOptions::default(), &mut |_, _| {}).unwrap();
        let fs = F2fs::open(device, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        Arc::new(Counting { fs, held: Mutex::default(), rivals: Default::default() })
    }

    /// Fails unless every reference was given back.
    pub fn expect_none_held(&self) {
        let held = self.held.lock().unwrap();
        assert!(held.is_empty(), "references that nobody gives back, by inode: {held:?}");
    }

    /// Lets `rival` come first when a directory is listed the next time.
    pub fn before_listing(&self, rival: impl FnOnce() + Send + 'static) {
        *self.rivals[0].lock().unwrap() = Some(Box::new(rival));
    }

    /// Lets `rival` come first when a directory is removed the next time.
    pub fn before_removal(&self, rival: impl FnOnce() + Send + 'static) {
        *self.rivals[1].lock().unwrap() = Some(Box::new(rival));
    }

    fn let_first(&self, which: usize) {
        let rival = self.rivals[which].lock().unwrap().take();
        if let Some(rival) = rival {
            rival();
        }
    }

    fn hold(&self, found: Result<Attributes>) -> Result<Attributes> {
        if let Ok(attributes) = &found
            && attributes.ino != self.fs.root()
        {
            *self.held.lock().unwrap().entry(attributes.ino).or_default() += 1;
        }
        found
    }
}

impl FileSystem for Counting {
    fn root(&self) -> InodeNumber {
        self.fs.root()
    }

    fn lookup(&self, parent: InodeNumber, name: &[u8]) -> Result<Attributes> {
        self.hold(self.fs.lookup(parent, name))
    }

    fn forget(&self, ino: InodeNumber, count: u64) {
        let mut held = self.held.lock().unwrap();
        let left = held.get(&ino).and_then(|held| held.checked_sub(count));
        match left.unwrap_or_else(|| panic!("{count} references too many given back on inode {ino}")) {
            0 => held.remove(&ino),
            left => held.insert(ino, left),
        };
        drop(held);
        self.fs.forget(ino, count);
    }

    fn attributes(&self, ino: InodeNumber) -> Result<Attributes> {
        self.fs.attributes(ino)
    }

    fn set_attributes(&self, ino: InodeNumber, changes: &SetAttributes) -> Result<Attributes> {
        self.fs.set_attributes(ino, changes)
    }

    fn read_link(&self, ino: InodeNumber) -> Result<Vec<u8>> {
        self.fs.read_link(ino)
    }

    fn create(&self, parent: InodeNumber, name: &[u8], node: &NewNode<'_>, caller: &Caller) -> Result<Attributes> {
        self.hold(self.fs.create(parent, name, node, caller))
    }

    fn create_unnamed(&self, parent: InodeNumber, permissions: u32, caller: &Caller) -> Result<Attributes> {
        self.hold(self.fs.create_unnamed(parent, permissions, caller))
    }

    fn link(&self, ino: InodeNumber, parent: InodeNumber, name: &[u8]) -> Result<Attributes> {
        self.hold(self.fs.link(ino, parent, name))
    }

    fn unlink(&self, parent: InodeNumber, name: &[u8]) -> Result<()> {
        self.fs.unlink(parent, name)
    }

    fn remove_directory(&self, parent: InodeNumber, name: &[u8]) -> Result<()> {
        self.let_first(1);
        self.fs.remove_directory(parent, name)
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
        self.fs.rename(parent, name, new_parent, new_name, flags, caller)
    }

    fn open(&self, ino: InodeNumber, how: OpenFlags) -> Result<()> {
        self.fs.open(ino, how)
    }

    fn read(&self, ino: InodeNumber, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read(ino, offset, buf)
    }

    fn write(&self, ino: InodeNumber, offset: u64, data: &[u8], clear_suid_sgid: bool) -> Result<usize> {
        self.fs.write(ino, offset, data, clear_suid_sgid)
    }

    fn fallocate(&self, ino: InodeNumber, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        self.fs.fallocate(ino, mode, offset, length)
    }

    fn seek(&self, ino: InodeNumber, offset: u64, whence: Seek) -> Result<u64> {
        self.fs.seek(ino, offset, whence)
    }

    fn read_directory(
        &self,
        ino: InodeNumber,
        from: u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        self.let_first(0);
        self.fs.read_directory(ino, from, emit)
    }

    fn sync_file(&self, ino: InodeNumber, data_only: bool) -> Result<()> {
        self.fs.sync_file(ino, data_only)
    }

    fn sync(&self) -> Result<()> {
        self.fs.sync()
    }

    fn stat_fs(&self) -> Result<StatFs> {
        self.fs.stat_fs()
    }

    fn get_xattr(&self, ino: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.get_xattr(ino, name)
    }

    fn set_xattr(&self, ino: InodeNumber, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        self.fs.set_xattr(ino, name, value, flags)
    }

    fn list_xattrs(&self, ino: InodeNumber) -> Result<Vec<u8>> {
        self.fs.list_xattrs(ino)
    }

    fn remove_xattr(&self, ino: InodeNumber, name: &[u8]) -> Result<()> {
        self.fs.remove_xattr(ino, name)
    }

    fn set_flags(&self, ino: InodeNumber, flags: InodeFlags) -> Result<()> {
        self.fs.set_flags(ino, flags)
    }

    fn set_project_id(&self, ino: InodeNumber, project_id: u32) -> Result<()> {
        self.fs.set_project_id(ino, project_id)
    }

    fn trim(&self, offset: u64, length: u64, minimum: u64) -> Result<u64> {
        self.fs.trim(offset, length, minimum)
    }

    fn tick(&self, now: Time) -> Background {
        self.fs.tick(now)
    }

    fn close(&self) -> Result<()> {
        self.fs.close()
    }
}
