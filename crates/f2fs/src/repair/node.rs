//! Pointers: to nodes that are not there, to nodes and blocks of others, and nodes that nobody points to.

use basalt_segments::SegmentKind;
use rustc_hash::FxHashSet;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::state::State;
use crate::check::blocks::Owner;
use crate::check::records::Reference;
use crate::check::{Fault, FaultKind, Place, Survey};
use crate::error::Result;
use crate::layout::inode::RawInode;
use crate::layout::node::{ADDRS_PER_NODE, NodeFlags, OFFSET_SHIFT, RawNode, XATTR_NODE_OFFSET};
use crate::layout::{Address, Ino, Nid};
use crate::node::level::{CHILD_OFFSETS, Level, level};
use crate::node::owner::inode_of;
use crate::node::path::{DOUBLE_INDIRECT, SECOND_INDIRECT};
use crate::node::pointers::has_pointers;

const IDS: u32 = ADDRS_PER_NODE;
/// Offsets of the two indirect nodes.
const INDIRECT: [u32; 2] = [3, SECOND_INDIRECT];

/// Where the pointer to a node at `offset` is: offset of the node that has it, and its slot there. `None` for the nodes that the
/// inode points to itself.
fn parent_of(offset: u32) -> Option<(u32, u32)> {
    if CHILD_OFFSETS.contains(&offset) || offset == XATTR_NODE_OFFSET {
        return None;
    }
    if offset < INDIRECT[1] {
        return Some((INDIRECT[0], offset - INDIRECT[0] - 1));
    }
    if offset < DOUBLE_INDIRECT {
        return Some((INDIRECT[1], offset - INDIRECT[1] - 1));
    }
    let below = offset - DOUBLE_INDIRECT - 1;
    let (indirect, within) = (below / (IDS + 1), below % (IDS + 1));
    Some(if within == 0 { (DOUBLE_INDIRECT, indirect) } else { (offset - within, within - 1) })
}

/// Offset of the direct node that has a file's block, and the slot there; `None` for a block whose address is in the inode.
/// The inverse of [`level`].
pub(super) fn direct_node(file_block: u64, own: u32, per_node: u32) -> Option<(u32, u32)> {
    let behind = file_block.checked_sub(own.into())?;
    let (index, slot) = (behind / u64::from(per_node.max(1)), (behind % u64::from(per_node.max(1))) as u32);
    let ids = u64::from(IDS);
    // Files end before the double indirect node's room does, so offsets fit.
    let offset = match index {
        0..=1 => index + 1,
        _ if index < 2 + ids => 4 + index - 2,
        _ if index < 2 + 2 * ids => u64::from(INDIRECT[1]) + 1 + index - 2 - ids,
        _ => {
            let deep = index - 2 - 2 * ids;
            u64::from(DOUBLE_INDIRECT) + 1 + deep / ids * (ids + 1) + 1 + deep % ids
        }
    };
    Some((offset as u32, slot))
}

/// The block of a node of node ids that has none yet.
pub(super) fn new_indirect(nid: Nid, ino: Ino, offset: u32) -> Vec<u8> {
    let mut node = RawNode::new_zeroed();
    node.footer.nid.set(nid.get());
    node.footer.ino.set(ino.get());
    node.footer.flag.set(NodeFlags::COLD.bits() | offset << OFFSET_SHIFT);
    node.as_bytes().to_vec()
}

impl State {
    /// Repairs a fault of a pointer; says what was done.
    pub(super) fn repair_pointer(&mut self, survey: &Survey, fault: &Fault) -> Result<Option<String>> {
        match (fault.kind, fault.place) {
            (FaultKind::NodeReference, Place::Inode(ino)) => self.clean_tree(survey, ino),
            (FaultKind::NodeUnreachable, Place::Node(nid)) => self.attach_or_free(survey, nid),
            (FaultKind::BlockAddress, Place::Slot { nid, slot }) => {
                let cleared = self.set_address(survey, nid, slot, Address::NULL)?;
                Ok(cleared.then(|| "now a hole".into()))
            }
            (_, Place::Node(parent)) => self.clean_pointers(survey, parent),
            (_, Place::Inode(parent)) => self.clean_pointers(survey, parent.nid()),
            _ => Ok(None),
        }
    }

