//! What SFS does, with numbers worked by hand.

use super::*;
use basalt_segments::Section;
use basalt_segments::placement::PlacementOptions;

/// Blocks of files, and where they lie.
struct Written {
    sfs: Sfs,
    places: std::collections::BTreeMap<(u32, u32), MainBlock>,
}

impl Written {
    fn new(groups: usize, scale: Scale) -> Written {
        Written { sfs: Sfs::new(groups, scale), places: std::collections::BTreeMap::default() }
    }

    fn block(&self, file: u32, index: u32, reason: Reason) -> BlockTraits {
        BlockTraits { file, index, reason, from: self.places.get(&(file, index)).copied(), ..BlockTraits::default() }
    }

    fn write(&mut self, file: u32, index: u32, place: u32, reason: Reason) {
        let block = self.block(file, index, reason);
        let place = MainBlock::new(place);
        self.sfs.note_written(&block, place);
        if let Some(old) = self.places.insert((file, index), place) {
            self.sfs.note_dead(old);
        }
    }

    /// A whole segment of a file's blocks, each written so often; the last writes are in it, those before far behind.
    fn fill(&mut self, segment: u32, file: u32, writes: u32) {
        for write in 1..=writes {
            let at = if write == writes { segment } else { 100 + write % 2 };
            (0..512).for_each(|index| self.write(file, index, 512 * at + index, Reason::Writeback));
        }
        self.sfs.note_sealed(LogId::of(SegmentKind::WarmData), Segment::new(segment));
    }

    fn group(&self, file: u32, index: u32, reason: Reason) -> usize {
        self.sfs.groups.of_log(self.sfs.log(&self.block(file, index, reason))).unwrap()
    }

    fn hotness(&self, section: u32) -> Option<f64> {
        let state = self.sfs.state();
        state.places.sums_of(section as usize, 1).hotness(state.now, 1)
    }
}

/// Segments 0, 1 and 2 of files 0, 1 and 2, whose blocks were written once, 4 times and 16 times: 21 · 512 blocks.
fn three(scale: Scale) -> Written {
    let mut written = Written::new(3, scale);
    for (segment, writes) in [(0, 1), (1, 4), (2, 16)] {
        written.fill(segment, segment, writes);
    }
    // Three more: centres move where there are more segments than groups.
    (3..6).for_each(|segment| written.fill(segment, segment, 1));
    written.sfs.note_free(Segment::new(50));
    written
}

#[test]
fn hotness_is_writes_over_the_time_since_the_last() {
    for scale in [Scale::Linear, Scale::Logarithmic, Scale::Paper] {
        let mut written = three(scale);
        // Of segment 2, the last write of block i was at 20 · 512 + i of 24 · 512: N · now − ΣT is 512 · 4 · 512 − 511 · 512 / 2.
        let expected = 16.0 * 512.0 / (512.0 * 4.0 * 512.0 - 511.0 * 256.0);
        assert!((written.hotness(2).unwrap() - expected).abs() < 1e-12, "{scale:?}");
        // A copy of block 511 to segment 7: as it was, or, where cleaning counts, one more write, now.
        written.write(2, 511, 7 * 512, Reason::Cleaning);
        let age = f64::from(4 * 512 - 511);
        let expected = if scale == Scale::Paper { 17.0 } else { 16.0 / age };
        assert!((written.hotness(7).unwrap() - expected).abs() < 1e-12, "{scale:?}");
        // A user's write counts, and time goes on by one. The copy counts as old as before, or not.
        written.write(2, 511, 7 * 512 + 1, Reason::Writeback);
        let writes = if scale == Scale::Paper { 18.0 } else { 17.0 };
        assert!((written.hotness(7).unwrap() - writes).abs() < 1e-12, "{scale:?}");
        assert_eq!(written.hotness(8), None);
    }
}

#[test]
fn blocks_go_to_the_group_with_the_nearest_centre() {
    for scale in [Scale::Linear, Scale::Logarithmic, Scale::Paper] {
        let written = three(scale);
        let groups = [2, 1, 0].map(|file| written.group(file, 5, Reason::Writeback));
        assert!(groups.is_sorted() && groups[0] < groups[2], "{scale:?}: {groups:?}");
        assert_eq!(written.group(2, 5, Reason::Cleaning), groups[0], "{scale:?}");
        // File 2 was written a moment ago.
        let of_new = if scale == Scale::Logarithmic { 2 } else { 0 };
        assert_eq!(written.group(2, 9999, Reason::Writeback), of_new, "{scale:?}");
    }
    // A file that was never written is as cold as can be.
    assert!(three(Scale::Paper).group(77, 0, Reason::Writeback) > 0);
}

