//! How long one small write waits while every write makes cleaning necessary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use basalt_device::FileDevice;
use basalt_f2fs::OpenOptions;
use basalt_testkit::rng::Rng;

use crate::volume::Volume;

/// Writes that are timed.
const WRITES: usize = 400_000;
/// Live blocks one write of a block may move at the most, at the utilization of these tests.
const STEP: u64 = 128;

#[test]
fn a_small_write_waits_for_no_more_than_a_step() {
    let mut rng = Rng::new(2);
    let mut volume = Volume::filled(128, 90, &mut rng);
    for _ in 0..50_000 {
        volume.overwrite(&mut rng);
    }
    let mut most = 0;
    let start = volume.fs.statistics().cleaning.foreground;
    for _ in 0..50_000 {
        let before = volume.fs.statistics();
        volume.overwrite(&mut rng);
        let after = volume.fs.statistics();
        most = most.max(after.written.blocks_moved - before.written.blocks_moved);
        assert!(after.checkpoints.total() - before.checkpoints.total() <= 1, "more than one checkpoint for a write");
    }
    let moved = volume.fs.statistics().cleaning.foreground.blocks_copied - start.blocks_copied;
    assert!(moved > 10_000, "{moved} blocks were moved: this tests nothing");
    println!("{moved} blocks moved, at most {most} for one write");
    assert!(most <= STEP, "one write moved {most} blocks");
}

#[test]
#[ignore = "measures: make endurance"]
fn latency_of_writes_under_constant_cleaning() {
    measure("memory", &mut Volume::filled(512, 95, &mut Rng::new(3)));
    let scratch = basalt_testkit::scratch::directory().unwrap();
    let path = scratch.path().join("volume.img");
    std::fs::File::create(&path).unwrap().set_len(512 << 20).unwrap();
    let device = FileDevice::open(&path, &basalt_device::OpenOptions::default()).unwrap();
    measure("image file", &mut Volume::filled_on(Arc::new(device), OpenOptions::default(), 95, &mut Rng::new(3)));
}

fn measure(name: &str, volume: &mut Volume) {
    let mut rng = Rng::new(4);
    // Until every segment is neither full nor empty.
    for _ in 0..WRITES {
        volume.overwrite(&mut rng);
    }
    let before = volume.fs.statistics();
    let mut times: Vec<Duration> = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let start = Instant::now();
        volume.overwrite(&mut rng);
        times.push(start.elapsed());
    }
    let after = volume.fs.statistics();
    times.sort_unstable();
    let quantile = |share: f64| times[((WRITES - 1) as f64 * share) as usize];
    println!(
        "{name}: 4 KiB write p50 {:?}, p99 {:?}, p99.9 {:?}, p99.99 {:?}, longest {:?}; {:.2} blocks moved for each, {} checkpoints",
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        quantile(0.9999),
        quantile(1.0),
        (after.written.blocks_moved - before.written.blocks_moved) as f64 / WRITES as f64,
        after.checkpoints.total() - before.checkpoints.total(),
    );
    println!("{:#?}", after.cleaning.foreground);
}
