//! The segment table, case by case.

use basalt_segments::SegmentKind::{ColdData, HotData, HotNode, WarmData, WarmNode};
use basalt_segments::SegmentState::{Active, Dirty, Free, Full, Prefree};
use basalt_segments::{
    BlockTraits, CostBenefit, Durable, Greedy, Informed, LogId, MAX_SEGMENTS, MainBlock, Placement, Quiet, Section,
    SectionView, Segment, SegmentTable, Segments, StaticPlacement, VictimPolicy,
};

/// A bitmap with the first `live` blocks live.
fn first(live: usize) -> [u8; 64] {
    let mut bitmap = [0; 64];
    for block in 0..live {
        bitmap[block / 8] |= 0x80 >> (block % 8);
    }
    bitmap
}

/// A table with these live counts, one per segment, all warm data, modified at their segment number.
fn loaded(segments_per_section: u32, live: &[usize]) -> SegmentTable {
    let mut table = SegmentTable::new(live.len() as u32, segments_per_section);
    for (segment, &live) in (0..).zip(live) {
        assert_eq!(usize::from(table.load(Segment::new(segment), WarmData, &first(live), u64::from(segment))), live);
    }
    table.finish_load();
    table
}

fn victim(table: &SegmentTable, policy: &dyn VictimPolicy) -> Option<u32> {
    (table.select_victim(policy, 1000, &|_| false)).map(Section::get)
}

#[test]
fn a_new_table_is_all_free() {
    let table = SegmentTable::new(12, 4);
    assert_eq!((table.segments(), table.sections(), table.segments_per_section()), (12, 3, 4));
    assert_eq!((table.free_segments(), table.free_sections()), (12, 3));
    assert_eq!((table.prefree_segments(), table.prefree_sections()), (0, 0));
    assert_eq!(table.dirty_entries(), []);
    assert_eq!(
        (table.section_of(Segment::new(7)), table.segments_of(Section::new(1))),
        (Section::new(1), Segments::new(Segment::new(4), 4))
    );
}

#[test]
fn an_empty_table_answers_everything() {
    let mut table = SegmentTable::new(0, 1);
    assert_eq!(table.open_segment(HotData, None), None);
    assert_eq!(victim(&table, &Greedy), None);
    assert_eq!((table.free_segments(), table.sections()), (0, 0));
}

