//! Rolling forward, in memory: nothing is written here but what the cache pushes out, and that to segments which the chain does
//! not touch. So a power cut before the checkpoint that follows leaves everything for the next attempt.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use basalt_segments::{LogId, Segment, SegmentKind, SegmentState};
use basalt_vfs::FileKind;

use super::scan::{Chain, Start, scan};
use crate::error::{Error, Result};
use crate::features;
use crate::journal::state::FoundAtOpen;
use crate::journal::translation::Translation;
use crate::layout::checkpoint::CheckpointFlags;
use crate::layout::inode::{InlineFlags, RawInode};
use crate::layout::nat::RawNatEntry;
use crate::layout::node::{ADDRS_PER_NODE, NodeFlags, RawNode, XATTR_NODE_OFFSET};
use crate::layout::{Address, Ino, RawBlock};
use crate::mutant::{self, Mutant};
use crate::node::inode;
use crate::node::nat;
use crate::node::path::is_direct;
use crate::volume::Volume;

/// What rolling forward did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Recovered {
    /// Files whose fsynced state came back.
    pub files: usize,
    /// Blocks behind the checkpoint that belong to its chain, whether or not they counted.
    pub visited: usize,
}

/// What the chain has of one file: where its last nodes are, up to its last fsync mark.
#[derive(Debug, Default)]
pub struct Traces {
    /// The chain's index of the last block of the inode.
    pub inode: Option<usize>,
    /// The same for the other nodes, by offset in the tree.
    pub nodes: BTreeMap<u32, usize>,
    /// The chain's indices of deltas that tell of it, rising.
    pub deltas: Vec<usize>,
    /// Whether the name must be recovered.
    pub named: bool,
}

impl Volume {
    /// Whether rolling forward is safe: nothing about the volume is unknown, or known to be broken.
    pub(crate) fn may_roll_forward(&self) -> bool {
        let broken =
            CheckpointFlags::DISABLED | CheckpointFlags::RESIZE | CheckpointFlags::ERROR | CheckpointFlags::FSCK;
        !self.options.rescue
            && self.geometry.features.difference(features::WRITABLE).is_empty()
            && !self.checkpoint.raw().flags().intersects(broken)
    }

    /// Recovers in memory what was fsynced after the checkpoint. For a repair also what counts behind damage; else the volume is read-only
    /// then, and shows what is in front of it.
    ///
    /// Errors: the device's, damage in what an fsync mark vouches for, `NoSpace`; the volume in memory is of no use then.
    pub(crate) fn roll_forward(&mut self, found: &mut FoundAtOpen, is_repair: bool) -> Result<Recovered> {
        let mut chain = self.scan_chain(&found.translation);
        if let Some(error) = chain.broken.take_if(|_| is_repair && !chain.is_sealed) {
            // Nothing tells which nodes behind it count: a search does better.
            return Err(error);
        }
        if is_repair {
            found.set_right.broken = chain.broken.take().map(|error| error.to_string());
            let behind = std::mem::take(&mut chain.behind);
            chain.visited += behind.len();
            chain.nodes.extend(behind);
        } else if let Some(error) = chain.broken.take() {
            // What is in front of it is shown. To write would be to give up what is behind it.
            self.options.read_only = true;
            self.warnings
                .push(format!("mounted read-only: some of what was fsynced last cannot be recovered: {error}; `basalt rescue` finds it"));
        }
        if let Some(error) = &chain.torn {
            self.warnings.push(format!("the last fsync was cut off, and is left out: {error}"));
        }
        let mut recovered = Recovered { files: 0, visited: chain.visited };
        if chain.visited == 0 {
            return Ok(recovered);
        }
        // Nothing the chain needs is written over before the checkpoint: its segments are as if they had just been emptied.
        chain.segments.iter().for_each(|&segment| self.hold_segment(segment));
        let files = self.known_files(traces(&chain), &chain, is_repair)?;
        for (ino, file) in &files {
            self.hold_targets(*ino, file, &chain)?;
        }
        for (ino, file) in &files {
            if !self.is_inode(*ino)? {
                self.revive_inode(*ino, file, &chain)?;
            }
        }
        for (ino, file) in &files {
            self.recover_file(*ino, file, &chain, &mut found.owners)?;
            if file.named
                && !mutant::active(Mutant::NameNotRecovered)
                && let Some(at) = file.inode
            {
                self.recover_name(*ino, &chain, at)?;
            }
            recovered.files += 1;
        }
        Ok(recovered)
    }

