//! The blocks as those of one file of the F2FS engine: its page cache, which absorbs and sorts, and its nodes, which are written
//! again at checkpoints because what they point to has moved.

use std::collections::BTreeSet;

use basalt_segments::cleaning::PIECE;
use basalt_segments::{MainBlock, SegmentKind};

use super::{NOWHERE, Volume, logs};
use crate::error::Result;
use crate::options::FileModel;

/// Block addresses in a direct node, and nodes below an indirect one.
const PER_NODE: u32 = 1018;
/// Direct nodes right below the inode.
const OWN_DIRECT: u32 = 2;
/// Indirect nodes right below the inode; the others are below the double indirect one.
const OWN_INDIRECT: u32 = 2;
/// No node yet.
const NO_NODE: u32 = u32::MAX;

struct Node {
    place: MainBlock,
    kind: SegmentKind,
    dirty: bool,
}

/// Pages and nodes of the file. Nodes are numbered as the engine gives out node ids: in the order in which they were made.
pub(super) struct File {
    inode_slots: u32,
    pub(super) cache_blocks: usize,
    nodes: Vec<Node>,
    inode: u32,
    /// Inodes of directories, which own the blocks that were there from the start.
    directories: Vec<u32>,
    /// The nodes that hold addresses, by their place in the file: the inode, then the direct nodes.
    holders: Vec<u32>,
    indirect: Vec<u32>,
    double_indirect: u32,
    /// Dirty nodes, and those among them that were written since the list was tidied.
    dirty: Vec<u32>,
    dirty_count: u64,
    /// The node to go on with when not all are written.
    node_cursor: u32,
    pages: BTreeSet<u32>,
    /// Behind the last page that was dirty since none was.
    pages_end: u32,
    /// The page to go on with when not all are written.
    page_cursor: u32,
}

impl File {
    pub(super) fn new(model: &FileModel) -> File {
        File {
            inode_slots: model.inode_slots,
            cache_blocks: model.cache_blocks,
            nodes: Vec::new(),
            inode: NO_NODE,
            directories: Vec::new(),
            holders: Vec::new(),
            indirect: Vec::new(),
            double_indirect: NO_NODE,
            dirty: Vec::new(),
            dirty_count: 0,
            node_cursor: 0,
            pages: BTreeSet::new(),
            pages_end: 0,
            page_cursor: 0,
        }
    }

    /// Adds a node that is written already; its number.
    pub(super) fn add_written(&mut self, place: MainBlock, kind: SegmentKind) -> u32 {
        self.nodes.push(Node { place, kind, dirty: false });
        let node = self.nodes.len() as u32 - 1;
        if kind == SegmentKind::HotNode {
            self.directories.push(node);
        }
        node
    }

    /// The node added last is the file's inode.
    pub(super) fn name_inode(&mut self) {
        self.inode = (self.nodes.len() as u32).saturating_sub(1);
        self.holders = vec![self.inode];
    }

    pub(super) fn dirty_nodes(&self) -> u64 {
        self.dirty_count
    }

    pub(super) fn dirty_pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Nodes that point to dirty pages, at most: as the engine counts them.
    pub(super) fn nodes_of_pages(&self) -> u64 {
        let behind_inode = self.pages_end.saturating_sub(1);
        self.pages.len().min(1 + behind_inode.div_ceil(PER_NODE) as usize) as u64
    }

