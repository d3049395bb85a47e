//! What stands behind the place where a chain ends: it tells whether power ended it there, or damage, and which of it counts all the same.
//!
//! What power cut off had not returned. Where more was fsynced behind it, that may have returned. And where a seal behind it says that it was
//! durable by then, it had: each seal tells how much of the chain a flush had made durable when it was written.
//!
//! Behind damage, the nodes of an fsync count if its seal is whole with all that it lists, or if a later seal says that they were durable.

use basalt_segments::Segment;
use std::collections::BTreeSet;
use std::ops::Range;

use rustc_hash::FxHashSet;
use zerocopy::FromBytes;

use super::inside::{run_now, verify};
use super::scan::{ChainNode, Start, entries_now, wrong_in};
use crate::blocks::{read_block, read_blocks};
use crate::geometry::Geometry;
use crate::layout::delta::PAGES_MAX;
use crate::layout::inode::RawInode;
use crate::layout::inside::{Inside, marked_inode};
use crate::layout::node::{NodeFlags, RawNode, RawNodeFooter};
use crate::layout::seal::{Seal, Sealed, is_seal};
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Ino};
use crate::node::inode::validate;
use crate::node::path::is_direct;

/// Segments that are looked through at most: more than the longest chain has.
const SEGMENTS_MAX: usize = 64;
/// How often segments are searched for one where the log went on.
const SEARCHES_MAX: u32 = 4;
/// How many of them: where the chain ends with its segment, and where the rest of that says nothing. Logs go on near where they were.
const FIRSTS_MAX: usize = 4096;
const FIRSTS_NEAR: usize = 256;

/// Blocks of the chain's version behind its end.
#[derive(Debug, Default)]
pub struct Followers {
    /// Inodes with an fsync mark.
    marked: BTreeSet<Ino>,
    /// Of the seals that are whole, how many blocks of the chain were durable by the one that says the most.
    durable: Option<u32>,
    /// The segments that have to stay for a search to find all of it: where such blocks are, and all that the seals list.
    pub segments: BTreeSet<Segment>,
    fsyncs: Vec<Fsync>,
    /// The one that is being read.
    open: Fsync,
    /// The address of the last block that was read, and its position.
    last: (Address, usize),
    /// Positions of blocks that are not there, each the first of those that follow one another.
    gaps: Vec<usize>,
    /// Entries of seals that may still be compared.
    budget: usize,
    /// Pages that deltas told so far.
    told: u64,
}

/// One fsync: nodes of its files that were written since the one before, and those behind its seal.
#[derive(Debug, Default)]
struct Fsync {
    nodes: Vec<ChainNode>,
    /// How many of its nodes are still to come, once its seal was seen.
    left: Option<u32>,
    /// Whether its seal is whole, and all that it lists is there.
    holds: bool,
    /// What of that is not.
    wrong: FxHashSet<Address>,
    /// It is an inode that is its own seal.
    is_inside: bool,
}

impl Fsync {
    /// One whose inode is its own seal.
    fn inside(node: ChainNode) -> Fsync {
        Fsync { nodes: vec![node], left: Some(0), is_inside: true, ..Fsync::default() }
    }

    /// The blocks of the chain up to its end.
    fn end(&self) -> usize {
        self.nodes.last().map_or(0, |node| node.position + 1)
    }
}

/// Where to look.
pub struct Behind {
    /// The block where the chain ends.
    pub end: Address,
    /// Blocks of the chain in front of that.
    pub position: usize,
    /// What it is a seal of, if the chain ends because that is not all there.
    pub seal: Option<Seal>,
    /// The inode that is its own seal, if the chain ends because what it vouches for is not all there.
    pub node: Option<ChainNode>,
    /// Whether each segment is looked at where nothing tells in which one the log went on.
    pub is_worth: bool,
}

