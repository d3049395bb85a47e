//! The nodes in memory: which must be written, and which may be evicted.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use zerocopy::FromBytes;

use super::untold::Untold;
use crate::geometry::Geometry;
use crate::layout::delta::Written;
use crate::layout::inode::RawInode;
use crate::layout::node::{RawNode, RawNodeFooter};
use crate::layout::{Address, BLOCK_SIZE, Ino, Nid, RawBlock};
use crate::mutant::{self, Mutant};

/// A node in memory.
pub struct Node {
    block: Box<RawBlock>,
    dirty: bool,
    /// More than times changed.
    essential: bool,
    /// A delta tells all that changed, and nobody has had it to change since.
    told: bool,
    used: bool,
    /// What of it nothing tells, of a dirty node; `None` where that is not known: all of it.
    untold: Option<Box<Untold>>,
}

// `expect` below is about sizes only: those of RawNode and RawInode are asserted to be a block's in `layout`, and neither needs
// an alignment. No content can make them fail.
impl Node {
    /// A clean node of these bytes.
    pub(super) fn of(block: Box<RawBlock>) -> Node {
        Node { block, dirty: false, essential: false, told: false, used: true, untold: None }
    }

    /// The node as pointers and footer.
    pub fn raw(&self) -> &RawNode {
        RawNode::ref_from_bytes(&self.block.0).expect("a block is the size of a node")
    }

    /// As [`raw`](Self::raw), to change.
    pub fn raw_mut(&mut self) -> &mut RawNode {
        RawNode::mut_from_bytes(&mut self.block.0).expect("a block is the size of a node")
    }

    /// The node as an inode; only sensible where its offset is 0.
    pub fn inode(&self) -> &RawInode {
        RawInode::ref_from_bytes(&self.block.0).expect("a block is the size of an inode")
    }

    /// As [`inode`](Self::inode), to change.
    pub fn inode_mut(&mut self) -> &mut RawInode {
        RawInode::mut_from_bytes(&mut self.block.0).expect("a block is the size of an inode")
    }

    /// The footer.
    pub fn footer(&self) -> &RawNodeFooter {
        &self.raw().footer
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8; BLOCK_SIZE] {
        &self.block.0
    }

    /// All bytes, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8; BLOCK_SIZE] {
        &mut self.block.0
    }

    /// The four-byte little-endian value at byte `at`: a block address or node id.
    pub fn pointer(&self, at: usize) -> u32 {
        let b = &self.block.0;
        u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
    }

    /// The address of a block at byte `at`.
    pub fn address(&self, at: usize) -> Address {
        Address::new(self.pointer(at))
    }

    /// Sets the address at byte `at`.
    pub fn set_address(&mut self, at: usize, address: Address) {
        self.set_pointer(at, address.get());
    }

    /// The node that the pointer at byte `at` leads to.
    pub fn child(&self, at: usize) -> Nid {
        Nid::new(self.pointer(at))
    }

    /// Sets the four-byte value at byte `at`.
    pub fn set_pointer(&mut self, at: usize, value: u32) {
        let is_forgotten = value == 0 && mutant::active(Mutant::ChangeNotTold);
        if let Some(untold) = self.untold.as_deref_mut().filter(|_| !is_forgotten) {
            untold.note(at);
        }
        self.lead(at, Address::new(value));
    }

    /// Sets the address at byte `at` to where its block is now. Recovery knows of the move: no delta tells it.
    pub fn lead(&mut self, at: usize, address: Address) {
        self.block.0[at..at + 4].copy_from_slice(&address.get().to_le_bytes());
    }

    /// The bytes of addresses that nothing tells, as they were since the node was last written or told; `None` where all of it has to be
    /// written.
    pub fn untold(&self) -> Option<impl Iterator<Item = usize> + '_> {
        self.untold.as_deref().map(Untold::bytes)
    }

    /// Of an inode that is dirty: size and times as they were last written or told; `None` where all of it has to be written. `flexible` is
    /// the volume's FLEXIBLE_INLINE_XATTR.
    pub fn told_of_inode(&self, flexible: bool) -> Option<Written> {
        let untold = self.untold.as_deref()?;
        let is_tellable = untold.is_tellable(self.inode(), flexible);
        untold.written().filter(|_| is_tellable)
    }
}

