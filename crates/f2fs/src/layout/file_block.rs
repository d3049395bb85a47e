//! The index of a block in a file.

use std::fmt;
use std::ops::{Add, Range, Sub};

use super::{BLOCK_BITS, blocks_for};

/// Which block of a file or directory: counted in 4 KiB blocks from its start. Format: `fofs` and `pgoff_t`; no file reaches as far as
/// the type does.
///
/// Neither an offset in bytes nor the index of an address in a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct FileBlock(u32);

impl FileBlock {
    /// The first block of a file.
    pub const FIRST: FileBlock = FileBlock(0);
    /// Behind all blocks that a file can have.
    pub const END: FileBlock = FileBlock(u32::MAX);

    /// Block `index` of a file.
    pub const fn new(index: u32) -> FileBlock {
        FileBlock(index)
    }

    /// As [`new`](Self::new); [`END`](Self::END) for an index that does not fit.
    pub fn clamped(index: u64) -> FileBlock {
        FileBlock(index.min(u64::from(u32::MAX)) as u32)
    }

    /// The block that holds byte `offset` of a file; [`END`](Self::END) where no file reaches.
    pub fn of_byte(offset: u64) -> FileBlock {
        FileBlock::clamped(offset >> BLOCK_BITS)
    }

    /// The first block that begins behind so many bytes; [`END`](Self::END) where no file reaches.
    pub fn behind(size: u64) -> FileBlock {
        FileBlock::clamped(blocks_for(size))
    }

    /// Its index.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Its first byte in the file.
    pub const fn byte(self) -> u64 {
        (self.0 as u64) << BLOCK_BITS
    }

    /// The block `blocks` further on, at most `u32::MAX`.
    pub const fn saturating_add(self, blocks: u32) -> FileBlock {
        FileBlock(self.0.saturating_add(blocks))
    }

    /// The block `blocks` further on. Behind `u32::MAX` comes 0.
    pub const fn wrapping_add(self, blocks: u32) -> FileBlock {
        FileBlock(self.0.wrapping_add(blocks))
    }

    /// How many blocks it lies behind `first`; 0 where it lies in front of it.
    pub const fn saturating_sub(self, first: FileBlock) -> u32 {
        self.0.saturating_sub(first.0)
    }

    /// The blocks of a range.
    pub fn all(range: Range<FileBlock>) -> impl DoubleEndedIterator<Item = FileBlock> + ExactSizeIterator + Clone {
        (range.start.0..range.end.0).map(FileBlock)
    }
}

/// The block so many blocks further on.
impl Add<u32> for FileBlock {
    type Output = FileBlock;

    fn add(self, blocks: u32) -> FileBlock {
        FileBlock(self.0 + blocks)
    }
}

/// How many blocks lie between the two. The second must not lie behind the first.
impl Sub for FileBlock {
    type Output = u32;

    fn sub(self, first: FileBlock) -> u32 {
        self.0 - first.0
    }
}

impl From<FileBlock> for u64 {
    fn from(block: FileBlock) -> u64 {
        block.0.into()
    }
}

impl fmt::Display for FileBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for FileBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
