//! Live blocks without an owner that are nodes: the NAT has lost them.

use super::batch::for_each_block;
use super::checker::Checker;
use super::fault::Place;
use super::kind::FaultKind;
use crate::error::Result;
use crate::layout::{Address, Nid};
use crate::node::seen::{Seen, recognise};
use basalt_segments::Segment;

impl Checker<'_> {
    /// Reports the nodes among `blocks` of a segment of nodes, which are live and nobody's, that the NAT should lead to; the other blocks.
    pub(super) fn report_strays(&mut self, segment: Segment, blocks: Vec<usize>) -> Result<Vec<usize>> {
        let mut others = Vec::new();
        // 512 blocks of a segment of the main area.
        let first = self.geometry.in_segment(segment, 0);
        for_each_block(
            self.device,
            &blocks,
            |&block| first + block as u32,
            |&block, bytes| {
                match recognise(bytes, self.geometry, true).filter(|seen| !self.has_node(seen.nid)) {
                    Some(seen) => self.report_stray(&seen, first + block as u32),
                    None => others.push(block),
                }
                Ok(())
            },
        )?;
        Ok(others)
    }

    fn report_stray(&mut self, seen: &Seen, address: Address) {
        let entry = self.nat.get(seen.nid).address();
        let entry = if entry == Address::NULL { "free".to_owned() } else { format!("block {entry:#x}") };
        let found = format_args!("entry {entry}, but block {address} is this node, of inode {}", seen.ino);
        let expected = format_args!("an entry with block {address}");
        let right = Some(address.into());
        self.findings.add_with(FaultKind::NatMissing, Place::Node(seen.nid), found, expected, right);
    }

    /// Whether the NAT leads to a node of this id that was read.
    fn has_node(&self, nid: Nid) -> bool {
        let read = self.inodes.contains_key(&nid.as_inode()) || self.references.contains_key(&nid);
        read && !self.unreadable.contains(&nid)
    }
}
