//! Records as bytes, and back. What is read may be anything.

use basalt_segments::Segment;
use basalt_segments::placement::Hints;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::layout::BLOCK_SIZE;
use crate::layout::crc::crc_from;
use crate::layout::hotness::{DATA, FORMAT_VERSION, MAGIC, NODES, RawHotness, RawSegmentHotness};

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

/// What a segment was like when its records were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    pub holds_nodes: bool,
    pub modified: u64,
    pub live: [u8; 64],
}

/// Records that were read.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Another placement may have written them, or they may be of before the main area was moved.
    pub is_of_owner: bool,
    pub sequence: u64,
    /// Blocks in all.
    pub blocks: usize,
    pub general: Vec<u8>,
    pub segments: Vec<(Segment, Before, Vec<u8>)>,
}

/// The name of a policy as records have it: its first bytes.
fn name(policy: &str) -> [u8; 16] {
    let mut name = [0; 16];
    name.iter_mut().zip(policy.bytes()).for_each(|(to, from)| *to = from);
    name
}

/// Bytes of each further block, behind the magic.
const PER_BLOCK: usize = BLOCK_SIZE - MAGIC.len();
/// Sequence numbers from here on were made up: it must not be the last. Even.
const SEQUENCE_END: u64 = 1 << 62;

/// The sequence number behind one.
pub fn next(sequence: u64) -> u64 {
    if sequence + 1 >= SEQUENCE_END { 1 } else { sequence + 1 }
}

/// So many bytes of records fit as many blocks.
pub fn capacity(blocks: usize) -> usize {
    blocks * PER_BLOCK + MAGIC.len()
}

/// Blocks that so many bytes of records take.
pub fn blocks_for(bytes: usize) -> usize {
    1 + bytes.saturating_sub(BLOCK_SIZE).div_ceil(PER_BLOCK)
}

/// Records as blocks, with what each of their segments is like now.
pub fn encode(owner: &Owner, sequence: u64, version: u64, hints: &Hints, now: &[Before]) -> Vec<u8> {
    let bytes = to_bytes(owner, sequence, version, hints, now);
    let (first, rest) = bytes.split_at(bytes.len().min(BLOCK_SIZE));
    let mut blocks = first.to_vec();
    for chunk in rest.chunks(PER_BLOCK) {
        blocks.extend(MAGIC);
        blocks.extend(chunk);
    }
    blocks.resize(blocks.len().next_multiple_of(BLOCK_SIZE), 0);
    blocks
}

