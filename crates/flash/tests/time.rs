//! Time lines of a device, by hand: models with round numbers.

use std::sync::Arc;

use basalt_device::{BlockDevice, MemoryDevice};
use basalt_flash::device::{CopyCost, Curve, DeviceKind, DeviceModel, Direction, FlashModel, Parallelism};
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
