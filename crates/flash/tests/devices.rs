//! Device models, meters, timed devices and presets, through the public door.

#[path = "../../device/tests/probe/mod.rs"]
mod probe;

use std::sync::Arc;

use basalt_device::{BlockDevice, FaultyDevice, MemoryDevice, RequestKind};
use basalt_flash::device::{Curve, DeviceModel, Direction, Parallelism};
use basalt_flash::{Geometry, PageLevel, PageLevelOptions, TimedDevice, VirtualClock, chips, preset, presets};

/// A model that reads at 100 MB/s in sequence and 10 at random, writes at half of that, with a flush of 1 ms.
fn simple() -> DeviceModel {
    let direction = |sequential: f64| Direction {
        streams: 2,
        sequential: Curve { latency_us: 0.0, points: vec![(4096, sequential)] },
        random: Curve { latency_us: 0.0, points: vec![(4096, sequential / 10.0)] },
    };
    DeviceModel {
        name: "simple".into(),
        description: "for tests".into(),
        source: "made up".into(),
        kind: basalt_flash::device::DeviceKind::Other,
        capacity_bytes: None,
        flush_us: 1000.0,
        discard_us: 7.0,
        parallelism: None,
        read: direction(100.0),
        write: direction(50.0),
        flash: None,
    }
}

#[test]
fn a_stream_is_what_continues_one_of_the_last_few() {
    let mut meter = simple().meter();
    let mut read = |offset| meter.cost(RequestKind::Read, offset, 4096).sequential;
    // Two streams take turns; a third throws out the one used longest ago.
    assert_eq!([read(0), read(1 << 20), read(4096), read((1 << 20) + 4096)], [false, false, true, true]);
    assert_eq!([read(1 << 30), read(8192), read((1 << 30) + 4096)], [false, false, true]);
    // Writes have streams of their own.
    assert!(!meter.cost(RequestKind::Write, 8192 + 4096, 4096).sequential);
}

#[test]
fn times_follow_the_curves() {
    let mut meter = simple().meter();
    assert_eq!(meter.request(RequestKind::Write, 0, 1_000_000), 200_000_000);
    assert_eq!(meter.request(RequestKind::Write, 1_000_000, 1_000_000), 20_000_000);
    // A small request takes as long as the smallest that was measured.
    assert_eq!(meter.request(RequestKind::Write, 2_000_000, 1), 81_920);
    assert_eq!(meter.request(RequestKind::Flush, 0, 0), 1_000_000);
    assert_eq!(meter.request(RequestKind::Flush, 0, 0), 0);
    assert_eq!(meter.request(RequestKind::Discard, 0, 1 << 30), 7_000);
    assert_eq!(meter.request(RequestKind::Flush, 0, 0), 1_000_000);

    // Between points the line is straight in logarithms: 16 is halfway from 4 to 64, and 8 from 2 to 32.
    let mut model = simple();
    model.read.random = Curve { latency_us: 3.0, points: vec![(4 << 10, 2.0), (64 << 10, 32.0)] };
    let mut meter = model.meter();
    assert_eq!(meter.request(RequestKind::Read, 1 << 40, 16 << 10), 3_000 + 2_048_000);
    assert_eq!(meter.request(RequestKind::Read, 0, 1 << 20), 3_000 + 32_768_000);
}

#[test]
fn requests_are_spread_over_the_units() {
    let mut model = simple();
    model.parallelism = Some(Parallelism { units: 4, stripe_bytes: 16 << 10 });
    model.read.random = Curve { latency_us: 10.0, points: vec![(512, 1.0)] };
    let mut meter = model.meter();
    // The busiest unit by counting stripe by stripe.
    let naive = |offset: u64, length: u64| {
        let mut units = [0_u64; 4];
        let mut at = offset;
        while at < offset + length {
            let end = ((at / (16 << 10) + 1) * (16 << 10)).min(offset + length);
            units[((at / (16 << 10)) % 4) as usize] += end - at;
            at = end;
        }
        10_000 + units.into_iter().max().unwrap().max(512) * 1000
    };
    let mut rng = basalt_random::Rng::new(17);
    for _ in 0..5_000 {
        // Never where a stream ended.
        let (offset, length) = (rng.below(1 << 40) * 512 + 1, rng.size(1 << 20) + 1);
        assert_eq!(meter.request(RequestKind::Read, offset, length), naive(offset, length), "{offset} {length}");
    }
}

