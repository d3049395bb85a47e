//! What is below a node of a file's tree, by the node's offset in it.

use super::path::{BLOCKS_MAX, DOUBLE_INDIRECT, SECOND_INDIRECT};
use crate::layout::FileBlock;
use crate::layout::node::ADDRS_PER_NODE;

/// Node ids in an indirect node.
const IDS: u64 = ADDRS_PER_NODE as u64;
/// Offsets in the tree of the two indirect nodes.
const INDIRECT: [u32; 2] = [3, SECOND_INDIRECT];

/// Offsets in an inode's tree of the nodes that it points to itself.
pub(crate) const CHILD_OFFSETS: [u32; 5] = [1, 2, 3, SECOND_INDIRECT, DOUBLE_INDIRECT];

/// What is below a node, by its offset in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// Block addresses, from this block of the file on.
    Direct { file_block: u64 },
    /// Node ids; the offsets of the children are `first`, `first + step`…
    Indirect { first: u32, step: u32 },
}

/// What a node at `offset` in the tree of a file holds; `own` and `per_node` are the block addresses in the inode and in a
/// direct node. The offset must not be 0 (the inode) or that of an xattr node.
pub(crate) fn level(offset: u32, own: u32, per_node: u32) -> Level {
    let (own, per_node) = (u64::from(own), u64::from(per_node));
    let direct = |index: u64| Level::Direct { file_block: own + index * per_node };
    match offset {
        _ if INDIRECT.contains(&offset) => Level::Indirect { first: offset + 1, step: 1 },
        DOUBLE_INDIRECT => Level::Indirect { first: offset + 1, step: ADDRS_PER_NODE + 1 },
        0..=2 => direct(u64::from(offset.saturating_sub(1))),
        _ if offset < INDIRECT[1] => direct(2 + u64::from(offset - INDIRECT[0] - 1)),
        _ if offset < DOUBLE_INDIRECT => direct(2 + IDS + u64::from(offset - INDIRECT[1] - 1)),
        _ => {
            let below = u64::from(offset - DOUBLE_INDIRECT - 1);
            // An indirect node, then its direct nodes, over and over.
            match (below / (IDS + 1), below % (IDS + 1)) {
                (_, 0) => Level::Indirect { first: offset + 1, step: 1 },
                (indirect, within) => direct(2 + 2 * IDS + indirect * IDS + within - 1),
            }
        }
    }
}

/// The first file block of a direct node by its offset in the tree of an inode with `own` addresses; `None` for other nodes, and
/// past the end of a tree.
pub(crate) fn first_block(own: u32, offset: u32) -> Option<FileBlock> {
    if offset == 0 {
        return None;
    }
    match level(offset, own, ADDRS_PER_NODE) {
        Level::Direct { file_block } if file_block < u64::from(own) + BLOCKS_MAX => {
            Some(FileBlock::clamped(file_block))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::path;
    use super::*;
    use crate::layout::node::XATTR_NODE_OFFSET;

    #[test]
    fn levels_follow_depth_first_order() {
        let level = |offset| level(offset, 900, 1018);
        assert_eq!(level(1), Level::Direct { file_block: 900 });
        assert_eq!(level(2), Level::Direct { file_block: 1918 });
        assert_eq!(level(3), Level::Indirect { first: 4, step: 1 });
        assert_eq!(level(4), Level::Direct { file_block: 2936 });
        assert_eq!(level(1021), Level::Direct { file_block: 2936 + 1017 * 1018 });
        assert_eq!(level(1022), Level::Indirect { first: 1023, step: 1 });
        assert_eq!(level(1023), Level::Direct { file_block: 2936 + 1018 * 1018 });
        assert_eq!(level(2041), Level::Indirect { first: 2042, step: 1019 });
        assert_eq!(level(2042), Level::Indirect { first: 2043, step: 1 });
        assert_eq!(level(2043), Level::Direct { file_block: 2936 + 2 * 1018 * 1018 });
        assert_eq!(level(2042 + 1019), Level::Indirect { first: 2043 + 1019, step: 1 });
        assert_eq!(level(2043 + 1019), Level::Direct { file_block: 2936 + 3 * 1018 * 1018 });
    }
    #[test]
    fn direct_nodes_know_their_first_block() {
        for (own, block) in [0, 1018, 2 * 1018, 500 * 1018, 1018 * 1018, 1020 * 1018, 1021 * 1018, 2000 * 1018]
            .into_iter()
            .chain([2 * 1018 + 2 * 1018 * 1018, 1018 * 1018 * 1018 + 77 * 1018, BLOCKS_MAX - 1018])
            .flat_map(|block: u64| [(873, block), (923, block)])
        {
            let first = FileBlock::clamped(u64::from(own) + block);
            let way = path(own, first).unwrap();
            assert_eq!(first_block(own, way.steps[way.depth - 1].node_offset), Some(first), "{block}");
        }
        for offset in [0, 3, SECOND_INDIRECT, DOUBLE_INDIRECT, DOUBLE_INDIRECT + 1, XATTR_NODE_OFFSET] {
            assert_eq!(first_block(873, offset), None, "{offset}");
        }
    }
}
