//! Where the next block of a log goes, and giving blocks up: the only way to an address.

use basalt_segments::{Durable, SegmentKind};
use zerocopy::IntoBytes;

use super::active::ActiveLog;
use crate::error::{Error, Result};
use crate::layout::summary::{RawSummary, RawSummaryBlock, TYPE_DATA, TYPE_NODE};
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, RawBlock};
use crate::mutant::{self, Mutant};
use crate::since::Beginning;
use crate::volume::Volume;
use basalt_segments::MainBlock;

/// The owner that a log's summary gets for a block.
fn owner_in_summary(kind: SegmentKind, mut owner: RawSummary) -> RawSummary {
    if mutant::active(Mutant::SummaryOffByOne) && !kind.is_node() {
        owner.ofs_in_node.set(owner.ofs_in_node.get() + 1);
    }
    owner
}

impl Volume {
    /// Makes a log go on in another segment.
    pub(crate) fn leave_segment(&mut self, kind: SegmentKind) {
        self.logs[kind.index()].offset = BLOCKS_PER_SEGMENT;
    }

    /// Takes the next block of a log for `owner` and returns its address.
    pub(crate) fn allocate(&mut self, kind: SegmentKind, owner: RawSummary) -> Result<Address> {
        if kind == SegmentKind::WarmNode {
            self.look_behind_checkpoint();
        }
        if self.logs[kind.index()].offset >= BLOCKS_PER_SEGMENT {
            self.roll_log(kind)?;
        }
        let now = self.mounted_seconds();
        let log = &mut self.logs[kind.index()];
        let block = MainBlock::in_segment(log.segment, log.offset);
        if !self.table.set_live(block, now) {
            return Err(Error::damaged(
                "SIT",
                format!("segment {} block {}", log.segment, log.offset),
                "live ahead of the log that writes there",
            ));
        }
        log.summary.entries[log.offset as usize] = owner_in_summary(kind, owner);
        log.offset += 1;
        // Nobody has looked at what the next segment holds, and the chain would lead there.
        let ends_here = kind == SegmentKind::WarmNode && self.since.beginning == Beginning::Free;
        if self.logs[kind.index()].offset == BLOCKS_PER_SEGMENT && !ends_here {
            // That no segment is free shows when the next block is wanted; this one has its place.
            if let Err(error) = self.roll_log(kind)
                && error.is_failure()
            {
                return Err(error);
            }
        }
        Ok(self.geometry.address_of(block))
    }

    /// Writes the summary of a log's segment and goes on in a free one.
    pub(crate) fn roll_log(&mut self, kind: SegmentKind) -> Result<()> {
        let old = self.logs[kind.index()].segment;
        let has_left = self.logs[kind.index()].left;
        // First, because it may fail: no segment is taken that no log writes to.
        let address = self.geometry.summary_block(old);
        let mut block = RawBlock::zeroed();
        block.0.copy_from_slice(self.logs[kind.index()].summary.as_bytes());
        if !has_left && !mutant::active(Mutant::SummaryNotWritten) {
            self.write_metadata(address, &block.0)?;
        }
        let Some(next) = self.table.open_segment(kind, Some(old)) else {
            return Err(basalt_vfs::Error::NoSpace.into());
        };
        if !has_left {
            self.table.close_segment(old);
        }
        if kind == SegmentKind::WarmNode && !mutant::active(Mutant::ChainSegmentReused) {
            self.table.pin(next);
        }
        let kind_of_owner = if kind.is_node() { TYPE_NODE } else { TYPE_DATA };
        self.logs[kind.index()] =
            ActiveLog { segment: next, offset: 0, summary: RawSummaryBlock::empty(kind_of_owner), left: false };
        Ok(())
    }

    /// The address the log will write next: the link of the roll-forward chain.
    pub(crate) fn next_address(&self, kind: SegmentKind) -> Address {
        let log = &self.logs[kind.index()];
        self.geometry.in_segment(log.segment, log.offset.min(BLOCKS_PER_SEGMENT - 1))
    }

    /// Gives up the block at `address`: nothing newer than the last checkpoint refers to it.
    pub(crate) fn invalidate(&mut self, address: Address) -> Result<()> {
        if !self.geometry.in_main(address) {
            return Err(Error::damaged("node", format!("block address {address}"), "outside the main area"));
        }
        let now = self.mounted_seconds();
        if !self.table.clear_live(self.geometry.main_block(address), now) {
            return Err(Error::damaged("SIT", format!("block {address}"), "not live, but something refers to it"));
        }
        self.free_early(Mutant::SegmentReusedEarly);
        self.changed = true;
        Ok(())
    }

    /// Frees what became prefree, if this bug is planted.
    pub(crate) fn free_early(&mut self, planted: Mutant) {
        if mutant::active(planted) {
            let segments = self.table.prefree();
            self.table.release(&segments, Durable::without_device());
        }
    }

    /// Writes a block outside the logs: NAT, SIT, SSA, checkpoint.
    pub(crate) fn write_metadata(&mut self, address: Address, bytes: &[u8]) -> Result<()> {
        self.counters.metadata_blocks += (bytes.len() / BLOCK_SIZE) as u64;
        self.device.write_at(u64::from(address) * BLOCK_SIZE as u64, bytes)?;
        Ok(())
    }

    /// Reads a block that may still wait in the writer.
    pub(crate) fn read_block(&self, address: Address) -> Result<Box<RawBlock>> {
        let mut block = RawBlock::zeroed();
        match self.writer.pending(address) {
            Some(bytes) => block.0.copy_from_slice(bytes),
            None => self.device.read_at(u64::from(address) * BLOCK_SIZE as u64, &mut block.0)?,
        }
        Ok(block)
    }
}
