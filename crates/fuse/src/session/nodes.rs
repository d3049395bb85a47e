//! Node ids and inode numbers.
//!
//! The kernel calls the root 1; the file system may call it otherwise (F2FS's is 3). The two numbers are swapped, every
//! other one is itself: a map that is its own inverse.

use basalt_vfs::InodeNumber;

use crate::protocol::ROOT_NODE;

#[derive(Debug, Clone, Copy)]
pub(super) struct Nodes {
    root: InodeNumber,
}

impl Nodes {
    pub(super) fn new(root: InodeNumber) -> Self {
        Nodes { root }
    }

    /// The inode number of a node id.
    pub(super) fn inode(self, node: u64) -> InodeNumber {
        self.swap(node)
    }

    /// The node id of an inode number.
    pub(super) fn node(self, ino: InodeNumber) -> u64 {
        self.swap(ino)
    }

    fn swap(self, number: u64) -> u64 {
        match number {
            ROOT_NODE => self.root,
            _ if number == self.root => ROOT_NODE,
            _ => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_one_to_one() {
        for root in [1, 2, 3, u64::MAX] {
            let nodes = Nodes::new(root);
            assert_eq!((nodes.inode(1), nodes.node(root)), (root, 1));
            for ino in [1, 2, 3, 4, 99, u64::MAX] {
                assert_eq!(nodes.inode(nodes.node(ino)), ino);
            }
        }
    }
}
