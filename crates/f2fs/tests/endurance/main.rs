//! Volumes that are overwritten for ever: cleaning recycles segments at high utilization, and what it costs stays the same.
//!
//! The long runs are ignored by default: `make endurance` starts them.

mod latency;
mod volume;

use std::sync::Arc;

use basalt_device::MemoryDevice;
use basalt_f2fs::OpenOptions;
use basalt_testkit::images::TOOLS;
use basalt_testkit::rng::Rng;
use basalt_testkit::skip::tools_or_skip;

use volume::{BLOCK, Volume};

/// Parts of a run that are reported each by itself.
const PARTS: u64 = 10;
/// How far the write amplification of a tenth may be from the mean of the last five.
const TOLERANCE: f64 = 0.05;

/// Fills a volume of `mib` MiB to 95 %, overwrites it at random `times` times, and returns the write amplification of each
/// tenth: blocks written to the volume for each block written to a file.
fn overwrite(mib: u64, open: OpenOptions, times: u64, check: bool) -> Vec<f64> {
    let mut rng = Rng::new(1);
    let mut volume = Volume::filled_on(Arc::new(MemoryDevice::new(mib << 20, 512)), open, 95, &mut rng);
    let total = (mib << 20) / BLOCK * times;
    let mut amplifications = Vec::new();
    for part in 1..=PARTS {
        let before = volume.fs.statistics();
        for _ in 0..total / PARTS {
            volume.overwrite(&mut rng);
        }
        let after = volume.fs.statistics();
        let (written, was) = (after.written, before.written);
        let blocks = |w: basalt_f2fs::Counters| w.data_blocks + w.node_blocks + w.metadata_blocks;
        let amplification = (blocks(written) - blocks(was)) as f64 / (total / PARTS) as f64;
        println!(
            "{part:>2}/{PARTS}: write amplification {amplification:.3}, of it cleaning {:.3}, metadata {:.3}; {} sections cleaned, {} checkpoints",
            (written.blocks_moved - was.blocks_moved) as f64 / (total / PARTS) as f64,
            (written.metadata_blocks - was.metadata_blocks) as f64 / (total / PARTS) as f64,
            written.sections_cleaned - was.sections_cleaned,
            written.checkpoints - was.checkpoints,
        );
        amplifications.push(amplification);
        volume.verify_some(&mut rng);
    }
    println!("{:#?}", volume.fs.statistics());
    volume.verify();
    let device = volume.close();
    if check {
        volume::fsck(&device);
    }
    amplifications
}

/// The last half must cost the same from tenth to tenth.
fn expect_constant(amplifications: &[f64]) {
    let last = &amplifications[PARTS as usize / 2..];
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    println!("write amplification over the last half: {mean:.3}");
    for amplification in last {
        let off = (amplification / mean - 1.0).abs();
        assert!(off < TOLERANCE, "{amplification:.3} is {:.1} % off the mean of {mean:.3}", off * 100.0);
    }
}

#[test]
fn a_small_volume_is_overwritten_many_times() {
    let has_fsck = tools_or_skip(TOOLS);
    // 96 MiB: on 64, nearly everything is reserve. With the usual cache, a good part of it would be dirty, and tenths would differ by that.
    let open = OpenOptions { cache_bytes: 1 << 20, ..OpenOptions::default() };
    expect_constant(&overwrite(96, open, 10, has_fsck));
}

#[test]
#[ignore = "takes minutes: make endurance"]
fn a_volume_of_512_mib_is_overwritten_100_times() {
    let has_fsck = tools_or_skip(TOOLS);
    expect_constant(&overwrite(512, OpenOptions::default(), 100, has_fsck));
}
