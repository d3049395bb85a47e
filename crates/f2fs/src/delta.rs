//! fsync by a delta: one seal tells what changed of a file, and its nodes wait for a checkpoint. See [`layout::delta`](crate::layout::delta).
//!
//! A delta is for an fsync that changed pages, size and times, and nothing else; one seal holds it. Everything else is written in full, as
//! [`fsync`](crate::fsync) says: new files, changed modes and xattrs, more pages than fit.

use basalt_segments::{LogId, SegmentKind};
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::flushes::Flushes;
use crate::layout::delta::{Delta, Empty, PAGES_MAX, Written};
use crate::layout::node::XATTR_NODE_OFFSET;
use crate::layout::seal::{Seal, Sealed};
use crate::layout::{Address, FileBlock, Ino, Nid};
use crate::lock::F2fs;
use crate::mutant::{self, Mutant};
use crate::node::level::first_block;
use crate::node::path::{inode_slot, is_direct};
use crate::options::Deltas;
use crate::volume::Volume;

/// Where a delta takes a second flush and nodes do not: pages for each node that would be written, up to which a delta is worth it.
const PAGES_PER_NODE: u64 = 8;

/// What an fsync by a delta has come to.
pub(crate) enum Outcome {
    /// Nothing was to be written.
    Nothing,
    /// All is in the chain, and durable with this flush.
    Appended(u64),
    /// More waits than one seal can list: it is left to this flush, and then there is another try.
    LeftTo(u64),
    /// Only a checkpoint can make it durable.
    Checkpoint,
    /// No delta can tell it: nodes have to be written.
    InFull,
}

/// What changed of a file since it was last written or told.
struct Changes {
    /// Pages with a block are all in `placed`.
    delta: Delta,
    /// The nodes that changed.
    nodes: Vec<Nid>,
    /// The direct nodes that would be written otherwise, with the inode.
    dirty: usize,
    /// Size and times as they were last written or told; `None` if they did not change since.
    before: Option<Written>,
}

impl Changes {
    /// Whether there are none; with `data_only`, none but of times.
    fn is_empty(&self, data_only: bool) -> bool {
        let now = self.delta.written;
        let is_same = |before: Written| before == now || data_only && before.size == now.size;
        self.delta.pages() == 0 && self.before.is_none_or(is_same)
    }

    /// Adds what became of a page.
    fn note(&mut self, page: FileBlock, address: Address) {
        let delta = &mut self.delta;
        let is_reserved = match address {
            Address::NULL => false,
            Address::NEW => true,
            address => return delta.placed.push((page, address)),
        };
        match delta.empty.last_mut() {
            Some(run) if run.is_reserved == is_reserved && run.first + run.count == page => run.count += 1,
            _ => delta.empty.push(Empty { first: page, count: 1, is_reserved }),
        }
    }
}

impl F2fs {
    /// Keeps other F2FSs off the volume, where deltas are wanted for that price.
    pub(crate) fn allow_deltas(&self) -> Result<()> {
        let is_due = self.with_volume(|volume| {
            volume.options.delta == Deltas::On
                && volume.journal.is_on()
                && !volume.journal.is_guarded()
                && volume.is_writable()
        });
        if is_due {
            let _turn = self.take_turn();
            self.set_guard()?;
        }
        Ok(())
    }
}

impl Volume {
    /// Whether an fsync may write a delta: other F2FSs, which would miss it, are kept off the volume.
    fn may_tell(&self) -> bool {
        self.options.delta != Deltas::Off && self.journal.is_on() && self.journal.is_guarded() && !self.closing
    }

