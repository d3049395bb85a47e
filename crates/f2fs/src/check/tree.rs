//! The nodes below the inodes, level by level, each level in the order it lies on the device; then those that nobody points to.

use zerocopy::FromBytes;

use super::batch::for_each_block;
use super::checker::Checker;
use super::fault::Place;
use super::kind::FaultKind;
use super::nodes::NodeAt;
use super::records::{FileState, Reference};
use super::report::Stage;
use super::xattr;
use crate::blocks::read_blocks;
use crate::error::Result;
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::node::{ADDRS_PER_NODE, RawNode, XATTR_NODE_OFFSET};
use crate::layout::{Address, Ino, Nid};
use crate::node::level::{Level, level};
use crate::node::owner::inode_of;
use crate::node::path::has_data;

/// A node to be read.
#[derive(Debug, Clone, Copy)]
struct Child {
    nid: Nid,
    address: Address,
    reference: Reference,
}

impl Checker<'_> {
    /// Notes that `parent` points to node `nid`, if it is not 0.
    pub(super) fn refer(&mut self, file: &mut FileState, parent: Nid, nid: Nid, offset: u32) {
        if nid == Nid::NONE {
            return;
        }
        let is_xattr = offset == XATTR_NODE_OFFSET;
        let exists =
            nid >= Nid::FIRST && nid < self.geometry.node_ids() && self.nat.get(nid).address() != Address::NULL;
        if !exists {
            file.damaged = true;
            let kind = if is_xattr { FaultKind::InodeXattrNid } else { FaultKind::NodeReference };
            let found = format_args!("node {nid} (offset {offset} of inode {}), which does not exist", file.ino);
            self.findings.add(kind, Place::Node(parent), found, "a node in use");
        } else if let Some(other) = self.references.get(&nid) {
            file.damaged = true;
            let found = format_args!("node {nid}, which inode {} has at offset {}", other.ino, other.offset);
            self.findings.add(FaultKind::NodeDuplicateReference, Place::Node(parent), found, "a node of its own");
        } else {
            file.children += 1;
            self.references.insert(nid, Reference { ino: file.ino, offset });
            self.to_read.push(nid);
        }
    }

    /// Reads the nodes below the inodes.
    pub(super) fn scan_trees(&mut self) -> Result<()> {
        let mut done = 0;
        // Inodes, double indirect, indirect and direct nodes: references never go deeper than three levels.
        while !self.to_read.is_empty() {
            let children = self.take_children();
            for_each_block(
                self.device,
                &children,
                |child| child.address,
                |child, block| {
                    done += 1;
                    self.step(Stage::Trees, done, self.references.len() as u64);
                    self.scan_child(child, block)
                },
            )?;
        }
        let files = std::mem::take(&mut self.files);
        let mut files: Vec<_> = files.into_values().collect();
        files.sort_unstable_by_key(|file| file.ino);
        files.iter().for_each(|file| self.finish_file(file));
        Ok(())
    }

    /// The nodes to be read next. Those that are inodes, and those that cannot be read, are left out.
    fn take_children(&mut self) -> Vec<Child> {
        let mut children = Vec::with_capacity(self.to_read.len());
        for nid in std::mem::take(&mut self.to_read) {
            let Some(&reference) = self.references.get(&nid) else { continue };
            if self.inodes.contains_key(&nid.as_inode()) {
                self.spoil(reference.ino);
                let found = format_args!("node {nid} (offset {}), which is an inode", reference.offset);
                self.findings.add(FaultKind::NodeReference, Place::Inode(reference.ino), found, "a node of its own");
            } else if self.unreadable.contains(&nid) {
                self.spoil(reference.ino);
            } else {
                children.push(Child { nid, address: self.nat.get(nid).address(), reference });
            }
        }
        children.sort_unstable_by_key(|child| (child.address, child.nid));
        children
    }

    /// Marks a file whose tree is not whole.
    fn spoil(&mut self, ino: Ino) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.damaged = true;
        }
    }

    fn scan_child(&mut self, child: &Child, block: &[u8]) -> Result<()> {
        let Child { nid, address, reference } = *child;
        // Blocks have the size of the structure.
        let Ok(node) = RawNode::ref_from_bytes(block) else { return Ok(()) };
        self.claim_node(NodeAt { nid, address })?;
        if !self.check_footer(child, node) {
            self.spoil(reference.ino);
            self.unreadable.insert(nid);
            return Ok(());
        }
        // Every reference was made by a file that is still being counted.
        let Some(mut file) = self.files.remove(&reference.ino) else { return Ok(()) };
        file.blocks += 1;
        if reference.offset == XATTR_NODE_OFFSET {
            self.check_xattr_node(reference.ino, block)?;
        } else {
            self.scan_slots(&mut file, nid, reference.offset, node)?;
        }
        self.files.insert(reference.ino, file);
        Ok(())
    }

    /// Compares a node's footer with who points to it; false if the block is not this node at all.
    fn check_footer(&mut self, child: &Child, node: &RawNode) -> bool {
        let Child { nid, reference, .. } = *child;
        let footer = &node.footer;
        let (own_nid, own_ino) = (footer.nid() == nid, footer.ino() == reference.ino);
        if !own_nid {
            let found = format_args!("node {} of inode {}", footer.nid, footer.ino);
            let expected = format_args!("node {nid} of inode {}", reference.ino);
            self.findings.add(FaultKind::NodeFooterNid, Place::Node(nid), found, expected);
        } else if !own_ino {
            let expected = format_args!("inode {}", reference.ino);
            self.findings.add(
                FaultKind::NodeFooterIno,
                Place::Node(nid),
                format_args!("inode {}", footer.ino),
                expected,
            );
        }
        let nat_ino = self.nat.get(nid).ino();
        if nat_ino != reference.ino {
            let found = format_args!("inode {nat_ino}");
            self.findings.add(FaultKind::NatIno, Place::Node(nid), found, format_args!("inode {}", reference.ino));
        }
        if (own_nid || own_ino) && footer.offset() != reference.offset {
            self.findings.add(FaultKind::NodeFooterOffset, Place::Node(nid), footer.offset(), reference.offset);
        }
        own_nid || own_ino
    }

    /// Checks what a direct or indirect node points to.
    fn scan_slots(&mut self, file: &mut FileState, nid: Nid, offset: u32, node: &RawNode) -> Result<()> {
        match level(offset, file.own_addresses, file.per_node) {
            Level::Direct { file_block } => {
                let version = self.nat.get(nid).version;
                for (slot, address) in (0..file.per_node).zip(&node.slots) {
                    self.check_address(
                        file,
                        nid,
                        version,
                        slot,
                        file_block + u64::from(slot),
                        Address::from(*address),
                    )?;
                }
            }
            Level::Indirect { first, step } => {
                for (slot, id) in (0..ADDRS_PER_NODE).zip(&node.slots) {
                    self.refer(file, nid, Nid::from(*id), first + slot * step);
                }
            }
        }
        Ok(())
    }

    fn check_xattr_node(&mut self, ino: Ino, block: &[u8]) -> Result<()> {
        // The list starts in the inode, so that is needed again.
        let inode_block = read_blocks(self.device, self.nat.get(ino.nid()).address(), 1)?;
        let Ok(inode) = RawInode::ref_from_bytes(&inode_block) else { return Ok(()) };
        let mut list = Vec::new();
        if inode.is_inline(InlineFlags::XATTR) {
            let range = inode.inline_xattr_range(self.geometry.flexible_inline_xattr());
            list.extend_from_slice(inode_block.get(range).unwrap_or_default());
        }
        list.extend_from_slice(block.get(..crate::layout::xattr::NODE_CAPACITY).unwrap_or_default());
        if let Err(found) = xattr::check_list(&list) {
            self.findings.add(FaultKind::XattrList, Place::Inode(ino), found, "a list that ends in its room");
        }
        Ok(())
    }

    /// Nodes in use that no inode leads to: they are reported, and what they point to counts as in use.
    pub(super) fn scan_unreachable(&mut self) -> Result<()> {
        let mut lost = Vec::new();
        for (nid, entry) in self.nat.in_use() {
            if !self.inodes.contains_key(&nid.as_inode())
                && !self.references.contains_key(&nid)
                && !self.unreadable.contains(&nid)
            {
                let reference = Reference { ino: entry.ino(), offset: 0 };
                lost.push(Child { nid, address: entry.address(), reference });
            }
        }
        lost.sort_unstable_by_key(|child| (child.address, child.nid));
        for_each_block(self.device, &lost, |child| child.address, |child, block| self.scan_lost(child, block))
    }

    fn scan_lost(&mut self, child: &Child, block: &[u8]) -> Result<()> {
        let Child { nid, address, reference: Reference { ino: entry, .. } } = *child;
        let Ok(node) = RawNode::ref_from_bytes(block) else { return Ok(()) };
        let is_own = node.footer.nid() == nid;
        let ino = if is_own { inode_of(nid, entry, node, self.geometry) } else { entry };
        // Entry or footer take it for an inode, which it is not.
        for (kind, said) in [(FaultKind::NatIno, entry), (FaultKind::NodeFooterIno, node.footer.ino())] {
            if is_own && said.nid() == nid {
                self.findings.add(kind, Place::Node(nid), format_args!("inode {said}"), format_args!("inode {ino}"));
            }
        }
        // The nodes of an inode that cannot be read have been reported with it.
        if !self.unreadable.contains(&ino.nid()) {
            let found = format_args!("in use for inode {ino}, at block {address}");
            self.findings.add(FaultKind::NodeUnreachable, Place::Node(nid), found, "a pointer to it, or the id free");
        }
        self.claim_node(NodeAt { nid, address })?;
        let offset = node.footer.offset();
        if is_own && offset != 0 && has_data(offset) {
            let mut file = FileState { ino, per_node: ADDRS_PER_NODE, ..FileState::default() };
            self.scan_slots(&mut file, nid, offset, node)?;
        }
        Ok(())
    }
}
