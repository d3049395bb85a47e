//! The cleaning journal: Basalt's own, in blocks between the superblocks and segment 0 that F2FS leaves alone.
//!
//! | block | what |
//! |---|---|
//! | [`DESCRIPTOR_BLOCK`] | [`RawDescriptor`]: that there is a journal, and how many blocks it has |
//! | those behind it | journal blocks: [`RawJournalHeader`], and as many moves as there is room for, as `journal/moves.rs` has them |
//!
//! A journal block counts only for the checkpoint whose version it carries. docs/cleaning-journal.md has the protocol; the idea is
//! E. Gwak and D. Shin's ("Segment Cleaning Journaling", IEEE Access 2021), the format is Basalt's.
//!
//! Blocks of the first version of the format have up to [`ENTRIES_PER_OLD_BLOCK`] times [`RawOldMove`]. They are read, and not written.

mod moves;

pub use moves::Move;

use crate::layout::Address;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc::crc_from;
use super::{BLOCK_SIZE, RawBlock};

/// Where the descriptor is. Blocks in front of it may be written by Linux, which writes back the page that holds the superblock.
pub const DESCRIPTOR_BLOCK: Address = Address::new(16);
/// First bytes of the descriptor.
pub const DESCRIPTOR_MAGIC: [u8; 8] = *b"BsltJrnl";
/// The version of the format below. A Basalt that knows an older one only does not touch the journal.
pub const FORMAT_VERSION: u32 = 2;
/// The first version of the format, in which every move takes 24 bytes.
pub const FIRST_VERSION: u32 = 1;
/// First bytes of a journal block: "BsJc".
pub const BLOCK_MAGIC: u32 = 0x634A_7342;
/// First bytes of a journal block of [`FIRST_VERSION`]: "BsJb".
pub const OLD_BLOCK_MAGIC: u32 = 0x624A_7342;
/// Moves that fit a block of [`FIRST_VERSION`].
pub const ENTRIES_PER_OLD_BLOCK: usize = MOVES_BYTES / size_of::<RawOldMove>();
/// Bytes of a journal block behind its header.
const MOVES_BYTES: usize = BLOCK_SIZE - size_of::<RawJournalHeader>();
/// More moves than fit a block, of at least 5 bytes each.
const COUNT_MAX: usize = MOVES_BYTES / 5;
/// Most blocks of a journal: 64 MiB, far more than is of use, and what recovery can keep in memory.
pub const BLOCKS_MAX: u32 = 1 << 14;

/// That there is a journal.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDescriptor {
    /// [`DESCRIPTOR_MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`], or [`FIRST_VERSION`].
    pub version: U32,
    /// The volume's UUID: another volume's descriptor, left from before, does not count.
    pub uuid: [u8; 16],
    /// First journal block.
    pub first: U32,
    /// Journal blocks.
    pub blocks: U32,
    /// CRC of the fields above.
    pub crc: U32,
}

/// In front of the moves of a journal block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawJournalHeader {
    /// [`BLOCK_MAGIC`], or [`OLD_BLOCK_MAGIC`].
    pub magic: U32,
    /// CRC of everything behind this field, seeded with the CRC of the volume's UUID.
    pub crc: U32,
    /// Version of the checkpoint that the moves follow, its checksum above it: as `cp_ver` of nodes.
    pub checkpoint_version: U64,
    /// Which block of the journal this is, from 0.
    pub sequence: U32,
    /// Which commit since the checkpoint this is, from 0.
    pub commit: U32,
    /// Blocks of this commit, and which of them this is.
    pub blocks_in_commit: U16,
    /// Which of them this is, from 0.
    pub index_in_commit: U16,
    /// Moves in the block.
    pub count: U32,
}

/// A block that was moved, in [`FIRST_VERSION`]; the fields are those of [`Move`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawOldMove {
    /// The address it had.
    pub old: U32,
    /// The address it has.
    pub new: U32,
    /// The node that points to it.
    pub nid: U32,
    /// Blocks in the roll-forward chain when it was moved.
    pub chained: U32,
    /// CRC of the block.
    pub crc: U32,
    /// Index of the pointer in the node.
    pub ofs_in_node: U16,
    /// [`KIND_DATA`] or [`KIND_NODE`].
    pub kind: u8,
    /// Zero.
    pub reserved: u8,
}

