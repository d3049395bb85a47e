//! Zipf's law over a bounded number of ranks, exact and in constant time.

use basalt_random::Rng;

use super::unit;

/// Ranks 1 to n, rank k with probability proportional to k^-θ.
///
/// Rejection-inversion (W. Hörmann, G. Derflinger: *Rejection-inversion to generate variates from monotone discrete
/// distributions*, ACM TOMACS 6(3), 1996): draw from the continuous hat h(x) = x^-θ by inverting its integral H, round, and reject
/// the few that the rounding favours. No table, no approximation of the zeta function.
#[derive(Debug, Clone)]
pub struct Zipf {
    ranks: f64,
    theta: f64,
    /// H at 3/2, less the probability of rank 1; and H at n + 1/2: the draw lies between.
    low: f64,
    high: f64,
    /// Draws whose rounding moved them up by no more than this are accepted unseen.
    sure: f64,
}

impl Zipf {
    /// The distribution over `ranks` ranks (at least 1) with exponent `theta` (0 is uniform).
    pub fn new(ranks: u64, theta: f64) -> Zipf {
        let ranks = ranks.max(1) as f64;
        let mut zipf = Zipf { ranks, theta, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(ranks + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.hat(2.0));
        zipf
    }

    /// The next rank.
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        loop {
            // Falls from `high` (included) towards `low`.
            let draw = self.high - unit(rng) * (self.high - self.low);
            let x = self.inverse(draw);
            let rank = (x + 0.5).floor().clamp(1.0, self.ranks);
            if rank - x <= self.sure || draw >= self.integral(rank + 0.5) - self.hat(rank) {
                return rank as u64;
            }
        }
    }

    fn hat(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// The integral of the hat: (x^(1-θ) - 1) / (1-θ), and ln x for θ = 1, without losing digits near it.
    fn integral(&self, x: f64) -> f64 {
        let power = 1.0 - self.theta;
        let log = libm::log(x);
        if power == 0.0 { log } else { libm::expm1(power * log) / power }
    }

    fn inverse(&self, y: f64) -> f64 {
        let power = 1.0 - self.theta;
        if power == 0.0 {
            return libm::exp(y);
        }
        // Rounding must not take the argument of the logarithm below 0.
        libm::exp(libm::log1p((power * y).max(-1.0)) / power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Observed frequencies against k^-θ / Σ k^-θ, within five standard deviations, for few and many ranks.
    #[test]
    fn frequencies_are_those_of_theory() {
        for theta in [0.0, 0.5, 0.9, 0.99, 1.0, 1.2, 2.0] {
            for ranks in [1_u64, 2, 10, 1000] {
                let seed = 5;
                let zipf = Zipf::new(ranks, theta);
                let mut rng = Rng::new(seed);
                let draws = 400_000;
                let mut counts = vec![0_u32; ranks as usize];
                for _ in 0..draws {
                    counts[(zipf.sample(&mut rng) - 1) as usize] += 1;
                }
                let weight = |rank: usize| ((rank + 1) as f64).powf(-theta);
                let sum: f64 = (0..ranks as usize).map(weight).sum();
                for (rank, count) in counts.iter().enumerate() {
                    let probability = weight(rank) / sum;
                    let expected = probability * f64::from(draws);
                    let deviation = (expected * (1.0 - probability)).sqrt();
                    let off = (f64::from(*count) - expected).abs();
                    assert!(
                        off <= 5.0 * deviation + 1.0,
                        "seed {seed} theta {theta}: rank {} of {ranks} came {count} times, expected {expected:.0}",
                        rank + 1
                    );
                }
            }
        }
    }

    /// Over a hundred million ranks the share of the first ones is still that of theory, and every rank is in bounds.
    #[test]
    fn many_ranks_keep_their_shares() {
        let ranks = 100_000_000_u64;
        let zipf = Zipf::new(ranks, 0.99);
        let mut rng = Rng::new(1);
        let draws = 200_000;
        let first = (0..draws)
            .map(|_| zipf.sample(&mut rng))
            .inspect(|rank| assert!((1..=ranks).contains(rank)))
            .filter(|rank| *rank <= 1000)
            .count();
        // Harmonic sums by Euler and Maclaurin: Σ k^-θ ≈ (n^a - 1)/a + (1 + n^-θ)/2 + θ (1 - n^-(θ+1))/12 with a = 1 - θ.
        let sum =
            |n: f64| (n.powf(0.01) - 1.0) / 0.01 + (1.0 + n.powf(-0.99)) / 2.0 + 0.99 / 12.0 * (1.0 - n.powf(-1.99));
        let expected = sum(1000.0) / sum(ranks as f64) * f64::from(draws);
        assert!((first as f64 / expected - 1.0).abs() < 0.01, "{first} of {expected}");
    }
}
