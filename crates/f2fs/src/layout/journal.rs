//! The cleaning journal: Basalt's own, in blocks between the superblocks and segment 0 that F2FS leaves alone.
//!
//! | block | what |
//! |---|---|
//! | [`DESCRIPTOR_BLOCK`] | [`RawDescriptor`]: that there is a journal, and how many blocks it has |
//! | those behind it | journal blocks: [`RawJournalHeader`] and up to [`ENTRIES_PER_BLOCK`] times [`RawMove`] |
//!
//! A journal block counts only for the checkpoint whose version it carries. docs/cleaning-journal.md has the protocol; the idea is
//! E. Gwak and D. Shin's ("Segment Cleaning Journaling", IEEE Access 2021), the format is Basalt's.

use crate::layout::{Address, Nid};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc::crc_from;
use super::{BLOCK_SIZE, RawBlock};

/// Where the descriptor is. Blocks in front of it may be written by Linux, which writes back the page that holds the superblock.
pub const DESCRIPTOR_BLOCK: Address = Address::new(16);
/// First bytes of the descriptor.
pub const DESCRIPTOR_MAGIC: [u8; 8] = *b"BsltJrnl";
/// The version of the format below.
pub const FORMAT_VERSION: u32 = 1;
/// First bytes of a journal block: "BsJb".
pub const BLOCK_MAGIC: u32 = 0x624A_7342;
/// Moves that fit a block.
pub const ENTRIES_PER_BLOCK: usize = (BLOCK_SIZE - size_of::<RawJournalHeader>()) / size_of::<RawMove>();
/// Most blocks of a journal: 1 GiB, far more than is between the superblocks and segment 0.
pub const BLOCKS_MAX: u32 = 1 << 18;

/// That there is a journal.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDescriptor {
    /// [`DESCRIPTOR_MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`].
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
    /// [`BLOCK_MAGIC`].
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

/// A block that was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawMove {
    /// The address it had.
    pub old: U32,
    /// The address it has.
    pub new: U32,
    /// The node that points to it; of a node, its own id.
    pub nid: U32,
    /// Blocks in the roll-forward chain when it was moved: only nodes in front of this position may still have the old address.
    pub chained: U32,
    /// CRC of the block.
    pub crc: U32,
    /// Index of the pointer in the node; 0 of nodes.
    pub ofs_in_node: U16,
    /// 0 of data, 1 of nodes.
    pub kind: u8,
    /// Zero.
    pub reserved: u8,
}

const _: () = {
    assert!(size_of::<RawDescriptor>() == 40);
    assert!(size_of::<RawJournalHeader>() == 32);
    assert!(size_of::<RawMove>() == 24);
    assert!(ENTRIES_PER_BLOCK == 169);
};

/// `kind` of data.
pub const KIND_DATA: u8 = 0;
/// `kind` of nodes.
pub const KIND_NODE: u8 = 1;

impl RawMove {
    /// The node that points to the block; of a node, it itself.
    pub fn nid(&self) -> Nid {
        self.nid.into()
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
        crc_from(FORMAT_VERSION, &bytes[..bytes.len() - 4])
    }
}

/// The bytes of a journal block with its checksum. `seed` is the CRC of the volume's UUID; at most [`ENTRIES_PER_BLOCK`] moves count.
pub fn encode(mut header: RawJournalHeader, moves: &[RawMove], seed: u32) -> Box<RawBlock> {
    let mut block = RawBlock::zeroed();
    let moves = &moves[..moves.len().min(ENTRIES_PER_BLOCK)];
    header.magic.set(BLOCK_MAGIC);
    header.count.set(moves.len() as u32);
    let (head, rest) = block.0.split_at_mut(size_of::<RawJournalHeader>());
    head.copy_from_slice(header.as_bytes());
    rest[..size_of_val(moves)].copy_from_slice(moves.as_bytes());
    let crc = crc_from(seed, &block.0[8..]);
    block.0[4..8].copy_from_slice(&crc.to_le_bytes());
    block
}

/// Reads a journal block; `None` if it is none, torn, or another volume's.
pub fn decode(block: &[u8], seed: u32) -> Option<(RawJournalHeader, Vec<RawMove>)> {
    let (header, rest) = RawJournalHeader::read_from_prefix(block).ok()?;
    let count = header.count.get() as usize;
    if header.magic.get() != BLOCK_MAGIC || count > ENTRIES_PER_BLOCK {
        return None;
    }
    let is_whole = header.crc.get() == crc_from(seed, block.get(8..BLOCK_SIZE)?);
    if !is_whole && !crate::mutant::active(crate::mutant::Mutant::TornJournalAccepted) {
        return None;
    }
    let (moves, _) = <[RawMove]>::ref_from_prefix_with_elems(rest, count).ok()?;
    Some((header, moves.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_read_back_and_a_torn_one_is_not() {
        let one = |n: u32| RawMove {
            old: U32::new(n),
            new: U32::new(n + 1000),
            nid: U32::new(7),
            chained: U32::new(n / 2),
            crc: U32::new(n.wrapping_mul(77)),
            ofs_in_node: U16::new(n as u16),
            kind: KIND_DATA,
            reserved: 0,
        };
        let moves: Vec<RawMove> = (0..ENTRIES_PER_BLOCK as u32).map(one).collect();
        let header = RawJournalHeader {
            magic: U32::new(0),
            crc: U32::new(0),
            checkpoint_version: U64::new(0x1234_0000_0009),
            sequence: U32::new(3),
            commit: U32::new(2),
            blocks_in_commit: U16::new(2),
            index_in_commit: U16::new(1),
            count: U32::new(0),
        };
        for count in [0, 1, ENTRIES_PER_BLOCK] {
            let block = encode(header, &moves[..count], 99);
            let (found, read) = decode(&block.0, 99).expect("it is whole");
            assert_eq!((found.sequence.get(), found.count.get() as usize), (3, count));
            assert_eq!(read, moves[..count]);
            assert!(decode(&block.0, 98).is_none(), "another volume's");
            for sector in 0..(32 + 24 * count).div_ceil(512) {
                let mut torn = *block;
                torn.0[512 * sector..512 * (sector + 1)].fill(0xA5);
                assert!(decode(&torn.0, 99).is_none(), "{count} moves, sector {sector}");
            }
        }
    }
}
