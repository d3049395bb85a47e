//! The driver of cleaning: what it has a volume do before a change, by the facts it is told.

use std::convert::Infallible;

use basalt_segments::cleaning::{Cleaner, Driven, Facts, Load, Moved, PIECE, Pressure, Want, make_room};
use basalt_segments::{BLOCKS_PER_SEGMENT, Durable, MainBlock, Section, Segment, SegmentKind, SegmentTable, victim};

const SECTIONS: u32 = 64;

/// What a volume was made to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Pages(usize),
    Nodes(usize),
    Moved,
    Prepared,
    Commit { wait: bool },
    Checkpoint(Want),
}

/// A volume of sections of one segment; a log takes the blocks that are moved.
struct Volume {
    table: SegmentTable,
    cleaner: Cleaner,
    facts: Facts,
    log: (Segment, u32),
    done: Vec<Done>,
    /// Whether a commit frees what is empty, and writing leaves less that is dirty.
    commits_free: bool,
    writing_helps: bool,
    /// Nodes that become dirty with each block that is moved.
    nodes_per_move: u64,
    /// Sections that others take before the next plan.
    others_take: u32,
    /// How many hold the turn of cleaning.
    cleaners: u32,
}

impl Volume {
    /// All sections but `free` are in use, each with so many live blocks.
    fn new(free: u32, live: u32) -> Volume {
        let mut table = SegmentTable::new(SECTIONS, 1);
        for _ in free..SECTIONS {
            let segment = table.open_segment(SegmentKind::WarmData, None).unwrap();
            assert!(table.set_live_run(MainBlock::in_segment(segment, 0), live, 1));
            table.close_segment(segment);
        }
        let load = Load { reserved_sections: 4, ..Load::default() };
        let facts = Facts::without_journal(load, 4096);
        let log = (table.open_segment(SegmentKind::ColdData, None).unwrap(), 0);
        let (cleaner, done) = (Cleaner::default(), Vec::new());
        Volume {
            table,
            cleaner,
            facts,
            log,
            done,
            commits_free: true,
            writing_helps: true,
            nodes_per_move: 0,
            others_take: 0,
            cleaners: 0,
        }
    }

    /// What a change of `weight` blocks makes it do; repetitions count once.
    fn make_room(&mut self, weight: u32) -> Vec<Done> {
        self.done.clear();
        let Ok(()) = make_room(self, weight);
        assert_eq!(self.cleaners, 0);
        let mut done = self.done.clone();
        done.dedup();
        done
    }

    fn free(&mut self) {
        let freed = self.table.prefree();
        self.table.release(&freed, Durable::without_device());
        let sections: Vec<Section> = freed.iter().map(|&segment| self.table.section_of(segment)).collect();
        self.cleaner.note_checkpoint(&sections);
    }

    fn place(&mut self, block: MainBlock) {
        if self.log.1 == BLOCKS_PER_SEGMENT {
            self.table.close_segment(self.log.0);
            self.log = (self.table.open_segment(SegmentKind::ColdData, None).expect("room to move to"), 0);
        }
        assert!(self.table.set_live(MainBlock::in_segment(self.log.0, self.log.1), 2));
        self.log.1 += 1;
        assert!(self.table.clear_live(block, 2));
    }
}

impl Driven for Volume {
    type Error = Infallible;

    fn ask<T>(&mut self, question: impl FnOnce(&mut Cleaner, &SegmentTable, &Facts) -> T) -> T {
        question(&mut self.cleaner, &self.table, &self.facts)
    }

    fn as_cleaner<T>(&mut self, work: impl FnOnce(&mut Volume) -> T) -> T {
        assert_eq!(self.cleaners, 0, "one at a time");
        self.cleaners += 1;
        let result = work(self);
        self.cleaners -= 1;
        result
    }

    fn plan(&mut self) -> bool {
        assert_eq!(self.cleaners, 1);
        for _ in 0..std::mem::take(&mut self.others_take) {
            self.table.open_segment(SegmentKind::WarmData, None).expect("room for others");
        }
        let greedy = victim::by_name("greedy").unwrap();
        self.cleaner.plan_when_needed(&self.table, greedy, self.facts.load.reserved_sections, 2)
    }

