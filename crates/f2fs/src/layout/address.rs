//! The address of a block, and the three addresses that are none.

use std::fmt;
use std::ops::{Add, Range, Sub};

use zerocopy::little_endian::U32;

/// Which block of the device: counted in 4 KiB blocks from its start. Format: `block_t`, an `le32` in every structure on disk.
///
/// Not an index within the main area ([`MainBlock`](basalt_segments::MainBlock)): only [`Geometry`](crate::Geometry)
/// turns one into the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address(u32);

impl Address {
    /// A hole: no block. Format: `NULL_ADDR`.
    pub const NULL: Address = Address(0);
    /// A reserved block that was never written: it counts as used and reads as zeros. Format: `NEW_ADDR`.
    pub const NEW: Address = Address(u32::MAX);
    /// Marks the first block of a compressed cluster. Format: `COMPRESS_ADDR`.
    pub const COMPRESS: Address = Address(u32::MAX - 1);

    /// The address that a structure on disk holds as this number.
    pub const fn new(raw: u32) -> Address {
        Address(raw)
    }

    /// The number that a structure on disk holds for it.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether it is neither a hole nor a mark, so that there may be a block.
    pub fn is_block(self) -> bool {
        ![Address::NULL, Address::NEW, Address::COMPRESS].contains(&self)
    }

    /// The address `blocks` further on, if there is one.
    pub fn checked_add(self, blocks: u32) -> Option<Address> {
        self.0.checked_add(blocks).map(Address)
    }

    /// The address `blocks` further on, at most `u32::MAX`.
    pub fn saturating_add(self, blocks: u32) -> Address {
        Address(self.0.saturating_add(blocks))
    }

    /// How many blocks it lies behind `first`, if it does not lie in front of it.
    pub fn blocks_behind(self, first: Address) -> Option<u32> {
        self.0.checked_sub(first.0)
    }

    /// It and all that follow.
    pub fn onward(self) -> impl Iterator<Item = Address> + Clone {
        (self.0..).map(Address)
    }

    /// The addresses of a range of blocks.
    pub fn all(range: Range<Address>) -> impl DoubleEndedIterator<Item = Address> + ExactSizeIterator + Clone {
        (range.start.0..range.end.0).map(Address)
    }
}

/// The address so many blocks further on.
impl Add<u32> for Address {
    type Output = Address;

    fn add(self, blocks: u32) -> Address {
        Address(self.0 + blocks)
    }
}

/// The address so many blocks in front of it.
impl Sub<u32> for Address {
    type Output = Address;

    fn sub(self, blocks: u32) -> Address {
        Address(self.0 - blocks)
    }
}

/// How many blocks lie between the two. The second must not lie behind the first.
impl Sub for Address {
    type Output = u32;

    fn sub(self, first: Address) -> u32 {
        self.0 - first.0
    }
}

/// As a structure on disk holds it.
impl From<Address> for U32 {
    fn from(address: Address) -> U32 {
        U32::new(address.0)
    }
}

impl From<U32> for Address {
    fn from(raw: U32) -> Address {
        Address(raw.get())
    }
}

impl From<Address> for u64 {
    fn from(address: Address) -> u64 {
        address.0.into()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::LowerHex for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}