impl Followers {
    /// Looks through the rest of the segment behind a block, and then wherever the log went on. `seen`: the segments that the chain runs
    /// through. `is_live`: as for [`scan`](super::scan::scan).
    pub fn find(
        start: &Start<'_, '_>,
        behind: &Behind,
        seen: &BTreeSet<Segment>,
        is_live: &dyn Fn(Address) -> bool,
    ) -> Followers {
        let geometry = start.geometry;
        let budget = geometry.main_blocks() as usize;
        let gaps = vec![behind.position];
        let mut found = Followers { last: (behind.end, behind.position), budget, gaps, ..Followers::default() };
        found.fsyncs.extend(behind.node.map(Fsync::inside));
        if let Some(seal) = &behind.seal {
            let delta = seal.delta.as_ref().map(|delta| ChainNode::delta(behind.end, behind.position, delta));
            found.open = Fsync {
                nodes: delta.into_iter().collect(),
                left: Some(seal.nodes),
                wrong: wrong_addresses(start, &entries_now(start, seal, behind.position)),
                ..Fsync::default()
            };
            if seal.nodes == 0 {
                // What follows is of the next one.
                found.close();
            }
        }
        let runs = find_runs(start, behind, seen, is_live);
        in_order(runs).into_iter().for_each(|run| found.note_run(start, &run, is_live));
        found.close();
        found
    }

    /// Whether a seal of the chain that begins at `start` says that something of it was durable: then its checkpoint was, too. Looks at the
    /// first segment only.
    pub fn are_durable(start: &Start<'_, '_>) -> bool {
        let mut found = Followers { last: (start.address, 0), ..Followers::default() };
        if start.geometry.in_main(start.address) {
            let range = start.address..segment_of(start.geometry, start.address).end;
            found.note_run(start, &Run { range, begin: Some(0), next: Address::NULL }, &|_| false);
        }
        found.prove_durable(0)
    }

    /// Whether more was fsynced: a seal that is whole, or, where nobody writes seals, the marks of so many files.
    pub fn are_fsynced(&self, files: usize) -> bool {
        self.durable.is_some() || self.marked.len() >= files
    }

    /// Whether more of the chain than its first `blocks` blocks was durable, by what a seal says.
    pub fn prove_durable(&self, blocks: usize) -> bool {
        self.durable.is_some_and(|durable| durable as usize > blocks)
    }

    /// The nodes that count, in order, but for those that are not as their seal lists them. `pending`: nodes in front of the end that no seal
    /// made count; they belong to the first fsync.
    pub fn counted(mut self, pending: Vec<ChainNode>) -> Vec<ChainNode> {
        let durable = self.durable.unwrap_or_default() as usize;
        if let Some(first) = self.fsyncs.iter_mut().find(|fsync| !fsync.is_inside) {
            first.nodes.splice(0..0, pending);
        }
        self.fsyncs.sort_by_key(Fsync::end);
        // What an fsync vouches for points to what its file wrote in those before: none of them must be missing.
        let gap = self.gaps.iter().copied().filter(|gap| *gap >= durable).min().unwrap_or(usize::MAX);
        // Without seals nothing says what an inode of Linux's has in these bytes.
        let is_sealed = self.durable.is_some();
        // Of what may not have been durable, each points to data of the ones before.
        let mut is_whole = true;
        let counted = self.fsyncs.into_iter().filter(|fsync| {
            is_whole &= fsync.holds && fsync.end() <= gap || fsync.end() <= durable;
            is_whole || fsync.end() <= durable
        });
        let is_wrong = move |one: &Fsync, node: &ChainNode| is_sealed && one.wrong.contains(&node.address);
        counted
            .flat_map(|mut one| std::mem::take(&mut one.nodes).into_iter().filter(move |node| !is_wrong(&one, node)))
            .collect()
    }

    /// Takes note of the chain's blocks in part of a segment.
    fn note_run(&mut self, start: &Start<'_, '_>, run: &Run, is_live: &dyn Fn(Address) -> bool) {
        // Only the first block: from there on, each follows the one before.
        let mut begin = run.begin;
        each_in_chain(start, run.range.clone(), is_live, &mut |address, block, footer| {
            let position = match begin.take() {
                Some(begin) => begin + (address - run.range.start) as usize,
                None => self.position_behind_last(start, address),
            };
            self.note(start, (address, position), block, footer);
        });
    }

