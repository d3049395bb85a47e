//! Slack for the logs: dead blocks of segments that are in use, which are written again (slack space recycling).
//!
//! It is handed out in two steps. At a moment when nobody reads dead blocks, nor writes them, and no checkpoint is under way, segments are
//! [reserved](Volume::reserve_slack). A log that has filled its segment takes one later, at any moment. So no log waits for such a moment,
//! and what dies in a segment after it was reserved is not written before the next.
//!
//! With [`Reclaim::Partial`] there is more to it. Segments whose holes are worth it are reserved first, as a [batch](SlackBatch); what splits
//! the holes is copied (in `clean`); a commit makes its places free of need; and then they are handed out.

use basalt_segments::slack::{DeviceTimes, SlackBatch, SlackPlan, are_better_emptied};
use basalt_segments::{
    BLOCKS_PER_SEGMENT, LogId, MainBlock, Promise, Quiet, Section, Segment, SegmentKind, Slack, SlackPlaces,
};
use zerocopy::FromBytes;

use super::stock::ENOUGH;
use crate::error::{Error, Result};
use crate::layout::Nid;
use crate::layout::summary::{JOURNAL_SIZE, RawSummaryBlock, TYPE_DATA, TYPE_NODE};
use crate::mutant::{self, Mutant};
use crate::options::Reclaim;
use crate::volume::Volume;

/// Blocks of slack that a segment has at least: each costs a summary that is read and written.
const LEAST: u32 = BLOCKS_PER_SEGMENT / 16;
/// Blocks that are copied in one go while nobody waits.
const IDLE_STEP: u32 = 128;

/// What keeps slack ready for the logs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SlackStep {
    /// Nothing now.
    Wait,
    /// Reserving the slack of these segments, of data and of nodes, and handing out what is ready.
    HandOut([Vec<Segment>; 2]),
    /// Copying so many blocks out of the way.
    Copy(u32),
    /// A commit of what was copied; whether it is waited for.
    Commit { wait: bool },
    /// A checkpoint: nothing is slack, because the last one needs what is dead.
    Checkpoint,
}

/// Who keeps slack ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlackPace {
    /// Whoever is about to change something, in proportion to what is written.
    Change,
    /// Nobody waits: there is time for all of it.
    Idle,
}

/// A segment in whose slack a log goes on.
pub(super) struct InSlack {
    pub segment: Segment,
    pub places: SlackPlaces,
    /// The owners of what the segment holds.
    pub summary: Box<RawSummaryBlock>,
}

impl Volume {
    /// Whether logs may fill slack at all.
    pub(crate) fn fills_slack(&self) -> bool {
        self.options.reclaim != Reclaim::Clean && self.is_writable()
    }

    /// Whether they should now: free segments run short.
    pub(crate) fn wants_slack(&self) -> bool {
        self.fills_slack() && self.cleaner.wants_slack(&self.table, &self.load())
    }

    /// What comes next to keep slack ready.
    pub(crate) fn next_slack_step(&mut self, pace: SlackPace) -> SlackStep {
        if !self.fills_slack() {
            return SlackStep::Wait;
        }
        // Cleaning needs its segments, and the room that copies would take.
        if self.slack.batch.is_some() && self.lacks_room_for_copies() {
            self.give_batch_up();
        }
        if let Some(batch) = &self.slack.batch {
            return self.next_step_of(batch, pace);
        }
        let is_data_missing = self.missing_slack()[0] > 0;
        match self.find_slack() {
            Some(found) if found.iter().any(|found| !found.is_empty()) => SlackStep::HandOut(found),
            Some(_) if is_data_missing && self.runs_short() && self.slack.may_be_had() => self.step_without_slack(),
            _ => SlackStep::Wait,
        }
    }

    /// What comes next where logs are short of slack, and none is found: a checkpoint, if it brings enough that they are not. Otherwise cleaning must not
    /// count on slack, where it has the choice.
    fn step_without_slack(&mut self) -> SlackStep {
        let skip = |section| self.leaves_out(section);
        if self.is_held_by_checkpoint() && self.table.with_dead_places(false, LEAST, ENOUGH, &skip) == ENOUGH {
            return SlackStep::Checkpoint;
        }
        if self.options.reclaim == Reclaim::Partial {
            self.slack.note_none();
        }
        SlackStep::Wait
    }

