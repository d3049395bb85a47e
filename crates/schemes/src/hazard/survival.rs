//! The remaining life of blocks of an age, from how likely they are to die at each age.

use super::buckets::{BUCKETS, edge};
use super::math::one_minus_exp_neg;

/// −ln 0.9: where nine of ten survive.
const TENTH: f64 = 0.105_360_515_657_826_3;
/// The horizon is so many times as far.
const HORIZON: f64 = 3.0;

/// Predicted remaining lives at the ages where buckets begin, from the hazard (deaths for each block and write) in each bucket.
///
/// With S the survival curve from an age on, t₁₀ where S = 0.9 and H = 3·t₁₀: R = ∫₀ᴴ S dt / (1 − S(H)). It is the reciprocal of the mean
/// hazard over a short horizon: 1 / h for an exponential distribution, what is left of a fixed life, and not the mean of a mixture, which
/// its longest lives determine.
pub fn remaining_lives(hazards: &[f64; BUCKETS]) -> [f32; BUCKETS] {
    let pieces: [Piece; BUCKETS] = std::array::from_fn(|at| Piece::new(hazards[at], edge(at + 1) - edge(at)));
    std::array::from_fn(|at| remaining_life(&pieces[at..], hazards[BUCKETS - 1]) as f32)
}

/// A bucket of the survival curve.
#[derive(Clone, Copy)]
struct Piece {
    hazard: f64,
    width: f64,
    /// The share of those at its beginning that dies in it.
    dies: f64,
}

impl Piece {
    fn new(hazard: f64, width: f64) -> Piece {
        Piece { hazard, width, dies: one_minus_exp_neg(hazard * width) }
    }
}

/// From the beginning of the first of these pieces on; what comes after the last has the hazard `rest`.
fn remaining_life(pieces: &[Piece], rest: f64) -> f64 {
    let mut left = HORIZON * time_to_lose(TENTH, pieces, rest);
    let (mut alive, mut lived) = (1.0, 0.0);
    for piece in pieces {
        let is_last = left <= piece.width;
        let dies = if is_last { one_minus_exp_neg(piece.hazard * left) } else { piece.dies };
        lived += alive * dies / piece.hazard;
        alive -= alive * dies;
        left -= piece.width;
        if is_last {
            return lived / (1.0 - alive);
        }
    }
    let dies = one_minus_exp_neg(rest * left);
    (lived + alive * dies / rest) / (1.0 - alive * (1.0 - dies))
}

/// How long it takes until the sum of hazards is `sum`.
fn time_to_lose(sum: f64, pieces: &[Piece], rest: f64) -> f64 {
    let (mut left, mut time) = (sum, 0.0);
    for piece in pieces {
        let all = piece.hazard * piece.width;
        if all >= left {
            return time + left / piece.hazard;
        }
        left -= all;
        time += piece.width;
    }
    time + left / rest
}

#[cfg(test)]
mod tests {
    use super::super::buckets::bucket;
    use super::*;

    #[test]
    fn exponential_lives_have_one_over_the_rate_at_every_age() {
        for rate in [0.9, 0.01, 1e-6, 1e-11] {
            let lives = remaining_lives(&[rate; BUCKETS]);
            assert!(lives.iter().all(|life| (f64::from(*life) * rate - 1.0).abs() < 1e-6), "{rate}: {lives:?}");
        }
    }

    /// A thousand blocks that all die at the age of 1250, as the table counts them: 1000 deaths in the bucket from 1024 to 1536, in which
    /// they lived for 226 each. What nobody came to is as the last that is known.
    #[test]
    fn fixed_lives_have_what_is_left_of_them() {
        let last = 1000.0 / (1000.0 * 226.0);
        let hazards = std::array::from_fn(|at| if at < bucket(1250) { 1e-9 } else { last });
        let lives = remaining_lives(&hazards);
        assert_eq!(lives[bucket(1250)].round(), 226.0, "the age of 1024");
        for (at, life) in lives.into_iter().enumerate().take(bucket(1250)) {
            let expected = 1250.0 - edge(at);
            // Close to the deaths, the horizon ends before the last of them.
            let tolerance = if at < bucket(512) { 0.005 } else { 0.05 };
            let life = f64::from(life);
            assert!((life / expected - 1.0).abs() < tolerance, "age {}: {life}, {expected}", edge(at));
        }
    }

    /// By hand: hazard 1/10 below 1.5, then 1/1000. From 0: t₁₀ = 1.0536, H = 3.1608, S(1.5) = 0.8607, S(H) = 0.8593.
    #[test]
    fn the_horizon_is_short() {
        let hazards: [f64; BUCKETS] = std::array::from_fn(|at| if at == 0 { 0.1 } else { 0.001 });
        let first = f64::from(remaining_lives(&hazards)[0]);
        let (s1, s2) = ((-0.15f64).exp(), (-0.15f64 - 0.001 * (3.0 * 1.053_605_156_578 - 1.5)).exp());
        let expected = ((1.0 - s1) / 0.1 + (s1 - s2) / 0.001) / (1.0 - s2);
        assert!((first / expected - 1.0).abs() < 1e-6, "{first}, {expected}");
        assert!((expected - 20.05).abs() < 0.01, "{expected}");
    }
}
