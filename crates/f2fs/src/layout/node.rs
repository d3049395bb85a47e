//! Node blocks: their footer, and direct and indirect nodes.

use bitflags::bitflags;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::{Ino, Nid};

/// Block addresses in a direct node, node ids in an indirect one.
pub const ADDRS_PER_NODE: u32 = 1018;
/// Byte offset of the footer in every node block.
pub const FOOTER_OFFSET: usize = super::BLOCK_SIZE - 24;
/// Shift of the node's offset in `flag`.
pub const OFFSET_SHIFT: u32 = 3;
/// `ofs` of an xattr node.
pub const XATTR_NODE_OFFSET: u32 = u32::MAX >> OFFSET_SHIFT;

/// Upper half of `cp_ver` in nodes that a repair wrote: the checksum of no checkpoint, but for one in 2^32.
const REPAIRED: u32 = 0xBA5A_17F5;

/// `cp_ver` of a node that a repair wrote behind a checkpoint of this version (lower half): roll-forward recovery never takes it.
pub fn repaired_version(version: u32) -> u64 {
    u64::from(REPAIRED) << 32 | u64::from(version)
}

/// Whether a repair wrote a node with this `cp_ver`.
pub fn is_repaired(cp_ver: u64) -> bool {
    cp_ver >> 32 == u64::from(REPAIRED)
}

bitflags! {
    /// Low bits of the footer's `flag`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct NodeFlags: u32 {
        /// Node of something that is no directory.
        const COLD = 1;
        /// Written by fsync.
        const FSYNC = 2;
        /// The directory entry must be recovered too.
        const DENTRY = 4;
    }
}

/// The last 24 bytes of every node block.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawNodeFooter {
    /// The node's id.
    pub nid: U32,
    /// The inode it belongs to.
    pub ino: U32,
    /// [`NodeFlags`], and above them the node's offset in the inode's tree.
    pub flag: U32,
    /// Version of the checkpoint it was written under, the checkpoint's CRC in the high half.
    pub cp_ver: U64,
    /// Where the log that holds this node goes on: the roll-forward chain.
    pub next_blkaddr: U32,
}

/// A direct or indirect node: addresses or node ids, then the footer.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawNode {
    /// Block addresses (direct) or node ids (indirect).
    pub slots: [U32; ADDRS_PER_NODE as usize],
    /// The footer.
    pub footer: RawNodeFooter,
}

const _: () = {
    assert!(size_of::<RawNodeFooter>() == 24);
    assert!(size_of::<RawNode>() == super::BLOCK_SIZE);
    assert!(core::mem::offset_of!(RawNode, footer) == FOOTER_OFFSET);
};

impl RawNodeFooter {
    /// The node's id.
    pub fn nid(&self) -> Nid {
        self.nid.into()
    }

    /// The inode it belongs to.
    pub fn ino(&self) -> Ino {
        self.ino.into()
    }

    /// The node's offset in the inode's tree: 0 for the inode itself.
    pub fn offset(&self) -> u32 {
        self.flag.get() >> OFFSET_SHIFT
    }

    /// Whether the node is an inode. `None` if inode and offset say different things.
    pub fn is_inode(&self) -> Option<bool> {
        let is_own = self.ino == self.nid;
        (is_own == (self.offset() == 0)).then_some(is_own)
    }

    /// Whether the node is the one at `offset` of inode `ino`.
    pub fn is_at(&self, ino: Ino, offset: u32) -> bool {
        (self.ino(), self.offset()) == (ino, offset)
    }

    /// The flag bits.
    pub fn flags(&self) -> NodeFlags {
        NodeFlags::from_bits_truncate(self.flag.get())
    }
}