    /// The chain behind the last checkpoint.
    fn scan_chain<'m>(&self, moves: &'m Translation) -> Chain<'m> {
        let (segment, offset) = self.checkpoint.chain_start();
        let start = Start {
            device: &*self.device,
            geometry: &self.geometry,
            version: self.checkpoint.node_version(),
            moves,
            address: self.geometry.in_segment(segment, offset),
        };
        scan(&start, &|address| self.table.is_live(self.geometry.main_block(address)))
    }

    /// Leaves out files that neither the checkpoint nor an fsync with a name has: they were never to be found.
    /// A repair searches then: the NAT may have lost them.
    fn known_files(
        &mut self,
        files: Vec<(Ino, Traces)>,
        chain: &Chain<'_>,
        is_repair: bool,
    ) -> Result<Vec<(Ino, Traces)>> {
        let mut known = Vec::with_capacity(files.len());
        for (ino, file) in files {
            if ino == Ino::NONE || ino.nid() >= self.geometry.node_ids() {
                return Err(Error::damaged("node", "roll-forward chain", format!("inode {ino}")));
            }
            if self.is_inode(ino)? {
                known.push((ino, file));
            } else if file.named && file.inode.is_some() {
                if nat::in_use(&self.nat_entry(ino.nid())?) {
                    return Err(Error::damaged("NAT", format!("node {ino}"), "in use, but fsynced as a new inode"));
                }
                known.push((ino, file));
            } else if is_repair {
                return Err(Error::damaged("NAT", format!("node {ino}"), "fsynced, and has no entry"));
            } else {
                tracing::warn!(
                    ino = ino.get(),
                    chain = chain.nodes.len(),
                    "fsynced nodes of an inode that is not there are left out"
                );
            }
        }
        Ok(known)
    }

    /// Keeps everything that the nodes of a file point to from being written over, and checks it.
    fn hold_targets(&mut self, ino: Ino, file: &Traces, chain: &Chain<'_>) -> Result<()> {
        let flexible = self.geometry.flexible_inline_xattr();
        if let Some(at) = file.inode {
            let image = self.chain_inode(ino, chain, at)?;
            let raw = as_inode(&image);
            if !raw.is_inline(InlineFlags::DATA) {
                raw.addresses(flexible).iter().try_for_each(|slot| self.hold_target(ino, Address::from(*slot)))?;
            }
        }
        for (offset, &at) in &file.nodes {
            let image = self.chain_node(ino, *offset, chain, at)?;
            if *offset != XATTR_NODE_OFFSET {
                as_node(&image).slots.iter().try_for_each(|slot| self.hold_target(ino, Address::from(*slot)))?;
            }
        }
        let told = self.told(ino, file, chain)?;
        told.pages.values().try_for_each(|&address| self.hold_target(ino, address))
    }

    fn hold_target(&mut self, ino: Ino, address: Address) -> Result<()> {
        if address == Address::NULL || address == Address::NEW {
            return Ok(());
        }
        if address == Address::COMPRESS || !self.geometry.in_main(address) {
            return Err(Error::damaged(
                "node",
                format!("inode {ino}"),
                format!("fsynced with block address {address}"),
            ));
        }
        let segment = self.geometry.segment_of(address);
        let live_nodes = self.table.kind(segment).is_node() && self.table.live(segment) > 0;
        let of_node_log = self.logs.of_nodes().iter().any(|log| log.segment == segment && !log.left);
        if live_nodes || of_node_log {
            let found = format!("fsynced with data in segment {segment}, which holds nodes");
            return Err(Error::damaged("node", format!("inode {ino}"), found));
        }
        self.hold_segment(segment);
        Ok(())
    }

    /// Keeps a segment from being written to until the next checkpoint, by whatever log.
    fn hold_segment(&mut self, segment: Segment) {
        self.table.hold(segment);
        if let Some(log) = self.log_in(segment)
            && self.table.state(segment) == SegmentState::Active
            && !self.logs[log].rests
            && !(log == LogId::of(SegmentKind::WarmNode) && mutant::active(Mutant::ChainOverwritten))
        {
            self.leave_segment(log);
        }
    }

    /// Gives an inode that the checkpoint does not have its number back, with nothing in it.
    fn revive_inode(&mut self, ino: Ino, file: &Traces, chain: &Chain<'_>) -> Result<()> {
        let Some(at) = file.inode else { return Ok(()) };
        let mut image = self.chain_inode(ino, chain, at)?;
        self.counts.expect_room(1)?;
        let flexible = self.geometry.flexible_inline_xattr();
        let raw = RawInode::mut_from_bytes(&mut image.0).map_err(|_| short(ino))?;
        raw.addresses_mut(flexible).fill(U32::new(0));
        raw.i_inline &= !(InlineFlags::DATA | InlineFlags::DATA_EXIST).bits();
        raw.i_nid.fill(U32::new(0));
        raw.i_links.set(1);
        raw.i_blocks.set(1);
        raw.i_size.set(0);
        raw.i_xattr_nid.set(0);
        self.adopt_inode(ino, image)
    }

    fn adopt_inode(&mut self, ino: Ino, image: Box<RawBlock>) -> Result<()> {
        let version = self.nat_entry(ino.nid())?.version;
        self.nat.set(ino.nid(), RawNatEntry { version, ino: U32::new(ino.get()), block_addr: Address::NEW.into() });
        self.put_new_node(ino.nid(), image);
        self.counts.add_inode();
        Ok(())
    }

    /// The block of an inode in the chain, checked. What it points to is where cleaning moved that since.
    pub(super) fn chain_inode(&self, ino: Ino, chain: &Chain<'_>, at: usize) -> Result<Box<RawBlock>> {
        let mut image = self.chain_block(ino, 0, chain.nodes[at].address)?;
        let raw = as_inode(&image);
        inode::validate(raw, ino, &self.geometry)?;
        if FileKind::from_mode(u32::from(raw.i_mode.get())) != Some(FileKind::Regular) {
            return Err(Error::damaged("inode", format!("inode {ino}"), "fsynced, but no regular file"));
        }
        if !raw.is_inline(InlineFlags::DATA) {
            let raw = RawInode::mut_from_bytes(&mut image.0).map_err(|_| short(ino))?;
            follow_moves(raw.addresses_mut(self.geometry.flexible_inline_xattr()), chain, at);
        }
        Ok(image)
    }

    /// A direct or xattr node in the chain, checked to be the one it is taken for. What it points to is where cleaning moved that since.
    pub(super) fn chain_node(&self, ino: Ino, offset: u32, chain: &Chain<'_>, at: usize) -> Result<Box<RawBlock>> {
        let mut image = self.chain_block(ino, offset, chain.nodes[at].address)?;
        if offset != XATTR_NODE_OFFSET {
            let raw = RawNode::mut_from_bytes(&mut image.0).map_err(|_| short(ino))?;
            follow_moves(&mut raw.slots, chain, at);
        }
        Ok(image)
    }

    fn chain_block(&self, ino: Ino, offset: u32, address: Address) -> Result<Box<RawBlock>> {
        let image = self.read_block(address)?;
        let footer = &as_node(&image).footer;
        if !footer.is_at(ino, offset) || footer.is_inode().is_none() || !is_direct(offset) {
            return Err(Error::damaged("node", format!("block {address}"), format!("fsynced as {footer:?}")));
        }
        Ok(image)
    }
}

