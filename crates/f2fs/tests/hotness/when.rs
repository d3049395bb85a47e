//! When records are written, and how many.

use super::*;

#[test]
fn little_that_was_written_is_not_worth_it() {
    let device = written(0);
    let before = before_segment_0(&device);
    let fs = open(&device, &COUNTS);
    write(&fs, "little", 0..40);
    fs.close().unwrap();
    assert_eq!((fs.statistics().hotness.blocks, before_segment_0(&device) == before), (0, true));
    // Nor is anything of F2FS's.
    let fs = open(&device, OpenOptions::default().placement);
    write(&fs, "file", 0..4096);
    fs.close().unwrap();
    assert!(before_segment_0(&device) == before);
    // Nor where nothing may be written.
    let fs = open_with(device.clone(), OpenOptions { placement: &COUNTS, read_only: true, ..OpenOptions::default() });
    fs.close().unwrap();
    assert!(before_segment_0(&device) == before);
}

/// A power cut takes what was learned since the last records, and these are kept once in a while.
#[test]
fn records_are_kept_while_the_volume_is_open() {
    let device = formatted(0);
    let fs = open(&device, &COUNTS);
    let tick = |seconds| _ = fs.tick(Time { seconds, nanoseconds: 0 });
    tick(1_000_000);
    write(&fs, "file", 0..2000);
    tick(1_000_050);
    let blocks = |fs: &F2fs| fs.statistics().hotness.blocks;
    assert_eq!(blocks(&fs), 0);
    write(&fs, "file", 2000..2100);
    tick(1_000_100);
    let first = blocks(&fs);
    assert!((1..=8).contains(&first), "2048 blocks are due for at least 8");
    write(&fs, "file", 0..256 * 8 - 200);
    tick(1_000_200);
    assert_eq!(blocks(&fs), first, "256 times as much was not written");
    write(&fs, "file", 0..400);
    tick(1_000_300);
    assert!(blocks(&fs) > first);
    let written = fs.statistics().written;
    assert!(written.metadata_blocks > blocks(&fs) && blocks(&fs) > 0);
    // The power fails.
    let (_, segments) = told(&device, &COUNTS).unwrap();
    assert!(!segments.is_empty());
    drop(fs);
}

/// Records of 10 blocks and more: 8 times as much at closing, 256 times as much before, also where it was the last mount that wrote them.
#[test]
fn the_larger_the_records_the_more_has_to_be_written() {
    let device = formatted(0);
    let fs = open(&device, &COUNTS);
    let tick = |seconds| _ = fs.tick(Time { seconds, nanoseconds: 0 });
    tick(1_000_000);
    write(&fs, "file", 0..15_000);
    tick(1_000_100);
    let blocks = |fs: &F2fs| fs.statistics().hotness.blocks;
    let first = blocks(&fs);
    assert!(first >= 10, "{first}");
    write(&fs, "file", 0..2300);
    tick(1_000_200);
    assert_eq!(blocks(&fs), first, "enough for records of 8 blocks only");
    fs.close().unwrap();
    let second = blocks(&fs) - first;
    assert!(second >= 10, "enough at closing");
    let fs = open(&device, &COUNTS);
    write(&fs, "file", 0..66);
    fs.close().unwrap();
    assert_eq!(blocks(&fs), 0, "enough after records of 8 blocks only");
    let fs = open(&device, &COUNTS);
    write(&fs, "file", 0..8 * second);
    fs.close().unwrap();
    assert!(blocks(&fs) > 0);
}

/// All of a half can be used.
#[test]
fn records_that_fill_the_room_are_kept() {
    let device = formatted(0);
    let fs = open(&device, &FILLS);
    write(&fs, "file", 0..1000);
    fs.close().unwrap();
    let half = (BEFORE - 17) / 2;
    assert_eq!(fs.statistics().hotness.blocks, half);
    let (general, _) = told(&device, &FILLS).unwrap();
    // A header, and the magic of further blocks.
    assert_eq!(general.len() as u64, half * BLOCK - 80 - 8 * (half - 1));
}

/// Their blocks are metadata, beside what the volume writes without them.
#[test]
fn records_count_as_metadata() {
    let written = [&COUNTS, OpenOptions::default().placement].map(|placement| {
        let device = formatted(0);
        let fs = open(&device, placement);
        write(&fs, "file", 0..4000);
        fs.close().unwrap();
        fs.statistics()
    });
    let [with, without] = written;
    assert!(with.hotness.blocks > 0 && without.hotness.blocks == 0);
    assert_eq!(with.written.metadata_blocks - with.hotness.blocks, without.written.metadata_blocks);
}
