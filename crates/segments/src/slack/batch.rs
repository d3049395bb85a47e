//! Segments that are made ready for logs together: what lies between their holes is copied out, and one commit frees its places.
//!
//! Source: E. Gwak and D. Shin, partial garbage collection for slack space recycling, 2014. Here this is decided alone, without input and output:
//! what is copied next, how much of it one writer waits for, and when a segment is ready.

use super::SlackPlan;
use crate::{Promise, Segment, SegmentTable};

/// What is copied in the smallest step, in blocks: fewer are not worth a request.
const STEP_MIN: u64 = 32;
/// The most that is copied for each block that was written, or waits to be, since the step before.
const STEP_MAX: u64 = 64;
/// The same where no slack is left.
const STEP_HARD: u64 = 128;
/// Parts of its gain that are written until a batch is copied: by then half of what was ready before is used up.
const HASTE: u64 = 2;
/// Commits behind which a segment is handed out as it is: the first may have begun before all was copied.
const COMMITS_MAX: u32 = 2;

/// A segment that is made ready.
#[derive(Debug)]
struct Member {
    promise: Promise,
    plan: SlackPlan,
    /// The block of the segment from which on nothing was copied yet.
    from: u32,
}

impl Member {
    /// Whether nothing is left to copy.
    fn is_copied(&self, table: &SegmentTable) -> bool {
        !table.holds(&self.promise) || table.movable_within(&self.promise, &self.plan.islands, self.from, 1).is_empty()
    }

    /// Whether the places of all that was copied may be written.
    fn is_ready(&self, table: &SegmentTable) -> bool {
        let unneeded = table.unneeded_places(self.promise.segment());
        let mut places = self.plan.islands.iter().cloned().flatten();
        !table.holds(&self.promise) || places.all(|offset| crate::table::is_set(&unneeded, offset))
    }
}

/// Segments that share a commit.
#[derive(Debug)]
pub struct SlackBatch {
    members: Vec<Member>,
    /// Blocks that are gained, and blocks to copy, by the plans.
    gained: u64,
    to_copy: u64,
    copied: u64,
    /// The [demand](crate::cleaning::Load::demand) when it began, and at the last step.
    began: u64,
    reckoned: u64,
    /// Commits that held since all is copied.
    commits: u32,
}

impl SlackBatch {
    /// Of these segments, at this [demand](crate::cleaning::Load::demand).
    #[must_use]
    pub fn new(members: Vec<(Promise, SlackPlan)>, demand: u64) -> SlackBatch {
        let sum = |of: fn(&SlackPlan) -> u32| members.iter().map(|(_, plan)| u64::from(of(plan))).sum();
        let (gained, to_copy) = (sum(|plan| plan.gained), sum(SlackPlan::copied));
        let members = members.into_iter().map(|(promise, plan)| Member { promise, plan, from: 0 }).collect();
        SlackBatch { members, gained, to_copy, copied: 0, began: demand, reckoned: demand, commits: 0 }
    }

    /// Blocks that a change has to copy at this demand: in proportion to what is written, so that all are copied in time. Where hardly any slack is
    /// left, it hurries. None where they are too few for a request, or nothing is written.
    #[must_use]
    pub fn due(&self, demand: u64, hurries: bool) -> u32 {
        let rest = self.rest();
        let since = demand.saturating_sub(self.began);
        let in_time = (self.to_copy * HASTE * since).div_ceil(self.gained.max(1)).saturating_sub(self.copied);
        let most = if hurries { STEP_HARD } else { STEP_MAX } * demand.saturating_sub(self.reckoned);
        let due = if hurries { rest } else { in_time.min(rest) };
        if due < STEP_MIN { 0 } else { due.min(most).min(u64::from(u32::MAX)) as u32 }
    }

    /// Blocks that are left to copy; more than none, as some that are left may not have been planned.
    fn rest(&self) -> u64 {
        self.to_copy.saturating_sub(self.copied).max(STEP_MIN)
    }

    /// What is copied next, at most so many blocks of one segment, rising. `None` where all is copied.
    #[must_use]
    pub fn next(&self, table: &SegmentTable, most: u32) -> Option<(Segment, Vec<u32>)> {
        self.members.iter().filter(|member| table.holds(&member.promise)).find_map(|member| {
            let blocks = table.movable_within(&member.promise, &member.plan.islands, member.from, most as usize);
            (!blocks.is_empty()).then(|| (member.promise.segment(), blocks))
        })
    }