    /// Bytes of memory used on the heap, about.
    pub(super) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + (self.holders.capacity() + self.indirect.capacity() + self.dirty.capacity()) * size_of::<u32>()
            + self.pages.len() * 2 * size_of::<u32>()
    }

    pub(super) fn mark_dirty(&mut self, node: u32) {
        if let Some(state) = self.nodes.get_mut(node as usize)
            && !state.dirty
        {
            state.dirty = true;
            self.dirty_count += 1;
            self.dirty.push(node);
        }
    }

    /// A directory's block moved. They lie side by side, and cleaning moves them in one step: whose block it was does not matter.
    pub(super) fn mark_directories_dirty(&mut self) {
        for at in 0..self.directories.len() {
            self.mark_dirty(self.directories[at]);
        }
    }

    /// The node that holds a block's address; it exists once a page was put there.
    pub(super) fn node_of(&self, block: u32) -> u32 {
        self.holders.get(self.holder_of(block)).copied().unwrap_or(NO_NODE)
    }

    fn holder_of(&self, block: u32) -> usize {
        block.checked_sub(self.inode_slots).map_or(0, |behind| (behind / PER_NODE) as usize + 1)
    }

    /// Makes the nodes that are missing on the way to a block, from the inode down, as the engine does.
    fn make_nodes(&mut self, block: u32) {
        let holder = self.holder_of(block);
        if self.holders.get(holder).is_some_and(|&node| node != NO_NODE) {
            return;
        }
        let direct = holder as u32 - 1;
        let parent = match direct.checked_sub(OWN_DIRECT) {
            None => self.inode,
            Some(below) => self.make_indirect(below / PER_NODE),
        };
        let node = self.make_node(parent, SegmentKind::WarmNode);
        set(&mut self.holders, holder, node);
    }

    fn make_indirect(&mut self, which: u32) -> u32 {
        if let Some(&node) = self.indirect.get(which as usize).filter(|&&node| node != NO_NODE) {
            return node;
        }
        let mut parent = self.inode;
        if which >= OWN_INDIRECT {
            if self.double_indirect == NO_NODE {
                self.double_indirect = self.make_node(self.inode, SegmentKind::ColdNode);
            }
            parent = self.double_indirect;
        }
        let node = self.make_node(parent, SegmentKind::ColdNode);
        set(&mut self.indirect, which as usize, node);
        node
    }

    fn make_node(&mut self, parent: u32, kind: SegmentKind) -> u32 {
        let node = self.add_written(NOWHERE, kind);
        self.mark_dirty(node);
        self.mark_dirty(parent);
        self.mark_dirty(self.inode);
        node
    }

    /// The dirty nodes to write, sorted; at most `most`, going on where the last call ended. They stay dirty until written.
    fn nodes_to_write(&mut self, most: usize) -> Vec<u32> {
        self.dirty.sort_unstable();
        let mut nodes = self.dirty.clone();
        if most < nodes.len() {
            let start = nodes.partition_point(|&node| node < self.node_cursor);
            nodes.rotate_left(start);
            nodes.truncate(most);
            self.node_cursor = nodes.last().map_or(0, |node| node + 1);
        }
        nodes
    }

    fn note_dirty(&mut self, page: u32) {
        let others_end = if self.pages.is_empty() { 0 } else { self.pages_end };
        self.pages_end = others_end.max(page + 1);
        self.pages.insert(page);
    }

    /// The next dirty pages from the cursor on, wrapping; at most `most`. They stay dirty until written.
    pub(super) fn pages_to_write(&mut self, most: usize) -> Vec<u32> {
        let from = self.page_cursor;
        let mut pages: Vec<u32> = self.pages.range(from..).take(most).copied().collect();
        self.page_cursor = 0;
        let left = most - pages.len();
        if left > 0 {
            pages.extend(self.pages.range(..from).take(left));
        }
        if pages.len() == most {
            self.page_cursor = pages.last().map_or(0, |page| page + 1);
        }
        pages
    }
}

/// Sets an element, growing the list as needed.
fn set(list: &mut Vec<u32>, at: usize, node: u32) {
    if list.len() <= at {
        list.resize(at + 1, NO_NODE);
    }
    list[at] = node;
}

impl Volume {
    /// A page of the file changed: the block will be written by the next writeback.
    pub(super) fn put_page(&mut self, block: u32) {
        let is_new = self.places[block as usize] == NOWHERE;
        let Some(file) = &mut self.file else { return };
        if file.pages.contains(&block) {
            self.statistics.absorbed += 1;
        } else {
            file.make_nodes(block);
            if is_new {
                // Its address becomes that of a reserved block.
                file.mark_dirty(file.node_of(block));
            }
            file.note_dirty(block);
        }
        // Its times.
        file.mark_dirty(file.inode);
        self.changed = true;
    }

    /// Writes all dirty pages, in file order.
    pub(super) fn write_back_all(&mut self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let pages: Vec<u32> = file.pages.iter().copied().collect();
        self.write_each(&pages)
    }

    pub(super) fn write_each(&mut self, pages: &[u32]) -> Result<()> {
        for piece in pages.chunks(PIECE) {
            // As in the engine: what is written counts as dirty until its piece is done.
            for run in piece.chunk_by(|page, next| page + 1 == *next) {
                run.iter().try_for_each(|&page| self.write_out(page, run.len() as u32))?;
            }
            if let Some(file) = &mut self.file {
                piece.iter().for_each(|page| _ = file.pages.remove(page));
            }
        }
        Ok(())
    }

    /// Writes up to `most` dirty nodes.
    pub(super) fn write_nodes(&mut self, most: usize) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let nodes = file.nodes_to_write(most);
        for &node in &nodes {
            self.write_node(node)?;
        }
        if let Some(file) = &mut self.file {
            file.dirty.retain(|&node| file.nodes[node as usize].dirty);
        }
        Ok(())
    }

    fn write_node(&mut self, node: u32) -> Result<()> {
        let Some(kind) = self.file.as_ref().map(|file| file.nodes[node as usize].kind) else { return Ok(()) };
        let block = logs::node(kind);
        let log = self.log_with_room(self.choices.for_block(&block));
        let place = self.allocate(log, node)?;
        self.choices.note_written(&block, place);
        self.roll_when_full(log);
        self.written += 1;
        self.statistics.nodes += 1;
        let Some(file) = &mut self.file else { return Ok(()) };
        let state = &mut file.nodes[node as usize];
        state.dirty = false;
        file.dirty_count -= 1;
        let old = std::mem::replace(&mut state.place, place);
        if old != NOWHERE {
            self.invalidate(old);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the engine counts: one for the inode, and one for each node that the last page may be in, but no more than there are pages.
    #[test]
    fn dirty_pages_have_as_many_nodes_as_may_hold_them() {
        let mut file = File::new(&FileModel { cache_blocks: 64, inode_slots: 923, logs: Default::default() });
        assert_eq!(file.nodes_of_pages(), 0);
        for (page, nodes) in [(0, 1), (1, 2), (PER_NODE, 2), (PER_NODE + 1, 3), (5 * PER_NODE, 5), (7, 6)] {
            file.note_dirty(page);
            assert_eq!(file.nodes_of_pages(), nodes, "page {page}");
        }
    }
}