    fn follow_plan(&mut self, most: u32) -> Result<Option<Moved>, Infallible> {
        assert_eq!(self.cleaners, 1);
        let Some((section, position)) = self.cleaner.current() else { return Ok(None) };
        self.done.push(Done::Moved);
        let (blocks, next) = match self.table.movable(section, position, most) {
            Some((segment, live)) => {
                live.iter().for_each(|offset| self.place(MainBlock::in_segment(segment, *offset)));
                (live.len() as u32, live.last().map(|last| last + 1))
            }
            None => (0, None),
        };
        self.facts.load.dirty_nodes += u64::from(blocks) * self.nodes_per_move;
        Ok(Some(Moved { blocks, ends_section: self.cleaner.advance(&self.table, blocks, next) }))
    }

    fn prepare_round(&mut self) -> Result<(), Infallible> {
        assert_eq!(self.cleaners, 1);
        self.done.push(Done::Prepared);
        Ok(())
    }

    fn write_pages(&mut self, count: usize) -> Result<(), Infallible> {
        self.done.push(Done::Pages(count));
        let written = if self.writing_helps { count as u64 } else { 0 };
        self.facts.load.dirty_pages = self.facts.load.dirty_pages.saturating_sub(written);
        Ok(())
    }

    fn write_nodes(&mut self, count: usize) -> Result<(), Infallible> {
        self.done.push(Done::Nodes(count));
        let written = if self.writing_helps { count as u64 } else { 0 };
        self.facts.load.dirty_nodes = self.facts.load.dirty_nodes.saturating_sub(written);
        Ok(())
    }

    fn commit(&mut self, wait: bool) -> Result<(), Infallible> {
        assert_eq!(self.cleaners, 0, "a commit may need what a cleaner holds");
        self.done.push(Done::Commit { wait });
        if self.commits_free {
            self.free();
        }
        Ok(())
    }

    fn checkpoint(&mut self, want: Want) -> Result<(), Infallible> {
        assert_eq!(self.cleaners, 0);
        self.done.push(Done::Checkpoint(want));
        self.facts.is_held_by_checkpoint = false;
        self.free();
        Ok(())
    }
}

#[test]
fn where_there_is_room_nothing_is_done() {
    assert_eq!(Volume::new(40, 512).make_room(1), []);
}

#[test]
fn what_cannot_be_changed_is_left_alone() {
    let mut volume = Volume::new(2, 100);
    volume.facts = Facts { is_writable: false, is_memory_full: true, is_recovery_cramped: true, ..volume.facts };
    volume.facts.load.dirty_pages = 1 << 20;
    assert_eq!(volume.make_room(1), []);
}

#[test]
fn what_is_dirty_beyond_the_limits_is_written_in_large_pieces() {
    // Half of the cache may be dirty pages, and a quarter dirty nodes.
    let mut volume = Volume::new(50, 512);
    volume.facts.load.dirty_pages = 2049;
    assert_eq!(volume.make_room(1), [Done::Pages(PIECE)]);
    volume.facts.load.dirty_pages = 2048 + 3000;
    volume.facts.load.dirty_nodes = 1024 + 700;
    assert_eq!(volume.make_room(1), [Done::Pages(3000), Done::Nodes(700)]);
    assert_eq!(volume.make_room(1), []);
    // Few free segments leave less. One of the 17 is the log's.
    let mut volume = Volume::new(17, 512);
    volume.facts.load.dirty_nodes = 1025;
    assert_eq!(volume.make_room(1), [Done::Nodes(PIECE)]);
    volume.facts.load.dirty_nodes = 1000;
    assert_eq!(volume.make_room(1), []);
}

/// Two of the four reserved sections are kept, and a margin of two: twelve are left of sixteen, and three quarters of them are 4608 blocks.
#[test]
fn what_is_dirty_takes_three_quarters_of_what_may_be_used_up_with_its_nodes() {
    let over_with = |dirty_nodes, dirty_pages, nodes_of_pages, reserved_sections| {
        let mut volume = Volume::new(17, 300);
        volume.facts.cache_blocks = 1 << 20;
        volume.facts.load = Load { dirty_nodes, dirty_pages, nodes_of_pages, reserved_sections, ..Load::default() };
        volume.make_room(1).iter().any(|done| matches!(done, Done::Pages(_)))
    };
    let over = |pages, nodes, reserved| over_with(0, pages, nodes, reserved);
    assert!(!over(4608, 0, 4));
    assert!(over(4609, 0, 4));
    // Nodes that are dirty already have a limit of their own.
    assert!(!over_with(500, 4608, 0, 4));
    assert!(!over(2304, 2304, 4));
    assert!(over(2304, 2305, 4));
    // However many are reserved, four of them are kept, as of eight.
    assert!(!over(3840, 0, 8) && over(3841, 0, 8));
    assert!(!over(3840, 0, 100) && over(3841, 0, 100));
}