    /// The position of a block that is found behind the last one.
    fn position_behind_last(&self, start: &Start<'_, '_>, address: Address) -> usize {
        let (before, position) = self.last;
        // What cannot be recognised in between is of the chain too.
        let is_near = segment_of(start.geometry, before).contains(&address) && address > before;
        position + if is_near { (address - before) as usize } else { 1 }
    }

    fn note(
        &mut self,
        start: &Start<'_, '_>,
        (address, position): (Address, usize),
        block: &[u8],
        footer: &RawNodeFooter,
    ) {
        if position > self.last.1 + 1 {
            self.gaps.push(self.last.1 + 1);
        }
        self.last = (address, position);
        self.segments.insert(start.geometry.segment_of(address));
        if is_seal(footer) {
            let seal = Seal::of_block(block);
            return self.note_seal(start, address, seal);
        }
        let raw = marked_inode(block);
        match raw.and_then(|raw| Some((raw, Inside::read(raw, address)?))) {
            Some((raw, inside)) => self.note_inside(start, ChainNode::of(address, position, footer), raw, &inside),
            None => self.note_node(
                address,
                footer,
                raw.is_some_and(|raw| Inside::is_set(raw) || validate(raw, footer.ino(), start.geometry).is_err()),
            ),
        }
    }

    /// Takes note of an inode that is its own seal. What is in front of it without a seal waits for one.
    fn note_inside(&mut self, start: &Start<'_, '_>, node: ChainNode, raw: &RawInode, inside: &Inside) {
        if self.open.left.is_some() {
            self.close();
        }
        let durable = inside.undurable.and_then(|count| node.position.checked_sub(count as usize)).unwrap_or_default();
        self.durable = self.durable.max(Some(durable as u32));
        self.marked.insert(node.ino);
        let mut fsync = Fsync::inside(node);
        let run = run_now(start, raw, inside, node.position);
        if let Some((run, left)) = run.and_then(|run| self.budget.checked_sub(run.len()).map(|left| (run, left))) {
            self.budget = left;
            self.segments.extend(run.iter().map(|at| start.geometry.segment_of(*at)));
            fsync.holds = verify(start, &run, inside).is_ok();
        }
        self.fsyncs.push(fsync);
    }

    fn note_seal(&mut self, start: &Start<'_, '_>, address: Address, seal: Option<Seal>) {
        if self.open.left.is_some() {
            self.close();
        }
        let Some(seal) = seal else {
            self.open.left = Some(u32::MAX);
            return;
        };
        self.durable = self.durable.max(Some(seal.durable));
        if let Some(position) = seal.position {
            // More is in front of it than was found.
            self.gaps.extend((position as usize > self.last.1).then_some(self.last.1));
            self.last.1 = position as usize;
        }
        self.open.left = Some(seal.nodes);
        if let Some(left) = self.budget.checked_sub(seal.entries.len()) {
            self.budget = left;
            let entries = entries_now(start, &seal, self.last.1);
            let in_main = entries.iter().map(|entry| entry.address).filter(|at| start.geometry.in_main(*at));
            self.segments.extend(in_main.map(|at| start.geometry.segment_of(at)));
            self.open.wrong = wrong_addresses(start, &entries);
            self.open.holds = self.open.wrong.is_empty();
        }
        if let Some(delta) = &seal.delta
            && self.told + delta.pages() <= PAGES_MAX
        {
            self.told += delta.pages();
            self.marked.insert(delta.ino);
            self.open.nodes.push(ChainNode::delta(address, self.last.1, delta));
        }
        if seal.nodes == 0 {
            self.close();
        }
    }

