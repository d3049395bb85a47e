//! Freeing blocks: truncation (nodes and all) and holes (data only).

use crate::error::{Error, Result};
use crate::layout::node::ADDRS_PER_NODE;
use crate::layout::{Address, BLOCK_SIZE, FileBlock, Ino, Nid};
use crate::node::path::{DOUBLE_INDIRECT, Mapped, SECOND_INDIRECT, inode_slot};
use crate::volume::Volume;

/// Byte offset of `i_nid` in an inode.
const NIDS_OFFSET: usize = core::mem::offset_of!(crate::layout::inode::RawInode, i_nid);
/// Depth of the tree below each of an inode's five node ids, and the offset of its top node.
const TREES: [(u32, u32); 5] = [(1, 1), (1, 2), (2, 3), (2, SECOND_INDIRECT), (3, DOUBLE_INDIRECT)];

/// A node with what is below it: which, its offset in the inode's tree, its depth, and the first file block below it.
#[derive(Clone, Copy)]
struct Subtree {
    nid: Nid,
    offset: u32,
    depth: u32,
    base: FileBlock,
}

/// What is done with each node that a walk of an inode's trees meets.
trait Visitor {
    /// `count` slots of a node, from byte `byte` on, lie behind the place where the walk begins.
    fn slots(volume: &mut Volume, ino: Ino, nid: Nid, byte: usize, count: u32) -> Result<()>;

    /// All of a node below the inode lies behind that place, and was visited. Whether the node is gone: then nothing may point to it.
    fn node(volume: &mut Volume, ino: Ino, nid: Nid) -> Result<bool>;
}

/// Frees blocks and nodes.
struct Free;

impl Visitor for Free {
    fn slots(volume: &mut Volume, ino: Ino, nid: Nid, byte: usize, count: u32) -> Result<()> {
        volume.free_slots(ino, nid, byte, count)
    }

    fn node(volume: &mut Volume, ino: Ino, nid: Nid) -> Result<bool> {
        volume.free_node(nid)?;
        volume.add_blocks(ino, -1)?;
        Ok(true)
    }
}

/// Fails where freeing would fail.
struct Look;

impl Visitor for Look {
    fn slots(volume: &mut Volume, _: Ino, nid: Nid, byte: usize, count: u32) -> Result<()> {
        volume.expect_live(nid, byte, count)
    }

    fn node(_: &mut Volume, _: Ino, _: Nid) -> Result<bool> {
        Ok(false)
    }
}

impl Volume {
    /// Frees everything past `size` bytes and zeroes the rest of the last block.
    pub(crate) fn truncate(&mut self, ino: Ino, size: u64) -> Result<()> {
        let keep = FileBlock::behind(size);
        self.drop_pages(ino, keep, FileBlock::END);
        self.zero_tail(ino, size)?;
        self.free_blocks_from(ino, keep)
    }

    /// Zeroes the rest of the block that holds byte `from`, if there is anything else. The page goes with the next checkpoint, because
    /// other systems may show what lies behind the end when they extend the file.
    pub(crate) fn zero_tail(&mut self, ino: Ino, from: u64) -> Result<()> {
        let within = (from & (BLOCK_SIZE as u64 - 1)) as usize;
        let index = FileBlock::of_byte(from);
        if within == 0 || !self.has_content(ino, index)? {
            return Ok(());
        }
        if self.pages.has_page(ino, index) {
            self.page_mut(ino, index)?.block.0[within..].fill(0);
        } else if let Some(mut block) = self.read_file_block(ino, index)?
            && block.0[within..].iter().any(|&byte| byte != 0)
        {
            block.0[within..].fill(0);
            self.put_page(ino, index, &block.0);
        }
        self.order_pages(ino, index);
        Ok(())
    }

    /// Frees all data blocks from file block `keep` on, and every node that holds none before it.
    pub(crate) fn free_blocks_from(&mut self, ino: Ino, keep: FileBlock) -> Result<()> {
        self.walk_from::<Free>(ino, keep)
    }

    /// Reads every node below an inode, and fails where one of them, or a block that it points to, could not be freed. Frees nothing.
    pub(crate) fn expect_freeable(&mut self, ino: Ino) -> Result<()> {
        self.walk_from::<Look>(ino, FileBlock::FIRST)
    }

    /// Visits all slots from file block `keep` on, and every node that holds none before it.
    fn walk_from<V: Visitor>(&mut self, ino: Ino, keep: FileBlock) -> Result<()> {
        let flexible = self.geometry.flexible_inline_xattr();
        let raw = self.inode(ino)?;
        let (own, extra) = (raw.address_slots(flexible), raw.extra_size());
        if keep.get() < own {
            V::slots(self, ino, ino.nid(), inode_slot(extra, keep.get()), own - keep.get())?;
        }
        let mut base = FileBlock::new(own);
        for (which, (depth, _)) in TREES.into_iter().enumerate() {
            let span = ADDRS_PER_NODE.pow(depth);
            if keep < base + span {
                self.walk_tree::<V>(ino, which, base, keep)?;
            }
            base = base + span;
        }
        Ok(())
    }

