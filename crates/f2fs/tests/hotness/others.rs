//! Records beside what belongs to others: the journal, boot loaders, earlier volumes; and records that are damaged.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use basalt_f2fs::tune::set_journal;

use super::*;

#[test]
fn those_of_another_policy_or_volume_do_not_count() {
    let device = written(0);
    assert_eq!(told(&device, &OTHER), None);
    let records = before_segment_0(&device);
    let other = formatted(0);
    other.write_at(16 * BLOCK, &records).unwrap();
    assert_eq!(told(&other, &COUNTS), None, "the UUID is another");
    // The other policy's take their place, in turns.
    for _ in 0..2 {
        let fs = open(&device, &OTHER);
        write(&fs, "file", 0..4096);
        fs.close().unwrap();
    }
    assert!(told(&device, &OTHER).is_some());
    assert_eq!(told(&device, &COUNTS), None);
}

#[test]
fn torn_records_leave_those_of_before() {
    let device = written(0);
    let (_, first) = told(&device, &COUNTS).unwrap();
    let before = before_segment_0(&device);
    let fs = open(&device, &COUNTS);
    write(&fs, "second", 0..2048);
    fs.close().unwrap();
    let (_, second) = told(&device, &COUNTS).unwrap();
    assert_ne!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    let after = before_segment_0(&device);
    let changed: Vec<usize> =
        (0..before.len() / 4096).filter(|at| before[at * 4096..][..4096] != after[at * 4096..][..4096]).collect();
    assert!(changed.len() >= 2, "{changed:?}");
    for torn in &changed {
        let copy = Arc::new(device.snapshot());
        copy.write_at((16 + *torn as u64) * BLOCK, &before[torn * 4096..][..4096]).unwrap();
        let (_, left) = told(&copy, &COUNTS).unwrap();
        assert!(left.keys().all(|at| first.contains_key(at)), "block {torn}");
        assert_clean(&copy);
    }
    // All of it: nothing comes back, and nothing else is lost.
    device.write_at(16 * BLOCK, &vec![0xFF; before.len()]).unwrap();
    assert_eq!(told(&device, &COUNTS), None);
    assert_clean(&device);
}

#[test]
fn the_journal_stays_whole() {
    // As long as it can be: there is no room for records.
    let most = (BEFORE - 17) * BLOCK;
    let device = formatted(most);
    let fs = open(&device, &COUNTS);
    write(&fs, "file", 0..4096);
    fs.close().unwrap();
    assert_eq!(fs.statistics().hotness.blocks, 0);
    assert_eq!(told(&device, &COUNTS), None);
    // With room, records begin behind it. Also where it is not used.
    for journal in [true, false] {
        let device = formatted(1 << 20);
        let before = before_segment_0(&device);
        let fs = open_with(device.clone(), OpenOptions { placement: &COUNTS, journal, ..OpenOptions::default() });
        write(&fs, "file", 0..4096);
        fs.close().unwrap();
        assert!(fs.statistics().hotness.blocks > 0);
        let after = before_segment_0(&device);
        let own = (1 + (1 << 20) / BLOCK as usize) * BLOCK as usize;
        assert!(before[..own] == after[..own], "journal {journal}");
        assert!(told(&device, &COUNTS).is_some());
    }
}

/// Without a journal nobody has said that the blocks in front of segment 0 are Basalt's: a boot loader there stays.
#[test]
fn what_somebody_else_keeps_there_stays() {
    // The first block of a half, its second one, which records would take too, and its last one.
    for (block, byte) in [(17, 1), (18, 1), (265, 1), (300, 1), (511, 9), (17, 0xFF)] {
        let device = formatted(0);
        device.write_at(block * BLOCK + 77, &[byte]).unwrap();
        let before = before_segment_0(&device);
        let fs = open(&device, &COUNTS);
        let tick = |seconds| _ = fs.tick(Time { seconds, nanoseconds: 0 });
        for round in 1..4 {
            write(&fs, "file", 0..4096);
            tick(1_000_000 + 100 * round);
        }
        fs.close().unwrap();
        let after = before_segment_0(&device);
        let changed = before.iter().zip(&after).enumerate().find(|(_, (was, is))| **was != 0 && was != is);
        assert_eq!(changed, None, "block {block}");
        assert_clean(&device);
    }
    // Erased flash holds nothing.
    let device = formatted(0);
    device.write_at(17 * BLOCK, &vec![0xFF; ((BEFORE - 17) * BLOCK) as usize]).unwrap();
    let fs = open(&device, &COUNTS);
    write(&fs, "file", 0..4096);
    fs.close().unwrap();
    assert!(told(&device, &COUNTS).is_some());
}

/// No header makes opening read more than a half.
#[test]
fn a_length_that_is_damaged_is_not_read() {
    let device = written(0);
    let half = (BEFORE - 17) / 2;
    // The first records are in the second half.
    device.write_at((17 + half) * BLOCK + 16, &(300 * BLOCK as u32).to_le_bytes()).unwrap();
    let device = Arc::new(FaultyDevice::new(device.snapshot()));
    device.fail_when(move |request| {
        (request.offset == (17 + half) * BLOCK && request.length > half * BLOCK).then_some(ErrorKind::Other)
    });
    let fs = open_with(device.clone(), OpenOptions { placement: &COUNTS, ..OpenOptions::default() });
    assert_eq!((TOLD.take(), device.injected()), (None, 0));
    fs.close().unwrap();
}

