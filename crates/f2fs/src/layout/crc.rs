//! F2FS's CRC: the reflected CRC-32 polynomial without the final inversion, seeded by the caller.

use super::superblock::MAGIC;

/// CRC of `bytes` with the seed that superblock and checkpoint use (the magic number).
pub fn crc(bytes: &[u8]) -> u32 {
    crc_from(MAGIC, bytes)
}

/// Continues a CRC from `seed`.
pub fn crc_from(seed: u32, bytes: &[u8]) -> u32 {
    // crc32fast inverts before and after; undoing both leaves the bare polynomial division F2FS uses.
    let mut hasher = crc32fast::Hasher::new_with_initial(!seed);
    hasher.update(bytes);
    !hasher.finalize()
}
