//! The hash that places a name in a directory: half MD4-free TEA over 16-byte pieces, as ext3 and F2FS use it.
//!
//! Source: the kernel's `fs/f2fs/hash.c` (facts only).

/// Rounds of TEA for each piece of the name.
const ROUNDS: u32 = 16;
/// TEA's constant.
const DELTA: u32 = 0x9E37_79B9;
/// Initial state: MD4's.
const INITIAL: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];

/// The hash of a file name; 0 for `.` and `..`.
pub fn hash(name: &[u8]) -> u32 {
    if name == b"." || name == b".." {
        return 0;
    }
    let mut state = [INITIAL[0], INITIAL[1]];
    let mut rest = name;
    loop {
        tea(&mut state, &words(rest));
        if rest.len() <= 16 {
            return state[0];
        }
        rest = &rest[16..];
    }
}

/// Packs up to 16 bytes into four words, filled up with the length.
fn words(piece: &[u8]) -> [u32; 4] {
    let length = piece.len() as u32;
    let mut pad = length | length << 8;
    pad |= pad << 16;
    let mut words = [pad; 4];
    for (word, bytes) in words.iter_mut().zip(piece[..piece.len().min(16)].chunks(4)) {
        *word = bytes.iter().fold(pad, |value, &byte| u32::from(byte).wrapping_add(value << 8));
    }
    words
}

fn tea(state: &mut [u32; 2], key: &[u32; 4]) {
    let [mut left, mut right] = *state;
    let mut sum = 0u32;
    for _ in 0..ROUNDS {
        sum = sum.wrapping_add(DELTA);
        left = left.wrapping_add(
            (right << 4).wrapping_add(key[0]) ^ right.wrapping_add(sum) ^ (right >> 5).wrapping_add(key[1]),
        );
        right = right
            .wrapping_add((left << 4).wrapping_add(key[2]) ^ left.wrapping_add(sum) ^ (left >> 5).wrapping_add(key[3]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}
