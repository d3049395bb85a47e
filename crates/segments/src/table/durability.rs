//! Blocks that recovery may need after a power loss: those that the last durable checkpoint, or what was made durable behind it, refers to.
//!
//! Only for engines that free what they cleaned without a checkpoint. Of a *live* block the table then knows whether it is *fresh*:
//! written since the last checkpoint was taken, with nothing durable that refers to it. A block that dies while fresh is nobody's.
//! One that dies later is *pre-invalid* (E. Gwak and D. Shin, "Segment Cleaning Journaling", IEEE Access 2021): dead, but to be kept,
//! or copied, until the next checkpoint holds. While that checkpoint is on its way, what was pre-invalid when it was taken is
//! *retiring*: it needs no copy any more, and is free once the checkpoint holds.

use std::collections::{BTreeSet, HashMap};

use super::live::{is_set, place};
use super::{SegmentState, SegmentTable, split};
use crate::{BLOCKS_PER_SEGMENT, MainBlock, Section, Segment};

/// Sets of blocks, by segment. Only ever asked about single segments, or taken as a whole: the order of hashing is no matter.
#[derive(Default)]
struct BlockSets {
    sets: HashMap<Segment, (u16, Box<[u64; 8]>)>,
    total: u64,
}

impl BlockSets {
    fn contains(&self, block: MainBlock) -> bool {
        let (segment, offset) = split(block);
        self.sets.get(&segment).is_some_and(|(_, words)| is_set(words, offset))
    }

    fn words(&self, segment: Segment) -> [u64; 8] {
        self.sets.get(&segment).map_or([0; 8], |(_, words)| **words)
    }

    fn count(&self, segment: Segment) -> u16 {
        self.sets.get(&segment).map_or(0, |(count, _)| *count)
    }

    fn insert(&mut self, block: MainBlock) -> bool {
        let (segment, offset) = split(block);
        let (count, words) = self.sets.entry(segment).or_insert_with(|| (0, Box::new([0; 8])));
        let (at, bit) = place(offset);
        let word = &mut words[at];
        let is_new = *word & bit == 0;
        *word |= bit;
        *count += u16::from(is_new);
        self.total += u64::from(is_new);
        is_new
    }

    fn remove(&mut self, block: MainBlock) -> bool {
        let (segment, offset) = split(block);
        let Some((count, words)) = self.sets.get_mut(&segment) else { return false };
        let (at, bit) = place(offset);
        let word = &mut words[at];
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        *count -= 1;
        self.total -= 1;
        if *count == 0 {
            self.sets.remove(&segment);
        }
        true
    }

    fn offsets(&self, segment: Segment) -> impl Iterator<Item = u32> + '_ {
        let words = self.sets.get(&segment).map(|(_, words)| words);
        (0..BLOCKS_PER_SEGMENT).filter(move |&offset| words.is_some_and(|words| is_set(words, offset)))
    }

    fn clear(&mut self) {
        self.sets.clear();
        self.total = 0;
    }

    fn memory(&self) -> usize {
        self.sets.len() * (size_of::<(Segment, (u16, Box<[u64; 8]>))>() + 64)
    }
}

/// What is known beyond which blocks are live.
#[derive(Default)]
pub(super) struct Durability {
    fresh: BlockSets,
    pre_invalid: BlockSets,
    retiring: BlockSets,
    pinned: BTreeSet<Segment>,
    /// Pre-invalid blocks are copied out of victims: a segment may be free before the next checkpoint.
    copies_pre_invalid: bool,
}

impl Durability {
    pub(super) fn note_live(&mut self, block: MainBlock) {
        self.fresh.insert(block);
    }

    pub(super) fn note_dead(&mut self, block: MainBlock) {
        if !self.fresh.remove(block) {
            self.pre_invalid.insert(block);
        }
    }

    pub(super) fn memory(&self) -> usize {
        [&self.fresh, &self.pre_invalid, &self.retiring].into_iter().map(BlockSets::memory).sum()
    }
}

