//! The bytes that workloads write: random, incompressible, made once from the seed, and a different piece for every write.

use basalt_random::Rng;

use crate::operation::MAX_REQUEST;

/// Bytes made once; pieces of them are written.
const POOL: usize = 4 << 20;
/// Pieces begin at multiples of this.
const STEP: usize = 8;

/// A pool of random bytes.
#[derive(Debug)]
pub struct Content {
    pool: Vec<u8>,
    seed: u64,
}

impl Content {
    /// The content of a seed.
    pub fn new(seed: u64) -> Content {
        let mut pool = vec![0; POOL];
        Rng::new(seed ^ 0xC0DE_57A8_1E00_0001).fill(&mut pool);
        Content { pool, seed }
    }

    /// What write number `write` of the run writes: `length` bytes, at most [`MAX_REQUEST`]. No copy is made.
    pub fn of(&self, write: u64, length: usize) -> &[u8] {
        let starts = (POOL - MAX_REQUEST as usize) / STEP;
        // Neighbouring writes take far-away pieces, in an order that depends on the seed.
        let mixed = (write ^ self.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let start = (mixed >> 20) as usize % starts * STEP;
        &self.pool[start..start + length.min(MAX_REQUEST as usize)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_has_its_own_bytes() {
        let content = Content::new(1);
        let again = Content::new(1);
        let other = Content::new(2);
        let pieces: std::collections::HashSet<&[u8]> = (0..10_000).map(|write| content.of(write, 64)).collect();
        // 10,000 draws of 393,216 places collide about 127 times.
        assert!(pieces.len() > 9_700, "{}", pieces.len());
        assert_eq!(content.of(7, 4096), again.of(7, 4096));
        assert_ne!(content.of(7, 4096), other.of(7, 4096));
        assert_eq!(content.of(u64::MAX, MAX_REQUEST as usize).len(), MAX_REQUEST as usize);
    }
}
