//! The pointers to data in a node's block, read from the device as it is.

use basalt_vfs::FileKind;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::path::is_direct;
use crate::geometry::Geometry;
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::node::{RawNode, XATTR_NODE_OFFSET};
use crate::node::inode::validate;

/// The addresses of data in a node, from its first slot on: none in one that has none, and `None` where what is there is no sound node.
pub(crate) fn pointers<'a>(block: &'a [u8], geometry: &Geometry) -> Option<&'a [U32]> {
    let node = RawNode::ref_from_bytes(block).ok()?;
    let footer = &node.footer;
    if footer.ino != footer.nid {
        let has_data = is_direct(footer.offset()) && footer.offset() != XATTR_NODE_OFFSET;
        return Some(if has_data { &node.slots } else { &[] });
    }
    let inode = RawInode::ref_from_bytes(block).ok()?;
    validate(inode, footer.ino(), geometry).ok()?;
    Some(if has_pointers(inode) { inode.addresses(geometry.flexible_inline_xattr()) } else { &[] })
}

/// Whether an inode's slots hold addresses: no content, no entries, no device number.
pub(crate) fn has_pointers(raw: &RawInode) -> bool {
    let kind = FileKind::from_mode(u32::from(raw.i_mode.get()));
    matches!(kind, Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink))
        && !raw.inline_flags().intersects(InlineFlags::DATA | InlineFlags::DENTRY)
}
