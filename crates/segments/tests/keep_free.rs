//! How much cleaning keeps free: all that the format reserves, or less where it is dear.

use basalt_segments::cleaning::{Cleaner, KeepFree, Load, Pressure};
use basalt_segments::{BLOCKS_PER_SEGMENT, MainBlock, SectionView, SegmentKind, SegmentTable, VictimPolicy, victim};

const SECTIONS: u32 = 256;
const RESERVED: u32 = 40;

/// A table of sections of one segment: all but `free` are in use, with so many live blocks.
fn table(free: u32, live: u32) -> SegmentTable {
    let mut table = SegmentTable::new(SECTIONS, 1);
    for _ in free..SECTIONS {
        let segment = table.open_segment(SegmentKind::WarmData, None).unwrap();
        assert!(table.set_live_run(MainBlock::in_segment(segment, 0), live, 1));
        table.close_segment(segment);
    }
    table
}

fn plan(cleaner: &mut Cleaner, table: &SegmentTable) {
    // What was planned before is done: only a new plan is looked at.
    while cleaner.current().is_some() {
        cleaner.advance(table, 0, None);
    }
    cleaner.note_checkpoint(&[]);
    assert!(cleaner.plan_when_needed(table, victim::by_name("greedy").unwrap(), RESERVED, 2));
}

/// The least number of free sections at which no change has to move anything, without the slack of six.
fn kept(keep_free: KeepFree, live: u32) -> u32 {
    let load = Load { reserved_sections: RESERVED, keep_free, ..Load::default() };
    let mut cleaner = Cleaner::default();
    plan(&mut cleaner, &table(20, live));
    let is_enough = |free| cleaner.pressure(&table(free, live), &load) == Pressure::None;
    // What the plan emptied counts as free once it is committed; nothing was emptied here.
    let least = (0..SECTIONS).find(|&free| is_enough(free)).unwrap();
    assert!((least..SECTIONS).all(is_enough));
    least - 6
}

#[test]
fn the_reserve_is_kept_while_cleaning_is_cheap_and_less_of_it_where_it_is_dear() {
    // A margin of two is always kept.
    for live in [1, 100, 256, 400, 480] {
        assert_eq!(kept(KeepFree::Reserve, live), RESERVED + 2, "{live} live");
    }
    // Half a block moved for each gained: 170 of 512 are live. As many moved as gained: 256.
    for (live, expected) in [(1, 42), (170, 42), (256, 10), (300, 10), (480, 10)] {
        assert_eq!(kept(KeepFree::Adaptive, live), expected, "{live} live");
    }
    // In between: 205 live and 307 dead are a price of 0.668, and a third of the 32 sections is given up.
    assert_eq!(kept(KeepFree::Adaptive, 205), 42 - 10);
}

#[test]
fn where_nothing_was_cleaned_yet_the_reserve_is_kept() {
    let load = Load { reserved_sections: RESERVED, ..Load::default() };
    assert_ne!(Cleaner::default().pressure(&table(41, 500), &load), Pressure::None);
    assert_eq!(Cleaner::default().pressure(&table(48, 500), &load), Pressure::None);
}

#[test]
fn a_reserve_smaller_than_the_least_is_kept_whole() {
    let load = Load { reserved_sections: 5, ..Load::default() };
    let mut cleaner = Cleaner::default();
    plan(&mut cleaner, &table(20, 480));
    assert_eq!(cleaner.pressure(&table(13, 500), &load), Pressure::None);
    assert_ne!(cleaner.pressure(&table(12, 500), &load), Pressure::None);
}

/// One cheap plan among dear ones does not make writers hurry to keep everything free.
#[test]
fn the_last_plans_together_decide() {
    let load = Load { reserved_sections: RESERVED, ..Load::default() };
    let mut cleaner = Cleaner::default();
    let (dear, cheap) = (table(20, 400), table(20, 10));
    (0..20).for_each(|_| plan(&mut cleaner, &dear));
    assert_eq!(cleaner.pressure(&dear, &load), Pressure::None);
    plan(&mut cleaner, &cheap);
    assert_eq!(cleaner.pressure(&dear, &load), Pressure::None);
    (0..40).for_each(|_| plan(&mut cleaner, &cheap));
    assert_eq!(cleaner.pressure(&dear, &load), Pressure::Hard);
}

/// Writers wait for whole rounds only where the next change might find nothing free, whatever is kept besides.
#[test]
fn writers_wait_where_the_last_sections_are_needed() {
    let pressure = |keep_free, free, dirty_pages| {
        let nodes_of_pages = dirty_pages;
        let load = Load { reserved_sections: RESERVED, keep_free, dirty_pages, nodes_of_pages, ..Load::default() };
        Cleaner::default().pressure(&table(free, 500), &load)
    };
    assert_eq!(pressure(KeepFree::Adaptive, 6, 0), Pressure::Hard);
    assert_eq!(pressure(KeepFree::Adaptive, 5, 0), Pressure::Low);
    // Each dirty page with a node of its own: 512 of them take two sections.
    assert_eq!(pressure(KeepFree::Adaptive, 8, 512), Pressure::Hard);
    assert_eq!(pressure(KeepFree::Adaptive, 7, 512), Pressure::Low);
    assert_eq!(pressure(KeepFree::Reserve, 22, 0), Pressure::Hard);
    assert_eq!(pressure(KeepFree::Reserve, 21, 0), Pressure::Low);
}

