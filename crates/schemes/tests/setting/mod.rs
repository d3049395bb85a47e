//! The setting in which schemes are compared: another simulator's, whose numbers are known.

use basalt_segments::{Placement, VictimPolicy};
use basalt_simulator::{Age, Cleaning, Options, Statistics, Volume};
use basalt_workloads::Stream;

/// Blocks of 4 KiB.
pub const GIB: u32 = 262_144;

/// Writes for each block, the first fill included, and how many of them are measured.
pub const WRITES: u64 = 12;
pub const MEASURED: u64 = 7;

/// A volume as in the other simulator: besides the spare share, a segment for each group and two more; cleaned when fewer than one for
/// each group and one more are free; cost and benefit by the age since a segment was sealed.
pub fn options(blocks: u32, spare: f64, groups: u32, policy: &'static dyn VictimPolicy) -> Options {
    let segments = (f64::from(blocks) / 512.0 / (1.0 - spare)) as u32 + groups + 2;
    Options {
        segments,
        blocks,
        policy,
        age: Age::Written,
        cleaning: Cleaning::FreeSections { least: groups + 1, victims: 1 },
        ..Options::of(u64::from(segments) << 21, 50).unwrap()
    }
}

/// The blocks of a run, endless: the fill, then the stream.
pub fn writes(blocks: u32, stream: &str, seed: u64) -> impl Iterator<Item = u32> + use<> {
    (0..blocks).chain(Stream::parse(stream, blocks, seed).unwrap())
}

pub fn run(options: Options, placement: Box<dyn Placement>, stream: &str, seed: u64) -> (Statistics, Volume) {
    let blocks = options.blocks;
    let mut volume = Volume::with_placement(options, placement).unwrap();
    let mut writes = writes(blocks, stream, seed);
    for block in writes.by_ref().take(((WRITES - MEASURED) * u64::from(blocks)) as usize) {
        volume.write(block).unwrap();
    }
    volume.take_statistics();
    for block in writes.take((MEASURED * u64::from(blocks)) as usize) {
        volume.write(block).unwrap();
    }
    (*volume.statistics(), volume)
}

/// Shows and checks a write amplification.
pub fn expect(name: &str, measured: f64, expected: f64, percent: f64) {
    println!("{name}: {measured:.3}, expected {expected:.3} within {percent} %");
    assert!((measured / expected - 1.0).abs() * 100.0 <= percent, "{name}: {measured:.3}, expected {expected:.3}");
}
