//! Where the next block of a log goes, and giving blocks up: the only way to an address.

use basalt_segments::{BlockTraits, Durable, LogId, MainBlock, Segment, SegmentKind, StaticPlacement};
use zerocopy::IntoBytes;

use super::active::ActiveLog;
use super::logs::empty_summary;
use super::slack::InSlack;
use crate::error::{Error, Result};
use crate::layout::summary::RawSummary;
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, RawBlock};
use crate::mutant::{self, Mutant};
use crate::volume::Volume;

/// Free segments from which on no log rests in slack: twice as many as there are logs.
const SEGMENTS_ENOUGH: u32 = 2 * LogId::RECORDED as u32;

/// The owner that a log's summary gets for a block.
fn owner_in_summary(kind: SegmentKind, mut owner: RawSummary) -> RawSummary {
    if mutant::active(Mutant::SummaryOffByOne) && !kind.is_node() {
        owner.ofs_in_node.set(owner.ofs_in_node.get() + 1);
    }
    owner
}

/// A log at the beginning of a free segment.
fn empty_log(segment: Segment, kind: SegmentKind) -> ActiveLog {
    ActiveLog {
        segment,
        offset: 0,
        slack: None,
        summary: empty_summary(kind),
        is_summary_written: false,
        rests: false,
        within_page: false,
        left: false,
    }
}

/// A log at the first place of slack.
fn slack_log(InSlack { segment, places, summary }: InSlack) -> ActiveLog {
    let (offset, slack) = (places.next_from(0), Some(places));
    ActiveLog {
        segment,
        offset,
        slack,
        summary,
        is_summary_written: true,
        rests: false,
        within_page: false,
        left: false,
    }
}

impl Volume {
    /// The log that a block goes to, by the placement.
    pub(crate) fn choose_log(&self, block: &BlockTraits) -> LogId {
        let log = self.placement.log(block);
        let Some(kind) = self.logs.kind(log).filter(|kind| kind.is_node() == block.node) else {
            return LogId::of(StaticPlacement::default().kind(block));
        };
        // A segment for each group is a luxury where they run short.
        let has_room =
            log.is_recorded() || self.logs[log].offset < BLOCKS_PER_SEGMENT || self.has_sections_for_more_logs();
        if has_room { log } else { LogId::of(kind) }
    }

    /// Whether there are free sections for logs beside the recorded ones.
    fn has_sections_for_more_logs(&self) -> bool {
        self.cleaner.has_sections_for_more_logs(&self.table, &self.load())
    }

    /// Gives a block its place, in the log that the placement chooses: the log and the address.
    pub(crate) fn place(&mut self, block: &BlockTraits, owner: RawSummary) -> Result<(LogId, Address)> {
        let log = self.choose_log(block);
        Ok((log, self.place_in(log, block, owner)?))
    }

    /// Gives a block its place in this log, whatever the placement would choose.
    pub(crate) fn place_in(&mut self, log: LogId, block: &BlockTraits, owner: RawSummary) -> Result<Address> {
        let place = self.take_block(log, owner)?;
        self.placement.note_written(block, place);
        self.tallies.note_placed(log, block, place);
        self.roll_when_full(log)?;
        Ok(self.geometry.address_of(place))
    }

    /// Makes a log go on in another segment.
    pub(crate) fn leave_segment(&mut self, log: LogId) {
        (self.logs[log].offset, self.logs[log].rests) = (BLOCKS_PER_SEGMENT, false);
    }

    /// Lets a log that opening found within a flash page go on at the next one. One of nodes goes on in another segment: the pack before tells a damaged
    /// journal of the NAT by the nodes that a log has written since, and other nodes may lie in the rest of the page.
    ///
    /// What is left out is dead, and said to be of `owner`, whose block comes next: a checkpoint that has blocks without one looks damaged.
    fn leave_page(&mut self, log: LogId, owner: RawSummary) {
        let page = self.options.flash_page.blocks();
        let active = &mut self.logs[log];
        if !std::mem::take(&mut active.within_page) {
            return;
        }
        if self.table.kind(active.segment).is_node() {
            active.offset = BLOCKS_PER_SEGMENT;
            return;
        }
        let left = active.offset;
        active.offset = left.next_multiple_of(page);
        active.summary.entries[left as usize..active.offset as usize].fill(owner);
    }

    /// Takes the next block of a log for `owner` and returns its address.
    pub(crate) fn allocate(&mut self, log: LogId, owner: RawSummary) -> Result<Address> {
        let place = self.take_block(log, owner)?;
        self.roll_when_full(log)?;
        Ok(self.geometry.address_of(place))
    }