#[test]
fn a_few_pages_may_be_dirty_where_nothing_is_free() {
    let mut volume = Volume::new(2, 100);
    volume.facts.load.dirty_pages = 64;
    assert!(!volume.make_room(1).contains(&Done::Pages(PIECE)));
    let mut volume = Volume::new(2, 100);
    volume.facts.load.dirty_pages = 65;
    assert_eq!(volume.make_room(1)[0], Done::Pages(PIECE));
}

#[test]
fn where_only_a_checkpoint_helps_nothing_is_cleaned() {
    for (facts, want) in [
        (Facts { is_memory_full: true, ..Volume::new(2, 100).facts }, Want::Memory),
        (Facts { is_recovery_cramped: true, ..Volume::new(2, 100).facts }, Want::Room),
        (Facts { is_memory_full: true, is_recovery_cramped: true, ..Volume::new(2, 100).facts }, Want::Memory),
    ] {
        let mut volume = Volume::new(2, 100);
        volume.facts = facts;
        assert_eq!(volume.make_room(1), [Done::Checkpoint(want)]);
    }
}

#[test]
fn where_more_becomes_dirty_than_is_written_sections_are_cleaned_all_the_same() {
    let mut volume = Volume::new(3, 300);
    volume.writing_helps = false;
    volume.facts.load.dirty_pages = 5000;
    let done = volume.make_room(1);
    assert!(
        matches!(done[..], [Done::Pages(_), Done::Prepared, Done::Moved, Done::Commit { wait: true }, ..]),
        "{done:?}"
    );
}

#[test]
fn what_is_held_by_a_checkpoint_does_not_keep_what_was_emptied_from_its_commit() {
    let mut volume = Volume::new(3, 300);
    volume.facts.is_held_by_checkpoint = true;
    let done = volume.make_room(1);
    assert_eq!(done[..3], [Done::Prepared, Done::Moved, Done::Commit { wait: true }]);
}

#[test]
fn a_step_that_gains_nothing_ends_in_a_checkpoint_only_where_that_frees_something() {
    let mut volume = Volume::new(7, 512);
    volume.facts.load.written = 100;
    assert_eq!(volume.make_room(1), []);
    volume.facts.is_held_by_checkpoint = true;
    assert_eq!(volume.make_room(1), [Done::Checkpoint(Want::Room)]);
}

#[test]
fn near_the_mark_changes_pay_in_steps() {
    // Four reserved sections and a margin of two; three to six above them are slack.
    let mut volume = Volume::new(9, 300);
    assert_eq!(volume.make_room(1), [], "nothing was written yet");
    let mut moves = 0;
    for _ in 0..200 {
        volume.facts.load.written += 20;
        let done = volume.make_room(20);
        assert!(done.iter().all(|done| *done == Done::Moved), "{done:?}");
        moves += usize::from(!done.is_empty());
    }
    assert!(moves > 5, "{moves}");
    assert!(volume.cleaner.has_emptied(), "steps add up to sections");
}

#[test]
fn nodes_that_a_step_has_made_dirty_are_no_new_debt() {
    let mut volume = Volume::new(9, 300);
    volume.nodes_per_move = 1;
    let mut steps = 0;
    for _ in 0..100 {
        volume.facts.load.written += 20;
        steps += u32::from(!volume.make_room(20).is_empty());
        // Nothing more is written, so nothing more is to be moved.
        let dirty = volume.facts.load.dirty_nodes;
        for _ in 0..10 {
            assert_eq!(volume.make_room(1), [], "after {steps} steps");
        }
        assert_eq!(volume.facts.load.dirty_nodes, dirty);
        if steps == 3 {
            return;
        }
    }
    panic!("{steps} steps");
}