#[test]
fn a_timed_device_advances_the_clock_and_counts() {
    let clock = VirtualClock::new();
    let geometry = Geometry::for_bytes(64 << 20).unwrap();
    let layer = PageLevel::new(geometry, PageLevelOptions::default()).unwrap();
    let device = TimedDevice::new(MemoryDevice::new(64 << 20, 512), Arc::new(simple()), clock.clone())
        .with_layer(Box::new(layer));
    device.write_vectored_at(0, &[&[1; 3000], &[2; 1096], &[3; 4096]]).unwrap();
    device.write_at(8192, &[4; 4096]).unwrap();
    device.write_at(100, &[5; 4096]).unwrap();
    device.flush().unwrap();
    device.discard(0, 4096 + 100).unwrap();
    let mut read = [0; 4096];
    device.read_at(4096, &mut read).unwrap();
    assert!(read[..100].iter().all(|&byte| byte == 0) && read[100..].iter().all(|&byte| byte == 3));

    let statistics = device.statistics();
    assert_eq!((statistics.write.requests, statistics.write.sequential, statistics.write.bytes), (3, 1, 4 * 4096));
    assert_eq!(statistics.write.busy_ns, 1_638_400 + 81_920 + 819_200);
    assert_eq!(
        (statistics.flush.busy_ns, statistics.discard.busy_ns, statistics.read.busy_ns),
        (1_000_000, 7_000, 409_600)
    );
    assert_eq!(clock.now(), statistics.busy_ns());
    let worst = statistics.write.percentile_ns(100.0);
    assert!((1_638_400..1_641_000).contains(&worst), "{worst}");

    // 2 + 1 + 2 pages written, one trimmed wholly.
    let report = &device.layers()[0];
    assert_eq!((report.statistics.pages_written, report.statistics.pages_trimmed), (5, 1));
    assert_eq!((report.statistics.flushes, report.statistics.pages_read), (1, 1));

    let before = device.statistics();
    device.write_at(1 << 20, &[1; 4096]).unwrap();
    let since = device.statistics().since(&before);
    assert_eq!((since.write.requests, since.read.requests, since.write.latency.len()), (1, 0, 1));
}

#[test]
fn a_timed_device_hands_everything_on() {
    probe::expect_forwards(|probe| TimedDevice::new(probe, Arc::new(simple()), VirtualClock::new()), &[]);
}

#[test]
fn what_was_prefetched_costs_once_and_failures_nothing() {
    let clock = VirtualClock::new();
    let memory = Arc::new(MemoryDevice::new(1 << 20, 512));
    let device = TimedDevice::new(Arc::clone(&memory), Arc::new(simple()), clock.clone());
    device.prefetch(0, 100_000);
    assert_eq!(clock.now(), 10_000_000);
    device.read_at(0, &mut [0; 50_000]).unwrap();
    device.read_at(50_000, &mut [0; 50_000]).unwrap();
    assert_eq!((clock.now(), device.statistics().read.requests), (10_000_000, 1));
    device.read_at(0, &mut [0; 50_000]).unwrap();
    assert_eq!(clock.now(), 15_000_000);
    device.read_at(1 << 20, &mut [0; 1]).unwrap_err();
    device.write_at((1 << 20) - 1, &[0; 2]).unwrap_err();
    assert_eq!((clock.now(), device.statistics().write.requests), (15_000_000, 0));

    let faulty = FaultyDevice::new(memory);
    let device = TimedDevice::new(faulty, Arc::new(simple()), clock.clone());
    device.write_at(0, &[1; 4096]).unwrap();
    assert_eq!(clock.now(), 15_000_000 + 819_200);
    for kind in [RequestKind::Read, RequestKind::Write, RequestKind::Flush, RequestKind::Discard] {
        device.inner().fail_nth(kind, 1, std::io::ErrorKind::Other);
    }
    device.read_at(0, &mut [0; 512]).unwrap_err();
    device.write_at(0, &[1; 512]).unwrap_err();
    device.flush().unwrap_err();
    device.discard(0, 4096).unwrap_err();
    assert_eq!(clock.now(), 15_000_000 + 819_200);
}

#[test]
fn what_is_written_behind_a_prefetch_is_read_again_and_nothing_lies_behind_the_end() {
    let clock = VirtualClock::new();
    let end = 1 << 20;
    let device = TimedDevice::new(MemoryDevice::new(end, 512), Arc::new(simple()), clock);
    device.prefetch(end - 8192, end);
    assert_eq!((device.statistics().read.requests, device.statistics().read.bytes), (1, 8192));
    device.write_at(end - 4096, &[1; 4096]).unwrap();
    device.read_at(end - 8192, &mut [0; 4096]).unwrap();
    assert_eq!(device.statistics().read.requests, 1);
    device.read_at(end - 4096, &mut [0; 4096]).unwrap();
    assert_eq!(device.statistics().read.requests, 2);
}

