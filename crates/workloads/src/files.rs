//! What a workload needs from a file system, small and blocking.
//!
//! | implementation | on |
//! |---|---|
//! | [`VfsFiles`] | any engine in this process |
//! | [`DirectoryFiles`] | a directory of any mounted file system |

mod directory;
mod page_cache;
mod vfs;

pub use directory::DirectoryFiles;
pub use page_cache::{List, PAGE, PageCache, PageCacheSettings, PageCacheStatistics};
pub use vfs::VfsFiles;

use crate::error::Result;

/// An open file of one [`Files`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub(crate) usize);

impl Handle {
    /// A handle with a number of the target's choice.
    #[must_use]
    pub const fn new(number: usize) -> Handle {
        Handle(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> usize {
        self.0
    }
}

/// Space of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// What users can fill in all: used and available.
    pub total: u64,
    /// What is still available to them.
    pub free: u64,
}

impl Space {
    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Whether it is a directory.
    pub directory: bool,
}

/// The operations of a workload's target. Paths are relative to its root, separated by `/`, without `.` and `..`.
///
/// # Errors
/// Every method gives [`Error::Target`](crate::Error::Target) with the path, and whether the target is full.
pub trait Files {
    /// Makes a directory; its parent must exist.
    fn make_directory(&mut self, path: &str) -> Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&mut self, path: &str) -> Result<()>;

    /// Makes a new file and opens it; fails if the name exists.
    fn create(&mut self, path: &str) -> Result<Handle>;

    /// Opens an existing file for reading and writing.
    fn open(&mut self, path: &str) -> Result<Handle>;

    /// Closes a file. An unknown handle is ignored.
    fn close(&mut self, file: Handle);

    /// Reads from byte `offset`; fewer bytes than `buffer` holds only at the end of the file.
    fn read(&mut self, file: Handle, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes all of `data` at byte `offset`.
    fn write(&mut self, file: Handle, offset: u64, data: &[u8]) -> Result<()>;

    /// Cuts a file off, or extends it with a hole, to `size` bytes.
    fn truncate(&mut self, file: Handle, size: u64) -> Result<()>;

    /// Makes a file durable; with `data_only` without its times (`fdatasync(2)`).
    fn sync(&mut self, file: Handle, data_only: bool) -> Result<()>;

    /// The size of an open file in bytes.
    fn size(&mut self, file: Handle) -> Result<u64>;

    /// The size in bytes of what a path names (`stat(2)`).
    fn stat(&mut self, path: &str) -> Result<u64>;

    /// Removes a file's name.
    fn unlink(&mut self, path: &str) -> Result<()>;

    /// Renames, replacing an existing target.
    fn rename(&mut self, from: &str, to: &str) -> Result<()>;

    /// The entries of a directory, `""` being the root, sorted by name, without `.` and `..`.
    fn list(&mut self, path: &str) -> Result<Vec<Entry>>;

    /// Makes the whole file system durable.
    fn sync_all(&mut self) -> Result<()>;

    /// The space of the file system now.
    fn space(&mut self) -> Result<Space>;

    /// What the page cache in front of the file system did; `None` where it is not ours to count.
    fn page_cache_statistics(&self) -> Option<PageCacheStatistics> {
        None
    }

    /// Bytes still available to users.
    fn free_bytes(&mut self) -> Result<u64> {
        Ok(self.space()?.free)
    }
}

/// Open files by handle: the lowest free number is given out first, so that runs repeat.
#[derive(Debug)]
struct Open<T> {
    slots: Vec<Option<T>>,
    free: std::collections::BinaryHeap<std::cmp::Reverse<usize>>,
}

impl<T> Open<T> {
    fn new() -> Open<T> {
        Open { slots: Vec::new(), free: std::collections::BinaryHeap::new() }
    }

    fn insert(&mut self, value: T) -> Handle {
        let slot = match self.free.pop() {
            Some(std::cmp::Reverse(slot)) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.slots[slot] = Some(value);
        Handle(slot)
    }

    fn get(&self, handle: Handle) -> Option<&T> {
        self.slots.get(handle.0)?.as_ref()
    }

    fn remove(&mut self, handle: Handle) -> Option<T> {
        let value = self.slots.get_mut(handle.0)?.take()?;
        self.free.push(std::cmp::Reverse(handle.0));
        Some(value)
    }

    fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.slots.iter_mut().filter_map(Option::take)
    }
}

/// Splits a path into its directory and its name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}
