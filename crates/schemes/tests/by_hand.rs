//! SepBIT's classes, MDC's intervals and DAC's regions, with numbers worked by hand from the papers.

use basalt_schemes::{Dac, Groups, Mdc, SepBit};
use basalt_segments::{BlockTraits, LogId, MainBlock, Placement, Reason, Section, SectionView, Segment};

/// Block `index` of file 1.
fn block(index: u32, reason: Reason) -> BlockTraits {
    BlockTraits { file: 1, index, reason, ..BlockTraits::default() }
}

/// A user writes the block to this place.
fn write(placement: &dyn Placement, index: u32, place: MainBlock) {
    placement.note_written(&block(index, Reason::Writeback), place);
}

/// A user writes `count` other blocks, in a segment of their own.
fn write_others(placement: &dyn Placement, count: u32) {
    (0..count).for_each(|index| write(placement, 10_000 + index, MainBlock::in_segment(Segment::new(99), 0)));
}

fn class(placement: &dyn Placement, index: u32, reason: Reason) -> Option<usize> {
    Groups::new(6).of_log(placement.log(&block(index, reason)))
}

fn log(class: usize) -> LogId {
    Groups::new(6).log(class)
}

/// 16 segments of the first class, each of which is freed once users have written so many blocks.
fn free_segments(sepbit: &SepBit, life: u32) {
    for number in 0..16 {
        let segment = Segment::new(number);
        write(sepbit, 5_000 + number, MainBlock::in_segment(segment, 0));
        write_others(sepbit, life - 1);
        sepbit.note_sealed(log(0), segment);
        sepbit.note_free(segment);
    }
}

/// Algorithm 1: class 1 below ℓ, copies in classes 4 below 4ℓ, 5 below 16ℓ and 6 behind. Before ℓ is known it is infinite.
#[test]
fn sepbit_tells_blocks_apart_by_the_mean_life_of_segments() {
    let sepbit = SepBit::default();
    let user = |index| class(&sepbit, index, Reason::Writeback);
    let copy = |index| class(&sepbit, index, Reason::Cleaning);
    assert_eq!(user(1), Some(1), "replaces none");
    write(&sepbit, 1, MainBlock::in_segment(Segment::new(50), 0));
    assert_eq!((user(1), copy(1)), (Some(0), Some(3)), "below infinity");
    // ℓ = 10: ages are in blocks that users write, the block's own among them.
    free_segments(&sepbit, 10);
    write(&sepbit, 1, MainBlock::in_segment(Segment::new(50), 1));
    write_others(&sepbit, 8);
    assert_eq!(user(1), Some(0), "age 9");
    write_others(&sepbit, 1);
    assert_eq!((user(1), copy(1)), (Some(1), Some(3)), "age 10");
    write_others(&sepbit, 20);
    // A copy is as old as what it was made from.
    sepbit.note_written(&block(1, Reason::Cleaning), MainBlock::in_segment(Segment::new(51), 0));
    write_others(&sepbit, 9);
    assert_eq!(copy(1), Some(3), "age 39");
    write_others(&sepbit, 1);
    assert_eq!(copy(1), Some(4), "age 40");
    write_others(&sepbit, 119);
    assert_eq!(copy(1), Some(4), "age 159");
    write_others(&sepbit, 1);
    assert_eq!(copy(1), Some(5), "age 160");
    // Out of a segment of the first class, whatever its age.
    sepbit.note_sealed(log(0), Segment::new(51));
    assert_eq!(copy(1), Some(2));
    sepbit.note_sealed(log(3), Segment::new(51));
    assert_eq!(copy(1), Some(5));
}

/// ℓ is of the last 16 segments, and not of all.
#[test]
fn sepbit_forgets_older_segments() {
    let sepbit = SepBit::default();
    free_segments(&sepbit, 10);
    free_segments(&sepbit, 30);
    write(&sepbit, 1, MainBlock::in_segment(Segment::new(50), 0));
    write_others(&sepbit, 28);
    assert_eq!(class(&sepbit, 1, Reason::Writeback), Some(0), "age 29");
    write_others(&sepbit, 1);
    assert_eq!(class(&sepbit, 1, Reason::Writeback), Some(1), "age 30");
}

fn view(section: u32, segments: u32, live: u32) -> SectionView {
    SectionView { section: Section::new(section), live, capacity: 512 * segments, modified: 0, rate: None }
}

