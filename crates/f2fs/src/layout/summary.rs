//! Segment summaries: who owns each block of a segment; and the NAT and SIT journals stored behind them.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::nat::RawNatEntry;
use super::sit::RawSitEntry;
use crate::layout::Nid;

/// Entries in a summary block.
pub const ENTRIES: usize = 512;
/// Bytes of the entries.
pub const ENTRIES_SIZE: usize = ENTRIES * size_of::<RawSummary>();
/// Bytes of the footer.
pub const FOOTER_SIZE: usize = 5;
/// Bytes left for a journal between entries and footer.
pub const JOURNAL_SIZE: usize = super::BLOCK_SIZE - ENTRIES_SIZE - FOOTER_SIZE;
/// Most NAT entries in a journal.
pub const NAT_JOURNAL_ENTRIES: usize = (JOURNAL_SIZE - 2) / size_of::<RawNatJournalEntry>();
/// Most NAT entries Basalt writes: GRUB fails at a full journal.
pub const NAT_JOURNAL_ENTRIES_WRITTEN: usize = NAT_JOURNAL_ENTRIES - 1;
/// Most SIT entries in a journal.
pub const SIT_JOURNAL_ENTRIES: usize = (JOURNAL_SIZE - 2) / size_of::<RawSitJournalEntry>();
/// Owners that compact summaries have in their first block, behind the two journals.
pub const COMPACT_FIRST: usize = (super::BLOCK_SIZE - 2 * JOURNAL_SIZE - FOOTER_SIZE) / size_of::<RawSummary>();
/// Owners that they have in each further block: none crosses into the place of a footer.
pub const COMPACT_NEXT: usize = (super::BLOCK_SIZE - FOOTER_SIZE) / size_of::<RawSummary>();
/// Footer type of a data segment.
pub const TYPE_DATA: u8 = 0;
/// Footer type of a node segment.
pub const TYPE_NODE: u8 = 1;

/// The owner of one block: for data, the node that points to it and where; for nodes, their own id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSummary {
    /// Owning node id.
    pub nid: U32,
    /// Version of the owner's NAT entry.
    pub version: u8,
    /// Index of the block's address in the owning node.
    pub ofs_in_node: U16,
}

/// A NAT entry in the journal.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawNatJournalEntry {
    /// Node id.
    pub nid: U32,
    /// Its entry.
    pub entry: RawNatEntry,
}

/// A SIT entry in the journal.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSitJournalEntry {
    /// Segment number.
    pub segno: U32,
    /// Its entry.
    pub entry: RawSitEntry,
}

/// A summary block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSummaryBlock {
    /// One owner for each block of the segment.
    pub entries: [RawSummary; ENTRIES],
    /// `n_nats` or `n_sits`, then the entries.
    pub journal: [u8; JOURNAL_SIZE],
    /// [`TYPE_DATA`] or [`TYPE_NODE`].
    pub entry_type: u8,
    /// Unused by Linux.
    pub check_sum: U32,
}

const _: () = {
    assert!(size_of::<RawSummary>() == 7);
    assert!(size_of::<RawSummaryBlock>() == super::BLOCK_SIZE);
    assert!(JOURNAL_SIZE == 507 && NAT_JOURNAL_ENTRIES == 38 && SIT_JOURNAL_ENTRIES == 6);
};

impl RawSummary {
    /// The owning node.
    pub fn nid(&self) -> Nid {
        self.nid.into()
    }
}

impl RawNatJournalEntry {
    /// The node whose entry it is.
    pub fn nid(&self) -> Nid {
        self.nid.into()
    }
}

impl RawSummaryBlock {
    /// An empty summary of a data or node segment, on the heap.
    pub fn empty(entry_type: u8) -> Box<RawSummaryBlock> {
        Box::new(RawSummaryBlock {
            entries: [RawSummary::default(); ENTRIES],
            journal: [0; JOURNAL_SIZE],
            entry_type,
            check_sum: U32::new(0),
        })
    }
}

/// Blocks that compact summaries of so many owners take.
pub const fn compact_blocks(owners: usize) -> u32 {
    1 + owners.saturating_sub(COMPACT_FIRST).div_ceil(COMPACT_NEXT) as u32
}

/// Reads the entries of a NAT journal; `None` if the count is out of range.
pub fn nat_journal(journal: &[u8]) -> Option<&[RawNatJournalEntry]> {
    let count = usize::from(u16::from_le_bytes([journal[0], journal[1]]));
    if count > NAT_JOURNAL_ENTRIES {
        return None;
    }
    <[RawNatJournalEntry]>::ref_from_prefix_with_elems(&journal[2..], count).ok().map(|(entries, _)| entries)
}

/// Reads the entries of a SIT journal; `None` if the count is out of range.
pub fn sit_journal(journal: &[u8]) -> Option<&[RawSitJournalEntry]> {
    let count = usize::from(u16::from_le_bytes([journal[0], journal[1]]));
    if count > SIT_JOURNAL_ENTRIES {
        return None;
    }
    <[RawSitJournalEntry]>::ref_from_prefix_with_elems(&journal[2..], count).ok().map(|(entries, _)| entries)
}

/// Encodes a journal: the count, then the entries; the rest is zero. `entries` must fit, as the constants above say.
pub fn encode_journal<T: IntoBytes + Immutable>(entries: &[T]) -> [u8; JOURNAL_SIZE] {
    let mut journal = [0; JOURNAL_SIZE];
    journal[..2].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    let bytes = entries.as_bytes();
    journal[2..2 + bytes.len()].copy_from_slice(bytes);
    journal
}
