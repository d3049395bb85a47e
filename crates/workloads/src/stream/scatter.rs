//! Scatters ranks over blocks: neighbours in rank are no neighbours on the volume.

use basalt_random::Rng;

/// A permutation of `0..blocks`, different for every seed, computed and not stored.
///
/// Multiplications by odd numbers and shifts that are exclusive-or'ed permute the numbers of a power of two; numbers over the bound are
/// permuted again until they fall below it (cycle walking), which leaves a permutation of the rest.
#[derive(Debug, Clone)]
pub struct Scatter {
    blocks: u32,
    mask: u32,
    shift: u32,
    odd: [u32; 3],
}

impl Scatter {
    /// The permutation of a seed over at least one block.
    pub fn new(blocks: u32, seed: u64) -> Scatter {
        let blocks = blocks.max(1);
        let bits = (32 - (blocks - 1).leading_zeros()).max(1);
        let mask = u32::MAX >> (32 - bits);
        let mut rng = Rng::new(seed);
        let odd = [0; 3].map(|_: u32| rng.next_u64() as u32 | 1);
        Scatter { blocks, mask, shift: bits.div_ceil(2), odd }
    }

    /// The block of a rank below the number of blocks.
    pub fn apply(&self, rank: u32) -> u32 {
        let mut value = rank;
        loop {
            for odd in self.odd {
                value = value.wrapping_mul(odd).wrapping_add(odd >> 7) & self.mask;
                value ^= value >> self.shift;
            }
            if value < self.blocks {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_permutation_and_scatters() {
        for blocks in [1, 2, 3, 7, 64, 1000, 4097] {
            for seed in 0..20 {
                let scatter = Scatter::new(blocks, seed);
                let mut seen = vec![false; blocks as usize];
                for rank in 0..blocks {
                    let block = scatter.apply(rank);
                    assert!(
                        !std::mem::replace(&mut seen[block as usize], true),
                        "seed {seed}: {block} of {blocks} twice"
                    );
                }
            }
        }
        // The hottest tenth of ranks is spread: every sixteenth of the volume holds about its share.
        for seed in 0..20 {
            let scatter = Scatter::new(100_000, seed);
            let mut parts = [0_u32; 16];
            for rank in 0..10_000 {
                parts[(scatter.apply(rank) / 6250) as usize] += 1;
            }
            assert!(parts.iter().all(|part| (312..=1250).contains(part)), "seed {seed}: {parts:?}");
        }
    }
}