    /// Visits one of the five trees below an inode, if it is there, from file block `keep` on. Its first block is `base`.
    fn walk_tree<V: Visitor>(&mut self, ino: Ino, which: usize, base: FileBlock, keep: FileBlock) -> Result<()> {
        let (depth, offset) = TREES[which];
        let byte = NIDS_OFFSET + 4 * which;
        let nid = self.node(ino.nid())?.child(byte);
        if nid != Nid::NONE && self.walk_subtree::<V>(ino, Subtree { nid, offset, depth, base }, keep)? {
            self.node_mut(ino.nid())?.set_pointer(byte, 0);
        }
        Ok(())
    }

    /// Fails unless all blocks that these slots of a node point to are live.
    fn expect_live(&mut self, nid: Nid, first_byte: usize, count: u32) -> Result<()> {
        for index in 0..count {
            let address = self.node(nid)?.address(first_byte + 4 * index as usize);
            let is_block = address != Address::NULL && address != Address::NEW;
            let is_live =
                |address| self.geometry.in_main(address) && self.table.is_live(self.geometry.main_block(address));
            if is_block && !is_live(address) {
                return Err(Error::damaged(
                    "node",
                    format!("node {nid}"),
                    format!("points to block {address}, which is not live"),
                ));
            }
        }
        Ok(())
    }

    /// Frees one of the five trees below an inode, if it is there.
    pub(crate) fn free_tree(&mut self, ino: Ino, which: usize) -> Result<()> {
        self.walk_tree::<Free>(ino, which, FileBlock::FIRST, FileBlock::FIRST)
    }

    /// Visits what lies at or behind `keep` below a node, then the node; whether that is gone. At most three levels deep.
    fn walk_subtree<V: Visitor>(&mut self, ino: Ino, subtree: Subtree, keep: FileBlock) -> Result<bool> {
        let Subtree { nid, offset, depth, base } = subtree;
        self.check_child(ino, nid, offset)?;
        let first = keep.saturating_sub(base);
        if depth == 1 {
            V::slots(self, ino, nid, 4 * first as usize, ADDRS_PER_NODE - first)?;
        } else {
            let span = ADDRS_PER_NODE.pow(depth - 1);
            // Each child of the double indirect node is followed by its own children.
            let stride = if depth == 3 { ADDRS_PER_NODE + 1 } else { 1 };
            for index in first / span..ADDRS_PER_NODE {
                let child = self.node(nid)?.child(4 * index as usize);
                let offset = offset + 1 + index * stride;
                let below = Subtree { nid: child, offset, depth: depth - 1, base: base + index * span };
                if child != Nid::NONE && self.walk_subtree::<V>(ino, below, keep)? {
                    self.node_mut(nid)?.set_pointer(4 * index as usize, 0);
                }
            }
        }
        if first > 0 { Ok(false) } else { V::node(self, ino, nid) }
    }

    /// Frees `count` data blocks whose addresses start at byte `byte` of a node.
    pub(super) fn free_slots(&mut self, ino: Ino, nid: Nid, byte: usize, count: u32) -> Result<()> {
        let mut freed = 0;
        for slot in 0..count as usize {
            let at = byte + 4 * slot;
            let address = self.node(nid)?.address(at);
            if address == Address::NULL {
                continue;
            }
            self.node_mut(nid)?.set_address(at, Address::NULL);
            if address == Address::COMPRESS {
                continue;
            }
            if address != Address::NEW {
                self.invalidate(address)?;
            }
            freed += 1;
        }
        if freed > 0 {
            self.forget_extent(ino)?;
            self.counts.remove_blocks(freed as u64)?;
            self.add_blocks(ino, -freed)?;
        }
        Ok(())
    }

    /// Makes file blocks `from` to `to` (exclusive) a hole; nodes stay.
    pub(crate) fn free_range(&mut self, ino: Ino, from: FileBlock, to: FileBlock) -> Result<()> {
        self.drop_pages(ino, from, to);
        self.forget_in_lists(ino, from, to);
        let mut index = from;
        while index < to {
            index = match self.map(ino, index, false)? {
                Mapped::Hole(next) => next,
                Mapped::Slot(slot) => {
                    let count = slot.count.min(to - index);
                    self.free_slots(ino, slot.nid, slot.byte, count)?;
                    index + count
                }
            };
        }
        Ok(())
    }
}