    /// `is_torn`: it is an inode that is damaged, or that says of itself what does not hold.
    fn note_node(&mut self, address: Address, footer: &RawNodeFooter, is_torn: bool) {
        let node = ChainNode::of(address, self.last.1, footer);
        self.open.nodes.push(node);
        self.open.wrong.extend((is_torn && self.open.left.is_none()).then_some(address));
        self.open.left = self.open.left.map(|left| left.saturating_sub(1));
        // The mark is on the last node of an fsync.
        let is_marked = node.flags.contains(NodeFlags::FSYNC);
        if is_marked {
            self.marked.insert(node.ino);
        }
        if is_marked || self.open.left == Some(0) {
            self.close();
        }
    }

    fn close(&mut self) {
        let fsync = std::mem::take(&mut self.open);
        if !fsync.nodes.is_empty() {
            self.fsyncs.push(fsync);
        }
    }
}

/// Part of a segment that has blocks of the chain.
struct Run {
    range: Range<Address>,
    /// Blocks of the chain in front of it, as far as a seal in it says.
    begin: Option<usize>,
    /// Where its last block leads.
    next: Address,
}

/// Runs in the order of the chain: where one begins, its seals know, and its neighbours on the device do not. One without seals is behind
/// the one that leads to it, else behind the one that it was found behind.
fn in_order(runs: Vec<Run>) -> Vec<Run> {
    let mut before = 0;
    let begins: Vec<(usize, bool)> = runs
        .iter()
        .map(|run| {
            let leading =
                runs.iter().find(|other| other.range.start != run.range.start && run.range.contains(&other.next));
            let begin = run.begin.or(leading.and_then(|other| other.begin)).unwrap_or(before);
            before = begin;
            (begin, run.begin.is_none())
        })
        .collect();
    let mut runs: Vec<((usize, bool), Run)> = begins.into_iter().zip(runs).collect();
    runs.sort_by_key(|(begin, _)| *begin);
    runs.into_iter().map(|(_, run)| run).collect()
}

/// The rest of the segment where the chain ends, and then wherever the log went on, in the order in which they were found.
fn find_runs(
    start: &Start<'_, '_>,
    behind: &Behind,
    seen: &BTreeSet<Segment>,
    is_live: &dyn Fn(Address) -> bool,
) -> Vec<Run> {
    let geometry = start.geometry;
    let segment = |address: Address| geometry.segment_of(address);
    let rest = behind.end + 1..segment_of(geometry, behind.end).end;
    let (mut looked, mut searches) = (seen.clone(), if behind.is_worth { SEARCHES_MAX } else { 0 });
    let (mut last, mut most) = (behind.end, if rest.is_empty() { FIRSTS_MAX } else { FIRSTS_NEAR });
    let mut runs = Vec::new();
    let mut went = if rest.is_empty() { link(start, behind.end) } else { look(start, rest, is_live, &mut runs) };
    let mut next = Vec::new();
    while looked.len() < SEGMENTS_MAX + seen.len() {
        let is_new = |at: &Address| geometry.in_main(*at) && !looked.contains(&segment(*at));
        next.extend(went.take().filter(is_new));
        if next.is_empty() && searches > 0 {
            // No link leads on, or only a damaged one.
            searches -= 1;
            next = firsts_of_segments(start, last, &looked, most, is_live);
            if next.is_empty() {
                break;
            }
            next.reverse();
            most = FIRSTS_NEAR;
        }
        let Some(place) = std::iter::from_fn(|| next.pop()).find(is_new) else {
            if searches > 0 {
                continue;
            }
            break;
        };
        looked.insert(segment(place));
        let before = runs.len();
        went = look(start, place..segment_of(geometry, place).end, is_live, &mut runs);
        if runs.len() > before {
            last = place;
        }
    }
    runs
}

