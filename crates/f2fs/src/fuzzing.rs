//! Doors for tests into checks that are nobody else's business.

use crate::error::Result;
use crate::file::xattr;
use crate::geometry::Geometry;
use crate::layout::Ino;
use crate::layout::inode::RawInode;
use crate::node::inode;

/// The checks an inode passes when it is read.
pub fn check_inode(raw: &RawInode, ino: Ino, geometry: &Geometry) -> Result<()> {
    inode::validate(raw, ino, geometry)
}

/// Reads a list of extended attributes, header included, and says how many there are; or what is wrong with it.
pub fn read_xattrs(bytes: &[u8]) -> std::result::Result<usize, String> {
    xattr::parse_list(bytes).map(|attributes| attributes.len())
}