    /// Clears the pointers of an inode and its indirect nodes that lead nowhere or to somebody else's.
    fn clean_tree(&mut self, survey: &Survey, ino: Ino) -> Result<Option<String>> {
        let below = survey.references.iter().filter(|(_, reference)| reference.ino == ino);
        let mut nodes: Vec<Nid> = below.map(|(&nid, _)| nid).collect();
        nodes.sort_unstable();
        let mut done = self.clean_pointers(survey, ino.nid())?;
        for nid in nodes {
            done = done.or(self.clean_pointers(survey, nid)?);
        }
        Ok(done)
    }

    /// The inode that a node belongs to, and its offset there: its own, by who points to it, or else by its entry and its footer.
    pub(super) fn place_of(&self, survey: &Survey, nid: Nid) -> Result<(Ino, u32)> {
        if self.is_inode(survey, nid) {
            return Ok((nid.as_inode(), 0));
        }
        if let Some(reference) = survey.references.get(&nid) {
            return Ok((reference.ino, reference.offset));
        }
        let entry = self.nat(nid)?.ino();
        let Some(block) = self.node(nid)? else { return Ok((entry, 0)) };
        let node = RawNode::ref_from_bytes(&block).ok().filter(|node| node.footer.nid() == nid);
        Ok(node.map_or((entry, 0), |node| match inode_of(nid, entry, node, &self.geometry) {
            ino if ino.nid() == nid => (ino, 0),
            ino => (ino, node.footer.offset()),
        }))
    }

    /// Whether the pointer to node `nid` at `offset` of inode `ino` is the one that counts.
    fn is_right(&self, survey: &Survey, nid: Nid, ino: Ino, offset: u32) -> Result<bool> {
        let own = survey.references.get(&nid).is_some_and(|found| found.ino == ino && found.offset == offset);
        Ok(own && !survey.inodes.contains_key(&nid.as_inode()) && self.geometry.in_main(self.nat(nid)?.address()))
    }

    /// Clears the pointers of an inode or indirect node that lead nowhere or to somebody else's.
    fn clean_pointers(&mut self, survey: &Survey, parent: Nid) -> Result<Option<String>> {
        let Some(block) = self.node(parent)? else { return Ok(None) };
        let mut cleared = Vec::new();
        let ino = parent.as_inode();
        if survey.inodes.contains_key(&ino) {
            let Ok(inode) = RawInode::read_from_bytes(&block) else { return Ok(None) };
            let mut wrong = [false; 5];
            for (index, (nid, offset)) in inode.i_nid.iter().zip(CHILD_OFFSETS).enumerate() {
                wrong[index] = nid.get() != 0 && !self.is_right(survey, Nid::from(*nid), ino, offset)?;
            }
            let xattrs = inode.xattr_nid();
            let wrong_xattrs = xattrs != Nid::NONE && !self.is_right(survey, xattrs, ino, XATTR_NODE_OFFSET)?;
            self.edit_inode(ino, |inode| {
                for (nid, _) in inode.i_nid.iter_mut().zip(wrong).filter(|(_, wrong)| *wrong) {
                    cleared.push(nid.get());
                    nid.set(0);
                }
                if wrong_xattrs {
                    cleared.push(xattrs.get());
                    inode.i_xattr_nid.set(0);
                }
            })?;
        } else if let Some(&Reference { ino, offset }) = survey.references.get(&parent) {
            let Level::Indirect { first, step } = level(offset, 0, IDS) else { return Ok(None) };
            let Ok(node) = RawNode::read_from_bytes(&block) else { return Ok(None) };
            let mut wrong = FxHashSet::default();
            for (slot, nid) in (0..IDS).zip(&node.slots) {
                if nid.get() != 0 && !self.is_right(survey, Nid::from(*nid), ino, first + slot * step)? {
                    wrong.insert(slot);
                    cleared.push(nid.get());
                }
            }
            self.edit_node(parent, |node| wrong.iter().for_each(|&slot| node.slots[slot as usize].set(0)))?;
        }
        let names: Vec<String> = cleared.iter().take(8).map(ToString::to_string).collect();
        Ok((!cleared.is_empty()).then(|| format!("pointers to nodes {} cleared", names.join(", "))))
    }

