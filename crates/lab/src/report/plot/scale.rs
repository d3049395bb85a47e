//! From values to places on an axis, and where its ticks are.

use super::Axis;
use crate::report::text::Unit;

/// The range of an axis, and its ticks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// Values and labels, the smallest first, all within the range.
    pub ticks: Vec<(f64, String)>,
}

/// Beyond this, differences and ratios of values are no longer sure to be finite.
const LARGEST: f64 = 1e150;

/// Whether an axis can show a value at all.
pub(super) fn can_show(axis: &Axis, value: f64) -> bool {
    let size = value.abs();
    if axis.logarithmic { (1.0 / LARGEST..LARGEST).contains(&value) } else { size < LARGEST }
}

impl Scale {
    /// The scale of an axis for these values, with about `wanted` ticks; `from_zero` makes zero part of it, unless it is logarithmic.
    /// Values that the axis cannot show are passed over.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, wanted: usize, from_zero: bool) -> Scale {
        let mut low = f64::INFINITY;
        let mut high = f64::NEG_INFINITY;
        for value in values.filter(|&value| can_show(axis, value)) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = if axis.logarithmic { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if axis.logarithmic {
            logarithmic(axis.unit, low, high, wanted)
        } else {
            linear(axis.unit, low, high, wanted, from_zero)
        }
    }

    /// Where a value lies: 0 at the low end, 1 at the high end; within both for any value.
    pub(super) fn place(&self, value: f64) -> f64 {
        let (low, high, value) = if self.logarithmic {
            (self.low.log10(), self.high.log10(), value.max(self.low).log10())
        } else {
            (self.low, self.high, value)
        };
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    }
}

fn linear(unit: Unit, mut low: f64, mut high: f64, wanted: usize, from_zero: bool) -> Scale {
    if from_zero {
        low = low.min(0.0);
        high = high.max(0.0);
    }
    if high - low <= high.abs().max(low.abs()) * 1e-9 {
        let room = if high == 0.0 { 1.0 } else { high.abs() * 0.1 };
        low = if from_zero && low >= 0.0 { 0.0 } else { low - room };
        high += room;
    }
    let step = nice_step(unit, low, high, wanted);
    if from_zero {
        // Whole steps, so that the highest tick is above all values. Without zero the data fill the width.
        low = (low / step).floor() * step;
        high = (high / step).ceil() * step;
    }
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    let ticks = (first..=last).take(64).map(|index| index as f64 * step);
    Scale { low, high, logarithmic: false, ticks: ticks.map(|tick| (tick, unit.tick(tick, step))).collect() }
}

/// The step among 1, 2, 5 times a power of ten (of two, for bytes) that gives at most about `wanted` ticks.
fn nice_step(unit: Unit, low: f64, high: f64, wanted: usize) -> f64 {
    let rough = (high - low) / wanted.max(1) as f64;
    if unit == Unit::Bytes && rough >= 1.0 {
        return rough.log2().ceil().exp2();
    }
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * power >= rough * 0.999_999);
    step.map_or(10.0 * power, |step| step * power)
}

fn logarithmic(unit: Unit, mut low: f64, mut high: f64, wanted: usize) -> Scale {
    if high / low < 1.000_001 {
        low /= 2.0;
        high *= 2.0;
    }
    // A little room, so that no mark lies on the edge.
    let room = (high / low).powf(0.03);
    (low, high) = (low / room, high * room);
    let mut ticks = powers(unit, low, high, wanted);
    if ticks.len() < 2 {
        let step = nice_step(unit, low, high, wanted);
        let first = (low / step).ceil() as i64;
        ticks =
            (first..first + 64).map(|index| (index as f64 * step, step)).take_while(|tick| tick.0 <= high).collect();
    }
    let ticks = ticks.into_iter().filter(|tick| tick.0 > 0.0).map(|(tick, step)| (tick, unit.tick(tick, step)));
    Scale { low, high, logarithmic: true, ticks: ticks.collect() }
}

/// Powers of the unit's base between both ends, with steps between them where there is room, each with what tells it from its neighbours.
fn powers(unit: Unit, low: f64, high: f64, wanted: usize) -> Vec<(f64, f64)> {
    let (base, between): (f64, &[f64]) = if unit == Unit::Bytes { (2.0, &[1.0]) } else { (10.0, &[1.0, 2.0, 5.0]) };
    let (first, last) = (low.log(base).floor() as i32, high.log(base).ceil() as i32);
    let all = |between: &[f64], every: usize| -> Vec<(f64, f64)> {
        let exponents = (first..=last).filter(|exponent| exponent.rem_euclid(every as i32) == 0);
        let values = exponents.flat_map(|exponent| between.iter().map(move |factor| factor * base.powi(exponent)));
        values.filter(|value| (low..=high).contains(value)).map(|value| (value, value)).collect()
    };
    let fine = all(between, 1);
    if fine.len() <= wanted + 1 {
        return fine;
    }
    let every = (1..).find(|&every| all(&[1.0], every).len() <= wanted + 1 || every > 600);
    all(&[1.0], every.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        let scale = Scale::new(axis, values.iter().copied(), 5, true);
        scale.ticks.into_iter().map(|tick| tick.1.replace('\u{a0}', " ")).collect()
    }

    #[test]
    fn ticks_are_round() {
        let plain = Axis::new("");
        assert_eq!(labels(&plain, &[0.3, 4.2]), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(labels(&plain, &[0.0]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&plain, &[-3.0, 3.0]), ["-4", "-2", "0", "2", "4"]);
        let log = Axis::new("").logarithmic();
        assert_eq!(labels(&log, &[1.0, 10_000.0]), ["1", "10", "100", "1000", "10k"]);
        assert_eq!(labels(&log, &[2.0, 30.0]), ["2", "5", "10", "20"]);
        let bytes = Axis::new("").unit(Unit::Bytes).logarithmic();
        assert_eq!(labels(&bytes, &[4096.0, 33_554_432.0]), ["4 KiB", "32 KiB", "256 KiB", "2 MiB", "16 MiB"]);
    }

    #[test]
    fn any_values_have_a_scale() {
        let odd =
            [0.0, -0.0, 1.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, -1e-300, 1e149, 1.000_000_000_01];
        for axis in [Axis::new(""), Axis::new("").logarithmic(), Axis::new("").unit(Unit::Bytes)] {
            for from_zero in [false, true] {
                for first in odd {
                    for second in odd {
                        let scale = Scale::new(&axis, [first, second].into_iter(), 5, from_zero);
                        assert!(scale.low < scale.high, "{axis:?} {first} {second}: {scale:?}");
                        assert!(scale.ticks.len() < 66, "{axis:?} {first} {second}: {scale:?}");
                        let place = scale.place(1.0);
                        assert!((0.0..=1.0).contains(&place), "{axis:?} {first} {second}: {place}");
                    }
                }
            }
        }
    }
}
