//! Recovery: the state of the last checkpoint is brought to where the journal says its blocks are. In memory; the checkpoint that
//! follows makes it durable. Until that holds, nothing is written to a place that the journal or the chain refers to, so a power cut in
//! between leaves everything for the next attempt.
//!
//! 1. Every block that the checkpoint has and the journal moved is dead at its old place; segments that held nothing else are free.
//! 2. Logs leave the segments that the checkpoint has them in; segments that moved blocks lie in are held.
//! 3. The blocks are live at their last places, with the owners that the moves name; summaries are never asked, for they may be another
//!    use's by now.
//! 4. Nodes first, in the NAT; then the pointers to data in them.

use std::collections::{BTreeMap, BTreeSet};

use basalt_segments::{Durable, LogId, MainBlock, Segment, SegmentKind, SegmentState};

use super::area::{Area, Replay};
use super::moves::Owner;
use super::state::FoundAtOpen;
use super::translation::Translation;
use crate::error::{Error, Result};
use crate::layout::journal::{KIND_DATA, KIND_NODE, Move};
use crate::layout::summary::RawSummary;
use crate::layout::{Address, BLOCKS_PER_SEGMENT, Nid};
use crate::log::active::Owners;
use crate::log::active::{data_owner, node_owner};
use crate::mutant::{self, Mutant};
use crate::node::pointers::pointers;
use crate::options::Extent;
use crate::volume::Volume;

/// A block of the checkpoint that was moved.
#[derive(Clone, Copy)]
struct Moved {
    old: Address,
    last: Address,
    owner: Owner,
}

impl Volume {
    /// Applies the journal behind the last checkpoint, in memory; returns what rolling forward has to know. If it is damaged,
    /// whatever of it makes sense is applied. `finds_live`: whether the SIT cannot be believed.
    ///
    /// Errors: the device's; damage where a move contradicts the checkpoint, unless it is known to be damaged.
    pub(crate) fn recover_journal(&mut self, area: Area, extent: Extent, finds_live: bool) -> Result<FoundAtOpen> {
        let is_damaged = extent == Extent::RestOfJournal;
        let Replay { commits, moves } = self.read_journal(area, is_damaged)?;
        let translation = Translation::new(&moves);
        let mut found = FoundAtOpen::default();
        if finds_live {
            found.set_right = self.find_live(&translation, &mut found.owners)?;
        }
        if commits == 0 {
            return Ok(found);
        }
        let moved = self.moved_of_checkpoint(&moves, &translation)?;
        self.clear_old_places(&moved)?;
        self.leave_logs(&mut found.owners);
        for last in translation.last_places() {
            self.table.hold(self.geometry.segment_of(last));
        }
        self.put_at_last_places(&moved, &mut found.owners, is_damaged)?;
        found.translation = translation;
        self.checkpoint.note_change();
        Ok(found)
    }

    /// What the journal says. Each move is one that there can be.
    fn read_journal(&self, area: Area, is_damaged: bool) -> Result<Replay> {
        let version = self.checkpoint.node_version();
        let is_possible =
            |one: &Move| self.geometry.in_main(one.old) && self.geometry.in_main(one.new) && one.kind <= KIND_NODE;
        if is_damaged {
            let mut replay = area.read_whole_blocks(&*self.device, &self.geometry, version);
            replay.moves.retain(is_possible);
            return Ok(replay);
        }
        let replay = area.read_moves(&*self.device, &self.geometry, version)?;
        match replay.moves.iter().find(|one| !is_possible(one)) {
            Some(one) => Err(damaged(one.old, "a move outside the main area, or of a kind that is not known")),
            None => Ok(replay),
        }
    }

