//! The page cache in front of an engine in this process: clean and dirty pages of files, as Linux keeps them for a mount with a
//! writeback cache.
//!
//! | | as here | Linux |
//! |---|---|---|
//! | which page a new one replaces | [`Lists`]: active and inactive | the same lists |
//! | what touches a page | a read; a write does not | since 4.7: "only do access activations on reads"; reads in a row within one page are one |
//! | what is remembered of replaced pages | their file may be gone meanwhile | goes with the file |
//! | when dirty pages are written back | fsync; 30 s; more than [`PageCacheSettings::dirty_bytes`]; when one is to be replaced | the same, in the background as well |
//! | how | the file's pages in order, up to 1 MiB at a time | the same, for FUSE |
//! | read-ahead | none | up to 128 KiB |

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use basalt_device::CompactBlock;
pub use basalt_segments::List;
use basalt_segments::Lists;
use basalt_vfs::{Error, FileSystem, InodeNumber, Result};
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Most bytes written back in one request.
const REQUEST: usize = 1 << 20;
/// How long a page is dirty before it is written back (`vm.dirty_expire_centisecs`).
const EXPIRES: Duration = Duration::from_secs(30);

/// How large a page cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCacheSettings {
    /// Bytes of all pages, clean and dirty.
    pub bytes: u64,
    /// Bytes of dirty pages above which files are written back, the longest dirty first.
    pub dirty_bytes: u64,
}

impl PageCacheSettings {
    /// A cache of so many bytes, a fifth of which may be dirty (`vm.dirty_ratio`).
    #[must_use]
    pub fn new(bytes: u64) -> PageCacheSettings {
        PageCacheSettings { bytes, dirty_bytes: bytes / 5 }
    }
}

/// What a page cache did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct PageCacheStatistics {
    /// Pages read that were there.
    pub hits: u64,
    /// Pages read from the engine, for reads and for writes of a part of them.
    pub misses: u64,
    /// Writes to pages that were dirty already, counted by page.
    pub absorbed: u64,
    /// Pages written back.
    pub written_back: u64,
}

impl PageCacheStatistics {
    /// What came since an earlier state.
    #[must_use]
    pub fn since(&self, before: &PageCacheStatistics) -> PageCacheStatistics {
        PageCacheStatistics {
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
            absorbed: self.absorbed - before.absorbed,
            written_back: self.written_back - before.written_back,
        }
    }
}

/// A page of a file: its inode, and its number in the file.
type Key = (InodeNumber, u64);

/// A file that was opened, and still exists.
#[derive(Debug, Default)]
struct File {
    /// In bytes, as programs see it.
    size: u64,
    pages: BTreeSet<u64>,
    dirty: BTreeSet<u64>,
    /// When the first of these became dirty, in nanoseconds.
    dirtied: u64,
}

/// The page cache of one engine.
pub struct PageCache {
    pages: Lists<Key, CompactBlock>,
    most: usize,
    most_dirty: usize,
    files: FxHashMap<InodeNumber, File>,
    /// Files by when they became dirty; what was written back meanwhile is still in it.
    order: VecDeque<(u64, InodeNumber)>,
    dirty: usize,
    /// Nanoseconds from any point on.
    now: Box<dyn Fn() -> u64>,
    statistics: PageCacheStatistics,
    /// What a request to the engine is put together in, kept for the next.
    buffer: Vec<u8>,
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageCache")
            .field("pages", &self.pages.len())
            .field("dirty", &self.dirty)
            .finish_non_exhaustive()
    }
}

impl PageCache {
    /// An empty cache; `now` tells the time in nanoseconds. It has one page at least.
    #[must_use]
    pub fn new(settings: PageCacheSettings, now: impl Fn() -> u64 + 'static) -> PageCache {
        let pages = |bytes: u64| usize::try_from(bytes / PAGE as u64).unwrap_or(usize::MAX);
        PageCache {
            pages: Lists::new(),
            most: pages(settings.bytes).max(1),
            most_dirty: pages(settings.dirty_bytes),
            files: FxHashMap::default(),
            order: VecDeque::new(),
            dirty: 0,
            now: Box::new(now),
            statistics: PageCacheStatistics::default(),
            buffer: Vec::new(),
        }
    }

    /// What it did.
    #[must_use]
    pub fn statistics(&self) -> PageCacheStatistics {
        self.statistics
    }

    /// Pages on a list.
    #[must_use]
    pub fn pages(&self, list: List) -> usize {
        self.pages.len_of(list)
    }

    /// Dirty pages.
    #[must_use]
    pub fn dirty_pages(&self) -> usize {
        self.dirty
    }