    /// Whether nothing of a section is slack, because it is cleaned, or is to be left alone.
    fn leaves_out(&self, section: Section) -> bool {
        self.cleaner.avoids(section) || self.cleaner.empties(section)
    }

    /// Whether logs that write data may find no slack before more is ready.
    fn runs_short(&self) -> bool {
        self.slack.runs_short(|slack| self.table.is_promised(slack))
    }

    fn lacks_room_for_copies(&self) -> bool {
        let load = self.load();
        load.is_low(&self.table) || !load.has_workspace(&self.table)
    }

    fn next_step_of(&self, batch: &SlackBatch, pace: SlackPace) -> SlackStep {
        let is_waited_for = pace == SlackPace::Idle || self.runs_short() && self.wants_slack();
        if batch.is_ready(&self.table) || self.is_ready_too_early(batch) {
            SlackStep::HandOut([Vec::new(), Vec::new()])
        } else if batch.is_copied(&self.table) {
            // As long as nobody waits for it, somebody's flush will come by; and without a journal, a checkpoint.
            let comes_by = !self.journal.is_on() || self.journal.sections_committing().is_some();
            if comes_by && !is_waited_for { SlackStep::Wait } else { SlackStep::Commit { wait: is_waited_for } }
        } else {
            let due = match pace {
                SlackPace::Change => batch.due(self.load().demand(), is_waited_for),
                SlackPace::Idle => IDLE_STEP,
            };
            if due == 0 { SlackStep::Wait } else { SlackStep::Copy(due) }
        }
    }

    /// Blocks of slack that wait for a commit, and for nothing else.
    pub(crate) fn slack_awaiting_commit(&self) -> u64 {
        self.slack.batch.as_ref().map_or(0, |batch| batch.gain_of_commit(&self.table))
    }

    /// A commit, or a checkpoint, holds: hands out what is ready by it, before anybody else commits for the same.
    pub(crate) fn note_slack_committed(&mut self, quiet: &Quiet) -> Result<()> {
        let Some(batch) = &mut self.slack.batch else { return Ok(()) };
        batch.note_commit(&self.table);
        if batch.is_ready(&self.table) {
            self.write_runs()?;
            self.hand_out_batch(quiet);
        }
        Ok(())
    }

    /// Hands what waits in the runs of logs to the device: it would land on what is written to the same place by another.
    fn write_runs(&mut self) -> Result<()> {
        if !mutant::active(Mutant::PendingOverSlack) {
            self.writer.write_all(&*self.device)?;
        }
        Ok(())
    }

    /// The segments whose slack is to be reserved next, of data and of nodes: where it is wanted, and there is little. `None` where it is not.
    fn find_slack(&mut self) -> Option<[Vec<Segment>; 2]> {
        let missing = self.missing_slack();
        if missing == [0, 0] || !self.wants_slack() {
            return None;
        }
        let skip = |section| self.leaves_out(section);
        let find = |of_nodes| self.table.most_slack(of_nodes, LEAST, missing[usize::from(of_nodes)], &skip);
        let found = [false, true].map(find);
        if found.iter().all(Vec::is_empty) {
            self.note_search(&found);
        }
        Some(found)
    }

    /// Segments whose slack has to be searched for, of data and of nodes.
    fn missing_slack(&self) -> [usize; 2] {
        let written = self.load().written;
        [false, true].map(|of_nodes| self.slack.missing(of_nodes, written))
    }

    /// What was searched for is reserved now, or was not found.
    fn note_search(&mut self, found: &[Vec<Segment>; 2]) {
        let (missing, written) = (self.missing_slack(), self.load().written);
        for (of_nodes, found) in [false, true].into_iter().zip(found) {
            let missing = missing[usize::from(of_nodes)];
            if missing > 0 {
                self.slack.note_search(of_nodes, found.len() >= missing, written);
            }
        }
    }

