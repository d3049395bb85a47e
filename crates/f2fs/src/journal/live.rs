//! What the last checkpoint had as live, found anew: for a repair behind a live cleaning journal, where the SIT is damaged.
//!
//! Recovery writes, and takes for free what the SIT does not have as live; and of the journal, it applies only moves of what is live. All
//! that the checkpoint has hangs on its nodes: they tell which blocks are live, and who owns them. Summaries are not asked: they may be of
//! what a segment was used for since.

use basalt_segments::{Durable, MainBlock, Segment, SegmentKind, SegmentState};
use rustc_hash::FxHashSet;
use zerocopy::FromBytes;

use super::moves::Owner;
use super::state::SetRight;
use super::translation::Translation;
use crate::blocks::read_blocks;
use crate::error::Result;
use crate::layout::journal::{KIND_DATA, KIND_NODE};
use crate::layout::node::RawNode;
use crate::layout::sit::VALID_MAP_SIZE;
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid, bit_msb, set_bit_msb};
use crate::log::active::Owners;
use crate::node::pointers::pointers;
use crate::node::seen::recognise;
use crate::volume::Volume;

/// Blocks that are live by what leads to them.
struct Found {
    /// By segment.
    live: Vec<[u8; VALID_MAP_SIZE]>,
    /// By segment, whether these are nodes; that of the first which was found.
    is_node: Vec<Option<bool>>,
    /// Live blocks that the table lacks, with their owners.
    missing: Vec<(MainBlock, Owner)>,
    /// Whether every node was read, as many as the checkpoint counts. If not, blocks of the other nodes may be live too.
    is_complete: bool,
}

impl Volume {
    /// Sets right which blocks are live, and says what was wrong. Nothing of the journal has been applied; `translation` is its.
    pub(super) fn find_live(&mut self, translation: &Translation, owners: &mut Owners) -> Result<SetRight> {
        let mut found = self.walk_nodes(translation);
        if !found.is_complete && !found.missing.is_empty() {
            self.search_nodes(translation, &mut found);
        }
        let mut too_many = 0;
        for (segment, live) in self.geometry.segments().zip(&found.live) {
            too_many += self.set_segment_right(segment, live, &found);
        }
        for (block, owner) in &found.missing {
            let summary = self.summary_entry(*owner)?;
            self.set_owner(*block, summary, owners)?;
        }
        Ok(SetRight { missing: found.missing.len(), too_many, broken: None })
    }

    /// Makes a segment what was found of it; returns how many blocks of it were nobody's. Where a node could not be read, they may be its.
    fn set_segment_right(&mut self, segment: Segment, live: &[u8; VALID_MAP_SIZE], found: &Found) -> usize {
        let known: Vec<u32> = self.table.live_blocks(segment).collect();
        let is_right = |block: u32| bit_msb(live, block as usize);
        let stays = |block: &u32| is_right(*block) || !found.is_complete;
        let kept: Vec<u32> = known.iter().copied().filter(stays).collect();
        let missing = (0..BLOCKS_PER_SEGMENT).filter(|&block| is_right(block) && known.binary_search(&block).is_err());
        let right: Vec<u32> = kept.iter().copied().chain(missing).collect();
        let kind = found.is_node[segment.index()].filter(|is_node| *is_node != self.table.kind(segment).is_node());
        if right == known && kind.is_none() {
            return 0;
        }
        let time = self.table.modified(segment);
        // What is cleared is live, and what is set is not: both are by the table itself.
        let _ = self.table.clear_live_all(segment, &known, time);
        if let Some(is_node) = kind {
            self.table.set_kind(segment, if is_node { SegmentKind::ColdNode } else { SegmentKind::ColdData });
        }
        for &block in &right {
            let _ = self.table.set_live(MainBlock::in_segment(segment, block), time);
        }
        if self.table.state(segment) == SegmentState::Prefree {
            self.table.release(&[segment], Durable::at_open());
        }
        known.len() - kept.len()
    }

    /// Follows every entry of the NAT, and every pointer of the nodes.
    fn walk_nodes(&mut self, translation: &Translation) -> Found {
        let segments = self.geometry.main_segments as usize;
        let (live, is_node) = (vec![[0; VALID_MAP_SIZE]; segments], vec![None; segments]);
        let mut found = Found { live, is_node, missing: Vec::new(), is_complete: true };
        let mut nodes = 0;
        for nid in Nid::all(Nid::FIRST..self.geometry.node_ids()) {
            // Of a block of the NAT that cannot be read, nodes are missing.
            let address = self.nat_entry(nid).map_or(Address::NULL, |entry| entry.address());
            if !self.geometry.in_main(address) {
                continue;
            }
            nodes += 1;
            self.note_live(&mut found, address, Owner { nid, index: 0, kind: KIND_NODE });
            let now_at = translation.of_checkpoint(address).unwrap_or(address);
            let block = self
                .read_block(now_at)
                .ok()
                .filter(|block| RawNode::ref_from_bytes(&block.0).is_ok_and(|node| node.footer.nid() == nid));
            let Some(slots) = block.as_ref().and_then(|block| pointers(&block.0, &self.geometry)) else {
                found.is_complete = false;
                continue;
            };
            for (index, slot) in (0..).zip(slots) {
                self.note_live(&mut found, Address::from(*slot), Owner { nid, index, kind: KIND_DATA });
            }
        }
        found.is_complete &= nodes == self.checkpoint.raw().valid_node_count.get();
        found
    }

    /// Looks everywhere for nodes that the NAT lacks: what they point to may be live, and is the only thing that tells. Places that cleaning
    /// has copied to since are something else's.
    fn search_nodes(&mut self, translation: &Translation, found: &mut Found) {
        let copies: FxHashSet<Address> = translation.last_places().collect();
        // Of later nodes none is live by the checkpoint.
        let since = self.checkpoint.node_version();
        for segment in self.geometry.segments() {
            let first = self.geometry.in_segment(segment, 0);
            let Ok(bytes) = read_blocks(&*self.device, first, BLOCKS_PER_SEGMENT as usize) else { continue };
            for (address, block) in first.onward().zip(bytes.chunks_exact(BLOCK_SIZE)) {
                let Some(seen) = recognise(block, &self.geometry, true).filter(|seen| seen.sound) else { continue };
                let entry = self.nat_entry(seen.nid);
                let is_known = entry.is_ok_and(|entry| self.geometry.in_main(entry.address()));
                if is_known || seen.version == since || copies.contains(&address) {
                    continue;
                }
                self.note_live(found, address, Owner { nid: seen.nid, index: 0, kind: KIND_NODE });
                for (index, slot) in (0..).zip(pointers(block, &self.geometry).unwrap_or_default()) {
                    if !copies.contains(&Address::from(*slot)) {
                        self.note_live(found, Address::from(*slot), Owner { nid: seen.nid, index, kind: KIND_DATA });
                    }
                }
            }
        }
    }

    fn note_live(&self, found: &mut Found, address: Address, owner: Owner) {
        if !self.geometry.in_main(address) {
            return;
        }
        let block = self.geometry.main_block(address);
        let (segment, offset) = (block.segment(), block.offset() as usize);
        found.is_node[segment.index()].get_or_insert(owner.kind == KIND_NODE);
        let map = &mut found.live[segment.index()];
        if !bit_msb(map, offset) {
            set_bit_msb(map, offset, true);
            if !self.table.is_live(block) {
                found.missing.push((block, owner));
            }
        }
    }
}
