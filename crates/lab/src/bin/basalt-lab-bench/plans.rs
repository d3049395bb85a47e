//! What planning the use of a segment's slack takes of the processor.

use basalt_random::Rng;
use basalt_segments::BLOCKS_PER_SEGMENT;
use basalt_segments::slack::{DeviceTimes, SlackPlan};

use crate::{Figure, figure, seconds_since, used};

/// Plans of one measurement, each of another segment.
const PLANS: usize = 10_000;

/// Plans for segments of which about this share of blocks, of 100, is dead, in random places.
pub fn plans(runs: u8, dead_percent: u64) -> Figure {
    let mut rng = Rng::new(1);
    let times = DeviceTimes::from_bandwidths(
        &[(1, 2.2), (4, 6.2), (16, 13.5), (128, 18.2)],
        &[(1, 11.2), (4, 28.4), (128, 62.9)],
        2_000_000,
    );
    let segments: Vec<[u64; 8]> = (0..PLANS).map(|_| segment(&mut rng, dead_percent)).collect();
    let measurements = (0..runs).map(|_| {
        let start = used();
        for dead in &segments {
            std::hint::black_box(SlackPlan::best(std::hint::black_box(dead), &times, 4));
        }
        PLANS as f64 / seconds_since(start)
    });
    let name = format!("512 blocks, {dead_percent} % dead at random");
    let mut figure = figure("plan", name, measurements.collect(), 1.0, None);
    figure.decision_ns = Some(1e9 / figure.writes_per_second);
    figure
}

fn segment(rng: &mut Rng, dead_percent: u64) -> [u64; 8] {
    let mut words = [0; 8];
    for at in 0..BLOCKS_PER_SEGMENT {
        if rng.below(100) < dead_percent {
            words[at as usize / 64] |= 1 << (63 - at % 64);
        }
    }
    words
}
