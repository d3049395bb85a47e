//! Records as bytes, and back. What is read may be anything.

use basalt_segments::Segment;
use basalt_segments::placement::Hints;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::layout::crc::crc_from;
use crate::layout::hotness::{FORMAT_VERSION, MAGIC, RawHotness, RawSegmentHotness};

/// Bytes in front of those that the CRC is of.
const BEFORE_CRC_ENDS: usize = 16;

/// Whose records they are: only those of the same count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uuid: [u8; 16],
    /// Seed of the CRC.
    pub seed: u32,
    /// The first block of the main area.
    pub main: u32,
    pub policy: &'static str,
}

/// Records that were read.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub sequence: u64,
    /// Bytes in all.
    pub bytes: usize,
    pub general: Vec<u8>,
    pub segments: Vec<(Segment, [u8; 64], Vec<u8>)>,
}

/// The name of a policy as records have it: its first bytes.
fn name(policy: &str) -> [u8; 16] {
    let mut name = [0; 16];
    name.iter_mut().zip(policy.bytes()).for_each(|(to, from)| *to = from);
    name
}

/// Records, with the live blocks of each of their segments.
pub fn encode(owner: &Owner, sequence: u64, version: u64, hints: &Hints, live: &[[u8; 64]]) -> Vec<u8> {
    let header = RawHotness {
        magic: MAGIC,
        version: U32::new(FORMAT_VERSION),
        crc: U32::new(0),
        bytes: U32::new(0),
        general_bytes: U32::new(hints.general.len() as u32),
        sequence: U64::new(sequence),
        checkpoint_version: U64::new(version),
        main: U32::new(owner.main),
        reserved: U32::new(0),
        uuid: owner.uuid,
        policy: name(owner.policy),
    };
    let mut all = header.as_bytes().to_vec();
    all.extend_from_slice(&hints.general);
    for (one, live) in hints.segments.iter().zip(live) {
        let raw = RawSegmentHotness {
            segment: U32::new(one.segment.get()),
            // The policy keeps to the most.
            bytes: U16::new(one.bytes.len() as u16),
            reserved: U16::new(0),
            live: *live,
        };
        all.extend_from_slice(raw.as_bytes());
        all.extend_from_slice(&one.bytes);
    }
    // Below the size of the room.
    let bytes = all.len() as u32;
    all[BEFORE_CRC_ENDS..BEFORE_CRC_ENDS + 4].copy_from_slice(&bytes.to_le_bytes());
    let crc = crc_from(owner.seed, &all[BEFORE_CRC_ENDS..]);
    all[BEFORE_CRC_ENDS - 4..BEFORE_CRC_ENDS].copy_from_slice(&crc.to_le_bytes());
    all
}

/// Bytes of the records that begin here, by their header; `None` if none of this volume do.
pub fn length(bytes: &[u8], uuid: [u8; 16]) -> Option<usize> {
    let (raw, _) = RawHotness::read_from_prefix(bytes).ok()?;
    let is_ours = raw.magic == MAGIC && raw.version.get() == FORMAT_VERSION && raw.uuid == uuid;
    is_ours.then_some(raw.bytes.get() as usize).filter(|length| *length >= size_of::<RawHotness>())
}

/// The records of a policy; `None` if they are not whole, or of another.
pub fn decode(bytes: &[u8], owner: &Owner) -> Option<Found> {
    let bytes = bytes.get(..length(bytes, owner.uuid)?)?;
    let (raw, rest) = RawHotness::read_from_prefix(bytes).ok()?;
    let is_whole = raw.crc.get() == crc_from(owner.seed, &bytes[BEFORE_CRC_ENDS..]);
    if !is_whole || raw.policy != name(owner.policy) || raw.main.get() != owner.main {
        return None;
    }
    let (general, mut rest) = rest.split_at_checked(raw.general_bytes.get() as usize)?;
    let mut segments = Vec::new();
    while !rest.is_empty() {
        let (raw, behind) = RawSegmentHotness::read_from_prefix(rest).ok()?;
        let (own, behind) = behind.split_at_checked(usize::from(raw.bytes.get()))?;
        segments.push((Segment::new(raw.segment.get()), raw.live, own.to_vec()));
        rest = behind;
    }
    Some(Found { sequence: raw.sequence.get(), bytes: bytes.len(), general: general.to_vec(), segments })
}

#[cfg(test)]
mod tests {
    use basalt_segments::placement::SegmentHints;

    use super::*;

    const OWNER: Owner = Owner { uuid: [7; 16], seed: 9, main: 5120, policy: "hazard" };

    fn encoded() -> Vec<u8> {
        let segments = [(3, vec![1, 2, 3]), (900, vec![]), (5, vec![9; 1000])];
        let segments = segments.map(|(segment, bytes)| SegmentHints { segment: Segment::new(segment), bytes });
        let hints = Hints { general: b"general".to_vec(), segments: segments.to_vec() };
        encode(&OWNER, 4, 1234, &hints, &[[3; 64], [4; 64], [5; 64]])
    }

    fn read(bytes: &[u8]) -> Option<Found> {
        decode(bytes, &OWNER)
    }

    #[test]
    fn records_come_back() {
        let mut bytes = encoded();
        let length = bytes.len();
        assert_eq!(length, 80 + 7 + 3 * 72 + 1003);
        bytes.extend([0xEE; 3000]);
        let found = read(&bytes).unwrap();
        assert_eq!((found.sequence, found.bytes, &found.general[..]), (4, length, &b"general"[..]));
        assert_eq!(found.segments.len(), 3);
        assert_eq!(found.segments[0], (Segment::new(3), [3; 64], vec![1, 2, 3]));
        assert_eq!(found.segments[2], (Segment::new(5), [5; 64], vec![9; 1000]));
    }

    #[test]
    fn those_of_others_do_not_count() {
        let bytes = encoded();
        let others = [
            Owner { uuid: [8; 16], ..OWNER },
            Owner { seed: 8, ..OWNER },
            Owner { main: 5632, ..OWNER },
            Owner { policy: "auto", ..OWNER },
            Owner { policy: "hazard2", ..OWNER },
        ];
        for other in others {
            assert!(decode(&bytes, &other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn damaged_ones_do_not_count() {
        let bytes = encoded();
        assert!((0..bytes.len()).all(|end| read(&bytes[..end]).is_none()));
        for at in 0..bytes.len() * 8 {
            let mut hurt = bytes.clone();
            hurt[at / 8] ^= 1 << (at % 8);
            assert!(read(&hurt).is_none(), "bit {at}");
        }
    }

    /// Lengths that somebody made up, with the right CRC.
    #[test]
    fn lengths_are_not_believed() {
        for at in [20, 16, 87 + 4, 87 + 72 + 3 + 5] {
            for value in [0, 1, 0xFF] {
                let mut made_up = encoded();
                made_up[at] = value;
                let crc = crc_from(OWNER.seed, &made_up[16..]);
                made_up[12..16].copy_from_slice(&crc.to_le_bytes());
                if let Some(found) = read(&made_up) {
                    assert!(found.segments.len() < 60);
                }
            }
        }
    }
}