const _: () = {
    assert!(size_of::<RawDescriptor>() == 40);
    assert!(size_of::<RawJournalHeader>() == 32);
    assert!(size_of::<RawOldMove>() == 24);
    assert!(ENTRIES_PER_OLD_BLOCK == 169);
};

/// `kind` of data.
pub const KIND_DATA: u8 = 0;
/// `kind` of nodes.
pub const KIND_NODE: u8 = 1;

impl From<&RawOldMove> for Move {
    fn from(raw: &RawOldMove) -> Move {
        Move {
            old: raw.old.into(),
            new: raw.new.into(),
            nid: raw.nid.into(),
            ofs_in_node: raw.ofs_in_node.get(),
            kind: raw.kind,
            chained: raw.chained.get(),
            crc: raw.crc.get(),
        }
    }
}

impl RawDescriptor {
    /// The descriptor of a journal of `blocks` blocks.
    pub fn new(uuid: [u8; 16], blocks: u32) -> RawDescriptor {
        let mut descriptor = RawDescriptor {
            magic: DESCRIPTOR_MAGIC,
            version: U32::new(FORMAT_VERSION),
            uuid,
            first: (DESCRIPTOR_BLOCK + 1).into(),
            blocks: U32::new(blocks),
            crc: U32::new(0),
        };
        descriptor.crc = U32::new(descriptor.expected_crc());
        descriptor
    }

    /// The checksum it should carry.
    pub fn expected_crc(&self) -> u32 {
        let bytes = self.as_bytes();
        crc_from(self.version.get(), &bytes[..bytes.len() - 4])
    }
}

/// The moves of a commit, cut into what fits a block each. There is one block without a move where there are none.
pub fn cut(mut moves: &[Move]) -> Vec<&[Move]> {
    let mut parts = Vec::new();
    let mut bytes = Vec::with_capacity(MOVES_BYTES);
    loop {
        bytes.clear();
        let (part, rest) = moves.split_at(moves::put(moves, MOVES_BYTES, &mut bytes));
        parts.push(part);
        if rest.is_empty() {
            return parts;
        }
        moves = rest;
    }
}

/// The bytes of a journal block with its checksum. `seed` is the CRC of the volume's UUID; of the moves, those that fit count: see [`cut`].
pub fn encode(mut header: RawJournalHeader, moves: &[Move], seed: u32) -> Box<RawBlock> {
    let mut block = RawBlock::zeroed();
    let mut bytes = Vec::with_capacity(MOVES_BYTES);
    let count = moves::put(moves, MOVES_BYTES, &mut bytes);
    header.magic.set(BLOCK_MAGIC);
    header.count.set(count as u32);
    let (head, rest) = block.0.split_at_mut(size_of::<RawJournalHeader>());
    head.copy_from_slice(header.as_bytes());
    rest[..bytes.len()].copy_from_slice(&bytes);
    let crc = crc_from(seed, &block.0[8..]);
    block.0[4..8].copy_from_slice(&crc.to_le_bytes());
    block
}

