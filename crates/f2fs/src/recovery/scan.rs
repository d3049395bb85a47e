//! Following the chain of the warm node log from the checkpoint on.

use basalt_segments::Segment;
use std::collections::BTreeSet;

use rustc_hash::FxHashSet;
use zerocopy::FromBytes;

use basalt_device::BlockDevice;

use super::followed::{Behind, Followers};
use super::inside::{self, Wrong};
use crate::blocks::{read_block, read_blocks};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::journal::translation::Translation;
use crate::layout::crc::crc;
use crate::layout::delta::{Delta, PAGES_MAX};
use crate::layout::inode::RawInode;
use crate::layout::node::{NodeFlags, RawNode, RawNodeFooter};
use crate::layout::seal::{Seal, Sealed, is_seal};
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Ino};
use crate::mutant::{self, Mutant};
use crate::node::inode::{is_whole, validate};

/// Nodes that are followed at most: 4 GiB of them.
const CHAIN_MAX: usize = 1 << 20;
/// Blocks read at once where the chain goes on with the next block.
const READ_AHEAD: u32 = 64;

/// One node of the chain.
#[derive(Debug, Clone, Copy)]
pub struct ChainNode {
    /// Where it is.
    pub address: Address,
    /// Blocks of the chain in front of it, seals included.
    pub position: usize,
    /// Its inode.
    pub ino: Ino,
    /// Its offset in the inode's tree.
    pub offset: u32,
    /// Its marks.
    pub flags: NodeFlags,
    /// It is a seal with a delta: `ino` is the file that it tells of.
    pub is_delta: bool,
}

impl ChainNode {
    /// A node with this footer.
    pub fn of(address: Address, position: usize, footer: &RawNodeFooter) -> ChainNode {
        let (ino, offset, flags) = (footer.ino(), footer.offset(), footer.flags());
        ChainNode { address, position, ino, offset, flags, is_delta: false }
    }

    /// Whether it is an inode with the fsync mark: where seals tell what counts, it is among a seal's nodes, or its own seal.
    fn is_marked_inode(&self) -> bool {
        self.offset == 0 && self.flags.contains(NodeFlags::FSYNC) && !self.is_delta
    }

    /// A seal at an address and position that tells what changed of a file: it counts as marked.
    pub fn delta(address: Address, position: usize, delta: &Delta) -> ChainNode {
        ChainNode { address, position, ino: delta.ino, offset: 0, flags: NodeFlags::FSYNC, is_delta: true }
    }
}

/// The chain behind a checkpoint.
#[derive(Debug)]
pub struct Chain<'m> {
    /// What was moved since the checkpoint: the nodes point to places of before.
    pub moves: &'m Translation,
    /// The nodes that count, in order.
    pub nodes: Vec<ChainNode>,
    /// Segments of the main area that the chain runs through, the one where it ends, and those of everything that its seals list: what
    /// has to stay for the chain to count again, should the power go before the next checkpoint.
    pub segments: BTreeSet<Segment>,
    /// Where it is broken: the nodes behind that which count all the same, in order.
    pub behind: Vec<ChainNode>,
    /// Whether seals tell which nodes count.
    pub is_sealed: bool,
    /// Blocks seen that belong to the chain.
    pub visited: usize,
    /// Nodes that do not count: their fsync was cut off.
    pub dropped: usize,
    /// What is damaged or cannot be read where the chain ends, though more was fsynced: that was promised to be there.
    pub broken: Option<Error>,
    /// What is wrong with the last block of Linux's chain, an inode that does not count: its fsync was cut off.
    pub torn: Option<Error>,
}

/// Where a chain ends.
struct End {
    /// The first block that is none of it, or does not count.
    at: Address,
    /// Blocks of the chain in front of that.
    position: usize,
    /// The block in front of that.
    last: Address,
    /// Blocks up to the last node that a seal made count.
    counted: usize,
    /// What of it cannot be read, or is not what its seal says.
    wrong: Option<Error>,
    /// The seal that says so.
    seal: Option<Seal>,
    /// The inode that says so, which is its own seal.
    node: Option<ChainNode>,
}

