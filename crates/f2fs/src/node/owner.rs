//! The way back from a data block to its owner: the node and pointer that a summary or a journal names, which may be wrong.

use super::cache::Node;
use super::level::first_block;
use super::pointers::points_to;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::node::RawNode;
use crate::layout::{Address, FileBlock, Ino, Nid};
use crate::node::inode::validate_fields;
use crate::volume::Volume;
use zerocopy::transmute_ref;

impl Volume {
    /// The byte of node `nid` where pointer `index` to a data block is, which must be `address`, and the node's inode.
    pub(crate) fn pointer_of(&mut self, nid: Nid, index: u32, address: Address) -> Result<(usize, Ino)> {
        if self.nat_entry(nid)?.address() == Address::NULL {
            return Err(not_owned("summary", nid, address));
        }
        let flexible = self.geometry.flexible_inline_xattr();
        self.node(nid)?;
        let node = self.nodes.get(nid).map(Node::raw);
        let found = node.and_then(|node| Some((points_to(node, flexible, index, address)?, node.footer.ino())));
        let (byte, ino) = found.ok_or_else(|| not_owned("summary", nid, address))?;
        if !self.is_inode(ino)? {
            return Err(not_owned("node", nid, address));
        }
        Ok((byte, ino))
    }

    /// Which block of file `ino` pointer `index` of its node `nid` is for.
    pub(crate) fn file_block(&mut self, ino: Ino, nid: Nid, index: u32) -> Result<FileBlock> {
        if nid == ino.nid() {
            return Ok(FileBlock::new(index));
        }
        let flexible = self.geometry.flexible_inline_xattr();
        let own = self.inode(ino)?.address_slots(flexible);
        let first = first_block(own, self.node(nid)?.footer().offset());
        // A node of no place in the file is another check's matter.
        Ok(first.unwrap_or_default().wrapping_add(index))
    }
}

/// Which inode node `nid` belongs to, by its NAT entry and its block, which may be damaged: itself where two of the entry's inode, the
/// footer's inode and the offset say so, or one of them and the content; else the entry's, or the footer's if the entry takes it for an inode.
pub(crate) fn inode_of(nid: Nid, entry: Ino, node: &RawNode, geometry: &Geometry) -> Ino {
    let (own, footer) = (nid.as_inode(), &node.footer);
    let voices = [entry == own, footer.ino() == own, footer.offset() == 0];
    match voices.into_iter().filter(|voice| *voice).count() {
        2.. => own,
        // Inode and offset are neighbours, and can be damaged together. Addresses hardly ever pass for the fields of an inode.
        1 if validate_fields(transmute_ref!(node), own, geometry).is_ok() => own,
        _ if entry == own => footer.ino(),
        _ => entry,
    }
}

/// Damage: a live block that node `nid` should point to, and does not.
pub(crate) fn not_owned(structure: &'static str, nid: Nid, address: Address) -> Error {
    Error::damaged(structure, format!("block {address}"), format!("live, but node {nid} does not point there"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FormatOptions, format};
    use crate::layout::inode::RawInode;
    use crate::layout::node::OFFSET_SHIFT;
    use crate::layout::superblock::Features;
    use basalt_device::MemoryDevice;
    use zerocopy::{FromZeros, transmute_mut};

    /// Each of the three damaged, of an inode and of a node below one; and two of them, of a node whose content is an inode's.
    #[test]
    fn two_of_entry_footer_and_offset_outvote_the_third_and_content_any_two() {
        let device = MemoryDevice::new(64 << 20, 512);
        let plain = FormatOptions { features: Features::empty(), ..FormatOptions::default() };
        format(&device, &plain, &mut |_, _| ()).unwrap();
        let geometry = Geometry::read(&device).unwrap().0;
        let (own, other, third) = (7, 9, 11);
        for (entry, ino, offset, expected) in [
            (own, own, 0, own),
            (other, own, 0, own),
            (own, other, 0, own),
            (own, own, 5, own),
            (other, other, 5, other),
            (own, other, 5, other),
            (other, own, 5, other),
            (other, other, 0, other),
            (third, other, 5, third),
        ] {
            let mut node = RawNode::new_zeroed();
            node.footer.ino.set(ino);
            node.footer.flag.set(offset << OFFSET_SHIFT);
            let found = inode_of(Nid::new(own), Ino::new(entry), &node, &geometry);
            assert_eq!(found, Ino::new(expected), "entry {entry}, footer {ino}, offset {offset}");
            let inode: &mut RawInode = transmute_mut!(&mut node);
            inode.i_mode.set(0o100_644);
            inode.i_blocks.set(1);
            let found = inode_of(Nid::new(own), Ino::new(entry), &node, &geometry);
            let is_inode = entry == own || ino == own || offset == 0;
            assert_eq!(
                found == Ino::new(own),
                is_inode,
                "entry {entry}, footer {ino}, offset {offset}, an inode's content"
            );
        }
    }
}