#[test]
fn a_layer_sees_the_pages_that_its_flash_has() {
    let geometry = Geometry::for_bytes(64 << 20).unwrap();
    let layer = PageLevel::new(geometry, PageLevelOptions::default()).unwrap();
    let end = geometry.logical_pages() * 4096;
    let device = TimedDevice::new(MemoryDevice::new(end + 8192, 512), Arc::new(simple()), VirtualClock::new())
        .with_layer(Box::new(layer));
    device.write_at(end - 4096, &[1; 8192]).unwrap();
    device.write_at(end, &[1; 8192]).unwrap();
    assert_eq!(device.layers()[0].statistics.pages_written, 1);
}

#[test]
fn presets_are_sound_and_as_the_papers_say() {
    for model in presets().unwrap() {
        assert!(model.source.len() > 40 && !model.description.is_empty(), "{}", model.name);
        assert_eq!(preset(&model.name).unwrap(), model);
        assert_eq!(DeviceModel::parse(&model.to_toml().unwrap(), "again").unwrap(), model);
        for bytes in [1 << 20, 256 << 20, 16 << 30_u64] {
            let geometry = model.geometry(bytes).unwrap();
            assert!(geometry.logical_bytes() >= bytes);
            basalt_flash::TranslationKind::Fast.build(geometry).unwrap();
        }
    }
    // Bandwidth in MB/s of requests far from each other, and of one stream.
    let bandwidth = |name: &str, kind, bytes: u64, random: bool| {
        let mut meter = preset(name).unwrap().meter();
        meter.request(kind, 0, bytes);
        bytes as f64 * 1e3 / meter.request(kind, if random { 1 << 40 } else { bytes }, bytes) as f64
    };
    let near =
        |measured: f64, expected: f64| assert!((measured / expected - 1.0).abs() < 0.01, "{measured} {expected}");
    // SFS paper, table 1 and figure 1: sequential read, random read, sequential write, random write, where that saturates.
    for (name, numbers, saturated) in [
        ("ssd-h", [216.9, 13.8, 170.0, 5.3], 16 << 20),
        ("ssd-m", [212.6, 10.6, 87.0, 0.6], 32 << 20),
        ("ssd-l", [69.1, 5.3, 38.0, 0.002], 16 << 20),
    ] {
        near(bandwidth(name, RequestKind::Read, 32 << 20, false), numbers[0]);
        near(bandwidth(name, RequestKind::Read, 4096, true), numbers[1]);
        near(bandwidth(name, RequestKind::Write, 32 << 20, false), numbers[2]);
        near(bandwidth(name, RequestKind::Write, 4096, true), numbers[3]);
        near(bandwidth(name, RequestKind::Write, saturated, true), numbers[2]);
        assert!(bandwidth(name, RequestKind::Write, saturated / 4, true) < 0.8 * numbers[2]);
    }
    near(bandwidth("hdd-m", RequestKind::Write, 32 << 20, false), 109.6);
    near(bandwidth("hdd-m", RequestKind::Read, 4096, true), 0.4);
    // The maker's numbers: 15,000 random reads and 50,000 random writes a second.
    near(bandwidth("nvme", RequestKind::Read, 4096, true), 15_000.0 * 4096e-6);
    near(bandwidth("nvme", RequestKind::Write, 4096, true), 50_000.0 * 4096e-6);
    near(bandwidth("nvme", RequestKind::Write, 32 << 20, false), 2_500.0);
    let chip_times: Vec<(String, u64, u64)> = chips()
        .unwrap()
        .into_iter()
        .map(|chip| (chip.name.clone(), chip.read_ns, chip.capacity_bytes() >> 20))
        .collect();
    assert_eq!(
        chip_times,
        [("nand-slc".into(), 77_800, 256), ("nand-mlc".into(), 165_600, 1024), ("onenand".into(), 18_963, 256)]
    );
}

