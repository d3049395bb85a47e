//! Extended attributes: a header, then entries one after the other, over the inline range and the xattr node together.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `h_magic`.
pub const MAGIC: u32 = 0xF2F5_2011;
/// Bytes of the header.
pub const HEADER_SIZE: usize = 24;
/// Bytes of an xattr node that hold attributes (the footer takes the rest).
pub const NODE_CAPACITY: usize = super::node::FOOTER_OFFSET;
/// Longest value in bytes. Source: the kernel's `MAX_VALUE_LEN`.
pub const VALUE_MAX: usize = NODE_CAPACITY - HEADER_SIZE - size_of::<RawXattrEntry>();

/// The header in front of the first entry.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawXattrHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_reserved: [U32; 4],
}

/// The fixed part of an entry; name and value follow, padded to 4 bytes together.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawXattrEntry {
    /// Namespace, see [`NAMESPACES`]; 0 ends the list.
    pub e_name_index: u8,
    /// Length of the name without its prefix.
    pub e_name_len: u8,
    /// Length of the value.
    pub e_value_size: U16,
}

const _: () = {
    assert!(size_of::<RawXattrHeader>() == HEADER_SIZE);
    assert!(size_of::<RawXattrEntry>() == 4);
};

/// Namespaces: `e_name_index`, the prefix of the full name, and whether the prefix is the whole name.
pub const NAMESPACES: [(u8, &str, bool); 6] = [
    (1, "user.", false),
    (2, "system.posix_acl_access", true),
    (3, "system.posix_acl_default", true),
    (4, "trusted.", false),
    (6, "security.", false),
    (7, "system.advise", true),
];
