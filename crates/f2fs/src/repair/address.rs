//! The addresses in inodes and direct nodes, one by one.

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
            return self.edit_inode(nid.as_inode(), |inode| {
                let at = (inode.extra_size() / 4 + slot) as usize;
                if let Some(stored) = inode.slots.get_mut(at) {
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
        if self.is_inode(survey, nid) {
            let Ok(inode) = RawInode::ref_from_bytes(&block) else { return Ok(Address::NULL) };
            return Ok(inode
                .slots
                .get((inode.extra_size() / 4 + slot) as usize)
                .map_or(Address::NULL, |slot| Address::from(*slot)));
        }
        let Ok(node) = RawNode::ref_from_bytes(&block) else { return Ok(Address::NULL) };
        Ok(node.slots.get(slot as usize).map_or(Address::NULL, |slot| Address::from(*slot)))
    }
}