    /// Makes moved blocks live where they are, and leads what points to them there: first the NAT, then the nodes.
    fn put_at_last_places(&mut self, moved: &[Moved], owners: &mut Owners, is_damaged: bool) -> Result<()> {
        let mut left_out = 0;
        let mut pass = |result: Result<()>| match result {
            Err(Error::Damaged { .. }) if is_damaged => {
                left_out += 1;
                Ok(())
            }
            result => result,
        };
        let (nodes, data): (Vec<&Moved>, Vec<&Moved>) = moved.iter().partition(|one| one.owner.kind == KIND_NODE);
        // Nodes first: a summary that cannot be read is made anew from all that are live.
        for one in &nodes {
            pass(self.settle(one, owners))?;
        }
        for one in nodes {
            pass(self.point_nat(one))?;
        }
        let data = self.with_true_owners(data)?;
        for one in &data {
            pass(self.settle(one, owners))?;
        }
        for one in &data {
            pass(self.point_node(one))?;
        }
        if left_out > 0 {
            tracing::warn!(left_out, "moves that contradict the checkpoint are left out");
        }
        Ok(())
    }

    /// Moved blocks of data with the nodes that point to them. The journal has the owner of a dead block from a summary, which may be wrong: then
    /// all nodes are searched.
    fn with_true_owners(&mut self, data: Vec<&Moved>) -> Result<Vec<Moved>> {
        let mut data: Vec<Moved> = data.into_iter().copied().collect();
        let mut wrong: BTreeMap<Address, usize> = BTreeMap::new();
        for (at, one) in data.iter().enumerate() {
            match self.pointer_of(one.owner.nid, one.owner.index, one.old) {
                Err(Error::Damaged { .. }) => _ = wrong.insert(one.old, at),
                pointer => _ = pointer?,
            }
        }
        if wrong.is_empty() || mutant::active(Mutant::SummaryTrustedAfterReuse) {
            return Ok(data);
        }
        tracing::warn!(blocks = wrong.len(), "the journal has wrong owners of moved blocks: searching all nodes");
        for nid in Nid::all(Nid::FIRST..self.geometry.node_ids()) {
            let address = self.nat_entry(nid)?.address();
            if !self.geometry.in_main(address) {
                continue;
            }
            // One that cannot be read points to none of them, as far as anybody knows.
            let Ok(block) = self.read_block(address) else { continue };
            for (index, slot) in (0..).zip(pointers(&block.0, &self.geometry).unwrap_or_default()) {
                if let Some(at) = wrong.get(&Address::from(*slot)) {
                    data[*at].owner = Owner { nid, index, kind: KIND_DATA };
                }
            }
        }
        Ok(data)
    }

    /// The blocks that the checkpoint has live and the journal moved, with their last places.
    fn moved_of_checkpoint(&mut self, moves: &[Move], translation: &Translation) -> Result<Vec<Moved>> {
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for one in moves {
            let old = one.old;
            if !seen.insert(old) || !self.table.is_live(self.geometry.main_block(old)) {
                continue;
            }
            let mut owner = Owner { nid: one.nid, index: one.ofs_in_node.into(), kind: one.kind };
            if mutant::active(Mutant::SummaryTrustedAfterReuse) {
                owner = self.owner_by_summary(self.geometry.main_block(old), owner)?;
            }
            let Some(last) = translation.of_checkpoint(old) else { continue };
            found.push(Moved { old, last, owner });
        }
        Ok(found)
    }

    fn owner_by_summary(&mut self, block: MainBlock, owner: Owner) -> Result<Owner> {
        let summary = self.load_summary(block.segment())?;
        let entry = summary.entries[block.offset() as usize];
        Ok(Owner { nid: entry.nid(), index: u32::from(entry.ofs_in_node.get()), ..owner })
    }

    fn clear_old_places(&mut self, moved: &[Moved]) -> Result<()> {
        let mut segments = BTreeSet::new();
        for one in moved {
            let block = self.geometry.main_block(one.old);
            let time = self.table.modified(block.segment());
            if !self.table.clear_live(block, time) {
                return Err(damaged(one.old, "not live, but the checkpoint had it"));
            }
            segments.insert(block.segment());
        }
        let emptied: Vec<Segment> =
            segments.into_iter().filter(|&segment| self.table.state(segment) == SegmentState::Prefree).collect();
        self.table.release(&emptied, Durable::at_open());
        Ok(())
    }

