//! Half-octave buckets of times, and a mean interval in 16 bits.

/// Buckets of a 32-bit time.
pub const BUCKETS: usize = 64;

/// The bucket of a time of at least 1: bucket 2k begins at 2^k, bucket 2k + 1 at 1.5 · 2^k. Zero counts as 1.
pub fn bucket(time: u32) -> usize {
    let time = time.max(1);
    let octave = time.ilog2();
    let half = if octave == 0 { 0 } else { time >> (octave - 1) & 1 };
    (2 * octave + half) as usize
}

/// The bucket of a time that is no integer; the first of times below 1, the last of those above all.
pub fn bucket_of(time: f64) -> usize {
    // Exponent and first bit of the fraction, as in an integer.
    let steps = (time.max(1.0).to_bits() >> 51) - (1023 << 1);
    (steps as usize).min(BUCKETS - 1)
}

/// Where a bucket begins: the first at 0, because its times are below 1.5. The one behind the last gives the end of the last.
pub fn edge(bucket: usize) -> f64 {
    if bucket == 0 { 0.0 } else { f64::from_bits(((1023 << 1) + bucket as u64) << 51) }
}

/// The middle of a bucket on a logarithmic scale, nearly: 1.2 · 2^(bucket / 2).
pub fn centre(bucket: usize) -> f64 {
    let half = if bucket.is_multiple_of(2) { 1.0 } else { std::f64::consts::SQRT_2 };
    // At most 2^32.
    1.2 * half * (1u64 << (bucket / 2).min(32)) as f64
}

/// Bits of the fraction of a [`Mean`].
const FRACTION: u32 = 11;
const BIAS: u64 = 1023 << FRACTION;

/// A mean interval of at least 1 and below 2^32: its logarithm in units of 2^-11, straight between powers of two. In other words a
/// float of 5 bits for the exponent and 11 for the fraction, rounded to 0.025 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mean(pub u16);

impl Mean {
    /// The nearest one.
    pub fn of(time: f64) -> Mean {
        let shift = 52 - FRACTION;
        let rounded = (time.max(1.0).to_bits() + (1 << (shift - 1))) >> shift;
        // Capped, so it fits.
        Mean((rounded - BIAS).min(u64::from(u16::MAX)) as u16)
    }

    /// The time.
    pub fn get(self) -> f64 {
        f64::from_bits((u64::from(self.0) + BIAS) << (52 - FRACTION))
    }

    /// Its bucket.
    pub fn bucket(self) -> usize {
        usize::from(self.0 >> (FRACTION - 1))
    }

    /// After one more interval, with this share in the mean.
    pub fn moved(self, interval: u32, share: f64) -> Mean {
        let mean = self.get();
        Mean::of(mean + (f64::from(interval) - mean) * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_half_octaves() {
        let expected = [(0, 0), (1, 0), (2, 2), (3, 3), (4, 4), (5, 4), (6, 5), (7, 5), (8, 6), (11, 6), (12, 7)];
        for (time, at) in expected {
            assert_eq!((bucket(time), bucket_of(f64::from(time))), (at, at), "{time}");
        }
        assert_eq!((bucket(u32::MAX), bucket_of(1e300), bucket_of(1.6)), (63, 63, 1));
        assert_eq!([0, 1, 2, 3, 4, 5, 64].map(edge), [0.0, 1.5, 2.0, 3.0, 4.0, 6.0, 4_294_967_296.0]);
        assert!((0..BUCKETS).all(|at| edge(at) < centre(at) && centre(at) < edge(at + 1)));
    }

    #[test]
    fn means_are_kept_to_one_part_in_four_thousand() {
        for exponent in 0..320 {
            let time = 1.0718 * 2.0f64.powf(f64::from(exponent) / 10.0);
            let mean = Mean::of(time.min(4e9));
            assert!((mean.get() / time.min(4e9) - 1.0).abs() < 1.0 / 4096.0, "{time}: {mean:?}");
            assert_eq!(mean.bucket(), bucket_of(mean.get()));
        }
        assert_eq!((Mean::of(0.0).get(), Mean::default().get(), Mean::of(1e30)), (1.0, 1.0, Mean(u16::MAX)));
        // 100, then 300 with half the share: 200; then 40 with a third.
        let mean = Mean::of(100.0).moved(300, 0.5);
        assert!((mean.get() - 200.0).abs() < 0.05);
        assert!((mean.moved(40, 1.0 / 3.0).get() - 146.67).abs() < 0.05);
    }
}