    /// Has a seal tell what changed of a file, if that can be. Its dirty pages are written, and nothing was left to a flush that is not over.
    pub(crate) fn append_delta(&mut self, ino: Ino, data_only: bool, flushes: &Flushes) -> Result<Outcome> {
        let trail = self.checkpoint.since().trail(ino);
        let is_known =
            trail.has_image || !self.checkpoint.since().is_created(ino) || mutant::active(Mutant::NewFileTold);
        if !self.may_tell() || !is_known {
            return Ok(Outcome::InFull);
        }
        let Some(changes) = self.untold_changes(ino)? else { return Ok(Outcome::InFull) };
        if changes.is_empty(data_only) && !trail.unmarked {
            return Ok(Outcome::Nothing);
        }
        let Changes { mut delta, nodes, dirty, .. } = changes;
        let since = self.checkpoint.since();
        if !delta.fits(0) {
            return Ok(Outcome::InFull);
        }
        let (told_nodes, pages) = (since.told_nodes_with(&nodes), delta.pages());
        let more_nodes = told_nodes - since.told_nodes_with(&[]);
        if since.told_pages() + pages > PAGES_MAX || self.would_cramp_recovery(1 + more_nodes as u32) {
            return Ok(Outcome::Checkpoint);
        }
        if !self.checkpoint.since().fits_seal(0) {
            return self.leave_unsealed_to_flush(flushes).map(Outcome::LeftTo);
        }
        let entries = list_first(&mut delta, self.entries_to_seal());
        if !delta.fits(entries.len()) {
            self.checkpoint.since_mut().put_back_unsealed(entries);
            if pages > PAGES_PER_NODE * dirty as u64 && self.checkpoint.since().fits_seal(dirty) {
                return Ok(Outcome::InFull);
            }
            return self.leave_unsealed_to_flush(flushes).map(Outcome::LeftTo);
        }
        let durable = self.checkpoint.since_mut().durable(|flush| flushes.has_succeeded(flush));
        self.append_seal_of(delta, entries, durable)?;
        for &nid in &nodes {
            if !mutant::active(Mutant::DeltaTargetsNotKept) {
                self.keep_targets(nid);
            }
            self.nodes.note_told(nid);
        }
        if self.checkpoint.since().is_closed() {
            return Ok(Outcome::Checkpoint);
        }
        let flush = flushes.next();
        self.checkpoint.since_mut().note_told(ino, &nodes, pages, flush);
        Ok(Outcome::Appended(flush))
    }

    /// Leaves all blocks that no seal lists to the next flush; returns its number.
    fn leave_unsealed_to_flush(&mut self, flushes: &Flushes) -> Result<u64> {
        self.writer.write_all(&*self.device)?;
        let flush = flushes.next();
        self.checkpoint.since_mut().leave_to_flush(flush);
        Ok(flush)
    }

    /// Puts a seal with a delta into the chain, and hands all that waits to the device.
    fn append_seal_of(&mut self, delta: Delta, entries: Vec<Sealed>, durable: u32) -> Result<()> {
        let log = LogId::of(SegmentKind::WarmNode);
        let (place, position) = self.place_seal()?;
        let next = self.next_address(log);
        let seal = Seal { nodes: 0, entries, durable, position: Some(position), delta: Some(delta) };
        let block = seal.encode(self.checkpoint.node_version(), next);
        self.record.wrote_node();
        self.writer.append(&*self.device, log.index(), place, &block.0)?;
        self.writer.write_all(&*self.device)
    }

    /// What changed of a file since it was last written or told; `None` if a delta cannot tell that.
    fn untold_changes(&mut self, ino: Ino) -> Result<Option<Changes>> {
        let flexible = self.geometry.flexible_inline_xattr();
        let raw = self.inode(ino)?;
        let (own, extra) = (raw.address_slots(flexible), raw.extra_size());
        let delta = Delta { ino, own, written: Written::of(raw), ..Delta::default() };
        let mut changes = Changes { delta, nodes: Vec::new(), dirty: 1, before: None };
        for nid in self.nodes.dirty_nodes(ino) {
            let node = self.node(nid)?;
            let offset = node.footer().offset();
            let (first, slots) = if nid == ino.nid() {
                let Some(before) = node.told_of_inode(flexible) else { return Ok(None) };
                changes.before = Some(before);
                (FileBlock::FIRST, inode_slot(extra, 0)..inode_slot(extra, own))
            } else if offset == XATTR_NODE_OFFSET {
                return Ok(None);
            } else if is_direct(offset) {
                let Some(first) = first_block(own, offset) else { return Ok(None) };
                (first, 0..4 * crate::layout::node::ADDRS_PER_NODE as usize)
            } else {
                // Recovery makes what leads to the nodes that it needs.
                continue;
            };
            changes.dirty += usize::from(nid != ino.nid());
            let Some(untold) = node.untold() else { return Ok(None) };
            for byte in untold.filter(|byte| slots.contains(byte)) {
                let address = node.address(byte);
                if address == Address::COMPRESS {
                    return Ok(None);
                }
                changes.note(first + ((byte - slots.start) / 4) as u32, address);
            }
            changes.nodes.push(nid);
        }
        Ok(Some(changes))
    }
}

/// Moves the pages whose blocks the seal lists to the front of its entries, and to the list of those.
fn list_first(delta: &mut Delta, entries: Vec<Sealed>) -> Vec<Sealed> {
    let pages: FxHashMap<Address, FileBlock> = delta.placed.iter().map(|&(page, at)| (at, page)).collect();
    let (own, others): (Vec<Sealed>, Vec<Sealed>) =
        entries.into_iter().partition(|entry| pages.contains_key(&entry.address));
    delta.listed = own.iter().filter_map(|entry| pages.get(&entry.address).copied()).collect();
    let listed: FxHashMap<Address, ()> = own.iter().map(|entry| (entry.address, ())).collect();
    delta.placed.retain(|(_, at)| !listed.contains_key(at));
    own.into_iter().chain(others).collect()
}
