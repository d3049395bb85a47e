//! Telling nodes from everything else: a node says at its end which one it is, and the rest of it must agree.

use basalt_vfs::FileKind;
use zerocopy::FromBytes;

use crate::geometry::Geometry;
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::node::{NodeFlags, RawNode, XATTR_NODE_OFFSET};
use crate::layout::superblock::Features;
use crate::layout::{Address, Ino, Nid};
use crate::node::inode;
use crate::node::path::{is_direct, is_node_offset};

/// A node as a block shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) nid: Nid,
    pub(crate) ino: Ino,
    /// Offset in the inode's tree.
    pub(crate) offset: u32,
    /// `cp_ver` whole: the version, and the checkpoint's checksum above it.
    pub(crate) version: u64,
    /// Whether fsync wrote it, and whether the directory entry was not yet durable then.
    pub(crate) fsynced: bool,
    pub(crate) wants_entry: bool,
    /// Where its log went on.
    pub(crate) next: Address,
    /// Whether its checksum is right, if it has one.
    pub(crate) sound: bool,
}

/// The node in a block, if there is one. `knows_features` is false where the geometry had to be guessed.
pub(crate) fn recognise(block: &[u8], geometry: &Geometry, knows_features: bool) -> Option<Seen> {
    let node = RawNode::ref_from_bytes(block).ok()?;
    let footer = &node.footer;
    let (nid, ino, offset) = (footer.nid(), footer.ino(), footer.offset());
    let ids = Nid::FIRST..geometry.node_ids();
    if !ids.contains(&nid) || !ids.contains(&ino.nid()) || footer.is_inode().is_none() {
        return None;
    }
    if !is_node_offset(offset) {
        return None;
    }
    let is_place = |address: Address| !address.is_block() || geometry.in_main(address);
    let next = footer.next_blkaddr.into();
    if !is_place(next) {
        return None;
    }
    let sound = match offset {
        0 => inode_is_sound(RawInode::ref_from_bytes(block).ok()?, ino, geometry, knows_features)?,
        // It goes on from the inode, and has no mark of its own; nor has it anything that could be wrong.
        XATTR_NODE_OFFSET => true,
        _ if is_direct(offset) => node.slots.iter().all(|address| is_place(Address::from(*address))),
        _ => node.slots.iter().all(|nid| nid.get() == 0 || ids.contains(&Nid::from(*nid))),
    };
    // Only an inode is of use with a wrong checksum: of a node of addresses, nothing else would be left to trust.
    if !sound && offset != 0 {
        return None;
    }
    let flags = footer.flags();
    let (fsynced, wants_entry) = (flags.contains(NodeFlags::FSYNC), flags.contains(NodeFlags::DENTRY));
    Some(Seen { nid, ino, offset, version: footer.cp_ver.get(), fsynced, wants_entry, next, sound })
}

/// Whether the checksum of what looks like an inode is right; `None` if it cannot be one.
fn inode_is_sound(raw: &RawInode, ino: Ino, geometry: &Geometry, knows_features: bool) -> Option<bool> {
    if inode::validate_fields(raw, ino, geometry).is_err() {
        if knows_features {
            return None;
        }
        // Where inline data ends depends on a feature.
        let mut other = geometry.clone();
        other.features.toggle(Features::FLEXIBLE_INLINE_XATTR);
        inode::validate_fields(raw, ino, &other).ok()?;
    }
    Some(inode::validate_checksum(raw, ino, geometry).is_ok())
}

/// What is remembered of an inode beyond its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InodeNote {
    pub(crate) kind: FileKind,
    /// The directory its name was in.
    pub(crate) parent: Ino,
    /// Whether it has links at all.
    pub(crate) linked: bool,
}

impl InodeNote {
    /// From an inode that was [recognised](recognise).
    pub(crate) fn of(raw: &RawInode) -> Option<InodeNote> {
        let kind = FileKind::from_mode(u32::from(raw.i_mode.get()))?;
        Some(InodeNote { kind, parent: raw.parent(), linked: raw.i_links.get() > 0 })
    }
}

/// Whether an inode shows that the volume keeps the room for xattrs in each inode: it is zero elsewhere.
pub(crate) fn shows_flexible_xattrs(block: &[u8]) -> bool {
    RawInode::ref_from_bytes(block).is_ok_and(|raw| {
        raw.is_inline(InlineFlags::EXTRA_ATTR) && raw.has_extra(4) && raw.extra().i_inline_xattr_size.get() != 0
    })
}
