//! What stands behind the place where a chain ends: it tells whether power ended it there, or damage.
//!
//! What power cut off had not returned. Where more was fsynced behind it, that may have returned. And where a seal behind it says that it was
//! durable by then, it had: each seal tells how much of the chain a flush had made durable when it was written.

use std::collections::BTreeSet;
use std::ops::Range;

use zerocopy::FromBytes;

use super::scan::{Start, read_block};
use super::seal::{Seal, is_seal};
use crate::blocks::read_blocks;
use crate::geometry::Geometry;
use crate::layout::node::{NodeFlags, RawNode, RawNodeFooter};
use crate::layout::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::node::path::is_direct;

/// Segments that are looked through at most: more than the longest chain has.
const SEGMENTS_MAX: usize = 64;

/// Blocks of the chain's version behind its end.
#[derive(Debug, Default)]
pub struct Followers {
    /// Inodes with an fsync mark.
    marked: BTreeSet<u32>,
    /// Of the seals that are whole, how many blocks of the chain were durable by the one that says the most.
    durable: Option<u32>,
    /// The segments that have to stay for a search to find all of it: where such blocks are, and all that the seals list.
    pub segments: BTreeSet<u32>,
}

impl Followers {
    /// Looks through the rest of the segment behind block `end`, and then wherever the log went on: if nothing tells where, at the start of
    /// each segment, where that `is_worth` it. `is_live`: as for [`scan`](super::scan::scan).
    pub fn behind(start: &Start<'_>, end: u32, is_live: &dyn Fn(u32) -> bool, is_worth: bool) -> Followers {
        let geometry = start.geometry;
        let mut found = Followers::default();
        let rest = end + 1..segment_of(geometry, end).end;
        let mut next = if rest.is_empty() {
            link(start, end).or_else(|| is_worth.then(|| first_of_a_segment(start, is_live))?)
        } else {
            found.look(start, rest, is_live)
        };
        let mut seen = BTreeSet::from([end]);
        while let Some(at) = next.filter(|at| geometry.in_main(*at) && seen.len() <= SEGMENTS_MAX && seen.insert(*at)) {
            next = found.look(start, at..segment_of(geometry, at).end, is_live);
        }
        found
    }

    /// Whether more was fsynced: a seal that is whole, or, where nobody writes seals, the marks of so many files.
    pub fn are_fsynced(&self, files: usize) -> bool {
        self.durable.is_some() || self.marked.len() >= files
    }

    /// Whether more of the chain than its first `blocks` blocks was durable, by what a seal says.
    pub fn prove_durable(&self, blocks: usize) -> bool {
        self.durable.is_some_and(|durable| durable as usize > blocks)
    }

    /// Takes note of the chain's blocks in part of a segment; returns where the log went on from the last one, if that is in another.
    fn look(&mut self, start: &Start<'_>, range: Range<u32>, is_live: &dyn Fn(u32) -> bool) -> Option<u32> {
        let here = segment_of(start.geometry, range.start);
        let all = read_blocks(start.device, range.start, range.len()).ok();
        let mut next = None;
        for (index, address) in range.enumerate().filter(|(_, address)| !is_live(*address)) {
            let alone = if all.is_none() { read_block(start.device, address).ok() } else { None };
            let block = all.as_ref().map(|all| &all[index * BLOCK_SIZE..][..BLOCK_SIZE]).or(alone.as_deref());
            let Some((block, footer)) = block.and_then(|block| Some((block, footer_in_chain(start, block)?))) else {
                continue;
            };
            self.note(start.geometry, address, block, &footer);
            next = Some(footer.next_blkaddr.get());
        }
        next.filter(|next| !here.contains(next))
    }

    fn note(&mut self, geometry: &Geometry, address: u32, block: &[u8], footer: &RawNodeFooter) {
        let seal = <&[u8; BLOCK_SIZE]>::try_from(block).ok().filter(|_| is_seal(footer)).and_then(Seal::decode);
        let listed = seal.iter().flat_map(|seal| &seal.entries).map(|entry| entry.address);
        let in_main = listed.chain([address]).filter(|at| geometry.in_main(*at));
        self.segments.extend(in_main.map(|at| (at - geometry.main) / BLOCKS_PER_SEGMENT));
        if let Some(seal) = seal {
            self.durable = self.durable.max(Some(seal.durable));
        } else if footer.flags().contains(NodeFlags::FSYNC) {
            self.marked.insert(footer.ino.get());
        }
    }
}

/// The footer of a block, if it is one of the chain's.
fn footer_in_chain(start: &Start<'_>, block: &[u8]) -> Option<RawNodeFooter> {
    let footer = RawNode::ref_from_bytes(block).ok()?.footer;
    let is_chained = footer.cp_ver.get() == start.version && (is_seal(&footer) || is_direct(footer.offset()));
    is_chained.then_some(footer)
}

/// Where the log went on from a block, if that is one of the chain's.
fn link(start: &Start<'_>, address: u32) -> Option<u32> {
    let block = read_block(start.device, address).ok()?;
    footer_in_chain(start, &block).map(|footer| footer.next_blkaddr.get())
}

/// The start of a segment with a block of the chain: nothing tells at which one the log went on.
fn first_of_a_segment(start: &Start<'_>, is_live: &dyn Fn(u32) -> bool) -> Option<u32> {
    let firsts = (0..start.geometry.main_segments).map(|segment| start.geometry.main + segment * BLOCKS_PER_SEGMENT);
    firsts.into_iter().find(|&first| !is_live(first) && link(start, first).is_some())
}

/// The blocks of the segment that a block is in.
fn segment_of(geometry: &Geometry, address: u32) -> Range<u32> {
    let first = address - (address - geometry.main) % BLOCKS_PER_SEGMENT;
    first..first + BLOCKS_PER_SEGMENT
}
