//! Files of an engine in this process.

use std::ops::Deref;

use basalt_vfs::{
    Caller, ErrorKind, FileKind, FileSystem, InodeNumber, NewNode, OpenFlags, RenameFlags, SetAttributes,
};
use rustc_hash::FxHashMap;

use super::page_cache::{PageCache, PageCacheStatistics};
use super::{Entry, Files, Handle, Open, Space, split};
use crate::error::{Error, Result};

/// Directories remembered at most, as the kernel's cache of names would; over it all are forgotten.
const CACHED_DIRECTORIES: usize = 4096;

/// An open file.
#[derive(Debug)]
struct File {
    ino: InodeNumber,
    path: Box<str>,
}

/// Files of any [`FileSystem`]: `VfsFiles::new(&engine)` or with an `Arc` of it.
///
/// Inode references are taken and given back as the kernel does: one for each open file, one for each remembered directory, given
/// back on close and when this is dropped.
#[derive(Debug)]
pub struct VfsFiles<F>
where
    F: Deref,
    F::Target: FileSystem,
{
    engine: F,
    open: Open<File>,
    directories: FxHashMap<Box<str>, InodeNumber>,
    cache: Option<Cache>,
}

/// The page cache, and what decides how long it keeps a file.
#[derive(Debug)]
struct Cache {
    pages: PageCache,
    /// How often each file is open, and whether it has lost its name meanwhile.
    open: FxHashMap<InodeNumber, (usize, bool)>,
}

impl Cache {
    fn note_open(&mut self, ino: InodeNumber, size: u64) {
        self.open.entry(ino).or_default().0 += 1;
        self.pages.know(ino, size);
    }

    fn note_close(&mut self, ino: InodeNumber) {
        let Some((count, is_gone)) = self.open.get_mut(&ino) else { return };
        *count -= 1;
        if *count == 0 {
            let is_gone = *is_gone;
            self.open.remove(&ino);
            if is_gone {
                self.pages.forget(ino);
            }
        }
    }

    fn note_gone(&mut self, ino: InodeNumber) {
        match self.open.get_mut(&ino) {
            Some((_, is_gone)) => *is_gone = true,
            None => self.pages.forget(ino),
        }
    }
}

impl<F> VfsFiles<F>
where
    F: Deref,
    F::Target: FileSystem,
{
    /// The files of an engine.
    pub fn new(engine: F) -> VfsFiles<F> {
        VfsFiles { engine, open: Open::new(), directories: FxHashMap::default(), cache: None }
    }

    /// The files of an engine behind a page cache, as the kernel has one. What is dirty in it is not in the engine: [`Files::sync_all`]
    /// and [`Files::space`] write it back, and so does dropping this, which ignores errors.
    pub fn with_page_cache(engine: F, cache: PageCache) -> VfsFiles<F> {
        let mut files = VfsFiles::new(engine);
        files.cache = Some(Cache { pages: cache, open: FxHashMap::default() });
        files
    }

    /// The page cache, if there is one.
    pub fn page_cache(&self) -> Option<&PageCache> {
        self.cache.as_ref().map(|cache| &cache.pages)
    }

    /// A path's file, so that its pages can be dropped when the name is gone; `None` without a page cache, or without the file.
    fn cached(&mut self, parent: InodeNumber, name: &str) -> Option<InodeNumber> {
        self.cache.as_ref()?;
        let found = self.engine.lookup(parent, name.as_bytes()).ok()?;
        self.engine.forget(found.ino, 1);
        Some(found.ino)
    }

    fn note_gone(&mut self, ino: Option<InodeNumber>) {
        if let Some((cache, ino)) = self.cache.as_mut().zip(ino) {
            cache.note_gone(ino);
        }
    }

    /// The engine.
    pub fn engine(&self) -> &F::Target {
        &self.engine
    }

    fn forget_directories(&mut self) {
        for (_, ino) in self.directories.drain() {
            self.engine.forget(ino, 1);
        }
    }

    /// The inode of a directory; the reference stays with the cache.
    fn directory(&mut self, operation: &'static str, path: &str) -> Result<InodeNumber> {
        // Only before the first step: a directory is remembered as long as those below it are.
        if self.directories.len() >= CACHED_DIRECTORIES {
            self.forget_directories();
        }
        self.walk(operation, path)
    }

    fn walk(&mut self, operation: &'static str, path: &str) -> Result<InodeNumber> {
        if path.is_empty() {
            return Ok(self.engine.root());
        }
        if let Some(ino) = self.directories.get(path) {
            return Ok(*ino);
        }
        let (above, name) = split(path);
        let parent = self.walk(operation, above)?;
        let found = self.engine.lookup(parent, name.as_bytes()).map_err(|error| failed(operation, path, &error))?;
        if found.kind != FileKind::Directory {
            self.engine.forget(found.ino, 1);
            return Err(Error::target(operation, path, "not a directory"));
        }
        self.directories.insert(path.into(), found.ino);
        Ok(found.ino)
    }

    /// The parent's inode and the name in it.
    fn parent<'p>(&mut self, operation: &'static str, path: &'p str) -> Result<(InodeNumber, &'p str)> {
        let (directory, name) = split(path);
        Ok((self.directory(operation, directory)?, name))
    }

    fn file(&self, operation: &'static str, file: Handle) -> Result<&File> {
        self.open.get(file).ok_or_else(|| not_open(operation))
    }

    /// Writes back what is dirty in the page cache.
    fn write_back(&mut self, operation: &'static str) -> Result<()> {
        let written = self.cache.as_mut().map_or(Ok(()), |cache| cache.pages.write_back_all(&*self.engine));
        written.map_err(|error| failed(operation, "the page cache", &error))
    }

    fn make(&mut self, operation: &'static str, path: &str, kind: FileKind, permissions: u32) -> Result<InodeNumber> {
        let (parent, name) = self.parent(operation, path)?;
        let node = NewNode { kind, permissions, rdev: 0, target: b"" };
        let made = self.engine.create(parent, name.as_bytes(), &node, &Caller::default());
        made.map(|made| made.ino).map_err(|error| failed(operation, path, &error))
    }
}