#[test]
fn what_was_there_before_was_written_once_as_long_ago_as_can_be() {
    let mut written = three(Scale::Logarithmic);
    written.places.insert((9, 0), MainBlock::new(60 * 512));
    assert_eq!(written.group(9, 0, Reason::Cleaning), 2);
    written.write(9, 0, 7 * 512, Reason::Cleaning);
    let expected = 1.0 / (24.0 * 512.0);
    assert!((written.hotness(7).unwrap() - expected).abs() < 1e-12);
}

/// With one segment in use, what was written 65 times counts half after 16 segments' worth of writes.
#[test]
fn what_was_hot_once_is_not_hot_for_ever() {
    let mut written = Written::new(2, Scale::Logarithmic);
    (0..65).for_each(|step| written.write(0, 0, step % 2, Reason::Writeback));
    let count = |written: &Written| {
        let block = written.block(0, 0, Reason::Cleaning);
        written.sfs.state().known(&block).unwrap().count
    };
    for (writes, expected) in [(16 * 512 - 2, 65), (1, 32), (16 * 512, 16), (200 * 512, 1)] {
        (0..writes).for_each(|step| written.write(0, 1, 10 + step % 2, Reason::Writeback));
        assert_eq!(count(&written), expected, "{writes}");
    }
}

/// Segments that hold nothing do not count: the volume is as large as what is there.
#[test]
fn numbers_fade_by_what_is_there_and_not_by_what_there_is_room_for() {
    let mut written = Written::new(2, Scale::Linear);
    written.write(1, 0, 512 * 100, Reason::Writeback);
    written.sfs.note_dead(MainBlock::new(512 * 100));
    written.sfs.note_free(Segment::new(100));
    (0..64).for_each(|step| written.write(0, 0, step % 2, Reason::Writeback));
    (0..16 * 512).for_each(|step| written.write(0, 1, 10 + step % 2, Reason::Writeback));
    let block = written.block(0, 0, Reason::Cleaning);
    assert_eq!(written.sfs.state().known(&block).unwrap().count, 32);
}

#[test]
fn the_clock_does_not_end() {
    let mut written = three(Scale::Paper);
    let before = written.hotness(2).unwrap();
    {
        let state = &mut *written.sfs.state();
        // As if all that had happened much later.
        let later = CLOCK_MAX - 1 - state.now;
        state.now += later;
        for segment in 0..6 {
            for index in 0..512 {
                let place = MainBlock::new(512 * segment + index);
                let known = state.places.find(place).unwrap();
                state.places.clear(place);
                let moved = crate::hotness::Written { time: known.time + later, ..known };
                state.places.set(place, moved, state.now);
            }
        }
    }
    assert_eq!(written.hotness(2), Some(before));
    written.write(2, 0, 7 * 512, Reason::Writeback);
    assert_eq!(written.sfs.state().now, CLOCK_MAX / 2);
    // One block less, and one time unit more.
    assert!((written.hotness(2).unwrap() / before - 1.0).abs() < 0.001);
    assert_eq!(written.hotness(7), Some(17.0));
    (0..1000).for_each(|step| written.write(2, 1, 7 * 512 + 1 + step % 2, Reason::Writeback));
    written.sfs.note_dead(MainBlock::new(7 * 512 + 2));
    assert!(written.hotness(7).unwrap() < 0.1, "it grows older");
}

#[test]
fn the_rate_is_the_hotness_of_the_section_where_cost_hotness_asks() {
    let view =
        |section, capacity| SectionView { section: Section::new(section), live: 1, capacity, modified: 0, rate: None };
    let written = three(Scale::Paper);
    // The least age is 1/24 of seven segments' blocks, which nothing here is below.
    assert_eq!(written.sfs.rate(&view(2, 512)), written.hotness(2));
    let both = written.sfs.state().places.sums_of(2, 2).hotness(24 * 512, 1);
    assert_eq!(written.sfs.rate(&view(1, 1024)), both);
    assert_eq!(three(Scale::Logarithmic).sfs.rate(&view(2, 512)), None);
    // What was there before was written once, before all others.
    assert_eq!(written.sfs.rate(&view(40, 512)), Some(1.0 / (24.0 * 512.0)));
}