/// The nodes in memory.
#[derive(Default)]
pub struct NodeCache {
    nodes: FxHashMap<Nid, Node>,
    /// Clean nodes are evicted in this order, unless used since (second chance).
    order: VecDeque<Nid>,
    /// By inode, as fsync wants them.
    dirty: FxHashMap<Ino, BTreeSet<Nid>>,
    dirty_count: usize,
    /// Where writing goes on when not all are written.
    written_to: Nid,
    /// The volume's FLEXIBLE_INLINE_XATTR, where it is noted what of a node nothing tells.
    noting: Option<bool>,
}

/// Numbers of nodes that are gone which the cache's lists may hold beyond as many as there are nodes.
const STALE_MAX: usize = 1024;

/// What leads a node's pointers on: for rescue, where cleaning has moved what an old node points to.
pub trait LeadPointers: Send {
    /// Leads the pointers to data of a node, read from block `address`, to where that is now.
    fn lead_pointers(&self, node: &mut Node, address: Address, geometry: &Geometry);
}

impl NodeCache {
    /// Nodes that must still be written.
    pub fn dirty_count(&self) -> usize {
        self.dirty_count
    }

    /// Whether a node is in memory.
    pub fn contains(&self, nid: Nid) -> bool {
        self.nodes.contains_key(&nid)
    }

    /// A node in memory.
    pub(super) fn get(&self, nid: Nid) -> Option<&Node> {
        self.nodes.get(&nid)
    }

    /// As [`get`](Self::get), to change; it is not marked as to be written.
    pub(super) fn get_mut(&mut self, nid: Nid) -> Option<&mut Node> {
        self.nodes.get_mut(&nid)
    }

    /// As [`get_mut`](Self::get_mut), for whoever uses it: it is evicted later.
    pub(super) fn touch(&mut self, nid: Nid) -> Option<&mut Node> {
        let node = self.nodes.get_mut(&nid)?;
        node.used = true;
        Some(node)
    }

    /// Whether a node is in memory and must be written.
    pub(super) fn must_be_written(&self, nid: Nid) -> bool {
        self.nodes.get(&nid).is_some_and(|node| node.dirty)
    }

    /// Up to `most` nodes that must be written, going on where the last call ended. Neighbouring ids were made together and will be
    /// read together.
    pub(super) fn next_to_write(&mut self, most: usize) -> Vec<Nid> {
        let mut dirty: Vec<Nid> = self.dirty.values().flatten().copied().collect();
        dirty.sort_unstable();
        if most < dirty.len() {
            let start = dirty.partition_point(|nid| *nid < self.written_to);
            dirty.rotate_left(start);
            dirty.truncate(most);
            self.written_to = dirty.last().map_or(Nid::NONE, |nid| nid.saturating_next());
        }
        dirty
    }

    /// Takes a clean node in.
    pub(super) fn insert(&mut self, nid: Nid, node: Node) {
        if self.nodes.insert(nid, node).is_none() {
            self.order.push_back(nid);
            if self.order.len() > 2 * self.nodes.len() + STALE_MAX {
                let mut seen = FxHashSet::default();
                self.order.retain(|nid| self.nodes.contains_key(nid) && seen.insert(*nid));
            }
        }
    }

    /// Whether nodes of an inode changed that neither are written nor told by a delta; with `essential`, in more than its times.
    pub fn is_dirty(&self, ino: Ino, essential: bool) -> bool {
        let is_wanted =
            |nid: &Nid| self.nodes.get(nid).is_some_and(|node| !node.told && (node.essential || !essential));
        self.dirty.get(&ino).is_some_and(|nodes| nodes.iter().any(is_wanted))
    }

