//! Which bytes of a node are addresses of data: the one rule for that, over a block as it is.

use std::ops::Range;

use basalt_vfs::FileKind;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes, transmute_ref};

use super::path::{has_data, inode_slot};
use crate::geometry::Geometry;
use crate::layout::Address;
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::node::{ADDRS_PER_NODE, RawNode};
use crate::node::inode::validate;

/// The bytes of a node where addresses of data are; none in one that has none. What the node is, its footer says. `flexible` is the
/// volume's FLEXIBLE_INLINE_XATTR.
pub(crate) fn data_slots(node: &RawNode, flexible: bool) -> Range<usize> {
    if node.footer.ino != node.footer.nid {
        let count = if has_data(node.footer.offset()) { ADDRS_PER_NODE } else { 0 };
        return 0..4 * count as usize;
    }
    let inode: &RawInode = transmute_ref!(node);
    let count = if has_pointers(inode) { inode.address_slots(flexible) } else { 0 };
    inode_slot(inode.extra_size(), 0)..inode_slot(inode.extra_size(), count)
}

/// The addresses of data in a node that was checked, from its first slot on.
pub(crate) fn addresses(node: &RawNode, flexible: bool) -> &[U32] {
    <[U32]>::ref_from_bytes(&node.as_bytes()[data_slots(node, flexible)]).unwrap_or_default()
}

/// The byte of a node where its pointer `index` to data is, if that is `address`.
pub(crate) fn points_to(node: &RawNode, flexible: bool, index: u32, address: Address) -> Option<usize> {
    let byte = data_slots(node, flexible).step_by(4).nth(index as usize)?;
    (node.as_bytes()[byte..byte + 4] == address.get().to_le_bytes()).then_some(byte)
}

/// The addresses of data in a block read from the device: `None` where what is there is no sound node.
pub(crate) fn pointers<'a>(block: &'a [u8], geometry: &Geometry) -> Option<&'a [U32]> {
    let node = RawNode::ref_from_bytes(block).ok()?;
    if node.footer.ino == node.footer.nid {
        validate(transmute_ref!(node), node.footer.ino(), geometry).ok()?;
    }
    Some(addresses(node, geometry.flexible_inline_xattr()))
}

/// Whether an inode's slots hold addresses: no content, no entries, no device number.
pub(crate) fn has_pointers(raw: &RawInode) -> bool {
    let kind = FileKind::from_mode(u32::from(raw.i_mode.get()));
    matches!(kind, Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink))
        && !raw.inline_flags().intersects(InlineFlags::DATA | InlineFlags::DENTRY)
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromZeros, transmute_mut};

    use super::*;
    use crate::layout::Nid;
    use crate::layout::inode::SLOTS_OFFSET;
    use crate::layout::node::{OFFSET_SHIFT, XATTR_NODE_OFFSET};

    const OWN: Nid = Nid::new(7);
    const ADDRESS: Address = Address::new(5000);

    fn node(ino: u32, offset: u32) -> RawNode {
        let mut node = RawNode::new_zeroed();
        (node.footer.nid, node.footer.ino) = (OWN.into(), ino.into());
        node.footer.flag.set(offset << OFFSET_SHIFT);
        node
    }

    fn inode(kind: FileKind, flags: InlineFlags) -> RawNode {
        let mut node = node(OWN.get(), 0);
        let inode: &mut RawInode = transmute_mut!(&mut node);
        inode.i_mode.set(kind.mode_bits() as u16);
        inode.i_inline = flags.bits();
        if flags.contains(InlineFlags::EXTRA_ATTR) {
            inode.extra_mut().i_extra_isize.set(24);
            inode.extra_mut().i_inline_xattr_size.set(60);
        }
        node
    }

    #[test]
    fn only_inodes_and_direct_nodes_have_addresses() {
        let whole = 4 * ADDRS_PER_NODE as usize;
        let (file, none) = (FileKind::Regular, InlineFlags::empty());
        let (extra, xattr) = (InlineFlags::EXTRA_ATTR, InlineFlags::XATTR);
        let of_inode = |from: usize, slots: usize| SLOTS_OFFSET + from..SLOTS_OFFSET + from + 4 * slots;
        for (what, node, flexible, expected) in [
            ("a direct node", node(9, 1), false, 0..whole),
            ("an indirect node", node(9, 3), false, 0..0),
            ("a node of attributes", node(9, XATTR_NODE_OFFSET), false, 0..0),
            ("a file", inode(file, none), false, of_inode(0, 923)),
            ("a file with attributes", inode(file, xattr), false, of_inode(0, 923 - 50)),
            ("a file with extra attributes", inode(file, extra), false, of_inode(24, 923 - 6)),
            ("a file that says how much room attributes have", inode(file, extra), true, of_inode(24, 923 - 6 - 60)),
            ("a directory", inode(FileKind::Directory, none), false, of_inode(0, 923)),
            ("an inline file", inode(file, InlineFlags::DATA), false, of_inode(0, 0)),
            ("an inline directory", inode(FileKind::Directory, InlineFlags::DENTRY), false, of_inode(0, 0)),
            ("a device", inode(FileKind::CharDevice, none), false, of_inode(0, 0)),
        ] {
            assert_eq!(data_slots(&node, flexible), expected, "{what}");
        }
    }

    #[test]
    fn a_node_points_where_its_slot_says() {
        let mut direct = node(9, 1);
        direct.slots[ADDRS_PER_NODE as usize - 1] = ADDRESS.into();
        let mut of_ids = node(9, 3);
        of_ids.slots[0] = ADDRESS.into();
        let last = ADDRS_PER_NODE - 1;
        assert_eq!(points_to(&direct, false, last, ADDRESS), Some(4 * last as usize));
        for (node, index, address) in [
            (&direct, last - 1, ADDRESS),
            (&direct, last, ADDRESS + 1),
            (&direct, ADDRS_PER_NODE, Address::new(OWN.get())),
            (&direct, u32::MAX, ADDRESS),
            (&of_ids, 0, ADDRESS),
        ] {
            assert_eq!(points_to(node, false, index, address), None, "{index} {address}");
        }
    }
}
