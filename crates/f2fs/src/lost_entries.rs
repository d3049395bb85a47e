//! Entries that the NAT or the SIT have lost, as a sector of zeros loses them: on a volume that is written to, their node ids and blocks would be
//! given to somebody else. Neither table has a checksum, but what one of them and the summaries know, the other must not deny.
//!
//! | lost | what shows it |
//! |---|---|
//! | entries of the NAT | a block of nodes is live, and the node in it has no entry |
//! | entries of the SIT | the checkpoint counts more live blocks, and a segment without any has a block that its owner points to |
//!
//! Behind a live cleaning journal this holds once that is applied in memory, and nothing has been written.
//!
//! The second count is higher on a sound volume too where blocks are reserved for files; only there anything is read. Of very large volumes a
//! sample is looked at.

use zerocopy::FromBytes;

use crate::error::Result;
use crate::layout::node::RawNode;
use crate::layout::summary::{RawSummaryBlock, TYPE_NODE};
use crate::layout::{Address, BLOCKS_PER_SEGMENT, Nid};
use crate::options::Recovery;
use crate::volume::Volume;
use basalt_segments::{MainBlock, Segment};

/// Segments of nodes that are looked at: with one block each, 16 MiB; they have two million nodes.
const NODE_SEGMENTS_MAX: usize = 4096;
/// Segments without live blocks that are looked at.
const FREE_SEGMENTS_MAX: usize = 1024;
/// Segments with live blocks that are looked at behind a live journal.
const USED_SEGMENTS_MAX: usize = 256;
/// Each of so many blocks of a segment is looked at.
const STEP: usize = 64;

impl Volume {
    /// Makes the volume read-only if a table has lost entries. A repair goes on: it has found out what is live, and gives no lost id to
    /// the nodes that it makes.
    pub(crate) fn expect_all_entries(&mut self, recovery: Recovery) {
        if self.options.read_only {
            return;
        }
        if recovery.is_repair {
            return self.withhold_lost_ids();
        }
        if let Some(reason) = self.lost_entries() {
            self.warnings.push(format!("mounted read-only: {reason}; `basalt fsck` tells more"));
            self.options.read_only = true;
        }
    }

    /// What shows that a table has lost entries; `None` if nothing does. What cannot be read shows nothing.
    fn lost_entries(&mut self) -> Option<String> {
        if let Some((nid, address)) = self.node_without_entry() {
            return Some(format!("NAT: node {nid} at block {address} is live and has no entry"));
        }
        let (nid, address) = self.owned_block_of_free_segment()?;
        Some(format!("SIT: block {address} is not live, and node {nid} points to it"))
    }

    /// Keeps the ids of live nodes without an entry, as summaries have them, from being given to new ones.
    fn withhold_lost_ids(&mut self) {
        for segment in self.segments_of_nodes() {
            for (nid, _) in self.without_entry(segment) {
                self.nat.withhold(nid);
            }
        }
    }

    fn segments_of_nodes(&self) -> Vec<Segment> {
        let is_of_nodes = |&segment: &Segment| self.table.live(segment) > 0 && self.table.kind(segment).is_node();
        self.geometry.segments().filter(is_of_nodes).collect()
    }

    /// A live node that the NAT does not know.
    fn node_without_entry(&mut self) -> Option<(Nid, Address)> {
        spread(&self.segments_of_nodes(), NODE_SEGMENTS_MAX).find_map(|segment| {
            // The summary may be wrong itself.
            self.without_entry(segment).into_iter().find(|&(nid, address)| self.is_node(nid, address))
        })
    }

    /// The live blocks of a segment of nodes whose node, by the summary, has no entry in the NAT: its id, and the address.
    fn without_entry(&mut self, segment: Segment) -> Vec<(Nid, Address)> {
        let Ok(summary) = self.owners(segment) else { return Vec::new() };
        let first = self.geometry.in_segment(segment, 0);
        let live: Vec<u32> = self.table.live_blocks(segment).collect();
        let owned = live.into_iter().map(|block| (summary.entries[block as usize].nid(), first + block));
        owned.filter(|(nid, _)| self.nat_entry(*nid).is_ok_and(|entry| entry.address() == Address::NULL)).collect()
    }

    /// A block that somebody has, in a segment without live blocks; behind a live journal, which may have moved others there, in any.
    fn owned_block_of_free_segment(&mut self) -> Option<(Nid, Address)> {
        let known = self.table.live_data_blocks() + self.table.live_node_blocks();
        if self.checkpoint.raw().valid_block_count.get() <= known {
            return None;
        }
        // An active log's, too.
        let is_free = |&segment: &Segment| self.table.live(segment) == 0;
        let (free, others): (Vec<Segment>, Vec<Segment>) = self.geometry.segments().partition(is_free);
        let others = if self.journal.is_guarded() { &others[..] } else { &[] };
        spread(&free, FREE_SEGMENTS_MAX).chain(spread(others, USED_SEGMENTS_MAX)).find_map(|segment| {
            let summary = self.owners(segment).ok()?;
            let dead = (0..BLOCKS_PER_SEGMENT as usize).step_by(STEP);
            dead.filter(|block| !self.table.is_live(MainBlock::in_segment(segment, *block as u32)))
                .collect::<Vec<_>>()
                .into_iter()
                .find_map(|block| {
                    let owner = summary.entries[block];
                    let (nid, index) = (owner.nid(), u32::from(owner.ofs_in_node.get()));
                    let address = self.geometry.in_segment(segment, block as u32);
                    let entry =
                        self.nat_entry(nid).ok().filter(|entry| nid > Nid::NONE && entry.address() != Address::NULL)?;
                    let is_owned = match summary.entry_type {
                        TYPE_NODE => entry.address() == address,
                        _ => self.pointer_of(nid, index, address).is_ok(),
                    };
                    is_owned.then_some((nid, address))
                })
        })
    }

    /// The owners of a segment's blocks; of a log's own segment those that the checkpoint has.
    fn owners(&self, segment: Segment) -> Result<Box<RawSummaryBlock>> {
        if let Some(log) = self.logs.recorded().iter().find(|log| log.segment == segment) {
            return Ok(log.summary.clone());
        }
        let block = self.read_block(self.geometry.summary_block(segment))?;
        Ok(RawSummaryBlock::read_from_bytes(&block.0).map(Box::new).unwrap_or_else(|_| RawSummaryBlock::empty(0)))
    }

    /// Whether the node at an address says that it is this one.
    fn is_node(&self, nid: Nid, address: Address) -> bool {
        let block = self.read_block(address);
        let found = block.ok().and_then(|block| RawNode::read_from_bytes(&block.0).ok());
        found.is_some_and(|node| node.footer.nid() == nid)
    }
}

/// At most so many of them, evenly.
fn spread(segments: &[Segment], most: usize) -> impl Iterator<Item = Segment> {
    segments.iter().copied().step_by(segments.len().div_ceil(most).max(1)).collect::<Vec<_>>().into_iter()
}
