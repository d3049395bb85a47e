//! How many blocks, nodes and inodes there are: what a checkpoint says, and the limit for users.

use zerocopy::little_endian::{U32, U64};

use crate::error::{Error, Result};
use crate::layout::checkpoint::RawCheckpoint;

/// Counts of an open volume. Each operation that takes something says so here, before or after, in the same change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    /// Blocks for users: the most that `blocks` may become.
    user_blocks: u64,
    blocks: u64,
    nodes: u32,
    inodes: u32,
}

impl Counts {
    /// As a checkpoint has them.
    pub(crate) fn of(raw: &RawCheckpoint) -> Counts {
        Counts {
            user_blocks: raw.user_block_count.get(),
            blocks: raw.valid_block_count.get(),
            nodes: raw.valid_node_count.get(),
            inodes: raw.valid_inode_count.get(),
        }
    }

    /// Puts them into a checkpoint.
    pub(crate) fn put(&self, raw: &mut RawCheckpoint) {
        raw.valid_block_count = U64::new(self.blocks);
        raw.valid_node_count = U32::new(self.nodes);
        raw.valid_inode_count = U32::new(self.inodes);
    }

    /// Blocks that users may have in all.
    pub(crate) fn user_blocks(&self) -> u64 {
        self.user_blocks
    }

    /// Blocks in use, nodes and reserved ones included.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks that users can still have.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.user_blocks.saturating_sub(self.blocks)
    }

    /// Nodes, inodes included.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Inodes.
    pub(crate) fn inodes(&self) -> u32 {
        self.inodes
    }

    /// Fails with `NoSpace` unless `count` more blocks fit.
    pub(crate) fn expect_room(&self, count: u64) -> Result<()> {
        if count > self.free_blocks() { Err(basalt_vfs::Error::NoSpace.into()) } else { Ok(()) }
    }

    /// A data block is in use, or reserved; whether there is room was asked.
    pub(crate) fn add_block(&mut self) {
        self.blocks += 1;
    }

    /// A node is in use.
    pub(crate) fn add_node(&mut self) {
        self.nodes += 1;
        self.blocks += 1;
    }

    /// An inode is in use; its node is counted by itself.
    pub(crate) fn add_inode(&mut self) {
        self.inodes += 1;
    }

    /// Data blocks are not in use any more, nor reserved.
    pub(crate) fn remove_blocks(&mut self, count: u64) -> Result<()> {
        self.blocks = left(self.blocks.checked_sub(count), "blocks")?;
        Ok(())
    }

    /// A node is not in use any more.
    pub(crate) fn remove_node(&mut self) -> Result<()> {
        self.nodes = left(self.nodes.checked_sub(1), "nodes")?;
        self.remove_blocks(1)
    }

    /// An inode is not in use any more.
    pub(crate) fn remove_inode(&mut self) -> Result<()> {
        self.inodes = left(self.inodes.checked_sub(1), "inodes")?;
        Ok(())
    }
}

/// A checkpoint whose count began too low shows when more is taken away than there was.
fn left<T>(left: Option<T>, what: &str) -> Result<T> {
    left.ok_or_else(|| Error::damaged("checkpoint", "counts", format!("fewer {what} than there are")))
}
