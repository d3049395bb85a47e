//! Time lines of a device, by hand: models with round numbers.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice, RequestKind};
use basalt_flash::device::{
    CopyCost, Curve, DeviceKind, DeviceModel, Direction, FlashModel, Meter, Parallelism, Queue, Served,
};
use basalt_flash::{
    FtlStatistics, PageLevel, PageLevelOptions, TimedDevice, TranslationKind, TranslationLayer, VirtualClock,
};
use basalt_random::Rng;

/// Reads a page of 4 KiB in 100 us and writes it in 1000, wherever it is; erases in 2000; flushes in 5000.
fn round() -> DeviceModel {
    let direction = |bandwidth: f64| {
        let curve = Curve { latency_us: 0.0, points: vec![(512, bandwidth)] };
        Direction { streams: 1, sequential: curve.clone(), random: curve }
    };
    DeviceModel {
        name: "round".into(),
        description: "for tests".into(),
        source: "made up".into(),
        kind: DeviceKind::Other,
        capacity_bytes: None,
        flush_us: 5000.0,
        discard_us: 10.0,
        parallelism: None,
        read: direction(40.96),
        write: direction(4.096),
        flash: Some(FlashModel {
            translation: TranslationKind::PageLevel,
            page_bytes: 4096,
            block_bytes: 64 << 10,
            over_provisioning_percent: 10.0,
            rated_cycles: None,
            erase_us: Some(2000.0),
            allocation_unit_bytes: None,
        }),
    }
}

#[test]
fn copies_are_reads_and_programs_and_erases_have_a_time_of_their_own() {
    let mut model = round();
    let geometry = model.geometry(8 << 20).unwrap();
    let done = FtlStatistics { pages_copied: 7, erases: 3, ..FtlStatistics::default() };
    let more = FtlStatistics { pages_copied: 10, erases: 4, pages_programmed: 99, ..FtlStatistics::default() };
    // Three pages of 100 and 1000 us, and an erase.
    assert_eq!(CopyCost::new(&model, &geometry).nanoseconds(&done, &more), 3 * 1_100_000 + 2_000_000);
    assert_eq!(CopyCost::new(&model, &geometry).programs_ns(3), 3e6);
    // Four units share it.
    model.parallelism = Some(Parallelism { units: 4, stripe_bytes: 4096 });
    assert_eq!(CopyCost::new(&model, &geometry).nanoseconds(&done, &more), 1_325_000);
    model.flash.as_mut().unwrap().erase_us = None;
    assert_eq!(CopyCost::new(&model, &geometry).nanoseconds(&done, &more), 825_000);
}

#[test]
fn a_request_that_makes_the_layer_collect_takes_as_long_as_that() {
    let model = round();
    let geometry = model.geometry(8 << 20).unwrap();
    let layer = || Box::new(PageLevel::new(geometry, PageLevelOptions::default()).unwrap());
    let clock = VirtualClock::new();
    let device = TimedDevice::new(MemoryDevice::new(8 << 20, 512), Arc::new(model.clone()), clock.clone())
        .with_layer(layer())
        .with_layer_time(CopyCost::new(&model, &geometry));
    // A second layer that is told the same says what has to be paid for.
    let mut twin = layer();
    let mut rng = Rng::new(5);
    let mut slow = 0;
    for _ in 0..6000 {
        let page = rng.below(2048);
        let (before, earlier) = (clock.now(), twin.statistics());
        device.write_at(page * 4096, &[1; 4096]).unwrap();
        twin.write(page, 1).unwrap();
        let done = twin.statistics().since(&earlier);
        let expected = 1_000_000 + done.pages_copied * 1_100_000 + done.erases * 2_000_000;
        assert_eq!(clock.now() - before, expected);
        slow += u64::from(done.pages_copied > 0);
    }
    assert!(slow > 100, "{slow}");
    let statistics = device.statistics();
    assert_eq!(statistics.busy_ns(), clock.now());
    assert!(statistics.write.percentile_ns(50.0) < 1_002_000 && statistics.write.percentile_ns(99.0) > 3_000_000);
}

/// A device of `units` units with stripes of a page; each takes 1000 us to write one, and 100 to read one.
fn striped(units: u32) -> Arc<DeviceModel> {
    Arc::new(DeviceModel { parallelism: Some(Parallelism { units, stripe_bytes: 4096 }), ..round() })
}

const READ: RequestKind = RequestKind::Read;
const WRITE: RequestKind = RequestKind::Write;
const FLUSH: RequestKind = RequestKind::Flush;
const PAGE: u64 = 4096;

/// When a request of some pages is done, in microseconds, submitted at a time in microseconds.
fn done(queue: &mut Queue, time: u64, kind: RequestKind, page: u64, pages: u64) -> u64 {
    queue.submit(time * 1000, kind, page * PAGE, pages * PAGE).end / 1000
}