    /// These blocks of a segment were copied, which led to this demand.
    pub fn note_copied(&mut self, segment: Segment, blocks: &[u32], demand: u64) {
        self.copied += blocks.len() as u64;
        self.reckoned = self.reckoned.max(demand);
        let next = blocks.last().map_or(0, |last| last + 1);
        self.members
            .iter_mut()
            .filter(|member| member.promise.segment() == segment)
            .for_each(|member| member.from = next);
    }

    /// A block of this segment cannot be copied: the segment is left as it is.
    pub fn leave_out(&mut self, segment: Segment, table: &mut SegmentTable) {
        let (left_out, members) =
            std::mem::take(&mut self.members).into_iter().partition(|member| member.promise.segment() == segment);
        self.members = members;
        let left_out: Vec<Member> = left_out;
        left_out.into_iter().for_each(|member| table.break_promise(member.promise));
    }

    /// Whether nothing is left to copy: a commit comes next.
    #[must_use]
    pub fn is_copied(&self, table: &SegmentTable) -> bool {
        self.members.iter().all(|member| member.is_copied(table))
    }

    /// Blocks that wait for a commit, and for nothing else; none while there is something to copy.
    #[must_use]
    pub fn gain_of_commit(&self, table: &SegmentTable) -> u64 {
        if !self.is_copied(table) || self.commits >= COMMITS_MAX {
            return 0;
        }
        let waiting = self.members.iter().filter(|member| !member.is_ready(table));
        waiting.map(|member| u64::from(member.plan.gained)).sum()
    }

    /// A commit holds.
    pub fn note_commit(&mut self, table: &SegmentTable) {
        if self.is_copied(table) {
            self.commits += 1;
        }
    }

    /// Whether its slack can be handed out: all is copied, and no place of it is needed any more, or not even two commits have helped.
    #[must_use]
    pub fn is_ready(&self, table: &SegmentTable) -> bool {
        self.is_copied(table)
            && (self.commits >= COMMITS_MAX || self.members.iter().all(|member| member.is_ready(table)))
    }