    /// What was found now cannot be reserved now: the next search comes a little later.
    pub(crate) fn postpone_slack_search(&mut self) {
        let written = self.load().written;
        [false, true].into_iter().for_each(|of_nodes| self.slack.note_search(of_nodes, true, written));
    }

    /// Reserves the slack of these segments, of data and of nodes, for the logs; planned by these times of the device. Where emptying segments is better,
    /// none is reserved, and what was is given back: then the answer is false.
    pub(crate) fn reserve_slack(
        &mut self,
        found: [Vec<Segment>; 2],
        times: &DeviceTimes,
        quiet: &Quiet,
    ) -> Result<bool> {
        self.slack.retain(|slack| self.table.is_promised(slack));
        let is_search = found.iter().any(|found| !found.is_empty());
        if is_search {
            self.note_search(&found);
            if self.is_cleaning_better_for(&found[0], times) {
                self.return_slack();
                return Ok(false);
            }
        }
        self.write_runs()?;
        self.hand_out_batch(quiet);
        if !is_search {
            return Ok(true);
        }
        let mut batch = Vec::new();
        for (of_nodes, segments) in [false, true].into_iter().zip(found) {
            self.forget_needed_in(&segments);
            // Since it was found, one may have been freed and taken for the other sort of blocks, or be about to be emptied.
            let is_left = |segment: &Segment| {
                self.table.kind(*segment).is_node() == of_nodes
                    && !self.cleaner.empties(self.table.section_of(*segment))
            };
            let segments: Vec<Segment> = segments.into_iter().filter(is_left).collect();
            let (planned, as_they_are) = self.plan_slack(segments, times);
            batch.extend(planned);
            let reserved: Vec<Slack> =
                as_they_are.into_iter().filter_map(|segment| self.table.reserve_slack(segment, quiet)).collect();
            self.forget_unsealed_in(&reserved);
            self.slack.add(of_nodes, reserved);
        }
        if !batch.is_empty() {
            self.slack.batch = Some(SlackBatch::new(batch, self.load().demand()));
        }
        Ok(true)
    }

    /// Whether segments of data like these are better emptied than filled; where there are none, it is as before.
    fn is_cleaning_better_for(&mut self, found: &[Segment], times: &DeviceTimes) -> bool {
        if self.options.reclaim != Reclaim::Partial || found.is_empty() {
            return self.slack.prefers_cleaning();
        }
        let dead: Vec<[u64; 8]> = found.iter().map(|&segment| self.table.dead_after_commit(segment)).collect();
        let is_better = are_better_emptied(&dead, self.table.flash_page(), times);
        self.slack.note_preference(is_better, self.load().written);
        is_better
    }

    /// Reserves those of these segments out of which something is to be copied first, with the plans. The others are to be filled as they are.
    fn plan_slack(&mut self, segments: Vec<Segment>, times: &DeviceTimes) -> (Vec<(Promise, SlackPlan)>, Vec<Segment>) {
        let is_planned = self.options.reclaim == Reclaim::Partial && self.slack.batch.is_none();
        let is_planned = is_planned && !self.lacks_room_for_copies();
        if !is_planned || segments.is_empty() {
            return (Vec::new(), segments);
        }
        let sharing = segments.len() as u32;
        let (mut planned, mut as_they_are) = (Vec::new(), Vec::new());
        for segment in segments {
            let dead = self.table.dead_after_commit(segment);
            let plan = SlackPlan::best_in_pages(&dead, self.table.flash_page(), times, sharing);
            if plan.islands.is_empty() {
                as_they_are.push(segment);
            } else {
                planned.extend(self.table.reserve(segment).map(|promise| (promise, plan)));
            }
        }
        (planned, as_they_are)
    }

