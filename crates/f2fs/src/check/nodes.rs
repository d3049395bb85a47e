//! The first pass over the nodes: every node that the NAT has, in the order they lie on the device. Inodes are checked whole;
//! the nodes below them come later, when it is known who points to them.

use basalt_vfs::FileKind;
use zerocopy::{FromBytes, transmute_ref};

use super::batch::for_each_block;
use super::blocks::Owner;
use super::checker::Checker;
use super::fault::Place;
use super::inode;
use super::kind::FaultKind;
use super::records::{DirectoryRecord, InodeRecord};
use super::records::{Extent, FileState};
use super::report::Stage;
use super::xattr;
use crate::blocks::read_blocks;
use crate::error::Result;
use crate::layout::inode::{Advise, InlineFlags, RawInode, RawInodeFlags};
use crate::layout::nat::RawNatEntry;
use crate::layout::node::{RawNode, XATTR_NODE_OFFSET};
use crate::layout::{Address, FileBlock, Ino, Nid};
use crate::node::level::CHILD_OFFSETS;
use crate::node::owner::inode_of;

/// A node of the NAT.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeAt {
    pub(super) nid: Nid,
    pub(super) address: Address,
}

impl Checker<'_> {
    /// Nodes in the order they lie on the device; those whose address cannot be are reported and left out.
    fn nodes_by_address(&mut self) -> Vec<NodeAt> {
        let mut nodes = Vec::new();
        for (nid, entry) in self.nat.in_use() {
            let address = entry.address();
            if self.geometry.in_main(address) {
                nodes.push(NodeAt { nid, address });
            } else {
                self.unreadable.insert(nid);
                self.findings.add(
                    FaultKind::NatAddress,
                    Place::Node(nid),
                    format_args!("block {address:#x}"),
                    format_args!(
                        "{:#x} to {:#x}",
                        self.geometry.main,
                        self.geometry.main + self.geometry.main_blocks() - 1
                    ),
                );
            }
        }
        nodes.sort_unstable_by_key(|node| (node.address, node.nid));
        nodes
    }

    /// Reads every node; inodes are checked.
    pub(super) fn scan_nodes(&mut self) -> Result<()> {
        let nodes = self.nodes_by_address();
        let (total, mut done) = (nodes.len() as u64, 0);
        let nodes = self.settle_same_addresses(nodes)?;
        for_each_block(
            self.device,
            &nodes,
            |node| node.address,
            |&node, block| {
                self.step(Stage::Nodes, done, total);
                done += 1;
                self.scan_node(node, block)
            },
        )
    }

    /// Of nodes with the same address, all but the one that the block's footer names are reported and left out; if it names none of
    /// them, all but the first.
    fn settle_same_addresses(&mut self, nodes: Vec<NodeAt>) -> Result<Vec<NodeAt>> {
        let mut left = Vec::with_capacity(nodes.len());
        for group in nodes.chunk_by(|one, other| one.address == other.address) {
            let keeper = match group {
                [one] => *one,
                _ => {
                    let block = read_blocks(self.device, group[0].address, 1)?;
                    let named = RawNode::ref_from_bytes(&block).map(|node| node.footer.nid()).unwrap_or_default();
                    group.iter().copied().find(|node| node.nid == named).unwrap_or(group[0])
                }
            };
            left.push(keeper);
            group.iter().filter(|node| node.nid != keeper.nid).for_each(|&node| self.same_address(keeper, node));
        }
        Ok(left)
    }

    fn same_address(&mut self, other: NodeAt, node: NodeAt) {
        self.findings.add(
            FaultKind::NatDuplicateAddress,
            Place::Node(node.nid),
            format_args!("block {}, as node {}", node.address, other.nid),
            "a block of its own",
        );
        self.unreadable.insert(node.nid);
    }

    fn scan_node(&mut self, node: NodeAt, block: &[u8]) -> Result<()> {
        let NodeAt { nid, .. } = node;
        // Blocks have the size of the structure.
        let Ok(raw) = RawInode::ref_from_bytes(block) else { return Ok(()) };
        let entry = self.nat.get(nid);
        let (own_nid, own_ino) = (raw.footer.nid() == nid, raw.footer.ino().nid() == nid);
        let nat_says_inode = entry.ino().nid() == nid;
        if nat_says_inode && !own_nid && !own_ino {
            // Somebody else's node, or garbage. If it should be an inode, the file is lost.
            let found = format_args!("node {} of inode {}", raw.footer.nid, raw.footer.ino);
            self.findings.add(FaultKind::NodeFooterNid, Place::Node(nid), found, format_args!("node {nid}"));
            self.unreadable.insert(nid);
            return self.claim_node(node);
        }
        let is_inode = || inode_of(nid, entry.ino(), transmute_ref!(raw), self.geometry).nid() == nid;
        if !(nat_says_inode && own_ino || own_nid && is_inode()) {
            // Not an inode: whoever points to it decides.
            return Ok(());
        }
        if !own_nid {
            self.findings.add(FaultKind::NodeFooterNid, Place::Node(nid), raw.footer.nid, nid);
        }
        if !own_ino {
            self.findings.add(FaultKind::NodeFooterIno, Place::Node(nid), raw.footer.ino, nid);
        }
        if !nat_says_inode {
            self.findings.add(FaultKind::NatIno, Place::Node(nid), format_args!("inode {}", entry.ino), nid);
        }
        self.scan_inode(node, entry, raw, block)
    }

    /// Records that a node's block is in use, and counts it.
    pub(super) fn claim_node(&mut self, node: NodeAt) -> Result<()> {
        self.counts.nodes += 1;
        let claimed = self.ownership.claim(
            self.device,
            self.geometry,
            &mut self.findings,
            node.address,
            Owner::Node(node.nid),
        )?;
        self.counts.blocks += u64::from(claimed);
        Ok(())
    }

    fn scan_inode(&mut self, node: NodeAt, entry: RawNatEntry, inode: &RawInode, block: &[u8]) -> Result<()> {
        let ino = node.nid.as_inode();
        self.claim_node(node)?;
        let shape = inode::check(self.geometry, &mut self.findings, ino, inode);
        if inode.footer.offset() != 0 {
            let found = inode.footer.offset();
            self.findings.add(FaultKind::NodeFooterOffset, Place::Node(node.nid), found, "0, as an inode");
        }
        let record = InodeRecord { kind: shape.kind, links: inode.i_links.get(), names: 0 };
        self.inodes.insert(ino, record);
        self.counts.count_inode(shape.kind);
        if shape.kind == Some(FileKind::Directory) {
            self.add_directory(ino, inode, node.address, shape.inline_directory);
        }
        self.check_inline_xattrs(ino, inode, block);
        let mut file = FileState::new(ino, &shape, inode);
        let addresses = inode.addresses(self.geometry.flexible_inline_xattr());
        for (slot, address) in (0..shape.addresses).zip(addresses) {
            self.check_address(&mut file, ino.nid(), entry.version, slot, slot.into(), Address::from(*address))?;
        }
        self.add_children(&mut file, ino, inode, shape.addresses > 0);
        if file.children == 0 {
            self.finish_file(&file);
        } else {
            self.files.insert(ino, file);
        }
        Ok(())
    }

    /// Notes the nodes that an inode points to.
    fn add_children(&mut self, file: &mut FileState, ino: Ino, inode: &RawInode, has_blocks: bool) {
        if has_blocks {
            for (nid, offset) in inode.i_nid.iter().zip(CHILD_OFFSETS) {
                self.refer(file, ino.nid(), Nid::from(*nid), offset);
            }
        }
        self.refer(file, ino.nid(), inode.xattr_nid(), XATTR_NODE_OFFSET);
    }

    fn add_directory(&mut self, ino: Ino, inode: &RawInode, address: Address, inline: bool) {
        let advise = Advise::from_bits_retain(inode.i_advise);
        let flags = RawInodeFlags::from_bits_retain(inode.i_flags.get());
        let record = DirectoryRecord {
            inode_parent: inode.parent(),
            size: inode.i_size.get(),
            depth: inode.i_current_depth.get(),
            level: inode.i_dir_level,
            encrypted: advise.contains(Advise::ENCRYPT),
            casefold: flags.contains(RawInodeFlags::CASEFOLD),
            inline,
            ..DirectoryRecord::default()
        };
        self.directories.insert(ino, record);
        if inline {
            self.add_directory_block(address, ino, None);
        }
    }

    fn check_inline_xattrs(&mut self, ino: Ino, inode: &RawInode, block: &[u8]) {
        // With a node for them, the list goes on there: it is checked with the node.
        if inode.xattr_nid() != Nid::NONE || !inode.is_inline(InlineFlags::XATTR) {
            return;
        }
        let range = inode.inline_xattr_range(self.geometry.flexible_inline_xattr());
        if let Some(bytes) = block.get(range)
            && let Err(found) = xattr::check_list(bytes)
        {
            self.findings.add(FaultKind::XattrList, Place::Inode(ino), found, "a list that ends in its room");
        }
    }
}

impl FileState {
    /// What is known of a file once its inode has been read.
    fn new(ino: Ino, shape: &inode::Shape, inode: &RawInode) -> FileState {
        let extent = Extent {
            file_block: FileBlock::new(inode.i_ext.fofs.get()),
            block: inode.i_ext.blk.get(),
            length: inode.i_ext.len.get(),
        };
        FileState {
            ino,
            directory: shape.kind == Some(FileKind::Directory),
            own_addresses: shape.addresses,
            per_node: shape.per_node,
            cluster_bits: shape.cluster_bits,
            released: inode.is_inline(InlineFlags::COMPRESS_RELEASED),
            expected_blocks: inode.i_blocks.get(),
            // The inode itself.
            blocks: 1,
            extent: (shape.addresses > 0 && extent.length > 0 && shape.cluster_bits.is_none()).then_some(extent),
            ..FileState::default()
        }
    }
}