#[test]
fn loading_derives_states_and_counts() {
    let mut table = SegmentTable::new(4, 1);
    table.load(Segment::new(0), HotNode, &first(512), 5);
    table.load(Segment::new(1), WarmData, &first(9), 6);
    table.load(Segment::new(1), WarmData, &first(10), 7); // the journal's entry overrides the SIT's
    table.load(Segment::new(2), ColdData, &first(0), 8);
    table.load(Segment::new(3), WarmNode, &first(0), 9);
    table.set_active(Segment::new(3));
    table.finish_load();
    assert_eq!([0, 1, 2, 3].map(|segment| table.state(Segment::new(segment))), [Full, Dirty, Free, Active]);
    assert_eq!((table.live_data_blocks(), table.live_node_blocks()), (10, 512));
    assert_eq!(
        (table.live(Segment::new(1)), table.modified(Segment::new(1)), table.kind(Segment::new(1))),
        (10, 7, WarmData)
    );
    assert_eq!((table.bitmap(Segment::new(0)), table.bitmap(Segment::new(1))), (first(512), first(10)));
    assert_eq!((table.free_segments(), table.free_sections()), (1, 1));
    assert_eq!(table.live_blocks(Segment::new(1)).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert_eq!(table.dirty_entries(), []);
}

#[test]
fn a_segment_goes_round() {
    let mut table = SegmentTable::new(2, 1);
    let segment = table.open_segment(ColdData, None).expect("two are free");
    assert_eq!((table.state(segment), table.kind(segment)), (Active, ColdData));
    for offset in 0..512 {
        assert!(table.set_live(MainBlock::in_segment(segment, offset), 40));
    }
    table.close_segment(segment);
    assert_eq!((table.state(segment), table.modified(segment)), (Full, 40));
    assert!(table.clear_live(MainBlock::in_segment(segment, 3), 50));
    assert_eq!((table.state(segment), table.modified(segment)), (Dirty, 50));
    assert_eq!(victim(&table, &Greedy), Some(segment.get()));
    for offset in (0..512).filter(|&offset| offset != 3) {
        assert!(table.clear_live(MainBlock::in_segment(segment, offset), 60));
    }
    assert_eq!((table.state(segment), table.free_segments()), (Prefree, 1));
    assert_eq!(victim(&table, &Greedy), None, "it waits for a checkpoint only");
    let frozen = table.prefree();
    assert_eq!(frozen, [segment]);
    table.release(&frozen, Durable::without_device());
    assert_eq!((table.state(segment), table.free_segments(), table.prefree_segments()), (Free, 2, 0));
}

#[test]
fn release_frees_what_is_prefree_and_nothing_else() {
    let mut table = loaded(1, &[1, 512, 0, 1]);
    table.set_active(Segment::new(3));
    assert!(table.clear_live(MainBlock::new(0), 1));
    table.release(
        &[Segment::new(0), Segment::new(1), Segment::new(2), Segment::new(3), Segment::new(0)],
        Durable::without_device(),
    );
    assert_eq!([0, 1, 2, 3].map(|segment| table.state(Segment::new(segment))), [Free, Full, Free, Active]);
    assert_eq!(table.free_segments(), 2);
}

#[test]
fn a_log_closed_without_a_live_block_is_prefree() {
    let mut table = SegmentTable::new(1, 1);
    assert_eq!(table.open_segment(WarmData, None), Some(Segment::new(0)));
    assert!(table.set_live(MainBlock::new(0), 1));
    assert!(table.clear_live(MainBlock::new(0), 2));
    assert_eq!(table.state(Segment::new(0)), Active);
    table.close_segment(Segment::new(0));
    assert_eq!(table.state(Segment::new(0)), Prefree);
    assert_eq!(table.open_segment(WarmData, None), None, "not before a checkpoint");
}

#[test]
fn marking_twice_is_told_and_changes_nothing() {
    let mut table = loaded(1, &[10]);
    assert!(!table.set_live(MainBlock::new(9), 99));
    assert!(!table.clear_live(MainBlock::new(10), 99));
    assert_eq!((table.live(Segment::new(0)), table.modified(Segment::new(0)), table.live_data_blocks()), (10, 0, 10));
    assert_eq!(table.dirty_entries(), []);
    let mut full = loaded(1, &[512]);
    assert!(!full.set_live(MainBlock::new(511), 99));
    let mut empty = loaded(1, &[0]);
    assert!(!empty.clear_live(MainBlock::new(0), 99));
}

#[test]
fn recovery_may_write_into_a_free_segment() {
    let mut table = SegmentTable::new(2, 2);
    table.set_kind(Segment::new(1), WarmNode);
    assert!(table.set_live(MainBlock::new(512 + 7), 3));
    assert_eq!((table.state(Segment::new(1)), table.live_node_blocks()), (Dirty, 1));
    assert_eq!((table.free_segments(), table.free_sections()), (1, 0));
    assert_eq!(table.dirty_entries(), [Segment::new(1)]);
}

#[test]
fn logs_continue_in_their_section_then_upward_then_anywhere() {
    // sections of 4:      0 free       1 part free     2 free        3 part free
    let mut table = loaded(4, &[0, 0, 0, 0, 9, 0, 0, 9, 0, 0, 0, 0, 0, 9, 0, 0]);
    let mut open = |after| table.open_segment(HotData, after);
    assert_eq!(open(Some(Segment::new(4))), Some(Segment::new(5)), "right after, in the same section");
    assert_eq!(open(Some(Segment::new(5))), Some(Segment::new(6)));
    assert_eq!(open(Some(Segment::new(6))), Some(Segment::new(8)), "7 is taken: the next free section");
    assert_eq!(open(Some(Segment::new(7))), Some(Segment::new(0)), "section 2 is in use: wraps to section 0");
    assert_eq!(
        open(Some(Segment::new(15))),
        Some(Segment::new(1)),
        "no free section: any segment, from the start after the end"
    );
    assert_eq!(open(Some(Segment::new(8))), Some(Segment::new(9)));
    assert_eq!(
        open(Some(Segment::new(11))),
        Some(Segment::new(12)),
        "never into the next section but as any free segment"
    );
    assert_eq!(open(None), Some(Segment::new(2)));
    for expected in [3, 10, 11, 14, 15] {
        assert_eq!(open(Some(Segment::new(2))), Some(Segment::new(expected)));
    }
    assert_eq!(open(Some(Segment::new(2))), None);
    assert_eq!(open(None), None);
}

#[test]
fn free_and_prefree_sections_are_whole_ones() {
    let mut table = loaded(2, &[1, 0, 1, 1, 0, 0]);
    assert_eq!((table.free_sections(), table.prefree_sections()), (1, 0));
    assert!(table.clear_live(MainBlock::new(0), 1));
    assert!(table.clear_live(MainBlock::in_segment(Segment::new(2), 0), 1));
    assert_eq!((table.prefree_segments(), table.prefree_sections()), (2, 1), "section 1 has a live block yet");
    assert!(table.clear_live(MainBlock::in_segment(Segment::new(3), 0), 1));
    assert_eq!((table.prefree_segments(), table.prefree_sections()), (3, 2));
    table.set_active(Segment::new(1));
    assert_eq!(table.prefree_sections(), 1, "section 0 has a log now");
    table.release(&[Segment::new(2), Segment::new(3)], Durable::without_device());
    assert_eq!((table.free_sections(), table.prefree_sections()), (2, 0));
}

#[test]
fn dirty_entries_are_kept_until_cleared() {
    let mut table = loaded(1, &[5, 5, 0, 5]);
    assert!(table.set_live(MainBlock::in_segment(Segment::new(3), 5), 1));
    assert!(table.clear_live(MainBlock::new(0), 1));
    table.mark_dirty(Segment::new(1));
    assert_eq!(table.open_segment(HotData, None), Some(Segment::new(2)));
    assert_eq!((table.dirty_entries(), table.dirty_entry_count()), (Segment::all(4).collect(), 4));
    table.clear_dirty();
    assert_eq!((table.dirty_entries(), table.dirty_entry_count()), (vec![], 0));
}

/// The set of them is searched a word of 64 at a time.
#[test]
fn no_dirty_entry_is_left_out_where_a_word_ends() {
    let mut table = loaded(1, &[5; 200]);
    let dirty = [0, 62, 63, 64, 127, 128, 129, 191, 192, 199].map(Segment::new);
    dirty.iter().for_each(|&segment| table.mark_dirty(segment));
    assert_eq!((table.dirty_entries(), table.dirty_entry_count()), (dirty.to_vec(), 10));
}

#[test]
fn victims_by_policy() {
    // Segment number is the time of modification, so the first is the oldest.
    let table = loaded(1, &[400, 512, 300, 0, 300]);
    assert_eq!(victim(&table, &Greedy), Some(2), "the fewest live blocks, the first of equals");
    assert_eq!(table.select_victim(&CostBenefit, 5, &|_| false), Some(Section::new(2)));
    assert_eq!(table.select_victim(&Greedy, 5, &|section| section == Section::new(2)), Some(Section::new(4)));
    assert_eq!(table.select_victim(&Greedy, 5, &|section| section != Section::new(0)), Some(Section::new(0)));
    assert_eq!(table.select_victim(&Greedy, 5, &|_| true), None);
}

/// The emptier half by live blocks; of these, the one that was modified last.
struct YoungestOfTwo;

impl VictimPolicy for YoungestOfTwo {
    fn name(&self) -> &'static str {
        "youngest-of-two"
    }

    fn about(&self) -> &'static str {
        "of the two emptiest, the one that was modified last"
    }

    fn cost(&self, section: &SectionView, _now: u64, _oldest: u64, _youngest: u64) -> f64 {
        f64::from(section.live)
    }

    fn weighs_rate(&self) -> bool {
        true
    }

    fn finalists(&self) -> usize {
        2
    }

    fn final_cost(&self, section: &SectionView, now: u64) -> f64 {
        (now - section.modified) as f64 + section.rate.unwrap_or(0.0)
    }
}

