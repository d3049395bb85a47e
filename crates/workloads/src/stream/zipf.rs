//! Zipf's law over a bounded number of ranks, exact, in constant time and without a table of ranks.

use basalt_random::Rng;

/// Groups for each doubling of the rank: the more, the fewer draws are rejected.
const GROUPS: u64 = 16;

/// Ranks whose probabilities differ by no more than a sixteenth, drawn as if they were all as likely as the first.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// Draws of the alias table up to this stay here, the others go to `alias`.
    stay: u64,
    alias: u32,
    first: u64,
    count: u64,
    /// Draws up to this are accepted for every rank of the group.
    sure: u64,
}

/// Ranks 1 to n, rank k with probability proportional to k^-θ.
///
/// Rejection from a staircase above k^-θ: a group of neighbouring ranks is drawn by Walker's alias method (A. J. Walker, ACM TOMS 3(3),
/// 1977) with the staircase's weight, a rank of it evenly, and the rank is accepted with its share of the step, (k / first)^-θ. At
/// least 15 of 16 draws are accepted by one comparison; only the others need a power. Some 16 ln n groups are all the memory.
/// (Rejection-inversion, ACM TOMACS 6(3), 1996, is as exact, but takes four logarithms and powers a draw: about 100 ns against 15.)
#[derive(Debug, Clone)]
pub struct Zipf {
    theta: f64,
    groups: Vec<Group>,
}

impl Zipf {
    /// The distribution over `ranks` ranks (at least 1) with exponent `theta` (0 is uniform).
    pub fn new(ranks: u64, theta: f64) -> Zipf {
        let ranks = ranks.max(1);
        let mut zipf = Zipf { theta, groups: Vec::new() };
        let mut weights = Vec::new();
        let mut first = 1;
        while first <= ranks {
            let count = (first / GROUPS).max(1).min(ranks - first + 1);
            let least = zipf.share(first, first + count - 1);
            zipf.groups.push(Group { stay: u64::MAX, alias: 0, first, count, sure: scaled(least) });
            weights.push(libm::exp(-theta * libm::log(first as f64)) * count as f64);
            first += count;
        }
        zipf.pair(&weights);
        zipf
    }

    /// The next rank.
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        loop {
            let (place, draw) = split(rng, self.groups.len() as u64);
            let mut group = &self.groups[place as usize];
            if draw > group.stay {
                group = &self.groups[group.alias as usize];
            }
            let (step, draw) = split(rng, group.count);
            let rank = group.first + step;
            if draw <= group.sure || draw < scaled(self.share(group.first, rank)) {
                return rank;
            }
        }
    }

    /// How likely a rank is, the first of its group being 1.
    fn share(&self, first: u64, rank: u64) -> f64 {
        libm::exp(-self.theta * libm::log1p((rank - first) as f64 / first as f64))
    }

    /// Fills the alias table: each place holds one group, and part of another that weighs more than a place.
    fn pair(&mut self, weights: &[f64]) {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut scaled_weights: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let (mut light, mut heavy): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|place| scaled_weights[*place] < 1.0);
        while let (Some(small), Some(large)) = (light.pop(), heavy.last().copied()) {
            self.groups[small].stay = scaled(scaled_weights[small]);
            self.groups[small].alias = large as u32;
            scaled_weights[large] -= 1.0 - scaled_weights[small];
            if scaled_weights[large] < 1.0 {
                heavy.pop();
                light.push(large);
            }
        }
        // What is left weighs a whole place but for rounding, and keeps it.
    }
}

/// A number below `bound`, and a random fraction that does not depend on it, in units of 2^-64.
fn split(rng: &mut Rng, bound: u64) -> (u64, u64) {
    let product = u128::from(rng.next_u64()) * u128::from(bound);
    ((product >> 64) as u64, product as u64)
}

/// A probability in units of 2^-64.
fn scaled(probability: f64) -> u64 {
    // The conversion stops at the greatest number.
    (probability * (u64::MAX as f64)) as u64
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
                let draws = 100_000;
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
