//! The node address table: one 9-byte entry for each node id.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::{Address, Ino};

/// Entries in a NAT block.
pub const ENTRIES_PER_BLOCK: u32 = 455;

/// One NAT entry: which inode a node belongs to, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawNatEntry {
    /// Raised whenever the node id is freed.
    pub version: u8,
    /// The inode the node belongs to; its own number for an inode.
    pub ino: U32,
    /// Block address of the node; 0 while the id is free.
    pub block_addr: U32,
}

impl RawNatEntry {
    /// The inode the node belongs to.
    pub fn ino(&self) -> Ino {
        self.ino.into()
    }

    /// Where the node is.
    pub fn address(&self) -> Address {
        self.block_addr.into()
    }
}

const _: () = assert!(size_of::<RawNatEntry>() == 9);