/// Tells the rate of any section, and counts how often it was asked.
#[derive(Default)]
struct Rates(std::sync::atomic::AtomicU32);

impl Placement for Rates {
    fn log(&self, block: &BlockTraits) -> LogId {
        StaticPlacement::default().log(block)
    }

    fn rate(&self, section: &SectionView) -> Option<f64> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        // Far more than the times of modification differ, for section 4.
        Some(if section.section == Section::new(4) { 100.0 } else { 0.0 })
    }
}

#[test]
fn finalists_get_a_second_look() {
    let table = loaded(1, &[400, 512, 300, 0, 300, 301, 511]);
    assert_eq!(victim(&table, &YoungestOfTwo), Some(4), "not 5, which is younger, but no finalist");
    let several = |count| {
        let best = table.select_victims(&YoungestOfTwo, 1000, &|_| false, count);
        best.into_iter().map(Section::get).collect::<Vec<_>>()
    };
    assert_eq!((several(1), several(2), several(3)), (vec![4], vec![4, 2], vec![5, 4, 2]));
    let rates = Rates::default();
    assert_eq!(victim(&table, Informed::new(&YoungestOfTwo, &rates).policy()), Some(2));
    assert_eq!(rates.0.into_inner(), 2, "only finalists are asked for");
}

/// The two with the most live blocks, and the two with the fewest; of these, the one that was modified first.
struct OldestOfFour;