#[test]
fn nodes_and_directories_go_where_f2fs_has_them() {
    let sfs = Sfs::new(8, Scale::Paper);
    assert_eq!(sfs.more_logs().len(), 5);
    for block in [
        BlockTraits { node: true, direct_node: true, ..BlockTraits::default() },
        BlockTraits { of_directory: true, ..BlockTraits::default() },
    ] {
        assert_eq!(sfs.log(&block), StaticPlacement::default().log(&block));
        sfs.note_written(&block, MainBlock::new(5));
    }
    // Their section has a hotness, for the victim policy, and no centre.
    sfs.note_sealed(LogId::of(SegmentKind::WarmNode), Segment::new(0));
    let view = SectionView { section: Section::new(0), live: 1, capacity: 512, modified: 0, rate: None };
    assert!(sfs.rate(&view).is_some() && sfs.state().places.sums().all(|sums| !sums.is_sealed()));
}

/// The block whose write makes the clock go back was written just now, as all others are.
#[test]
fn no_block_is_of_the_future_when_the_clock_goes_back() {
    for scale in [Scale::Linear, Scale::Logarithmic, Scale::Paper] {
        let mut written = Written::new(3, scale);
        written.sfs.state().now = CLOCK_MAX - 1;
        written.write(1, 1, 7 * 512, Reason::Writeback);
        let state = written.sfs.state();
        let known = state.places.find(MainBlock::new(7 * 512)).unwrap();
        assert!(known.time <= state.now, "{scale:?}: time {} at {}", known.time, state.now);
    }
}

/// As above, what it does: four gibibytes later the block, and its segment of 512, are as hot as on the first day.
#[test]
fn a_segment_ages_when_the_clock_went_back() {
    let mut written = Written::new(3, Scale::Linear);
    written.sfs.state().now = CLOCK_MAX - 1;
    (0..512).for_each(|index| written.write(1, index, 7 * 512 + index, Reason::Writeback));
    let first = written.hotness(7).unwrap();
    written.sfs.state().now += 1 << 20;
    let later = written.hotness(7).unwrap();
    assert!(later < first / 1000.0, "{first} then, {later} after 2^20 writes");
}

/// The three with their groups, the log of a new block of a new file where nothing is known, and whether they tell of rates.
#[test]
fn names_are_of_scales_with_so_many_groups() {
    let of = |policy: Policy, groups| policy.make(&PlacementOptions { groups, ..PlacementOptions::default() }).unwrap();
    let table = [
        (SEPBIT_POLICY, 6, SegmentKind::HotData),
        (LOG_POLICY, 6, SegmentKind::ColdData),
        (PAPER_POLICY, 4, SegmentKind::HotData),
    ];
    for (policy, usual, log) in table {
        for (groups, expected) in [(None, usual), (Some(5), 5), (Some(8), 8)] {
            assert_eq!(of(policy, groups).more_logs().len(), expected - 3, "{}: {groups:?}", policy.name);
        }
        let placement = of(policy, None);
        let block = BlockTraits { file: 7, ..BlockTraits::default() };
        assert_eq!(placement.log(&block), LogId::of(log), "{}", policy.name);
        placement.note_written(&block, MainBlock::new(0));
        let view = SectionView { section: Section::new(0), live: 1, capacity: 512, modified: 0, rate: None };
        assert_eq!(placement.rate(&view).is_some(), policy.has_rates, "{}", policy.name);
    }
}

/// Of eight segments all have records of their blocks, or seven: an eighth of the memory is for files.
#[test]
fn files_have_an_eighth_of_the_memory_where_they_count() {
    for (scale, expected) in [(Scale::Linear, 8), (Scale::Paper, 7)] {
        let mut written = Written::new(3, scale);
        written.sfs.limit_memory(8 * crate::boxes::Boxes::<crate::hotness::Written>::BOX_BYTES);
        for segment in 0..8 {
            written.write(segment, 0, 512 * segment, Reason::Writeback);
            (1..3).for_each(|step| written.write(segment, 1, 512 * segment + step, Reason::Writeback));
        }
        let state = written.sfs.state();
        let second = |segment: &u32| state.places.find(MainBlock::new(512 * segment + 2)).unwrap().count == 2;
        // The mean of one and two counts as one.
        assert_eq!((0..8).filter(second).count(), expected, "{scale:?}");
        assert!(scale != Scale::Paper || (0..8).all(|file| state.files.get(file).is_some()));
    }
}