impl<'m> Chain<'m> {
    fn new(moves: &'m Translation) -> Chain<'m> {
        Chain {
            moves,
            nodes: Vec::new(),
            segments: BTreeSet::new(),
            behind: Vec::new(),
            is_sealed: false,
            visited: 0,
            dropped: 0,
            broken: None,
            torn: None,
        }
    }

    /// Finds out whether the chain is broken: whether more of it was there. `pending`: its last nodes, which no seal made count.
    fn look_behind_end(
        &mut self,
        start: &Start<'_, '_>,
        is_live: &dyn Fn(Address) -> bool,
        end: End,
        pending: &mut Vec<ChainNode>,
    ) {
        let is_unreadable = matches!(end.wrong, Some(Error::Device(_)));
        // Without a chain that leads there, the end of a segment is that of the log.
        let is_worth = self.visited > 0 || end.wrong.is_some();
        let mut places = vec![Behind { end: end.at, position: end.position, seal: end.seal, node: end.node, is_worth }];
        if end.at != end.last && end.at != end.last + 1 {
            // A last node with a damaged link leads astray.
            let position = end.position.saturating_sub(1);
            places.push(Behind { end: end.last, position, seal: None, node: None, is_worth: false });
        }
        for behind in places.into_iter().filter(|behind| start.geometry.in_main(behind.end)) {
            let followers = Followers::find(start, &behind, &self.segments, is_live);
            if followers.prove_durable(end.counted) || is_unreadable && followers.are_fsynced(2) {
                self.segments.extend(&followers.segments);
                self.is_sealed |= followers.are_fsynced(usize::MAX);
                // Without seals all that is in front counts.
                let pending = if self.is_sealed { std::mem::take(pending) } else { Vec::new() };
                self.behind = followers.counted(pending);
                let of_end = || damaged(end.at);
                self.broken = Some(end.wrong.unwrap_or_else(of_end));
                return;
            }
        }
    }
}

pub(super) fn damaged(address: Address) -> Error {
    Error::damaged("roll-forward chain", format!("block {address}"), "not what its fsync wrote")
}

/// Where to look, and what for.
pub struct Start<'a, 'm> {
    /// The device.
    pub device: &'a dyn BlockDevice,
    /// The volume's geometry.
    pub geometry: &'a Geometry,
    /// `cp_ver` of every node in the chain.
    pub version: u64,
    /// What was moved since the checkpoint.
    pub moves: &'m Translation,
    /// Address of the first.
    pub address: Address,
}

/// Follows the chain. `is_live`: whether the checkpoint uses the block at an address, which no block of a chain can be.
///
/// Whatever the blocks hold, the chain ends where it makes no sense, and at a block that cannot be read: a page that was being written when
/// power went can be either, and then its fsync had not returned. Only what lies behind tells it from one that went bad later.
pub fn scan<'m>(start: &Start<'_, 'm>, is_live: &dyn Fn(Address) -> bool) -> Chain<'m> {
    let Start { device, geometry, version, moves, .. } = *start;
    let mut chain = Chain::new(moves);
    let mut reader = Reader { device, first: Address::NULL, bytes: Vec::new(), last: Address::NULL };
    let mut seen = FxHashSet::default();
    let mut pending: Vec<ChainNode> = Vec::new();
    // Nodes of the current seal still to come, once one was seen.
    let mut sealed: Option<u32> = None;
    // Blocks up to the last node that a seal made count.
    let mut counted = 0;
    let mut budget = geometry.main_blocks() as usize;
    // Pages that deltas told: a checkpoint comes before they are more.
    let mut told = 0;
    let (mut at, mut last) = (start.address, start.address);
    // What cannot be read, or is not what its seal says.
    let (mut wrong, mut wrong_seal, mut wrong_node) = (None, None, None);
    let mut position = 0;
    while geometry.in_main(at) && seen.len() < CHAIN_MAX && seen.insert(at) {
        chain.segments.insert(geometry.segment_of(at));
        position = chain.visited;
        if is_live(at) {
            break;
        }
        let block = match reader.block(geometry, at) {
            Ok(block) => block,
            Err(error) => {
                wrong = Some(error);
                break;
            }
        };
        let Ok(node) = RawNode::ref_from_bytes(block) else { break };
        let footer = node.footer;
        if footer.cp_ver.get() != version {
            break;
        }
        chain.visited += 1;
        if is_seal(&footer) {
            sealed = Some(0);
            let Some(seal) = Seal::decode(block) else { break };
            let entries = entries_now(start, &seal, position);
            if !mutant::active(Mutant::SealIgnored)
                && let Some((address, error)) = wrong_in(start, &entries).into_iter().next()
            {
                wrong = Some(error.unwrap_or_else(|| damaged(address)));
                wrong_seal = Some(seal);
                break;
            }
            let is_end = mutant::active(Mutant::ChainCutShort) && !chain.nodes.is_empty();
            told += seal.delta.as_ref().map_or(0, Delta::pages);
            if seal.entries.len() > budget || told > PAGES_MAX || is_end {
                break;
            }
            budget -= seal.entries.len();
            chain.segments.extend(entries.iter().map(|entry| geometry.segment_of(entry.address)));
            chain.nodes.append(&mut pending);
            chain.nodes.extend(seal.delta.as_ref().map(|delta| ChainNode::delta(at, position, delta)));
            sealed = Some(seal.nodes);
            counted = position + 1;
        } else {
            let node = ChainNode::of(at, position, &footer);
            match sealed {
                Some(left) if left > 0 => {
                    chain.nodes.push(node);
                    sealed = Some(left - 1);
                    counted = position + 1;
                }
                Some(_) if node.is_marked_inode() => match inside::check(start, block, &node, budget) {
                    Ok(run) => {
                        budget -= run.len();
                        chain.segments.extend(run.iter().map(|address| geometry.segment_of(*address)));
                        chain.nodes.push(node);
                        counted = position + 1;
                    }
                    Err(Wrong { error, is_whole }) => {
                        (wrong, wrong_node) = (Some(error), is_whole.then_some(node));
                        break;
                    }
                },
                _ => pending.push(node),
            }
        }
        last = at;
        at = footer.next_blkaddr.into();
    }
    // Where the chain does not end at a block that was looked at, it leads out of the main area, or back.
    let end = End { at, position, last, counted, wrong, seal: wrong_seal, node: wrong_node };
    chain.is_sealed = sealed.is_some();
    chain.look_behind_end(start, is_live, end, &mut pending);
    if sealed.is_none() {
        // Linux's: it has no seals.
        chain.torn = torn_end(start, &pending, &chain.segments, is_live);
        if chain.torn.is_some() {
            chain.nodes.extend(pending.drain(..pending.len() - 1));
        } else {
            chain.nodes.append(&mut pending);
        }
    }
    // What a seal made count may lie in front of inodes that were their own.
    chain.nodes.sort_by_key(|node| node.position);
    chain.dropped = pending.len();
    chain
}

/// What is wrong with the last node of a chain without seals, if that is an inode which power cut while it was written: its footer is
/// there, not all of it is, and nobody fsynced anything behind it.
fn torn_end(
    start: &Start<'_, '_>,
    nodes: &[ChainNode],
    seen: &BTreeSet<Segment>,
    is_live: &dyn Fn(Address) -> bool,
) -> Option<Error> {
    let last = nodes.last().filter(|node| node.offset == 0 && node.flags.contains(NodeFlags::FSYNC))?;
    let block = read_block(start.device, last.address).ok()?;
    let inode = RawInode::ref_from_bytes(&block).ok()?;
    let error = validate(inode, last.ino, start.geometry).err()?;
    // All of it is there: what is wrong with it is not that power went.
    if is_whole(inode, start.geometry) {
        return None;
    }
    let behind = Behind { end: last.address, position: last.position, seal: None, node: None, is_worth: true };
    (!Followers::find(start, &behind, seen, is_live).are_fsynced(1)).then_some(error)
}

/// What a seal lists, where cleaning moved it since. `position` is the seal's in the chain.
pub(super) fn entries_now(start: &Start<'_, '_>, seal: &Seal, position: usize) -> Vec<Sealed> {
    let here = |entry: &Sealed| Sealed { address: start.moves.of_chain(entry.address, position), ..*entry };
    seal.entries.iter().map(here).collect()
}

/// What is not there of all that: addresses, with the device's error where it cannot be read.
pub(crate) fn wrong_in(start: &Start<'_, '_>, entries: &[Sealed]) -> Vec<(Address, Option<Error>)> {
    let Start { device, geometry, .. } = *start;
    // First: a hostile address may be the last that there is.
    let (inside, outside): (Vec<&Sealed>, Vec<&Sealed>) =
        entries.iter().partition(|entry| geometry.in_main(entry.address));
    let mut wrong: Vec<_> = outside.into_iter().map(|entry| (entry.address, None)).collect();
    let addresses: Vec<Address> = inside.iter().map(|entry| entry.address).collect();
    for (entry, found) in inside.into_iter().zip(crcs_of(device, &addresses)) {
        match found {
            Ok(found) if found == entry.crc => {}
            found => wrong.push((entry.address, found.err())),
        }
    }
    wrong
}

/// The CRCs of blocks of the main area; the device's error for one that cannot be read.
pub(super) fn crcs_of(device: &dyn BlockDevice, addresses: &[Address]) -> Vec<Result<u32>> {
    let mut found = Vec::with_capacity(addresses.len());
    let mut rest = addresses;
    while let Some(first) = rest.first() {
        let neighbours = rest.iter().zip(first.onward()).take_while(|(one, at)| *one == at).count();
        let (run, behind) = rest.split_at(neighbours);
        let all = read_blocks(device, *first, run.len()).ok();
        found.extend(run.iter().enumerate().map(|(index, address)| match &all {
            Some(all) => Ok(crc(&all[index * BLOCK_SIZE..][..BLOCK_SIZE])),
            None => read_block(device, *address).map(|block| crc(&block)),
        }));
        rest = behind;
    }
    found
}

/// Reads ahead where blocks follow one another.
struct Reader<'a> {
    device: &'a dyn BlockDevice,
    first: Address,
    bytes: Vec<u8>,
    last: Address,
}