impl VictimPolicy for OldestOfFour {
    fn name(&self) -> &'static str {
        "oldest-of-four"
    }

    fn about(&self) -> &'static str {
        "of the two fullest and the two emptiest, the one that was modified first"
    }

    fn cost(&self, section: &SectionView, _now: u64, _oldest: u64, _youngest: u64) -> f64 {
        -f64::from(section.live)
    }

    fn finalists(&self) -> usize {
        2
    }

    fn emptiest_finalists(&self) -> usize {
        2
    }

    fn final_cost(&self, section: &SectionView, _now: u64) -> f64 {
        section.modified as f64
    }
}

#[test]
fn the_emptiest_sections_are_finalists_where_a_policy_wants_them() {
    let table = loaded(1, &[512, 300, 400, 0, 299, 500, 5, 501, 512, 6]);
    let best = |count| {
        let best = table.select_victims(&OldestOfFour, 1000, &|_| false, count);
        best.into_iter().map(Section::get).collect::<Vec<_>>()
    };
    assert_eq!((best(1), best(2)), (vec![5], vec![5, 6]), "of 7 and 5, 6 and 9");
    assert_eq!(best(4), [1, 2, 4, 5], "section 1 is among both, and comes once");
    assert_eq!(table.select_victim(&OldestOfFour, 1000, &|_| false), Some(Section::new(5)));
    let none = StaticPlacement::default();
    assert_eq!(Informed::new(&OldestOfFour, &none).emptiest_finalists(), 2);
}

#[test]
fn cost_benefit_prefers_old_sections() {
    let mut table = SegmentTable::new(2, 1);
    table.load(Segment::new(0), WarmData, &first(200), 990);
    table.load(Segment::new(1), WarmData, &first(400), 0);
    table.finish_load();
    assert_eq!(victim(&table, &Greedy), Some(0));
    assert_eq!(victim(&table, &CostBenefit), Some(1));
}

#[test]
fn victims_are_never_free_full_active_or_only_waiting() {
    let mut table = loaded(2, &[0, 0, 512, 512, 1, 0, 1, 0, 511, 512]);
    table.set_active(Segment::new(5));
    assert!(table.clear_live(MainBlock::in_segment(Segment::new(6), 0), 1));
    assert_eq!(victim(&table, &Greedy), Some(4), "the only one with something to move and to gain");
    assert!(table.set_live(MainBlock::in_segment(Segment::new(8), 511), 1));
    assert_eq!(victim(&table, &Greedy), None);
}

#[test]
fn what_is_to_be_moved_goes_on_in_the_next_closed_segment_of_the_section() {
    let mut table = loaded(4, &[300, 200, 100, 300]);
    table.set_active(Segment::new(2));
    let movable = |from: u32, most: u32| {
        let (segment, blocks) = table.movable(Section::new(0), from, most)?;
        Some((segment.get(), *blocks.first().unwrap(), blocks.len()))
    };
    assert_eq!(movable(0, 9999), Some((0, 0, 300)));
    assert_eq!(movable(250, 20), Some((0, 250, 20)));
    assert_eq!(movable(300, 5), Some((1, 0, 5)), "a later segment from its first block on");
    assert_eq!(movable(512 + 190, 99), Some((1, 190, 10)));
    assert_eq!(movable(512 + 200, 2), Some((3, 0, 2)), "somebody writes to the third");
    assert_eq!(movable(3 * 512 + 300, 9), None);
    assert_eq!(movable(0, 0), None);
}

