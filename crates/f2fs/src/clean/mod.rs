//! Cleaning: moves the live blocks of sections away, so that the next checkpoint frees them.
//!
//! | file | subject |
//! |---|---|
//! | here | moving live blocks: found by the segment's summary, verified against the node that should point to them |
//! | `journaled` | what moves otherwise where a journal commits it |
//! | `partial` | moving no more than what splits the slack of segments (partial garbage collection) |
//! | `plan` | following the plan of cleaning, in the foreground and while idle |
//! | `pace` | what the volume tells [`basalt_segments::cleaning`], which decides when, which and how much |
//!
//! Driven from `maintenance`. A section may be left half-way: what was moved is dead there, the rest is live, and both are true.

mod journaled;
mod pace;
mod partial;
mod plan;

use zerocopy::FromBytes;

use basalt_segments::{BlockTraits, Reason, Section, Segment};

use crate::blocks::read_blocks;
use crate::error::{Error, Result};
use crate::journal::moves::Owner;
use crate::layout::journal::KIND_DATA;
use crate::layout::summary::{RawSummary, RawSummaryBlock};
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid, RawBlock};
use crate::mutant::{self, Mutant};
use crate::node::owner::not_owned;
use crate::node::path::Slot;
use crate::options::{Reclaim, VictimReads};
use crate::statistics::CleaningCause;
use crate::volume::Volume;

/// How far live blocks may be apart to be read in one request, with the dead ones between them, where several are.
const GAP: u32 = 16;

/// How far the cleaning of a section came.
pub(crate) struct Part {
    /// Live blocks that were moved.
    pub moved: u32,
    /// The block of the section to go on from; `None` when there was nothing left to move.
    pub next: Option<u32>,
}

impl Volume {
    /// Moves every live block of a section to the logs. Active segments stay as they are, and so does a section with a damaged block:
    /// its live blocks tell.
    pub(crate) fn clean_section(&mut self, section: Section, cause: CleaningCause) -> Result<()> {
        let start = self.clock.uptime();
        let result = self.clean_part(section, 0, u32::MAX, cause);
        self.record.spent_copying(cause, self.clock.uptime().saturating_sub(start));
        result?;
        self.record.cleaned_section(cause);
        Ok(())
    }

    /// Moves up to `most` live blocks of a section to the logs, from block `from` of it on.
    pub(crate) fn clean_part(&mut self, section: Section, from: u32, most: u32, cause: CleaningCause) -> Result<Part> {
        let result = self.move_part(section, from, most, cause);
        self.free_early(Mutant::VictimFreedEarly);
        match result {
            Err(error) if error.is_from_reading() => {
                // What is wrong with one block must not stop the volume: this section is left alone.
                tracing::warn!(%section, %error, "cleaning cannot read a block; the section is left as it is");
                self.cleaner.avoid(section);
                Ok(Part { moved: 0, next: None })
            }
            result => result,
        }
    }

    fn move_part(&mut self, section: Section, mut from: u32, most: u32, cause: CleaningCause) -> Result<Part> {
        let mut moved = 0;
        while moved < most {
            let Some((segment, live)) = self.table.movable(section, from, most - moved) else {
                return Ok(Part { moved, next: None });
            };
            self.move_blocks(segment, &live, cause)?;
            moved += live.len() as u32;
            from = self.table.position_in_section(segment, live.last().map_or(0, |last| last + 1));
        }
        Ok(Part { moved, next: Some(from) })
    }

    /// Moves these blocks of a segment, which rise: live ones and, where there is a journal, pre-invalid ones.
    fn move_blocks(&mut self, segment: Segment, live: &[u32], cause: CleaningCause) -> Result<()> {
        let base = self.geometry.in_segment(segment, 0);
        let summary = self.read_block(self.geometry.summary_block(segment))?;
        self.record.read_victim(cause, 1);
        let summary = RawSummaryBlock::ref_from_bytes(&summary.0)
            .map_err(|_| Error::damaged("summary", format!("segment {segment}"), "short"))?;
        let wanted = self.without_copied(base, live);
        let wanted = if self.moves_in_memory(segment) {
            self.move_nodes_in_memory(base, summary, wanted, cause)?
        } else {
            wanted
        };
        if self.writer.holds(base..base + BLOCKS_PER_SEGMENT) {
            self.writer.write_all(&*self.device)?;
        }
        near_each_other(&wanted, self.read_gap()).try_for_each(|near| self.move_near(segment, summary, near, cause))
    }