    /// The nodes of an inode that must be written.
    pub fn dirty_nodes(&self, ino: Ino) -> Vec<Nid> {
        self.dirty.get(&ino).map(|nodes| nodes.iter().copied().collect()).unwrap_or_default()
    }

    /// The footer of a node in memory.
    pub fn footer(&self, nid: Nid) -> Option<&RawNodeFooter> {
        self.nodes.get(&nid).map(Node::footer)
    }

    /// The bytes of a node in memory.
    pub fn bytes(&self, nid: Nid) -> Option<&[u8; BLOCK_SIZE]> {
        self.nodes.get(&nid).map(Node::bytes)
    }

    /// From now on it is noted what of a node nothing tells. `flexible` is the volume's FLEXIBLE_INLINE_XATTR.
    pub fn note_untold(&mut self, flexible: bool) {
        self.noting = Some(flexible);
    }

    /// All of a node has to be written, whatever is noted of it.
    pub(super) fn forget_untold(&mut self, nid: Nid) {
        if let Some(node) = self.nodes.get_mut(&nid) {
            node.untold = None;
        }
    }

    /// A delta tells all that changed in a node of a file; it still must be written.
    pub fn note_told(&mut self, nid: Nid) {
        let Some(node) = self.nodes.get_mut(&nid) else { return };
        let written = (node.footer().is_inode() == Some(true)).then(|| Written::of(node.inode()));
        if let Some(untold) = &mut node.untold {
            untold.note_told(written);
            (node.essential, node.told) = (false, true);
        }
    }

    /// Whether nothing changed in a dirty node that no delta tells.
    pub fn is_told(&self, nid: Nid) -> bool {
        self.nodes.get(&nid).is_some_and(|node| node.told)
    }

    /// Marks a node that is in memory as one to be written.
    pub(super) fn mark_dirty(&mut self, nid: Nid, essential: bool) -> Option<&mut Node> {
        let node = self.nodes.get_mut(&nid)?;
        (node.essential, node.used, node.told) = (node.essential | essential, true, false);
        if !node.dirty {
            node.dirty = true;
            node.untold = self.noting.map(|flexible| Box::new(untold(node, flexible)));
            self.dirty.entry(node.footer().ino()).or_default().insert(nid);
            self.dirty_count += 1;
        }
        Some(node)
    }

    pub(super) fn mark_clean(&mut self, nid: Nid) {
        let Some(node) = self.nodes.get_mut(&nid).filter(|node| node.dirty) else { return };
        (node.dirty, node.essential, node.told, node.untold) = (false, false, false, None);
        let ino = node.footer().ino();
        if let Some(nodes) = self.dirty.get_mut(&ino) {
            nodes.remove(&nid);
            if nodes.is_empty() {
                self.dirty.remove(&ino);
            }
        }
        self.dirty_count -= 1;
    }

    pub(super) fn remove(&mut self, nid: Nid) {
        self.mark_clean(nid);
        self.nodes.remove(&nid);
    }

    /// Evicts clean nodes until at most `limit` nodes are left or every node had its chance.
    pub(super) fn shrink(&mut self, limit: usize) {
        let mut chances = 2 * self.order.len();
        while self.nodes.len() > limit && chances > 0 {
            chances -= 1;
            let Some(nid) = self.order.pop_front() else { return };
            match self.nodes.get_mut(&nid) {
                None => {}
                Some(node) if node.dirty || node.used => {
                    node.used = false;
                    self.order.push_back(nid);
                }
                Some(_) => {
                    self.nodes.remove(&nid);
                }
            }
        }
    }
}

