//! Numbers as bytes, least significant first, and back. What is read may be anything.

/// Bytes that are read from the front.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next bytes; `None` if there are fewer.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number that is not negative, nor infinite.
    pub fn f64(&mut self) -> Option<f64> {
        self.finite().filter(|number| *number >= 0.0)
    }

    /// A number that is not infinite.
    pub fn finite(&mut self) -> Option<f64> {
        self.array().map(f64::from_le_bytes).filter(|number| number.is_finite())
    }

    /// As [`f64`](Self::f64), of those that [`half`] made.
    pub fn half(&mut self) -> Option<f32> {
        let number = f32::from_bits(u32::from(self.u16()?) << 16);
        (number.is_finite() && number >= 0.0).then_some(number)
    }
}

/// The upper half of a number's bits, rounded: it is kept to 0.4 %. For numbers that are not negative, nor infinite.
pub fn half(number: f32) -> [u8; 2] {
    // The largest ones would become infinite.
    let bits = number.min(f32::MAX / 2.0).to_bits() + 0x8000;
    ((bits >> 16) as u16).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let bytes =
            [&[7][..], &300_u16.to_le_bytes(), &70_000_u32.to_le_bytes(), &1.5_f64.to_le_bytes(), &[1, 2]].concat();
        let mut reader = Reader(&bytes);
        assert_eq!(
            (reader.u8(), reader.u16(), reader.u32(), reader.f64()),
            (Some(7), Some(300), Some(70_000), Some(1.5))
        );
        assert_eq!(
            (reader.bytes(3), reader.u32(), reader.bytes(2), reader.u8()),
            (None, None, Some(&[1, 2][..]), None)
        );
        for number in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Reader(&number.to_le_bytes()).f64(), None);
            let finite = Reader(&number.to_le_bytes()).finite();
            assert_eq!(finite, (number == -1.0).then_some(-1.0));
        }
    }

    #[test]
    fn halves_are_near_the_number() {
        for number in [0.0, 1.0, 0.95, 12_345.678, 3e9, 1e-9] {
            let read = Reader(&half(number)).half().unwrap();
            assert!((read - number).abs() <= number * 0.004, "{number}: {read}");
        }
        assert!(Reader(&half(f32::MAX)).half().is_some());
        assert_eq!(Reader(&half(-1.0)).half(), None);
        assert_eq!(Reader(&half(f32::NAN)).half(), Reader(&half(f32::MAX)).half(), "min takes the number");
    }
}