    /// How far live blocks may be apart to be read in one request.
    fn read_gap(&self) -> u32 {
        match self.options.victim_reads {
            // By the device's times, as the plan of what to copy is.
            VictimReads::Runs if self.options.reclaim == Reclaim::Partial => self.options.times.read_gap(),
            VictimReads::Runs => GAP,
            VictimReads::Single => 0,
        }
    }

    /// Reads blocks that lie near each other in one request, and moves them.
    fn move_near(
        &mut self,
        segment: Segment,
        summary: &RawSummaryBlock,
        near: &[u32],
        cause: CleaningCause,
    ) -> Result<()> {
        let (Some(&first), Some(&last)) = (near.first(), near.last()) else { return Ok(()) };
        let base = self.geometry.in_segment(segment, 0);
        let are_nodes = self.table.kind(segment).is_node();
        let bytes = match read_blocks(&*self.device, base + first, (last - first + 1) as usize) {
            // Perhaps only what lies between cannot be read, and nobody needs that.
            Err(error) if error.is_from_reading() && near.len() > 1 => {
                return near.chunks(1).try_for_each(|one| self.move_near(segment, summary, one, cause));
            }
            read => read?,
        };
        self.record.read_victim(cause, u64::from(last - first + 1));
        for &offset in near {
            let from = if mutant::active(Mutant::WrongBlockCopied) { first } else { offset };
            let at = (from - first) as usize * BLOCK_SIZE;
            // A slice of one block's length.
            let block = <&[u8; BLOCK_SIZE]>::try_from(&bytes[at..at + BLOCK_SIZE])
                .map_err(|_| Error::damaged("summary", format!("segment {segment}"), "short read"))?;
            let owner = summary.entries[offset as usize];
            if are_nodes && self.journal.is_on() {
                self.move_node_as_it_is(owner.nid(), base + offset, block, cause)?;
            } else if are_nodes {
                self.move_node(owner.nid(), base + offset, Some(block), cause)?;
            } else if self.table.is_live(self.geometry.main_block(base + offset)) {
                self.move_data(&owner, base + offset, block, cause)?;
            } else {
                self.copy_pre_invalid_data(owner, base + offset, block, cause)?;
            }
        }
        Ok(())
    }

    /// Of these nodes of a segment, has those that are in memory written again; returns those that have to be read.
    fn move_nodes_in_memory(
        &mut self,
        base: Address,
        summary: &RawSummaryBlock,
        nodes: Vec<u32>,
        cause: CleaningCause,
    ) -> Result<Vec<u32>> {
        let nid = |offset: u32| summary.entries[offset as usize].nid();
        let (in_memory, rest) = nodes.into_iter().partition::<Vec<u32>, _>(|&offset| self.nodes.contains(nid(offset)));
        in_memory.into_iter().try_for_each(|offset| self.move_node(nid(offset), base + offset, None, cause))?;
        Ok(rest)
    }

    /// Of the blocks of a segment that have to be moved, those that were not copied already.
    fn without_copied(&mut self, base: Address, blocks: &[u32]) -> Vec<u32> {
        let mut wanted = Vec::with_capacity(blocks.len());
        for &offset in blocks {
            let block = self.geometry.main_block(base + offset);
            if mutant::active(Mutant::PreInvalidNotCopied) && !self.table.is_live(block) {
                self.table.forget_pre_invalid(block);
            } else if !self.journal.has_left(base + offset) {
                wanted.push(offset);
            }
        }
        wanted
    }

    /// Has a node written again; `block` is what was read of it, `None` where it is in memory.
    fn move_node(
        &mut self,
        nid: Nid,
        address: Address,
        block: Option<&[u8; BLOCK_SIZE]>,
        cause: CleaningCause,
    ) -> Result<()> {
        let entry = self.nat_entry(nid)?;
        if entry.address() != address {
            return Err(not_owned("NAT", nid, address));
        }
        if let Some(&block) = block {
            self.keep_node(nid, &entry, Box::new(RawBlock(block)))?;
        }
        self.node_mut(nid)?;
        self.record.copied_block(cause);
        Ok(())
    }

