//! Random numbers that never change: xoshiro256** seeded by SplitMix64 (Blackman and Vigna, both in the public domain).
//!
//! Written out here so that a seed from an old failure report gives the same run for ever, whatever happens to a
//! dependency. Not for cryptography.
//!
//! ```
//! use basalt_random::Rng;
//!
//! let mut rng = Rng::new(17);
//! let dice: Vec<u64> = (0..5).map(|_| rng.between(1, 6)).collect();
//! assert_eq!(dice, (0..5).map({
//!     let mut same = Rng::new(17);
//!     move |_| same.between(1, 6)
//! }).collect::<Vec<_>>());
//! assert!(dice.iter().all(|eyes| (1..=6).contains(eyes)));
//! ```

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout))]

/// A xoshiro256** generator.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of a seed. Every seed, zero included, gives a good sequence.
    pub fn new(seed: u64) -> Rng {
        let mut state = [0; 4];
        let mut mixer = seed;
        for word in &mut state {
            mixer = mixer.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = mixer;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            *word = mixed ^ (mixed >> 31);
        }
        Rng { state }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// A number in `0..bound`; 0 when `bound` is 0. The bias of the multiplication is below 2⁻³² for the bounds used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(bound);
        // The high half of a product of two 64-bit numbers fits 64 bits.
        (product >> 64) as u64
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// An index into something of `length` elements, which must not be 0.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// One of the elements; `None` when there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() {
            return None;
        }
        Some(&items[self.index(items.len())])
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Fills a buffer with random bytes.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    /// A size whose logarithm is evenly spread over `0..=max`: as many small ones as large ones.
    pub fn size(&mut self, max: u64) -> u64 {
        let bits = self.below(u64::from(u64::BITS - max.leading_zeros()) + 1);
        let ceiling = 1u64.checked_shl(bits as u32).unwrap_or(u64::MAX).min(max.saturating_add(1));
        self.below(ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seeding and the generator are pinned: these are the reference implementation's first outputs.
    #[test]
    fn sequences_never_change() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let first: Vec<u64> = (0..5).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240, 1_216_172_134_540_287_360]);
        assert_eq!(Rng::new(0).state[0], 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn bounds_hold() {
        let mut rng = Rng::new(7);
        for _ in 0..10_000 {
            assert!(rng.below(3) < 3);
            assert!((5..=6).contains(&rng.between(5, 6)));
            assert!(rng.size(100) <= 100);
        }
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.size(0), 0);
        assert_eq!(rng.pick::<u8>(&[]), None);
        assert!((0..1000).any(|_| rng.size(4096) > 2048));
    }
}
