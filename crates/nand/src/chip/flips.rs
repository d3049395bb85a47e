//! How bits flip.

use basalt_random::Rng;

use super::block::Block;

/// How bits flip in programmed pages. Pages differ: most have few flipped bits, and some many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flips {
    /// Pages read in a block until its pages have one flipped bit each in the mean; 0: never.
    pub reads: u32,
    /// Time since a block was programmed until its pages have one flipped bit each in the mean, in ns; 0: never.
    pub age: u64,
    /// Erases of a block after which its pages have one flipped bit each in the mean; 0: never.
    pub erases: u32,
}

impl Flips {
    /// Flips the bits of a page that have flipped by now: the same ones each time, and later more.
    pub(super) fn apply(&self, bytes: &mut [u8], seed: u64, page: u32, block: &Block, age: u64) {
        let part = |amount: u64, of: u64| if of == 0 { 0.0 } else { amount as f64 / of as f64 };
        let mean = part(block.reads.into(), self.reads.into())
            + part(age, self.age)
            + part(block.erases.into(), self.erases.into());
        if mean == 0.0 {
            return;
        }
        let mut rng = Rng::new(seed ^ u64::from(page) << 32 ^ u64::from(block.erases));
        // Twice the mean for one page in eight, eight times for one in 64.
        let weight = match rng.below(64) {
            0 => 8.0,
            1..=8 => 2.0,
            _ => 0.6,
        };
        let flipped = (mean * weight) as usize;
        for _ in 0..flipped.min(bytes.len()) {
            let bit = rng.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
