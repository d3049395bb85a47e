//! Exponentials and logarithms of additions and multiplications alone: the same bits on every machine, now and later.

use std::f64::consts::{LN_2, LOG2_E, SQRT_2};

/// 1, 1/2, 1/3, …: as many terms of the series of e^x as |x| ≤ ln 2 / 2 needs.
const RECIPROCALS: [f64; 12] = [
    1.0,
    1.0 / 2.0,
    1.0 / 3.0,
    1.0 / 4.0,
    1.0 / 5.0,
    1.0 / 6.0,
    1.0 / 7.0,
    1.0 / 8.0,
    1.0 / 9.0,
    1.0 / 10.0,
    1.0 / 11.0,
    1.0 / 12.0,
];
/// Below this, a few terms give 1 − e^-x without cancellation.
const SMALL: f64 = 1e-3;

/// e^-x for x ≥ 0; 0 where that is below 10^-300.
pub fn exp_neg(x: f64) -> f64 {
    let halvings = x * LOG2_E;
    if halvings.is_nan() || halvings > 1000.0 {
        return 0.0;
    }
    let whole = (halvings + 0.5) as u64;
    let part = (halvings - whole as f64) * LN_2;
    let sum = RECIPROCALS.iter().rev().fold(1.0, |sum, reciprocal| 1.0 - part * reciprocal * sum);
    // A power of two, at least 2^-1000.
    sum * f64::from_bits((1023 - whole) << 52)
}

/// 1 − e^-x for x ≥ 0.
pub fn one_minus_exp_neg(x: f64) -> f64 {
    if x < SMALL { x * (1.0 - x * (0.5 - x * (1.0 / 6.0 - x / 24.0))) } else { 1.0 - exp_neg(x) }
}

/// The natural logarithm of a normal number above 0.
pub fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1023;
    let mut fraction = f64::from_bits(bits & (u64::MAX >> 12) | 1023 << 52);
    if fraction > SQRT_2 {
        fraction /= 2.0;
        exponent += 1;
    }
    // ln f = 2 artanh((f − 1) / (f + 1)), with an argument of at most 0.172.
    let root = (fraction - 1.0) / (fraction + 1.0);
    let square = root * root;
    let series = (0..=9).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    f64::from(exponent) * LN_2 + 2.0 * root * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_the_standard_library() {
        for step in 0..20_000 {
            let x = f64::from(step) * 0.01;
            let expected = (-x).exp();
            assert!((exp_neg(x) / expected - 1.0).abs() < 1e-13, "e^-{x}");
            let small = x * 1e-6;
            assert!((one_minus_exp_neg(small) + (-small).exp_m1()).abs() <= 1e-12 * small, "1 - e^-{small}");
            let number = (f64::from(step) - 10_000.0).abs() * 0.37 + 1e-9;
            assert!((ln(number) - number.ln()).abs() <= 1e-14 * number.ln().abs().max(1.0), "ln {number}");
        }
        assert_eq!((exp_neg(0.0), exp_neg(1e9), exp_neg(f64::INFINITY)), (1.0, 0.0, 0.0));
        assert_eq!((ln(1.0), one_minus_exp_neg(0.0)), (0.0, 0.0));
    }
}