    /// Its segments.
    #[must_use]
    pub fn into_promises(self) -> Vec<Promise> {
        self.members.into_iter().map(|member| member.promise).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of runs, some of one")]

    use std::ops::Range;

    use super::*;
    use crate::{MainBlock, Quiet, SegmentKind};

    const QUIET: Quiet = Quiet::while_locked();

    /// Two closed segments, whose blocks 0 to 99 are live and durable. Commits are those of a journal, which copies what is pre-invalid.
    fn table() -> SegmentTable {
        let mut table = SegmentTable::new(6, 1);
        table.track_durability(true);
        for segment in [0, 1].map(Segment::new) {
            while table.open_segment(SegmentKind::WarmData, None) != Some(segment) {}
            assert!(table.set_live_run(MainBlock::in_segment(segment, 0), 100, 1));
            table.close_segment(segment);
        }
        table.begin_checkpoint();
        table.end_checkpoint();
        table
    }

    /// A batch of both, with these islands in each.
    fn batch(table: &mut SegmentTable, islands: &[Range<u32>]) -> SlackBatch {
        let mut member = |segment| {
            let plan = SlackPlan { islands: islands.to_vec(), gained: 300, time: 1 };
            table.reserve(Segment::new(segment)).map(|promise| (promise, plan))
        };
        SlackBatch::new([0, 1].into_iter().filter_map(&mut member).collect(), 1000)
    }

    /// Copies up to so many blocks of one segment: the places die, but are needed until a commit.
    fn copy(batch: &mut SlackBatch, table: &mut SegmentTable, most: u32) -> Option<(u32, Vec<u32>)> {
        let (segment, blocks) = batch.next(table, most)?;
        for &offset in &blocks {
            assert!(table.clear_live(MainBlock::in_segment(segment, offset), 2));
        }
        batch.note_copied(segment, &blocks, 1000);
        Some((segment.get(), blocks))
    }

    fn commit(batch: &mut SlackBatch, table: &mut SegmentTable, offsets: impl Iterator<Item = u32>) {
        for offset in offsets {
            [0, 1]
                .map(Segment::new)
                .into_iter()
                .for_each(|segment| table.forget_pre_invalid(MainBlock::in_segment(segment, offset)));
        }
        batch.note_commit(table);
    }

    #[test]
    fn islands_are_copied_one_segment_after_the_other_and_handed_out_behind_a_commit() {
        let mut table = table();
        let mut batch = batch(&mut table, &[10..13, 50..52]);
        assert_eq!(batch.gain_of_commit(&table), 0, "there is something to copy");
        assert_eq!(copy(&mut batch, &mut table, 4), Some((0, vec![10, 11, 12, 50])));
        assert_eq!(copy(&mut batch, &mut table, 4), Some((0, vec![51])));
        assert!(!batch.is_copied(&table));
        assert_eq!(copy(&mut batch, &mut table, 9), Some((1, vec![10, 11, 12, 50, 51])));
        assert_eq!(copy(&mut batch, &mut table, 9), None);
        assert!(batch.is_copied(&table) && !batch.is_ready(&table), "the checkpoint needs what was copied");
        assert_eq!(batch.gain_of_commit(&table), 600);
        commit(&mut batch, &mut table, (10..13).chain(50..52));
        assert!(batch.is_ready(&table));
        for promise in batch.into_promises() {
            let slack = table.hand_out_slack(promise, &QUIET).unwrap();
            assert_eq!(slack.places().take(6).collect::<Vec<_>>(), [10, 11, 12, 50, 51, 100]);
        }
    }

    /// The first commit may have begun before all was copied, the second not: what is still needed then is no slack, but the rest is.
    #[test]
    fn after_two_commits_segments_are_handed_out_as_they_are() {
        let mut table = table();
        let mut batch = batch(&mut table, &[10..12]);
        commit(&mut batch, &mut table, 0..0);
        while copy(&mut batch, &mut table, 9).is_some() {}
        commit(&mut batch, &mut table, 0..0);
        assert!(!batch.is_ready(&table), "the commit while there was something to copy does not count");
        commit(&mut batch, &mut table, 10..11);
        assert!(batch.is_ready(&table));
        let promise = batch.into_promises().remove(0);
        assert_eq!(table.hand_out_slack(promise, &QUIET).unwrap().places().take(2).collect::<Vec<_>>(), [10, 100]);
    }

    #[test]
    fn what_dies_by_itself_is_not_copied_and_what_was_never_durable_needs_no_commit() {
        let mut table = table();
        assert!(table.set_live_run(MainBlock::new(200), 10, 3));
        let mut batch = batch(&mut table, &[200..210]);
        assert!(table.clear_live(MainBlock::new(204), 4));
        assert_eq!(copy(&mut batch, &mut table, 99), Some((0, vec![200, 201, 202, 203, 205, 206, 207, 208, 209])));
        assert!(batch.is_copied(&table) && batch.is_ready(&table));
    }

    #[test]
    fn a_segment_that_loses_its_last_block_or_is_left_out_holds_nobody_up() {
        let mut table = table();
        let mut batch = batch(&mut table, &[10..90]);
        (0..100).for_each(|offset| assert!(table.clear_live(MainBlock::new(offset), 2)));
        assert_eq!(batch.next(&table, 1), Some((Segment::new(1), vec![10])));
        batch.leave_out(Segment::new(1), &mut table);
        assert_eq!(table.state(Segment::new(1)), crate::SegmentState::Dirty);
        assert!(batch.is_copied(&table) && batch.is_ready(&table));
        assert!(batch.into_promises().iter().all(|promise| !table.holds(promise)));
    }

    /// 160 blocks to copy for 600 that are gained: twice as fast as the gain is written, in steps of 32 and more.
    #[test]
    fn copies_keep_pace_with_what_is_written() {
        let mut table = table();
        let mut batch = batch(&mut table, &[10..90]);
        let due = |batch: &SlackBatch, written: u64| batch.due(1000 + written, false);
        assert_eq!([0, 58, 59, 149, 300, 9999].map(|written| due(&batch, written)), [0, 0, 32, 80, 160, 160]);
        assert_eq!([0, 1, 2].map(|written| batch.due(1000 + written, true)), [0, 128, 160], "somebody runs short");
        batch.note_copied(Segment::new(0), &(10..90).collect::<Vec<_>>(), 1150);
        assert_eq!([150, 209, 210, 211].map(|written| due(&batch, written)), [0, 32, 32, 33]);
        assert_eq!([150, 151].map(|written| batch.due(1000 + written, true)), [0, 80], "nothing was written since");
        batch.note_copied(Segment::new(1), &(10..90).collect::<Vec<_>>(), 1200);
        assert_eq!(batch.due(1201, true), 32, "what was not planned");
    }
}
