//! Entries of a directory that its inode has no room for: docs/flashlight-format.md, "Inodes".

use super::inode::ENTRY;
use super::{NONE, Numbers};

/// The header's flag of an index.
pub(crate) const INDEX: u8 = 1;
/// The bit of a directory's slot that says that it leads to an index.
pub(crate) const INDEX_POINTER: u32 = 1 << 31;
pub(crate) const DEPTH: usize = 20;
const COUNT: usize = 22;
pub(crate) const FIRST: usize = 24;
/// The greatest depth of an index.
pub(crate) const MOST_DEPTH: u32 = 8;

/// An entry of a directory: of a log or of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The hash of the name without its last three bits, and which of the names with that hash it is.
    pub(crate) key: u32,
    /// What it points to.
    pub(crate) pointer: Pointer,
}

/// What an entry points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    /// A file: the page of its inode.
    File(u32),
    /// A file whose inode is in memory only.
    Unwritten,
    /// A directory, by its inode number.
    Directory(u32),
    /// In a log: the entry that the bucket has is gone.
    Deleted,
}

const DIRECTORY: u32 = 1 << 31;
const UNWRITTEN: u32 = DIRECTORY - 1;

impl Pointer {
    pub(crate) fn number(self) -> u32 {
        match self {
            Pointer::File(page) => page,
            Pointer::Unwritten => UNWRITTEN,
            Pointer::Directory(serial) => DIRECTORY | serial,
            Pointer::Deleted => NONE,
        }
    }

    pub(crate) fn of(number: u32) -> Pointer {
        match number {
            NONE => Pointer::Deleted,
            UNWRITTEN => Pointer::Unwritten,
            directory if directory & DIRECTORY != 0 => Pointer::Directory(directory & !DIRECTORY),
            page => Pointer::File(page),
        }
    }
}

/// An entry of a list.
pub(crate) fn entry(list: &[u8], at: usize) -> Entry {
    Entry { key: list.u32_at(at * ENTRY), pointer: Pointer::of(list.u32_at(at * ENTRY + 4)) }
}

/// Writes an entry of a list.
pub(crate) fn set_entry(list: &mut [u8], at: usize, entry: Entry) {
    list.set_u32(at * ENTRY, entry.key);
    list.set_u32(at * ENTRY + 4, entry.pointer.number());
}

/// Where in a list the entry with a key is.
pub(crate) fn find(list: &[u8], count: usize, key: u32) -> Option<usize> {
    (0..count).find(|&at| list.u32_at(at * ENTRY) == key)
}

/// The number of entries of a bucket, as far as the page has room for them.
pub(crate) fn count(page: &[u8]) -> usize {
    usize::from(page.u16_at(COUNT)).min(capacity(page.len()))
}

pub(crate) fn set_count(page: &mut [u8], count: usize) {
    page.set_u16(COUNT, count as u16);
}

/// Entries that a bucket has room for.
pub(crate) const fn capacity(page: usize) -> usize {
    (page - FIRST) / ENTRY
}

/// The depth of a bucket or an index, as far as there can be one.
pub(crate) fn depth(page: &[u8]) -> u32 {
    u32::from(page[DEPTH]).min(MOST_DEPTH)
}

/// Applies an entry of a log; whether there was room.
pub(crate) fn apply(page: &mut [u8], entry: Entry) -> bool {
    let count = count(page);
    let room = capacity(page.len());
    let list = &mut page[FIRST..];
    match (find(list, count, entry.key), entry.pointer) {
        (Some(at), Pointer::Deleted) => {
            list.copy_within((count - 1) * ENTRY..count * ENTRY, at * ENTRY);
            set_count(page, count - 1);
        }
        (None, Pointer::Deleted) => {}
        (Some(at), _) => set_entry(list, at, entry),
        (None, _) if count == room => return false,
        (None, _) => {
            set_entry(list, count, entry);
            set_count(page, count + 1);
        }
    }
    true
}

/// The slot of a directory that a key belongs to: its first four bits.
pub(crate) fn slot(key: u32) -> usize {
    (key >> 28) as usize
}

/// The first bits of a key behind the slot's.
pub(crate) fn bits(key: u32, depth: u32) -> usize {
    if depth == 0 { 0 } else { (key << 4 >> (32 - depth)) as usize }
}
