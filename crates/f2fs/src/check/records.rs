//! What a check keeps of the inodes, nodes and names that it has seen.

use crate::layout::{Address, FileBlock, Ino};
use basalt_vfs::FileKind;

/// What is kept of every inode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InodeRecord {
    /// `None` for an impossible mode.
    pub(crate) kind: Option<FileKind>,
    /// `i_links`.
    pub(crate) links: u32,
    /// Names found.
    pub(crate) names: u32,
}

/// What is kept of every directory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DirectoryRecord {
    /// `i_pino`.
    pub(crate) inode_parent: Ino,
    /// `i_size`.
    pub(crate) size: u64,
    /// `i_current_depth`.
    pub(crate) depth: u32,
    /// `i_dir_level`.
    pub(crate) level: u8,
    pub(crate) encrypted: bool,
    pub(crate) casefold: bool,
    pub(crate) inline: bool,
    /// Inode number of `.` and `..`, once seen.
    pub(crate) dot: Option<Ino>,
    pub(crate) dot_dot: Option<Ino>,
    /// Last block with an entry in it.
    pub(crate) last_block: Option<u64>,
    /// Deepest level of the hash with an entry in it.
    pub(crate) deepest: Option<u32>,
}

/// Who points to a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference {
    pub(crate) ino: Ino,
    /// Offset in the inode's tree.
    pub(crate) offset: u32,
}

/// The extent kept in an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) file_block: FileBlock,
    pub(super) block: u32,
    pub(super) length: u32,
}

/// A file whose blocks are being counted.
#[derive(Debug, Clone, Default)]
pub(super) struct FileState {
    pub(super) ino: Ino,
    pub(super) directory: bool,
    /// Block addresses in the inode and in each direct node.
    pub(super) own_addresses: u32,
    pub(super) per_node: u32,
    pub(super) cluster_bits: Option<u8>,
    /// Whether a compressed file gave back what it saved.
    pub(super) released: bool,
    /// `i_blocks`.
    pub(super) expected_blocks: u64,
    /// Blocks found so far.
    pub(super) blocks: u64,
    pub(super) extent: Option<Extent>,
    /// Blocks of the extent that are where it says.
    pub(super) extent_matched: u32,
    /// Nodes that the inode points to.
    pub(super) children: u32,
    /// Whether part of the tree is missing or shared: then counting tells nothing new.
    pub(super) damaged: bool,
}

/// A block of directory entries, or an inode with entries in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectoryBlock {
    pub(super) address: Address,
    pub(super) directory: Ino,
    /// Block of the directory; `None` for an inline directory.
    pub(super) block: Option<u64>,
}

/// A name that was seen: what is needed to find the same name in the same directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeenName {
    /// Hash of directory and name.
    pub(super) hash: u64,
    /// Index of its block.
    pub(super) block: u32,
    pub(super) slot: u16,
}