impl SegmentTable {
    /// From now on tells fresh blocks from others, and keeps count of pre-invalid ones. Whatever is live now counts as durable. Takes
    /// some 100 bytes for each segment that has any of them; without, each method below answers as if there were none.
    ///
    /// With `copies_pre_invalid`, pre-invalid blocks are moved out of victims as live ones are, so that these are free before the next
    /// checkpoint. Without, they die with it.
    pub fn track_durability(&mut self, copies_pre_invalid: bool) {
        self.durability = Some(Box::new(Durability { copies_pre_invalid, ..Durability::default() }));
    }

    /// Takes note of blocks that became live, neighbours from `first` on.
    pub(super) fn note_live(&mut self, first: MainBlock, count: u32) {
        if let Some(known) = &mut self.durability {
            (0..count).for_each(|at| known.note_live(first + at));
        }
    }

    /// Takes note of blocks of a segment that died.
    pub(super) fn note_dead(&mut self, segment: Segment, offsets: &[u32]) {
        if let Some(known) = &mut self.durability {
            offsets.iter().for_each(|offset| known.note_dead(MainBlock::in_segment(segment, *offset)));
        }
    }

    /// Whether it does.
    #[must_use]
    pub fn tracks_durability(&self) -> bool {
        self.durability.is_some()
    }

    /// Whether nothing durable refers to a live block.
    #[must_use]
    pub fn is_fresh(&self, block: MainBlock) -> bool {
        self.durability.as_ref().is_some_and(|known| known.fresh.contains(block))
    }

    /// Something that is on its way to be durable refers to this block: when it dies, it is to be kept. Does nothing to a block that is
    /// not live and fresh.
    pub fn make_durable(&mut self, block: MainBlock) {
        if let Some(known) = &mut self.durability {
            known.fresh.remove(block);
        }
    }

    /// Whether a block is dead, but to be kept until the next checkpoint holds.
    #[must_use]
    pub fn is_pre_invalid(&self, block: MainBlock) -> bool {
        self.durability.as_ref().is_some_and(|known| known.pre_invalid.contains(block))
    }

    /// A dead block got the copy of a pre-invalid one: it is one itself.
    ///
    /// # Panics
    ///
    /// If the block is live.
    pub fn set_pre_invalid(&mut self, block: MainBlock) {
        assert!(!self.is_live(block), "block {block} is live");
        if let Some(known) = &mut self.durability {
            known.pre_invalid.insert(block);
        }
    }

    /// Nothing durable refers to this dead block any more: its content is elsewhere, and that is known to recovery.
    pub fn forget_pre_invalid(&mut self, block: MainBlock) {
        if let Some(known) = &mut self.durability {
            known.pre_invalid.remove(block);
        }
    }

    /// Pre-invalid blocks, retiring ones included.
    #[must_use]
    pub fn pre_invalid_blocks(&self) -> u64 {
        self.durability.as_ref().map_or(0, |known| known.pre_invalid.total)
    }

    /// Pre-invalid blocks of a segment, retiring ones included.
    #[must_use]
    pub fn pre_invalid(&self, segment: Segment) -> u16 {
        self.durability.as_ref().map_or(0, |known| known.pre_invalid.count(segment))
    }

    /// Pre-invalid blocks of a segment that have to be moved to empty it.
    pub(super) fn kept(&self, segment: Segment) -> u16 {
        self.durability
            .as_ref()
            .filter(|known| known.copies_pre_invalid)
            .map_or(0, |known| known.pre_invalid.count(segment))
    }

    /// Whether there are pre-invalid blocks that have to be moved to empty their segments.
    pub(super) fn keeps_any(&self) -> bool {
        self.durability.as_ref().is_some_and(|known| known.copies_pre_invalid && known.pre_invalid.total > 0)
    }

    /// The pre-invalid blocks of a segment, retiring ones included, a bit for each.
    pub(super) fn pre_invalid_words(&self, segment: Segment) -> [u64; 8] {
        self.durability.as_ref().map_or([0; 8], |known| known.pre_invalid.words(segment))
    }