    /// Takes the next block of a log for `owner`; [`roll_when_full`](Self::roll_when_full) comes next.
    fn take_block(&mut self, log: LogId, owner: RawSummary) -> Result<MainBlock> {
        if log == LogId::of(SegmentKind::WarmNode) {
            self.look_behind_checkpoint();
        }
        self.leave_page(log, owner);
        if self.logs[log].offset >= BLOCKS_PER_SEGMENT || self.logs[log].rests {
            self.roll_log(log)?;
        }
        let now = self.mounted_seconds();
        let active = &mut self.logs[log];
        let block = MainBlock::in_segment(active.segment, active.offset);
        if !self.table.set_live(block, now) {
            return Err(Error::damaged(
                "SIT",
                format!("segment {} block {}", active.segment, active.offset),
                "live ahead of the log that writes there",
            ));
        }
        let kind = self.table.kind(active.segment);
        active.summary.entries[active.offset as usize] = owner_in_summary(kind, owner);
        active.advance();
        if active.slack.is_some() {
            self.record.filled_slack();
        }
        active.is_summary_written = false;
        Ok(block)
    }

    /// Lets a recorded log that has filled its segment go on in another one at once: so the chain knows where it goes on.
    fn roll_when_full(&mut self, log: LogId) -> Result<()> {
        // Nobody has looked at what the next segment holds, and the chain would lead there.
        let ends_here = log == LogId::of(SegmentKind::WarmNode) && self.checkpoint.since().is_behind_open();
        if self.logs[log].offset == BLOCKS_PER_SEGMENT && log.is_recorded() && !ends_here {
            // That no segment is free shows when the next block is wanted; this one has its place.
            if let Err(error) = self.roll_log(log)
                && error.is_failure()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the summary of a log's segment and goes on in slack or in a free one.
    pub(crate) fn roll_log(&mut self, log: LogId) -> Result<()> {
        if log.is_recorded() && !self.has_sections_for_more_logs() {
            self.close_more_logs()?;
        }
        let (old, has_left) = (self.logs[log].segment, self.logs[log].left);
        let kind = self.logs.kind(log).unwrap_or(SegmentKind::WarmData);
        // First, because it may fail: no segment is taken that no log writes to.
        if !has_left && !mutant::active(Mutant::SummaryNotWritten) {
            self.write_summary(log)?;
        }
        let next = match self.take_slack(log, kind)? {
            Some(slack) => slack_log(slack),
            None => {
                let Some(next) = self.table.open_segment(kind, Some(old)) else {
                    return Err(basalt_vfs::Error::NoSpace.into());
                };
                empty_log(next, kind)
            }
        };
        if !has_left {
            self.table.close_segment(old);
            self.placement.note_sealed(log, old);
        }
        if log == LogId::of(SegmentKind::WarmNode) && !mutant::active(Mutant::ChainSegmentReused) {
            self.table.pin(next.segment);
        }
        if !kind.is_node() && next.slack.is_none() {
            self.tallies.begin(log, next.segment);
        }
        self.logs[log] = next;
        Ok(())
    }

    /// Writes the owners of what a log has put into its segment so far to the SSA, if it has changed since it was written there.
    fn write_summary(&mut self, log: LogId) -> Result<()> {
        if self.logs[log].is_summary_written {
            return Ok(());
        }
        let address = self.geometry.summary_block(self.logs[log].segment);
        let mut block = RawBlock::zeroed();
        block.0.copy_from_slice(self.logs[log].summary.as_bytes());
        self.write_metadata(address, &block.0)?;
        self.logs[log].is_summary_written = true;
        Ok(())
    }

    /// Before a checkpoint: recorded logs have room for a block, and the others, which it does not name, have their owners in the SSA.
    pub(crate) fn prepare_logs(&mut self) -> Result<()> {
        for log in SegmentKind::ALL.map(LogId::of) {
            if self.logs[log].rests {
                self.find_dead_place(log);
                // A checkpoint with logs that append is sooner told from one that was torn, so they rest only where segments are dear.
                if self.table.free_segments() >= SEGMENTS_ENOUGH {
                    self.leave_segment(log);
                }
            }
            if self.logs[log].offset >= BLOCKS_PER_SEGMENT {
                self.roll_log(log)?;
            }
        }
        for log in self.logs.more() {
            if self.logs[log].left {
                continue;
            }
            // What it wrote is dead: the checkpoint, which does not name the log, counts the segment as free.
            let is_empty = self.table.live(self.logs[log].segment) == 0;
            if !is_empty {
                self.write_summary(log)?;
            }
            if is_empty || self.logs[log].offset >= BLOCKS_PER_SEGMENT {
                self.close_log(log);
            }
        }
        Ok(())
    }

    /// Has a log that rests stand at a dead place: recovery may have found that the one it stood at is in use.
    fn find_dead_place(&mut self, log: LogId) {
        let active = &mut self.logs[log];
        let places = self.table.dead_places(active.segment);
        active.offset = places.next_from(active.offset);
        active.slack = Some(places);
    }

    /// Closes the segments of all logs that the checkpoint does not record. Where sections run short, cleaning needs what is left of them.
    fn close_more_logs(&mut self) -> Result<()> {
        for log in self.logs.more() {
            if !self.logs[log].left {
                self.write_summary(log)?;
                self.close_log(log);
            }
        }
        Ok(())
    }

    /// Closes the segment of a log whose summary is written. The log takes another one when it is needed.
    fn close_log(&mut self, log: LogId) {
        let segment = self.logs[log].segment;
        self.table.close_segment(segment);
        self.placement.note_sealed(log, segment);
        (self.logs[log].offset, self.logs[log].left) = (BLOCKS_PER_SEGMENT, true);
    }

    /// The address the log will write next: the link of the roll-forward chain.
    pub(crate) fn next_address(&self, log: LogId) -> Address {
        let log = &self.logs[log];
        self.geometry.in_segment(log.segment, log.offset.min(BLOCKS_PER_SEGMENT - 1))
    }

    /// Gives up the block at `address`: nothing newer than the last checkpoint refers to it.
    pub(crate) fn invalidate(&mut self, address: Address) -> Result<()> {
        self.invalidate_unplaced(address)?;
        let place = self.geometry.main_block(address);
        self.placement.note_dead(place);
        self.tallies.note_dead(place, self.table.kind(place.segment()));
        Ok(())
    }

    /// These segments are free: no log knows of blocks in them any more.
    pub(crate) fn forget_blocks_of(&mut self, freed: &[Segment]) {
        for &segment in freed {
            self.placement.note_free(segment);
            self.tallies.note_free(segment);
        }
    }

    /// As [`invalidate`](Self::invalidate) of a block that got its place by [`allocate`](Self::allocate) alone: a seal, or a dead copy.
    pub(crate) fn invalidate_unplaced(&mut self, address: Address) -> Result<()> {
        if !self.geometry.in_main(address) {
            return Err(Error::damaged("node", format!("block address {address}"), "outside the main area"));
        }
        let now = self.mounted_seconds();
        if !self.table.clear_live(self.geometry.main_block(address), now) {
            return Err(Error::damaged("SIT", format!("block {address}"), "not live, but something refers to it"));
        }
        self.free_early(Mutant::SegmentReusedEarly);
        self.checkpoint.note_change();
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
        self.record.wrote_metadata((bytes.len() / BLOCK_SIZE) as u64);
        self.device.write_at(u64::from(address) * BLOCK_SIZE as u64, bytes)?;
        Ok(())
    }

    /// The log that writes to a segment.
    pub(crate) fn log_in(&self, segment: Segment) -> Option<LogId> {
        let writes = |log: &LogId| {
            let log = &self.logs[*log];
            log.segment == segment && !log.left
        };
        self.logs.ids().find(writes)
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

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use basalt_segments::slack::FlashPage;
    use basalt_vfs::FileSystem;

    use super::*;
    use crate::layout::Nid;
    use crate::options::OpenOptions;
    use crate::testing::{create, open, open_new, write};

    /// A log that was found in slack: a checkpoint records it there where it could not have another segment, and nothing is written to it.
    #[test]
    fn a_log_rests_in_slack_where_no_segment_is_free() {
        let (_, fs) = open_new(64, 64 << 10, OpenOptions::default());
        let ino = create(&fs, "file");
        write(&fs, ino, 0..20, 1);
        fs.sync().unwrap();
        let volume = &mut *fs.volume.lock();
        let log = LogId::of(SegmentKind::WarmData);
        let segment = volume.logs[log].segment;
        // The place that the checkpoint named came into use by recovery.
        volume.logs[log].offset = 3;
        volume.logs[log].rests = true;
        let taken: Vec<Segment> =
            std::iter::from_fn(|| volume.table.open_segment(SegmentKind::WarmData, None)).collect();
        volume.prepare_logs().unwrap();
        let active = &volume.logs[log];
        assert_eq!((active.segment, active.offset, active.slack.is_some()), (segment, 20, true));
        assert!(volume.allocate(log, RawSummary::default()).is_err(), "it writes nothing there");
        taken.iter().for_each(|&segment| volume.table.close_segment(segment));
        volume.table.release(&taken, Durable::without_device());
        volume.prepare_logs().unwrap();
        let active = &volume.logs[log];
        assert!(active.segment != segment && active.slack.is_none() && !active.rests);
    }

    /// Blocks without an owner make a checkpoint look damaged.
    #[test]
    fn what_a_log_leaves_of_a_page_has_an_owner() {
        let (device, fs) = open_new(64, 0, OpenOptions::default());
        let ino = create(&fs, "file");
        write(&fs, ino, 0..6, 1);
        fs.close().unwrap();
        let fs =
            open(&device, OpenOptions { flash_page: FlashPage::of_bytes(16 << 10).unwrap(), ..OpenOptions::default() });
        write(&fs, ino, 6..7, 2);
        let mut volume = fs.volume.lock();
        volume.write_back_all().unwrap();
        let active = &volume.logs[LogId::of(SegmentKind::WarmData)];
        assert_eq!(active.offset, 9, "two blocks were left");
        let owners: Vec<Nid> = active.summary.entries[..9].iter().map(RawSummary::nid).collect();
        assert_eq!(owners, [Nid::new(ino as u32); 9]);
    }
}