    /// Hands out the slack of segments that are ready.
    fn hand_out_batch(&mut self, quiet: &Quiet) {
        let Some(batch) = self.slack.batch.take() else { return };
        let is_too_early = self.is_ready_too_early(&batch);
        if !batch.is_ready(&self.table) && !is_too_early {
            self.slack.batch = Some(batch);
            return;
        }
        let promises = batch.into_promises();
        if is_too_early {
            promises.iter().for_each(|promise| self.forget_all_needed_in(&[promise.segment()]));
        }
        let slack: Vec<Slack> =
            promises.into_iter().filter_map(|promise| self.table.hand_out_slack(promise, quiet)).collect();
        // Once for all: it looks at every block that is in no seal.
        self.forget_unsealed_in(&slack);
        let (nodes, data) = slack.into_iter().partition(|slack| self.table.kind(slack.segment()).is_node());
        self.slack.add(false, data);
        self.slack.add(true, nodes);
    }

    /// Makes victims of all that is reserved, where cleaning finds no others. Whether there was something.
    pub(crate) fn return_slack(&mut self) -> bool {
        let slack = self.slack.take_all();
        let was_reserved = slack.iter().any(|slack| self.table.is_promised(slack));
        slack.into_iter().for_each(|slack| self.table.return_slack(slack));
        self.give_batch_up() || was_reserved
    }

    /// Makes victims of the segments that are being made ready. Whether there were some.
    pub(crate) fn give_batch_up(&mut self) -> bool {
        let promises = self.slack.batch.take().map(SlackBatch::into_promises).unwrap_or_default();
        let were_reserved = promises.iter().any(|promise| self.table.holds(promise));
        promises.into_iter().for_each(|promise| self.table.break_promise(promise));
        were_reserved
    }

    /// No seal lists what lies in slack: it is dead, nobody misses it, and a seal would tell the wrong bytes of what is written there next.
    fn forget_unsealed_in(&mut self, reserved: &[Slack]) {
        if mutant::active(Mutant::SealListsSlack) {
            return;
        }
        let geometry = &self.geometry;
        self.checkpoint.since_mut().forget_unsealed(|address| {
            let block = geometry.main_block(address);
            reserved.iter().any(|slack| slack.segment() == block.segment() && slack.has_place(block.offset()))
        });
    }

    /// Takes what is dead in these segments for slack, needed or not, if this bug is planted.
    fn forget_needed_in(&mut self, segments: &[Segment]) {
        if mutant::active(Mutant::NeededIsSlack) {
            self.forget_all_needed_in(segments);
        }
    }

    fn forget_all_needed_in(&mut self, segments: &[Segment]) {
        for segment in segments {
            let blocks = (0..BLOCKS_PER_SEGMENT).map(|offset| MainBlock::in_segment(*segment, offset));
            blocks.for_each(|block| self.table.forget_pre_invalid(block));
        }
    }

    /// Whether a batch is taken for ready as soon as all is copied, if this bug is planted.
    fn is_ready_too_early(&self, batch: &SlackBatch) -> bool {
        mutant::active(Mutant::IslandsNotCommitted) && batch.is_copied(&self.table)
    }

