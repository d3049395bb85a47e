//! The bytes that workloads write: random, incompressible, made once from the seed, and a different piece for every write; or, where nobody
//! looks at them, one byte throughout.

use basalt_random::Rng;

use crate::operation::MAX_REQUEST;
use crate::settings::Contents;

/// Bytes made once; pieces of them are written.
const POOL: usize = 4 << 20;
/// Pieces begin at multiples of this.
const STEP: usize = 8;

/// The byte of plain contents. Not 0: a block of it is no hole.
const PLAIN: u8 = 0xA5;

/// A pool of bytes.
#[derive(Debug)]
pub struct Content {
    pool: Vec<u8>,
    seed: u64,
}

impl Content {
    /// The content of a seed.
    pub fn new(seed: u64, contents: Contents) -> Content {
        if contents == Contents::Plain {
            return Content { pool: vec![PLAIN; MAX_REQUEST as usize + STEP], seed };
        }
        let mut pool = vec![0; POOL];
        Rng::new(seed ^ 0xC0DE_57A8_1E00_0001).fill(&mut pool);
        Content { pool, seed }
    }

    /// What write number `write` of the run writes: `length` bytes, at most [`MAX_REQUEST`]. No copy is made.
    pub fn of(&self, write: u64, length: usize) -> &[u8] {
        let starts = (self.pool.len() - MAX_REQUEST as usize) / STEP;
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
        let [content, again, other] = [1, 1, 2].map(|seed| Content::new(seed, Contents::Random));
        let pieces: std::collections::HashSet<&[u8]> = (0..10_000).map(|write| content.of(write, 64)).collect();
        // 10,000 draws of 393,216 places collide about 127 times.
        assert!(pieces.len() > 9_700, "{}", pieces.len());
        assert_eq!(content.of(7, 4096), again.of(7, 4096));
        assert_ne!(content.of(7, 4096), other.of(7, 4096));
        assert_eq!(content.of(u64::MAX, MAX_REQUEST as usize).len(), MAX_REQUEST as usize);
    }

    #[test]
    fn plain_contents_are_one_byte() {
        let content = Content::new(1, Contents::Plain);
        for write in [0, 1, 12_345, u64::MAX] {
            assert_eq!(content.of(write, MAX_REQUEST as usize), vec![PLAIN; MAX_REQUEST as usize]);
            assert_eq!(content.of(write, 3), [PLAIN; 3]);
        }
    }
}