#[test]
fn a_device_of_one_unit_serves_in_turn() {
    for depth in [1, 4] {
        let mut queue = Queue::new(Arc::new(round()), depth);
        let times = [0, 3, 250].map(|time| done(&mut queue, time, READ, 7, 1));
        assert_eq!(times, [100, 200, 350]);
        assert_eq!(done(&mut queue, 260, WRITE, 0, 2), 2350);
    }
}

#[test]
fn units_serve_at_the_same_time_as_far_as_the_depth_goes() {
    // Pages 0 to 3 are on four units; page 4 is on the first again.
    let ends = |depth| {
        let mut queue = Queue::new(striped(4), depth);
        [0, 1, 2, 4, 3].map(|page| done(&mut queue, 0, READ, page, 1))
    };
    assert_eq!(ends(1), [100, 200, 300, 400, 500]);
    assert_eq!(ends(2), [100, 100, 200, 200, 300]);
    // The fourth waits for its unit, not for a place; the fifth has a place when the first three are done.
    assert_eq!(ends(4), [100, 100, 100, 200, 200]);
    assert_eq!(ends(5), [100, 100, 100, 200, 100]);
}

#[test]
fn a_request_ends_with_its_last_unit_and_units_go_on_without_it() {
    let mut queue = Queue::new(striped(4), 8);
    // Six pages: units 0 and 1 have two each.
    assert_eq!(done(&mut queue, 0, WRITE, 0, 6), 2000);
    assert_eq!(done(&mut queue, 10, READ, 2, 1), 1100);
    assert_eq!(done(&mut queue, 10, READ, 0, 4), 2100);
    // Unit 2 is free from 1200 on.
    assert_eq!(done(&mut queue, 5, READ, 6, 1), 1300);
    // Unit 3 has had nothing to do from 1100 on.
    assert_eq!(done(&mut queue, 1250, READ, 3, 1), 1350);
    // A discard takes 10 us of each unit, and ends with the last; unit 3 serves it at once.
    assert_eq!(queue.submit(1_400_000, RequestKind::Discard, 0, 1 << 20).end, 2_110_000);
    assert_eq!(done(&mut queue, 1405, READ, 3, 1), 1510);
}

#[test]
fn flushes_hold_nothing_back_and_are_shared() {
    let mut queue = Queue::new(striped(4), 8);
    assert_eq!([done(&mut queue, 0, WRITE, 0, 1), done(&mut queue, 1000, FLUSH, 0, 0)], [1000, 6000]);
    // Two write during the flush; the next one makes both durable.
    assert_eq!([done(&mut queue, 0, WRITE, 1, 1), done(&mut queue, 500, WRITE, 2, 1)], [1000, 1500]);
    let second = queue.submit(1_100_000, FLUSH, 0, 0);
    assert_eq!(second, Served { end: 6_000_000, busy_ns: 0, sequential: false, shared: true });
    let third = queue.submit(1_500_000, FLUSH, 0, 0);
    assert_eq!(third, Served { end: 11_000_000, busy_ns: 5_000_000, sequential: false, shared: false });
    assert_eq!(done(&mut queue, 1600, WRITE, 3, 1), 2600);
    assert!(queue.submit(2_600_000, FLUSH, 0, 0).shared);
}

#[test]
fn what_the_device_does_for_itself_takes_all_units() {
    let mut queue = Queue::new(striped(4), 8);
    let mut served = queue.submit(0, WRITE, 0, PAGE);
    assert_eq!(done(&mut queue, 0, WRITE, 1, 2), 1000);
    queue.prolong(&mut served, 300_000);
    assert_eq!((served.end, served.busy_ns), (1_300_000, 1_300_000));
    assert_eq!([done(&mut queue, 950, READ, 3, 1), done(&mut queue, 900, READ, 3, 1)], [1400, 1000]);
}

/// One request after the other takes what the serial meter says, whatever the model and the depth.
#[test]
fn in_turn_a_queue_and_a_meter_agree_to_the_nanosecond() {
    let mut rng = Rng::new(29);
    for (name, depth) in [("nvme", 1), ("nvme", 7), ("ssd-m", 1), ("sd-a", 3), ("hdd-m", 1)] {
        let model = Arc::new(basalt_flash::preset(name).unwrap());
        let mut meter = Meter::new(Arc::clone(&model));
        let mut queue = Queue::new(model, depth);
        let (mut now, mut end) = (0, 0);
        for round in 0..20_000 {
            let kind = [READ, WRITE, FLUSH, RequestKind::Discard][rng.below(4) as usize];
            let last = if rng.chance(30) { end } else { rng.below(1 << 40) };
            let length = if kind == FLUSH { 0 } else { rng.size(2 << 20) };
            let cost = meter.cost(kind, last, length);
            let served = queue.submit(now, kind, last, length);
            assert_eq!((served.end - now, served.sequential), (cost.nanoseconds, cost.sequential), "{name} {round}");
            assert_eq!(served.busy_ns, cost.nanoseconds);
            (now, end) = (served.end + rng.below(2) * rng.below(1000), last + length);
            queue.forget_before(now);
        }
    }
}