    /// Keeps a segment as it is until the next checkpoint is taken: what was made durable runs through it. Its section is no victim, and
    /// [`SegmentTable::is_unneeded`] is false for it.
    pub fn pin(&mut self, segment: Segment) {
        self.at(segment);
        if let Some(known) = &mut self.durability {
            known.pinned.insert(segment);
        }
    }

    /// Whether a segment has to stay as it is.
    #[must_use]
    pub fn is_pinned(&self, segment: Segment) -> bool {
        self.durability.as_ref().is_some_and(|known| known.pinned.contains(&segment))
    }

    pub(super) fn has_pinned(&self, section: Section) -> bool {
        let Some(known) = &self.durability else { return false };
        let segments = self.segments_of(section);
        known.pinned.range(segments.start()..segments.end()).next().is_some()
    }

    /// A checkpoint is being taken: everything live is durable once it holds, and what is pre-invalid now is not needed any more then.
    /// Nothing is pinned any longer.
    pub fn begin_checkpoint(&mut self) {
        if let Some(known) = &mut self.durability {
            known.fresh.clear();
            known.retiring.clear();
            known.retiring.sets.clone_from(&known.pre_invalid.sets);
            known.retiring.total = known.pre_invalid.total;
            known.pinned.clear();
        }
    }

    /// The checkpoint that was taken last holds.
    pub fn end_checkpoint(&mut self) {
        let Some(known) = &mut self.durability else { return };
        let retired = std::mem::take(&mut known.retiring);
        if retired.total == known.pre_invalid.total {
            // Nothing has died since.
            known.pre_invalid.clear();
            return;
        }
        for segment in retired.sets.keys() {
            for offset in retired.offsets(*segment) {
                known.pre_invalid.remove(MainBlock::in_segment(*segment, offset));
            }
        }
    }

    /// Whether a prefree segment could be released without a checkpoint, once `leaving` pre-invalid blocks of it are forgotten.
    #[must_use]
    pub fn is_unneeded(&self, segment: Segment, leaving: u16) -> bool {
        self.state(segment) == SegmentState::Prefree && self.pre_invalid(segment) <= leaving && !self.is_pinned(segment)
    }

    /// Sections that are not free, but would be if those of their prefree segments were released for which `is_unneeded` is true.
    #[must_use]
    pub fn sections_freed_by(&self, is_unneeded: impl Fn(Segment) -> bool) -> u32 {
        let mut sections: Vec<Section> =
            self.prefree().into_iter().filter(|&segment| is_unneeded(segment)).map(|s| self.section_of(s)).collect();
        sections.dedup();
        let is_freed = |section: &Section| {
            self.segments_of(*section).all(|segment| match self.state(segment) {
                SegmentState::Free => true,
                SegmentState::Prefree => is_unneeded(segment),
                _ => false,
            })
        };
        // As many as there are segments at most.
        sections.iter().filter(|section| is_freed(section)).count() as u32
    }

