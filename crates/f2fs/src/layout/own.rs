//! Blocks in front of segment 0: whose they are. F2FS leaves them alone, but somebody may keep a boot loader there.

use super::hotness;
use super::journal::{BLOCK_MAGIC, DESCRIPTOR_MAGIC, OLD_BLOCK_MAGIC};

/// What devices write whole.
const SECTOR: usize = 512;

/// Whether a block may be written over: it holds nothing, or it is Basalt's, perhaps of an earlier volume.
pub fn is_own_or_empty(block: &[u8]) -> bool {
    let is_own = block.starts_with(&DESCRIPTOR_MAGIC)
        || block.starts_with(&hotness::MAGIC)
        || [BLOCK_MAGIC, OLD_BLOCK_MAGIC].iter().any(|magic| block.starts_with(&magic.to_le_bytes()));
    is_own || [0, 0xFF].iter().any(|nothing| block.iter().all(|byte| byte == nothing))
}

/// Whether somebody else wrote a block that was Basalt's to write: its first sector says so. What a power cut has torn may begin with nothing.
pub fn is_others(block: &[u8]) -> bool {
    !is_own_or_empty(&block[..block.len().min(SECTOR)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(at: usize, bytes: &[u8]) -> [u8; 4096] {
        let mut block = [0; 4096];
        block[at..at + bytes.len()].copy_from_slice(bytes);
        block
    }

    #[test]
    fn a_torn_block_is_nobody_elses() {
        let others = |at, bytes| is_others(&with(at, bytes));
        assert!(others(0, b"boot") && others(511, b"b") && others(8, b"BsJc"));
        assert!(!others(512, b"BsJc") && !others(0, b"BsltJrnl") && !others(0, &[]) && !is_others(&[0xFF; 4096]));
    }

    #[test]
    fn what_is_not_basalts_is_seen() {
        let block = |at, bytes| is_own_or_empty(&with(at, bytes));
        for magic in [&b"BsltJrnl"[..], b"BsltHotn", b"BsJc", b"BsJb"] {
            assert!(block(0, magic) && !block(1, magic));
        }
        assert!(block(0, &[]) && is_own_or_empty(&[0xFF; 4096]));
        assert!(!block(4095, &[1]) && !block(0, &[0xFF]) && !is_own_or_empty(&[7; 4096]));
    }
}
