//! The way from a file offset to the node that holds its block address.
//!
//! An inode holds the first addresses itself; then two direct nodes, two indirect nodes (of direct nodes), one double
//! indirect node. Every node has an offset in this tree, in depth-first order; its footer carries it.

use crate::layout::inode::{RawInode, SLOTS, SLOTS_OFFSET};
use crate::layout::node::{ADDRS_PER_NODE, XATTR_NODE_OFFSET};
use crate::layout::{FileBlock, Nid};

pub const PER_NODE: u64 = ADDRS_PER_NODE as u64;
/// Blocks that the node tree below the inode addresses: the size limit, without the inode's own slots.
pub const BLOCKS_MAX: u64 = 2 * PER_NODE + 2 * PER_NODE * PER_NODE + PER_NODE * PER_NODE * PER_NODE;
// What a look-up answers lies at most behind all blocks of a file: `FileBlock::END` is none of these.
const _: () = assert!(BLOCKS_MAX + (SLOTS as u64) < u32::MAX as u64);
/// Byte offset of `i_nid` in an inode.
const NIDS_OFFSET: usize = core::mem::offset_of!(RawInode, i_nid);

/// Offset in the tree of the second indirect node.
pub const SECOND_INDIRECT: u32 = 4 + ADDRS_PER_NODE;
/// Offset in the tree of the double indirect node.
pub const DOUBLE_INDIRECT: u32 = 5 + 2 * ADDRS_PER_NODE;

/// One step down: where the pointer is in its node, and the offset in the tree of the node it points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) byte: usize,
    pub(super) node_offset: u32,
    /// File blocks below one pointer at this step.
    pub(super) span: u64,
}

/// The way to one block address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) steps: [Step; 3],
    pub(super) depth: usize,
    /// Index of the address in its node.
    pub(super) index: u32,
    /// Addresses in the node, from `index` to its end.
    pub(super) count: u32,
}

/// Where a file block's address is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The node.
    pub nid: Nid,
    /// Byte of the address in the node.
    pub byte: usize,
    /// Index of the address among the node's addresses: `ofs_in_node` of the summary.
    pub index: u32,
    /// Addresses in the node from this one on, including it.
    pub count: u32,
}

/// Result of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapped {
    /// The node exists.
    Slot(Slot),
    /// No node; the first file block that might have one is this.
    Hole(FileBlock),
}

/// Result of a look-up in a tree that may be damaged.
#[derive(Debug)]
pub enum Found {
    /// As in a sound tree.
    Mapped(Mapped),
    /// A node on the way cannot be had; the first file block that is not below it.
    Missing(FileBlock),
}

/// Nodes in the largest tree: the offset of each is below this.
const OFFSETS: u64 = 8 + BLOCKS_MAX / PER_NODE + BLOCKS_MAX / PER_NODE.pow(2);

/// Whether a node can have this offset in its inode's tree.
pub fn is_node_offset(offset: u32) -> bool {
    offset == XATTR_NODE_OFFSET || u64::from(offset) < OFFSETS
}

/// Whether a node at this offset in the tree holds block addresses (inode, direct node, xattr node).
pub fn is_direct(node_offset: u32) -> bool {
    if node_offset == XATTR_NODE_OFFSET {
        return true;
    }
    if node_offset == 3 || node_offset == SECOND_INDIRECT || node_offset == DOUBLE_INDIRECT {
        return false;
    }
    // Below the double indirect node, each indirect node is followed by its direct nodes.
    node_offset < DOUBLE_INDIRECT || !(node_offset - DOUBLE_INDIRECT - 1).is_multiple_of(ADDRS_PER_NODE + 1)
}

/// Whether a node at this offset in the tree can hold addresses of data: an inode or a direct node.
pub fn has_data(node_offset: u32) -> bool {
    node_offset != XATTR_NODE_OFFSET && is_direct(node_offset)
}

/// Byte of slot `index` in an inode whose extra attributes take `extra` bytes.
pub fn inode_slot(extra: u32, index: u32) -> usize {
    SLOTS_OFFSET + (extra + 4 * index) as usize
}

