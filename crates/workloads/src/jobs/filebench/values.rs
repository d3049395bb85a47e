//! Numbers of Filebench's language: fixed ones, and random variables.

use basalt_random::Rng;

use crate::stream::{gamma, unit};

/// A number that may be another one each time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Amount {
    shape: Shape,
    least: f64,
    most: f64,
    /// Multiples of this; 0 for any.
    round: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Fixed(u64),
    Gamma { mean: f64, shape: f64 },
    Uniform { low: f64, high: f64 },
}

/// The built-in workloads cut sizes off at eight means, and so does this, unless the file has a `max`.
const MEANS: f64 = 8.0;

impl Amount {
    pub(super) fn fixed(value: u64) -> Amount {
        Amount { shape: Shape::Fixed(value), least: 0.0, most: f64::MAX, round: 0.0 }
    }

    /// The gamma distribution: `shape` from 1 on.
    pub(super) fn gamma(mean: f64, shape: f64) -> Amount {
        Amount { shape: Shape::Gamma { mean, shape }, least: 0.0, most: mean * MEANS, round: 0.0 }
    }

    pub(super) fn uniform(low: f64, high: f64) -> Amount {
        Amount { shape: Shape::Uniform { low, high }, least: 0.0, most: f64::MAX, round: 0.0 }
    }

    /// Bounds and granularity, where they are given.
    pub(super) fn within(mut self, least: Option<f64>, most: Option<f64>, round: Option<f64>) -> Amount {
        self.least = least.unwrap_or(self.least);
        self.most = most.unwrap_or(self.most);
        self.round = round.unwrap_or(0.0);
        self
    }

    /// The number, if it is always the same.
    pub(super) fn constant(&self) -> Option<u64> {
        match self.shape {
            Shape::Fixed(value) => Some(value),
            Shape::Gamma { .. } | Shape::Uniform { .. } => None,
        }
    }

    /// The next number.
    pub(super) fn sample(&self, rng: &mut Rng) -> u64 {
        let value = match self.shape {
            Shape::Fixed(value) => return value,
            Shape::Gamma { mean, shape } => gamma(rng, shape, mean),
            Shape::Uniform { low, high } => low + (high - low) * unit(rng),
        };
        let value = value.max(self.least).min(self.most);
        // The conversion stops at the greatest number.
        if self.round >= 1.0 { ((value / self.round) as u64).saturating_mul(self.round as u64) } else { value as u64 }
    }
}

/// `16`, `16k`, `16m`, `16g`: whole numbers, with Filebench's units of 1024.
pub(super) fn whole(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let power = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1024_u64.pow(power))
}

/// Whole numbers, and those with a fraction.
pub(super) fn fraction(text: &str) -> Option<f64> {
    whole(text).map(|number| number as f64).or_else(|| text.parse().ok()).filter(|number| (0.0..1e15).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_of_1024() {
        for (text, number) in [("0", 0), ("16k", 16384), ("3M", 3 << 20), ("2g", 2 << 30)] {
            assert_eq!(whole(text), Some(number), "{text}");
        }
        for text in ["", "k", "1.5", "1t", "10kb", "99999999999999999999", "18446744073709551615k"] {
            assert_eq!(whole(text), None, "{text}");
        }
        assert_eq!(
            (fraction("1.5"), fraction("2k"), fraction("1e300"), fraction("nan")),
            (Some(1.5), Some(2048.0), None, None)
        );
    }

    #[test]
    fn amounts_have_their_means_and_bounds() {
        let mut rng = Rng::new(9);
        let mut mean = |amount: Amount| (0..20_000).map(|_| amount.sample(&mut rng) as f64).sum::<f64>() / 20_000.0;
        assert!((mean(Amount::gamma(16384.0, 1.5)) / 16384.0 - 1.0).abs() < 0.02);
        assert!((mean(Amount::uniform(1000.0, 3000.0)) / 2000.0 - 1.0).abs() < 0.02);
        let bounded = Amount::gamma(16384.0, 1.5).within(Some(8192.0), Some(20000.0), Some(4096.0));
        let mut rng = Rng::new(9);
        assert!((0..1000).map(|_| bounded.sample(&mut rng)).all(|size| [8192, 12288, 16384].contains(&size)));
    }
}