impl<F> Files for VfsFiles<F>
where
    F: Deref,
    F::Target: FileSystem,
{
    fn make_directory(&mut self, path: &str) -> Result<()> {
        let ino = self.make("mkdir", path, FileKind::Directory, 0o755)?;
        self.engine.forget(ino, 1);
        Ok(())
    }

    fn remove_directory(&mut self, path: &str) -> Result<()> {
        let (parent, name) = self.parent("rmdir", path)?;
        // An inode that is still referenced would keep its space.
        if let Some(ino) = self.directories.remove(path) {
            self.engine.forget(ino, 1);
        }
        self.engine.remove_directory(parent, name.as_bytes()).map_err(|error| failed("rmdir", path, &error))
    }

    fn create(&mut self, path: &str) -> Result<Handle> {
        let ino = self.make("create", path, FileKind::Regular, 0o644)?;
        if let Some(cache) = &mut self.cache {
            cache.note_open(ino, 0);
        }
        Ok(self.open.insert(File { ino, path: path.into() }))
    }

    fn open(&mut self, path: &str) -> Result<Handle> {
        let (parent, name) = self.parent("open", path)?;
        let found = self.engine.lookup(parent, name.as_bytes()).map_err(|error| failed("open", path, &error))?;
        let refused = match found.kind {
            FileKind::Regular => {
                self.engine.open(found.ino, OpenFlags::WRITE).err().map(|error| failed("open", path, &error))
            }
            _ => Some(Error::target("open", path, "not a regular file")),
        };
        if let Some(error) = refused {
            self.engine.forget(found.ino, 1);
            return Err(error);
        }
        if let Some(cache) = &mut self.cache {
            cache.note_open(found.ino, found.size);
        }
        Ok(self.open.insert(File { ino: found.ino, path: path.into() }))
    }

    fn close(&mut self, file: Handle) {
        if let Some(file) = self.open.remove(file) {
            if let Some(cache) = &mut self.cache {
                cache.note_close(file.ino);
            }
            self.engine.forget(file.ino, 1);
        }
    }

    fn read(&mut self, file: Handle, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let File { ino, path } = self.open.get(file).ok_or_else(|| not_open("read"))?;
        let read = match &mut self.cache {
            Some(cache) => cache.pages.read(&*self.engine, *ino, offset, buffer),
            None => self.engine.read(*ino, offset, buffer),
        };
        read.map_err(|error| failed("read", path, &error))
    }

    fn write(&mut self, file: Handle, offset: u64, data: &[u8]) -> Result<()> {
        if let Some(cache) = &mut self.cache {
            let File { ino, path } = self.open.get(file).ok_or_else(|| not_open("write"))?;
            let written = cache.pages.write(&*self.engine, *ino, offset, data);
            return written.map_err(|error| failed("write", path, &error));
        }
        let file = self.file("write", file)?;
        let mut done = 0;
        while done < data.len() {
            let count = self
                .engine
                .write(file.ino, offset + done as u64, &data[done..], false)
                .map_err(|error| failed("write", &file.path, &error))?;
            if count == 0 {
                return Err(Error::target("write", &file.path, "nothing was written"));
            }
            done += count;
        }
        Ok(())
    }

    fn truncate(&mut self, file: Handle, size: u64) -> Result<()> {
        let file = self.file("truncate", file)?;
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let ino = file.ino;
        let changed = self.engine.set_attributes(ino, &changes);
        changed.map_err(|error| failed("truncate", &file.path, &error))?;
        if let Some(cache) = &mut self.cache {
            cache.pages.truncate(ino, size);
        }
        Ok(())
    }

    fn sync(&mut self, file: Handle, data_only: bool) -> Result<()> {
        let operation = if data_only { "fdatasync" } else { "fsync" };
        let File { ino, path } = self.open.get(file).ok_or_else(|| not_open(operation))?;
        let written = self.cache.as_mut().map_or(Ok(()), |cache| cache.pages.write_back(&*self.engine, *ino));
        let synced = written.and_then(|()| self.engine.sync_file(*ino, data_only));
        synced.map_err(|error| failed(operation, path, &error))
    }

    fn size(&mut self, file: Handle) -> Result<u64> {
        let file = self.file("stat", file)?;
        if let Some(size) = self.page_cache().and_then(|cache| cache.size(file.ino)) {
            return Ok(size);
        }
        let attributes = self.engine.attributes(file.ino).map_err(|error| failed("stat", &file.path, &error))?;
        Ok(attributes.size)
    }

    fn stat(&mut self, path: &str) -> Result<u64> {
        let (parent, name) = self.parent("stat", path)?;
        let found = self.engine.lookup(parent, name.as_bytes()).map_err(|error| failed("stat", path, &error))?;
        self.engine.forget(found.ino, 1);
        Ok(self.page_cache().and_then(|cache| cache.size(found.ino)).unwrap_or(found.size))
    }

    fn unlink(&mut self, path: &str) -> Result<()> {
        let (parent, name) = self.parent("unlink", path)?;
        let ino = self.cached(parent, name);
        self.engine.unlink(parent, name.as_bytes()).map_err(|error| failed("unlink", path, &error))?;
        self.note_gone(ino);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let (parent, name) = self.parent("rename", from)?;
        let (new_parent, new_name) = self.parent("rename", to)?;
        let replaced = self.cached(new_parent, new_name).filter(|_| from != to);
        let flags = RenameFlags::empty();
        let caller = Caller::default();
        self.engine
            .rename(parent, name.as_bytes(), new_parent, new_name.as_bytes(), flags, &caller)
            .map_err(|error| failed("rename", from, &error))?;
        self.note_gone(replaced);
        // What was remembered under a directory's old name is elsewhere now.
        if self.directories.contains_key(from) || self.directories.contains_key(to) {
            self.forget_directories();
        }
        Ok(())
    }

    fn list(&mut self, path: &str) -> Result<Vec<Entry>> {
        let directory = self.directory("list", path)?;
        let mut entries = Vec::new();
        self.engine
            .read_directory(directory, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    let name = String::from_utf8_lossy(entry.name).into_owned();
                    entries.push(Entry { name, directory: entry.kind == FileKind::Directory });
                }
                true
            })
            .map_err(|error| failed("list", path, &error))?;
        entries.sort();
        Ok(entries)
    }

    fn sync_all(&mut self) -> Result<()> {
        self.write_back("sync")?;
        self.engine.sync().map_err(|error| failed("sync", "the volume", &error))
    }

    fn page_cache_statistics(&self) -> Option<PageCacheStatistics> {
        self.page_cache().map(PageCache::statistics)
    }

    fn space(&mut self) -> Result<Space> {
        self.write_back("statfs")?;
        let stat = self.engine.stat_fs().map_err(|error| failed("statfs", "the volume", &error))?;
        let unit = u64::from(stat.block_size);
        let used = stat.blocks.saturating_sub(stat.free);
        Ok(Space { total: (used + stat.available).saturating_mul(unit), free: stat.available.saturating_mul(unit) })
    }
}

impl<F> Drop for VfsFiles<F>
where
    F: Deref,
    F::Target: FileSystem,
{
    fn drop(&mut self) {
        let _ = self.write_back("close");
        for file in self.open.drain() {
            self.engine.forget(file.ino, 1);
        }
        self.forget_directories();
    }
}

fn not_open(operation: &'static str) -> Error {
    Error::target(operation, "a closed file", "file is not open")
}

fn failed(operation: &'static str, path: &str, error: &basalt_vfs::Error) -> Error {
    let is_full = error.kind() == ErrorKind::NoSpace;
    Error::Target { operation, path: path.to_owned(), is_full, reason: error.to_string() }
}
