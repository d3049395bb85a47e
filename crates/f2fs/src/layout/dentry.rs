//! Directory blocks and inline directories: a bitmap, hashes with inode numbers, and names in slots of eight bytes.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::Ino;

/// Bytes of a name slot.
pub const SLOT_LEN: usize = 8;
/// Entries in a directory block.
pub const ENTRIES_PER_BLOCK: usize = 214;
/// Deepest hash level.
pub const MAX_DEPTH: u32 = 63;

/// One directory entry. A long name takes several slots; only the first has an entry in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDentry {
    /// Hash of the name; 0 for `.` and `..`.
    pub hash_code: U32,
    /// Inode number.
    pub ino: U32,
    /// Length of the name in bytes.
    pub name_len: U16,
    /// Kind of the inode: 1 regular, 2 directory, 3 char, 4 block, 5 FIFO, 6 socket, 7 symlink.
    pub file_type: u8,
}

impl RawDentry {
    /// The inode that it names.
    pub fn ino(&self) -> Ino {
        self.ino.into()
    }
}

const _: () = assert!(size_of::<RawDentry>() == 11);

/// Where the parts of a directory block or inline directory lie, in bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DentryShape {
    /// Entries (and name slots).
    pub entries: usize,
    /// Start of the entries; the bitmap starts at 0.
    pub dentries_at: usize,
    /// Start of the name slots.
    pub names_at: usize,
    /// Bytes in all.
    pub size: usize,
}

impl DentryShape {
    /// A directory block: 27 bytes of bitmap, 3 reserved, 214 entries, 214 name slots.
    pub const BLOCK: DentryShape = DentryShape { entries: 214, dentries_at: 30, names_at: 30 + 214 * 11, size: 4096 };

    /// An inline directory in `size` bytes of an inode.
    pub const fn inline(size: usize) -> DentryShape {
        // Each entry takes 11 + 8 bytes and a bit.
        let entries = size * 8 / ((11 + SLOT_LEN) * 8 + 1);
        let names_at = size - entries * SLOT_LEN;
        DentryShape { entries, dentries_at: names_at - entries * 11, names_at, size }
    }

    /// Bytes of the bitmap.
    pub const fn bitmap_len(&self) -> usize {
        self.entries.div_ceil(8)
    }
}

const _: () = assert!(DentryShape::BLOCK.names_at + 214 * SLOT_LEN == super::BLOCK_SIZE);

/// Name slots that a name of `len` bytes takes.
pub const fn slots_for(len: usize) -> usize {
    len.div_ceil(SLOT_LEN)
}