#[test]
fn centres_move_once_for_so_many_segments() {
    for (scale, expected) in [(Scale::Linear, [1, 2, 3, 0, 1, 2]), (Scale::Paper, [2, 3, 0, 1, 2, 3])] {
        let sfs = Sfs::new(4, scale);
        // Of 4096 segments it takes four. That one is sealed counts where cleaning is a write.
        sfs.note_sealed(LogId::of(SegmentKind::WarmData), Segment::new(4 * MOVED_AT_ONCE as u32 - 1));
        let freed = expected.map(|_| {
            sfs.note_free(Segment::new(0));
            sfs.log(&BlockTraits::default());
            sfs.state().changed
        });
        assert_eq!(freed, expected, "{scale:?}");
        // However many are freed together, the next block finds centres that have moved once.
        (0..1000).for_each(|segment| sfs.note_free(Segment::new(segment)));
        assert!(sfs.state().changed >= 1000);
        sfs.log(&BlockTraits::default());
        assert_eq!(sfs.state().changed, 0);
    }
}

#[test]
fn segments_that_are_written_have_no_part_in_the_centres() {
    for is_sealed in [false, true] {
        let sfs = Sfs::new(2, Scale::Logarithmic);
        for segment in 0..5 {
            sfs.note_written(&BlockTraits::default(), MainBlock::new(512 * segment));
            if is_sealed {
                sfs.note_sealed(LogId::of(SegmentKind::WarmData), Segment::new(segment));
            }
        }
        sfs.note_free(Segment::new(9));
        sfs.log(&BlockTraits::default());
        // Without centres the coldest is the group of all.
        assert_eq!(sfs.state().centres.group(1e6), usize::from(!is_sealed));
    }
}

/// Nine segments were written to: no age counts as less than 9 · 512 / 24.
#[test]
fn what_was_written_a_moment_ago_counts_as_older_where_there_is_a_least_age() {
    for (scale, age) in [(Scale::Linear, 1.0), (Scale::Logarithmic, 1.0), (Scale::Paper, 192.0)] {
        let mut written = three(scale);
        written.write(2, 0, 7 * 512, Reason::Writeback);
        let state = written.sfs.state();
        assert_eq!(state.places.space(), 9 * 512);
        let hotness = state.places.sums_of(7, 1).hotness(state.now, state.floor(scale));
        assert_eq!(hotness, Some(17.0 / age), "{scale:?}");
        drop(state);
        let view = SectionView { section: Section::new(7), live: 1, capacity: 512, modified: 0, rate: None };
        assert_eq!(written.sfs.rate(&view), hotness.filter(|_| scale == Scale::Paper));
    }
    // With much more there, one write a moment ago is not hot: neither its block, nor a new one of its file.
    let mut written = three(Scale::Paper);
    (100..200).for_each(|file| written.write(file, 0, 512 * file, Reason::Writeback));
    assert_eq!([0, 1].map(|index| written.group(199, index, Reason::Writeback) > 0), [true; 2]);
}

#[test]
fn what_cleaning_copies_is_a_write_to_the_file_too() {
    for (scale, expected) in [(Scale::Linear, None), (Scale::Paper, Some(3))] {
        let mut written = Written::new(3, scale);
        for (place, reason) in [(0, Reason::Writeback), (1, Reason::Fsync), (2, Reason::Cleaning)] {
            written.write(4, 0, place, reason);
        }
        assert_eq!(written.sfs.state().files.get(4).map(|file| file.count), expected, "{scale:?}");
    }
}

#[test]
fn files_go_back_with_the_clock() {
    let mut written = Written::new(3, Scale::Paper);
    written.sfs.state().now = CLOCK_MAX - 1;
    written.write(4, 0, 0, Reason::Writeback);
    let state = written.sfs.state();
    assert_eq!((state.now, state.files.get(4).unwrap().time), (CLOCK_MAX / 2, CLOCK_MAX / 2 - 1));
}

#[test]
fn looking_at_what_is_coming_changes_nothing() {
    let mut written = Written::new(4, Scale::Paper);
    written.write(7, 0, 5, Reason::Writeback);
    let known = written.sfs.state().places.find(MainBlock::new(5));
    assert!(known.is_some());
    written.sfs.note_coming(&[MainBlock::new(5), MainBlock::new(1 << 20)]);
    assert_eq!(written.sfs.state().places.find(MainBlock::new(5)), known);
}