/// Logs beside the recorded ones go on where cleaning has settled: no further from where writers wait than cleaning may come.
#[test]
fn more_logs_have_sections_where_cleaning_settles() {
    let load = Load { reserved_sections: RESERVED, ..Load::default() };
    let mut cleaner = Cleaner::default();
    plan(&mut cleaner, &table(20, 400));
    assert_eq!(cleaner.pressure(&table(16, 400), &load), Pressure::None);
    assert!(cleaner.has_sections_for_more_logs(&table(10, 400), &load), "at the mark");
    assert!(cleaner.has_sections_for_more_logs(&table(9, 400), &load));
    assert!(!cleaner.has_sections_for_more_logs(&table(8, 400), &load), "two above where writers wait");
    assert_eq!(cleaner.spare_sections(&table(20, 400), &load), 4);
}

/// Cleaning in the background takes the cheapest section at a time: that says nothing about what writers have to pay.
#[test]
fn plans_of_the_background_are_not_what_is_usual() {
    let load = Load { reserved_sections: RESERVED, ..Load::default() };
    let (mut cleaner, dear, cheap) = (Cleaner::default(), table(20, 400), table(20, 10));
    (0..20).for_each(|_| plan(&mut cleaner, &dear));
    for _ in 0..40 {
        while cleaner.current().is_some() {
            cleaner.advance(&cheap, 0, None);
        }
        cleaner.note_checkpoint(&[]);
        assert!(cleaner.plan_background(&cheap, victim::by_name("greedy").unwrap(), 2));
    }
    assert_eq!(cleaner.pressure(&dear, &load), Pressure::None);
}

/// Where less of the reserve is kept, fewer emptied sections are worth a commit.
#[test]
fn sections_worth_a_commit_are_a_share_of_what_is_kept() {
    let load = Load { reserved_sections: RESERVED, ..Load::default() };
    let least = |live| {
        let mut cleaner = Cleaner::default();
        let used = table(20, live);
        plan(&mut cleaner, &used);
        (1..40).find(|&waiting| {
            let mut table = table(20, live);
            for segment in 0..waiting {
                let first = segment * BLOCKS_PER_SEGMENT;
                (first..first + live).for_each(|block| assert!(table.clear_live(MainBlock::new(block), 2)));
            }
            assert_eq!(table.prefree_sections(), waiting);
            cleaner.wants_sections_freed(&table, &load, true)
        })
    };
    assert_eq!((least(10), least(400)), (Some(RESERVED / 4), Some(6)));
}

/// Prefers the sections with the most live blocks.
struct MostLive;

impl VictimPolicy for MostLive {
    fn name(&self) -> &'static str {
        "most-live"
    }

    fn about(&self) -> &'static str {
        "the section with the most live blocks"
    }

    fn cost(&self, section: &SectionView, _now: u64, _oldest: u64, _youngest: u64) -> f64 {
        f64::from(section.capacity - section.live)
    }
}

/// 100 sections have lost a block each, 20 of them 32: sixteen of these gain a section, which takes more than a plan usually has.
#[test]
fn where_a_policy_gains_nothing_as_many_sections_as_needed_are_taken_greedily() {
    let mut table = table(20, 511);
    for segment in 100..120 {
        (0..31).for_each(|at| assert!(table.clear_live(MainBlock::new(segment * BLOCKS_PER_SEGMENT + at), 2)));
    }
    let mut cleaner = Cleaner::default();
    assert!(cleaner.plan_when_needed(&table, &MostLive, RESERVED, 3));
    let planned: Vec<u32> = std::iter::from_fn(|| {
        let (section, _) = cleaner.current()?;
        cleaner.advance(&table, 0, None);
        Some(section.get())
    })
    .collect();
    assert_eq!(planned, (100..116).collect::<Vec<_>>());
}

/// Dead blocks that a checkpoint still needs have to be copied as well: they are no gain.
#[test]
fn blocks_that_are_dead_and_needed_are_no_gain() {
    let mut table = table(20, 512);
    table.track_durability(true);
    for block in 0..40 * BLOCKS_PER_SEGMENT {
        assert!(block % 2 == 0 || table.clear_live(MainBlock::new(block), 2));
    }
    let greedy = victim::by_name("greedy").unwrap();
    // One block more is dead and not needed, in each of eight sections.
    for section in 40..48 {
        assert!(table.clear_live(MainBlock::new(section * BLOCKS_PER_SEGMENT), 2));
        table.forget_pre_invalid(MainBlock::new(section * BLOCKS_PER_SEGMENT));
    }
    for section in 0..40 {
        table.forget_pre_invalid(MainBlock::new(section * BLOCKS_PER_SEGMENT + 1));
    }
    let mut cleaner = Cleaner::default();
    assert!(!cleaner.plan_when_needed(&table, greedy, RESERVED, 3), "a block of each is gained");
}
