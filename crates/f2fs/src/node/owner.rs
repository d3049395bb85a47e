//! The way back from a data block to its owner: the node and pointer that a summary or a journal names, which may be wrong.

use super::cache::Node;
use super::path::first_block;
use super::pointers::points_to;
use crate::error::{Error, Result};
use crate::layout::{Address, FileBlock, Ino, Nid};
use crate::volume::Volume;

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

/// Damage: a live block that node `nid` should point to, and does not.
pub(crate) fn not_owned(structure: &'static str, nid: Nid, address: Address) -> Error {
    Error::damaged(structure, format!("block {address}"), format!("live, but node {nid} does not point there"))
}