fn expect(found: Option<f64>, by_hand: f64) {
    assert!(found.is_some_and(|found| (found - by_hand).abs() < 1e-12), "{found:?}, by hand {by_hand}");
}

/// Section 4.2: u_p2 of a segment that loses a block goes half of the way to now. A block that is overwritten brings that of its segment with it, gone
/// half of the way again, and a copy as it is.
#[test]
fn mdc_follows_the_last_update_but_one() {
    let mdc = Mdc::new(6);
    write(&mdc, 1, MainBlock::in_segment(Segment::new(0), 0));
    write(&mdc, 2, MainBlock::in_segment(Segment::new(0), 1));
    // Now 2, u_p2 0: 2 / (7 · 2).
    expect(mdc.rate(&view(0, 1, 7)), 2.0 / 14.0);
    mdc.note_dead(MainBlock::in_segment(Segment::new(0), 0));
    // u_p2 1.
    expect(mdc.rate(&view(0, 1, 7)), 2.0 / 7.0);
    write_others(&mdc, 8);
    // Now 10. A copy has 1, and 2 / (1 · (10 − 1)).
    mdc.note_written(&block(1, Reason::Cleaning), MainBlock::in_segment(Segment::new(2), 0));
    expect(mdc.rate(&view(2, 1, 1)), 2.0 / 9.0);
    // One that is overwritten 5.5, and then it is 11: 2 / (1 · (11 − 5.5)).
    write(&mdc, 2, MainBlock::in_segment(Segment::new(3), 0));
    expect(mdc.rate(&view(3, 1, 1)), 2.0 / 5.5);
    // Both in one segment: their mean, 3.25 and 11 − 3.25, as the block of segment 2 is copied on.
    mdc.note_written(&block(1, Reason::Cleaning), MainBlock::in_segment(Segment::new(3), 1));
    expect(mdc.rate(&view(3, 1, 2)), 2.0 / (2.0 * 7.75));
    mdc.note_free(Segment::new(3));
    expect(mdc.rate(&view(3, 1, 1)), 2.0 / 11.0);
}

/// The mean over the segments of a section.
#[test]
fn mdc_weighs_all_segments_of_a_section() {
    let mdc = Mdc::new(6);
    for segment in [2, 3] {
        write(&mdc, segment, MainBlock::in_segment(Segment::new(segment), 0));
    }
    write_others(&mdc, 6);
    mdc.note_dead(MainBlock::in_segment(Segment::new(3), 0));
    // Now 8; u_p2 is 0 in segment 2 and 4 in segment 3: 2 / (5 · (8 − 2)).
    expect(mdc.rate(&view(1, 2, 5)), 2.0 / 30.0);
}

/// What was on the volume before is as if it had been written by a user when it was first seen.
#[test]
fn sepbit_knows_what_it_saw_copied_first() {
    let sepbit = SepBit::default();
    sepbit.note_written(&block(1, Reason::Cleaning), MainBlock::in_segment(Segment::new(50), 0));
    assert_eq!(class(&sepbit, 1, Reason::Writeback), Some(0));
}

#[test]
fn mdc_takes_a_new_block_for_cold() {
    assert_eq!(class(&Mdc::new(6), 1, Reason::Writeback), Some(5));
}

/// New blocks are in the coldest of six regions. Each overwrite, also one that is waited for, is a step up, each copy a step down, to the ends.
#[test]
fn dac_goes_up_with_each_overwrite_and_down_with_each_copy() {
    let dac = Dac::new(6);
    let mut classes = vec![class(&dac, 1, Reason::Writeback)];
    for (step, reason) in [Reason::Writeback, Reason::Fsync, Reason::Writeback, Reason::Cleaning].iter().enumerate() {
        dac.note_written(&block(1, *reason), MainBlock::new(step as u32));
        classes.push(class(&dac, 1, Reason::Writeback));
    }
    assert_eq!(classes, [5, 4, 3, 2, 3].map(Some));
    (0..9).for_each(|step| dac.note_written(&block(1, Reason::Fsync), MainBlock::new(10 + step)));
    assert_eq!(class(&dac, 1, Reason::Fsync), Some(0));
    (0..9).for_each(|step| dac.note_written(&block(1, Reason::Cleaning), MainBlock::new(20 + step)));
    assert_eq!(class(&dac, 1, Reason::Cleaning), Some(5));
}
