//! A 64-bit content hash: fast, order-sensitive, ours, so that manifests of different days compare. Not for security.

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes a stream of bytes; how the stream was cut into [`Hasher::update`] calls does not matter.
#[derive(Clone, Debug)]
pub struct Hasher {
    state: u64,
    length: u64,
    pending: [u8; 8],
    pending_length: usize,
}

impl Default for Hasher {
    fn default() -> Hasher {
        Hasher::new()
    }
}

impl Hasher {
    /// The hasher of an empty stream.
    pub fn new() -> Hasher {
        Hasher { state: 0x2545_F491_4F6C_DD1D, length: 0, pending: [0; 8], pending_length: 0 }
    }

    /// Adds bytes to the end of the stream.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if self.pending_length > 0 {
            let taken = bytes.len().min(8 - self.pending_length);
            self.pending[self.pending_length..self.pending_length + taken].copy_from_slice(&bytes[..taken]);
            self.pending_length += taken;
            bytes = &bytes[taken..];
            if self.pending_length < 8 {
                return;
            }
            self.mix(u64::from_le_bytes(self.pending));
            self.pending_length = 0;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        self.pending[..rest.len()].copy_from_slice(rest);
        self.pending_length = rest.len();
    }

    /// The hash of everything added.
    pub fn finish(mut self) -> u64 {
        self.pending[self.pending_length..].fill(0);
        self.mix(u64::from_le_bytes(self.pending));
        self.mix(self.length);
        self.state ^ (self.state >> 29)
    }

    /// The hash of one buffer.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    fn mix(&mut self, word: u64) {
        let mixed = (self.state ^ word).wrapping_mul(MULTIPLIER);
        // Both steps can be undone, so no two states fall together here.
        self.state = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_do_not_matter_but_order_and_length_do() {
        let bytes: Vec<u8> = (0..=255).collect();
        let whole = Hasher::of(&bytes);
        for cut in 0..bytes.len() {
            let mut hasher = Hasher::new();
            hasher.update(&bytes[..cut]);
            hasher.update(&bytes[cut..]);
            assert_eq!(hasher.finish(), whole, "cut at {cut}");
        }
        let mut swapped = bytes.clone();
        swapped.swap(8, 200);
        assert_ne!(Hasher::of(&swapped), whole);
        assert_ne!(Hasher::of(&[0; 8]), Hasher::of(&[0; 9]));
        assert_ne!(Hasher::of(&[]), Hasher::of(&[0]));
    }
}
