//! fsync by a delta: one seal tells what changed of a file, and its nodes wait for a checkpoint. See [`layout::delta`](crate::layout::delta).
//!
//! A delta is for an fsync that changed pages, size and times, and nothing else; one seal holds it. Everything else is written in full, as
//! [`fsync`](crate::fsync) says: new files, changed modes and xattrs, more pages than fit.

use std::ops::Range;

use basalt_segments::{LogId, SegmentKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::flushes::Flushes;
use crate::layout::delta::{Delta, Empty, PAGES_MAX, Written};
use crate::layout::node::{ADDRS_PER_NODE, XATTR_NODE_OFFSET};
use crate::layout::seal::{Seal, Sealed};
use crate::layout::{Address, FileBlock, Ino, Nid};
use crate::lock::F2fs;
use crate::mutant::{self, Mutant};
use crate::node::level::first_block;
use crate::node::nat::is_new;
use crate::node::path::{inode_slot, is_direct};
use crate::options::Deltas;
use crate::unsealed::Unlisted;
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
        let is_known = trail.has_image || !self.checkpoint.since().is_created(ino);
        if !self.may_tell() || !is_known {
            return Ok(Outcome::InFull);
        }
        let Some(changes) = self.untold_changes(ino)? else { return Ok(Outcome::InFull) };
        if changes.is_empty(data_only) && !trail.unmarked {
            return Ok(Outcome::Nothing);
        }
        if self.run_inside(ino)?.is_some() {
            // As many blocks, and the checkpoint does not write the inode again.
            return Ok(Outcome::InFull);
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
        let unlisted = self.entries_to_seal();
        let entries = list_first(&mut delta, sealed(&unlisted));
        if !delta.fits(entries.len()) {
            self.checkpoint.since_mut().put_back_unsealed(unlisted);
            if pages > PAGES_PER_NODE * dirty as u64 && self.checkpoint.since().fits_seal(dirty) {
                return Ok(Outcome::InFull);
            }
            return self.leave_unsealed_to_flush(flushes).map(Outcome::LeftTo);
        }
        let (place, position) = match self.place_seal() {
            Ok(placed) => placed,
            Err(error) => {
                self.checkpoint.since_mut().put_back_unsealed(unlisted);
                return Err(error);
            }
        };
        let durable = self.checkpoint.since_mut().durable(|flush| flushes.has_succeeded(flush));
        let seal = Seal { nodes: 0, entries, durable, position: Some(position), delta: Some(delta) };
        self.append_seal(place, &seal)?;
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
    pub(crate) fn leave_unsealed_to_flush(&mut self, flushes: &Flushes) -> Result<u64> {
        self.writer.write_all(&*self.device)?;
        let flush = flushes.next();
        if mutant::active(Mutant::OverflownSealForgotten) {
            self.checkpoint.since_mut().take_unsealed();
        } else {
            self.checkpoint.since_mut().leave_to_flush(flush);
        }
        Ok(flush)
    }

    /// Puts a seal at its place in the chain, and hands all that waits to the device.
    fn append_seal(&mut self, place: Address, seal: &Seal) -> Result<()> {
        let log = LogId::of(SegmentKind::WarmNode);
        let block = seal.encode(self.checkpoint.node_version(), self.next_address(log));
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
        let mut changed = self.nodes.dirty_nodes(ino);
        changed.retain(|&nid| !self.nodes.is_told(nid));
        for nid in changed {
            let node = self.node(nid)?;
            let offset = node.footer().offset();
            let slots = if nid == ino.nid() {
                let Some(before) = node.told_of_inode(flexible) else { return Ok(None) };
                changes.before = Some(before);
                inode_slot(extra, 0)..inode_slot(extra, own)
            } else if !is_direct(offset) {
                // Recovery makes what leads to the nodes that it needs.
                continue;
            } else if offset == XATTR_NODE_OFFSET {
                return Ok(None);
            } else {
                changes.dirty += 1;
                0..4 * ADDRS_PER_NODE as usize
            };
            let first = first_block(own, offset).unwrap_or(FileBlock::FIRST);
            if !self.note_untold(nid, first, slots, &mut changes)? {
                return Ok(None);
            }
        }
        Ok(Some(changes))
    }

    /// Adds what nothing tells of the addresses in these bytes of a dirty node, the first of which is that of page `first`; false if a delta
    /// cannot tell it.
    fn note_untold(&mut self, nid: Nid, first: FileBlock, slots: Range<usize>, changes: &mut Changes) -> Result<bool> {
        let node = self.node(nid)?;
        let Some(untold) = node.untold() else { return Ok(false) };
        let untold: Vec<(u32, Address)> = untold
            .filter(|byte| slots.contains(byte))
            .map(|byte| (((byte - slots.start) / 4) as u32, node.address(byte)))
            .collect();
        let is_compressed = untold.iter().any(|(_, address)| *address == Address::COMPRESS);
        // A new node is written once, so that rescue finds one to lead to what is told.
        if is_compressed || !untold.is_empty() && is_new(&self.nat_entry(nid)?) {
            return Ok(false);
        }
        untold.into_iter().for_each(|(index, address)| changes.note(first + index, address));
        changes.nodes.push(nid);
        Ok(true)
    }
}

/// What a seal says of these blocks.
pub(crate) fn sealed(entries: &[Unlisted]) -> Vec<Sealed> {
    entries.iter().map(|one| one.sealed).collect()
}

/// Moves the pages whose blocks the seal lists to the front of its entries, and to the list of those.
fn list_first(delta: &mut Delta, entries: Vec<Sealed>) -> Vec<Sealed> {
    let pages: FxHashMap<Address, FileBlock> = delta.placed.iter().map(|&(page, at)| (at, page)).collect();
    let (own, others): (Vec<Sealed>, Vec<Sealed>) =
        entries.into_iter().partition(|entry| pages.contains_key(&entry.address));
    delta.listed = own.iter().filter_map(|entry| pages.get(&entry.address).copied()).collect();
    let listed: FxHashSet<Address> = own.iter().map(|entry| entry.address).collect();
    delta.placed.retain(|(_, at)| !listed.contains(at));
    own.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(page: u32) -> FileBlock {
        FileBlock::new(page)
    }

    #[test]
    fn neighbours_without_a_block_are_one_run_holes_apart_from_reservations() {
        let mut changes = Changes { delta: Delta::default(), nodes: Vec::new(), dirty: 1, before: None };
        let (hole, reserved, block) = (Address::NULL, Address::NEW, Address::new(5_000));
        for (at, address) in
            [(3, hole), (4, hole), (5, reserved), (6, reserved), (7, block), (8, reserved), (10, reserved)]
        {
            changes.note(page(at), address);
        }
        let runs: Vec<_> =
            changes.delta.empty.iter().map(|run| (run.first.get(), run.count, run.is_reserved)).collect();
        assert_eq!(runs, [(3, 2, false), (5, 2, true), (8, 1, true), (10, 1, true)]);
        assert_eq!((changes.delta.placed.as_slice(), changes.delta.pages()), (&[(page(7), block)][..], 7));
    }

    #[test]
    fn nothing_changed_if_no_page_did_and_size_and_times_are_as_told() {
        let told = Written { size: 9, times: [(1, 0), (2, 0), (3, 0)] };
        let later = Written { times: [(1, 0), (2, 0), (4, 0)], ..told };
        let longer = Written { size: 10, ..told };
        let changes = |before, written| Changes {
            delta: Delta { written, ..Delta::default() },
            nodes: Vec::new(),
            dirty: 1,
            before,
        };
        let empty = |before, now| [false, true].map(|data_only| changes(before, now).is_empty(data_only));
        assert_eq!(empty(None, told), [true, true]);
        assert_eq!(empty(Some(told), told), [true, true]);
        assert_eq!(empty(Some(told), later), [false, true]);
        assert_eq!(empty(Some(told), longer), [false, false]);
        let mut punched = changes(Some(told), told);
        punched.note(page(1), Address::NULL);
        assert!(!punched.is_empty(true));
    }

    #[test]
    fn entries_of_the_files_own_pages_come_first_and_tell_them() {
        let entry = |at: u32| Sealed { address: Address::new(at), crc: at };
        let mut delta = Delta {
            placed: [(7, 100), (8, 200), (9, 300)].map(|(at, address)| (page(at), Address::new(address))).to_vec(),
            ..Delta::default()
        };
        // One is of another file, and one of the file's blocks was moved: its entry was led to where the copy has one, too.
        let entries = list_first(&mut delta, [500, 300, 100, 300].map(entry).to_vec());
        assert_eq!(entries.iter().map(|one| one.address.get()).collect::<Vec<_>>(), [300, 100, 300, 500]);
        assert_eq!(delta.listed, [9, 7, 9].map(page));
        assert_eq!(delta.placed, [(page(8), Address::new(200))]);
    }
}
