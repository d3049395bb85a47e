//! Segments, devices and numbers for tests of plans.

use std::ops::Range;

use super::DeviceTimes;

/// A segment whose dead blocks are these runs.
pub(super) fn segment(holes: &[Range<u32>]) -> [u64; 8] {
    let mut words = [0; 8];
    for at in holes.iter().cloned().flatten() {
        words[at as usize / 64] |= 1 << (63 - at % 64);
    }
    words
}

/// A write takes 100 ns and 1 a block, a read 10 and 1 a block, a commit 50.
pub(super) fn times() -> DeviceTimes {
    DeviceTimes::new(&[(1, 101), (512, 612)], &[(1, 11), (512, 522)], 50)
}

/// Numbers in the order that they come in from a seed: Knuth's linear congruential generator.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A device of any shape: points that rise and fall.
pub(super) fn random_times(numbers: &mut Numbers) -> DeviceTimes {
    let mut points = || -> Vec<(u32, u64)> {
        let scale = 1 + numbers.below(1000);
        [1, 2, 5, 16, 60, 200, 512].into_iter().map(|length| (length, 1 + numbers.below(scale * 50))).collect()
    };
    let (write, read) = (points(), points());
    DeviceTimes::new(&write, &read, numbers.below(20_000))
}