#[test]
fn victims_see_the_extremes_of_time() {
    struct Probe;
    impl VictimPolicy for Probe {
        fn name(&self) -> &'static str {
            "probe"
        }
        fn about(&self) -> &'static str {
            "looks at what it is shown"
        }
        fn cost(&self, view: &SectionView, now: u64, oldest: u64, youngest: u64) -> f64 {
            assert_eq!((now, oldest, youngest, view.capacity), (1000, 1, 3, 512));
            assert_eq!(view.modified, u64::from(view.section.get()));
            -(view.modified as f64)
        }
    }
    let table = loaded(1, &[512, 5, 6, 7, 0]);
    assert_eq!(victim(&table, &Probe), Some(3));
}

#[test]
fn out_of_range_numbers_panic_by_contract() {
    fn panics(call: impl FnOnce(&mut SegmentTable) + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(|| call(&mut SegmentTable::new(3, 1))).is_err()
    }
    assert!(panics(|table| _ = table.set_live(MainBlock::in_segment(Segment::new(3), 0), 0)));
    assert!(panics(|table| _ = table.is_live(MainBlock::new(u32::MAX))));
    assert!(panics(|table| table.mark_dirty(Segment::new(3))));
    assert!(panics(|table| table.release(&[Segment::new(3)], Durable::without_device())));
    assert!(panics(|table| _ = table.open_segment(HotData, Some(Segment::new(3)))));
    assert!(panics(|table| _ = table.segments_of(Section::new(3))));
    assert!(panics(|table| {
        assert!(table.set_live(MainBlock::new(0), 0));
        table.set_kind(Segment::new(0), HotNode);
    }));
    assert!(!panics(|table| assert!(table.set_live(MainBlock::new(3 * 512 - 1), 0))));
    for (segments, per_section) in [(4, 0), (4, 3), (MAX_SEGMENTS + 1, 1), (MAX_SEGMENTS, MAX_SEGMENTS)] {
        assert!(std::panic::catch_unwind(|| SegmentTable::new(segments, per_section)).is_err());
    }
}

#[test]
fn avoided_segments_are_taken_last() {
    let mut table = SegmentTable::new(12, 2);
    table.avoid(Segments::new(Segment::new(5), 4));
    assert_eq!((table.free_sections(), table.preferred_free_sections()), (6, 3), "whole sections: 4 to 9");
    let mut order = vec![table.open_segment(HotData, None).unwrap()];
    while let Some(next) = table.open_segment(HotData, order.last().copied()) {
        order.push(next);
    }
    assert_eq!(order, [0, 1, 2, 3, 10, 11, 4, 5, 6, 7, 8, 9].map(Segment::new));
    assert_eq!((table.free_segments(), table.preferred_free_sections()), (0, 0));
}

#[test]
fn sections_of_segments_are_all_that_have_one_of_them() {
    let table = SegmentTable::new(16, 4);
    let sections = |first: u32, count: u32| -> Vec<u32> {
        table.sections_with(&Segments::new(Segment::new(first), count)).map(Section::get).collect()
    };
    assert_eq!(sections(4, 4), [1]);
    assert_eq!(sections(3, 2), [0, 1], "of each the end");
    assert_eq!(sections(5, 1), [1], "from the middle of one");
    assert_eq!(sections(4, 9), [1, 2, 3], "of the last one segment");
    assert_eq!(sections(0, 16), [0, 1, 2, 3]);
    assert_eq!(sections(8, 0), [0; 0]);
}