impl Reader<'_> {
    fn block(&mut self, geometry: &Geometry, address: Address) -> Result<&[u8; BLOCK_SIZE]> {
        let held = (self.bytes.len() / BLOCK_SIZE) as u32;
        if !(self.first..self.first + held).contains(&address) {
            let within = geometry.offset_in_segment(address);
            let count = if address == self.last + 1 { READ_AHEAD.min(BLOCKS_PER_SEGMENT - within) } else { 1 };
            // What lies ahead need not be readable: the chain may end in front of it.
            let ahead = read_blocks(self.device, address, count as usize);
            self.bytes = ahead.or_else(|_| read_block(self.device, address))?;
            self.first = address;
        }
        self.last = address;
        let at = (address - self.first) as usize * BLOCK_SIZE;
        // The range was read just now, or is known to hold the block.
        Ok(self.bytes[at..at + BLOCK_SIZE].try_into().unwrap_or(&[0; BLOCK_SIZE]))
    }
}

#[cfg(test)]
mod tests {
    use basalt_device::MemoryDevice;

    use super::*;
    use crate::format::{FormatOptions, format};

    #[test]
    fn a_seal_may_list_any_address() {
        let device = MemoryDevice::new(64 << 20, 512);
        format(&device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| ())
            .unwrap();
        let geometry = Geometry::read(&device).unwrap().0;
        let moves = Translation::default();
        let start = Start { device: &device, geometry: &geometry, version: 1, moves: &moves, address: geometry.main };
        let inside = Sealed::of(geometry.main + geometry.main_blocks() - 1, &[0; BLOCK_SIZE]);
        assert!(wrong_in(&start, &[inside]).is_empty());
        for address in [Address::NULL, geometry.main - 1, Address::NEW] {
            assert!(!wrong_in(&start, &[Sealed { address, ..inside }]).is_empty(), "{address:#x}");
        }
    }
}