/// A journal takes its own blocks, and no others: whoever made it need not have cleared the rest.
#[test]
fn a_journal_does_not_give_the_rest_away() {
    let device = formatted(256 << 10);
    device.write_at(300 * BLOCK, b"boot loader").unwrap();
    for round in 0..3 {
        let fs = open(&device, &COUNTS);
        write(&fs, &format!("file{round}"), 0..4500);
        fs.close().unwrap();
    }
    let mut bytes = [0; 11];
    device.read_at(300 * BLOCK, &mut bytes).unwrap();
    assert_eq!(&bytes, b"boot loader");
}

/// A boot loader with an empty part, where the first records would go.
#[test]
fn empty_parts_of_something_larger_stay() {
    for (first, last) in [(2, 411), (255, 270), (400, 411)] {
        let device = formatted(0);
        for block in (first..=last).filter(|block| !(264..300).contains(block)) {
            device.write_at(block * BLOCK, &[0xAB; BLOCK as usize]).unwrap();
        }
        let before = before_segment_0(&device);
        let fs = open(&device, &COUNTS);
        write(&fs, "file", 0..4000);
        fs.close().unwrap();
        assert_eq!(fs.statistics().hotness.blocks, 0, "{first} to {last}");
        assert!(before_segment_0(&device) == before, "{first} to {last}");
    }
}

/// A mount with another placement ends what was known before, whichever half its records are in.
#[test]
fn after_a_mount_with_another_placement_nothing_is_known() {
    for rounds in 1..=2 {
        let device = formatted(0);
        for round in 0..rounds {
            let fs = open(&device, &COUNTS);
            write(&fs, &format!("file{round}"), 0..4000);
            fs.close().unwrap();
        }
        let fs = open(&device, &OTHER);
        write(&fs, "other", 0..4096);
        fs.close().unwrap();
        assert!(told(&device, &OTHER).is_some());
        assert_eq!(told(&device, &COUNTS), None, "{rounds}");
    }
}

/// Small records at first, and then somebody else's bytes behind them.
#[test]
fn records_do_not_grow_over_what_came_behind_them() {
    let device = formatted(0);
    let fs = open(&device, &COUNTS);
    write(&fs, "file", 0..600);
    fs.close().unwrap();
    assert_eq!(fs.statistics().hotness.blocks, 1, "in the second half");
    device.write_at(266 * BLOCK, b"boot loader").unwrap();
    for round in 0..4 {
        let fs = open(&device, &COUNTS);
        write(&fs, &format!("more{round}"), 0..3500);
        fs.close().unwrap();
        let mut bytes = [0; 11];
        device.read_at(266 * BLOCK, &mut bytes).unwrap();
        assert_eq!(&bytes, b"boot loader", "round {round}");
    }
}

/// What is left of Basalt's own is no obstacle: of records that were cut off before there were any, of an earlier volume, of a journal.
#[test]
fn basalts_own_leftovers_are_written_over() {
    let torn = written(0);
    torn.write_at(264 * BLOCK, &[0; BLOCK as usize]).unwrap();
    let earlier = formatted(0);
    earlier.write_at(16 * BLOCK, &before_segment_0(&written(0))).unwrap();
    let journaled = formatted(1 << 20);
    let fs = open(&journaled, &COUNTS);
    write(&fs, "file", 0..4000);
    fs.close().unwrap();
    set_journal(&*journaled, 0).unwrap();
    for device in [torn, earlier, journaled] {
        for round in 0..2 {
            let fs = open(&device, &COUNTS);
            write(&fs, &format!("more{round}"), 0..4000);
            fs.close().unwrap();
            assert!(fs.statistics().hotness.blocks > 0, "round {round}");
        }
        assert!(told(&device, &COUNTS).is_some());
    }
}

/// Segments that were full tell nothing by their live blocks once they are written anew, and neither do those that hold nodes by then.
#[test]
fn segments_that_were_written_anew_are_dropped() {
    let device = formatted(0);
    let fs = open(&device, &COUNTS);
    write(&fs, "file", 0..8000);
    fs.close().unwrap();
    let (_, before) = told(&device, &COUNTS).unwrap();
    assert!(before.values().filter(|(_, live)| *live == 512).count() >= 14);
    let clock = Arc::new(Moving(AtomicI64::new(2_000_000_000)));
    let fs = F2fs::open(device.clone(), OpenOptions::default(), clock.clone()).unwrap();
    let cut = |name: &str| fs.fallocate(file(&fs, name), HOLE, 0, 10_000 * BLOCK).unwrap();
    cut("file");
    for round in 0..6 {
        clock.0.fetch_add(1000, SeqCst);
        let name = format!("other{round}");
        write(&fs, &name, 0..6000);
        cut(&name);
    }
    write(&fs, "last", 0..9000);
    (0..2000).for_each(|number| _ = file(&fs, &format!("small{number}")));
    fs.close().unwrap();
    let after = told(&device, &COUNTS).map_or(0, |(_, segments)| segments.len());
    assert_eq!(after, 0, "of {}", before.len());
}

#[test]
fn what_is_known_of_nodes_comes_back_to_nodes() {
    let device = formatted(0);
    let fs = open(&device, &COUNTS_NODES);
    (0..3000).for_each(|number| _ = file(&fs, &format!("small{number}")));
    fs.close().unwrap();
    let (_, of_nodes) = told(&device, &COUNTS_NODES).unwrap();
    assert!(of_nodes.len() >= 6, "3000 inodes fill five segments: {}", of_nodes.len());
    let live: u32 = of_nodes.values().map(|(_, live)| live).sum();
    assert!(live >= 3000, "{live}");
}

/// Goes when it is told to, so that what is written now is told from what was written before.
struct Moving(AtomicI64);

impl Clock for Moving {
    fn now(&self) -> Time {
        Time { seconds: self.0.load(SeqCst), nanoseconds: 0 }
    }
}