/// The way to file block `block` in an inode with `own` addresses of its own; `None` past the format's limit.
pub(super) fn path(own: u32, block: FileBlock) -> Option<Path> {
    let none = Step { byte: 0, node_offset: 0, span: 0 };
    let mut path = Path { steps: [none; 3], depth: 0, index: 0, count: 0 };
    let nid = |i: usize| NIDS_OFFSET + 4 * i;
    let slot = |i: u64| 4 * i as usize;
    let Some(mut rest) = u64::from(block).checked_sub(u64::from(own)) else {
        path.index = block.get();
        path.count = own - block.get();
        return Some(path);
    };
    let steps: &[Step] = if rest < 2 * PER_NODE {
        let which = (rest / PER_NODE) as u32;
        &[Step { byte: nid(which as usize), node_offset: 1 + which, span: PER_NODE }]
    } else if rest < 2 * PER_NODE + 2 * PER_NODE * PER_NODE {
        rest -= 2 * PER_NODE;
        let which = (rest / (PER_NODE * PER_NODE)) as u32;
        let top = if which == 0 { 3 } else { SECOND_INDIRECT };
        let child = rest / PER_NODE % PER_NODE;
        &[
            Step { byte: nid(2 + which as usize), node_offset: top, span: PER_NODE * PER_NODE },
            Step { byte: slot(child), node_offset: top + 1 + child as u32, span: PER_NODE },
        ]
    } else if rest < BLOCKS_MAX {
        rest -= 2 * PER_NODE + 2 * PER_NODE * PER_NODE;
        let child = rest / (PER_NODE * PER_NODE);
        let grandchild = rest / PER_NODE % PER_NODE;
        let middle = DOUBLE_INDIRECT + 1 + child as u32 * (ADDRS_PER_NODE + 1);
        &[
            Step { byte: nid(4), node_offset: DOUBLE_INDIRECT, span: PER_NODE * PER_NODE * PER_NODE },
            Step { byte: slot(child), node_offset: middle, span: PER_NODE * PER_NODE },
            Step { byte: slot(grandchild), node_offset: middle + 1 + grandchild as u32, span: PER_NODE },
        ]
    } else {
        return None;
    };
    path.steps[..steps.len()].copy_from_slice(steps);
    path.depth = steps.len();
    path.index = (rest % PER_NODE) as u32;
    path.count = ADDRS_PER_NODE - path.index;
    Some(path)
}

/// The offset in the tree of the node that holds the address of file block `block`: 0 is the inode. `None` past the format's limit.
pub fn node_offset(own: u32, block: FileBlock) -> Option<u32> {
    path(own, block).map(|path| path.depth.checked_sub(1).map_or(0, |last| path.steps[last].node_offset))
}

/// The first block behind the subtree of `span` blocks that is missing; `within` counts from the inode's own last address.
pub(super) fn hole_end(within: u64, span: u64) -> u64 {
    // Subtrees of one kind start at multiples of their span from the start of their group.
    let group = if within < 2 * PER_NODE {
        0
    } else if within < 2 * PER_NODE + 2 * PER_NODE * PER_NODE {
        2 * PER_NODE
    } else {
        2 * PER_NODE + 2 * PER_NODE * PER_NODE
    };
    group + ((within - group) / span + 1) * span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_offsets_follow_the_format() {
        let own = 873;
        let at = |block: u64| {
            path(own, FileBlock::clamped(block)).map(|p| (p.depth, p.steps[p.depth.max(1) - 1].node_offset, p.index))
        };
        assert_eq!(at(0), Some((0, 0, 0)));
        assert_eq!(at(872), Some((0, 0, 872)));
        assert_eq!(at(873), Some((1, 1, 0)));
        assert_eq!(at(873 + 1018), Some((1, 2, 0)));
        assert_eq!(at(873 + 2 * 1018), Some((2, 4, 0)));
        assert_eq!(at(873 + 2 * 1018 + 1018 * 1018), Some((2, 1023, 0)));
        assert_eq!(at(873 + 2 * 1018 + 2 * 1018 * 1018), Some((3, 2043, 0)));
        assert_eq!(at(873 + BLOCKS_MAX - 1).map(|(depth, _, index)| (depth, index)), Some((3, 1017)));
        assert_eq!(at(873 + BLOCKS_MAX), None);
    }

    #[test]
    fn indirect_nodes_are_told_from_direct_ones() {
        for offset in [0, 1, 2, 4, 1021, 1023, 2040, 2043, XATTR_NODE_OFFSET] {
            assert!(is_direct(offset), "{offset}");
            assert_eq!(has_data(offset), offset != XATTR_NODE_OFFSET, "{offset}");
        }
        for offset in [3, 1022, 2041, 2042, 2042 + 1019] {
            assert!(!is_direct(offset) && !has_data(offset), "{offset}");
        }
    }
}
