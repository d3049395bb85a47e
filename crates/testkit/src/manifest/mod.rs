//! Everything a user can see of a tree, as sorted lines.
//!
//! Two trees are equal when their manifests are. Access times are never part of it. A manifest has a text form, so that
//! a script inside User-Mode Linux can write one and the test outside compare it.

mod difference;
mod parts;
mod read;
mod text;

use std::collections::BTreeMap;

pub use difference::{ChangedField, Difference};
pub use parts::Parts;

/// What kind of file an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

/// One name in the tree. What is `None` is not known or was left out, and compares with nothing but itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// The permission bits with set-uid, set-gid and sticky (`0o7777`).
    pub mode: Option<u32>,
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// The number of hard links.
    pub links: Option<u64>,
    /// For a file with several links: the first of its names in this tree, in byte order.
    pub same_as: Option<Vec<u8>>,
    /// The size in bytes; regular files and symbolic links only.
    pub size: Option<u64>,
    /// The modification time: seconds and nanoseconds since 1970.
    pub mtime: Option<(i64, u32)>,
    /// A symbolic link's target.
    pub target: Option<Vec<u8>>,
    /// A device node's major and minor number.
    pub device: Option<(u32, u32)>,
    /// The [`crate::hash`] of a regular file's content.
    pub content: Option<u64>,
    /// The attribute flags of `chattr`.
    pub flags: Option<u32>,
    /// The allocated size in units of 512 bytes.
    pub blocks: Option<u64>,
    /// All extended attributes, ACLs among them.
    pub xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Entry {
    /// An entry of which nothing but the kind is known.
    pub fn new(kind: Kind) -> Entry {
        Entry {
            kind,
            mode: None,
            owner: None,
            links: None,
            same_as: None,
            size: None,
            mtime: None,
            target: None,
            device: None,
            content: None,
            flags: None,
            blocks: None,
            xattrs: None,
        }
    }
}

/// A tree's entries by path. Paths are relative: `.` is the top, `./a/b` something in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The entries, in byte order of their paths.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}
