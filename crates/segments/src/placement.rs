//! Which log a block is written to.
//!
//! A placement policy groups blocks that will die at about the same time, so that segments tend to be either full or
//! empty and cleaning moves little. One policy is one file of this module, named after its source; to add one, write
//! the file, and name it here. Policies that need more than a block's own traits (its hotness, say) get it as a new
//! field of [`BlockTraits`] or hold it themselves.

mod static_f2fs;

pub use static_f2fs::StaticPlacement;

use crate::SegmentKind;

/// What a placement may know of the block to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockTraits {
    /// A node block (inode, direct node, indirect node, or extended attributes); otherwise a data block.
    pub node: bool,
    /// Of nodes: an inode, a direct node or a block of extended attributes, and not an indirect node.
    pub direct_node: bool,
    /// The owning file is a directory.
    pub of_directory: bool,
    /// Of data: moved by cleaning, or of a file with a cold extension or marked cold.
    pub cold: bool,
    /// Of data: of a file marked hot.
    pub hot: bool,
}

/// Decides which log a block is written to.
pub trait Placement: Send + Sync {
    /// The name in options and reports.
    fn name(&self) -> &'static str;

    /// The log for this block: a data kind for data, a node kind for nodes.
    fn log(&self, block: &BlockTraits) -> SegmentKind;
}
