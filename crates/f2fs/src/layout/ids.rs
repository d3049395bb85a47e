//! The number of an inode, and the id of a node.

use std::fmt;
use std::ops::Range;

use zerocopy::little_endian::U32;

use super::nat::ENTRIES_PER_BLOCK;

/// Which inode. Format: `nid_t` of an inode's own node, an `le32` in every structure on disk.
///
/// Not the id of any node ([`Nid`]): only here one becomes the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize)]
#[repr(transparent)]
#[serde(transparent)]
pub struct Ino(u32);

/// Which node: its place in the NAT. Format: `nid_t`, an `le32` in every structure on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Nid(u32);

impl Ino {
    /// No inode: what the name of an empty slot, or a free node, belongs to.
    pub const NONE: Ino = Ino(0);
    /// Stands for the nodes: no inode has it.
    pub const NODE: Ino = Ino(1);
    /// Stands for the metadata area: no inode has it.
    pub const META: Ino = Ino(2);
    /// The root directory of every volume that Linux or Basalt formats.
    pub const ROOT: Ino = Ino(3);

    /// The inode that a structure on disk has this number for.
    pub const fn new(raw: u32) -> Ino {
        Ino(raw)
    }

    /// The number that a structure on disk holds for it.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The next number, at most `u32::MAX`.
    pub const fn saturating_next(self) -> Ino {
        Ino(self.0.saturating_add(1))
    }

    /// The id of its own node, which is its number.
    pub const fn nid(self) -> Nid {
        Nid(self.0)
    }
}

impl Nid {
    /// No node.
    pub const NONE: Nid = Nid(0);
    /// The first id that a node can have: 0 is none, 1 and 2 stand for the nodes and the metadata area.
    pub const FIRST: Nid = Nid(3);
    /// The first id that is ever given to a new node: in front of it is that of the root directory.
    pub const FIRST_FREE: Nid = Nid(4);

    /// The node that a structure on disk has this number for.
    pub const fn new(raw: u32) -> Nid {
        Nid(raw)
    }

    /// The number that a structure on disk holds for it.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The next id, at most `u32::MAX`.
    pub const fn saturating_next(self) -> Nid {
        Nid(self.0.saturating_add(1))
    }

    /// The node at place `slot` of block `block` of the NAT.
    pub const fn in_nat_block(block: u32, slot: u32) -> Nid {
        Nid(block * ENTRIES_PER_BLOCK + slot)
    }

    /// Which block of the NAT has its entry.
    pub const fn nat_block(self) -> u32 {
        self.0 / ENTRIES_PER_BLOCK
    }

    /// Which entry of that block is its own.
    pub const fn nat_slot(self) -> usize {
        (self.0 % ENTRIES_PER_BLOCK) as usize
    }

    /// It and all that follow.
    pub fn onward(self) -> impl Iterator<Item = Nid> + Clone {
        (self.0..).map(Nid)
    }

    /// The ids of a range.
    pub fn all(range: Range<Nid>) -> impl DoubleEndedIterator<Item = Nid> + ExactSizeIterator + Clone {
        (range.start.0..range.end.0).map(Nid)
    }

    /// The inode whose own node it is: the caller knows, or is about to check, that it is one's.
    pub const fn as_inode(self) -> Ino {
        Ino(self.0)
    }
}

/// As a structure on disk holds it.
impl From<Ino> for U32 {
    fn from(inode: Ino) -> U32 {
        U32::new(inode.0)
    }
}

impl From<U32> for Ino {
    fn from(raw: U32) -> Ino {
        Ino(raw.get())
    }
}

impl From<Ino> for u64 {
    fn from(inode: Ino) -> u64 {
        inode.0.into()
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// As a structure on disk holds it.
impl From<Nid> for U32 {
    fn from(node: Nid) -> U32 {
        U32::new(node.0)
    }
}

impl From<U32> for Nid {
    fn from(raw: U32) -> Nid {
        Nid(raw.get())
    }
}

impl From<Nid> for u64 {
    fn from(node: Nid) -> u64 {
        node.0.into()
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