#[test]
fn without_free_sections_a_change_waits_for_rounds_until_there_are_some() {
    let mut volume = Volume::new(3, 300);
    let done = volume.make_room(1);
    assert_eq!(done[..4], [Done::Prepared, Done::Moved, Done::Commit { wait: true }, Done::Prepared]);
    assert!(volume.table.free_sections() >= 4, "{} free", volume.table.free_sections());
    assert_eq!(volume.done.last(), Some(&Done::Commit { wait: true }));
}

#[test]
fn the_next_section_is_emptied_from_its_first_block_where_the_one_at_hand_was_freed() {
    let table = SegmentTable::new(SECTIONS, 1);
    let by_journal: fn(&mut Cleaner, &[Section]) = Cleaner::note_freed;
    for note in [by_journal, Cleaner::note_checkpoint] {
        let mut cleaner = Cleaner::default();
        cleaner.plan(&table, [5, 7, 9].map(Section::new).to_vec());
        assert!(!cleaner.advance(&table, 100, Some(300)));
        // One behind it is no matter.
        note(&mut cleaner, &[Section::new(7)]);
        assert_eq!(cleaner.current(), Some((Section::new(5), 300)));
        // It has died by itself while it was being emptied.
        note(&mut cleaner, &[Section::new(5)]);
        assert_eq!(cleaner.current(), Some((Section::new(9), 0)));
        assert!(cleaner.advance(&table, 1, None));
        let newest = cleaner.recent().newest().unwrap();
        assert_eq!((newest.section, newest.moved), (Section::new(9), 1));
    }
}

#[test]
fn sections_that_share_a_commit_are_counted() {
    let rounds = |most: u32| {
        let mut volume = Volume::new(4, 10);
        volume.facts.sections_per_commit = most;
        volume.facts.load.reserved_sections = 8;
        volume.make_room(1);
        volume.done.iter().filter(|done| matches!(done, Done::Commit { .. })).count()
    };
    assert!(rounds(1) > rounds(2), "{} and {}", rounds(1), rounds(2));
}

#[test]
fn a_volume_without_dead_blocks_is_not_cleaned_for_ever() {
    let mut volume = Volume::new(2, 512);
    assert_eq!(volume.make_room(1), []);
    // What is dead waits for a checkpoint.
    volume.facts.is_held_by_checkpoint = true;
    assert_eq!(volume.make_room(1), [Done::Checkpoint(Want::Room)]);
}

#[test]
fn commits_that_free_nothing_end_the_wait() {
    let mut volume = Volume::new(3, 300);
    volume.commits_free = false;
    assert_eq!(volume.make_room(1), [Done::Prepared, Done::Moved, Done::Commit { wait: true }]);
}

#[test]
fn a_commit_on_its_way_frees_what_it_can() {
    let last = |sections_per_commit: u32, committing: Option<u32>| {
        let mut volume = Volume::new(9, 100);
        volume.facts.load.reserved_sections = 6;
        for _ in 0..1000 {
            if volume.cleaner.emptied_sections() == 2 {
                volume.facts = Facts { sections_per_commit, committing, ..volume.facts };
                return volume.make_room(1).last().copied();
            }
            volume.facts.load.written += 20;
            volume.make_room(20);
        }
        panic!("no two sections are emptied");
    };
    assert_eq!(last(3, None), None, "too few for a commit");
    assert_eq!(last(2, None), Some(Done::Commit { wait: false }), "enough, and none is under way");
    assert_eq!(last(2, Some(2)), None, "that has all of them");
    assert_eq!(last(1, Some(1)), Some(Done::Commit { wait: true }), "the next one is full as well");
}

/// A long step in a volume with little more than writers wait for: what it moves is written to what is free.
#[test]
fn a_step_ends_where_what_it_has_emptied_has_to_be_freed() {
    let mut volume = Volume::new(5, 300);
    assert_eq!(volume.cleaner.pressure(&volume.table, &volume.facts.load), Pressure::Hard);
    let done = volume.make_room(100);
    assert_eq!(done, [Done::Moved, Done::Commit { wait: true }]);
    // Writers wait below four: the step stopped at the third, 300 blocks of each section moved, and no more.
    let mut volume = Volume::new(5, 300);
    volume.commits_free = false;
    volume.make_room(100);
    assert_eq!(volume.table.free_sections(), 3);
}

