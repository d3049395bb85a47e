//! Processor time and memory on a volume of 1 TiB, whatever else the machine does; `--nocapture` prints the figures.

use basalt_segments::{CostBenefit, Durable, Greedy, MainBlock, Segment, SegmentKind, SegmentTable, VictimPolicy};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Segments of 1 TiB.
const SEGMENTS: u32 = 524_288;

/// Processor time this thread has used.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Processor time of the shortest of several runs: the one that other programs disturbed least.
fn shortest(runs: u32, mut run: impl FnMut()) -> Duration {
    let time = |_| {
        let start = used();
        run();
        used().saturating_sub(start)
    };
    (0..runs).map(time).min().unwrap_or_default()
}

/// Segments with `live(segment)` blocks live, in whole bytes.
fn volume(segments_per_section: u32, live_bytes: impl Fn(u32) -> usize) -> SegmentTable {
    let mut table = SegmentTable::new(SEGMENTS, segments_per_section);
    for segment in 0..SEGMENTS {
        let mut bitmap = [0; 64];
        bitmap[..live_bytes(segment)].fill(0xff);
        table.load(
            Segment::new(segment),
            SegmentKind::WarmData,
            &bitmap,
            u64::from(segment.wrapping_mul(2_654_435_761)),
        );
    }
    table.finish_load();
    table
}

#[test]
fn an_empty_or_full_volume_takes_less_than_20_mib() {
    for live_bytes in [0, 64] {
        let memory = volume(1, |_| live_bytes).memory();
        println!("{live_bytes} live bytes a segment: {memory} bytes");
        assert!(memory < 20 << 20, "{memory}");
    }
}

#[test]
fn a_victim_is_found_in_milliseconds() {
    for segments_per_section in [1, 16] {
        let table = volume(segments_per_section, |segment| 1 + segment.wrapping_mul(40_503) as usize % 63);
        for policy in [&Greedy as &dyn VictimPolicy, &CostBenefit] {
            let time = shortest(20, || assert!(table.select_victim(policy, 1 << 33, &|_| false).is_some()));
            println!("{} with {segments_per_section} segments a section: {time:?}", policy.name());
            assert!(time < Duration::from_millis(30), "{time:?}");
        }
    }
}

#[test]
fn the_last_free_segment_is_found_in_microseconds() {
    let mut table = volume(1, |segment| if segment == 77 { 0 } else { 64 });
    let time = shortest(100, || {
        assert_eq!(table.open_segment(SegmentKind::HotData, Some(Segment::new(78))), Some(Segment::new(77)));
        table.close_segment(Segment::new(77));
        table.release(&[Segment::new(77)], Durable::without_device());
    });
    println!("open, close and release: {time:?}");
    assert!(time < Duration::from_micros(100), "{time:?}");
}

#[test]
fn marking_a_block_takes_nanoseconds() {
    let mut table = SegmentTable::new(SEGMENTS, 1);
    let blocks = 512 * 1024;
    let time = shortest(5, || {
        for block in 0..blocks {
            assert!(table.set_live(MainBlock::new(block), 1));
        }
        for block in 0..blocks {
            assert!(table.clear_live(MainBlock::new(block), 2));
        }
    });
    let each = time / (2 * blocks);
    println!("one change: {each:?}");
    assert!(each < Duration::from_nanos(100), "{each:?}");
}