fn to_bytes(owner: &Owner, sequence: u64, version: u64, hints: &Hints, now: &[Before]) -> Vec<u8> {
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
    for (one, now) in hints.segments.iter().zip(now) {
        let raw = RawSegmentHotness {
            segment: U32::new(one.segment.get()),
            // The policy keeps to the most.
            bytes: U16::new(one.bytes.len() as u16),
            holds: U16::new(if now.holds_nodes { NODES } else { DATA }),
            modified: U64::new(now.modified),
            live: now.live,
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

/// The records in these blocks; `None` if they are not whole, or another volume's.
pub fn decode(blocks: &[u8], owner: &Owner) -> Option<Found> {
    let (first, rest) = blocks.split_at_checked(BLOCK_SIZE)?;
    let mut bytes = first.to_vec();
    for block in rest.chunks(BLOCK_SIZE) {
        bytes.extend(block.strip_prefix(&MAGIC)?);
    }
    let bytes = bytes.get(..length(&bytes, owner.uuid)?)?;
    let (raw, rest) = RawHotness::read_from_prefix(bytes).ok()?;
    let is_whole = raw.crc.get() == crc_from(owner.seed, &bytes[BEFORE_CRC_ENDS..]);
    if !is_whole || raw.sequence.get() >= SEQUENCE_END {
        return None;
    }
    let is_of_owner = raw.policy == name(owner.policy) && raw.main.get() == owner.main;
    let (general, mut rest) = rest.split_at_checked(raw.general_bytes.get() as usize)?;
    let mut segments = Vec::new();
    while !rest.is_empty() {
        let (raw, behind) = RawSegmentHotness::read_from_prefix(rest).ok()?;
        let (own, behind) = behind.split_at_checked(usize::from(raw.bytes.get()))?;
        let holds_nodes = raw.holds.get() == NODES;
        let before = Before { holds_nodes, modified: raw.modified.get(), live: raw.live };
        segments.push((Segment::new(raw.segment.get()), before, own.to_vec()));
        rest = behind;
    }
    Some(Found {
        is_of_owner,
        sequence: raw.sequence.get(),
        blocks: blocks.len() / BLOCK_SIZE,
        general: general.to_vec(),
        segments,
    })
}

#[cfg(test)]
mod tests {
    use basalt_segments::placement::SegmentHints;

    use super::*;

    const OWNER: Owner = Owner { uuid: [7; 16], seed: 9, main: 5120, policy: "hazard" };

    fn encode_with(sequence: u64) -> Vec<u8> {
        let segments = [(3, vec![1, 2, 3]), (900, vec![]), (5, (0..=255).cycle().take(9000).collect())];
        let segments = segments.map(|(segment, bytes)| SegmentHints { segment: Segment::new(segment), bytes });
        let hints = Hints { general: b"general".to_vec(), segments: segments.to_vec() };
        let before = |at| Before { holds_nodes: at == 4, modified: u64::from(at) << 40, live: [at; 64] };
        encode(&OWNER, sequence, 1234, &hints, &[before(3), before(4), before(5)])
    }

    fn read(blocks: &[u8]) -> Option<Found> {
        decode(blocks, &OWNER)
    }

    /// With the right CRC.
    fn sealed(mut blocks: Vec<u8>) -> Vec<u8> {
        let mut bytes = blocks[..BLOCK_SIZE].to_vec();
        blocks[BLOCK_SIZE..].chunks(BLOCK_SIZE).for_each(|block| bytes.extend(&block[8..]));
        let end = (blocks[16..20].try_into().map_or(0, u32::from_le_bytes) as usize).clamp(16, bytes.len());
        let crc = crc_from(OWNER.seed, &bytes[16..end]);
        blocks[12..16].copy_from_slice(&crc.to_le_bytes());
        blocks
    }

    #[test]
    fn records_come_back() {
        let blocks = encode_with(4);
        let length = 80 + 7 + 3 * 80 + 9003;
        assert_eq!((blocks.len(), blocks_for(length)), (3 * BLOCK_SIZE, 3));
        assert!(blocks.chunks(BLOCK_SIZE).all(|block| block.starts_with(&MAGIC)));
        let found = read(&blocks).unwrap();
        assert_eq!((found.sequence, found.blocks, &found.general[..]), (4, 3, &b"general"[..]));
        assert_eq!(found.segments.len(), 3);
        let before = Before { holds_nodes: false, modified: 3 << 40, live: [3; 64] };
        assert_eq!(found.segments.iter().map(|one| one.1.holds_nodes).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(found.segments[0], (Segment::new(3), before, vec![1, 2, 3]));
        assert!(found.segments[2].2.iter().copied().eq((0..=255).cycle().take(9000)));
        assert_eq!(sealed(blocks.clone()), blocks);
    }

    #[test]
    fn as_much_fits_as_is_said() {
        for blocks in 1..9 {
            assert_eq!([0, 1].map(|more| blocks_for(capacity(blocks) + more)), [blocks, blocks + 1]);
        }
    }

    #[test]
    fn those_of_others_do_not_count() {
        let blocks = encode_with(4);
        let others =
            [Owner { main: 5632, ..OWNER }, Owner { policy: "auto", ..OWNER }, Owner { policy: "hazard2", ..OWNER }];
        for other in others {
            assert!(decode(&blocks, &other).is_some_and(|found| !found.is_of_owner), "{other:?}");
        }
        assert!(read(&blocks).is_some_and(|found| found.is_of_owner));
        for other in [Owner { uuid: [8; 16], ..OWNER }, Owner { seed: 8, ..OWNER }] {
            assert!(decode(&blocks, &other).is_none(), "{other:?}");
        }
        let at = |sequence| read(&encode_with(sequence)).map(|found| next(found.sequence));
        assert_eq!([4, SEQUENCE_END - 1, SEQUENCE_END, u64::MAX].map(at), [Some(5), Some(1), None, None]);
    }

    #[test]
    fn damaged_ones_do_not_count() {
        let blocks = encode_with(4);
        assert!((0..3).all(|count| read(&blocks[..count * BLOCK_SIZE]).is_none()));
        // What is behind the end does not matter.
        let end = (80 + 7 + 3 * 80 + 9003 + 2 * 8) * 8;
        for at in (0..end).step_by(3) {
            let mut hurt = blocks.clone();
            hurt[at / 8] ^= 1 << (at % 8);
            assert!(read(&hurt).is_none(), "bit {at}");
        }
    }

    /// Lengths that somebody made up, with the right CRC.
    #[test]
    fn lengths_are_not_believed() {
        let mut refused = 0;
        for at in [20, 16, 87 + 4, 87 + 80 + 3 + 5, 87 + 160 + 3 + 5] {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut made_up = encode_with(4);
                made_up[at] = value;
                match read(&sealed(made_up)) {
                    Some(found) => assert!(found.segments.len() < 120),
                    None => refused += 1,
                }
            }
        }
        assert!(refused > 10, "{refused}");
    }
}
