//! The bytes of an F2FS volume: one structure a file, no behaviour beyond reading and writing its own fields.
//!
//! | module | where on the volume |
//! |---|---|
//! | [`Address`] | which block of the device; in structures on disk a plain number |
//! | [`Ino`], [`Nid`] | which inode, and which node; in structures on disk plain numbers |
//! | [`FileBlock`] | which block of a file |
//! | [`superblock`] | byte 1024 of blocks 0 and 1 |
//! | [`journal`] | from block 16 on, in front of segment 0: Basalt's own |
//! | [`hotness`] | behind the journal, in front of segment 0: Basalt's own |
//! | [`own`] | which blocks in front of segment 0 are Basalt's |
//! | [`checkpoint`] | two packs at `cp_blkaddr` and `cp_blkaddr + 512` |
//! | [`sit`] | segment information table: live blocks of every main segment, two copies of each block |
//! | [`nat`] | node address table: where each node is, two copies of each block |
//! | [`summary`] | segment summary area: which node owns each block; also the journals |
//! | [`node`], [`inode`] | main area: inodes, direct and indirect nodes |
//! | [`seal`] | main area: the block in front of each fsync's nodes, Basalt's own |
//! | [`inside`] | main area: inodes that are their own seals, Basalt's own |
//! | [`dentry`] | main area: directory blocks and inline directories |
//! | [`xattr`] | inside inodes and in their xattr node |
//!
//! All integers are little-endian. Bitmaps of NAT, SIT and checkpoint are most significant bit first; directory bitmaps
//! are least significant bit first. Source: the kernel's `include/linux/f2fs_fs.h` and `Documentation/filesystems/f2fs.rst`.

mod address;
pub mod checkpoint;
pub mod crc;
pub mod delta;
pub mod dentry;
mod file_block;
pub mod hotness;
mod ids;
pub mod inode;
pub mod inside;
pub mod journal;
pub mod nat;
pub mod node;
pub mod own;
pub mod seal;
pub mod sit;
pub mod summary;
pub mod superblock;
pub mod xattr;

pub use address::Address;
pub use file_block::FileBlock;
pub use ids::{Ino, Nid};

/// Bytes in a block; the only block size Basalt serves.
pub const BLOCK_SIZE: usize = 4096;
/// log2 of [`BLOCK_SIZE`].
pub const BLOCK_BITS: u32 = 12;
/// Blocks in a segment.
pub const BLOCKS_PER_SEGMENT: u32 = 512;
/// log2 of [`BLOCKS_PER_SEGMENT`].
pub const SEGMENT_BITS: u32 = 9;
/// Longest file name in bytes.
pub const NAME_MAX: usize = 255;

/// Blocks that a size in bytes covers.
pub const fn blocks_for(size: u64) -> u64 {
    (size >> BLOCK_BITS) + (size & (BLOCK_SIZE as u64 - 1) != 0) as u64
}

/// One block of raw bytes, aligned for every structure in this module.
#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable)]
#[repr(C, align(8))]
pub struct RawBlock(pub [u8; BLOCK_SIZE]);

impl RawBlock {
    /// A block of zeros on the heap.
    pub fn zeroed() -> Box<RawBlock> {
        Box::new(RawBlock([0; BLOCK_SIZE]))
    }
}

/// Reads bit `index` of a bitmap that counts from the most significant bit (NAT, SIT, checkpoint).
pub fn bit_msb(map: &[u8], index: usize) -> bool {
    map[index / 8] & (0x80 >> (index % 8)) != 0
}

/// Sets bit `index` of a most-significant-first bitmap to `value`.
pub fn set_bit_msb(map: &mut [u8], index: usize, value: bool) {
    let mask = 0x80 >> (index % 8);
    if value {
        map[index / 8] |= mask;
    } else {
        map[index / 8] &= !mask;
    }
}

/// Flips bit `index` of a most-significant-first bitmap.
pub fn flip_bit_msb(map: &mut [u8], index: usize) {
    map[index / 8] ^= 0x80 >> (index % 8);
}

/// Reads bit `index` of a bitmap that counts from the least significant bit (directories).
pub fn bit_lsb(map: &[u8], index: usize) -> bool {
    map[index / 8] & (1 << (index % 8)) != 0
}

/// Sets bit `index` of a least-significant-first bitmap to `value`.
pub fn set_bit_lsb(map: &mut [u8], index: usize, value: bool) {
    let mask = 1 << (index % 8);
    if value {
        map[index / 8] |= mask;
    } else {
        map[index / 8] &= !mask;
    }
}
