//! Random numbers of other shapes. Logarithms are `libm`'s: the same bits on every machine.

use basalt_random::Rng;

/// A number from 0 to below 1, of 53 random bits.
pub(crate) fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// A number of the normal distribution (Marsaglia's polar method).
fn normal(rng: &mut Rng) -> f64 {
    loop {
        let x = 2.0 * unit(rng) - 1.0;
        let y = 2.0 * unit(rng) - 1.0;
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * libm::log(square) / square).sqrt();
        }
    }
}

/// A number of the gamma distribution of this shape (at least 1) and mean (Marsaglia and Tsang, ACM TOMS 26(3), 2000).
pub(crate) fn gamma(rng: &mut Rng, shape: f64, mean: f64) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = 1.0 + c * x;
        if v <= 0.0 {
            continue;
        }
        let v = v * v * v;
        let u = unit(rng);
        if u > 0.0 && libm::log(u) < 0.5 * x * x + d - d * v + d * libm::log(v) {
            return d * v * mean / shape;
        }
    }
}

/// A number of the lognormal distribution with this median, `sigma` being the deviation of its logarithm.
pub(crate) fn lognormal(rng: &mut Rng, median: f64, sigma: f64) -> f64 {
    median * libm::exp(sigma * normal(rng))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and variance of the gamma distribution: m and m²/shape.
    #[test]
    fn gamma_has_its_mean_and_variance() {
        let mut rng = Rng::new(11);
        let count = 200_000;
        let samples: Vec<f64> = (0..count).map(|_| gamma(&mut rng, 1.5, 128.0)).collect();
        let mean = samples.iter().sum::<f64>() / f64::from(count);
        let variance = samples.iter().map(|sample| (sample - mean) * (sample - mean)).sum::<f64>() / f64::from(count);
        assert!((mean - 128.0).abs() < 1.0, "mean {mean}");
        assert!((variance / (128.0 * 128.0 / 1.5) - 1.0).abs() < 0.03, "variance {variance}");
        assert!(samples.iter().all(|sample| *sample > 0.0));
    }
}