    fn move_data(
        &mut self,
        owner: &RawSummary,
        address: Address,
        block: &[u8; BLOCK_SIZE],
        cause: CleaningCause,
    ) -> Result<()> {
        let (nid, index) = (owner.nid(), u32::from(owner.ofs_in_node.get()));
        let (byte, ino) = self.pointer_of(nid, index, address)?;
        let traits = self.data_traits(ino)?;
        let index_in_file = self.file_block(ino, nid, index)?;
        let traits = BlockTraits { cold: true, index: index_in_file.get(), reason: Reason::Cleaning, ..traits };
        let slot = Slot { nid, byte, index, count: 1 };
        // Nothing durable refers to it.
        let was_fresh = self.table.is_fresh(self.geometry.main_block(address));
        self.write_data_block(ino, index_in_file, slot, &traits, block)?;
        if self.journal.is_on() && !was_fresh {
            let new = self.node(nid)?.address(byte);
            self.note_move(address, new, Owner { nid, index, kind: KIND_DATA }, block);
        }
        if mutant::active(Mutant::MovedBlockForgotten) {
            self.node_mut(nid)?.set_address(byte, address);
        }
        self.record.copied_block(cause);
        self.record.copied_data(cause);
        Ok(())
    }
}

/// The parts of a rising list of blocks that are read in one request each: blocks no more than `gap` apart; none with another one if it is 0.
fn near_each_other(blocks: &[u32], gap: u32) -> impl Iterator<Item = &[u32]> {
    blocks.chunk_by(move |before, after| after - before <= gap)
}

#[cfg(test)]
mod tests {
    use super::{GAP, near_each_other};

    #[test]
    fn blocks_up_to_the_gap_apart_are_read_together() {
        let parts = |gap| near_each_other(&[3, 4, 20, 37, 38], gap).collect::<Vec<_>>();
        assert_eq!(parts(GAP), [&[3, 4, 20][..], &[37, 38]]);
        assert_eq!(parts(0), [[3], [4], [20], [37], [38]]);
        assert_eq!(near_each_other(&[], GAP).count(), 0);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests_of_moves {
    use basalt_device::BlockDevice;
    use basalt_segments::{LogId, SegmentKind};
    use basalt_vfs::FileSystem;

    use super::*;
    use crate::options::OpenOptions;
    use crate::testing::{create, open_new, places, write};

    /// A block that waits to be written is moved as it is in memory: the device has something else there.
    #[test]
    fn the_last_block_of_a_segment_is_moved_as_it_waits() {
        let (device, fs) = open_new(64, 64 << 10, OpenOptions::default());
        let ino = create(&fs, "file");
        write(&fs, ino, 0..511, 1);
        fs.sync().unwrap();
        let first = places(&fs, ino, 0..1)[0];
        // To the end of the segment, one block in a run of its own.
        let last = {
            write(&fs, ino, 511..1024, 2);
            fs.volume.lock().write_back_all().unwrap();
            let all = places(&fs, ino, 0..1024);
            all.into_iter()
                .filter(|place| place.segment() == first.segment())
                .max_by_key(|place| place.offset())
                .unwrap()
        };
        let at = (0..1024).find(|&index| places(&fs, ino, index..index + 1)[0] == last).unwrap();
        fs.sync().unwrap();
        let volume = &mut *fs.volume.lock();
        let address = volume.geometry.address_of(last);
        let log = LogId::of(SegmentKind::HotData).index();
        volume.writer.append(&*volume.device, log, address, &[9; BLOCK_SIZE]).unwrap();
        device.write_at(u64::from(address) * BLOCK_SIZE as u64, &[7; BLOCK_SIZE]).unwrap();
        let section = volume.table.section_of(last.segment());
        volume.clean_section(section, CleaningCause::Background).unwrap();
        let new =
            volume.address(crate::layout::Ino::new(ino as u32), crate::layout::FileBlock::new(at as u32)).unwrap();
        assert_ne!(new, address);
        assert_eq!(volume.read_block(new).unwrap().0, [9; BLOCK_SIZE]);
    }
}