/// What nothing tells of a node that is about to change: nothing yet.
fn untold(node: &Node, flexible: bool) -> Untold {
    if node.footer().is_inode() == Some(true) { Untold::of_inode(node.inode(), flexible) } else { Untold::of_node() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(nids: std::ops::RangeInclusive<u32>) -> NodeCache {
        let mut cache = NodeCache::default();
        for nid in nids {
            let mut node = Node::of(RawBlock::zeroed());
            node.raw_mut().footer.nid.set(nid);
            cache.insert(Nid::new(nid), node);
        }
        cache
    }

    #[test]
    fn writing_goes_on_where_it_ended() {
        let mut cache = cache(1..=10);
        (1..=10).for_each(|nid| assert!(cache.mark_dirty(Nid::new(nid), true).is_some()));
        for expected in [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 1, 2]] {
            let written = cache.next_to_write(4);
            assert_eq!(written, expected.map(Nid::new));
            // They become dirty again at once.
            written.iter().for_each(|&nid| cache.mark_clean(nid));
            written.iter().for_each(|&nid| assert!(cache.mark_dirty(nid, true).is_some()));
        }
        assert_eq!(cache.next_to_write(usize::MAX), (1..=10).map(Nid::new).collect::<Vec<Nid>>());
    }

    #[test]
    fn nodes_that_are_used_or_dirty_are_evicted_last() {
        let mut cache = cache(1..=4);
        // All were used once, when they were loaded.
        cache.shrink(3);
        assert!(!cache.contains(Nid::new(1)));
        assert!(
            cache.touch(Nid::new(2)).is_some()
                && cache.get_mut(Nid::new(3)).is_some()
                && cache.mark_dirty(Nid::new(4), true).is_some()
        );
        cache.shrink(2);
        assert!(
            cache.contains(Nid::new(2)) && !cache.contains(Nid::new(3)) && cache.contains(Nid::new(4)),
            "looking at a node without touching is no use"
        );
    }

    /// The bytes of what nothing tells of node 5.
    fn untold(cache: &NodeCache) -> Option<Vec<usize>> {
        cache.get(Nid::new(5)).and_then(Node::untold).map(Iterator::collect)
    }

    #[test]
    fn a_node_that_a_delta_tells_waits_for_a_checkpoint_and_for_no_fsync() {
        let (nid, ino) = (Nid::new(5), Ino::new(4));
        let mut cache = cache(5..=5);
        cache.get_mut(nid).unwrap().raw_mut().footer.ino.set(4);
        cache.get_mut(nid).unwrap().raw_mut().footer.flag.set(1 << crate::layout::node::OFFSET_SHIFT);
        // Not noted yet.
        cache.mark_dirty(nid, true).unwrap().set_address(40, Address::new(7));
        assert_eq!(untold(&cache), None);
        cache.mark_clean(nid);
        cache.note_untold(false);
        cache.mark_dirty(nid, true).unwrap().set_address(40, Address::new(8));
        cache.mark_dirty(nid, true).unwrap().set_pointer(4068, 0);
        cache.mark_dirty(nid, true).unwrap().lead(44, Address::new(9));
        assert_eq!(untold(&cache), Some(vec![40, 4068]));
        assert!(cache.is_dirty(ino, true));
        cache.note_told(nid);
        assert_eq!((untold(&cache), cache.get(nid).unwrap().address(44)), (Some(vec![]), Address::new(9)));
        assert!(cache.is_told(nid) && !cache.is_dirty(ino, false) && cache.must_be_written(nid));
        // Changed again, in times alone and then in more.
        cache.mark_dirty(nid, false);
        assert!(cache.is_dirty(ino, false) && !cache.is_dirty(ino, true));
        cache.mark_dirty(nid, true).unwrap().set_address(0, Address::new(1));
        assert_eq!((untold(&cache), cache.is_dirty(ino, true)), (Some(vec![0]), true));
        cache.forget_untold(nid);
        assert_eq!(untold(&cache), None);
        cache.note_told(nid);
        assert!(cache.is_dirty(ino, true), "what is not known was not told");
        cache.mark_clean(nid);
        assert!(!cache.is_dirty(ino, false) && untold(&cache).is_none());
    }
}