/// The files with an fsync mark, in the order of their last.
fn traces(chain: &Chain<'_>) -> Vec<(Ino, Traces)> {
    let mut last: FxHashMap<Ino, usize> = FxHashMap::default();
    for (at, node) in chain.nodes.iter().enumerate().filter(|(_, node)| node.flags.contains(NodeFlags::FSYNC)) {
        last.insert(node.ino, at);
    }
    let mut files: FxHashMap<Ino, Traces> = FxHashMap::default();
    for (at, node) in chain.nodes.iter().enumerate() {
        if last.get(&node.ino).is_none_or(|&end| at > end) {
            continue;
        }
        let file = files.entry(node.ino).or_default();
        if node.is_delta {
            file.deltas.push(at);
        } else if node.offset == 0 {
            file.inode = Some(at);
            file.named |= node.flags.contains(NodeFlags::FSYNC | NodeFlags::DENTRY);
        } else {
            file.nodes.insert(node.offset, at);
        }
    }
    let mut files: Vec<(Ino, Traces)> = files.into_iter().collect();
    files.sort_unstable_by_key(|(ino, _)| last.get(ino).copied());
    files
}

/// Where the nodes of a chain are that count: of each file the last ones up to its last fsync mark.
pub(crate) fn vouched<'a>(chain: &'a Chain<'_>) -> impl Iterator<Item = Address> + 'a {
    let of_file = |(_, file): (Ino, Traces)| file.inode.into_iter().chain(file.nodes.into_values());
    traces(chain).into_iter().flat_map(of_file).map(|at| chain.nodes[at].address)
}

/// Leads addresses in a node of the chain to where cleaning moved what is there.
fn follow_moves(addresses: &mut [U32], chain: &Chain<'_>, at: usize) {
    if !chain.moves.is_empty() {
        let position = chain.nodes[at].position;
        addresses.iter_mut().for_each(|one| *one = chain.moves.of_chain(Address::from(*one), position).into());
    }
}

/// A block as a node. Sizes are asserted in `layout`.
pub(super) fn as_node(block: &RawBlock) -> &RawNode {
    RawNode::ref_from_bytes(&block.0).expect("a block is the size of a node")
}

/// A block as an inode.
pub(super) fn as_inode(block: &RawBlock) -> &RawInode {
    RawInode::ref_from_bytes(&block.0).expect("a block is the size of an inode")
}

fn short(ino: Ino) -> Error {
    Error::damaged("inode", format!("inode {ino}"), "short")
}

/// Addresses in a direct node.
pub(super) const PER_NODE: usize = ADDRS_PER_NODE as usize;