    /// A node that nobody points to: back to where its footer says if that place is empty, else its id is freed. Nothing yet if the
    /// node above it is in the same position.
    fn attach_or_free(&mut self, survey: &Survey, nid: Nid) -> Result<Option<String>> {
        if let Some((ino, offset)) = self.attach(survey, nid)? {
            return Ok(Some(format!("put back into inode {ino}, at offset {offset}")));
        }
        let footer = self.node(nid)?.as_deref().and_then(State::footer);
        let below = footer.filter(|footer| footer.offset() != 0);
        if let Some((footer, (above, _))) = below.and_then(|footer| Some((footer, parent_of(footer.offset())?)))
            && survey.inodes.contains_key(&footer.ino())
            && self.is_waiting(survey, footer.ino(), above)?
        {
            return Ok(None);
        }
        let address = self.nat(nid)?.address();
        let has_file = footer.is_some_and(|footer| survey.inodes.contains_key(&footer.ino()));
        // The first time, what it belongs to may only have been mended a moment ago.
        if has_file && self.put_back.contains(&address) {
            self.outdated.insert(address);
        }
        self.free_node(nid)?;
        self.homeless.insert(nid);
        Ok(Some("belongs to no file: node id freed".into()))
    }

    fn attach(&mut self, survey: &Survey, nid: Nid) -> Result<Option<(Ino, u32)>> {
        let Some(block) = self.node(nid)? else { return Ok(None) };
        let Some(footer) = State::footer(&block) else { return Ok(None) };
        let (ino, offset) = (footer.ino(), footer.offset());
        let known = footer.nid() == nid && offset != 0 && survey.inodes.contains_key(&ino);
        let Some(inode) =
            self.inode(ino)?.filter(|_| known && self.nat(nid).is_ok_and(|entry| entry.ino == footer.ino))
        else {
            return Ok(None);
        };
        if offset == XATTR_NODE_OFFSET {
            let free = inode.xattr_nid() == Nid::NONE;
            return Ok(
                (free && self.edit_inode(ino, |inode| inode.i_xattr_nid.set(nid.get()))?).then_some((ino, offset))
            );
        }
        let own = inode.address_slots(self.geometry.flexible_inline_xattr());
        let past_end = match level(offset, own, ADDRS_PER_NODE) {
            Level::Direct { file_block } => file_block >= inode.i_size.get().div_ceil(crate::layout::BLOCK_SIZE as u64),
            Level::Indirect { .. } => false,
        };
        if !has_pointers(&inode) || past_end {
            return Ok(None);
        }
        let attached = match parent_of(offset) {
            None => {
                let index = CHILD_OFFSETS.iter().position(|&child| child == offset);
                match index.filter(|&index| inode.i_nid[index].get() == 0) {
                    Some(index) => self.edit_inode(ino, |inode| inode.i_nid[index].set(nid.get()))?,
                    None => false,
                }
            }
            Some((parent, slot)) => match self.indirect_at(survey, ino, parent)? {
                Some(parent) if self.address(survey, parent, slot)? == Address::NULL => {
                    self.edit_node(parent, |node| node.slots[slot as usize].set(nid.get()))?
                }
                _ => false,
            },
        };
        if attached {
            self.note_node(survey, ino, offset, nid);
        }
        Ok(attached.then_some((ino, offset)))
    }

    /// The node of node ids at an offset of a file's tree, made if there is none; `None` if its place is taken or there is no room.
    fn indirect_at(&mut self, survey: &Survey, ino: Ino, offset: u32) -> Result<Option<Nid>> {
        if let Some(nid) = self.node_at(survey, ino, offset) {
            // What a damaged pointer leads to is written over otherwise.
            let footer =
                if self.is_inode(survey, nid) { None } else { self.node(nid)?.and_then(|node| State::footer(&node)) };
            let is_right = footer.is_some_and(|footer| footer.is_at(ino, offset));
            return Ok(is_right.then_some(nid));
        }
        let (holder, slot) = match parent_of(offset) {
            Some((above, slot)) => match self.indirect_at(survey, ino, above)? {
                Some(holder) if self.address(survey, holder, slot)? == Address::NULL => (holder, Some(slot)),
                _ => return Ok(None),
            },
            None => (ino.nid(), None),
        };
        let index = CHILD_OFFSETS.iter().position(|&child| child == offset);
        let is_free = match (slot, index, self.inode(ino)?) {
            (Some(_), ..) => true,
            (None, Some(index), Some(inode)) => inode.i_nid[index].get() == 0,
            _ => false,
        };
        // It may be in use all the same, and only be waiting to be put back itself.
        if !is_free || self.is_waiting(survey, ino, offset)? {
            return Ok(None);
        }
        let Some(nid) = self.free_nid(survey)? else { return Ok(None) };
        let Some(address) = self.allocate(survey, SegmentKind::ColdNode, Owner::Node(nid).summary())? else {
            return Ok(None);
        };
        self.put(address, &new_indirect(nid, ino, offset))?;
        self.edit_nat(nid, |entry| (entry.ino, entry.block_addr) = (ino.into(), address.into()))?;
        match (slot, index) {
            (Some(slot), _) => self.edit_node(holder, |node| node.slots[slot as usize].set(nid.get()))?,
            (None, Some(index)) => self.edit_inode(ino, |inode| inode.i_nid[index].set(nid.get()))?,
            _ => false,
        };
        self.note_node(survey, ino, offset, nid);
        Ok(Some(nid))
    }

