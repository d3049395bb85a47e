//! How a request is cut into stripes that the units of a device have.

use super::model::Parallelism;

/// The stripes of one request, which the units of a device have in turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stripes {
    units: u64,
    stripe: u64,
    /// The unit that has the first stripe.
    first_unit: u64,
    /// Bytes of the first stripe, whole stripes behind it, bytes of the last one.
    head: u64,
    whole: u64,
    tail: u64,
}

impl Stripes {
    pub(super) fn new(parallelism: Parallelism, offset: u64, length: u64) -> Stripes {
        let (units, stripe) = (u64::from(parallelism.units), u64::from(parallelism.stripe_bytes));
        let head = (stripe - offset % stripe).min(length);
        let (whole, tail) = ((length - head) / stripe, (length - head) % stripe);
        Stripes { units, stripe, first_unit: offset / stripe % units, head, whole, tail }
    }

    fn count(&self) -> u64 {
        1 + self.whole + u64::from(self.tail > 0)
    }

    fn bytes_of_stripe(&self, index: u64) -> u64 {
        match index {
            0 => self.head,
            index if index <= self.whole => self.stripe,
            _ => self.tail,
        }
    }

    /// Bytes that the unit with the stripe `index` has of the request; `index` is below the number of units and of stripes.
    fn bytes_of_unit(&self, index: u64) -> u64 {
        let count = (self.count() - index).div_ceil(self.units);
        let last = index + (count - 1) * self.units;
        match count {
            1 => self.bytes_of_stripe(index),
            count => self.bytes_of_stripe(index) + self.bytes_of_stripe(last) + (count - 2) * self.stripe,
        }
    }

    /// Bytes of the request that the busiest unit has.
    pub(super) fn busiest(&self) -> u64 {
        if self.count() <= self.units {
            return if self.whole > 0 { self.stripe } else { self.head.max(self.tail) };
        }
        // The first unit has the head, the last busy one the tail; any between them has whole stripes only.
        (0..self.units.min(3)).map(|index| self.bytes_of_unit(index)).max().unwrap_or(0)
    }

    /// Each unit that has something of the request, and its bytes.
    pub(super) fn by_unit(&self) -> impl Iterator<Item = (usize, u64)> {
        let stripes = *self;
        (0..stripes.units.min(stripes.count()))
            .map(move |index| (((stripes.first_unit + index) % stripes.units) as usize, stripes.bytes_of_unit(index)))
    }
}