#[test]
fn the_emptiest_finalists_are_as_many_and_are_asked_for_as_others_are() {
    // Fullest: 5 and 4. Emptiest: 3 and 2, of which 2 is the older, and of all four.
    let mut table = loaded(1, &[0, 512, 6, 5, 500, 501, 0, 0]);
    let best = |table: &SegmentTable, skipped: Option<u32>| {
        let skip = |section: Section| Some(section.get()) == skipped;
        table.select_victims(&OldestOfFour, 1000, &skip, 1).into_iter().map(Section::get).collect::<Vec<_>>()
    };
    assert_eq!(best(&table, None), [2], "the second-emptiest is a finalist, though one victim is wanted");
    assert_eq!(best(&table, Some(2)), [3], "what is to be left out is no finalist");
    // An active section with one live block is the emptiest.
    let active = table.open_segment(WarmData, None).unwrap();
    assert!(table.set_live_run(MainBlock::in_segment(active, 0), 1, 0));
    let got = table.select_victims(&OldestOfFour, 1000, &|_| false, 8);
    assert!(!got.contains(&table.section_of(active)), "{got:?}");
}

/// All that is dead is needed: the segment is a victim again, and may be promised later.
#[test]
fn a_promised_segment_without_slack_is_taken_back() {
    let quiet = Quiet::while_locked();
    let mut table = loaded(1, &[512, 512]);
    table.track_durability(false);
    assert!(table.clear_live(MainBlock::new(3), 1));
    let promise = table.reserve(Segment::new(0)).expect("one block is dead");
    assert_eq!(table.hand_out_slack(promise, &quiet), None);
    assert_eq!((table.state(Segment::new(0)), victim(&table, &Greedy)), (Dirty, Some(0)));
    table.begin_checkpoint();
    table.end_checkpoint();
    assert!(table.reserve_slack(Segment::new(0), &quiet).is_some_and(|slack| slack.places().eq([3])));
}

/// What dies while a checkpoint is on its way is needed by it, however much it leaves behind.
#[test]
fn what_died_while_a_checkpoint_was_taken_is_no_slack() {
    let quiet = Quiet::while_locked();
    let mut table = loaded(1, &[512, 512]);
    table.track_durability(false);
    assert!(table.clear_live_all(Segment::new(0), &[3, 5], 1));
    table.begin_checkpoint();
    assert!(table.clear_live_all(Segment::new(0), &[7, 9], 2));
    table.end_checkpoint();
    assert!(table.reserve_slack(Segment::new(0), &quiet).is_some_and(|slack| slack.places().eq([3, 5])));
    assert_eq!(table.pre_invalid_blocks(), 2);
}

/// Its SIT entry says whose blocks it holds from now on, though the log has not written one yet.
#[test]
fn a_log_that_goes_on_in_slack_changes_the_entry_of_the_segment() {
    let quiet = Quiet::while_locked();
    let mut table = loaded(1, &[100, 100]);
    let slack = table.reserve_slack(Segment::new(1), &quiet).expect("most is dead");
    assert_eq!(table.dirty_entries(), [], "a promise changes nothing on the device");
    assert!(table.open_slack(slack, ColdData).is_some_and(|places| places.next_from(0) == 100));
    assert_eq!((table.kind(Segment::new(1)), table.state(Segment::new(1))), (ColdData, Active));
    assert_eq!(table.dirty_entries(), [Segment::new(1)]);
}

#[test]
fn slack_that_is_handed_out_does_not_grow_with_what_dies() {
    let quiet = Quiet::while_locked();
    let mut table = loaded(1, &[100, 100]);
    let slack = table.reserve_slack(Segment::new(1), &quiet).expect("most is dead");
    // Somebody may still read it, and the next seal may list it.
    assert!(table.clear_live_all(Segment::new(1), &[3, 5], 1));
    assert!(table.open_slack(slack, ColdData).is_some_and(|places| places.next_from(0) == 100));
}

#[test]
fn a_void_promise_takes_no_segment_from_whoever_has_it_now() {
    let quiet = Quiet::while_locked();
    let mut table = loaded(1, &[1]);
    let slack = table.reserve_slack(Segment::new(0), &quiet).expect("most is dead");
    assert!(table.clear_live(MainBlock::new(0), 1));
    table.release(&[Segment::new(0)], Durable::without_device());
    assert_eq!(table.open_segment(HotNode, None), Some(Segment::new(0)));
    table.return_slack(slack);
    assert_eq!(table.state(Segment::new(0)), Active);
}