    /// Whether the NAT has a node that nobody points to and that says it belongs to this place.
    fn is_waiting(&mut self, survey: &Survey, ino: Ino, offset: u32) -> Result<bool> {
        if self.waiting.is_none() {
            let mut waiting = FxHashSet::default();
            for (nid, entry) in survey.nat.in_use() {
                let is_known = survey.inodes.contains_key(&nid.as_inode()) || survey.references.contains_key(&nid);
                if is_known || !self.geometry.in_main(entry.address()) {
                    continue;
                }
                let footer = State::footer(&self.block(entry.address())?);
                waiting.extend(footer.filter(|at| at.nid() == nid).map(|at| (at.ino(), at.offset())));
            }
            self.waiting = Some(waiting);
        }
        Ok(self.waiting.as_ref().is_some_and(|waiting| waiting.contains(&(ino, offset))))
    }

    /// Blocks with several owners, all of which are in the survey's `claimers`: the owner that the summary names keeps the block, else
    /// the first one; for all others the block becomes a hole, or their node id is freed. All of them do point there, as the check found: here
    /// the summary is asked which of them is right.
    pub(super) fn settle_duplicates(&mut self, survey: &Survey) -> Result<Vec<(Place, String)>> {
        let mut claimers = survey.ownership.claimers.clone();
        claimers.sort_by_key(|(address, _)| *address);
        let mut done = Vec::new();
        for group in claimers.chunk_by(|a, b| a.0 == b.0).filter(|group| group.len() > 1) {
            let address = group[0].0;
            let entry = self.summary(address)?;
            let footer = State::footer(&self.block(address)?);
            let is_named = |owner: &Owner| owner.summary() == entry;
            let is_node =
                |owner: &Owner| matches!(owner, Owner::Node(nid) if footer.is_some_and(|footer| footer.nid() == *nid));
            let owners: Vec<Owner> = group.iter().map(|(_, owner)| *owner).collect();
            let keeper = owners.iter().position(is_node).or_else(|| owners.iter().position(is_named)).unwrap_or(0);
            for (_, owner) in owners.into_iter().enumerate().filter(|(index, _)| *index != keeper) {
                match owner {
                    Owner::Node(nid) => {
                        let action = self.replace_node(survey, nid)?;
                        done.push((Place::Node(nid), action));
                    }
                    Owner::Data { nid, slot, .. } => {
                        *self.given_up.entry(self.place_of(survey, nid)?.0).or_default() += 1;
                        self.set_address(survey, nid, slot.into(), Address::NULL)?;
                        let place = Place::Slot { nid, slot: slot.into() };
                        done.push((place, format!("block {address} belongs to another: now a hole")));
                    }
                }
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_blocks_are_inverse() {
        for offset in [1, 2, 4, 1000, 1021, 1023, 2040, 2043, 3060, 3062, 500_000] {
            let Level::Direct { file_block } = level(offset, 900, 1018) else { panic!("{offset}") };
            assert_eq!(direct_node(file_block + 7, 900, 1018), Some((offset, 7)));
        }
        assert_eq!(direct_node(899, 900, 1018), None);
    }

    #[test]
    fn parents_have_their_children() {
        assert_eq!(parent_of(1), None);
        assert_eq!(parent_of(2041), None);
        for offset in [4, 1021, 1023, 2040, 2042, 2043, 3060, 3061, 3062, 500_000] {
            let (parent, slot) = parent_of(offset).unwrap();
            let Level::Indirect { first, step } = level(parent, 900, 1018) else { panic!("{offset}") };
            assert_eq!(first + slot * step, offset);
        }
    }
}