/// At depth 1 the sum is the serial one, and more depth is never slower when all requests wait from the beginning.
#[test]
fn depth_only_helps() {
    let total = |depth| {
        let mut rng = Rng::new(31);
        let mut queue = Queue::new(Arc::new(basalt_flash::preset("nvme").unwrap()), depth);
        (0..500).map(|_| queue.submit(0, READ, rng.below(1 << 28) * PAGE, PAGE).end).max().unwrap()
    };
    // 57 us and 4096 bytes at 425 MB/s.
    assert_eq!(total(1), 500 * 66_638);
    assert!(total(2) < total(1) && total(8) < total(2) && total(64) < total(8));
    // Eight units cannot be more than eight times as fast.
    assert!(total(512) > total(1) / 8);
}

#[test]
fn a_timed_device_serves_threads_that_have_times_of_their_own() {
    let clock = VirtualClock::new();
    let device = TimedDevice::new(MemoryDevice::new(1 << 20, 512), striped(4), clock.clone()).with_queue(4);
    let mut ends = Vec::new();
    for page in 0..3 {
        clock.resume(10_000);
        device.write_at(page * PAGE, &[1; 4096]).unwrap();
        device.flush().unwrap();
        ends.push(clock.now());
    }
    // All are written by 1.01 ms; one flush is enough for all.
    assert_eq!(ends, [6_010_000; 3]);
    let statistics = device.statistics();
    assert_eq!((statistics.flush.requests, statistics.flushes_shared, statistics.write.requests), (1, 2, 3));
    assert_eq!(statistics.busy_ns(), 8_000_000);
}

/// How long a request waits for others is part of its latency, and not of the device's work.
#[test]
fn latencies_of_requests_that_wait_are_longer_than_their_work() {
    let clock = VirtualClock::new();
    let device = TimedDevice::new(MemoryDevice::new(1 << 20, 512), striped(4), clock.clone()).with_queue(4);
    for _ in 0..3 {
        clock.resume(10_000);
        device.write_at(0, &[1; 4096]).unwrap();
    }
    let statistics = device.statistics();
    assert_eq!((clock.now(), statistics.busy_ns()), (3_010_000, 3_000_000));
    assert_eq!([30.0, 60.0, 100.0].map(|share| statistics.write.percentile_ns(share) / 10_000), [100, 200, 300]);
}

#[test]
fn the_processor_works_before_the_device_does() {
    let clock = VirtualClock::new();
    let device =
        TimedDevice::new(MemoryDevice::new(1 << 20, 512), Arc::new(round()), clock.clone()).with_processor(700);
    // Two blocks and a part of one; then a flush, which has no blocks.
    device.write_at(0, &[1; 8704]).unwrap();
    assert_eq!((clock.now(), device.statistics().busy_ns()), (2_125_000 + 2100, 2_125_000));
    device.flush().unwrap();
    assert_eq!(clock.now(), 2_125_000 + 2100 + 5_000_000);
    assert_eq!(device.statistics().write.percentile_ns(100.0) / 10_000, 212);
    // A discard names blocks, and does not touch them.
    let busy = device.statistics().busy_ns();
    device.discard(0, 8192).unwrap();
    assert_eq!(clock.now() - 2100, device.statistics().busy_ns());
    assert!(device.statistics().busy_ns() > busy);
}

/// A request whose collection is not over has its place in the queue until then.
#[test]
fn what_the_device_does_for_itself_keeps_the_place_of_its_request() {
    let mut queue = Queue::new(striped(4), 1);
    let mut served = queue.submit(0, WRITE, 0, PAGE);
    queue.prolong(&mut served, 300_000);
    assert_eq!((served.end, queue.admits(0), queue.admits(1_100_000)), (1_300_000, 1_300_000, 1_300_000));
}

/// Copies are priced with the largest sequential requests, of a model whose curves differ.
#[test]
fn copies_are_priced_by_the_largest_sequential_requests() {
    let mut model = round();
    let points = |small: f64, large: f64| vec![(4096, small), (1 << 20, large)];
    model.read.sequential.points = points(20.48, 40.96);
    model.read.random.points = points(1.0, 2.0);
    model.write.sequential.points = points(1.0, 4.096);
    model.write.random.points = points(0.5, 0.7);
    let geometry = model.geometry(8 << 20).unwrap();
    let done = FtlStatistics { pages_copied: 3, erases: 1, ..FtlStatistics::default() };
    let cost = CopyCost::new(&model, &geometry);
    assert_eq!(cost.nanoseconds(&FtlStatistics::default(), &done), 3 * 1_100_000 + 2_000_000);
    assert_eq!(cost.programs_ns(3), 3e6);
}
