//! The addresses in inodes and direct nodes, one by one.
//!
//! Which of the two a node is, the check has decided: its footer may be what is damaged. So this is not `node::pointers`' question.

use zerocopy::FromBytes;

use super::state::State;
use crate::check::Survey;
use crate::error::Result;
use crate::layout::inode::RawInode;
use crate::layout::node::RawNode;
use crate::layout::{Address, Nid};

impl State {
    /// Sets an address of an inode (counted from its first block address) or of a direct node.
    pub(super) fn set_address(&mut self, survey: &Survey, nid: Nid, slot: u32, address: Address) -> Result<bool> {
        if self.is_inode(survey, nid) {
            let flexible = self.geometry.flexible_inline_xattr();
            return self.edit_inode(nid.as_inode(), |inode| {
                if let Some(stored) = inode.addresses_mut(flexible).get_mut(slot as usize) {
                    *stored = address.into();
                }
            });
        }
        self.edit_node(nid, |node| {
            if let Some(stored) = node.slots.get_mut(slot as usize) {
                *stored = address.into();
            }
        })
    }

    /// The address at a slot, counted as in [`set_address`](Self::set_address).
    pub(super) fn address(&self, survey: &Survey, nid: Nid, slot: u32) -> Result<Address> {
        let Some(block) = self.node(nid)? else { return Ok(Address::NULL) };
        let (Ok(inode), Ok(node)) = (RawInode::ref_from_bytes(&block), RawNode::ref_from_bytes(&block)) else {
            return Ok(Address::NULL);
        };
        let flexible = self.geometry.flexible_inline_xattr();
        let slots = if self.is_inode(survey, nid) { inode.addresses(flexible) } else { &node.slots };
        Ok(slots.get(slot as usize).map_or(Address::NULL, |slot| Address::from(*slot)))
    }
}
