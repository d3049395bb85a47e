//! Owners of blocks that recovery makes live: what the segments' summaries have to say of them.

use std::collections::btree_map::Entry;

use zerocopy::{FromBytes, IntoBytes};

use basalt_segments::{LogId, Segment};

use super::active::Owners;
use crate::error::{Error, Result};
use crate::layout::RawBlock;
use crate::layout::summary::{RawSummary, RawSummaryBlock, TYPE_DATA, TYPE_NODE};
use crate::volume::Volume;
use basalt_segments::MainBlock;

impl Volume {
    /// The log that writes to a segment.
    pub(crate) fn log_in(&self, segment: Segment) -> Option<LogId> {
        let writes = |log: &LogId| {
            let log = &self.logs[*log];
            log.segment == segment && !log.left
        };
        self.logs.ids().find(writes)
    }

    /// Writes the summaries of segments that got live blocks: what they had for those may never have reached the device.
    pub(crate) fn write_owners(&mut self, owners: Owners) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        for (segment, summary) in owners.changed {
            let address = self.geometry.summary_block(segment);
            let mut block = RawBlock::zeroed();
            block.0.copy_from_slice(summary.as_bytes());
            self.write_metadata(address, &block.0)?;
        }
        Ok(())
    }

    /// Who owns a block, by its segment's summary.
    pub(crate) fn owner_of(&mut self, block: MainBlock, owners: &Owners) -> Result<RawSummary> {
        let (segment, offset) = (block.segment(), block.offset() as usize);
        if let Some(log) = self.log_in(segment) {
            return Ok(self.logs[log].summary.entries[offset]);
        }
        match owners.changed.get(&segment) {
            Some(summary) => Ok(summary.entries[offset]),
            None => Ok(self.load_summary(segment)?.entries[offset]),
        }
    }

    /// Records who owns a block that becomes live.
    pub(crate) fn set_owner(&mut self, block: MainBlock, owner: RawSummary, owners: &mut Owners) -> Result<()> {
        let (segment, offset) = (block.segment(), block.offset() as usize);
        if let Some(log) = self.log_in(segment) {
            // Written when the log moves on.
            let log = &mut self.logs[log];
            log.summary.entries[offset] = owner;
            log.is_summary_written = false;
            return Ok(());
        }
        let summary = match owners.changed.entry(segment) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) if self.table.live(segment) == 0 => place.insert(RawSummaryBlock::empty(TYPE_DATA)),
            Entry::Vacant(place) => place.insert(self.load_summary(segment)?),
        };
        summary.entry_type = if self.table.kind(segment).is_node() { TYPE_NODE } else { TYPE_DATA };
        summary.entries[offset] = owner;
        Ok(())
    }

    /// A segment's summary, as it is on the device.
    pub(crate) fn load_summary(&self, segment: Segment) -> Result<Box<RawSummaryBlock>> {
        let block = self.read_block(self.geometry.summary_block(segment))?;
        let mut summary = RawSummaryBlock::empty(TYPE_DATA);
        *summary = RawSummaryBlock::read_from_bytes(&block.0)
            .map_err(|_| Error::damaged("summary", format!("segment {segment}"), "short"))?;
        Ok(summary)
    }
}