/// Reads a journal block of either version; `None` if it is none, torn, or another volume's.
pub fn decode(block: &[u8], seed: u32) -> Option<(RawJournalHeader, Vec<Move>)> {
    let (header, rest) = RawJournalHeader::read_from_prefix(block).ok()?;
    let count = header.count.get() as usize;
    let (is_old, most) = match header.magic.get() {
        BLOCK_MAGIC => (false, COUNT_MAX),
        OLD_BLOCK_MAGIC => (true, ENTRIES_PER_OLD_BLOCK),
        _ => return None,
    };
    if count > most {
        return None;
    }
    let is_whole = header.crc.get() == crc_from(seed, block.get(8..BLOCK_SIZE)?);
    if !is_whole && !crate::mutant::active(crate::mutant::Mutant::TornJournalAccepted) {
        return None;
    }
    if is_old {
        let (moves, _) = <[RawOldMove]>::ref_from_prefix_with_elems(rest, count).ok()?;
        return Some((header, moves.iter().map(Move::from).collect()));
    }
    Some((header, moves::take(rest, count)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Nid;

    fn header() -> RawJournalHeader {
        RawJournalHeader {
            magic: U32::new(0),
            crc: U32::new(0),
            checkpoint_version: U64::new(0x1234_0000_0009),
            sequence: U32::new(3),
            commit: U32::new(2),
            blocks_in_commit: U16::new(2),
            index_in_commit: U16::new(1),
            count: U32::new(0),
        }
    }

    /// Scattered blocks of one file: about what random writes leave to be moved.
    fn scattered(count: u32) -> Vec<Move> {
        let one = |n: u32| Move {
            old: Address::new(9000 + 2 * n),
            new: Address::new(50_000 + n),
            nid: Nid::new(7 + n * 7919 % 300),
            ofs_in_node: (n * 104_729 % 1018) as u16,
            kind: KIND_DATA,
            chained: n / 100,
            crc: n.wrapping_mul(0x9E37_79B9),
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn a_block_is_read_back_and_a_torn_one_is_not() {
        let moves = scattered(1000);
        let fits = cut(&moves)[0].len();
        for count in [0, 1, 100, fits] {
            let block = encode(header(), &moves[..count], 99);
            let (found, read) = decode(&block.0, 99).expect("it is whole");
            assert_eq!((found.sequence.get(), found.count.get() as usize), (3, count));
            assert_eq!(read, moves[..count]);
            assert!(decode(&block.0, 98).is_none(), "another volume's");
            for sector in 0..(32 + 9 * count).div_ceil(512).min(8) {
                let mut torn = *block;
                torn.0[512 * sector..512 * (sector + 1)].fill(0xA5);
                assert!(decode(&torn.0, 99).is_none(), "{count} moves, sector {sector}");
            }
        }
    }

    #[test]
    fn a_commit_is_cut_into_blocks_as_full_as_they_get() {
        let moves = scattered(2000);
        let parts = cut(&moves);
        assert_eq!(parts.concat(), moves);
        for (at, part) in parts.iter().enumerate() {
            let (_, read) = decode(&encode(header(), part, 5).0, 5).unwrap();
            assert_eq!(read, *part);
            // A victim of 512 blocks that is 80 % live takes one block.
            assert!(part.len() >= 410 || at + 1 == parts.len(), "block {at}: {} moves", part.len());
        }
        assert_eq!(cut(&[]), [&[] as &[Move]]);
    }

    #[test]
    fn the_most_that_fits_a_block_is_read_and_one_more_is_not() {
        let run: Vec<Move> = (0..2000_u32)
            .map(|n| Move {
                old: Address::new(100 + n),
                new: Address::new(9000 + n),
                nid: Nid::new(4),
                ofs_in_node: n as u16,
                ..Move::default()
            })
            .collect();
        let part = cut(&run)[0];
        let mut block = encode(header(), part, 1);
        assert_eq!(decode(&block.0, 1).unwrap().1.len(), part.len());
        block.0[28..32].copy_from_slice(&(COUNT_MAX as u32 + 1).to_le_bytes());
        let crc = crc_from(1, &block.0[8..]);
        block.0[4..8].copy_from_slice(&crc.to_le_bytes());
        assert!(decode(&block.0, 1).is_none());
    }

    #[test]
    fn a_block_of_the_first_version_is_read() {
        let moves = scattered(3);
        let raw = moves.iter().map(|one| RawOldMove {
            old: one.old.into(),
            new: one.new.into(),
            nid: one.nid.get().into(),
            chained: one.chained.into(),
            crc: one.crc.into(),
            ofs_in_node: one.ofs_in_node.into(),
            kind: one.kind,
            reserved: 0,
        });
        let mut block = RawBlock::zeroed();
        let mut head = header();
        (head.magic, head.count) = (U32::new(OLD_BLOCK_MAGIC), U32::new(3));
        block.0[..32].copy_from_slice(head.as_bytes());
        raw.enumerate().for_each(|(at, one)| block.0[32 + 24 * at..][..24].copy_from_slice(one.as_bytes()));
        let crc = crc_from(5, &block.0[8..]);
        block.0[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&block.0, 5).unwrap().1, moves);
        block.0[40] ^= 1;
        assert!(decode(&block.0, 5).is_none());
    }
}