    /// The size of a file in bytes, if it is known here.
    pub(super) fn size(&self, ino: InodeNumber) -> Option<u64> {
        self.files.get(&ino).map(|file| file.size)
    }

    /// The file is in use, and `size` bytes large unless it is known here.
    pub(super) fn know(&mut self, ino: InodeNumber, size: u64) {
        self.files.entry(ino).or_insert_with(|| File { size, ..File::default() });
    }

    /// The file is gone, and what was written to it.
    pub(super) fn forget(&mut self, ino: InodeNumber) {
        let Some(file) = self.files.remove(&ino) else { return };
        self.dirty -= file.dirty.len();
        for page in file.pages {
            self.pages.remove((ino, page));
        }
    }

    /// As `read(2)`.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn read(
        &mut self,
        engine: &(impl FileSystem + ?Sized),
        ino: InodeNumber,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        // What is refused stays dirty, and its own fsync or the next write tells.
        let _ = self.write_back_old(engine);
        let size = self.size(ino).unwrap_or(0);
        let count = usize::try_from(size.saturating_sub(offset)).map_or(buffer.len(), |left| left.min(buffer.len()));
        let (mut done, mut fetched) = (0, 0);
        while done < count {
            let at = offset + done as u64;
            let (page, inside) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let mut held = self.pages.touch((ino, page));
            if held.is_none() {
                fetched = self.fetch(engine, ino, page, (offset + count as u64).div_ceil(PAGE as u64))?;
                held = self.pages.touch((ino, page));
            } else if page >= fetched {
                self.statistics.hits += 1;
            }
            let length = (PAGE - inside).min(count - done);
            if let Some(held) = held {
                held.read(inside, &mut buffer[done..done + length]);
            }
            done += length;
        }
        Ok(count)
    }

    /// As `write(2)` of all bytes.
    ///
    /// # Errors
    /// Those of the engine, also of what was written before and is written back now.
    pub(super) fn write(
        &mut self,
        engine: &(impl FileSystem + ?Sized),
        ino: InodeNumber,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (page, inside) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let length = (PAGE - inside).min(data.len() - done);
            let mut held = self.pages.get_mut((ino, page));
            if held.is_none() {
                let is_old = page * (PAGE as u64) < self.size(ino).unwrap_or(0);
                if length < PAGE && is_old {
                    self.fetch(engine, ino, page, page + 1)?;
                } else {
                    self.insert(engine, ino, page, CompactBlock::default())?;
                }
                held = self.pages.get_mut((ino, page));
            }
            if let Some(held) = held {
                held.write(inside, &data[done..done + length]);
            }
            self.note_dirty(ino, page, at + length as u64);
            done += length;
        }
        self.write_back_old(engine)
    }

    /// The file has this size now: what is behind its end is gone. For the engine too, which is told by the caller.
    pub(super) fn truncate(&mut self, ino: InodeNumber, size: u64) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        file.size = size;
        for page in file.pages.split_off(&size.div_ceil(PAGE as u64)) {
            self.pages.remove((ino, page));
            self.dirty -= usize::from(file.dirty.remove(&page));
        }
        let inside = (size % PAGE as u64) as usize;
        if let Some(held) = self.pages.get_mut((ino, size / PAGE as u64)).filter(|_| inside > 0) {
            held.write(inside, &[0; PAGE][inside..]);
        }
    }

    /// Writes back a file.
    ///
    /// # Errors
    /// Those of the engine; what it refused stays dirty.
    pub(super) fn write_back(&mut self, engine: &(impl FileSystem + ?Sized), ino: InodeNumber) -> Result<()> {
        let mut request = std::mem::take(&mut self.buffer);
        let written = self.write_back_with(engine, ino, &mut request);
        self.buffer = request;
        written
    }

    fn write_back_with(
        &mut self,
        engine: &(impl FileSystem + ?Sized),
        ino: InodeNumber,
        request: &mut Vec<u8>,
    ) -> Result<()> {
        loop {
            let Some(file) = self.files.get(&ino) else { return Ok(()) };
            let Some(&first) = file.dirty.first() else { return Ok(()) };
            let run = file.dirty.iter().zip(first..first + (REQUEST / PAGE) as u64);
            let count = run.take_while(|(page, expected)| *page == expected).count() as u64;
            let size = file.size;
            request.clear();
            for page in first..first + count {
                match self.pages.get_mut((ino, page)) {
                    Some(held) => held.append_to(request),
                    None => request.resize(request.len() + PAGE, 0),
                }
            }
            let start = first * PAGE as u64;
            request.truncate(usize::try_from(size.saturating_sub(start)).unwrap_or(usize::MAX));
            write_all(engine, ino, start, request)?;
            self.statistics.written_back += count;
            self.dirty -= count as usize;
            if let Some(file) = self.files.get_mut(&ino) {
                file.dirty = file.dirty.split_off(&(first + count));
            }
        }
    }

    /// Writes back all files, in the order in which they became dirty.
    ///
    /// # Errors
    /// As [`write_back`](Self::write_back).
    pub(super) fn write_back_all(&mut self, engine: &(impl FileSystem + ?Sized)) -> Result<()> {
        while let Some(&(_, ino)) = self.order.front() {
            self.write_back(engine, ino)?;
            self.order.pop_front();
        }
        Ok(())
    }

    /// Writes back what has been dirty for long, and files as long as too much is dirty.
    fn write_back_old(&mut self, engine: &(impl FileSystem + ?Sized)) -> Result<()> {
        let now = (self.now)();
        while let Some(&(since, ino)) = self.order.front() {
            let is_current = self.files.get(&ino).is_some_and(|file| !file.dirty.is_empty() && file.dirtied == since);
            let is_old = now.saturating_sub(since) >= EXPIRES.as_nanos() as u64;
            if is_current && !is_old && self.dirty <= self.most_dirty {
                return Ok(());
            }
            if is_current {
                self.write_back(engine, ino)?;
            }
            self.order.pop_front();
        }
        Ok(())
    }

    fn note_dirty(&mut self, ino: InodeNumber, page: u64, end: u64) {
        let now = (self.now)();
        let file = self.files.entry(ino).or_default();
        file.size = file.size.max(end);
        if file.dirty.is_empty() {
            file.dirtied = now;
            self.order.push_back((now, ino));
        }
        if file.dirty.insert(page) {
            self.dirty += 1;
        } else {
            self.statistics.absorbed += 1;
        }
        if self.order.len() > 2 * self.files.len() + 64 {
            self.forget_written_back();
        }
    }

    /// Leaves one entry of each dirty file in the order.
    fn forget_written_back(&mut self) {
        let files = &self.files;
        let is_dirty = |since, ino| files.get(&ino).is_some_and(|file| !file.dirty.is_empty() && file.dirtied == since);
        let mut seen = FxHashSet::default();
        self.order.retain(|&(since, ino)| is_dirty(since, ino) && seen.insert(ino));
    }

    /// Reads the pages from `page` on that are missing, up to the next one that is there, `end`, or half of what the cache holds; the page
    /// behind them.
    fn fetch(&mut self, engine: &(impl FileSystem + ?Sized), ino: InodeNumber, page: u64, end: u64) -> Result<u64> {
        let end = end.min(page + (REQUEST / PAGE).min((self.most / 2).max(1)) as u64);
        let next = (page..end).find(|&page| self.pages.contains((ino, page))).unwrap_or(end);
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.resize((next - page) as usize * PAGE, 0);
        let mut done = 0;
        while done < bytes.len() {
            let count = engine.read(ino, page * PAGE as u64 + done as u64, &mut bytes[done..])?;
            if count == 0 {
                // A hole behind the end that the engine knows of.
                bytes[done..].fill(0);
                break;
            }
            done += count;
        }
        // From back to front, so that the first one stays even in the smallest cache.
        for (index, bytes) in bytes.as_chunks::<PAGE>().0.iter().enumerate().rev() {
            self.statistics.misses += 1;
            self.insert(engine, ino, page + index as u64, CompactBlock::from_bytes(bytes))?;
        }
        self.buffer = bytes;
        Ok(next)
    }

    fn insert(
        &mut self,
        engine: &(impl FileSystem + ?Sized),
        ino: InodeNumber,
        page: u64,
        held: CompactBlock,
    ) -> Result<()> {
        while self.pages.len() >= self.most {
            let Some((victim, number)) = self.pages.last() else { break };
            if self.files.get(&victim).is_some_and(|file| file.dirty.contains(&number)) {
                self.write_back(engine, victim)?;
            }
            self.pages.replace((victim, number));
            if let Some(file) = self.files.get_mut(&victim) {
                file.pages.remove(&number);
            }
        }
        self.pages.insert((ino, page), held);
        self.files.entry(ino).or_default().pages.insert(page);
        Ok(())
    }
}

/// Writes all bytes. As [`FileSystem::write`], and not as `write_back`: the kernel sets the times that this one leaves alone.
fn write_all(engine: &(impl FileSystem + ?Sized), ino: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        match engine.write(ino, offset + done as u64, &data[done..], false)? {
            0 => return Err(Error::NoSpace),
            count => done += count,
        }
    }
    Ok(())
}