    /// Slack for a log to go on in, if it should and there is some.
    pub(super) fn take_slack(&mut self, log: LogId, kind: SegmentKind) -> Result<Option<InSlack>> {
        // The chain is read by who knows nothing but where it begins, so it never leads through what is in use.
        if kind == SegmentKind::WarmNode || !log.is_recorded() || !self.wants_slack() {
            return Ok(None);
        }
        while let Some(slack) = self.slack.take(kind.is_node()) {
            // Its segment may hold something else by now.
            if !self.table.is_promised(&slack) {
                continue;
            }
            let segment = slack.segment();
            match self.read_owners(&slack, kind) {
                Ok(summary) => {
                    if let Some(places) = self.table.open_slack(slack, kind) {
                        return Ok(Some(InSlack { segment, places, summary }));
                    }
                }
                Err(error) if error.is_from_reading() => {
                    tracing::warn!(%segment, %error, "its slack is not written: whose blocks it holds is not known");
                    self.table.return_slack(slack);
                    self.cleaner.avoid(self.table.section_of(segment));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The owners of what the segment of this slack holds, from the SSA: they go to the checkpoint with those of the log.
    fn read_owners(&self, slack: &Slack, kind: SegmentKind) -> Result<Box<RawSummaryBlock>> {
        let segment = slack.segment();
        let block = self.read_block(self.geometry.summary_block(segment))?;
        let wrong = |found: String| Error::damaged("summary", format!("segment {segment}"), found);
        let read = RawSummaryBlock::ref_from_bytes(&block.0).map_err(|_| wrong("short".into()))?;
        let expected = if kind.is_node() { TYPE_NODE } else { TYPE_DATA };
        if read.entry_type != expected {
            return Err(wrong(format!("of type {}, expected {expected}", read.entry_type)));
        }
        let is_possible = |nid: Nid| nid != Nid::NONE && nid < self.geometry.node_ids();
        // Of a page that is used in part, dead blocks are no slack; they may be seals, or never have been written, and have no owner.
        let unneeded = self.table.unneeded_places(segment);
        let is_needed = |offset: u32| unneeded[(offset / u64::BITS) as usize] << (offset % u64::BITS) >> 63 == 0;
        let mut in_use = (0..).zip(&read.entries).filter(|(offset, _)| is_needed(*offset));
        if let Some((offset, owner)) = in_use.find(|(_, owner)| !is_possible(owner.nid())) {
            return Err(wrong(format!("block {offset} is in use, and its owner is node {}", owner.nid())));
        }
        let mut summary = RawSummaryBlock::empty(expected);
        if !mutant::active(Mutant::SlackOwnersForgotten) {
            *summary = RawSummaryBlock { journal: [0; JOURNAL_SIZE], ..*read };
        }
        // A checkpoint that has blocks without one in front of its log looks damaged.
        let owned = summary.entries.iter().find(|entry| is_possible(entry.nid())).copied();
        if let Some(owner) = owned {
            summary.entries.iter_mut().filter(|entry| !is_possible(entry.nid())).for_each(|entry| *entry = owner);
        }
        Ok(summary)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use basalt_segments::SegmentState;
    use basalt_segments::cleaning::KeepFree;
    use basalt_segments::slack::{DeviceClass, FlashPage};
    use basalt_vfs::FileSystem;

    use super::*;
    use crate::layout::BLOCK_SIZE;
    use crate::lock::F2fs;
    use crate::options::OpenOptions;
    use crate::testing::{create, open_new, places, write};

    #[test]
    fn where_emptying_becomes_better_nothing_stays_reserved() {
        let (_, fs) = open_new(64, 0, OpenOptions { reclaim: Reclaim::Partial, ..OpenOptions::default() });
        let ino = create(&fs, "file");
        write(&fs, ino, 0..48 * 64, 1);
        fs.sync().unwrap();
        // Every other run of several segments dies.
        (0..48).step_by(2).for_each(|run| write(&fs, ino, run * 64..(run + 1) * 64, 2));
        fs.sync().unwrap();
        let mut volume = fs.volume.lock();
        let quiet = Quiet::while_locked();
        let copies_are_dear = DeviceTimes::new(&[(1, 100), (512, 51_200)], &[(1, 100_000), (512, 51_200_000)], 0);
        let seeks_are_dear = DeviceTimes::new(&[(1, 10_000_000), (512, 10_000_000)], &[(1, 100), (512, 51_200)], 0);
        let find = |volume: &Volume| [volume.table.most_slack(false, LEAST, 2, &|_| false), Vec::new()];
        let (first, times) = (find(&volume), &copies_are_dear);
        assert!(first[0].len() == 2 && volume.reserve_slack(first.clone(), times, &quiet).unwrap());
        let later = find(&volume);
        assert!(!later[0].is_empty() && later[0] != first[0]);
        assert!(!volume.reserve_slack(later, &seeks_are_dear, &quiet).unwrap() && volume.slack.prefers_cleaning());
        assert!(!volume.return_slack(), "something is reserved still");
    }

    /// Two threads have searched at once: what the first one has made ready is not forgotten, or its segments stayed reserved.
    #[test]
    fn segments_that_are_made_ready_are_not_replaced_by_others() {
        let (_, fs) = open_new(64, 0, OpenOptions { reclaim: Reclaim::Partial, ..OpenOptions::default() });
        let ino = create(&fs, "file");
        write(&fs, ino, 0..3072, 1);
        fs.sync().unwrap();
        // Four blocks between two holes.
        (0..3072).filter(|page| page % 6 > 3).for_each(|page| write(&fs, ino, page..page + 1, 2));
        fs.sync().unwrap();
        let mut volume = fs.volume.lock();
        let (quiet, times) = (Quiet::while_locked(), DeviceClass::Sd.device_times());
        let found = volume.table.most_slack(false, LEAST, 4, &|_| false);
        assert!(found.len() == 4);
        for part in found.chunks(2) {
            volume.reserve_slack([part.to_vec(), Vec::new()], &times, &quiet).unwrap();
            assert!(volume.slack.batch.is_some(), "nothing is copied");
        }
        volume.return_slack();
        assert_eq!(volume.table.segments_in(SegmentState::Reserved), 0);
    }

    /// Somebody reads a block that has died: its place must not be handed out until he has.
    #[test]
    fn slack_is_handed_out_while_nobody_reads() {
        let (fs, segment) = with_holes();
        let found = || [vec![segment], Vec::new()];
        std::thread::scope(|scope| {
            let reading = fs.reuse.read();
            let reserve = scope.spawn(|| fs.publish_slack(found()));
            // Whoever is slow here may miss a mistake, and reports none.
            std::thread::sleep(std::time::Duration::from_millis(300));
            assert!(!reserve.is_finished());
            drop(reading);
            assert!(reserve.join().unwrap().unwrap());
        });
        assert!(fs.volume.lock().slack.take(false).is_some());
    }

    /// A volume that lacks free segments, and in so many of its segments so many dead blocks that the last checkpoint needs.
    fn held(segments: u64, blocks: usize) -> F2fs {
        let options = OpenOptions { reclaim: Reclaim::Partial, keep_free: KeepFree::Reserve, ..OpenOptions::default() };
        let (_, fs) = open_new(128, 0, options);
        let ino = create(&fs, "file");
        let segment = vec![1; BLOCKS_PER_SEGMENT as usize * BLOCK_SIZE];
        let wants_slack = || {
            let mut volume = fs.volume.lock();
            volume.slack = crate::log::stock::SlackStock::default();
            volume.wants_slack()
        };
        let mut written = 0;
        while written <= segments || !wants_slack() {
            fs.write(ino, written * segment.len() as u64, &segment, false).unwrap();
            fs.sync().unwrap();
            written += 1;
        }
        for number in 0..segments {
            fs.write(ino, number * segment.len() as u64, &segment[..blocks * BLOCK_SIZE], false).unwrap();
        }
        fs.sync_file(ino, false).unwrap();
        fs
    }

    #[test]
    fn without_enough_slack_behind_a_checkpoint_cleaning_does_not_count_on_any() {
        for (segments, blocks, expected) in
            [(8, 80, SlackStep::Checkpoint), (ENOUGH as u64 - 1, 200, SlackStep::Wait), (17, 31, SlackStep::Wait)]
        {
            let fs = held(segments, blocks);
            let mut volume = fs.volume.lock();
            volume.slack = crate::log::stock::SlackStock::default();
            assert_eq!(volume.next_slack_step(SlackPace::Change), expected, "{segments} segments, {blocks} blocks");
            assert_eq!(volume.slack.prefers_cleaning(), expected == SlackStep::Wait);
            assert!(volume.slack.may_be_had(), "later there may be some behind a checkpoint");
        }
    }

    /// Dead blocks of a page that is used in part are no slack, and need no owner: seals have none, nor has what was never written.
    #[test]
    fn the_slack_of_a_segment_that_a_log_left_within_a_page_is_filled() {
        let flash_page = FlashPage::of_bytes(16 << 10).unwrap();
        let (_, fs) = open_new(64, 0, OpenOptions { reclaim: Reclaim::Slack, flash_page, ..OpenOptions::default() });
        let ino = create(&fs, "file");
        write(&fs, ino, 0..6, 1);
        fs.sync().unwrap();
        let log = LogId::of(SegmentKind::WarmData);
        let segment = {
            let mut volume = fs.volume.lock();
            assert_eq!(volume.logs[log].offset, 6, "the log stands within a page");
            volume.leave_segment(log);
            volume.logs[log].segment
        };
        // All but two blocks die.
        write(&fs, ino, 0..4, 2);
        fs.sync().unwrap();
        let mut volume = fs.volume.lock();
        let slack = volume.table.reserve_slack(segment, &Quiet::while_locked()).unwrap();
        assert_eq!(slack.places().collect::<Vec<_>>(), (0..4).chain(8..BLOCKS_PER_SEGMENT).collect::<Vec<_>>());
        volume.read_owners(&slack, SegmentKind::WarmData).unwrap();
    }

    /// A volume with a segment of data of which every other run of 64 blocks is dead, and needed by nobody.
    fn with_holes() -> (F2fs, Segment) {
        let (_, fs) = open_new(64, 0, OpenOptions { reclaim: Reclaim::Slack, ..OpenOptions::default() });
        let ino = create(&fs, "file");
        write(&fs, ino, 0..2048, 1);
        fs.sync().unwrap();
        let segment = places(&fs, ino, 1024..1025)[0].segment();
        for run in (0..2048).step_by(128) {
            write(&fs, ino, run..run + 64, 2);
        }
        fs.sync().unwrap();
        (fs, segment)
    }

    /// Blocks without an owner in front of where a log stands make a checkpoint look damaged.
    #[test]
    fn all_of_a_segment_in_whose_slack_a_log_goes_on_has_owners() {
        let (fs, segment) = with_holes();
        let mut volume = fs.volume.lock();
        let slack = volume.table.reserve_slack(segment, &Quiet::while_locked()).unwrap();
        let address = volume.geometry.summary_block(segment);
        let mut summary = volume.read_block(address).unwrap();
        // Of a dead block: nobody needs it.
        let dead = slack.places().next().unwrap() as usize;
        RawSummaryBlock::mut_from_bytes(&mut summary.0).unwrap().entries[dead].nid = 0.into();
        volume.write_metadata(address, &summary.0).unwrap();
        let owners = volume.read_owners(&slack, SegmentKind::WarmData).unwrap();
        assert!(owners.entries.iter().all(|entry| entry.nid() != Nid::NONE));
    }

    /// Between the search and the promise a segment may have been freed, and taken by a log of the other sort.
    #[test]
    fn slack_of_the_other_sort_is_not_reserved() {
        let (fs, segment) = with_holes();
        let mut volume = fs.volume.lock();
        let (times, quiet) = (DeviceClass::Sd.device_times(), Quiet::while_locked());
        assert!(volume.reserve_slack([Vec::new(), vec![segment]], &times, &quiet).unwrap());
        assert!(volume.slack.take(true).is_none() && volume.slack.take(false).is_none());
        assert!(volume.reserve_slack([vec![segment], Vec::new()], &times, &quiet).unwrap());
        assert_eq!(volume.slack.take(false).map(|slack| slack.segment()), Some(segment));
    }

    /// A seal that lists a place in slack would tell the wrong bytes of it.
    #[test]
    fn no_seal_lists_what_lies_in_slack_that_was_made_ready() {
        let (fs, segment) = with_holes();
        let mut volume = fs.volume.lock();
        let promise = volume.table.reserve(segment).unwrap();
        let as_it_is = SlackPlan { islands: Vec::new(), gained: 64, time: 0 };
        volume.slack.batch = Some(SlackBatch::new(vec![(promise, as_it_is)], 0));
        let places = volume.table.dead_places(segment);
        let dead = places.next_from(0);
        let live = volume.table.live_blocks(segment).next().unwrap();
        let addresses = [dead, live].map(|offset| volume.geometry.in_segment(segment, offset));
        for address in addresses {
            volume.checkpoint.since_mut().note_unsealed(address, &[0; BLOCK_SIZE], None);
        }
        volume.hand_out_batch(&Quiet::while_locked());
        assert!(volume.slack.batch.is_none() && volume.slack.take(false).is_some());
        let listed = volume.checkpoint.since_mut().take_unsealed();
        assert_eq!(listed.iter().map(|one| one.sealed.address).collect::<Vec<_>>(), addresses[1..]);
    }
}