#[test]
fn a_write_gap_is_added_to_each_write_that_begins_a_stream() {
    let write =
        |meter: &mut basalt_flash::device::Meter, offset, bytes| meter.request(RequestKind::Write, offset, bytes);
    for gap in [0, 7] {
        let mut meter = preset("sd-l").unwrap().with_write_gap(gap).meter();
        for bytes in [4096, 65_536, 1 << 20] {
            let begun = write(&mut meter, 1 << 35, bytes);
            let gone_on = write(&mut meter, (1 << 35) + bytes, bytes);
            // 12.1 MB/s.
            let longer = f64::from(gap) * 4096e3 / 12.1;
            assert!((begun as f64 - gone_on as f64 - longer).abs() < 2.0, "{gap}, {bytes}: {begun} {gone_on}");
        }
    }
    let mut reads = preset("sd-l").unwrap().with_write_gap(7).meter();
    assert_eq!(
        reads.request(RequestKind::Read, 0, 4096),
        preset("sd-l").unwrap().meter().request(RequestKind::Read, 0, 4096)
    );
}

#[test]
fn bad_files_are_told_what_is_wrong() {
    let good = basalt_flash::preset_text("sd-a").unwrap();
    let message = |text: &str| DeviceModel::parse(text, "card.toml").unwrap_err().to_string();
    for (from, to, expected) in [
        ("streams = 2", "streams = 0", "card.toml: write.streams: 0 is not from 1 to 1024"),
        ("[16384, 0.037]", "[16384, -1]", "card.toml: write.random.points: -1 MB/s is not from"),
        ("[16384, 0.037]", "[4096, 1]", "card.toml: write.random.points: 4096 bytes follow 4096"),
        ("[16384, 0.037]", "[16384, nan]", "card.toml: write.random.points: NaN MB/s"),
        ("flush_us = 10_000", "flush_us = -1", "card.toml: flush_us: -1 is not a time"),
        ("flush_us = 10_000", "", "missing field `flush_us`"),
        ("page_bytes = 4096", "page_bytes = 0", "card.toml: flash: "),
        ("translation = \"fast\"", "translation = \"slow\"", "slow"),
        ("kind = \"sd-card\"", "kind = ", "card.toml, line "),
        ("[read]", "[reed]", "card.toml, line "),
    ] {
        assert!(good.contains(from), "{from}");
        let text = message(&good.replace(from, to));
        assert!(text.contains(expected) && !text.contains('\n'), "{to}: {text}");
    }
    assert!(preset("floppy").unwrap_err().to_string().contains("ssd-h, ssd-m"));
    assert!(DeviceModel::load("/nonexistent/file").unwrap_err().to_string().starts_with("/nonexistent/file: "));
    let few = preset("ssd-m").unwrap().geometry(4096).unwrap_err().to_string();
    assert_eq!(few, "flash geometry: 4096 bytes are too few for erase blocks of 524288; make it larger");
    let endless = DeviceModel::load("/dev/zero").unwrap_err().to_string();
    assert_eq!(endless, "/dev/zero: is too large for a device's file");
}

#[test]
fn nonsensical_geometries_are_refused() {
    use basalt_flash::GeometryOptions;
    let message = |change: fn(&mut GeometryOptions)| {
        let mut options = GeometryOptions::default();
        change(&mut options);
        Geometry::new(&options).unwrap_err().to_string()
    };
    for (text, expected) in [
        (message(|options| options.page_bytes = 0), "page_bytes is 0"),
        (message(|options| options.page_bytes = 5000), "page_bytes is 5000"),
        (message(|options| options.block_bytes = 4096), "block_bytes is 4096"),
        (message(|options| options.block_bytes = 1 << 31), "is more than 32768"),
        (message(|options| options.over_provisioning_percent = f64::NAN), "over_provisioning_percent is NaN"),
        (message(|options| options.over_provisioning_percent = -1.0), "over_provisioning_percent is -1"),
        (message(|options| options.logical_bytes = 0), "logical_bytes is 0"),
        (message(|options| options.logical_bytes = u64::MAX), "more than 2^32 pages"),
        (message(|options| options.logical_bytes = 1 << 20), "spare blocks"),
    ] {
        assert!(text.contains(expected), "{text}");
    }
    // 1 TiB: about nine bytes a page, known before anything is touched.
    let geometry = Geometry::for_bytes(1 << 40).unwrap();
    assert_eq!((geometry.logical_pages(), geometry.physical_blocks()), (1 << 28, (1_u64 << 21) * 11 / 10 + 1));
    // The memory is the system's until it is touched.
    let layer = PageLevel::new(geometry, PageLevelOptions::default()).unwrap();
    assert!((8..9).contains(&(basalt_flash::TranslationLayer::memory(&layer) / geometry.logical_pages())));
}