    /// The offsets in the segment, from `first` on, of the blocks to move out of it, at most `most`: live ones, and pre-invalid ones that are
    /// not retiring. Rising.
    pub(super) fn blocks_to_move(&self, segment: Segment, first: u32, most: usize) -> Vec<u32> {
        let at = segment.index();
        let live = self.maps[at].offsets_from(self.live[at], first);
        let Some(known) = self.durability.as_ref().filter(|_| self.kept(segment) > 0) else {
            let mut blocks = Vec::with_capacity(most.min(self.live[at].into()));
            blocks.extend(live.take(most));
            return blocks;
        };
        let kept = known
            .pre_invalid
            .offsets(segment)
            .filter(|offset| *offset >= first && !known.retiring.contains(MainBlock::in_segment(segment, *offset)));
        let mut both: Vec<u32> = live.chain(kept).collect();
        both.sort_unstable();
        both.truncate(most);
        both
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SegmentKind;

    /// Two segments: the first is closed with four blocks, of which the last two are fresh; a log writes to the other.
    fn table() -> SegmentTable {
        let mut table = SegmentTable::new(4, 1);
        table.track_durability(true);
        let first = table.open_segment(SegmentKind::WarmData, None).unwrap();
        assert!(table.set_live_run(MainBlock::new(0), 2, 1));
        table.begin_checkpoint();
        table.end_checkpoint();
        assert!(table.set_live_run(MainBlock::new(2), 2, 1));
        assert_eq!(table.open_segment(SegmentKind::WarmData, Some(first)), Some(Segment::new(1)));
        table.close_segment(first);
        table
    }

    #[test]
    fn what_dies_fresh_is_nobodys_and_the_rest_is_kept() {
        let mut table = table();
        assert!(!table.is_fresh(MainBlock::new(1)) && table.is_fresh(MainBlock::new(2)));
        table.make_durable(MainBlock::new(3));
        assert!(table.clear_live_all(Segment::new(0), &[0, 1, 2, 3], 2));
        assert_eq!((table.pre_invalid(Segment::new(0)), table.pre_invalid_blocks()), (3, 3));
        assert!(
            table.is_pre_invalid(MainBlock::new(0))
                && table.is_pre_invalid(MainBlock::new(3))
                && !table.is_pre_invalid(MainBlock::new(2))
        );
        assert_eq!(table.movable(Section::new(0), 1, 9), Some((Segment::new(0), vec![1, 3])));
        assert!(!table.is_unneeded(Segment::new(0), 2) && table.is_unneeded(Segment::new(0), 3));
        table.forget_pre_invalid(MainBlock::new(0));
        table.forget_pre_invalid(MainBlock::new(1));
        table.forget_pre_invalid(MainBlock::new(3));
        assert!(table.is_unneeded(Segment::new(0), 0));
        assert_eq!(table.sections_freed_by(|segment| table.is_unneeded(segment, 0)), 1);
        table.pin(Segment::new(0));
        assert!(!table.is_unneeded(Segment::new(0), 0));
        assert_eq!(table.sections_freed_by(|segment| table.is_unneeded(segment, 0)), 0);
    }

    #[test]
    fn a_checkpoint_retires_what_was_dead_when_it_was_taken() {
        let mut table = table();
        assert!(table.clear_live(MainBlock::new(0), 2));
        table.begin_checkpoint();
        assert!(!table.is_fresh(MainBlock::new(2)), "the checkpoint refers to it");
        assert!(table.clear_live(MainBlock::new(1), 3) && table.clear_live(MainBlock::new(2), 3));
        assert_eq!(
            table.movable(Section::new(0), 0, 9),
            Some((Segment::new(0), vec![1, 2, 3])),
            "block 0 only waits for the checkpoint"
        );
        assert_eq!(table.pre_invalid(Segment::new(0)), 3);
        table.end_checkpoint();
        assert_eq!(table.pre_invalid(Segment::new(0)), 2, "what died since is needed by the checkpoint that holds now");
        assert!(!table.is_pre_invalid(MainBlock::new(0)) && table.is_pre_invalid(MainBlock::new(1)));
    }

    #[test]
    fn pinned_and_wholly_needed_sections_are_no_victims() {
        let mut table = table();
        let victim = |table: &SegmentTable| table.select_victim(&crate::Greedy, 9, &|_| false);
        assert_eq!(victim(&table), Some(Section::new(0)));
        table.pin(Segment::new(0));
        assert_eq!(victim(&table), None);
        table.begin_checkpoint();
        table.end_checkpoint();
        assert_eq!(victim(&table), Some(Section::new(0)));
        assert_eq!(table.needed_in_section(Section::new(0)), 4);
        assert!(table.clear_live(MainBlock::new(0), 4));
        assert_eq!((table.live_in_section(Section::new(0)), table.needed_in_section(Section::new(0))), (3, 4));
    }

    #[test]
    fn a_step_takes_no_more_than_asked_for_of_live_and_kept_blocks_together() {
        let mut table = table();
        assert!(table.clear_live(MainBlock::new(0), 2) && table.clear_live(MainBlock::new(1), 2));
        let step = |from, most| table.movable(Section::new(0), from, most).map(|(_, blocks)| blocks);
        assert_eq!([step(0, 1), step(0, 3), step(1, 2)], [vec![0], vec![0, 1, 2], vec![1, 2]].map(Some));
    }

    /// Pre-invalid blocks have to be moved: they make a section dearer, and one that is all needed is no victim.
    #[test]
    fn kept_blocks_cost_as_much_as_live_ones() {
        let mut table = SegmentTable::new(4, 1);
        table.track_durability(true);
        let mut log = None;
        for (segment, live) in [(0, 512), (1, 15), (2, 12)] {
            let next = table.open_segment(SegmentKind::WarmData, log).unwrap();
            assert_eq!(next, Segment::new(segment));
            assert!(table.set_live_run(MainBlock::in_segment(next, 0), live, 1));
            log.into_iter().for_each(|full| table.close_segment(full));
            log = Some(next);
        }
        assert_eq!(table.open_segment(SegmentKind::WarmData, log), Some(Segment::new(3)));
        log.into_iter().for_each(|full| table.close_segment(full));
        table.begin_checkpoint();
        table.end_checkpoint();
        assert!(table.clear_live_all(Segment::new(1), &[0, 1, 2, 3, 4], 2));
        assert!(table.clear_live(MainBlock::new(0), 2));
        // Of the first 511 are live and one is kept; of the second ten and five.
        let victims = table.select_victims(&crate::Greedy, 9, &|_| false, 9);
        assert_eq!(victims, [2, 1].map(Section::new));
    }

    #[test]
    fn a_section_of_several_segments_is_freed_once() {
        let mut table = SegmentTable::new(4, 2);
        table.track_durability(true);
        let mut log = None;
        for segment in 0..3 {
            let next = table.open_segment(SegmentKind::WarmData, log).unwrap();
            let block = MainBlock::in_segment(Segment::new(segment), 0);
            assert!(table.set_live(block, 1) && table.clear_live(block, 1));
            log.into_iter().for_each(|full| table.close_segment(full));
            log = Some(next);
        }
        assert_eq!(table.prefree(), [0, 1].map(Segment::new));
        assert_eq!(table.sections_freed_by(|segment| table.is_unneeded(segment, 0)), 1);
        assert_eq!(table.sections_freed_by(|segment| segment == Segment::new(1)), 0);
    }

    #[test]
    fn where_checkpoints_commit_pre_invalid_blocks_are_not_moved() {
        let mut table = SegmentTable::new(4, 1);
        table.track_durability(false);
        let first = table.open_segment(SegmentKind::WarmData, None).unwrap();
        assert!(table.set_live_run(MainBlock::new(0), 4, 1));
        table.begin_checkpoint();
        table.end_checkpoint();
        table.open_segment(SegmentKind::WarmData, Some(first));
        table.close_segment(first);
        assert!(table.clear_live_all(first, &[1, 3], 2));
        assert_eq!((table.pre_invalid(first), table.needed_in_section(Section::new(0))), (2, 2));
        assert_eq!(table.movable(Section::new(0), 0, 9), Some((first, vec![0, 2])));
    }

    #[test]
    fn without_tracking_nothing_is_kept() {
        let mut table = SegmentTable::new(2, 1);
        assert!(table.set_live(MainBlock::new(5), 1) && table.clear_live(MainBlock::new(5), 1));
        table.set_pre_invalid(MainBlock::new(5));
        table.pin(Segment::new(0));
        assert!(
            !table.is_fresh(MainBlock::new(5))
                && !table.is_pre_invalid(MainBlock::new(5))
                && !table.is_pinned(Segment::new(0))
        );
        assert_eq!(table.pre_invalid_blocks(), 0);
        assert!(table.is_unneeded(Segment::new(0), 0));
    }
}
