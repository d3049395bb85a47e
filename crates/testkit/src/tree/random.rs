//! Names, sizes, contents and times, with the values at which file systems change their ways.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use rustix::fs::Timespec;

use crate::rng::Rng;

/// Sizes at which F2FS changes its ways: around inline data, blocks, the addresses of an inode (923 and fewer with extra
/// attributes), the direct nodes (+ 2 × 1018).
const EDGE_SIZES: [u64; 20] = [
    0, 1, 3_399, 3_400, 3_444, 3_488, 3_489, 3_492, 3_700, 4_095, 4_096, 4_097, 8_192, 65_536, 65_537, 3_747_840,
    3_780_608, 3_780_609, 12_120_064, 12_124_160,
];

/// Lengths of names: a directory entry's slots hold 8 bytes each.
const EDGE_LENGTHS: [usize; 8] = [1, 7, 8, 9, 16, 17, 254, 255];

/// A file's size, at most `max`.
pub fn size(rng: &mut Rng, max: u64) -> u64 {
    if rng.chance(30) {
        let edge = EDGE_SIZES[rng.index(EDGE_SIZES.len())];
        if edge <= max {
            return edge;
        }
    }
    rng.size(max)
}

/// A file's name. `room` is how many bytes it may have.
pub fn name(rng: &mut Rng, long: bool, room: usize) -> OsString {
    let length = if !long || rng.chance(60) {
        rng.between(2, 24) as usize
    } else if rng.chance(50) {
        EDGE_LENGTHS[rng.index(EDGE_LENGTHS.len())]
    } else {
        rng.between(1, 255) as usize
    };
    let length = length.clamp(1, room.clamp(1, 255));
    let strange = long && rng.chance(25);
    let bytes: Vec<u8> = (0..length).map(|_| if strange { strange_byte(rng) } else { plain_byte(rng) }).collect();
    match bytes.as_slice() {
        b"." | b".." => "dots".into(),
        _ => OsString::from_vec(bytes),
    }
}

fn plain_byte(rng: &mut Rng) -> u8 {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    LETTERS[rng.index(LETTERS.len())]
}

/// Any byte that a name may have.
fn strange_byte(rng: &mut Rng) -> u8 {
    match rng.between(1, 255) as u8 {
        b'/' => b'\n',
        byte => byte,
    }
}

/// Content that no two places share; sometimes with zeroes, sometimes with a repeated pattern.
pub fn content(rng: &mut Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    match rng.below(8) {
        0 => {}
        1 => {
            let mut pattern = [0; 61];
            rng.fill(&mut pattern);
            for (byte, from) in bytes.iter_mut().zip(pattern.iter().cycle()) {
                *byte = *from;
            }
        }
        _ => rng.fill(&mut bytes),
    }
    bytes
}

/// A time between 1902 and 2242, mostly recent, with nanoseconds.
pub fn time(rng: &mut Rng) -> Timespec {
    let seconds = match rng.below(10) {
        0 => -(rng.below(2_000_000_000) as i64),
        1 => rng.below(8_589_934_592) as i64,
        _ => 1_600_000_000 + rng.below(200_000_000) as i64,
    };
    let nanoseconds = if rng.chance(10) { 0 } else { rng.below(1_000_000_000) as i64 };
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn names_are_names() {
        let mut rng = Rng::new(3);
        let mut longest = 0;
        for _ in 0..5_000 {
            let name = name(&mut rng, true, 255);
            let bytes = name.as_bytes();
            assert!(!bytes.is_empty() && bytes.len() <= 255 && bytes != b"." && bytes != b"..");
            assert!(!bytes.contains(&0) && !bytes.contains(&b'/'));
            longest = longest.max(bytes.len());
        }
        assert_eq!(longest, 255);
        assert!(name(&mut rng, true, 10).len() <= 10);
    }

    #[test]
    fn sizes_reach_the_edges() {
        let mut rng = Rng::new(3);
        let sizes: Vec<u64> = (0..5_000).map(|_| size(&mut rng, 10_000)).collect();
        assert!(sizes.iter().all(|size| *size <= 10_000));
        for edge in EDGE_SIZES.iter().filter(|edge| **edge <= 10_000) {
            assert!(sizes.contains(edge), "{edge}");
        }
    }
}