/// Adds part of a segment to the runs if it has blocks of the chain; returns where the log went on from its last one, if that is in another.
fn look(
    start: &Start<'_, '_>,
    range: Range<Address>,
    is_live: &dyn Fn(Address) -> bool,
    runs: &mut Vec<Run>,
) -> Option<Address> {
    let here = segment_of(start.geometry, range.start);
    let (mut went, mut begin) = (None, None);
    each_in_chain(start, range.clone(), is_live, &mut |address, block, footer| {
        went = Some(footer.next_blkaddr.into());
        if begin.is_none() && is_seal(footer) {
            let seal = Seal::of_block(block);
            let position = seal.and_then(|seal| seal.position);
            begin = position.and_then(|at| (at as usize).checked_sub((address - range.start) as usize));
        }
    });
    if let Some(next) = went {
        runs.push(Run { range, begin, next });
    }
    went.filter(|next| !here.contains(next))
}

/// Calls `each` with the blocks of the chain in part of a segment: address, bytes, footer.
fn each_in_chain(
    start: &Start<'_, '_>,
    range: Range<Address>,
    is_live: &dyn Fn(Address) -> bool,
    each: &mut dyn FnMut(Address, &[u8], &RawNodeFooter),
) {
    let range = Address::all(range);
    let all = range.clone().next().and_then(|first| read_blocks(start.device, first, range.len()).ok());
    for (index, address) in range.enumerate().filter(|(_, address)| !is_live(*address)) {
        let alone = if all.is_none() { read_block(start.device, address).ok() } else { None };
        let block = all.as_ref().map(|all| &all[index * BLOCK_SIZE..][..BLOCK_SIZE]).or(alone.as_deref());
        if let Some((block, footer)) = block.and_then(|block| Some((block, footer_in_chain(start, block)?))) {
            each(address, block, &footer);
        }
    }
}

fn wrong_addresses(start: &Start<'_, '_>, entries: &[Sealed]) -> FxHashSet<Address> {
    wrong_in(start, entries).into_iter().map(|(address, _)| address).collect()
}

/// The footer of a block, if it is one of the chain's.
fn footer_in_chain(start: &Start<'_, '_>, block: &[u8]) -> Option<RawNodeFooter> {
    let footer = RawNode::ref_from_bytes(block).ok()?.footer;
    let is_chained = footer.cp_ver.get() == start.version && (is_seal(&footer) || is_direct(footer.offset()));
    is_chained.then_some(footer)
}

/// Where the log went on from a block, if that is one of the chain's.
fn link(start: &Start<'_, '_>, address: Address) -> Option<Address> {
    let block = read_block(start.device, address).ok()?;
    footer_in_chain(start, &block).map(|footer| footer.next_blkaddr.into())
}

/// The starts of segments with a block of the chain, but for those that are known; of at most so many behind the one that `from` is in.
fn firsts_of_segments(
    start: &Start<'_, '_>,
    from: Address,
    known: &BTreeSet<Segment>,
    most: usize,
    is_live: &dyn Fn(Address) -> bool,
) -> Vec<Address> {
    let (segments, here) = (start.geometry.main_segments, start.geometry.segment_of(from).get());
    let others =
        (1..segments).map(|step| Segment::new((here + step) % segments)).filter(|segment| !known.contains(segment));
    let firsts = others.map(|segment| start.geometry.in_segment(segment, 0));
    let unused = firsts.filter(|first| !is_live(*first)).take(most);
    unused.filter(|first| link(start, *first).is_some()).collect()
}

/// The blocks of the segment that a block is in.
fn segment_of(geometry: &Geometry, address: Address) -> Range<Address> {
    let first = address - geometry.offset_in_segment(address);
    first..first + BLOCKS_PER_SEGMENT
}

#[cfg(test)]
mod tests {
    use super::Followers;

    #[test]
    fn a_seal_that_knows_no_more_durable_than_was_found_proves_no_damage() {
        let found = Followers { durable: Some(3), ..Followers::default() };
        assert_eq!([2, 3, 4].map(|blocks| found.prove_durable(blocks)), [true, false, false]);
        assert!(!Followers::default().prove_durable(0));
    }
}
