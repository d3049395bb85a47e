//! Seals: how one flush is enough for an fsync.
//!
//! A device may write what lies between two flushes in any order, and tear blocks. Linux's F2FS therefore either waits for the
//! data before it writes the node that points there (a second flush), or takes the risk that the node alone survives. Basalt
//! writes one more block into the chain, in front of an fsync's nodes: it lists every block of file data and every node that
//! was written since the last seal (or flush), each with its CRC. Recovery believes the nodes behind a seal only if all that it
//! lists is there; otherwise the fsync had not returned, and the chain ends.
//!
//! In place of nodes, a seal may tell what changed of a file: see [`delta`](super::delta).
//!
//! To Linux a seal is a node of the chain without an fsync mark, of node 0: it is passed over, and belongs to no inode. No
//! live block, no table and no checkpoint knows of it.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use super::delta::Delta;
use crate::layout::crc::{crc, crc_from};
use crate::layout::node::{ADDRS_PER_NODE, FOOTER_OFFSET, NodeFlags, RawNode, RawNodeFooter};
use crate::layout::{Address, BLOCK_SIZE, RawBlock};

/// "BSEL".
const MAGIC: u32 = 0x4C45_5342;
/// "BSED", a seal with a delta.
const DELTA_MAGIC: u32 = 0x4445_5342;
/// Slots in front of the list: magic, nodes that follow, entries, CRC, durable blocks, position.
pub(super) const HEAD: usize = 6;
/// "BSEA", the seal of earlier versions: it does not say what was durable.
const OLD_MAGIC: u32 = 0x4145_5342;
/// The same slots but the last two.
const OLD_HEAD: usize = 4;
/// Entries that fit one seal.
pub const ENTRIES_MAX: usize = (ADDRS_PER_NODE as usize - HEAD) / 2;

/// A block and what it must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Its address.
    pub address: Address,
    /// CRC of its bytes.
    pub crc: u32,
}

impl Sealed {
    /// The entry of a block.
    pub fn of(address: Address, bytes: &[u8]) -> Sealed {
        Sealed { address, crc: crc(bytes) }
    }
}

/// What a seal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// Nodes of the fsync: the next in the chain.
    pub nodes: u32,
    /// What must be there.
    pub entries: Vec<Sealed>,
    /// Blocks of the chain, from its first on, that a flush had made durable when the seal was written, with all that their seals list.
    pub durable: u32,
    /// Blocks of the chain in front of the seal; `None` in a seal of an earlier version.
    pub position: Option<u32>,
    /// What changed of a file, where no nodes follow that say so.
    pub delta: Option<Delta>,
}

impl Seal {
    /// The block; `version` and `next` are its footer's. At most [`ENTRIES_MAX`] entries count. A delta must [fit](Delta::fits).
    pub fn encode(&self, version: u64, next: Address) -> Box<RawBlock> {
        let mut block = RawBlock::zeroed();
        let count = self.entries.len().min(ENTRIES_MAX);
        let mut used = HEAD + 2 * count;
        if let Ok(raw) = RawNode::mut_from_bytes(&mut block.0) {
            raw.slots[0].set(if self.delta.is_some() { DELTA_MAGIC } else { MAGIC });
            raw.slots[1].set(self.nodes);
            raw.slots[2].set(count as u32);
            raw.slots[4].set(self.durable);
            raw.slots[5].set(self.position.unwrap_or_default());
            for (pair, entry) in raw.slots[HEAD..].chunks_exact_mut(2).zip(&self.entries) {
                pair[0].set(entry.address.get());
                pair[1].set(entry.crc);
            }
            if let Some(delta) = &self.delta {
                used += delta.encode(&mut raw.slots[used..]);
            }
            raw.footer = RawNodeFooter {
                nid: U32::new(0),
                ino: U32::new(0),
                flag: U32::new(NodeFlags::COLD.bits()),
                cp_ver: U64::new(version),
                next_blkaddr: next.into(),
            };
        }
        let sum = checksum(&block.0, used);
        block.0[12..16].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// As [`decode`](Self::decode), from a block as it was read.
    pub fn of_block(block: &[u8]) -> Option<Seal> {
        block.try_into().ok().and_then(Seal::decode)
    }

    /// Reads a seal; `None` if it is torn or none.
    pub fn decode(block: &[u8; BLOCK_SIZE]) -> Option<Seal> {
        let raw = RawNode::ref_from_bytes(block).ok()?;
        let (head, durable, position) = match raw.slots[0].get() {
            MAGIC | DELTA_MAGIC => (HEAD, raw.slots[4].get(), Some(raw.slots[5].get())),
            OLD_MAGIC => (OLD_HEAD, 0, None),
            _ => return None,
        };
        // No seal was written that knows of more than is in front of it.
        if position.is_some_and(|position| durable > position) {
            return None;
        }
        let count = raw.slots[2].get() as usize;
        let entries_end = head + 2 * count.min(raw.slots.len());
        let behind = raw.slots.get(entries_end..)?;
        let is_delta = raw.slots[0].get() == DELTA_MAGIC;
        let delta = if is_delta { Some(Delta::decode(behind)?) } else { None };
        let end = entries_end + delta.as_ref().map_or(0, Delta::slots);
        if raw.slots[3].get() != checksum(block, end) || delta.as_ref().is_some_and(|delta| delta.listed.len() > count)
        {
            return None;
        }
        let pairs = raw.slots[head..].chunks_exact(2).take(count);
        let entries = pairs.map(|pair| Sealed { address: pair[0].into(), crc: pair[1].get() }).collect();
        Some(Seal { nodes: raw.slots[1].get(), entries, durable, position, delta })
    }
}

/// Whether a node of the chain is a seal's: no node has this id.
pub fn is_seal(footer: &RawNodeFooter) -> bool {
    footer.nid.get() == 0 && footer.ino.get() == 0
}

/// CRC of the first so many slots but its own, and of the footer.
fn checksum(block: &[u8; BLOCK_SIZE], slots: usize) -> u32 {
    [&block[..12], &block[16..4 * slots], &block[FOOTER_OFFSET..]].into_iter().fold(OLD_MAGIC, crc_from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_read_back_and_a_torn_one_is_not() {
        let entries: Vec<Sealed> = (0..ENTRIES_MAX as u32)
            .map(|i| Sealed { address: Address::new(5000 + i), crc: i.wrapping_mul(77) })
            .collect();
        for count in [0, 1, 100, ENTRIES_MAX] {
            let seal = Seal {
                nodes: 3,
                entries: entries[..count].to_vec(),
                durable: 0x0102_0304,
                position: Some(0x0102_0304),
                delta: None,
            };
            let block = seal.encode(0x1234_5678_0000_0009, Address::new(77));
            assert_eq!(Seal::decode(&block.0), Some(seal), "{count} entries");
            // The sectors that hold the list, and the one of the footer.
            for sector in (0..(4 * (HEAD + 2 * count)).div_ceil(512)).chain([7]) {
                let mut torn = *block;
                torn.0[512 * sector..512 * (sector + 1)].fill(0);
                assert_eq!(Seal::decode(&torn.0), None, "{count} entries, sector {sector}");
            }
        }
    }
}