    /// Takes all logs out of the segments that the checkpoint has them in: where none of its blocks needed to stay, those may be in any
    /// other use by now, and no move tells. What the logs knew of owners is written with the rest.
    fn leave_logs(&mut self, owners: &mut Owners) {
        for kind in SegmentKind::ALL {
            let log = &mut self.logs[LogId::of(kind)];
            log.left = true;
            (log.offset, log.rests) = (BLOCKS_PER_SEGMENT, false);
            let (segment, summary) = (log.segment, log.summary.clone());
            self.table.close_segment(segment);
            if self.table.live(segment) > 0 {
                owners.keep(segment, summary);
            } else {
                self.table.release(&[segment], Durable::at_open());
            }
        }
    }

    /// Makes a block live at its last place.
    fn settle(&mut self, one: &Moved, owners: &mut Owners) -> Result<()> {
        let block = self.geometry.main_block(one.last);
        let segment = block.segment();
        let is_node = one.owner.kind == KIND_NODE;
        if self.table.kind(segment).is_node() != is_node {
            if self.table.live(segment) > 0 {
                return Err(damaged(one.last, "moved to a segment of the other kind"));
            }
            self.table.set_kind(segment, if is_node { SegmentKind::ColdNode } else { SegmentKind::ColdData });
        }
        let owner = self.summary_entry(one.owner)?;
        self.set_owner(block, owner, owners)?;
        let now = self.mounted_seconds();
        if !self.table.set_live(block, now) {
            return Err(damaged(one.last, "two blocks were moved there, or one is live there already"));
        }
        Ok(())
    }

    pub(super) fn summary_entry(&mut self, owner: Owner) -> Result<RawSummary> {
        if owner.kind == KIND_NODE {
            return Ok(node_owner(owner.nid));
        }
        let version = self.nat_entry(owner.nid)?.version;
        Ok(data_owner(owner.nid, version, owner.index))
    }

    fn point_nat(&mut self, one: &Moved) -> Result<()> {
        let entry = self.nat_entry(one.owner.nid)?;
        if entry.address() != one.old {
            return Err(damaged(one.old, &format!("moved, but node {} is at {}", one.owner.nid, entry.block_addr)));
        }
        self.nat.set(one.owner.nid, crate::layout::nat::RawNatEntry { block_addr: one.last.into(), ..entry });
        Ok(())
    }

    fn point_node(&mut self, one: &Moved) -> Result<()> {
        let (byte, ino) = self.pointer_of(one.owner.nid, one.owner.index, one.old)?;
        self.node_mut(one.owner.nid)?.set_address(byte, one.last);
        self.forget_extent(ino)
    }
}

fn damaged(address: Address, found: &str) -> Error {
    Error::damaged("journal", format!("block {address}"), found)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use basalt_vfs::FileSystem;

    use super::*;
    use crate::options::OpenOptions;
    use crate::testing::{create, open_new, write};

    /// Recovery takes all logs out of the segments that the checkpoint has them in: nothing may record one there again.
    #[test]
    fn a_log_that_has_left_its_segment_does_not_rest_there() {
        let (_, fs) = open_new(64, 64 << 10, OpenOptions::default());
        let ino = create(&fs, "file");
        write(&fs, ino, 0..20, 1);
        fs.sync().unwrap();
        let volume = &mut *fs.volume.lock();
        let log = LogId::of(SegmentKind::WarmData);
        let segment = volume.logs[log].segment;
        (volume.logs[log].offset, volume.logs[log].rests) = (3, true);
        volume.leave_logs(&mut Owners::default());
        assert!(volume.logs[log].left && !volume.logs[log].rests);
        volume.prepare_logs().unwrap();
        assert_ne!(volume.logs[log].segment, segment);
    }
}