/// Others take what was free between the decision to move blocks and the move: what is left is for a checkpoint.
#[test]
fn a_step_moves_nothing_where_others_have_taken_the_room() {
    for (others_take, done) in [(1, vec![Done::Moved]), (2, vec![])] {
        let mut volume = Volume::new(5, 300);
        volume.others_take = others_take;
        volume.commits_free = false;
        volume.make_room(1);
        volume.done.retain(|done| *done == Done::Moved);
        volume.done.dedup();
        assert_eq!(volume.done, done, "{others_take} taken");
    }
}

#[test]
fn room_is_taken_where_cleaning_or_a_checkpoint_can_make_some() {
    let is_taken = |volume: &Volume| volume.cleaner.is_room_taken(&volume.table, &volume.facts);
    let mut volume = Volume::new(40, 512);
    assert!(!is_taken(&volume));
    volume.facts.is_recovery_cramped = true;
    assert!(is_taken(&volume), "only a checkpoint helps");
    volume.facts.is_writable = false;
    assert!(!is_taken(&volume));
    let mut volume = Volume::new(3, 512);
    assert!(is_taken(&volume), "nobody has looked for victims yet");
    volume.make_room(1);
    assert!(!is_taken(&volume), "nothing is to be gained");
    // What was emptied may be freed, though nothing more is to be gained.
    volume.cleaner.plan(&volume.table, vec![Section::new(5)]);
    volume.cleaner.advance(&volume.table, 0, None);
    assert!(is_taken(&volume));
    volume.cleaner.note_freed(&[Section::new(5)]);
    assert!(!is_taken(&volume));
    // Blocks die, and a plan gains something again.
    for section in 10..20 {
        (0..100).for_each(|at| assert!(volume.table.clear_live(MainBlock::new(section * 512 + at), 2)));
    }
    volume.as_cleaner(|volume| assert!(volume.plan()));
    assert!(is_taken(&volume), "the last search was not in vain");
}

/// 64 sections of two segments, all but 17 in use, one log: what is over for so many pages and nodes.
#[test]
fn limits_of_what_is_dirty_count_blocks_of_sections_of_any_size() {
    let over = |dirty_pages, dirty_nodes| {
        let mut table = SegmentTable::new(2 * SECTIONS, 2);
        for _ in 17..SECTIONS {
            let segment = table.open_segment(SegmentKind::WarmData, None).unwrap();
            assert!(table.set_live_run(MainBlock::in_segment(segment, 0), 300, 1));
            table.close_segment(segment);
        }
        let mut volume = Volume::new(17, 300);
        volume.log = (table.open_segment(SegmentKind::ColdData, None).unwrap(), 0);
        volume.table = table;
        volume.facts.cache_blocks = 1 << 20;
        volume.facts.load = Load { dirty_pages, dirty_nodes, reserved_sections: 4, ..Load::default() };
        let free = (volume.table.free_sections(), volume.table.free_segments());
        volume.writing_helps = false;
        (volume.make_room(1).first().copied(), free)
    };
    assert_eq!(over(9216, 0).1.0, 16);
    let limit = u64::from(over(0, 0).1.1) * 64;
    assert!(!matches!(over(9216, 0).0, Some(Done::Pages(_))));
    assert!(matches!(over(9217, 0).0, Some(Done::Pages(_))));
    assert!(!matches!(over(0, limit).0, Some(Done::Nodes(_))));
    assert!(matches!(over(0, limit + 1).0, Some(Done::Nodes(_))));
}

/// Half of the whole reserve is kept where all of it is: 16 - 8 - 2 sections, three quarters of them.
#[test]
fn where_the_reserve_is_kept_less_may_be_dirty() {
    let over = |dirty_pages| {
        let mut volume = Volume::new(17, 300);
        volume.facts.cache_blocks = 1 << 20;
        let keep_free = basalt_segments::cleaning::KeepFree::Reserve;
        volume.facts.load = Load { dirty_pages, reserved_sections: 16, keep_free, ..Load::default() };
        volume.make_room(1).iter().any(|done| matches!(done, Done::Pages(_)))
    };
    assert!(!over(2304) && over(2305));
}
