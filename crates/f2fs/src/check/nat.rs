//! The node address table in memory: only the blocks of it that say anything.

use basalt_device::BlockDevice;
use zerocopy::FromBytes;

use super::fault::{Findings, Place};
use super::kind::FaultKind;
use crate::blocks::read_blocks;
use crate::checkpoint::load::Loaded;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::layout::nat::{ENTRIES_PER_BLOCK, RawNatEntry};
use crate::layout::{Address, BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid, bit_msb};

type Entries = [RawNatEntry; ENTRIES_PER_BLOCK as usize];

/// Every entry of the NAT, with the journal's on top.
pub(crate) struct NatTable {
    blocks: Vec<Option<Box<Entries>>>,
}

impl NatTable {
    /// Reads the current copy of every block, then the journal.
    pub(super) fn load(
        device: &dyn BlockDevice,
        geometry: &Geometry,
        loaded: &Loaded,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<NatTable> {
        let mut blocks = Vec::with_capacity(geometry.nat_blocks as usize);
        for first in (0..geometry.nat_blocks).step_by(BLOCKS_PER_SEGMENT as usize) {
            progress(first.into(), geometry.nat_blocks.into());
            let indexes = first..first + BLOCKS_PER_SEGMENT;
            let second = |index: u32| bit_msb(&loaded.nat_bitmap, index as usize);
            let read = |copy: bool| -> Result<Option<Vec<u8>>> {
                let is_used = |index: u32| second(index) == copy;
                if !indexes.clone().any(is_used) {
                    return Ok(None);
                }
                let start = geometry.nat_block(first, copy);
                // The two copies alternate by segment, so a segment of one copy is one request.
                if let Ok(bytes) = read_blocks(device, start, BLOCKS_PER_SEGMENT as usize) {
                    return Ok(Some(bytes));
                }
                // What cannot be read may be a block of which the other copy is in use.
                let blocks = start.onward().zip(indexes.clone()).map(|(address, index)| {
                    if is_used(index) { read_blocks(device, address, 1) } else { Ok(vec![0; BLOCK_SIZE]) }
                });
                Ok(Some(blocks.collect::<Result<Vec<_>>>()?.concat()))
            };
            let copies = [read(false)?, read(true)?];
            blocks.extend(indexes.clone().map(|index| {
                let bytes = copies[usize::from(second(index))].as_deref()?;
                parse(&bytes[(index - first) as usize * BLOCK_SIZE..][..BLOCK_SIZE])
            }));
        }
        let mut table = NatTable { blocks };
        for entry in &loaded.nat_journal {
            table.set(entry.nid(), entry.entry);
        }
        Ok(table)
    }

    fn set(&mut self, nid: Nid, entry: RawNatEntry) {
        // Ids out of range were reported when the journal was checked.
        if let Some(block) = self.blocks.get_mut(nid.nat_block() as usize) {
            let block = block.get_or_insert_with(|| Box::new([RawNatEntry::default(); ENTRIES_PER_BLOCK as usize]));
            block[nid.nat_slot()] = entry;
        }
    }

    /// The entry of a node id; an empty one for an id that does not exist.
    pub(crate) fn get(&self, nid: Nid) -> RawNatEntry {
        match self.blocks.get(nid.nat_block() as usize) {
            Some(Some(block)) => block[nid.nat_slot()],
            _ => RawNatEntry::default(),
        }
    }

    /// Entries in use in a block of the table; the first of all counts, though it is empty.
    pub(super) fn used_in(&self, index: u32) -> u32 {
        let block = self.blocks.get(index as usize).and_then(Option::as_deref);
        let in_use = |entry: &&RawNatEntry| entry.address() != Address::NULL;
        let used = block.map_or(0, |block| block.iter().skip(usize::from(index == 0)).filter(in_use).count());
        // A block has 455 entries.
        used as u32 + u32::from(index == 0)
    }

    /// Node ids in use, in order, without the reserved ones.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (Nid, RawNatEntry)> {
        let blocks = (0u32..).zip(&self.blocks);
        let entries =
            blocks.filter_map(|(index, block)| block.as_ref().map(|block| (Nid::in_nat_block(index, 0), block)));
        entries
            .flat_map(|(first, block)| first.onward().zip(block.iter().copied()))
            .filter(|(nid, entry)| *nid >= Nid::FIRST && entry.address() != Address::NULL)
    }

    /// Checks the entries of the reserved ids.
    pub(super) fn check_reserved(&self, findings: &mut Findings) {
        for (nid, expected) in [(0, Address::NULL), (1, Address::new(1)), (2, Address::new(1))] {
            let nid = Nid::new(nid);
            let address = self.get(nid).address();
            if address != expected {
                findings.add(
                    FaultKind::NatReserved,
                    Place::Node(nid),
                    format_args!("address {address}"),
                    format_args!("{expected}"),
                );
            }
        }
    }
}

fn parse(block: &[u8]) -> Option<Box<Entries>> {
    // Most blocks are zeros: compared as a whole, which is many times faster than byte by byte.
    if block == [0; BLOCK_SIZE] {
        return None;
    }
    let (entries, _) = Entries::read_from_prefix(block).ok()?;
    Some(Box::new(entries))
}
